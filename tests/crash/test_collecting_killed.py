"""Outputs that collect are added, moved, damaged and removed between kills: no row is lost."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lowwater.engine.local.run_record import read_run
from lowwater.errors import StateError
from lowwater.state.rocks import RocksStore
from tests.crash.campaign import ONCE, POINTS
from tests.crash.launcher import Launcher
from tests.unit.io.collecting_model import Plan, World

KILLS = int(os.environ.get("LOWWATER_KILLS", "10"))
_MOST_PER_WORLD = 8
_LONGEST_US = 400_000

pytestmark = pytest.mark.long(reason="kills programs")


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    with Launcher(tmp_path_factory.mktemp("launcher") / "stderr") as found:
        yield found


def world_in(folder: Path, launcher: Launcher, chance: random.Random) -> World:
    """Return a world whose runs are processes of their own."""

    def record() -> Any:
        try:
            with RocksStore(folder / "state", read_only=True) as store:
                return read_run(store, "state")
        except StateError:  # there is none yet
            return None

    def runner(plan: Plan, how: str) -> bool:
        (folder / "plan.json").write_text(json.dumps(plan))
        code, errors = launcher.run("tests.crash.collecting_to_kill", [str(folder), how])
        if how == "refused" and code == 1 and "StateError" in errors:
            raise StateError(errors)
        death = signal.SIGALRM if how.startswith(("alarm", "opening")) else signal.SIGKILL
        assert code in {0, -death}, f"{how}: {code}\n{errors}"
        return code != 0

    return World(folder, runner, record, chance)


def death(chance: random.Random) -> str:
    """Draw when a process is killed."""
    match chance.randrange(4):
        case 0:
            return f"opening:{chance.randint(1, 60_000)}"
        case 1 | 2:
            point = chance.choice(POINTS)
            return f"point:{point}:{1 if point in ONCE else chance.randint(1, 14)}"
        case _:
            return f"alarm:{chance.randint(20_000, _LONGEST_US)}"


def test_killed_while_outputs_come_move_and_go(launcher: Launcher, tmp_path: Path) -> None:
    chance = random.Random(43)
    kills = changes = refusals = worlds = 0
    while kills < KILLS:
        folder = tmp_path / str(worlds)
        folder.mkdir()
        world = world_in(folder, launcher, chance)
        for _ in range(chance.randint(3, _MOST_PER_WORLD)):
            world.die(death(chance))
        world.finish()
        kills, changes = kills + world.deaths, changes + world.changes
        refusals, worlds = refusals + world.refusals, worlds + 1
    print(
        f"{kills} kills of {worlds} pipelines with {changes} changes of their outputs, "
        f"{refusals} of them damaged files that were refused by name"
    )
    assert changes >= kills // 8
