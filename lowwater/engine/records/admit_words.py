"""Validates columns with lists of words, which are equal as keys are (J-15, S-B1)."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pyarrow as pa

from lowwater.engine.records.admit_keys import SOUND, fault_of_key, holds_nan
from lowwater.engine.records.calls import said
from lowwater.engine.records.columns import Column
from lowwater.engine.records.explode import NOT_A_LIST, is_items, is_list
from lowwater.engine.records.problems import Problems
from lowwater.engine.records.storable import Fault, fit
from lowwater.errors import InvalidArgument, describe

_LISTS = frozenset({list, tuple, type(None)})
_SOUND = SOUND | {type(None)}
_NULL_WORD = "null_word"
"""What a word that is NaN would be called if it were a key; it only does not count."""
HAS_NO_WORD = "has an item that cannot be a word"
"""What is wrong with a list of other things."""


def check_words(column: Column, problems: Problems, name: str) -> Column:
    """Record the rows whose value is no list of words; return the column unchanged.

    Nulls are no fault: neither a list that is null nor a word. A word that is or holds NaN counts
    as null.

    Raises:
        InvalidArgument: Values of the column's type cannot be lists of words.
    """
    kind = column.type
    if kind is None and column.data.dtype == object:
        _check_objects(column.to_list(exact=True), name, problems)
    elif kind is not None and is_list(kind):
        if pa.types.is_nested(kind.value_type):
            raise InvalidArgument(
                f"the column {name!r} is {kind}, whose items cannot be words",
                hint="Use lists of plain values, such as text",
            )
    elif kind is None or not pa.types.is_null(kind):
        raise InvalidArgument(
            f"the column {name!r} is {kind or column.data.dtype}, not a list of words",
            hint=f'Make a list of a text before: {name}=lw.col("text").str.split(" ")',
        )
    return column


def is_word(value: Any) -> bool:
    """Return whether an item of a list counts: it is not null, and has no NaN (S-B1)."""
    return value is not None and not holds_nan(value)


def _check_objects(values: list[Any], name: str, problems: Problems) -> None:
    if _LISTS.issuperset(map(type, values)):
        words = list(chain.from_iterable(value for value in values if value))
        if _SOUND.issuperset(map(type, words)) and fit(words):
            return
    for row, value in enumerate(values):
        if value is not None and (fault := _fault(value, name)) is not None:
            problems.add(row, *fault)


def _fault(value: Any, name: str) -> Fault | None:
    """Return why a value is no list of words."""
    try:
        if not is_items(type(value)):
            return NOT_A_LIST, f"{describe(name, value)} is not a list"
        words = list(value)
    except MemoryError:
        raise
    except Exception as error:  # a class of the user raises
        return NOT_A_LIST, f"{name}= cannot be read: {said(error)}"
    for word in words:
        fault = None if word is None else fault_of_key(word, "item", "word")
        if fault is not None and fault[0] != _NULL_WORD:
            return fault[0], f"{describe(name, value)} {HAS_NO_WORD}: {fault[1]}"
    return None
