"""A query killed and restarted gives the output of an uninterrupted one.

``kill_campaign.py`` (``make crash``) kills drivers at random instants and executors, with each way
to keep state; here are a few deaths with the state that has files of its own.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from lowwater.spark import InlineBackend, StateBackend
from tests.spark.killed_drivers import output, query_folder, run_driver, write_events
from tests.spark.query_to_kill import Counter, Tripping, rocks_backend, start

pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("events")
    write_events(folder)
    return folder


def run_here(spark: Any, folder: Path, backend: StateBackend, faults: dict[int, str]) -> list[str]:
    """Run the query in the tests' session, to its end."""
    query = start(spark, folder, backend, Tripping(Counter(folder / "calls"), faults))
    assert query.awaitTermination(300)
    return output(folder)


@pytest.fixture(scope="module")
def uninterrupted(spark: Any, events: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = query_folder(events, tmp_path_factory.mktemp("whole"))
    return run_here(spark, folder, InlineBackend(), {})


def test_the_query_has_everything(uninterrupted: list[str]) -> None:
    text = "\n".join(uninterrupted)
    for word in ("EARLY", "ON_TIME", "LATE", "retract", "expired", "null_time"):
        assert repr(word) in text


def test_a_driver_killed_after_a_save(
    spark: Any, events: Path, tmp_path: Path, uninterrupted: list[str]
) -> None:
    """Spark has not committed the micro-batch: it is run again, over a version it does not know."""
    folder = query_folder(events, tmp_path)
    assert run_driver(folder, "rocksdb", "after:4").code == -signal.SIGKILL
    assert run_here(spark, folder, rocks_backend(folder), {}) == uninterrupted


def test_tasks_that_fail_are_retried(
    spark: Any, events: Path, tmp_path: Path, uninterrupted: list[str]
) -> None:
    """A Python worker dies in a micro-batch; in another, the user's function raises."""
    folder = query_folder(events, tmp_path)
    faults = {100: "worker", 300: "raise"}
    assert run_here(spark, folder, rocks_backend(folder), faults) == uninterrupted
    assert Counter(folder / "calls").count() > max(faults)
