"""A graph killed at any instant and restarted gives the output of an uninterrupted run.

Two sources of several parts each, stages behind one another, a process with timers of both sorts,
branches, and sinks of each kind. Some of the runs keep their windows in the store.
"""

from __future__ import annotations

import json
import os

import pyarrow.parquet as pq
import pytest

import lowwater as lw
from lowwater.io import Log
from tests.crash.campaign import POINTS, Campaign
from tests.crash.events import some_events
from tests.crash.graph_to_kill import PARTITIONS
from tests.crash.launcher import Launcher
from tests.examples import sampled

KILLS = int(os.environ.get("LOWWATER_KILLS", "10"))
_FILES, _ROWS, _APPENDED = 2, 80, 8

pytestmark = pytest.mark.slow(reason="kills programs")


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory, launcher: Launcher) -> Campaign:
    """Return a campaign that has run once without being killed."""
    sources = tmp_path_factory.mktemp("events")
    of_files, of_log = (
        some_events(
            _FILES * _ROWS, seed=seed, first_id=first_id, every_us=400_000,
            disorder_us=24_000_000, keys=20,
        )
        for seed, first_id in ((5, 0), (6, _ROWS))  # half of their ids meet
    )  # fmt: skip
    (sources / "files").mkdir()
    for number in range(_FILES):
        part = of_files.slice(number * _ROWS, _ROWS)
        pq.write_table(part, sources / "files" / f"events-{number}.parquet")
    with Log(
        sources / "log", PARTITIONS, segment_bytes=4_000, fsync=0, clock=lw.ManualClock(0)
    ) as log:
        for start in range(0, len(of_log), _APPENDED):
            log.append(of_log.slice(start, _APPENDED), key="key")
    place = tmp_path_factory.mktemp("runs")
    return Campaign("tests.crash.graph_to_kill", sources, place, launcher)


def test_the_run_has_everything(campaign: Campaign) -> None:
    wanted = campaign.wanted
    counts = json.loads(wanted["metrics"][0])
    for stage in ("panes", "totals"):
        assert set(counts["stages"][stage]["panes"]) == {"EARLY", "ON_TIME", "LATE"}
        assert counts["stages"][stage]["retractions"] > 10
    assert set(counts["stages"]["sums"]["panes"]) >= {"EARLY", "ON_TIME"}
    assert min(counts["stages"]["visits"]["emitted"].values()) > 20
    assert set(counts["errors"]) == {"null_time", "null_id"}
    assert counts["duplicates"] > 30
    for name in (
        "panes part", "panes late", "panes errors", "totals part", "visits part", "quiet part",
        "reminded part", "looked part", "sums part", "tables.sqlite panes",
        "tables.sqlite panes_late", "tables.sqlite panes_errors", "tables.sqlite sums",
    ):  # fmt: skip
        assert wanted[name]


@pytest.mark.parametrize("first", sampled([0, 1], every=2))
def test_killed_at_each_point(first: int, campaign: Campaign) -> None:
    """At every other point, of which ``test_windows_killed`` has all."""
    deaths = [(point, 2 + nth % 3) for nth, point in enumerate(POINTS[first::2])]
    assert campaign.kill_at_points(deaths, spills=not first) == len(deaths)


@pytest.mark.long(reason="repeats kills, at instants that chance draws")
def test_killed_at_random_instants(campaign: Campaign) -> None:
    campaign.kill_at_random(max(1, KILLS - len(POINTS)), seed=11)
    print(f"graph: {campaign}")
