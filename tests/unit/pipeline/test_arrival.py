"""Event times that are times of arrival: one value a bundle, the clock as watermark (S-T5)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import lowwater as lw

SECOND = 1_000_000
TABLE = pa.table(
    {
        "k": ["a", "b", "a", "a", None],
        "v": [1, 2, 3, 2**53 + 1, 5],
        "landed": pa.array([0, 5, 12, 11, 31], pa.timestamp("s", "UTC")),
    }
)
LANDED = lw.ArrivalClock("landed", tick="1s")


def panes(stream: lw.Stream, **options: Any) -> list[tuple[Any, int, int]]:
    """Return (key, start of the window in seconds, sum) of windows of ten seconds."""
    windows = stream.key_by("k").window(lw.FixedWindows("10s")).aggregate(v=lw.sum("v"))
    result = windows.collect(on_error="dead_letter", **options)
    assert result.late == []
    assert [error.reason for error in result.errors] == ["null_key"]
    return [(one.key, int(one.window.start) // SECOND, one.value) for one in result.panes]


@pytest.mark.parametrize("bundle_size", [1, 2, 50_000])
def test_recorded_arrivals_give_the_same_windows_each_time(bundle_size: int) -> None:
    stream = lw.from_arrow(TABLE, time=lw.arrival(), clock=LANDED)
    assert panes(stream, bundle_size=bundle_size) == [
        ("a", 0, 1), ("b", 0, 2), ("a", 10, 2**53 + 4),
    ]  # fmt: skip


def test_a_bundle_has_one_time_and_the_clock_is_the_watermark() -> None:
    clock = lw.ManualClock("1970-01-01T00:01:00Z")
    seen = []

    def ticking() -> Any:
        for number in range(6):
            yield {"v": number}

    stream = lw.from_iterable(ticking(), time=lw.arrival("came"), clock=clock)
    for batch in stream.select("v", "came").run_batches(bundle_size=2):
        columns = batch.columns()
        seen.append((columns["v"].to_list(), columns["came"].data.tolist()))
        clock.advance_to(int(clock.now()) + 7 * SECOND)
    assert seen == [
        ([0, 1], [60 * SECOND] * 2), ([2, 3], [67 * SECOND] * 2), ([4, 5], [74 * SECOND] * 2),
    ]  # fmt: skip


class Backwards:
    """A clock that is set back."""

    def __init__(self) -> None:
        self.times = [100, 40, 60, 120]

    def now(self) -> int:
        return self.times.pop(0) * SECOND if len(self.times) > 1 else self.times[0] * SECOND


def test_a_clock_that_is_set_back_makes_nothing_late() -> None:
    rows = [{"k": "a", "v": 1} for _ in range(5)]
    stream = lw.from_iterable(rows, time=lw.arrival(), clock=Backwards())
    result = (
        stream.key_by("k")
        .window(lw.FixedWindows("10s"))
        .aggregate(n=lw.count())
        .collect(bundle_size=1)
    )
    assert result.late == []
    assert sum(one.value for one in result.panes) == 5
    assert [int(one.window.start) // SECOND for one in result.panes] == [100, 120]


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_files_of_each_kind(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"in.{kind}"
    if kind == "parquet":
        pq.write_table(TABLE, path)
    elif kind == "csv":
        pa.csv.write_csv(TABLE, path)
    else:
        rows = [{**row, "landed": row["landed"].isoformat()} for row in TABLE.to_pylist()]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    read = getattr(lw, f"read_{kind}")
    for columns in (None, ["k", "v"]):
        stream = read(path, time=lw.arrival(), clock=LANDED, columns=columns)
        assert panes(stream) == [("a", 0, 1), ("b", 0, 2), ("a", 10, 2**53 + 4)]


class Failing:
    """A step that fails once at a value."""

    def __init__(self, at: int) -> None:
        self.at: int | None = at

    def __call__(self, batch: pa.Table) -> pa.Table:
        if self.at in batch["v"].to_pylist():
            self.at = None
            raise RuntimeError("stopped")
        return batch


def test_a_durable_run_resumes_in_the_middle_of_a_batch(tmp_path: Path) -> None:
    """A batch of five records is five bundles; the run fails before the fourth, and goes on."""
    pq.write_table(TABLE, tmp_path / "in.parquet")

    def written(name: str, failing: Failing) -> Any:
        stream = lw.read_parquet(tmp_path / "in.parquet", time=lw.arrival(), clock=LANDED)
        windows = stream.map_batches(failing).key_by("v").window(lw.FixedWindows("10s"))
        return windows.aggregate(n=lw.count(), at=lw.max("arrival")).write_parquet(tmp_path / name)

    never = Failing(-1)
    options = {"bundle_size": 1, "commit_every": "bundle"}
    written("whole", never).run(state=tmp_path / "whole state", **options)
    with pytest.raises(lw.LowwaterError, match="stopped"):
        written("parts", Failing(2**53 + 1)).run(state=tmp_path / "parts state", **options)
    written("parts", never).run(state=tmp_path / "parts state", **options)
    whole, parts = (pq.read_table(tmp_path / name).to_pylist() for name in ("whole", "parts"))
    assert len(whole) == 5
    assert [(row["v"], row["at"], row["window_start"]) for row in parts] == [
        (row["v"], row["at"], row["window_start"]) for row in whole
    ]


REFUSED: dict[str, tuple[str, Callable[[], Any]]] = {
    "a watermark": ("the clock is its watermark", lambda: lw.from_arrow(
        TABLE, time=lw.arrival(), watermark=lw.Ascending())),
    "ahead": ("the clock is its watermark", lambda: lw.from_arrow(
        TABLE, time=lw.arrival(), max_ahead="1m")),
    "a column": ("a column 'v' already", lambda: lw.from_arrow(TABLE, time=lw.arrival("v"))),
    "no name": ("not a name", lambda: lw.arrival("")),
    "a hidden name": ("not a name", lambda: lw.arrival("__lw_time")),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_it_refuses(name: str) -> None:
    what, make = REFUSED[name]
    with pytest.raises(lw.InvalidArgument, match=what) as caught:
        make()
    assert caught.value.hint


def test_a_column_of_elements_is_found_as_they_come() -> None:
    stream = lw.from_iterable([{"k": "a", "v": 1, "arrival": 3}], time=lw.arrival())
    with pytest.raises(lw.DataError, match="a column 'arrival' already"):
        stream.key_by("k").window(lw.FixedWindows("1s")).aggregate(n=lw.count()).collect()


def test_it_is_shown() -> None:
    assert eval(repr(lw.arrival("came")), {"arrival": lw.arrival}) == lw.arrival("came")
    stream = lw.from_arrow(TABLE, time=lw.arrival(), clock=LANDED)
    explained = str(stream.key_by("k").window(lw.FixedWindows("1s")).group("v").explain())
    assert "event time: arrival, the clock at arrival" in explained
