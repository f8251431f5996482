"""The further columns that an aggregate reads, as bags of its state: values, and which are null."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowwater.engine.aggregates._base import AggregateInput, Further, Read, StateColumn


def further_columns(also: Sequence[Read]) -> tuple[StateColumn, ...]:
    """Return the bags for further columns of these types: for each its values and validity."""
    return tuple(
        column
        for number, (_, dtype) in enumerate(also)
        for column in (
            StateColumn(_name(number), dtype, None, bag=True),
            StateColumn(valid_name(_name(number)), np.bool_, None, bag=True),
        )
    )


def further_values(batch: AggregateInput) -> dict[str, NDArray[Any]]:
    """Return what a batch adds to these bags, by their names."""
    added: dict[str, NDArray[Any]] = {}
    for number, (values, valid) in enumerate(batch.also):
        added[_name(number)] = values
        added[valid_name(_name(number))] = (
            np.ones(len(values), dtype=np.bool_) if valid is None else valid
        )
    return added


def further_of(values: Mapping[str, NDArray[Any]]) -> tuple[Further, ...]:
    """Return the further columns among values by the names of their bags."""
    columns: list[Further] = []
    while (name := _name(len(columns))) in values:
        valid = values[valid_name(name)]
        columns.append((values[name], None if valid.all() else valid))
    return tuple(columns)


def valid_name(name: str) -> str:
    """Return the name of the bag with the validity of a further column."""
    return f"{name} valid"


def _name(number: int) -> str:
    return f"also {number}"
