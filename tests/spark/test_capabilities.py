"""What the docs say of Spark is what Spark does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from docs.tools import capabilities


@pytest.mark.slow
def test_what_runs_on_spark_is_as_the_page_says(spark: Any) -> None:
    known = json.loads(capabilities.ON_SPARK.read_text())
    tried = capabilities.tried_on_spark(spark)
    assert tried == known, "run: python -m docs.tools.capabilities --spark"
