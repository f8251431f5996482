"""Keyed computations: the user's own state and timers, by the rules S-K1 to S-K13."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowwater._on_use import on_use

if TYPE_CHECKING:
    from lowwater.engine.process.context import ProcessContext as ProcessContext
    from lowwater.engine.process.declarations import Cell as Cell
    from lowwater.engine.process.declarations import Output as Output
    from lowwater.engine.process.declarations import Timer as Timer
    from lowwater.engine.process.declarations import combining_cell as combining_cell
    from lowwater.engine.process.declarations import list_cell as list_cell
    from lowwater.engine.process.declarations import map_cell as map_cell
    from lowwater.engine.process.declarations import ordered_cell as ordered_cell
    from lowwater.engine.process.declarations import output as output
    from lowwater.engine.process.declarations import set_cell as set_cell
    from lowwater.engine.process.declarations import timer as timer
    from lowwater.engine.process.declarations import value_cell as value_cell
    from lowwater.engine.process.operator import ProcessOperator as ProcessOperator

_PLACES = {
    "lowwater.engine.process.context": "ProcessContext",
    "lowwater.engine.process.declarations": (
        "Cell Output Timer combining_cell list_cell map_cell ordered_cell output set_cell "
        "timer value_cell"
    ),
    "lowwater.engine.process.operator": "ProcessOperator",
}


if not TYPE_CHECKING:  # or a type checker would take every name to be there
    __getattr__, __dir__ = on_use(__name__, _PLACES)
