"""A query killed and restarted gives what the embedded runner gives, once.

``kill_campaign.py`` (``make crash``) kills drivers at random instants, workers and executors, of
more graphs with both ways to keep state; here are deaths in three graphs, most of them in that of
row patterns.
"""

from __future__ import annotations

import itertools
import random
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.spark.graphs_on_spark import (
    expected,
    expected_of,
    frame_of,
    output,
    start,
    write_files,
)
from tests.spark.graphs_to_kill import GRAPHS
from tests.spark.kill_campaign import kill_often
from tests.spark.killed_drivers import Query
from tests.spark.query_to_kill import ADAPTERS, STATES, Fault, backend_of
from tests.spark.restarted_graphs import with_adapter

DEATHS = 12
"""How often a query of row patterns is killed."""

pytestmark = [pytest.mark.long(reason="proves again on Spark"), pytest.mark.spark]


def run_here(spark: Any, query: Query, faults: Mapping[int, Fault]) -> None:
    """Run a query in the tests' session, to its end."""
    backend = backend_of(query.folder, query.state, faults)
    with with_adapter(spark, query.adapter):
        frame = frame_of(spark, GRAPHS[query.graph](), query.folder, state=backend)
        running = start(frame, query.folder)
        assert running.awaitTermination(300)
    assert query.saves() > max(faults)
    assert output(query.folder) == expected_of(GRAPHS[query.graph](), query.folder)


def test_a_driver_is_killed_after_a_save_and_then_workers(spark: Any, tmp_path: Path) -> None:
    """Spark has not committed the micro-batch: it is run again, over a version it does not know."""
    write_files(GRAPHS["retractions"](), tmp_path / "in")
    query = Query(tmp_path, "retractions", ADAPTERS[0], "rocksdb")
    assert query.run("9=after:driver") == -signal.SIGKILL
    begun = query.saves()
    worker, failed = Fault("after", "worker"), Fault("after", "raise")
    run_here(spark, query, {begun + 4: worker, begun + 11: failed})


def test_workers_are_killed_and_tasks_fail(spark: Any, tmp_path: Path) -> None:
    """A process, with the checks of plans; a task of the third level fails, too."""
    write_files(GRAPHS["process"](), tmp_path / "in")
    query = Query(tmp_path, "process", ADAPTERS[1], "inline")
    worker, failed = Fault("before", "worker"), Fault("after", "raise")
    run_here(spark, query, {3: failed, 10: worker, 18: failed})


def test_matches_survive_deaths(tmp_path: Path) -> None:
    """Of drivers, workers and tasks, in both ways to keep state; each run gives all rows, once."""
    chance, deaths = random.Random(17), 0
    batches = len(expected(GRAPHS["matches"]()).rows)
    for number in itertools.count():
        if deaths >= DEATHS:
            break
        folder = tmp_path / str(number)
        write_files(GRAPHS["matches"](), folder / "in")
        query = Query(folder, "matches", ADAPTERS[number % 2], STATES[number % len(STATES)])
        deaths += kill_often(query, min(6, DEATHS - deaths + 1), batches, chance, drivers=1)
        assert output(folder) == expected_of(GRAPHS["matches"](), folder)
    assert deaths >= DEATHS
