"""Keyed computations: the user's own state and timers, by the rules S-K1 to S-K13."""

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
