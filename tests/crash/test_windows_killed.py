"""A durable run killed at any instant and restarted gives the output of an uninterrupted run.

Some of the runs keep their windows in the store, others in memory.
"""

from __future__ import annotations

import json
import os

import pyarrow.parquet as pq
import pytest

from tests.crash.campaign import POINTS, Campaign
from tests.crash.events import some_events
from tests.crash.launcher import Launcher

KILLS = int(os.environ.get("LOWWATER_KILLS", "25"))
_FILES, _ROWS = 3, 400
_COUNTS = (1, 4, 9)


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory, launcher: Launcher) -> Campaign:
    """Return a campaign that has run once without being killed."""
    sources = tmp_path_factory.mktemp("events")
    table = some_events(
        _FILES * _ROWS, seed=5, every_us=50_000, disorder_us=32_000_000, keys=150
    )  # fmt: skip
    for number in range(_FILES):
        part = table.slice(number * _ROWS, _ROWS)
        pq.write_table(part, sources / f"events-{number}.parquet")
    place = tmp_path_factory.mktemp("runs")
    return Campaign("tests.crash.windows_to_kill", sources, place, launcher)


def test_the_run_has_everything(campaign: Campaign) -> None:
    wanted = campaign.wanted
    panes = [json.loads(line) for line in wanted["jsonl part"]]
    assert {pane["kind"] for pane in panes} == {"insert", "retract"}
    assert {pane["timing"] for pane in panes} == {"EARLY", "ON_TIME", "LATE"}
    assert len(wanted["parquet part"]) == len(panes)
    assert wanted["jsonl late"]
    assert {json.loads(line)["reason"] for line in wanted["jsonl errors"]} == {
        "null_time", "null_id",
    }  # fmt: skip
    for name in ("panes", "panes_late", "panes_errors"):
        assert wanted[f"panes.sqlite {name}"]
    assert json.loads(wanted["metrics"][0])["duplicates"] > 50


@pytest.mark.parametrize("way", ["in memory", "in the store"])
def test_killed_at_each_point(way: str, campaign: Campaign) -> None:
    """At one point after the other: each run goes on from where the one before it died."""
    deaths = [(point, 1 + nth % 2) for nth, point in enumerate(POINTS)]
    assert campaign.kill_at_points(deaths, spills=way == "in the store") == len(deaths)


@pytest.mark.long(reason="repeats kills at the same points, later in a run")
@pytest.mark.parametrize("point", POINTS)
def test_killed_thrice_at_each_point(point: str, campaign: Campaign) -> None:
    assert campaign.kill_at_points([(point, count) for count in _COUNTS]) >= 2


@pytest.mark.long(reason="repeats kills, at instants that chance draws")
def test_killed_at_random_instants(campaign: Campaign) -> None:
    campaign.kill_at_random(max(1, KILLS - len(_COUNTS) * len(POINTS)), seed=11)
    print(f"windows: {campaign}")
