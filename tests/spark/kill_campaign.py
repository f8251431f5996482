"""Kills drivers at random instants, and an executor: ``make crash``.

``LOWWATER_SPARK_KILLS`` says how often drivers are killed in all, half of them with each way to
keep state.
"""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest

from tests.spark.killed_drivers import Ran, output, query_folder, run_driver, write_events

KILLS = int(os.environ.get("LOWWATER_SPARK_KILLS", "10"))
STATES = ("inline", "rocksdb")
_KILLS_PER_FOLDER = 5

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("events")
    write_events(folder)
    return folder


@pytest.fixture(scope="module")
def uninterrupted(
    events: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[str], float]:
    """Return the output of an uninterrupted query, and the seconds it runs."""
    folder = query_folder(events, tmp_path_factory.mktemp("whole"))
    ran = run_driver(folder, "inline", "none")
    assert ran.code == 0
    return output(folder), ran.seconds


@pytest.mark.parametrize("state", STATES)
def test_killed_at_any_instant(
    state: str, events: Path, tmp_path: Path, uninterrupted: tuple[list[str], float]
) -> None:
    """Twice around a save of state, otherwise at random."""
    wanted, seconds = uninterrupted
    chance = random.Random(state)
    points = ["before:5", "after:4"]
    kills, most = 0, -(-KILLS // len(STATES))
    folders = 0
    while kills < most:
        folder = query_folder(events, tmp_path / str(folders))
        folders += 1
        ran = Ran(-signal.SIGKILL, 0.0)
        while ran.code and kills < min(most, folders * _KILLS_PER_FOLDER):
            if points:
                ran = run_driver(folder, state, points.pop())
            else:  # less and less is left to do: mostly early
                after = chance.uniform(0.0, 0.5) * seconds
                ran = run_driver(folder, state, "none", seconds=after)
            assert ran.code in {0, -signal.SIGKILL}
            kills += ran.code != 0
        assert not ran.code or run_driver(folder, state, "none").code == 0
        assert output(folder) == wanted


def test_an_executor_is_killed(
    events: Path, tmp_path: Path, uninterrupted: tuple[list[str], float]
) -> None:
    """One of two, in a micro-batch: the other one retries its tasks."""
    folder = query_folder(events, tmp_path)
    assert run_driver(folder, "rocksdb", "executor:200").code == 0
    assert (folder / "executor-200").stat().st_size > 200
    assert output(folder) == uninterrupted[0]
