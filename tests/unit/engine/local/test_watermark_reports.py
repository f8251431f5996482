"""What a run says of its watermarks: where each stage is, and what holds it (S-H2, S-H3)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.engine.graph.clocks import Clock
from lowwater.engine.graph.metrics import Metrics
from lowwater.engine.local import runner, source_reader
from lowwater.engine.records.batch import Records
from lowwater.io import follow
from lowwater.watermark import StageWatermark
from tests.unit.io.test_follow import write_jsonl


class Reports:
    """Collects, as a run's ``progress``, what is said after each bundle."""

    def __init__(self) -> None:
        self.all: list[dict[str, StageWatermark]] = []

    def __call__(self, metrics: Metrics) -> None:
        self.all.append({one.stage: one for one in metrics.watermarks()})


class ByHand(Clock):
    """A clock that tests move."""

    def __init__(self) -> None:
        self.at = 0

    def now(self) -> lw.Instant:
        return lw.Instant(self.at)


def test_a_source_holds_those_behind_it() -> None:
    rows = [{"t": 100, "k": "a"}, {"t": 50, "k": "b"}]
    reports = Reports()
    (
        lw.from_iterable(rows, time="t", watermark=lw.BoundedDisorder(10))
        .key_by("k")
        .window(lw.FixedWindows(20))
        .aggregate(n=lw.count())
        .named("counts")
        .key_by("k")
        .window(lw.FixedWindows(60))
        .aggregate(n=lw.sum("n"))
        .named("totals")
        .collect(bundle_size=1, progress=reports, clock=ByHand())
    )
    first = reports.all[0]
    assert list(first) == ["source 1", "counts", "totals"]
    assert {one.output for one in first.values()} == {lw.Instant(90)}
    assert first["totals"].held_by == "source 1: its latest elements (through counts)"
    assert first["totals"].gap_us == -90
    last = reports.all[-1]
    assert {one.held_by for one in last.values()} == {"nothing: the input has ended"}


def test_a_window_that_is_to_be_shown_at_an_earlier_time_holds() -> None:
    """With ``timestamps="earliest"`` an open window holds the stages behind (S-H2)."""
    rows = [{"t": t, "k": k} for t, k in [(3, "a"), (15, "b"), (55, "c")]]
    reports = Reports()
    (
        lw.from_iterable(rows, time="t", watermark=lw.Ascending())
        .key_by("k")
        .window(lw.FixedWindows(100), timestamps="earliest")
        .aggregate(n=lw.count())
        .named("counts")
        .key_by(all=lw.lit(0))
        .window(lw.FixedWindows(5))
        .aggregate(n=lw.sum("n"))
        .named("totals")
        .collect(bundle_size=1, progress=reports)
    )
    at = reports.all[2]
    window = str(lw.Window(lw.Instant(0), lw.Instant(100)))
    assert at["counts"].input == lw.Instant(55)
    assert at["counts"].output == lw.Instant(3) == at["totals"].output
    assert at["counts"].held_by == f"counts: key 'a', window {window}"
    assert at["totals"].held_by == f"counts: key 'a', window {window}"


def test_a_partition_that_was_never_seen_holds() -> None:
    rows = [{"t": 100, "k": "a", "p": 0}]
    reports = Reports()
    watermark = lw.PerPartition(lw.Ascending(), by="p", expected=[0, 1])
    (
        lw.from_iterable(rows, time="t", watermark=watermark)
        .named("clicks")
        .select("k")  # the estimator sees what the source gave, not what steps leave of it
        .key_by("k")
        .window(lw.FixedWindows(20))
        .aggregate(n=lw.count())
        .collect(progress=reports)
    )
    assert reports.all[0]["clicks"].held_by == "clicks: partition 1 has not been seen"
    assert reports.all[0]["stage 1"].output == lw.START_OF_TIME


class Beats:
    """A source that gives some rows and then nothing for some beats, while its clock goes on."""

    schema = None

    def __init__(self, clock: ByHand, rows: list[dict[str, object]], beats: int) -> None:
        self._clock = clock
        self._rows = rows
        self._beats = beats

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Records]:
        yield Records.from_arrow(pa.RecordBatch.from_pylist(self._rows))
        for _ in range(self._beats):
            self._clock.at += 10
            yield Records({}, 0)


def test_an_idle_source_is_named_and_then_left_out() -> None:
    clock = ByHand()
    reports = Reports()

    def read(name: str, rows: list[dict[str, object]], idle_after: int | None) -> lw.Stream:
        source = Beats(clock, rows, 6)
        stream = lw.from_source(source, time="t", watermark=lw.Ascending(), idle_after=idle_after)
        return stream.named(name)

    a = read("a", [{"t": 5, "k": "x"}], 30)
    b = read("b", [{"t": 90, "k": "x"}], None)
    counts = (a | b).key_by("k").window(lw.FixedWindows(20)).aggregate(n=lw.count())
    counts.collect(progress=reports, clock=clock)
    seen = [(one["stage 1"].output, one["stage 1"].held_by) for one in reports.all]
    early = [held for at, held in seen if at == lw.Instant(5)]
    assert early
    assert all(held.startswith("a: ") for held in early)
    assert any("silent since" in held for held in early)
    # b goes on without a.
    assert (lw.Instant(90), "b: ") in [(at, held[:3]) for at, held in seen]


def test_a_source_that_waits_does_not_keep_others_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a folder is followed, and nothing new comes, the other source is read to its end."""
    waited: list[float] = []
    monkeypatch.setattr(follow, "wait", waited.append)
    monkeypatch.setattr(follow, "stopwatch", lambda: 0.0)
    still = SimpleNamespace(monotonic=lambda: 0.0, perf_counter=time.perf_counter)
    for module in (source_reader, runner):
        monkeypatch.setattr(module, "time", still)
    write_jsonl(tmp_path / "a.jsonl", [{"t": 1, "k": "a"}])
    live = lw.read_jsonl(
        str(tmp_path), time="t", watermark=lw.Ascending(), follow=True, max_idle="3s"
    )
    rows = [{"t": t, "k": "b"} for t in range(2, 400)]
    other = lw.from_iterable(rows, time="t", watermark=lw.Ascending())
    before: list[int] = []
    counts = (live | other).key_by("k").window(lw.FixedWindows(1000)).aggregate(n=lw.count())
    result = counts.collect(
        bundle_size=1,
        progress=lambda metrics: before.append(len(waited)) if metrics.events == 399 else None,
    )
    assert sorted(pane.values["n"] for pane in result.panes) == [1, 398]
    assert before[0] == 0  # all was read before anything was waited for
    assert len(waited) >= 3
