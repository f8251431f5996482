"""``unit=``: what event times that are plain numbers count since 1970."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lowwater as lw
from lowwater.testing import Scenario, replay

NOON = 1_714_564_800  # seconds: 2024-05-01T12:00:00Z
FACTOR = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
Rows = list[dict[str, Any]]
Reader = Callable[..., lw.Stream]


def rows_of(*times: Any) -> Rows:
    return [{"at": at, "k": "a", "v": number} for number, at in enumerate(times)]


def from_list(rows: Rows, folder: Path, **options: Any) -> lw.Stream:
    return lw.from_iterable(rows, time="at", **options)


def from_table(rows: Rows, folder: Path, **options: Any) -> lw.Stream:
    return lw.from_arrow(pa.Table.from_pylist(rows), time="at", **options)


def from_frame(rows: Rows, folder: Path, **options: Any) -> lw.Stream:
    return lw.from_pandas(pd.DataFrame(rows), time="at", **options)


def from_parquet(rows: Rows, folder: Path, **options: Any) -> lw.Stream:
    pq.write_table(pa.Table.from_pylist(rows), folder / "in.parquet")
    return lw.read_parquet(folder / "in.parquet", time="at", **options)


def from_csv(rows: Rows, folder: Path, **options: Any) -> lw.Stream:
    lines = ["at,k,v", *(f"{row['at']},{row['k']},{row['v']}" for row in rows)]
    (folder / "in.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return lw.read_csv(folder / "in.csv", time="at", **options)


def from_json(rows: Rows, folder: Path, **options: Any) -> lw.Stream:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "in.jsonl").write_text(text, encoding="utf-8")
    return lw.read_jsonl(folder / "in.jsonl", time="at", **options)


def windowed(stream: lw.Stream) -> lw.Pipeline:
    made = stream.key_by("k").window(lw.Sessions("1us")).aggregate(v=lw.min("v"))
    assert isinstance(made, lw.Pipeline)
    return made


def starts(stream: lw.Stream, **options: Any) -> list[int]:
    """Return the event times, microseconds after noon, and none of the warnings expected."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = windowed(stream).collect(**options)
    return sorted(int(pane.window.start) - NOON * 10**6 for pane in result.panes)


READERS: list[Reader] = [from_list, from_table, from_frame, from_parquet, from_csv, from_json]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("unit", FACTOR)
def test_integers(read: Reader, unit: str, tmp_path: Path) -> None:
    rows = rows_of(*((NOON + seconds) * FACTOR[unit] for seconds in range(3)))
    assert starts(read(rows, tmp_path, unit=unit)) == [0, 10**6, 2 * 10**6]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("unit", ["s", "ms"])
def test_floats_are_rounded_to_microseconds(read: Reader, unit: str, tmp_path: Path) -> None:
    rows = rows_of(*((NOON + more) * float(FACTOR[unit]) for more in (0.25, 1.0, 2.000001)))
    assert starts(read(rows, tmp_path, unit=unit)) == [250_000, 1_000_000, 2_000_001]


@pytest.mark.parametrize("read", [from_list, from_csv, from_json])
@pytest.mark.parametrize("unit", ["s", "ms"])
@pytest.mark.parametrize("first", [0, 30_000])
def test_a_fraction_may_turn_up_later(read: Reader, unit: str, first: int, tmp_path: Path) -> None:
    factor = FACTOR[unit]
    rows = rows_of(*[NOON * factor] * first, *((NOON + at) * factor for at in (0, 1, 2.5)))
    assert starts(read(rows, tmp_path, unit=unit)) == [0, 10**6, 2_500_000]


@pytest.mark.parametrize("unit", ["us", "ns", None])
def test_floats_of_small_units_lose_digits_and_are_refused(
    unit: str | None, tmp_path: Path
) -> None:
    rows = rows_of(NOON * 1e6)
    result = windowed(from_list(rows, tmp_path, unit=unit)).collect(on_error="dead_letter")
    assert [error.reason for error in result.errors] == ["bad_time"]
    with pytest.raises(lw.InvalidArgument, match="not instants"):
        windowed(from_table(rows, tmp_path, unit=unit)).collect()


@pytest.mark.parametrize("read", [from_list, from_table])
def test_numbers_that_are_no_times(read: Reader, tmp_path: Path) -> None:
    rows = rows_of(float(NOON), float("nan"), float("inf"), -1e300, None)
    result = windowed(read(rows, tmp_path, unit="s")).collect(on_error="dead_letter")
    assert [error.reason for error in result.errors] == [
        "null_time",
        "time_out_of_range",
        "time_out_of_range",
        "null_time",
    ]
    assert len(result.panes) == 1


def test_integers_that_do_not_fit(tmp_path: Path) -> None:
    for read in (from_list, from_table):
        result = windowed(read(rows_of(NOON, 2**62), tmp_path, unit="s")).collect()
        assert [error.reason for error in result.errors] == ["time_out_of_range"]


def test_times_with_a_unit_of_their_own_keep_it(tmp_path: Path) -> None:
    rows = rows_of("2024-05-01T12:00:01Z", lw.Instant((NOON + 2) * 10**6), NOON + 3)
    assert starts(from_list(rows, tmp_path, unit="s")) == [1_000_000, 2_000_000, 3_000_000]


def test_records_keep_their_numbers(tmp_path: Path) -> None:
    stream = from_list(rows_of(NOON), tmp_path, unit="s")
    made = stream.key_by("k").window(lw.FixedWindows("1m")).aggregate(at=lw.max("at"))
    assert [pane.value for pane in made.run()] == [NOON]


def test_times_of_arrival_have_the_same_unit() -> None:
    rows = [{"at": NOON + at, "k": "a", "v": 1, "came": NOON + at + 0.5} for at in range(3)]
    clock = lw.ArrivalClock("came", tick="1s")
    stream = lw.from_iterable(rows, time="at", unit="s", clock=clock, max_ahead="1s")
    result = windowed(stream).collect()
    assert len(result.panes) == 3
    assert result.metrics.clock == (NOON + 3) * 10**6


def test_two_stages_that_read_one_source(tmp_path: Path) -> None:
    stream = from_list(rows_of(NOON, NOON + 90), tmp_path, unit="s").key_by("k")
    minutes = stream.window(lw.FixedWindows("1m")).aggregate(n=lw.count())
    hours = minutes.key_by("k").window(lw.FixedWindows("1h")).aggregate(n=lw.sum("n"))
    assert [str(pane.window.start) for pane in hours.run()] == ["2024-05-01T12:00:00Z"]


def test_a_state_belongs_to_one_unit(tmp_path: Path) -> None:
    def run(unit: Any) -> None:
        stream = from_json(rows_of(NOON), tmp_path, unit=unit)
        windowed(stream).write_jsonl(tmp_path / "out").run(state=tmp_path / "state")

    run("s")
    run("s")
    with pytest.raises(lw.StateError, match="unit was 's' and is 'ms'"):
        run("ms")


def test_scenarios_are_in_microseconds_whatever_the_unit() -> None:
    stream = lw.from_iterable([], time="at", unit="s")
    pipeline = stream.key_by("key").window(lw.FixedWindows("2m")).aggregate(lw.sum("value"))
    scenario = Scenario().add((5, 10, "A"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (pane,) = replay(pipeline, scenario).panes
    assert pane.window.start == 0


def test_it_is_explained() -> None:
    stream = lw.from_iterable([], time="at", unit="ms")
    assert "event time: at; plain numbers are in ms" in windowed(stream).explain()


@pytest.mark.parametrize("unit", ["seconds", "m", 1, ["s"]])
def test_other_units_are_refused(unit: Any) -> None:
    with pytest.raises(lw.InvalidArgument, match="is not a unit of time"):
        lw.from_iterable([], time="at", unit=unit)
