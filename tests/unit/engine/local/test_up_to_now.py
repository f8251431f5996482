"""Runs that a scheduler starts again and again: each reads what is there, and closes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import lowwater as lw
from lowwater.engine.graph.clocks import WallClock
from lowwater.engine.records.batch import Records
from lowwater.io import follow
from tests.examples import sampled
from tests.unit.engine.local.durable_runs import Stopped, stopping
from tests.unit.engine.local.thirty_runs import (
    NOW,
    POINTS,
    ROUNDS,
    SECOND,
    Rows,
    output,
    rows_of,
    windows,
)

FILES = ROUNDS


def write_parquet(path: Path, rows: Rows) -> None:
    pq.write_table(pa.Table.from_pylist(rows), path)


def write_csv(path: Path, rows: Rows) -> None:
    pa_csv.write_csv(pa.Table.from_pylist(rows), path)


def write_jsonl(path: Path, rows: Rows) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


READERS: dict[str, tuple[Any, Callable[[Path, Rows], None]]] = {
    "parquet": (lw.read_parquet, write_parquet),
    "csv": (lw.read_csv, write_csv),
    "jsonl": (lw.read_jsonl, write_jsonl),
}


@dataclass
class Job:
    """A pipeline over a folder, its output and its state."""

    folder: Path
    kind: str = "parquet"
    options: Any = ()

    def add(self, number: int) -> None:
        """Let a file appear."""
        (self.folder / "in").mkdir(parents=True, exist_ok=True)
        _, write = READERS[self.kind]
        write(self.folder / "in" / f"{number:03}.{self.kind}", rows_of(number))

    def run(self, **options: Any) -> lw.Metrics:
        reader, _ = READERS[self.kind]
        stream = reader(
            self.folder / "in", time="t", watermark=lw.BoundedDisorder("5s"),
            clock=lw.ManualClock(0), **dict(self.options),
        )  # fmt: skip
        return (
            windows(stream)
            .write_jsonl(self.folder / "out")
            .run(state=self.folder / "state", bundle_size=7, **options)
        )

    def output(self) -> dict[str, list[str]]:
        """Return the lines that were written, in order."""
        return output(self.folder / "out")


def followed(folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> Job:
    """Return a job of one run that follows the folder, in which a file appears at each look."""
    left = iter(range(1, FILES))
    ended: list[bool] = []

    def wait(_: float) -> None:
        if (number := next(left, None)) is None:
            ended.append(True)
        else:
            job.add(number)

    options = {"follow": True, "stop": lambda: bool(ended)}
    job = Job(folder, kind, options.items())
    job.add(0)
    monkeypatch.setattr(follow, "wait", wait)
    monkeypatch.setattr(follow, "stopwatch", lambda: 0.0)
    job.run(commit_every="bundle", progress=False)
    return job


@pytest.mark.parametrize("kind", sampled(READERS, every=3))
def test_thirty_runs_with_kills_write_what_one_run_that_follows_writes(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = followed(tmp_path / "one", kind, monkeypatch).output()
    assert len(one["part"]) == FILES  # of two keys, in windows of two files
    assert one["late"]
    job = Job(tmp_path / "many", kind)
    for number in range(FILES):
        job.add(number)
        with stopping(POINTS[number % len(POINTS)], 1 + number % 3):
            try:
                job.run(**NOW)
                continue
            except Stopped:
                pass
        job.run(**NOW)
    assert job.output()["part"] != one["part"]  # the last windows are open
    job.run(until="end", progress=False)
    assert job.output() == one


@pytest.mark.parametrize("kind", READERS)
def test_what_stands_is_what_one_run_over_everything_leaves(kind: str, tmp_path: Path) -> None:
    many, one = Job(tmp_path / "many", kind), Job(tmp_path / "one", kind)
    for number in range(4):
        many.add(number)
        one.add(number)
        many.run(**NOW)
        drained = [line for line in many.output()["part"] if json.loads(line)["window_end"] is None]
        assert drained == []
    many.run(until="end", progress=False)
    one.run(progress=False)
    assert sorted(many.output()["part"]) == sorted(one.output()["part"])


def test_a_run_with_nothing_new_changes_nothing(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.add(0)
    first = job.run(**NOW)
    before = job.output()
    again = job.run(**NOW)
    assert again.events == first.events == 10
    assert job.output() == before


def test_an_empty_folder_is_waited_for_by_later_runs(tmp_path: Path) -> None:
    job = Job(tmp_path, options={"follow": True}.items())
    (tmp_path / "in").mkdir()
    assert job.run(**NOW).events == 0
    job.add(0)
    assert job.run(**NOW).events == 10


def test_runs_up_to_now_and_runs_that_follow_take_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Job(tmp_path / "one")
    for number in range(4):
        one.add(number)
    one.run(progress=False, commit_every="bundle")
    monkeypatch.setattr(follow, "wait", lambda _: None)
    monkeypatch.setattr(follow, "stopwatch", lambda: 0.0)
    job = Job(tmp_path / "many")
    for number in range(4):
        job.add(number)
        job.options = {"follow": True}.items() if number == 2 else ()
        job.run(**NOW)
    job.options = {"follow": True, "max_idle": "3s"}.items()
    job.run(progress=False)
    assert sorted(job.output()["part"]) == sorted(one.output()["part"])


def test_a_file_that_is_being_written_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tmp_path)
    job.add(0)
    job.add(1)
    path = tmp_path / "in" / "001.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:40])
    parts = iter((whole[:60], whole))

    def wait(_: float) -> None:
        path.write_bytes(next(parts))
        job.add(2)  # which is for the next run

    monkeypatch.setattr(follow, "wait", wait)
    monkeypatch.setattr(follow, "stopwatch", lambda: 0.0)
    assert job.run(**NOW).events == 20
    assert job.run(**NOW).events == 30


def test_a_completed_state_names_both_ways(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.add(0)
    job.run(progress=False)
    job.add(1)
    with pytest.raises(lw.StateError, match=r'until="available".*follow=True'):
        job.run(**NOW)


def test_without_a_state_it_is_refused(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.add(0)
    panes = windows(lw.read_parquet(tmp_path / "in", time="t"))
    for run in (panes.run, panes.collect, panes.write_jsonl(tmp_path / "out").run):
        with pytest.raises(lw.InvalidArgument, match="leaves windows open"):
            run(until="available")
    with pytest.raises(lw.InvalidArgument, match=r"until='now' .* neither 'end' nor 'available'"):
        job.run(until="now")


def test_windows_that_could_never_close_are_refused(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.add(0)
    panes = windows(lw.read_parquet(tmp_path / "in", time="t"))
    assert "error" not in {finding.severity for finding in lw.check(panes)}
    assert "error" in {finding.severity for finding in lw.check(panes, until="available")}
    with pytest.raises(lw.InvalidArgument, match="no watermark until its input ends"):
        panes.write_jsonl(tmp_path / "out").run(state=tmp_path / "state", until="available")


def log_windows(path: Path, **options: Any) -> Any:
    mark = lw.PerPartition(lw.BoundedDisorder("5s"), idle_after="30m")
    return windows(lw.read_log(path, time="t", watermark=mark, **options))


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Stand for the clock on the wall, in microseconds."""
    now = [1_700_000_000 * SECOND]
    monkeypatch.setattr(WallClock, "now", lambda self: now[0])
    return now


def test_a_partition_that_fell_silent_is_found_over_many_runs(
    tmp_path: Path, wall: list[int]
) -> None:
    hour = 3600 * SECOND
    with lw.io.Log(tmp_path / "log", partitions=3) as log:
        watermarks = []
        for turn in range(4):
            at = turn * 3600
            for partition in range(3) if turn == 0 else range(2):
                rows = [{"t": (at + n) * SECOND, "k": "a", "v": n} for n in range(0, 3600, 600)]
                log.append(pa.Table.from_pylist(rows), partition=partition)
            panes = log_windows(tmp_path / "log").write_jsonl(tmp_path / "out")
            metrics = panes.run(state=tmp_path / "state", **NOW)
            watermarks.append(int(metrics.watermarks()[0].output))
            wall[0] += hour
    # The third partition holds the watermark for one run, and is found idle in the second.
    last = [(turn * 3600 + 3000 - 5) * SECOND for turn in range(4)]
    assert watermarks == last


def test_a_source_that_fell_silent_is_found_over_many_runs(tmp_path: Path, wall: list[int]) -> None:
    for name in ("busy", "quiet"):
        (tmp_path / name).mkdir()
    write_parquet(tmp_path / "quiet" / "0.parquet", rows_of(0))
    watermarks = []
    for turn in range(4):
        write_parquet(tmp_path / "busy" / f"{turn}.parquet", rows_of(turn))
        busy, quiet = (
            lw.read_parquet(
                tmp_path / name, time="t", watermark=lw.BoundedDisorder("5s"), idle_after="90m"
            )
            for name in ("busy", "quiet")
        )
        panes = windows(busy.union(quiet)).write_jsonl(tmp_path / "out")
        metrics = panes.run(state=tmp_path / "state", **NOW)
        watermarks.append(int(metrics.watermarks()[-1].input) // SECOND)
        wall[0] += 3600 * SECOND
    # It was heard in the first run; two hours later it is idle.
    assert watermarks == [4, 4, 24, 34]


@pytest.mark.parametrize("ends", [False, True])
def test_a_join_with_a_file_of_versions_goes_on_if_that_ends(tmp_path: Path, ends: bool) -> None:
    (tmp_path / "in").mkdir()
    write_parquet(tmp_path / "versions.parquet", [{"t": 0, "k": "a", "rate": 2}])
    joined = []
    for turn in range(3):
        write_parquet(tmp_path / "in" / f"{turn}.parquet", rows_of(turn))
        options: dict[str, Any] = {"time": "t", "watermark": lw.BoundedDisorder("1s")}
        versions = lw.read_parquet(tmp_path / "versions.parquet", ends=ends, **options)
        facts = lw.read_parquet(tmp_path / "in", **options)
        both = facts.join_as_of(versions, on="k").write_jsonl(tmp_path / "out")
        both.run(state=tmp_path / "state", **NOW)
        files = (tmp_path / "out").glob("part-*.jsonl")
        joined.append(sum(len(path.read_text().splitlines()) for path in files))
    assert joined == ([10, 20, 30] if ends else [0, 0, 0])


class Numbers:
    """A source of the user's that never ends: a number a record, as far as there are any."""

    schema = None
    endless = True

    def __init__(self, there: list[int], *, until: int | None = None) -> None:
        self._there, self._until = there, until

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Records]:
        return (records for records, _ in self.batches_from(None, size, keys))

    def batches_from(
        self, position: Any, size: int, keys: tuple[str, ...]
    ) -> Iterator[tuple[Records, Any]]:
        at = 0 if position is None else position["at"]
        while self._until is None or at < self._until:
            value = self._there[at]
            table = pa.table({"t": [value * SECOND], "k": ["a"], "v": [value]})
            at += 1
            yield Records.from_arrow(table.to_batches()[0]), {"at": at}


class Growing(Numbers):
    """The same, which says where it ends now."""

    def up_to_now(self) -> Numbers:
        return Numbers(self._there, until=len(self._there))


def test_a_source_of_the_users_says_where_it_ends_now(tmp_path: Path) -> None:
    there: list[int] = []

    def run(source: Any) -> lw.Metrics:
        stream = lw.from_source(source, time="t", watermark=lw.BoundedDisorder("5s"))
        panes = windows(stream).write_jsonl(tmp_path / "out")
        return panes.run(state=tmp_path / "state", **NOW)

    for turn in range(3):
        there.extend(range(turn * 10, turn * 10 + 10))
        assert run(Growing(there)).events == len(there)
    with pytest.raises(lw.InvalidArgument, match=r"Numbers never ends.*up_to_now"):
        run(Numbers(there))


def test_a_drained_pane_says_so(tmp_path: Path) -> None:
    rows = [{"t": n * SECOND, "k": "a", "v": n} for n in range(50)]
    stream = lw.from_arrow(pa.Table.from_pylist(rows), time="t", watermark=lw.BoundedDisorder("5s"))
    panes = windows(stream).collect(progress=False, bundle_size=10).panes
    assert [pane.is_drained for pane in panes] == [False, False, True]
    assert replace(panes[0], watermark=lw.Instant("+inf")).is_drained


def test_files_of_more_than_any_chunk(tmp_path: Path) -> None:
    """Two files of 150,000 records, beyond what is read, cut and committed at a time."""
    (tmp_path / "in").mkdir()
    count = 150_000

    def run(until: Any) -> int:
        stream = lw.read_parquet(
            tmp_path / "in", time="t", unit="s", watermark=lw.BoundedDisorder("5s")
        )
        written = windows(stream).write_parquet(tmp_path / "out")
        return written.run(state=tmp_path / "state", until=until, progress=False).events

    for turn in range(2):
        at = range(turn * count, (turn + 1) * count)
        table = pa.table({"t": at, "k": [n % 7 for n in at], "v": at})
        pq.write_table(table, tmp_path / "in" / f"{turn}.parquet")
        assert run("available") == (turn + 1) * count
    assert run("end") == 2 * count
    written = pa.concat_tables(
        [pq.read_table(path) for path in (tmp_path / "out").glob("part-*.parquet")]
    )
    assert sum(written["n"].to_pylist()) == 2 * count
    assert sum(written["total"].to_pylist()) == 2 * count * (2 * count - 1) // 2
