"""A run into an object store, killed at any instant: no part of a file is ever there.

After each death the run starts again, until it ends; then the store holds the files of a run that
was never killed. The server notes each content that an object ever had.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.crash.campaign import Campaign
from tests.crash.events import some_events
from tests.crash.launcher import Launcher
from tests.unit.io.watched_s3 import ENVIRONMENT, S3, running_s3

KILLS = int(os.environ.get("LOWWATER_KILLS", "4"))
_FILES, _ROWS = 2, 450 if KILLS > 20 else 150

pytestmark = pytest.mark.long(reason="kills programs")


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with running_s3() as server:
        yield server


@pytest.fixture(scope="module")
def campaign(s3: S3, launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """Return a campaign that has run once without being killed."""
    sources = tmp_path_factory.mktemp("events")
    table = some_events(
        _FILES * _ROWS, seed=25, every_us=50_000, disorder_us=32_000_000, keys=60
    )  # fmt: skip
    for number in range(_FILES):
        part = table.slice(number * _ROWS, _ROWS)
        pq.write_table(part, sources / f"events-{number}.parquet")
    store = {"place": s3.uri("FOLDER/NAME"), "environment": ENVIRONMENT}
    (sources / "store.json").write_text(json.dumps(store))

    def brought(folder: Path) -> None:
        for name, data in s3.objects(folder.name).items():
            target = folder / "out" / name
            target.parent.mkdir(exist_ok=True, parents=True)
            target.write_bytes(data)

    place = tmp_path_factory.mktemp("runs")
    return Campaign("tests.crash.stores_to_kill", sources, place, launcher, bring=brought)


def test_the_store_has_everything(campaign: Campaign) -> None:
    assert len(campaign.wanted["parquet part"]) == len(campaign.wanted["jsonl part"]) > 100
    assert len(campaign.wanted["large part"]) == len(campaign.wanted["larger part"]) > 100
    for name in ("jsonl late", "jsonl errors", "large late", "large errors"):
        assert campaign.wanted[name]


def test_killed_at_random_instants(campaign: Campaign, s3: S3) -> None:
    campaign.kill_at_random(KILLS, seed=11)
    again = _check_versions(s3)
    print(f"stores: {campaign}, {again} objects came again, of {len(s3.versions)}")


def _check_versions(s3: S3) -> int:
    """Check that each object was only ever there whole; return how many were written again."""
    for name, contents in s3.versions.items():
        if not name.endswith(".lowwater.json"):
            assert len({*contents}) == 1, f"{name} had other contents"
            assert contents[0], f"{name} was empty"
    return sum(len(contents) > 1 for contents in s3.versions.values())
