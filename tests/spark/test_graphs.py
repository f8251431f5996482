"""Random graphs of several levels on Spark are equal to the embedded runner, micro-batch for
micro-batch.

``graph_campaign.py`` (``make nightly``) has more.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.examples import sampled
from tests.property.graphs import null_keys_and_duplicates
from tests.property.levels import InLevels, embedded
from tests.spark.graphs_to_kill import GRAPHS
from tests.spark.query_to_kill import ADAPTERS
from tests.spark.restarted_graphs import Way, check_restarted, graph_number, side_by_side


@pytest.mark.parametrize(
    ("name", "key_groups"),
    sampled([pytest.param(name, count) for name in GRAPHS for count in (3, 1)], every=2),
)
def test_graphs_to_kill_without_spark(name: str, key_groups: int) -> None:
    """A difference that these have anyway is no matter of kills."""
    case = GRAPHS[name]()
    levels = InLevels(case, key_groups, 2, frozenset({1, 3}))
    for expected, found in zip(embedded(case), levels.told(), strict=True):
        assert found == expected


@pytest.mark.slow(reason="proves again on Spark")
def test_null_keys_and_joins_behind_duplicates(spark: Any, tmp_path: Path) -> None:
    """Three levels, of which one reads retractions, over a restart from the checkpoint."""
    case = null_keys_and_duplicates(deep=False)
    check_restarted(spark, case, tmp_path, Way(ADAPTERS[0], "rocksdb", same_frame=True))


@pytest.mark.long(reason="repeats the proof with larger graphs")
def test_several_graphs_in_one_query(spark: Any, tmp_path: Path) -> None:
    """One has a stage that reads retractions, the other has three levels."""
    case = side_by_side([graph_number(0), graph_number(21)])
    way = Way(ADAPTERS[0], "rocksdb", splits=True, same_frame=True)
    check_restarted(spark, case, tmp_path, way)


@pytest.mark.long(reason="repeats the proof with another operator of graphs")
def test_row_patterns_between_windows_and_joins(spark: Any, tmp_path: Path) -> None:
    """Late records and retractions correct matches, over a restart from the checkpoint."""
    check_restarted(spark, GRAPHS["matches"](), tmp_path, Way(ADAPTERS[0], "rocksdb"))


@pytest.mark.long(reason="proves again on Spark")
def test_a_graph_with_the_checks_of_plans(spark: Any, tmp_path: Path) -> None:
    check_restarted(spark, graph_number(7), tmp_path, Way(ADAPTERS[1], "inline", stops="before"))
