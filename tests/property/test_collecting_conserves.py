"""Whatever outputs that collect go through between deaths, each row is published once."""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from lowwater.engine.local import durable, pieces
from lowwater.engine.local.memory_budget import MemoryBudget
from lowwater.engine.local.run_record import read_run
from lowwater.state.memory import MemoryContents, MemoryStore
from tests.examples import is_campaign
from tests.unit.io.collecting_model import Plan, World, run_plan
from tests.unit.io.deliveries import Killed, Moments, die, dying_in_files


def world_in(folder: Path, chance: random.Random) -> World:
    """Return a world whose runs are in this process, over a store in memory."""
    contents = MemoryContents()

    def record() -> Any:
        with MemoryStore(contents) as store:
            return read_run(store, "state")

    def runner(plan: Plan, how: str) -> bool:
        kind, _, count = how.partition(":")
        options: dict[str, Any] = {}
        try:
            with ExitStack() as stack:
                in_memory = MemoryStore(contents)
                stack.enter_context(mock.patch.object(MemoryBudget, "open", return_value=in_memory))
                if kind in {"files", "point"}:
                    stack.enter_context(mock.patch.object(pieces, "_close"))
                if kind == "files":
                    at, _, after = count.partition(":")
                    stack.enter_context(dying_in_files(int(at), after=after == "after"))
                elif kind == "point":
                    fuse = Moments(int(count), Killed, after=False).around(bool)
                    stack.enter_context(mock.patch.object(durable, "on_point", fuse))
                elif kind == "stop":
                    options["progress"] = Moments(int(count), _Stop, after=False).around(bool)
                run_plan(folder, plan, **options)
        except (Killed, _Stop):
            return True
        finally:
            die()
        return False

    return World(folder, runner, record, chance)


class _Stop(Exception):
    """What a user's own code raises: sinks are closed, and publish what they have."""


def death(chance: random.Random) -> str:
    """Draw how a run ends."""
    match chance.randrange(5):
        case 0:
            return f"stop:{chance.randrange(9)}"
        case 1 | 2:
            return f"point:{chance.randrange(50)}"
        case _:
            return f"files:{chance.randrange(700)}:{chance.choice(['before', 'after'])}"


@pytest.mark.parametrize("seed", range(400 if is_campaign() else 5))
def test_each_row_is_published_once(seed: int, tmp_path: Path) -> None:
    """Or refused by name, where a file that waits is damaged."""
    chance = random.Random(seed)
    world = world_in(tmp_path, chance)
    for _ in range(chance.randint(2, 7)):
        world.die(death(chance))
    world.finish()


def test_the_model_sees_all(tmp_path: Path) -> None:
    """Deaths, changes, and files that are damaged."""
    worlds = []
    for seed in range(1_000, 1_003):
        chance = random.Random(seed)
        (tmp_path / str(seed)).mkdir()
        worlds.append(world_in(tmp_path / str(seed), chance))
        for count in (12, 17, 9, 14, 11):
            worlds[-1].die(f"point:{count}")
        worlds[-1].finish()
    assert sum(world.deaths for world in worlds) >= 12
    assert sum(world.changes for world in worlds) >= 6
    assert sum(world.refusals for world in worlds) >= 1
