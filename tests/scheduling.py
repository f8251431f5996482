"""Which tests share a worker of xdist, and which come first.

The tests of a file run in one worker, which makes its fixtures once. Files that share what is
costly, such as a server or Spark's session, are a group. What took longest when it was recorded
(``tests/record.py``) comes first, so that no worker waits long for another at the end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import pytest

from tests.record import recorded

# A PostgreSQL server, and the process that is forked to be killed; the package, parsed once.
TOGETHER = {
    "tests/crash/": "servers",
    "tests/unit/io/test_postgres.py": "servers",
    "tests/unit/structure/": "structure",
}
# Spark's tests take longer than a third of a run: two workers have a session each.
SPARK = "tests/spark/"
SESSIONS = 2
# Each of these is a group of its own: they share nothing and are long.
APART = ("tests/docs/test_notebooks.py",)
_UNKNOWN_S = 1.0  # for a file that came after the record


def file_of(nodeid: str) -> str:
    """Return the file of a test, as pytest writes it."""
    return nodeid.partition("::")[0]


def group_of(nodeid: str) -> str:
    """Return the name of a test's group."""
    if nodeid.startswith(APART):
        return nodeid
    file = file_of(nodeid)
    if file.startswith(SPARK):
        return f"spark {spark_sessions().get(file, 0)}"
    return next((group for place, group in TOGETHER.items() if file.startswith(place)), file)


@cache
def spark_sessions() -> dict[str, int]:
    """Return the session of each recorded file of Spark's, such that both take about as long."""
    seconds = {file: each.seconds for file, each in recorded().items() if file.startswith(SPARK)}
    used = [0.0] * SESSIONS
    sessions = {}
    for file in sorted(seconds, key=lambda file: (-seconds[file], file)):
        sessions[file] = used.index(min(used))
        used[sessions[file]] += seconds[file]
    return sessions


def seconds_by_group(files: Iterable[str]) -> Mapping[str, float]:
    """Return how long each group of some files took when it was recorded."""
    known = recorded()
    total: dict[str, float] = defaultdict(float)
    for file in files:
        total[group_of(file)] += known[file].seconds if file in known else _UNKNOWN_S
    return total


def longest_first(items: list[pytest.Item]) -> None:
    """Order tests by how long their groups take."""
    seconds = seconds_by_group({file_of(item.nodeid) for item in items})
    longest = sorted(seconds, key=lambda group: (-seconds[group], group))
    order = {group: place for place, group in enumerate(longest)}
    # Those apart from their file are not in the record: they come first.
    items.sort(key=lambda item: order.get(group_of(item.nodeid), -1))


def scheduler(config: pytest.Config, log: Any) -> Any:
    """Return xdist's scheduler by groups: xdist 3.8 loses its own with the ids of pytest 9.2."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    config.option.loadscopereorder = False  # in the order of collection
    return Scheduling(config, log)
