"""Joins and tables killed at any instant and restarted give the output of an uninterrupted run."""

from __future__ import annotations

import json
import os

import pyarrow.parquet as pq
import pytest

from tests.crash.campaign import POINTS, Campaign
from tests.crash.events import some_events
from tests.crash.launcher import Launcher

KILLS = int(os.environ.get("LOWWATER_KILLS", "25"))
_FILES, _ROWS = 3, 80

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory, launcher: Launcher) -> Campaign:
    """Return a campaign that has run once without being killed."""
    sources = tmp_path_factory.mktemp("sides")
    for seed, side in ((7, "left"), (8, "right")):
        events = some_events(
            _FILES * _ROWS, seed=seed, every_us=400_000, disorder_us=14_000_000, keys=12
        )
        (sources / side).mkdir()
        for number in range(_FILES):
            part = events.slice(number * _ROWS, _ROWS)
            pq.write_table(part, sources / side / f"{number}.parquet")
    place = tmp_path_factory.mktemp("runs")
    return Campaign("tests.crash.joins_to_kill", sources, place, launcher)


def test_the_run_has_everything(campaign: Campaign) -> None:
    wanted = campaign.wanted
    counts = json.loads(wanted["metrics"][0])["stages"]
    for stage in ("pairs", "lone", "met", "valued", "both", "by key"):
        assert sum(counts[stage]["emitted"].values()) > 20, stage
    for stage in ("pairs", "lone", "met", "valued"):
        assert counts[stage]["late"]["too_late"] > 3, stage
    for name in ("pairs", "valued", "both"):
        assert any('"kind": "retract"' in line for line in wanted[f"{name} part"]), name
    for name in ("hours part", "view.sqlite both", "view.sqlite by_key"):
        assert wanted[name]


def test_killed_at_each_point(campaign: Campaign) -> None:
    deaths = [(point, count) for count, point in enumerate(POINTS, 2)]
    assert campaign.kill_at_points(deaths) == len(deaths)


def test_killed_at_random_instants(campaign: Campaign) -> None:
    campaign.kill_at_random(max(1, KILLS - len(POINTS)), seed=17)
    print(f"joins: {campaign}")
