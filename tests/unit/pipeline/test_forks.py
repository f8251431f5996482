"""Processes that are forked off before, amid and after durable runs: none hangs, none disturbs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.children import run_code
from tests.paths import ROOT
from tests.unit.engine.local.durable_runs import output, write_files

PROLOGUE = """
import faulthandler, multiprocessing, os, signal, sys
from pathlib import Path
from lowwater.errors import LowwaterError, StateError
from lowwater.io import Log
from lowwater.io.sinks import Callback, JsonLinesFolder
from lowwater.state.rocks import RocksStore
from lowwater.state.store import Batch
from tests.unit.engine.local.durable_runs import output, pipeline

folder = Path(sys.argv[1])
OPTIONS = dict(bundle_size=60, commit_every="bundle", progress=False)
PATIENCE_S = 60  # a child that hangs is killed, and its status is that of the alarm

def go(name, **options):
    made = pipeline(folder / "in").write_jsonl(folder / name / "out")
    made.run(state=folder / name / "state", **{**OPTIONS, **options})

def fork():
    child = os.fork()
    if not child:
        signal.alarm(PATIENCE_S)
    return child

def forked(work):
    '''Run work in a child, which then ends as a program does; return its status.'''
    child = fork()
    if not child:
        work()
        sys.exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def refused(work):
    try:
        work()
    except StateError as error:
        return error.what
"""

AFTER = """
def both():
    go("child")
    assert not forked(lambda: go("grandchild"))

go("parent")
assert not forked(lambda: go("first"))
assert not forked(both)
with multiprocessing.get_context("fork").Pool(2) as pool:
    pool.map_async(go, ["one", "two"]).get(PATIENCE_S)
assert not forked(lambda: go("parent"))  # a state that the parent has had open
print("done")
"""

WITH_WORKERS = """
go("parent", workers=2)
assert not forked(lambda: go("child", workers=2))
print("done")
"""

AMID = """
ends = []

def seen(delivery):
    if len(ends) < 3:
        ends.append(forked([lambda: None, lambda: go("child"), lambda: sys.exit(5)][len(ends)]))

def begin(**options):
    made = pipeline(folder / "in")
    made = made.write_to(Callback(seen), JsonLinesFolder(str(folder / "parent" / "out")))
    made.run(state=folder / "parent" / "state", **{**OPTIONS, **options})

begin(workers=int(sys.argv[2]))
assert ends == [0, 0, 5], ends
print("done")
"""

OF_ANOTHER_THREAD = """
made = pipeline(folder / "in").write_jsonl(folder / "parent" / "out")
with made.start(state=folder / "parent" / "state", **OPTIONS) as handle:
    for name in ("one", "two"):
        assert not forked(lambda: go(name))
    handle.wait()
print("done")
"""

STORES = """
parent = RocksStore(folder / "parent")
batch = Batch()
batch.put([b"k"], [b"v"])
parent.commit(batch)

def touch():
    for use in (lambda: parent.get([b"k"]), lambda: parent.commit(batch), parent.verify):
        assert "forked amid a run" in refused(use), use
    parent.close()
    assert "in use by another process" in refused(lambda: RocksStore(folder / "parent"))
    with RocksStore(folder / "child") as own:
        own.commit(batch)

assert not forked(touch)
parent.commit(batch)
reading, writing = os.pipe()
child = fork()
if not child:
    os.read(reading, 1)  # until the parent has closed its own
    with RocksStore(folder / "parent") as own:
        assert own.get([b"k"]) == [b"v"]
    os._exit(0)
parent.close()
os.write(writing, b"x")
assert os.waitpid(child, 0)[1] == 0
print("done")
"""

LOGS = """
log = Log(folder / "log")
log.append([{"n": 1}])
reading, writing = os.pipe()

def touch():
    assert "forked off the one that opened the log" in refused(lambda: log.append([{"n": 2}]))
    assert "forked off the one that opened the log" in refused(log.sync)
    assert "has a writer already" in refused(lambda: Log(folder / "log"))
    log.close()

assert not forked(touch)
log.append([{"n": 3}])
child = fork()  # it lives on, with copies of the descriptors
if not child:
    os.read(reading, 1)
    os._exit(0)
log.close()
with Log(folder / "log") as again:
    again.append([{"n": 4}])
    with again.reader() as reader:
        rows = [row for records in reader for row in records.records.to_pylist()]
    assert rows == [{"n": 1}, {"n": 3}, {"n": 4}], rows
os.write(writing, b"x")
assert os.waitpid(child, 0)[1] == 0
print("done")
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    write_files(tmp_path / "in")
    return tmp_path


def program(code: str, *arguments: object) -> None:
    """Run a program to the very end of its process, as its children do."""
    command = [sys.executable, "-X", "faulthandler", "-c", PROLOGUE + code, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=180, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr


def test_a_child_forked_after_a_run_has_runs_of_its_own(files: Path) -> None:
    program(AFTER, files)
    names = ("parent", "first", "child", "grandchild", "one", "two")
    results = [output(files / name) for name in names]
    assert results[0]
    assert all(result == results[0] for result in results)


@pytest.mark.parametrize(
    "workers",
    [pytest.param(1, marks=pytest.mark.long(reason="repeats a proof with other data")), 2],
)
def test_a_child_forked_amid_a_run_has_runs_of_its_own(workers: int, files: Path) -> None:
    """It ends as a program does, which touches neither the parent's store nor its workers."""
    program(AMID, files, workers)
    assert output(files / "parent") == output(files / "child") != {}


@pytest.mark.parametrize(
    "code",
    [WITH_WORKERS, OF_ANOTHER_THREAD, STORES, LOGS],
    ids=["workers", "a thread's run", "stores", "logs"],
)
def test_what_a_child_has_of_its_parent(code: str, files: Path) -> None:
    ended = run_code(PROLOGUE + code, files)
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr
