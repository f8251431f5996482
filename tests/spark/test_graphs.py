"""Random graphs of several levels on Spark are equal to the embedded runner, micro-batch for
micro-batch.

Here are three graphs in two queries; ``graph_campaign.py`` (``make nightly``) has more.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark.query_to_kill import ADAPTERS
from tests.spark.restarted_graphs import Way, check_restarted, graph_number, side_by_side

pytestmark = [pytest.mark.slow, pytest.mark.spark]


def test_two_graphs_in_one_query(spark: Any, tmp_path: Path) -> None:
    """One has a stage that reads retractions, the other has three levels."""
    case = side_by_side([graph_number(0), graph_number(1)])
    way = Way(ADAPTERS[0], "rocksdb", splits=True, same_frame=True)
    check_restarted(spark, case, tmp_path, way)


def test_a_graph_with_the_checks_of_plans(spark: Any, tmp_path: Path) -> None:
    check_restarted(spark, graph_number(3), tmp_path, Way(ADAPTERS[1], "inline", stops="before"))
