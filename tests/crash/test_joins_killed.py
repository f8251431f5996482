"""Joins, tables and row patterns killed at any instant and restarted give the same output.

Views are in SQLite and in PostgreSQL, whose server is killed, too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pyarrow.parquet as pq
import pytest

from tests.crash.campaign import POINTS, Campaign
from tests.crash.events import some_events
from tests.crash.launcher import Launcher
from tests.unit.io.postgresql import mortal_server

KILLS = int(os.environ.get("LOWWATER_KILLS", "20"))
_FILES, _ROWS = 3, 80

pytestmark = pytest.mark.long(reason="kills programs")


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    """Return a campaign with a server, which has run once without being killed."""
    sources = tmp_path_factory.mktemp("sides")
    for seed, side in ((7, "left"), (8, "right")):
        events = some_events(
            _FILES * _ROWS, seed=seed, every_us=400_000, disorder_us=14_000_000, keys=12
        )
        (sources / side).mkdir()
        for number in range(_FILES):
            part = events.slice(number * _ROWS, _ROWS)
            pq.write_table(part, sources / side / f"{number}.parquet")
    place, errors = tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("launcher") / "stderr"
    with mortal_server() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOWWATER_DSN", server.dsn)
        with Launcher(errors) as launcher:
            child = "tests.crash.joins_to_kill"
            yield Campaign(child, sources, place, launcher, server=server)


def test_the_run_has_everything(campaign: Campaign) -> None:
    wanted = campaign.wanted
    counts = json.loads(wanted["metrics"][0])["stages"]
    for stage in ("pairs", "lone", "met", "valued", "near", "rises", "both", "by key"):
        assert sum(counts[stage]["emitted"].values()) > 20, stage
    for stage in ("pairs", "lone", "met", "valued", "near", "rises"):
        assert counts[stage]["late"]["too_late"] > 3, stage
    for name in ("pairs", "valued", "near", "rises", "both"):
        assert any('"kind": "retract"' in line for line in wanted[f"{name} part"]), name
    assert wanted["hours part"]
    assert wanted["by_rise part"]
    for view in ("both", "by_key"):
        assert len(wanted[f"postgresql {view}"]) == len(wanted[f"view.sqlite {view}"]) > 0
    assert any("[null]" in row for row in wanted["postgresql by_key"])


def test_killed_at_each_point(campaign: Campaign) -> None:
    deaths = [(point, 2 + nth % 3) for nth, point in enumerate(POINTS)]
    assert campaign.kill_at_points(deaths) == len(deaths)


def test_killed_at_random_instants(campaign: Campaign) -> None:
    campaign.kill_at_random(max(1, KILLS - len(POINTS)), seed=17)
    print(f"joins: {campaign}, {campaign.cut_off} of the kills were the server's")
