"""Worker processes: the same output, order and state for any number, and errors as without them."""

from __future__ import annotations

import datetime as dt
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lowwater as lw
from lowwater.cli.main import main
from lowwater.engine.process.key_parts import PARTS
from lowwater.errors import (
    DataError,
    InvalidArgument,
    LowwaterError,
    PipelineWarning,
    StateError,
    WorkerLost,
)
from lowwater.pipeline.state_tools import state_info, verify_state
from tests.paths import ROOT
from tests.unit.engine.local.durable_runs import KEYS, ROWS, output, run, stopped, write_files

SECOND = 1_000_000
RECORDS: list[dict[str, Any]] = [
    {"t": n * SECOND - (n % 7) * 3 * SECOND, "k": f"k{n % 23}", "n": n, "x": n / 3}
    for n in range(400)
]
ODD = [
    None, True, -(2**70), 2**63, 1.5, "text", b"bytes", (1, "two"), [1, [2]], {"a": {1: 2}},
    {3, 1, 2}, Decimal("1.50"), dt.date(2024, 2, 29), dt.timedelta(seconds=1),
]  # fmt: skip
"""Values of every kind that state can have."""


class Visits:
    """Has cells, timers of both domains, holds, outputs, refusals and retractions."""

    retracts = True
    count = lw.value_cell(0)
    seen = lw.list_cell()
    silence = lw.timer()
    look = lw.timer(domain="processing")
    odd = lw.output()

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        if record["n"] % 31 == 30:
            ctx.late(f"not {record['n']}")
            return
        ctx.count.set(ctx.count.get() + 1)
        ctx.seen.append(record["n"])
        ctx.silence.set(ctx.time + 20 * SECOND, output_time=ctx.time)
        ctx.emit({"n": record["n"], "x": record["x"], "count": ctx.count.get()})
        if record["n"] % 5 == 0:
            ctx.emit(
                {"n": record["n"], "x": record["x"], "count": ctx.count.get()},
                kind="retract",
            )
        ctx.emit({"odd": ODD[record["n"] % len(ODD)], "all": ctx.seen.get()}, tag="odd")

    def on_timer(self, name: str, ctx: lw.ProcessContext) -> None:
        ctx.emit({"silent": ctx.key, "seen": ctx.seen.get()}, tag="odd")
        ctx.seen.clear()

    def on_end(self, ctx: lw.ProcessContext) -> None:
        ctx.emit({"end": ctx.count.get()}, tag="odd")


def records() -> Any:
    return lw.from_iterable(RECORDS, time="t", watermark=lw.BoundedDisorder("10s")).key_by("k")


def of_key(found: list[Any]) -> list[str]:
    """What was emitted, in an order that does not depend on that among keys."""
    return sorted(map(repr, found))


@pytest.mark.parametrize("tag", ["main", "odd"])
def test_the_same_for_any_number(tag: str) -> None:
    def found(**options: Any) -> tuple[list[Any], Any]:
        stage = records().process(Visits())
        stage = stage if tag == "main" else stage.output(tag)
        result = stage.collect(bundle_size=50, **options)
        return result.to_arrow().to_pylist(), list(result.late)

    without, late = found()
    assert len(without) > 300
    assert late
    one = found(workers=1)
    assert of_key(one[0]) == of_key(without)
    assert one[1] == late
    for count in (2, PARTS):
        assert found(workers=count) == one
    assert not multiprocessing.active_children()


def test_keys_of_several_columns_and_types_windows_and_stages_behind() -> None:
    class Windowed:
        seen = lw.list_cell()

        def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
            ctx.seen.append(record["n"])

        def on_window_expired(self, ctx: lw.ProcessContext) -> None:
            assert ctx.window is not None
            ctx.emit({"seen": ctx.seen.get(), "start": int(ctx.window.start)})

    mixed = [{**each, "k": each["n"] % 5 if each["n"] < 200 else each["k"]} for each in RECORDS]
    stage = (
        lw.from_iterable(
            mixed, time="t", watermark=lw.BoundedDisorder("30s"), clock=lw.ManualClock(0)
        )
        .key_by("k", odd=lw.col("n") % 2)
        .window(lw.Sessions("9s"))
        .process(Windowed())
    )
    behind = stage.key_by("odd").window(lw.FixedWindows("1m")).aggregate(n=lw.count())
    for each in (stage, behind):
        wanted = each.collect(workers=1).to_arrow()
        assert of_key(wanted.to_pylist()) == of_key(each.collect().to_arrow().to_pylist())
        assert each.collect(workers=4).to_arrow().equals(wanted)


class Fails:
    """Fails at some records."""

    def __init__(self, how: Any, at: tuple[int, ...] = (0,)) -> None:
        self.how, self.at = how, at

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        if record["n"] in self.at:
            self.how(record, ctx)
        ctx.emit(record)


def divided(record: Any, ctx: Any) -> None:
    raise ZeroDivisionError(f"in {record['n']}")


@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_hook_that_fails_does_so_as_without_workers(count: int) -> None:
    """Of several failures in one bundle, the first in order of arrival is the one that is told."""
    numbers = (350, 351, 352, 353)
    stage = records().process(Fails(divided, numbers))
    with pytest.raises(DataError) as wanted:
        stage.collect()
    with pytest.raises(DataError) as found:
        stage.collect(workers=count)
    assert str(found.value) == str(wanted.value)
    assert "in 350" in str(found.value)
    assert any("ZeroDivisionError" in note for note in found.value.__notes__)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("workers", [None, 1, 2])
def test_what_is_no_plain_value_is_a_dead_letter(workers: int | None) -> None:
    class Own:
        pass

    for at in range(6):  # whoever has the key
        stage = records().process(Fails(lambda record, ctx: ctx.emit(Own()), (at,)))
        result = stage.collect(workers=workers)
        assert not any(isinstance(each, Own) for each in result.values())
        (letter,) = result.errors
        assert letter.reason == "unstorable"
        assert str(letter.where).startswith("emit of process(Fails), key=")


RUN = os.getpid()
EVERY = tuple(range(23))
"""Records of each key."""


def elsewhere(does: Any) -> Fails:
    """A process that does something where a key is not the run's own process's."""
    return Fails(lambda *_: os.getpid() == RUN or does(), EVERY)


def test_a_worker_that_is_killed_ends_the_run_in_words() -> None:
    stage = records().process(elsewhere(lambda: os.kill(os.getpid(), signal.SIGKILL)))
    with pytest.raises(WorkerLost, match=r"worker process \d of 3 .*SIGKILL.*last commit"):
        stage.collect(workers=3)
    assert not multiprocessing.active_children()


def test_a_worker_that_exits_ends_the_run_in_words() -> None:
    stage = records().process(elsewhere(lambda: os._exit(7)))
    with pytest.raises(WorkerLost, match="has ended, with the exit code 7"):
        stage.collect(workers=2)


@pytest.mark.parametrize("code", ["enough", "", 3, 0, 2**70, None])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_hook_that_ends_the_program_ends_it(code: str | int | None, workers: int) -> None:
    stage = records().process(Fails(lambda *_: sys.exit(code)))
    with pytest.raises(SystemExit) as ended:
        stage.collect(workers=workers)
    assert ended.value.code == code
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("workers", [1, 2])
def test_the_end_of_the_program_hides_no_error_of_an_earlier_record(workers: int) -> None:
    def made(record: dict[str, Any]) -> dict[str, Any]:
        if record["n"] == 5:
            raise ValueError("not 5")
        return sys.exit(0) if record["n"] == 501 else record

    rows = [{"t": n * SECOND, "k": "k", "n": n} for n in range(1_000)]
    source = lw.from_iterable(rows, time="t", clock=lw.ManualClock(0)).map(made)
    windowed = source.key_by("k").window(lw.FixedWindows("1m"))
    with pytest.raises(DataError, match="not 5"):
        windowed.aggregate(lw.count()).collect(workers=workers)


def test_the_first_hook_in_order_of_arrival_ends_the_program() -> None:
    stage = records().process(Fails(lambda record, ctx: sys.exit(record["n"]), (350, 351, 352)))
    for workers in (1, 2, 7):
        with pytest.raises(SystemExit) as ended:
            stage.collect(workers=workers)
        assert ended.value.code == 350


def test_an_error_whose_text_is_no_valid_unicode_is_still_reported() -> None:
    def failing(*_: Any) -> None:
        raise ValueError("\ud800 is half a pair")

    with pytest.raises(LowwaterError, match="is half a pair"):
        records().process(Fails(failing)).collect(workers=2)
    with pytest.raises(SystemExit, match=r"\\ud800"):
        records().process(Fails(lambda *_: sys.exit("\ud800"))).collect(workers=2)


def test_what_a_hook_changes_outside_of_its_cells_stays_in_its_process() -> None:
    seen: list[int] = []
    stage = records().process(Fails(lambda record, ctx: seen.append(record["n"]), EVERY))
    stage.collect(workers=2)
    assert 0 < len(seen) < len(EVERY)  # those of the run's own process
    seen.clear()
    stage.collect(workers=1)
    assert seen == list(EVERY)


def test_a_run_that_is_left_leaves_no_workers() -> None:
    panes = iter(records().process(Fails(divided, ())).run(workers=2, bundle_size=10))
    next(panes)
    assert len(multiprocessing.active_children()) == 1
    del panes
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("value", [0, -1, 17, 1.0, True, "all"])
def test_numbers_that_are_none(value: Any) -> None:
    with pytest.raises(InvalidArgument, match=r'workers=.*1 to 16, or "auto"'):
        records().process(Fails(divided, ())).collect(workers=value)


def test_auto_is_the_number_of_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    panes = iter(records().process(Fails(divided, ())).run(workers="auto", bundle_size=10))
    next(panes)
    assert len(multiprocessing.active_children()) == 2
    del panes


def test_workers_that_would_have_nothing_to_do() -> None:
    counted = records().window(lw.FixedWindows("1m")).aggregate(n=lw.count())
    with pytest.warns(PipelineWarning, match="workers=2 .* changes nothing"):
        counted.collect(workers=2)
    counted.collect(workers="auto")


class Steps:
    """Numbers the records of each key in event-time order; refuses some of those that waited."""

    count = lw.value_cell(0)
    silence = lw.timer()

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        if record["n"] % 7 == 3:
            ctx.late("a multiple of 7, and 3")
            return
        ctx.count.set(ctx.count.get() + 1)
        ctx.silence.set(ctx.time + 5 * SECOND)
        ctx.emit({"n": record["n"], "side": record.get("side"), "count": ctx.count.get()})

    def on_timer(self, name: str, ctx: lw.ProcessContext) -> None:
        ctx.emit({"silent": ctx.count.get(), "watermark": ctx.watermark})


DISORDER = lw.BoundedDisorder("10s")


def in_steps(one: Any, other: Any) -> Any:
    """A process in event-time order over two inputs."""
    return one.union(other).key_by("k").process(Steps(), order="event_time").named("steps")


def test_in_event_time_order_the_same_for_any_number() -> None:
    sided = [{**each, "side": "b", "n": each["n"] + 10_000} for each in RECORDS[::3]]
    streams = (
        lw.from_iterable(rows, time="t", unit="us", watermark=DISORDER) for rows in (RECORDS, sided)
    )
    stage = in_steps(*streams)  # whose columns differ

    def found(**options: Any) -> tuple[list[Any], list[Any]]:
        result = stage.collect(bundle_size=50, **options)
        late = [(each.value, each.reason, each.detail, each.key) for each in result.late]
        return result.to_arrow().to_pylist(), late

    without, late = found()
    assert len(without) > 300
    assert {reason for _, reason, *_ in late} == {"refused", "too_late"}
    one = found(workers=1)
    for count in (2, PARTS):
        assert found(workers=count) == one
    # Between keys, what belongs to one time comes part by part.
    times = [[each["timestamp"] for each in panes] for panes in (without, one[0])]
    assert of_key(one[0]) == of_key(without)
    assert times[0] == times[1]
    assert of_key(one[1]) == of_key(late)


def test_records_that_wait_are_found_by_another_number_of_workers(tmp_path: Path) -> None:
    streams = []
    for at, name in enumerate(("one", "other")):
        rows = [{**each, "n": each["n"] + 10_000 * at} for each in RECORDS[at::2]]
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / f"{name}.parquet")
        read = lw.read_parquet(
            tmp_path / f"{name}.parquet", time="t", unit="us", watermark=DISORDER
        )
        streams.append(read.named(name))
    stage = in_steps(*streams)
    whole = stage.collect(bundle_size=20, workers=1)
    wanted = whole.to_arrow().to_pylist()
    state, out = tmp_path / "state", tmp_path / "out"
    for count, bundles in ((3, 4), (2, 9), (1, 14), (5, None)):

        def stop(metrics: lw.Metrics, at: int | None = bundles) -> None:
            if metrics.bundles == at:
                raise KeyboardInterrupt

        run = stage.write_jsonl(out)
        options: Any = {"bundle_size": 20, "commit_every": "bundle", "progress": stop}
        try:
            run.run(state=state, workers=count, **options)
        except KeyboardInterrupt:
            assert bundles is not None
    lines = [
        json.loads(line)
        for path in sorted(out.glob("part-*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    made = [(each.get("n"), each.get("count"), each.get("silent")) for each in lines]
    assert made == [(each.get("n"), each.get("count"), each.get("silent")) for each in wanted]


class Totals:
    """Has state of each sort, for runs that are stopped."""

    total = lw.value_cell(0)
    values = lw.list_cell()
    silence = lw.timer()

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        ctx.total.set(ctx.total.get() + record["value"])
        ctx.values.append(record["value"])
        ctx.silence.set(ctx.time + 30 * SECOND, output_time=ctx.time)

    def on_timer(self, name: str, ctx: lw.ProcessContext) -> None:
        ctx.emit({"total": ctx.total.get(), "values": ctx.values.get()})
        ctx.values.clear()


def totals(source: Path) -> Any:
    watermark = lw.BoundedDisorder("5s")
    return (
        lw.read_parquet(source, time="at", watermark=watermark, clock=lw.ManualClock(0))
        .deduplicate(id="value", within="1m")
        .key_by("key")
        .process(Totals())
    )


def test_another_number_of_workers_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_files(tmp_path / "in")
    run(totals(source), tmp_path / "whole")
    wanted = output(tmp_path / "whole")
    assert len(wanted["part"]) > KEYS
    place = tmp_path / "other"
    for count in (3, 1, 2, 16):
        stopped(totals(source), place, commits=5, workers=count)
    assert state_info(place / "state").keys == KEYS
    assert verify_state(place / "state") > PARTS
    assert main(["state", "verify", str(place / "state")]) == 0
    run(totals(source), place, workers=2)
    assert output(place) == wanted
    assert sum(len(each["values"]) for each in wanted["part"]) == 3 * ROWS


def test_a_run_that_is_asked_to_stop_commits_what_its_workers_have(tmp_path: Path) -> None:
    """Its last commit comes after it has ended, and needs the workers still."""
    source = write_files(tmp_path / "in")
    run(totals(source), tmp_path / "whole")
    for count in (2, 3):
        handles: list[Any] = []
        ready, bundles = threading.Event(), iter(range(4))

        def stop(_: Any, given: Any = (ready, handles, bundles)) -> None:
            ready, handles, left = given
            if next(left, None) is None:
                ready.wait()
                handles[0].stop()

        options = {"state": tmp_path / "state", "bundle_size": 10, "commit_every": "1h"}
        written = totals(source).write_jsonl(tmp_path / "out")
        handles.append(written.start(workers=count, progress=stop, **options))
        ready.set()
        handles[0].wait()
        assert verify_state(tmp_path / "state") > PARTS
        assert state_info(tmp_path / "state").keys > 0
    run(totals(source), tmp_path, workers=1)
    assert output(tmp_path) == output(tmp_path / "whole")


def test_with_and_without_workers_are_two_layouts(tmp_path: Path) -> None:
    source = write_files(tmp_path / "in")
    for place, first, then in (
        (tmp_path / "a", {}, {"workers": 2}),
        (tmp_path / "b", {"workers": 2}, {}),
    ):
        stopped(totals(source), place, commits=3, **first)
        with pytest.raises(StateError, match=r"it ran with(out)? workers=, and is to run with"):
            run(totals(source), place, **then)
        run(totals(source), place, **first)


def test_a_cell_that_cannot_be_stored_is_told(tmp_path: Path) -> None:
    class Odd:
        held = lw.value_cell()

        def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
            ctx.held.set([])
            ctx.held.get().append(object())  # what is changed in place is looked at when stored

    source = lw.read_parquet(write_files(tmp_path / "in"), time="at", watermark=lw.Ascending())
    told = set()
    for count in (1, 2, 5):
        written = source.key_by("key").process(Odd()).write_jsonl(tmp_path / f"out {count}")
        options: Any = {"bundle_size": 50, "commit_every": "bundle", "workers": count}
        with pytest.raises(StateError, match=r"held.*k\d") as found:
            written.run(state=tmp_path / f"state {count}", **options)
        told.add(str(found.value))
    assert len(told) == 1


def test_what_is_made_plain_on_its_way_is_so_whoever_owns_the_key() -> None:
    """In the run's own process as well."""

    class Typed:
        def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
            ctx.emit({"read": type(record["v"]).__name__, "v": np.int64(record["n"])})

    zone = unknown_zone()
    rows = [
        {"t": n * SECOND, "k": f"k{n}", "n": n, "v": v}
        for n, v in enumerate(
            [np.int64(5), np.float64(0.5), dt.datetime(2024, 1, 1, tzinfo=zone)] * 8
        )
    ]
    stage = lw.from_iterable(rows, time="t").key_by("k").process(Typed())
    for count in (2, 3, 7):
        values = stage.collect(workers=count).values()
        assert {each["read"] for each in values} == {"int", "float", "datetime"}
        assert {type(each["v"]) for each in values} == {int}


def unknown_zone() -> dt.tzinfo:
    """A zone that is of no library that is known."""

    class Zone(dt.tzinfo):
        def utcoffset(self, _: dt.datetime | None) -> dt.timedelta:
            return dt.timedelta(hours=1)

        def dst(self, _: dt.datetime | None) -> None:
            return None

        def tzname(self, _: dt.datetime | None) -> str:
            return "of no library"

    return Zone()


SCRIPT = """
import os, time
import lowwater as lw

class Slow:
    def on_record(self, record, ctx):
        os.write(1, b"%d\\n" % os.getpid())  # in one piece: the other one writes, too
        time.sleep(600)

os.write(1, b"%d\\n" % os.getpid())
records = lw.from_iterable([{"t": 1, "k": n} for n in range(64)], time="t").key_by("k")
records.process(Slow()).collect(workers=2)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_their_run(how: signal.Signals, tmp_path: Path) -> None:
    """Whatever ends the run: Ctrl-C reaches its whole group, the others the run alone."""
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, cwd=ROOT, start_new_session=True,
    ) as run:  # fmt: skip
        assert run.stdout is not None
        assert len({run.stdout.readline() for _ in range(3)}) == 2
        if how == signal.SIGINT:
            os.killpg(run.pid, how)
        else:
            os.kill(run.pid, how)
        assert run.wait(30) != 0
        assert run.stdout.read() == ""  # until the last of those that could write has ended


def test_a_run_goes_on_when_the_thread_that_began_it_has_ended() -> None:
    """Linux would tell its workers that their parent is gone."""
    panes = records().process(Fails(divided, ())).run(workers=2, bundle_size=10)
    first: list[Any] = []
    beginning = threading.Thread(target=lambda: first.append(next(panes)))
    beginning.start()
    beginning.join()
    assert len(first) + len(list(panes)) == len(RECORDS)
