"""Instants and durations (S-T1)."""

from __future__ import annotations

import copy
import json
import pickle
import warnings
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import lowwater as lw
from lowwater.errors import InvalidArgument, UnitWarning
from lowwater.time import (
    END_OF_TIME,
    LAST_EVENT_TIME,
    START_OF_TIME,
    Instant,
    duration,
    format_duration,
    format_instant,
    instant,
    saturating_add,
    saturating_add_array,
)
from lowwater.windows import FixedWindows

SECOND = 1_000_000
NOON = 946_728_000 * SECOND  # 2000-01-01T12:00:00Z
PLUS_ONE = timezone(timedelta(hours=1))


@pytest.mark.parametrize(
    ("given", "micros"),
    [
        (0, 0),
        (-7, -7),
        (np.int64(5), 5),
        (np.uint8(5), 5),
        ("250ms", 250_000),
        ("10s", 10 * SECOND),
        ("1h30m", 5_400 * SECOND),
        ("1h 30m", 5_400 * SECOND),
        (" 1d ", 86_400 * SECOND),
        ("2w", 14 * 86_400 * SECOND),
        ("3us", 3),
        ("1.5s", 1_500_000),
        ("0.1us", 0),
        ("-10s", -10 * SECOND),
        ("9007199254740993.0us", 2**53 + 1),
        (timedelta(days=-1, microseconds=1), -86_400 * SECOND + 1),
        (np.timedelta64(3, "ms"), 3_000),
        (np.timedelta64(-1, "ns"), -1),
        (np.timedelta64(1, "W"), 7 * 86_400 * SECOND),
        (pd.Timedelta("1h"), 3_600 * SECOND),
    ],
)
def test_durations_are_read_as_microseconds(given: Any, micros: int) -> None:
    assert duration(given) == micros
    assert type(duration(given)) is int


@pytest.mark.parametrize(
    "given",
    [
        None,
        True,
        1.5,
        "",
        "10",
        "s",
        "10 parsecs",
        "1s?",
        "--1s",
        "1h-30m",
        "9" * 400 + ".0d",
        "9" * 5_000 + "d",
        timedelta(days=999_999_999),
        2**63,
        np.timedelta64("NaT"),
        np.timedelta64(1, "M"),
        np.timedelta64(1, "Y"),
        np.timedelta64(5),
        np.timedelta64(10**15, "D"),
        [10],
    ],
)
def test_what_is_no_duration_is_refused_by_name(given: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"gap=.*\(\w+\)"):
        duration(given, name="gap")


@pytest.mark.parametrize(
    ("given", "micros"),
    [
        (0, 0),
        (np.int64(-5), -5),
        (datetime(2000, 1, 1, 12, tzinfo=UTC), NOON),
        (datetime(2000, 1, 1, 13, tzinfo=PLUS_ONE), NOON),
        (datetime(1, 1, 1, tzinfo=UTC), -62_135_596_800 * SECOND),
        (np.datetime64("2000-01-01T12:00"), NOON),
        (np.datetime64("2000", "Y"), NOON - 43_200 * SECOND),
        (np.datetime64(-1, "ns"), -1),
        ("2000-01-01T12:00:00Z", NOON),
        ("2000-01-01T13:00:00.000001+01:00", NOON + 1),
        (pd.Timestamp("2000-01-01T12:00Z"), NOON),
        (pd.Timestamp("1969-12-31T23:59:59.999999999Z"), -1),
    ],
)
def test_instants_are_read_as_microseconds(given: Any, micros: int) -> None:
    assert instant(given) == micros
    assert type(instant(given)) is Instant


@pytest.mark.parametrize(
    "given",
    [
        None,
        False,
        0.0,
        "",
        "noon",
        datetime(2000, 1, 1),  # noqa: DTZ001
        "2000-01-01",
        "2000-01-01T12:00:00",
        np.datetime64("NaT"),
        np.datetime64(10**12, "Y"),
        pd.NaT,
        pd.Timestamp("2000-01-01"),
        2**63,
        -(2**63) - 1,
    ],
)
def test_what_is_no_instant_is_refused_by_name(given: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"start=.*\(\w+\)"):
        instant(given, name="start")


def test_a_naive_datetime_is_refused_with_a_hint() -> None:
    with pytest.raises(InvalidArgument, match=r"no time zone.*\.replace\(tzinfo="):
        instant("2000-01-01T12:00:00")


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (NOON, "2000-01-01T12:00:00Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
        (START_OF_TIME, "-inf"),
        (END_OF_TIME, "+inf"),
        (2**62, "4611686018427387904us"),
        (-(2**62), "-4611686018427387904us"),
    ],
)
def test_an_instant_shows_itself_and_reads_its_own_text_back(at: int, text: str) -> None:
    assert format_instant(at) == str(Instant(at)) == text
    assert Instant(text) == at
    assert eval(repr(Instant(at))) == at


@pytest.mark.parametrize("given", [1.5, None, "19us99", "99999999999999999999us"])
def test_an_instant_is_made_from_nothing_else(given: Any) -> None:
    with pytest.raises(InvalidArgument):
        Instant(given)


def test_an_instant_is_an_int() -> None:
    at = Instant(NOON)
    assert at == NOON
    assert hash(at) == hash(NOON)
    assert at + 1 == NOON + 1
    assert np.array([at]).dtype == np.int64
    for twin in (copy.deepcopy(at), pickle.loads(pickle.dumps(at))):
        assert twin == at
        assert type(twin) is Instant


def test_an_instant_is_formatted_as_a_datetime_where_that_is_asked_for() -> None:
    at = Instant("2000-01-01T12:00:26Z")
    assert f"{at:%H:%M:%S on %d %b}" == "12:00:26 on 01 Jan"
    assert f"{at}" == str(at)
    assert f"{at:,}" == f"{int(at):,}"
    with pytest.raises(InvalidArgument, match="outside the years 1 to 9999"):
        f"{Instant(END_OF_TIME):%Y}"


def test_an_instant_becomes_a_datetime_where_one_exists() -> None:
    assert Instant(NOON).to_datetime() == datetime(2000, 1, 1, 12, tzinfo=UTC)
    with pytest.raises(InvalidArgument, match="years 1 to 9999"):
        Instant(2**62).to_datetime()


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (0, "0s"),
        (1, "1us"),
        (-1_500_000, "-1s500ms"),
        (90 * SECOND, "1m30s"),
        (7 * 86_400 * SECOND, "7d"),
    ],
)
def test_durations_have_a_text(micros: int, text: str) -> None:
    assert format_duration(micros) == text


def test_addition_saturates_at_the_ends_of_time() -> None:
    assert saturating_add(END_OF_TIME, 1) == END_OF_TIME
    assert saturating_add(START_OF_TIME, -1) == START_OF_TIME
    assert saturating_add(START_OF_TIME, END_OF_TIME) == -1
    at = np.array([START_OF_TIME, -1, 0, END_OF_TIME])
    assert saturating_add_array(at, 2).tolist() == [START_OF_TIME + 2, 1, 2, END_OF_TIME]
    assert saturating_add_array(at, -2).tolist() == [START_OF_TIME, -3, -2, END_OF_TIME - 2]


def test_the_last_event_time_leaves_a_day() -> None:
    """S-W4: the global window ends a day before the end of time."""
    assert duration("1d") == END_OF_TIME - (LAST_EVENT_TIME + 1)


@pytest.mark.parametrize("value", [1, 120, 999, -5, np.int64(120)])
def test_plain_numbers_below_a_millisecond_are_warned_about(value: int) -> None:
    with pytest.warns(UnitWarning, match=f'size=.*{value}.* µs.*"{value}s"') as warned:
        assert duration(value, name="size") == value
    assert warned[0].filename == __file__


@pytest.mark.parametrize(
    "value",
    [
        0,
        1_000,
        250_000,
        300_000,
        60_000_000,
        "120us",
        timedelta(microseconds=120),
        np.timedelta64(5, "us"),
    ],
)
def test_what_has_a_unit_or_is_long_enough_is_not(value: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        duration(value)
        assert FixedWindows("120us").size_us == 120  # its own numbers are converted but once


@pytest.mark.parametrize("value", ["120", " 1.5 ", 0.5, 120.0])
def test_a_number_without_unit_is_refused_with_one(value: Any) -> None:
    with pytest.raises(InvalidArgument) as caught:
        duration(value)
    assert f'"{str(value).strip()}s"' in str(caught.value)


VALUES = [
    lw.FixedWindows("500us", offset="3us"),
    lw.SlidingWindows("500us", period="50us", offset="3us"),
    lw.Sessions("500us"),
    lw.AfterProcessingTime("500us", align="3us"),
    lw.BoundedDisorder("500us"),
    lw.Quantile(0.9, least="3us", most="500us"),
    lw.PerPartition(lw.BoundedDisorder("500us"), by="p", idle_after="500us"),
    lw.ArrivalClock("came", tick="500us"),
    lw.Windowing(
        windows=lw.FixedWindows("500us"), allowed_lateness="900us", accumulation="discarding"
    ),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_what_was_given_with_a_unit_is_not_warned_about_again(value: Any) -> None:
    """The fields hold plain microseconds, which come back when a value is made of another."""
    assert replace(value) == value
    assert repr(replace(value)) == repr(value)
    assert pickle.loads(pickle.dumps(value)) == value


def test_a_duration_in_a_field_is_an_int_to_all_else() -> None:
    size: Any = lw.FixedWindows("500us").size
    assert size == 500
    assert (repr(size), hash(size)) == ("500", hash(500))
    assert type(pickle.loads(pickle.dumps(size))) is int
    assert type(lw.FixedWindows("500us").size_us) is int


@pytest.mark.filterwarnings("ignore::lowwater.errors.PipelineWarning")  # its files keep all panes
def test_short_durations_of_a_chain_are_not_warned_about(tmp_path: Path) -> None:
    rows = [{"at": at * 400, "k": "a"} for at in range(9)]
    hits = lw.from_iterable(
        rows, time="at", unit="us", watermark=lw.BoundedDisorder("500us")
    ).key_by("k")
    first = hits.window(
        lw.FixedWindows("900us"), allowed_lateness="900us", accumulation="retracting"
    ).aggregate(n=lw.count())
    second = (
        first.key_by("k")
        .window(lw.FixedWindows("9ms"), accumulation="retracting")
        .aggregate(n=lw.sum("n"))
    )
    result = second.collect(trace=True)
    assert result.lateness_profile().suggestion is not None
    assert [pane.value for pane in result.panes] == [9]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "in.jsonl").write_text(lines, encoding="utf-8")
    durable = lw.read_jsonl(
        tmp_path / "in.jsonl", time="at", unit="us", watermark=lw.BoundedDisorder("500us")
    )
    panes = durable.key_by("k").window(
        lw.Sessions("500us"),
        trigger=lw.AfterWatermark(early=lw.AfterProcessingTime("500us"), late=lw.AfterCount(1)),
        allowed_lateness="900us",
        accumulation="accumulating",
    )
    output = panes.aggregate(n=lw.count()).write_jsonl(tmp_path / "out.jsonl")
    for _ in range(2):
        assert output.run(state=tmp_path / "state").events == 9
