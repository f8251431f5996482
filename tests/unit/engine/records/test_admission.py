"""The gate before the window operator: every kind of bad input (S-B1)."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater.engine.aggregates import Needs
from lowwater.engine.records.admission import Admission, Admitted, Records
from lowwater.engine.records.admit_times import TimeFormat
from lowwater.engine.records.columns import Column
from lowwater.errors import DataError, InvalidArgument
from lowwater.time import LAST_EVENT_TIME, START_OF_TIME
from lowwater.windows import Sessions

NOON = "2000-01-01T12:00:00Z"
NOON_US = 946_728_000_000_000


def records(**columns: list[Any]) -> Records:
    """Return records of Python values."""
    made = {name: Column.of_objects(values) for name, values in columns.items()}
    return Records(made, len(next(iter(columns.values()))))


def arrow(**columns: Any) -> Records:
    """Return records of Arrow columns."""
    return Records.from_arrow(pa.RecordBatch.from_pydict(columns))


def admission_for(needs: Mapping[str, Needs] | None = None, **options: Any) -> Admission:
    return Admission(time="t", keys=("k",), needs=needs or {}, **options)


NAN = float("nan")


def reasons(admitted: Admitted) -> list[str]:
    return [error.reason for error in admitted.errors]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "null_time"),
        (pd.NaT, "null_time"),
        (np.datetime64("NaT"), "null_time"),
        (float("nan"), "null_time"),
        ("soon", "bad_time"),
        ("", "bad_time"),
        (1.5, "bad_time"),
        (True, "bad_time"),
        (dt.datetime(2000, 1, 1), "bad_time"),  # noqa: DTZ001  # that is the point
        ("2000-01-01T12:00:00", "bad_time"),
        (dt.date(2000, 1, 1), "bad_time"),
        ([1], "bad_time"),
        (2**63 - 1, "time_out_of_range"),
        (LAST_EVENT_TIME + 1, "time_out_of_range"),
        (2**80, "time_out_of_range"),
        (-(2**80), "time_out_of_range"),
    ],
)
def test_an_unusable_event_time_is_a_dead_letter(value: Any, reason: str) -> None:
    """S-B1."""
    admitted = admission_for().admit(records(t=[NOON, value, NOON], k=["a", "b", "c"]))
    assert reasons(admitted) == [reason]
    assert admitted.kept is not None
    assert admitted.kept.tolist() == [0, 2]
    assert admitted.bundle.times.tolist() == [NOON_US, NOON_US]
    assert admitted.errors[0].record["k"] == "b"


@pytest.mark.parametrize(
    "value",
    [
        NOON,
        "2000-01-01 13:00:00+01:00",
        NOON_US,
        np.int64(NOON_US),
        np.datetime64("2000-01-01T12:00:00"),
        dt.datetime(2000, 1, 1, 12, tzinfo=dt.UTC),
        pd.Timestamp(NOON),
        pd.Timestamp("2000-01-01T13:00:00+01:00"),
    ],
)
def test_every_form_of_instant_is_taken(value: Any) -> None:
    """S-T1."""
    admitted = admission_for().admit(records(t=[value], k=["a"]))
    assert admitted.bundle.times.tolist() == [NOON_US]


def test_a_naive_time_is_refused_with_a_hint() -> None:
    """S-T1."""
    admitted = admission_for().admit(records(t=["2000-01-01T12:00:00"], k=["a"]))
    assert "has no time zone" in admitted.errors[0].detail


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_arrow_timestamps_of_every_unit(unit: str) -> None:
    column = pa.array([NOON_US], pa.timestamp("us", "Europe/Berlin")).cast(
        pa.timestamp(unit, "Europe/Berlin")
    )
    assert admission_for().admit(arrow(t=column, k=["a"])).bundle.times.tolist() == [NOON_US]


def test_nanoseconds_are_floored() -> None:
    column = pa.array([-1, 999, 1000], pa.timestamp("ns", "UTC"))
    assert admission_for().admit(arrow(t=column, k=["a"] * 3)).bundle.times.tolist() == [-1, 0, 1]


def test_seconds_that_do_not_fit_are_out_of_range() -> None:
    column = pa.array([2**62, 1, -(2**62), None], pa.timestamp("s", "UTC"))
    admitted = admission_for().admit(arrow(t=column, k=["a"] * 4))
    assert reasons(admitted) == ["time_out_of_range", "time_out_of_range", "null_time"]
    assert admitted.bundle.times.tolist() == [1_000_000]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1.5]),
        pa.array([True]),
        pa.array([1], pa.timestamp("us")),
        pa.array([1], pa.date32()),
        pa.array([1], pa.time64("us")),
        pa.array([1], pa.duration("us")),
    ],
    ids=lambda column: str(column.type),
)
def test_a_column_that_names_no_instants_is_refused(column: pa.Array) -> None:
    with pytest.raises(InvalidArgument, match="are not instants"):
        admission_for().admit(arrow(t=column, k=["a"]))


def test_a_time_zone_gives_local_times_a_meaning() -> None:
    local = pa.array([dt.datetime(2000, 1, 1, 13)], pa.timestamp("us"))  # noqa: DTZ001
    admission = admission_for(times=TimeFormat("Europe/Berlin"))
    assert admission.admit(arrow(t=local, k=["a"])).bundle.times.tolist() == [NOON_US]
    assert admission.admit(records(t=["2000-01-01T13:00:00"], k=["a"])).bundle.times[0] == NOON_US
    text = arrow(t=["2000-01-01T13:00:00", NOON], k=["a", "b"])
    assert admission.admit(text).bundle.times.tolist() == [NOON_US, NOON_US]


def test_hours_that_a_zone_skips_or_shows_twice_are_dead_letters() -> None:
    texts = ["2024-10-27T02:30:00", "2024-03-31T02:30:00", "2024-06-01T00:00:00"]
    admission = admission_for(times=TimeFormat("Europe/Berlin"))
    as_objects = admission.admit(records(t=texts, k=["a"] * 3))
    as_text = admission.admit(arrow(t=texts, k=["a"] * 3))
    typed = pa.array(texts).cast(pa.timestamp("us"))
    as_times = admission.admit(arrow(t=typed, k=["a"] * 3))
    for admitted in (as_objects, as_text, as_times):
        assert reasons(admitted) == ["bad_time", "bad_time"]
        assert admitted.bundle.times.tolist() == as_times.bundle.times.tolist()


def test_text_times_of_a_column_fail_one_by_one() -> None:
    texts = [NOON, "soon", None, NOON, "2000-01-01T12:00:00", NOON]
    admitted = admission_for().admit(arrow(t=texts, k=list("abcdef")))
    assert reasons(admitted) == ["bad_time", "null_time", "bad_time"]
    assert admitted.bundle.times.tolist() == [NOON_US] * 3


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (None, "null_key"),
        (float("nan"), "null_key"),
        (pd.NaT, "null_key"),
        ([1], "wrong_type"),
        ({}, "wrong_type"),
    ],
)
def test_an_unusable_key_is_a_dead_letter(key: Any, reason: str) -> None:
    """S-B1."""
    assert reasons(admission_for().admit(records(t=[1, 2], k=["a", key]))) == [reason]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", None]),
        pa.array(["a", None]).dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None])),
        pa.array([1.0, float("nan")]),
        pa.array([1, None]),
    ],
    ids=lambda column: str(column.type),
)
def test_null_and_nan_keys_of_typed_columns(column: pa.Array) -> None:
    assert reasons(admission_for().admit(arrow(t=[1, 2], k=column))) == ["null_key"]


def test_text_keys_stay_in_arrow() -> None:
    batch = arrow(t=[1, 2], k=pa.array(["a", "b"]).dictionary_encode())
    assert admission_for().admit(batch).bundle.keys[0] is batch.columns["k"]


def test_a_nested_key_column_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="cannot be a key"):
        admission_for().admit(arrow(t=[1], k=[[1]]))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("x", "wrong_type"),
        (True, "wrong_type"),
        ([1], "wrong_type"),
        (1j, "wrong_type"),
        (decimal.Decimal(1), "wrong_type"),
        (2**64, "wrong_type"),
        (float("nan"), "nan"),
        (np.float64("nan"), "nan"),
    ],
)
def test_an_unusable_number_is_a_dead_letter(value: Any, reason: str) -> None:
    """S-B1."""
    admitted = admission_for({"v": "numbers"}).admit(
        records(t=[1, 2, 3], k=["a"] * 3, v=[1, value, 3])
    )
    assert reasons(admitted) == [reason]
    assert admitted.bundle.values["v"].to_list() == [1, 3]


def test_null_values_are_fine() -> None:
    batch = records(t=[1, 2], k=["a", "a"], v=[1, None])
    assert admission_for({"v": "numbers"}).admit(batch).bundle.values["v"].to_list() == [1, None]


def test_ints_and_floats_become_floats_for_good() -> None:
    admission = admission_for({"v": "numbers"})
    dtypes = [
        admission.admit(records(t=[1], k=["a"], v=[value])).bundle.values["v"].data.dtype
        for value in (1, 2.5, 3)
    ]
    assert dtypes == [np.int64, np.float64, np.float64]


def test_values_must_have_one_order() -> None:
    admission = admission_for({"v": "ordered"})
    admitted = admission.admit(records(t=[1, 2, 3], k=["a"] * 3, v=["x", 1, "y"]))
    assert reasons(admitted) == ["wrong_type"]
    assert reasons(admission.admit(records(t=[1], k=["a"], v=[{}]))) == ["wrong_type"]


def test_booleans_must_be_booleans() -> None:
    admitted = admission_for({"v": "booleans"}).admit(records(t=[1, 2], k=["a"] * 2, v=[True, 1]))
    assert reasons(admitted) == ["wrong_type"]
    assert admitted.bundle.values["v"].data.dtype == np.bool_


def test_anything_takes_anything() -> None:
    batch = records(t=[1, 2], k=["a"] * 2, v=[[1], float("nan")])
    assert not admission_for({"v": "anything"}).admit(batch).errors


def test_nan_in_a_float_column_is_a_dead_letter_but_null_is_not() -> None:
    column = pa.array([1.0, float("nan"), None])
    admitted = admission_for({"v": "numbers"}).admit(arrow(t=[1, 2, 3], k=["a"] * 3, v=column))
    assert reasons(admitted) == ["nan"]
    assert admitted.bundle.values["v"].to_list() == [1.0, None]


def test_unsigned_numbers_beyond_64_bits_are_dead_letters() -> None:
    column = pa.array([1, 2**63], pa.uint64())
    admitted = admission_for({"v": "numbers"}).admit(arrow(t=[1, 2], k=["a"] * 2, v=column))
    assert reasons(admitted) == ["wrong_type"]


@pytest.mark.parametrize(
    ("column", "need"),
    [
        (pa.array(["x"]), "numbers"),
        (pa.array([1], pa.timestamp("us")), "numbers"),
        (pa.array([1]), "booleans"),
        (pa.array([[1]]), "ordered"),
    ],
)
def test_a_column_that_can_never_do_is_refused(column: pa.Array, need: Needs) -> None:
    with pytest.raises(InvalidArgument, match="aggregate needs"):
        admission_for({"v": need}).admit(arrow(t=[1], k=["a"], v=column))


def test_a_column_that_changes_its_type_gives_dead_letters() -> None:
    admission = admission_for({"v": "numbers"})
    admission.admit(arrow(t=[1], k=["a"], v=[1]))
    admitted = admission.admit(arrow(t=[1, 2], k=["a", "b"], v=["x", None]))
    assert reasons(admitted) == ["wrong_type"]
    assert admitted.bundle.values["v"].to_list() == [None]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1_000_000, 0, -5, None], pa.duration("us")),
        pa.array([1000, 0, -5, None], pa.duration("ms")),
        pa.array([1_000_000, 0, -5, None]),
        pa.array(["1s", "0s", "-5s", None]),
    ],
    ids=lambda column: str(column.type),
)
def test_a_gap_that_is_missing_or_not_above_zero_is_a_dead_letter(column: pa.Array) -> None:
    """S-W3, S-B1."""
    admitted = admission_for(windows=Sessions(gap_column="gap")).admit(
        arrow(t=[1] * 4, k=["a"] * 4, gap=column)
    )
    assert reasons(admitted) == ["bad_gap"] * 3
    assert admitted.bundle.values["gap"].data.tolist() == [1_000_000]


def test_gaps_of_any_form() -> None:
    batch = records(t=[1] * 4, k=["a"] * 4, gap=["1s", dt.timedelta(seconds=1), "soon", None])
    assert reasons(admission_for(windows=Sessions(gap_column="gap")).admit(batch)) == [
        "bad_gap",
        "bad_gap",
    ]


@pytest.mark.parametrize("name", ["t", "k", "v"])
def test_a_missing_column_names_the_nearest(name: str) -> None:
    columns = {"t": [1], "k": ["a"], "v": [1]}
    columns[name + "x"] = columns.pop(name)
    with pytest.raises(InvalidArgument, match=f"no column '{name}'.*'{name}x'"):
        admission_for({"v": "numbers"}).admit(arrow(**columns))


def test_raise_names_the_record_its_position_and_the_reason() -> None:
    """S-B1."""
    admission = admission_for(on_error="raise")
    admission.admit(records(t=[1, 2], k=["a", "b"]))
    with pytest.raises(DataError, match=r"record 3 .*null_key.*'t': 7"):
        admission.admit(records(t=[5, 7], k=["a", None]))


def test_the_place_is_named() -> None:
    batch = pa.RecordBatch.from_pydict({"t": [1, None], "k": ["a", "b"]})
    admitted = admission_for().admit(Records.from_arrow(batch, "flights.parquet", 100))
    assert admitted.errors[0].where == "flights.parquet, row 101"


def test_the_first_thing_wrong_with_a_record_is_its_reason() -> None:
    admitted = admission_for({"v": "numbers"}).admit(records(t=[None], k=[None], v=["x"]))
    assert reasons(admitted) == ["null_time"]


TIMES = st.sampled_from([NOON, 5, START_OF_TIME, None, "soon", 1.5, 2**63, "2000-01-01"])
KEYS = st.sampled_from(["a", 1, None, float("nan"), (1, 2)])
VALUES = st.sampled_from([1, 2.5, None, "x", "y", True, float("nan"), 2**70, b"z"])


@given(
    rows=st.lists(st.tuples(TIMES, KEYS, VALUES), min_size=1, max_size=12),
    need=st.sampled_from(["numbers", "ordered", "booleans", "anything"]),
    cut=st.integers(1, 4),
)
def test_what_becomes_of_a_record_does_not_depend_on_how_the_stream_is_cut(
    rows: list[tuple[Any, Any, Any]], need: Needs, cut: int
) -> None:
    """S-B1, S-T4."""

    def outcomes(size: int) -> tuple[list[str], list[Any]]:
        admission = admission_for({"v": need})
        wrong: list[str] = []
        values: list[Any] = []
        for at in range(0, len(rows), size):
            t, k, v = (list(part) for part in zip(*rows[at : at + size], strict=True))
            admitted = admission.admit(records(t=t, k=k, v=v))
            wrong += [f"{error.record}: {error.reason}" for error in admitted.errors]
            values += map(str, map(_as_float, admitted.bundle.values["v"].to_list()))
        return wrong, values

    assert outcomes(len(rows)) == outcomes(cut)


def _as_float(value: Any) -> Any:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


# ------------------------------------------------------------------------------------ too far ahead


def test_an_event_time_too_far_ahead_of_the_clock_is_a_dead_letter() -> None:
    """S-B1: it would take the watermark along; exactly as far ahead as may be is not too far."""
    admission = admission_for(max_ahead_us=10)
    given = records(t=[110, 111, 0, None], k=[1, 1, 1, 1])
    admitted = admission.admit(given, clock=100)
    assert admitted.bundle.times.tolist() == [110, 0]
    assert reasons(admitted) == ["too_far_ahead", "null_time"]
    assert admitted.errors[0].detail == (
        "the event time 1970-01-01T00:00:00.000111Z is more than 10us ahead of "
        "1970-01-01T00:00:00.000100Z"
    )
    assert admitted.errors[0].record == {"t": 111, "k": 1}


def test_each_element_is_held_against_its_own_clock() -> None:
    clocks = np.array([100, 200, START_OF_TIME])
    admitted = admission_for(max_ahead_us=10).admit(
        records(t=[150, 150, 150], k=[1, 1, 1]), clock=clocks
    )
    assert admitted.kept is not None
    assert admitted.kept.tolist() == [1, 2]
    assert admitted.errors[0].detail.endswith("ahead of 1970-01-01T00:00:00.000100Z")


@pytest.mark.parametrize("clock", [None, START_OF_TIME])
def test_a_clock_that_says_nothing_is_no_reason(clock: int | None) -> None:
    admitted = admission_for(max_ahead_us=0).admit(records(t=[LAST_EVENT_TIME], k=[1]), clock=clock)
    assert not admitted.errors


def test_near_the_end_of_time_nothing_is_too_far() -> None:
    """S-T1: sums saturate."""
    admitted = admission_for(max_ahead_us=2**62).admit(
        records(t=[LAST_EVENT_TIME], k=[1]), clock=2**62
    )
    assert not admitted.errors


def test_too_far_ahead_stops_where_errors_do() -> None:
    admission = admission_for(max_ahead_us=1, on_error="raise")
    with pytest.raises(DataError, match=r"too_far_ahead.*more than 1us ahead"):
        admission.admit(records(t=[5], k=[1]), clock=3)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize(
    ("values", "sound"),
    [
        ([1, NAN, 2**53 + 1], [1, 2**53 + 1]),
        ([NAN, NAN, 2**53 + 1, None], [2**53 + 1, None]),
        ([NAN, 2**53 + 1, np.float64("nan"), 3], [2**53 + 1, 3]),
        ([NAN, "b", "a"], ["b", "a"]),
        ([(NAN, 1), "b", "a"], ["b", "a"]),
        ([decimal.Decimal("nan"), "b", 1], ["b"]),
    ],
)
@pytest.mark.parametrize("typed", [False, True])
def test_a_nan_changes_nothing_for_the_others(
    values: list[Any], sound: list[Any], size: int, typed: bool
) -> None:
    """S-B1: neither the type of its fields, nor whether they are valid; typed where all are NaN."""
    admission = admission_for({"v": "ordered"})
    admitted: list[Any] = []
    for at in range(0, len(values), size):
        part = values[at : at + size]
        times, keys = [1] * len(part), ["a"] * len(part)
        if typed and all(value is NAN for value in part):
            batch = arrow(t=times, k=keys, v=part)
        else:
            batch = records(t=times, k=keys, v=part)
        admitted += admission.admit(batch).bundle.values["v"].to_list()
    assert admitted == sound
    assert [type(value) for value in admitted] == [type(value) for value in sound]
