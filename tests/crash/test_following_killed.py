"""A run that follows a folder, killed at any instant, reads each file that comes exactly once."""

from __future__ import annotations

import os

import pyarrow.parquet as pq
import pytest

from tests.crash.campaign import POINTS, Campaign
from tests.crash.events import some_events
from tests.crash.launcher import Launcher
from tests.examples import sampled

KILLS = int(os.environ.get("LOWWATER_KILLS", "10"))
_FILES, _ROWS = 12, 60

pytestmark = pytest.mark.slow(reason="kills programs")


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory, launcher: Launcher) -> Campaign:
    """Return a campaign that has run once without being killed."""
    sources = tmp_path_factory.mktemp("events")
    table = some_events(
        _FILES * _ROWS, seed=9, every_us=80_000, disorder_us=20_000_000, keys=40
    )  # fmt: skip
    for number in range(_FILES):
        part = table.slice(number * _ROWS, _ROWS)
        pq.write_table(part, sources / f"events-{number:02d}.parquet")
    place = tmp_path_factory.mktemp("runs")
    return Campaign("tests.crash.follow_to_kill", sources, place, launcher, same_files=False)


def test_the_run_has_everything(campaign: Campaign) -> None:
    assert len(campaign.wanted["jsonl part"]) > 100
    assert campaign.wanted["jsonl late"]
    assert campaign.wanted["panes.sqlite panes"]


@pytest.mark.parametrize("first", sampled([0, 1], every=2))
def test_killed_at_each_point(first: int, campaign: Campaign) -> None:
    """At every other point, of which ``test_windows_killed`` has all."""
    deaths = [(point, 2 + nth % 3) for nth, point in enumerate(POINTS[first::2])]
    assert campaign.kill_at_points(deaths, spills=not first) == len(deaths)


@pytest.mark.long(reason="repeats kills, at instants that chance draws")
def test_killed_at_random_instants(campaign: Campaign) -> None:
    campaign.kill_at_random(max(1, KILLS - len(POINTS)), seed=11)
    print(f"following: {campaign}")
