"""The page of what runs where is what comes out when everything is tried."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from docs.tools import capabilities
from docs.tools.probes import probes


def test_the_page_is_current() -> None:
    embedded = capabilities.tried_embedded()
    spark = json.loads(capabilities.ON_SPARK.read_text())
    assert {area: list(found) for area, found in spark.items()} == {
        area: list(found) for area, found in embedded.items()
    }, "run: python -m docs.tools.capabilities --spark"
    page = capabilities.page(embedded, spark)
    assert capabilities.PAGE.read_text() == page, "run: python -m docs.tools.capabilities"


def test_what_spark_refuses_is_on_the_page() -> None:
    spark = json.loads(capabilities.ON_SPARK.read_text())
    assert spark["Windows"]["FixedWindows('1m')"] == "yes"
    refused = {
        (area, name): outcome
        for area, found in spark.items()
        for name, outcome in found.items()
        if outcome != "yes"
    }
    assert set(refused) == {
        ("Watermarks", "External()"),
        ("Watermarks", "ManualWatermark()"),
        ("Clocks", "ManualClock()"),
        ("Sources", "read_log"),
        ("Steps", "map_async"),
    }
    assert all(reason in capabilities.PAGE.read_text() for reason in refused.values())


def test_each_thing_is_tried_once() -> None:
    names = [(probe.area, probe.name) for probe in probes()]
    assert len(names) == len(set(names))


def test_a_pipeline_that_gives_nothing_is_not_taken_for_one_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from docs.tools import records as module

    monkeypatch.setattr(module, "TABLE", module.TABLE.slice(0, 0))
    with pytest.raises(AssertionError, match="gives nothing"):
        capabilities.tried_embedded()


def test_no_place_on_a_machine_is_on_the_page() -> None:
    assert not re.search(r"/(tmp|home|root|var|Users)/", capabilities.PAGE.read_text())
