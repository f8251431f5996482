"""The primary key of a join of two tables (T-3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import pyarrow as pa

from lowwater.engine.join.joining import How
from lowwater.engine.join.pairs import JoinedColumns
from lowwater.engine.records.batch import HIDDEN, SIDE
from lowwater.pipeline.joins import JoinInputs


@final
@dataclass(frozen=True, slots=True)
class TableKey:
    """The primary key of a table.

    Args:
        columns: Its columns; hidden ones too, which tell rows of outer joins apart.
        nullable: Whether they may hold nulls. Without nulls there are no hidden ones.
    """

    columns: tuple[str, ...]
    nullable: bool = False

    @property
    def public(self) -> tuple[str, ...]:
        """The columns that users see; a key without nulls is unique in them."""
        return tuple(name for name in self.columns if not name.startswith(HIDDEN))

    @property
    def hidden(self) -> tuple[str, ...]:
        """The others."""
        return tuple(name for name in self.columns if name.startswith(HIDDEN))


def joined_key(
    left: TableKey, right: TableKey, inputs: JoinInputs, how: How
) -> tuple[TableKey, JoinedColumns]:
    """Return the primary key of a join, and the columns of both sides, hidden ones too.

    Rows with a null in a column that is joined on have no partner. So where both tables are joined
    on their keys, only rows without a partner have nulls there. In an outer join a row of the left
    alone and one of the right alone may then have the same key; a hidden column tells them apart.
    """
    columns = inputs.columns
    if how in ("semi", "anti"):
        return left, _with_hidden(columns, left.hidden, ())
    both_nullable = how == "outer" and left.nullable and right.nullable
    on_left, on_right = {*inputs.keys}, {*inputs.right_keys}
    if {*left.public} == on_left and {*right.public} == on_right:
        of_left = how in ("left", "outer") and left.nullable
        of_right = how in ("right", "outer") and right.nullable
        columns = _with_hidden(
            columns, left.hidden if of_left else (), right.hidden if of_right else ()
        )
        columns = replace(columns, sided="nulls" if both_nullable else None)
        return TableKey((*left.public, *_names(columns)), of_left or of_right), columns
    to_left, to_right = columns.names(tuple(columns.left), tuple(columns.right))
    key = tuple(to_left.get(name, name) for name in left.public)
    nullable = left.nullable
    is_of_left = {*right.public} <= on_right and how in ("inner", "left")
    if not is_of_left:
        to_right |= dict(zip(inputs.right_keys, inputs.keys, strict=True))
        key = tuple(dict.fromkeys((*key, *(to_right[name] for name in right.public))))
        nullable = nullable or right.nullable or how != "inner"
    if not nullable or (how == "inner" and {*key} <= on_left):
        return TableKey(key), columns
    columns = _with_hidden(columns, left.hidden, () if is_of_left else right.hidden)
    columns = replace(columns, sided="all" if both_nullable else None)
    return TableKey((*key, *_names(columns)), nullable=True), columns


def _with_hidden(
    columns: JoinedColumns, left: Sequence[str], right: Sequence[str]
) -> JoinedColumns:
    """Return columns with hidden ones, which are true or false."""
    return replace(
        columns,
        left={**columns.left, **dict.fromkeys(left, pa.bool_())},
        right={**columns.right, **dict.fromkeys(right, pa.bool_())},
    )


def _names(columns: JoinedColumns) -> tuple[str, ...]:
    """Return what the hidden columns are called in the output."""
    left, right = columns.names(tuple(columns.left), tuple(columns.right))
    named = (name for name in (*left.values(), *right.values()) if name.startswith(SIDE))
    return (*named, *(() if columns.sided is None else (SIDE,)))
