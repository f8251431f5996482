"""Runs that are asked to stop: they commit and close, and a later run resumes as if unasked."""

from __future__ import annotations

import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

import lowwater as lw
from lowwater.engine.local.delivery import Delivery
from lowwater.errors import DataError
from lowwater.io.sinks import Callback, JsonLinesFolder
from lowwater.pipeline.handle import stopping_at_sigterm
from tests.children import run_code
from tests.unit.engine.local.durable_runs import output, pipeline, write_files

OPTIONS: dict[str, Any] = {"bundle_size": 10, "commit_every": "bundle", "progress": False}


class StopsAt:
    """Stops a run as it delivers for the nth time; it waits for the run's handle until then."""

    def __init__(self, nth: int) -> None:
        self._left = nth
        self._given = threading.Event()
        self.handle: lw.RunHandle | None = None

    def give(self, handle: lw.RunHandle) -> lw.RunHandle:
        self.handle = handle
        self._given.set()
        return handle

    def __call__(self, delivery: Delivery) -> None:
        assert self._given.wait(60)
        assert self.handle is not None
        self._left -= 1
        if not self._left:
            self.handle.stop()


def owner_of(folder: Path) -> str:
    return (folder / ".lowwater.json").read_text()


@pytest.mark.parametrize(
    ("accumulation", "size"),
    [
        ("retracting", 37),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in (("discarding", 10), ("discarding", 37), ("retracting", 10))
        ),
    ],
)
def test_stopped_and_resumed_again_and_again(accumulation: str, size: int, tmp_path: Path) -> None:
    """Wherever it stopped, all runs together write what one run writes."""
    write_files(tmp_path / "in")
    made = pipeline(tmp_path / "in", accumulation=accumulation)
    options = {**OPTIONS, "bundle_size": size}
    made.write_jsonl(tmp_path / "whole" / "out").run(state=tmp_path / "other", **options)
    stops = 0
    while '"complete": true' not in (owner_of(tmp_path / "out") if stops else ""):
        at = StopsAt(3)
        written = made.write_to(Callback(at), JsonLinesFolder(str(tmp_path / "out")))
        at.give(written.start(state=tmp_path / "state", **options)).wait(60)
        stops += 1
    assert stops > 2
    assert output(tmp_path) == output(tmp_path / "whole")


def test_stopped_without_a_state_directory(tmp_path: Path) -> None:
    """What was read is delivered, and the output says that it is not complete."""
    write_files(tmp_path / "in")
    at = StopsAt(3)
    written = pipeline(tmp_path / "in").write_to(Callback(at), JsonLinesFolder(str(tmp_path / "o")))
    metrics = at.give(written.start(**OPTIONS)).wait(60)
    assert 0 < metrics.events < 300
    assert '"complete": false' in owner_of(tmp_path / "o")


def test_an_error_in_the_thread_is_raised_where_it_is_waited_for(tmp_path: Path) -> None:
    write_files(tmp_path / "in")

    def fails(_: Delivery) -> None:
        raise DataError("no", hint="none")

    handle = pipeline(tmp_path / "in").write_to(Callback(fails)).start(**OPTIONS)
    with pytest.raises(DataError, match="no"):
        handle.wait(60)
    assert not handle.is_running


def test_a_handle_stops_its_run_at_the_end_of_the_block(tmp_path: Path) -> None:
    write_files(tmp_path / "in")
    follows = lw.read_parquet(
        tmp_path / "in",
        time="at",
        watermark=lw.BoundedDisorder("5s"),
        follow=True,
        poll_every="1ms",
    )
    written = follows.key_by("key").window(lw.FixedWindows("20s")).aggregate(n=lw.count())
    seen = threading.Event()
    with written.write_to(Callback(lambda _: seen.set())).start(**OPTIONS) as handle:
        assert seen.wait(60)
        with pytest.raises(TimeoutError, match="not ended"):
            handle.wait(0.01)
        assert "running" in repr(handle)
    assert not handle.is_running
    assert handle.metrics.events > 0
    assert "ended" in repr(handle)


def test_sigterm_as_the_run_ends_is_no_failure(tmp_path: Path) -> None:
    """What it came too late to stop is complete."""
    stops: list[str] = []
    with stopping_at_sigterm(lambda: stops.append("asked"), lambda: False):
        signal.raise_signal(signal.SIGTERM)
    assert stops == ["asked"]
    with pytest.raises(SystemExit) as caught, stopping_at_sigterm(lambda: None, lambda: True):
        signal.raise_signal(signal.SIGTERM)
    assert caught.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_an_iterator_that_is_stopped(tmp_path: Path) -> None:
    write_files(tmp_path / "in")
    run = pipeline(tmp_path / "in").run(bundle_size=10)
    first = next(run)
    run.stop()
    rest = list(run)
    assert first not in rest
    assert run.metrics.events < 300


PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from lowwater.io.sinks import Callback, JsonLinesFolder
from tests.unit.engine.local.durable_runs import pipeline

folder, what = Path(sys.argv[1]), sys.argv[2]
count = 0

def seen(delivery):
    global count
    count += 1
    if count != 3:
        return
    if what == "stop":
        os.kill(os.getpid(), signal.SIGTERM)
    elif what == "twice":
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
    elif what == "own":
        signal.raise_signal(signal.SIGTERM)
    elif what == "fork" and os.fork() == 0:
        globals()["is_child"] = True
    elif what == "fork and end" and os.fork() == 0:
        sys.exit(7)

if what == "own":
    signal.signal(signal.SIGTERM, lambda *_: print("own handler", flush=True))
state = None if sys.argv[3] == "-" else folder / "state"
made = pipeline(folder / "in").write_to(Callback(seen), JsonLinesFolder(str(folder / "out")))
try:
    made.run(state=state, bundle_size=10, commit_every="bundle", progress=False)
except Exception as error:
    if not globals().get("is_child"):
        raise
    print("child:", error.what, flush=True)
    sys.exit(8)
if what.startswith("fork"):
    print("child ended with", os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


def program(folder: Path, what: str, state: str = "state") -> subprocess.CompletedProcess[str]:
    write_files(folder / "in")
    return run_code(PROGRAM, folder, what, state)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("whole")
    write_files(folder / "in")
    pipeline(folder / "in").write_jsonl(folder / "out").run(state=folder / "state", **OPTIONS)
    return output(folder)


@pytest.mark.parametrize("state", ["state", "-"])
def test_sigterm_commits_and_closes(state: str, whole: Any, tmp_path: Path) -> None:
    ended = program(tmp_path, "stop", state)
    assert ended.returncode == 143, ended.stderr
    assert "Traceback" not in ended.stderr
    assert '"complete": false' in owner_of(tmp_path / "out")
    if state == "state":
        found = output(tmp_path)
        assert found != whole
        resumed = program(tmp_path, "nothing")
        assert resumed.returncode == 0, resumed.stderr
        assert output(tmp_path) == whole


def test_a_second_sigterm_ends_the_process_at_once(whole: Any, tmp_path: Path) -> None:
    assert program(tmp_path, "twice").returncode == -signal.SIGTERM
    assert program(tmp_path, "nothing").returncode == 0
    assert output(tmp_path) == whole


def test_a_program_that_handles_sigterm_keeps_its_handler(whole: Any, tmp_path: Path) -> None:
    ended = program(tmp_path, "own")
    assert (ended.returncode, ended.stdout) == (0, "own handler\n")
    assert output(tmp_path) == whole


@pytest.mark.parametrize("state", ["state", "-"])
@pytest.mark.parametrize(("what", "status"), [("fork", 8), ("fork and end", 7)])
def test_a_child_forked_amid_a_run(
    what: str, status: int, state: str, whole: Any, tmp_path: Path
) -> None:
    """It neither hangs nor disturbs its parent, even if it runs on where its parent does."""
    ended = program(tmp_path, what, state)
    assert ended.returncode == 0, ended.stderr
    assert f"child ended with {status}" in ended.stdout
    assert ("was forked amid a run" in ended.stdout) == (what == "fork")
    assert output(tmp_path) == whole
    assert '"complete": true' in owner_of(tmp_path / "out")
