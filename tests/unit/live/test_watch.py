"""What is shown of a run: it agrees with the run, is bounded, and costs little."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.graph.metrics import Metrics
from lowwater.engine.local.health.late_line import LateTally
from lowwater.errors import InvalidArgument, UnsupportedByRunner
from lowwater.io.sinks import Callback
from lowwater.live import report as reporting
from lowwater.live import watch as watching
from lowwater.live.history import History
from lowwater.live.snapshot import Snapshot, window_bars
from lowwater.live.watch import Watch
from lowwater.pipeline.outcomes import Outcomes
from lowwater.time import END_OF_TIME

SECOND = 1_000_000
RECORDS = [{"at": n * SECOND, "key": "ab"[n % 2], "n": n} for n in range(3_000)]
"""Ten minutes and more; some are late, and some are no records."""


def orders(records: Any = None, delay: str = "5s") -> lw.Pipeline:
    given = RECORDS if records is None else records
    return (
        lw.from_iterable(given, time="at", watermark=lw.BoundedDisorder(delay))
        .named("orders")
        .key_by("key")
        .window(
            lw.FixedWindows("1m"),
            trigger=lw.AfterWatermark(early=lw.AfterCount(7)),
            accumulation="discarding",
        )
        .aggregate(n=lw.count())
        .named("counts")
    )


def dirty() -> list[dict[str, Any]]:
    late = [{"at": 0, "key": "late", "n": -1} for _ in range(10)]
    return [*RECORDS, *late, {"at": None, "key": "x", "n": 0}, {"at": "soon", "key": "y", "n": 0}]


def watched(pipeline: lw.Pipeline, **options: Any) -> list[Snapshot]:
    """Run, and return the snapshot after each bundle and at the end."""
    given: Any = {"bundle_size": 500, **options}
    outcomes = Outcomes((pipeline._to()._stage,), given)
    tally = LateTally()
    watch = Watch(outcomes.graph, outcomes.local, tally, None)
    found: list[Snapshot] = []
    put = watch.feed.put

    def kept(snapshot: Snapshot, *, last: bool = False) -> None:
        found.append(snapshot)
        put(snapshot, last=last)

    watch.feed.put = kept  # type: ignore[method-assign]
    for outcome in outcomes:
        watch.see(outcome)
        if outcome.late is not None:
            tally.add(outcome.late)
        if outcome.boundary:
            watch._next = float("-inf")  # as if enough time had passed
            watch(outcomes.metrics)
    watch.end("ended", None)
    return found


def test_it_agrees_with_the_run() -> None:
    pipeline = orders(dirty())
    result = pipeline.collect(bundle_size=500, progress=False, on_error="dead_letter")
    found = watched(pipeline, on_error="dead_letter")
    last = found[-1]
    metrics = result.metrics
    assert last["state"] == "ended"
    assert last["totals"]["events"] == len(dirty())
    assert last["totals"]["panes"] == dict(metrics.panes)
    assert last["totals"]["late"] == dict(metrics.late) != {}
    assert last["totals"]["errors"] == dict(metrics.errors) != {}
    source, counts = last["parts"]
    assert (source["name"], source["kind"]) == ("orders", "source")
    assert source["dead"] + counts["dead"] == 2
    assert source["records"] == len(dirty())
    assert (counts["name"], counts["inputs"]) == ("counts", ["orders"])
    assert counts["records"] == metrics.stages["counts"].arrived
    assert counts["ended"]
    assert sum(bar["count"] for bar in last["late"]) == metrics.late.total()
    assert last["lateness"] is not None
    assert [one["reason"] for one in last["dead_letters"]] == [e.reason for e in result.errors]
    json.dumps(found, allow_nan=False)


def test_open_windows_are_shown_by_when_they_are_due() -> None:
    found = watched(orders())
    for snapshot in found[:-1]:
        (counts,) = (part for part in snapshot["parts"] if part["kind"] == "stage")
        assert sum(bar["count"] for bar in counts["windows"]) == counts["open_windows"] > 0
    assert found[-1]["parts"][-1]["windows"] == []


@given(st.lists(st.integers(-(2**62), 2**62), max_size=200), st.integers(-(2**62), 2**62))
def test_bars_have_all_windows_and_are_few(due: list[int], watermark: int) -> None:
    bars = window_bars(np.array([*due, END_OF_TIME], dtype=np.int64), watermark)
    assert sum(bar["count"] for bar in bars) == len(due)
    assert len(bars) <= 41
    assert [bar["upto"] for bar in bars] == sorted(bar["upto"] for bar in bars)


def test_ten_thousand_open_windows_are_few_bars() -> None:
    records = [{"at": n * SECOND, "key": n, "n": n} for n in range(10_000)]
    snapshot = watched(orders(records, "1d"), bundle_size=10_000)[0]
    counts = snapshot["parts"][-1]
    assert counts["open_windows"] == 10_000
    assert len(json.dumps(snapshot)) < 20_000


def test_two_hundred_stages_are_shown_in_little_text() -> None:
    stream = lw.from_iterable(RECORDS[:10], time="at", watermark=lw.BoundedDisorder("5s"))
    outputs = [
        stream.key_by("key").window(lw.FixedWindows(f"{n + 1}m")).aggregate(n=lw.count())
        .named(f"stage {n}").write_to(Callback(lambda _: None))
        for n in range(200)
    ]  # fmt: skip
    handle = lw.start(*outputs, serve=0, progress=False)
    handle.wait()
    shown = last_of(handle)
    assert len(shown["parts"]) == 201
    assert len(json.dumps(shown)) < 300_000


def last_of(handle: lw.RunHandle) -> Snapshot:
    serving = handle._serving
    assert serving is not None
    shown = serving.watch.feed.latest()
    assert shown is not None
    return shown.snapshot


def test_memory_is_bounded() -> None:
    history = History()
    for at in range(100_000):
        history.add([float(at)])
    points = [point[0] or 0.0 for point in history.points()]
    assert len(points) <= 601
    assert points[0] == 0
    assert points[-1] == 99_999
    assert points == sorted(set(points))
    gaps = {int(after - before) for before, after in pairwise(points)}
    assert len(gaps) <= 2, "the whole run is drawn alike"
    broken = [{"at": None, "key": "x", "n": n} for n in range(5_000)]
    last = watched(orders(broken), on_error="dead_letter")[-1]
    assert len(last["dead_letters"]) == 20
    assert last["totals"]["errors"] == {"null_time": 5_000}
    long = [{"at": None, "key": "x" * 1_000_000, "n": 1}]
    assert len(json.dumps(watched(orders(long), on_error="dead_letter")[-1])) < 10_000


class Clock:
    """Time that passes only when a test says so."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


def test_snapshots_take_a_fiftieth_of_the_time_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(watching, "time", clock)
    outcomes = Outcomes((orders()._to()._stage,), {})
    watch = Watch(outcomes.graph, outcomes.local, outcomes._late, None)  # type: ignore[arg-type]
    made: list[float] = []
    cost = 0.0

    def snapshot(*_: Any) -> Any:
        made.append(clock.now)
        clock.now += cost
        return {"state": "running"}

    monkeypatch.setattr(watch, "_snapshot", snapshot)

    def pass_time(seconds: float, *, is_wanted: bool) -> int:
        before, end = len(made), clock.now + seconds
        while clock.now < end:
            clock.now += 0.01
            watch.feed.is_wanted = is_wanted
            watch(Metrics())
        return len(made) - before

    assert pass_time(100, is_wanted=False) == pytest.approx(20, abs=1)
    assert pass_time(100, is_wanted=True) == pytest.approx(200, abs=4)
    cost = 0.1
    assert pass_time(100, is_wanted=True) == pytest.approx(20, abs=2)
    assert pass_time(100, is_wanted=False) == pytest.approx(20, abs=2)


def lines(folder: Path, count: int) -> str:
    folder.mkdir(exist_ok=True)
    with (folder / "a.jsonl").open("w") as file:
        for record in RECORDS[:count]:
            file.write(json.dumps(record) + "\n")
    return str(folder)


@pytest.mark.parametrize("crashes", [(700,), (450, 1_900), (501, 502, 1_000, 2_999)])
def test_a_counter_never_goes_back_over_restarts(tmp_path: Path, crashes: tuple[int, ...]) -> None:
    """Records that no commit has are read again: they must not be counted twice."""
    folder = lines(tmp_path / "in", 3_000)
    seen: list[dict[str, Any]] = []

    def run(stops_at: int | None) -> None:
        def step(record: dict[str, Any]) -> bool:
            if record["n"] == stops_at:
                raise RuntimeError("killed")
            return True

        pipeline = (
            lw.read_jsonl(folder, time="at", watermark=lw.BoundedDisorder("5s"))
            .filter(step)
            .key_by("key")
            .window(lw.FixedWindows("1m"))
            .aggregate(n=lw.count())
            .named("counts")
        )
        handle = pipeline.write_jsonl(str(tmp_path / "out.jsonl")).start(
            state=tmp_path / "state", commit_every=300, bundle_size=100, serve=0, progress=keep
        )
        box.append(handle)
        if stops_at is None:
            handle.wait()
        else:
            with pytest.raises(lw.DataError, match="killed"):
                handle.wait()
        seen.append(dict(last_of(handle)["counters"]))

    box: list[lw.RunHandle] = []

    def keep(_: Metrics) -> None:
        if box and box[-1]._serving is not None:
            seen.append(json.loads(json.dumps(box[-1]._serving.watch._counters)))

    for at in crashes:
        run(at)
    run(None)
    for name in ("events", "bundles"):
        counts = [one[name] for one in seen]
        assert counts == sorted(counts)
    panes = [sum(one["stages"]["counts"]["panes"].values()) for one in seen]
    assert panes == sorted(panes)
    assert seen[-1]["events"] == 3_000
    assert seen[-1]["stages"]["counts"]["arrived"] == 3_000


def ask(link: str, path: str) -> tuple[int, bytes]:
    host = link.removeprefix("http://").partition("/")[0]
    with closing(http.client.HTTPConnection(host, timeout=20)) as asked:
        asked.request("GET", path)
        answer = asked.getresponse()
        return answer.status, answer.read()


class Gate:
    """A source of records that waits in the middle until a test lets it go on."""

    def __init__(self) -> None:
        self.reached, self.open = threading.Event(), threading.Event()

    def records(self) -> Iterator[dict[str, Any]]:
        yield from RECORDS[:300]
        self.reached.set()
        assert self.open.wait(30)
        yield from RECORDS[300:900]


def test_a_run_is_served_until_it_ends(tmp_path: Path) -> None:
    gate = Gate()
    writing = orders(gate.records()).write_parquet(str(tmp_path / "out"))
    handle = writing.start(serve=0, bundle_size=100, trace=True, progress=False)
    assert gate.reached.wait(30)
    link = handle.link
    assert link is not None
    assert link in repr(handle)
    assert link in handle._repr_html_()
    status, body = ask(link, "/snapshot.json")
    assert status == 200
    assert json.loads(body)["state"] == "running"
    assert json.loads(body)["traced"]
    # The run waits within its source: it cannot hand over its trace.
    gate.open.set()
    assert ask(link, "/keys?stage=counts")[0] in (200, 503)
    handle.wait()
    assert last_of(handle)["state"] == "ended"
    assert last_of(handle)["outputs"][0]["rows"] == handle.metrics.panes.total()
    with pytest.raises(ConnectionRefusedError):
        ask(link, "/health")
    handle.report(str(tmp_path / "run.html"))
    assert "counts" in (tmp_path / "run.html").read_text()


def test_how_a_run_fails_is_shown_without_secrets(tmp_path: Path) -> None:
    def fails(_: Any) -> bool:
        raise ValueError("cannot connect: postgres://ann:hunter2@db/x")

    stream = lw.from_iterable(RECORDS, time="at").filter(fails).key_by("key")
    pipeline = stream.window(lw.FixedWindows("1m")).aggregate(n=lw.count())
    handle = pipeline.write_parquet(str(tmp_path / "out")).start(serve=0, progress=False)
    with pytest.raises(Exception, match="cannot connect"):
        handle.wait()
    shown = last_of(handle)
    assert shown["state"] == "failed"
    assert shown["error"] is not None
    assert "cannot connect" in shown["error"]
    assert "hunter2" not in json.dumps(shown)
    assert "hunter2" not in handle._repr_html_()
    assert "failed" in handle._repr_html_()


def test_a_run_that_is_stopped_says_so(tmp_path: Path) -> None:
    gate = Gate()
    writing = orders(gate.records()).write_parquet(str(tmp_path / "out"))
    handle = writing.start(serve=0, bundle_size=100, progress=False)
    assert gate.reached.wait(30)
    handle.stop()
    gate.open.set()
    handle.wait()
    assert last_of(handle)["state"] == "stopped"


def test_iterators_and_results_are_served_too(capsys: pytest.CaptureFixture[str]) -> None:
    panes = list(orders().run(serve=0, progress=False))
    result = orders().collect(serve=0, progress=False)
    assert len(panes) == len(result.panes)
    assert capsys.readouterr().err.count("lowwater: the run is shown at http://127.0.0.1:") == 2
    run = orders().run(serve=0, progress=False)
    next(run)
    del run  # who drops it closes the page with it
    assert not [one for one in threading.enumerate() if one.name == "lowwater page"]


def test_a_run_with_workers_is_served(tmp_path: Path) -> None:
    stream = lw.from_iterable(RECORDS, time="at").map(lambda record: {**record, "m": 1})
    pipeline = stream.key_by("key").window(lw.FixedWindows("1m")).aggregate(n=lw.count())
    handle = pipeline.write_parquet(str(tmp_path / "out")).start(
        serve=0, workers=2, bundle_size=100, progress=False
    )
    handle.wait()
    assert last_of(handle)["workers"] == 2
    assert last_of(handle)["totals"]["events"] == 3_000


def test_questions_about_a_traced_run(tmp_path: Path) -> None:
    handle = (
        orders(RECORDS[:900])
        .write_parquet(str(tmp_path / "out"))
        .start(serve=0, trace=True, bundle_size=100, progress=False)
    )
    handle.wait()
    assert handle._serving is not None
    asked = handle._serving._questions
    keys = asked.keys("counts")
    assert {one["key"] for one in keys} == {"'a'", "'b'"}
    assert "<svg" in asked.diagram("counts", "'a'", "light")
    assert "window" in asked.explain("counts", "'a'", "1970-01-01T00:10:00Z")
    with pytest.raises(InvalidArgument, match="does not occur"):
        asked.diagram("counts", "'zz'", "light")
    with pytest.raises(InvalidArgument):
        asked.explain("counts", "'a'", "no instant")
    assert "<svg" in asked.graph("dark")


def test_a_report_is_one_file_that_loads_nothing(tmp_path: Path) -> None:
    records = [*RECORDS[:600], *dirty()[len(RECORDS) :]]
    result = orders(records).collect(trace=True, progress=False, on_error="dead_letter")
    path = tmp_path / "run.html"
    result.report(path)
    text = path.read_text()
    for tag in ('href="http', 'src="http', "src='http", "@import", "url(http"):
        assert tag not in text
    assert "orders" in text
    orders().collect(progress=False).report(path)
    assert path.stat().st_size < 150_000
    with pytest.raises(InvalidArgument, match=r"does not end in \.html"):
        result.report(tmp_path / "run.pdf")
    with pytest.raises(InvalidArgument, match="cannot be written"):
        result.report(tmp_path / "nowhere" / "run.html")


def test_nothing_is_loaded_or_started_without_serve() -> None:
    program = """
import sys, threading
import lowwater as lw
p = lw.from_iterable([{"at": 0, "k": 1}], time="at").key_by("k").window(lw.FixedWindows("1m"))
p.aggregate(n=lw.count()).collect(progress=False)
assert threading.active_count() == 1
print([name for name in sys.modules if name.startswith(("lowwater.live", "http", "socketserver"))])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_reports_need_serve(tmp_path: Path) -> None:
    handle = orders().write_parquet(str(tmp_path / "out")).start(progress=False)
    handle.wait()
    assert handle.link is None
    with pytest.raises(InvalidArgument, match="serve="):
        handle.report(tmp_path / "run.html")


@pytest.mark.parametrize("how", ["run", "collect"])
def test_a_run_whose_page_gets_no_thread_ends(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def refuse(self: threading.Thread) -> None:
        if self.name == "lowwater page":
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    runs: dict[str, Any] = {
        "run": lambda **options: orders().write_to(Callback(lambda _: None)).run(**options),
        "collect": orders().collect,
    }
    run = runs[how]
    with pytest.raises(UnsupportedByRunner, match="in a thread of its own"):
        run(serve=0, progress=False)


def test_an_error_that_cannot_be_read_is_raised_as_it_is() -> None:
    class Unreadable(Exception):
        def __str__(self) -> str:
            raise ValueError("no text")

    def fail(_: Metrics) -> None:
        raise Unreadable

    with pytest.raises(Unreadable):
        orders().collect(serve=0, progress=fail)


def test_a_report_of_a_run_that_is_stuck_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporting, "_WAIT_S", 0.01)
    gate = Gate()
    writing = orders(gate.records()).write_parquet(str(tmp_path / "out"))
    handle = writing.start(serve=0, bundle_size=100, trace=True, progress=False)
    assert gate.reached.wait(30)
    try:
        with pytest.raises(InvalidArgument, match="hands its trace over only then"):
            handle.report(tmp_path / "run.html")
    finally:
        gate.open.set()
        handle.wait()
    handle.report(tmp_path / "run.html")


def test_the_size_of_a_state_is_that_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "a").write_bytes(b"12345")
    (tmp_path / "below" / "b").write_bytes(b"123")
    assert watching._size_of(tmp_path) == 8
    assert watching._size_of(tmp_path / "gone") == 0
