"""The service of the examples: stopped by SIGTERM, it goes on at the next start."""

from __future__ import annotations

import configparser
import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.paths import ROOT

PLACE = ROOT / "examples" / "service"
pytestmark = pytest.mark.long(reason="runs whole programs")


def _counted(folder: Path) -> int:
    """Return how many orders are in the table; 0 while there is none."""
    if not (folder / "orders.sqlite").exists():
        return 0
    with closing(sqlite3.connect(folder / "orders.sqlite")) as database:
        try:
            (found,) = database.execute("select sum(orders) from orders").fetchone()
        except sqlite3.OperationalError:
            return 0
    return found or 0


def _deliver(folder: Path, name: str, first: int) -> None:
    """Have a file of ten orders appear, a day after another, so that the hours are complete."""
    rows = [
        {"at": f"2000-01-{first + day:02d}T12:00:00Z", "shop": "a", "amount": day}
        for day in range(10)
    ]
    hidden = folder / "in" / f".{name}"
    hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
    hidden.rename(folder / "in" / name)


def test_it_goes_on_where_sigterm_stopped_it(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    command = [sys.executable, str(PLACE / "orders.py"), str(tmp_path)]
    for number, wanted in enumerate((9, 19)):
        _deliver(tmp_path, f"{number}.jsonl", 1 + 10 * number)
        with subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
        ) as run:
            while _counted(tmp_path) < wanted:
                with suppress(subprocess.TimeoutExpired):  # what it waits for needs this core
                    run.wait(0.05)
                assert run.poll() is None
            run.send_signal(signal.SIGTERM)
            assert run.wait(60) == 143


def test_the_page_shows_the_files() -> None:
    page = (ROOT / "docs" / "howto" / "service.md").read_text()
    for name in ("orders.service", "Containerfile"):
        assert (PLACE / name).read_text() in page


def test_the_unit_is_one() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(PLACE / "orders.service")
    assert unit["Service"]["SuccessExitStatus"] == "143"
    assert unit["Install"]["WantedBy"] == "multi-user.target"
