"""The page of types is true on Spark: each of its lines is tried there."""

from __future__ import annotations

from typing import Any

import pytest

from docs.tools import types

AREAS = sorted({line.area for line in types.lines() if line.is_for_spark})


@pytest.mark.long(reason="every type on Spark")
@pytest.mark.parametrize("area", AREAS)
def test_the_page_is_current_on_spark(spark: Any, area: str) -> None:
    cells = types.last_cells()
    for line in types.lines():
        if line.area == area:
            found = types.cell_on_spark(line, types.outcome(line), spark)
            assert found == cells[line.area, line.given, line.what], line
