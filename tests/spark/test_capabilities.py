"""What the docs say of Spark is what Spark does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from docs.tools import capabilities
from tests.examples import is_campaign

SHARE = 1 if is_campaign() else 16
"""One of so many probes of what Spark supports is tried here; what it refuses always is."""


@pytest.mark.long(reason="proves again on Spark")
def test_what_runs_on_spark_is_as_the_page_says(spark: Any) -> None:
    """Except for the scenarios: ``test_scenarios_on_spark`` runs each of them."""
    documented = json.loads(capabilities.ON_SPARK.read_text())
    assert set(documented.pop("Rules").values()) == {capabilities.YES}

    def chosen(number: int, area: str, name: str) -> bool:
        return number % SHARE == SHARE // 2 or documented[area][name] != capabilities.YES

    found = capabilities.probed_on_spark(spark, chosen=chosen)
    tried = {
        area: {name: outcome for name, outcome in those.items() if name in found.get(area, {})}
        for area, those in documented.items()
    }
    wanted = {area: those for area, those in tried.items() if those}
    assert found == wanted, "run: python -m docs.tools.capabilities --spark"
