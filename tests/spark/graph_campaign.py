"""Random graphs of several levels on Spark, all operators, both ways to keep state.

``make nightly``; ``test_graphs.py`` has three of them.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.spark.query_to_kill import ADAPTERS, OWN, STATES
from tests.spark.restarted_graphs import Way, check_restarted, graph_number

GRAPHS = 24
_WAYS = list(itertools.product((*ADAPTERS, OWN), STATES, (False, True)))

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("number", range(GRAPHS))
def test_a_graph_that_is_restarted(spark: Any, number: int, tmp_path: Path) -> None:
    # Each sort of graph (number modulo 4) runs with different ways.
    adapter, state, splits = _WAYS[(number + number // 4) % len(_WAYS)]
    way = Way(
        adapter,
        state,
        key_groups=1 + number % 3,
        splits=splits,
        stops="before" if number % 2 else "after",
        same_frame=number % 3 == 0,
    )
    check_restarted(spark, graph_number(number), tmp_path, way)
