"""A run into PostgreSQL, killed at any instant, and so is the server: each pane is there once."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow.parquet as pq
import pytest

from tests.crash.campaign import Campaign
from tests.crash.events import some_events
from tests.crash.launcher import Launcher
from tests.unit.io.postgresql import mortal_server

KILLS = int(os.environ.get("LOWWATER_KILLS", "6"))
_FILES, _ROWS = 3, 300

pytestmark = pytest.mark.long(reason="kills programs")


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    """Return a campaign with a server, which has run once without being killed."""
    sources = tmp_path_factory.mktemp("events")
    table = some_events(
        _FILES * _ROWS, seed=15, every_us=50_000, disorder_us=32_000_000, keys=150
    )  # fmt: skip
    for number in range(_FILES):
        part = table.slice(number * _ROWS, _ROWS)
        pq.write_table(part, sources / f"events-{number}.parquet")
    place, errors = tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("launcher") / "stderr"
    with mortal_server() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOWWATER_DSN", server.dsn)
        with Launcher(errors) as launcher:
            child = "tests.crash.windows_to_kill"
            yield Campaign(child, sources, place, launcher, server=server)


def test_the_server_has_what_the_files_have(campaign: Campaign) -> None:
    wanted = campaign.wanted
    assert len(wanted["postgresql panes"]) == len(wanted["panes.sqlite panes"]) > 100
    assert wanted["postgresql panes_late"]
    assert wanted["postgresql panes_errors"]


def test_the_server_is_killed(campaign: Campaign) -> None:
    """The run fails with a clear error, and resumes when the server has recovered."""
    died = 0
    for number in range(1, 20):
        died += campaign.kill_server(0.03 * number)
        if died == 2:
            return
    raise AssertionError("the server was never killed while the run wrote to it")


def test_killed_at_random_instants(campaign: Campaign) -> None:
    campaign.kill_at_random(KILLS, seed=11)
    print(f"databases: {campaign}, {campaign.cut_off} of the kills were the server's")
