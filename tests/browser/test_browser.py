"""A browser lacks RocksDB, processes and threads, and counts in 32 bits: all else is the same."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser import program
from tests.docs.test_pages import pages
from tests.paths import ROOT

# What reads or keeps state on disk, has workers or threads, or needs what only extras bring.
NOT_IN_MEMORY = (
    "state=",
    "state/",
    "workers=",
    "map_async",
    ".start(",
    "lowwater[",
    "export_state",
)


def ran(folder: Path, *arguments: str) -> str:
    """Run the program in a process of its own, and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.browser.program", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    return done.stdout


def shown(folder: Path) -> str:
    """Return what the program prints in this process, which lacks nothing."""
    printed = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        program.shown()
    return printed.getvalue()


def test_what_a_browser_shows_is_the_same_and_what_it_lacks_is_refused(tmp_path: Path) -> None:
    """Runs, traces, diagrams, explanations and checks; refusals say what to do instead."""
    free = shown(tmp_path)
    assert "<svg" in free
    assert "README.md ran" in free
    seen, _, refused = ran(tmp_path, "browser", "all").partition(f"{program.REFUSED}\n")
    assert seen == free
    said = dict(line.split(": ", 1) for line in refused.splitlines())
    assert said.keys() == {"state", "workers", "serve", "start", "map_async"}
    assert said["state"].startswith("UnsupportedByRunner: state on disk is kept by RocksDB")
    assert "(at state=). Install it: pip install rocksdict." in said["state"]
    assert "leave state= out" in said["state"]
    assert said["workers"].endswith("Leave workers= out, or run on Linux or macOS")
    assert said["serve"].startswith("UnsupportedByRunner: the page needs a server in a thread")
    assert said["serve"].endswith('collect().report("run.html")')
    assert said["start"].startswith("UnsupportedByRunner: the run needs a thread")
    assert said["start"].endswith("(at start()). Use run()")
    assert said["map_async"].startswith("UnsupportedByRunner: the calls of map_async run in a")
    assert not (tmp_path / "state").exists()


@pytest.mark.long(reason="repeats what is tried with 32 bits")
def test_what_is_shown_without_what_a_browser_lacks_is_the_same(tmp_path: Path) -> None:
    assert ran(tmp_path, "restricted", "shown") == shown(tmp_path)


@pytest.mark.long(reason="the pages run once more, with each call of numpy through Python")
def test_pages_that_run_in_memory_do_in_32_bits(tmp_path: Path) -> None:
    some = [
        page
        for page in pages(spark=False)
        if not any(word in (ROOT / page).read_text(encoding="utf-8") for word in NOT_IN_MEMORY)
    ]
    assert len(some) > 5
    assert ran(tmp_path, "narrow", "pages", *some).split() == some
