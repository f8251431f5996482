"""What stays in a graph that changes at restarts comes out exactly once, whatever is killed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pyarrow.parquet as pq
import pytest

from tests.crash.campaign import POINTS, Campaign
from tests.crash.changing_to_kill import CORE
from tests.crash.events import some_events
from tests.crash.launcher import Launcher

KILLS = int(os.environ.get("LOWWATER_KILLS", "14"))
_FILES, _ROWS = 2, 100

pytestmark = pytest.mark.long(reason="kills programs")


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    """Return a campaign that has run once without being killed."""
    sources = tmp_path_factory.mktemp("sides")
    for seed, side in ((3, "left"), (4, "right"), (5, "sound")):
        events = some_events(
            _FILES * _ROWS, seed=seed, every_us=400_000, disorder_us=14_000_000, keys=8
        )
        if side == "sound":  # dead letters of what comes and goes would be in the first output
            events = events.drop_null()
        (sources / side).mkdir()
        for number in range(_FILES):
            part = events.slice(number * _ROWS, _ROWS)
            pq.write_table(part, sources / side / f"{number}.parquet")
    place, errors = tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("launcher") / "stderr"
    with Launcher(errors) as launcher:
        yield Campaign(
            "tests.crash.changing_to_kill",
            sources,
            place,
            launcher,
            same_files=False,
            passing="extra",
        )


def test_the_run_has_everything(campaign: Campaign) -> None:
    wanted = campaign.wanted
    assert set(json.loads(wanted["metrics"][0])) == set(CORE)
    for name in CORE:
        assert len(wanted[f"{name} part"]) > 2, name
    assert wanted["hours late"]


def test_killed_at_each_point(campaign: Campaign) -> None:
    deaths = [(point, 2 + nth % 3) for nth, point in enumerate(POINTS)]
    assert campaign.kill_at_points(deaths) == len(deaths)


def test_killed_at_random_instants(campaign: Campaign) -> None:
    campaign.kill_at_random(max(1, KILLS - len(POINTS)), seed=23)
    print(f"changing graphs: {campaign}")
