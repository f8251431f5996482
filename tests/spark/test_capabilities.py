"""What the docs say of Spark is what Spark does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from docs.tools import capabilities


@pytest.mark.slow
def test_what_runs_on_spark_is_as_the_page_says(spark: Any) -> None:
    """Except for the scenarios: ``test_scenarios_on_spark`` runs each of them."""
    documented = json.loads(capabilities.ON_SPARK.read_text())
    assert set(documented.pop("Rules").values()) == {capabilities.YES}
    found = capabilities.probed_on_spark(spark)
    assert found == documented, "run: python -m docs.tools.capabilities --spark"
