"""The page of types is what comes out when each of its lines is tried."""

from __future__ import annotations

import re

from docs.tools import types


def test_the_page_is_current() -> None:
    """What it says of Spark is tried by ``tests/spark/test_types.py``."""
    cells = types.last_cells()
    made = types.page(lambda line, _: cells[line.area, line.given, line.what])
    assert types.PAGE.read_text() == made, "run: python -m docs.tools.types"


def test_each_thing_is_tried_once() -> None:
    names = [(line.area, line.given, line.what) for line in types.lines()]
    assert len(names) == len(set(names))


def test_no_place_on_a_machine_is_on_the_page() -> None:
    text = types.PAGE.read_text()
    assert not re.search(r"/(tmp|home|root|var|Users|dev)/", text)
    assert " at 0x" not in text
