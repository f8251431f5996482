"""Conditions that numpy computes by itself: comparisons of numbers and texts, joined by and and or.

What most conditions are. The evaluator of expressions has a cost for each call that a search which
goes on row by row cannot afford. Everything else is for the evaluator, and so is whatever rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from lowwater.engine.records.columns import EXACT, Column, Mask
from lowwater.engine.records.elementwise import COMPARISONS, chain_of

Operand: TypeAlias = Callable[[str], Column]
"""Returns a column of some rows, by name."""
_JOINED = frozenset({"__and__", "__or__", "__invert__"})
_Truths: TypeAlias = tuple[Mask, Mask | None]
"""Which rows are true, and which are not null; ``None`` for all."""


def quick_truths(condition: Any, column: Operand, length: int) -> Mask | None:
    """Return where a condition is true; ``None`` if it is not one of those this module computes.

    Args:
        condition: An expression.
        column: Returns a column by name.
        length: How many rows there are.
    """
    found = _truths(condition, column, length)
    if found is None:
        return None
    truths, valid = found
    return truths if valid is None else truths & valid


def _truths(condition: Any, column: Operand, length: int) -> _Truths | None:
    chain = chain_of(condition)
    if chain is None:
        return None
    first, operations = chain
    if not operations:
        return None
    value: Column | _Truths | None = column(first)
    for name, argument in operations:
        if name in COMPARISONS and isinstance(value, Column):
            value = _compared(value, name, argument, column)
        elif name in _JOINED and isinstance(value, tuple):
            value = _joined(value, name, argument, column, length)
        else:
            return None
        if value is None:
            return None
    return value if isinstance(value, tuple) else None


def _compared(left: Column, name: str, argument: Any, column: Operand) -> _Truths | None:
    if hasattr(argument, "_nodes"):
        chain = chain_of(argument)
        if chain is None or chain[1]:
            return None
        right = column(chain[0])
        if left.type != right.type or left.data.dtype != right.data.dtype:
            return None
        if left.data.dtype not in (np.int64, np.float64):
            return None
        truths: Mask = getattr(left.data, name)(right.data)
        return truths, _both(left.valid, right.valid)
    if not _fits(left, argument):
        return None
    truths = np.asarray(getattr(left.data, name)(argument), dtype=np.bool_)
    return truths, left.valid


def _fits(left: Column, literal: Any) -> bool:
    """Whether numpy compares a column with a literal as the evaluator does."""
    if left.data.dtype == np.int64:
        is_number = left.type is None or str(left.type).startswith(("int", "uint"))
        return is_number and type(literal) is int and -(2**63) <= literal < 2**63
    if left.data.dtype == np.float64:
        return type(literal) is float or (type(literal) is int and abs(literal) <= EXACT)
    return False


def _joined(
    left: _Truths, name: str, argument: Any, column: Operand, length: int
) -> _Truths | None:
    """Return two conditions together: null as in SQL, where what is false for both is known."""
    truths, valid = left
    if name == "__invert__":
        return ~truths, valid
    right = _truths(argument, column, length) if hasattr(argument, "_nodes") else None
    if right is None:
        return None
    others, known = right
    if valid is None and known is None:
        return (truths & others if name == "__and__" else truths | others), None
    one = np.ones(length, dtype=np.bool_) if valid is None else valid
    two = np.ones(length, dtype=np.bool_) if known is None else known
    if name == "__and__":
        either_false = (one & ~truths) | (two & ~others)
        return truths & others & one & two, (one & two) | either_false
    either_true = (one & truths) | (two & others)
    return either_true, (one & two) | either_true


def _both(left: Mask | None, right: Mask | None) -> Mask | None:
    if left is None or right is None:
        return right if left is None else left
    return left & right
