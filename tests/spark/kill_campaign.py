"""Kills drivers at random instants, Python workers and executors, and fails tasks: ``make crash``.

``LOWWATER_SPARK_KILLS`` says how often in all: a third are drivers, and the others are workers and
tasks that fail and are retried, in queries that are killed too. They are shared out evenly over the
graphs, the operators and the ways to keep state; executors are killed besides.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
from pathlib import Path

import pytest

from tests.spark.graphs_on_spark import Rows, expected, expected_of, output, write_files
from tests.spark.graphs_to_kill import GRAPHS
from tests.spark.killed_drivers import Query, output_of_stage, query_folder, write_events
from tests.spark.query_to_kill import ADAPTERS, OWN, STATES

KILLS = int(os.environ.get("LOWWATER_SPARK_KILLS", "20"))
_WAYS = list(itertools.product(GRAPHS, (*ADAPTERS, OWN), STATES))
_MOST_PER_FOLDER = 9

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def wanted() -> dict[str, list[Rows]]:
    return {name: expected(graph()).rows for name, graph in GRAPHS.items()}


@pytest.mark.parametrize(("graph", "adapter", "state"), _WAYS)
def test_a_graph_killed_at_any_instant(
    graph: str, adapter: str, state: str, tmp_path: Path, wanted: dict[str, list[Rows]]
) -> None:
    chance = random.Random(f"{graph} {adapter} {state}")
    most, killed = -(-KILLS // len(_WAYS)), 0
    for number in itertools.count():
        if killed >= most:
            break
        folder = tmp_path / str(number)
        write_files(GRAPHS[graph](), folder / "in")
        query = Query(folder, graph, adapter, state)
        killed += kill_often(
            query, min(most - killed, _MOST_PER_FOLDER), len(wanted[graph]), chance
        )
        assert output(folder) == expected_of(GRAPHS[graph](), folder, drained=adapter != OWN)
    print(f"{graph}, {adapter}, {state}: {killed} kills, no difference")


def kill_often(
    query: Query, most: int, batches: int, chance: random.Random, *, drivers: int | None = None
) -> int:
    """Run a query to its end, killing this and that; return how often something was killed.

    Args:
        query: The query.
        most: How often at most.
        batches: How many micro-batches it has.
        chance: Draws when.
        drivers: How many of the deaths are those of a driver; by default a third.
    """
    drivers = max(1, most // 3) if drivers is None else drivers
    every = (3 if query.graph != "windows" else 2) * 2 * batches  # its saves without a fault
    numbers = sorted(chance.sample(range(1, every, 2), most - drivers))
    kinds = itertools.cycle(["before:worker", "after:raise", "after:worker", "before:raise"])
    faults = dict(zip(numbers, kinds, strict=False))
    killed = 0
    for nth in range(drivers):
        # Most of a driver's life is its start: it is killed later and later.
        at = every * (nth + chance.random()) // drivers
        killed += query.kill(int(at), chance.uniform(0.0, 1.5), _text(faults)) != 0
    assert query.run(_text(faults)) == 0
    return killed + sum(number <= query.saves() for number in faults)


def _text(faults: dict[int, str]) -> str:
    return ",".join(f"{number}={how}" for number, how in faults.items()) or "none"


@pytest.mark.parametrize("adapter", [*ADAPTERS, OWN])
def test_an_executor_is_killed(adapter: str, tmp_path: Path, wanted: dict[str, list[Rows]]) -> None:
    """One of two, in a micro-batch: the other one retries its tasks."""
    write_files(GRAPHS["retractions"](), tmp_path / "in")
    query = Query(tmp_path, "retractions", adapter, "rocksdb")
    assert query.run("15=after:executor") == 0
    assert query.saves() > 15
    drained = adapter != OWN
    assert output(tmp_path) == expected_of(GRAPHS["retractions"](), tmp_path, drained=drained)


def test_a_first_micro_batch_that_was_killed_while_it_was_planned(tmp_path: Path) -> None:
    """Spark refuses the checkpoint; without it the query starts again, and loses nothing."""
    graph = GRAPHS["retractions"]()
    for name in ("whole", "killed"):
        write_files(graph, tmp_path / name / "in")
    whole, killed = (
        Query(tmp_path / name, "retractions", ADAPTERS[1], "inline") for name in ("whole", "killed")
    )
    assert whole.run() == 0
    left = Path("checkpoint", "state")
    shutil.copytree(whole.folder / left, killed.folder / left)
    assert killed.run() == 0
    assert (killed.folder / "refused").exists()
    assert output(killed.folder) == expected_of(graph, killed.folder, drained=True)


@pytest.mark.parametrize("state", STATES)
def test_one_stage_with_a_sink_of_files(state: str, tmp_path: Path) -> None:
    """Its driver is killed around saves of state; the sink's log says which files count."""
    (tmp_path / "events").mkdir()
    write_events(tmp_path / "events")
    whole, killed = (
        Query(query_folder(tmp_path / "events", tmp_path / name), "stage", ADAPTERS[0], state)
        for name in ("whole", "killed")
    )
    assert whole.run() == 0
    assert killed.run("5=before:driver") == killed.run("9=after:driver") == -signal.SIGKILL
    assert killed.run() == 0
    assert output_of_stage(killed.folder) == output_of_stage(whole.folder)
