"""Graphs on Spark's levels, without Spark: equal to the embedded runner, bundle for bundle."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from tests.examples import examples
from tests.property.graphs import Drawn, drawn
from tests.property.levels import InLevels, embedded


@given(
    drawn(),
    st.integers(1, 3),
    st.integers(1, 2),
    st.frozensets(st.integers(1, 6), max_size=2),
)
@examples(2)
def test_levels_are_equal_to_the_embedded_runner(
    case: Drawn, key_groups: int, partitions: int, forgets: frozenset[int]
) -> None:
    """Panes, late elements and watermarks of each micro-batch, with restarts at any of them."""
    levels = InLevels(case, key_groups, partitions, forgets)
    for expected, found in zip(embedded(case), levels.told(), strict=True):
        assert found == expected
    assert levels.rows_left() == 0
