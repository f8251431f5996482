"""Builds the stages of the first rows of each group of a table, and checks them (T-6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from lowwater.engine.graph.graph import Stage
from lowwater.engine.join.topping import Topping
from lowwater.engine.records.batch import HIDDEN, WHOLE
from lowwater.engine.records.column_expressions import lit
from lowwater.engine.records.expressions import Expressions
from lowwater.engine.records.stateless import WithColumns, require_names
from lowwater.engine.stages.topped import Topped, rank_taken
from lowwater.errors import InvalidArgument, describe
from lowwater.pipeline.checks import OF_TABLES, key_names
from lowwater.pipeline.joined_keys import TableKey
from lowwater.pipeline.joins import known_columns
from lowwater.pipeline.stages import StreamParts, public_names


def top_stage(
    stream: StreamParts,
    key: TableKey,
    most: object,
    per: object,
    by: object,
    ties: object,
    rank: object,
    *,
    reverse: bool,
) -> tuple[Stage, Mapping[str, pa.DataType | None] | None, TableKey]:
    """Return the stage, its columns as far as they are known, and the key of its table.

    Args:
        stream: The changes of the table.
        key: The primary key of the table.
        most: How many rows of a group.
        per: The columns that it is grouped by.
        by: The column that decides.
        ties: The columns that order rows of equal ``by``.
        rank: What the column of ranks is called.
        reverse: Whether small values come first.

    Raises:
        InvalidArgument: An argument is wrong, or a column is missing.
    """
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise InvalidArgument(
            f"{describe('n', most)} must be an int of at least 1",
            where="top",
            hint='Write, say, top(3, per="shop", by="price")',
        )
    keys, tied = _names(per, "per"), _names(ties, "ties")
    if not isinstance(by, str):
        raise InvalidArgument(
            f"{describe('by', by)} is not the name of a column",
            where="top(by=)",
            hint='Name the column that decides, as in by="price"; add one that is computed with '
            "with_columns first",
        )
    if by in keys:
        raise InvalidArgument(
            f"{describe('by', by)} is a column of per=, so all rows of a group have the same",
            where="top(by=)",
            hint="Name another column, or leave it out of per=",
        )
    known = known_columns(stream)
    public = None if known is None else public_names(tuple(known))
    if public is not None:
        for option, some in (("per", keys), ("by", (by,)), ("ties", tied)):
            require_names(some, public, f"top({option}=)")
    names = key_names(keys, OF_TABLES, others=public or (), where="top(per=)")
    if not isinstance(rank, str) or not rank or rank.startswith(HIDDEN) or rank in OF_TABLES:
        raise InvalidArgument(
            f"{describe('rank', rank)} is not a name for a column of a table",
            where="top(rank=)",
            hint='Leave it out, or write, say, rank="place"',
        )
    if rank in (*(public or ()), *names):
        raise rank_taken(rank)
    # What all rows of a group have in common orders none of them.
    order = [name for name in dict.fromkeys((*tied, *key.columns)) if name not in keys]
    rules = Topping(
        most,
        by,
        tuple(name for name in order if name in tied),
        tuple(name for name in order if name not in tied),
        reverse,
        rank,
        is_whole=not keys,
    )
    columns = {
        name: kind
        for name, kind in (known or {}).items()
        if name not in keys and not name.startswith(HIDDEN)
    }
    if not keys:
        stream = stream._with(WithColumns(Expressions((), {WHOLE: lit(0)}), "top"))
        keys, names = (WHOLE,), (rank,)
    stage = Stage(stream._flows, keys, names, Topped(rules, columns))
    types: dict[str, pa.DataType | None] | None = None
    if known is not None:
        grouped = zip(names, keys, strict=True)
        of_keys = {name: known[column] for name, column in grouped if column != WHOLE}
        types = {**of_keys, rank: pa.int64(), **columns}
    if rules.is_whole:
        return stage, types, TableKey((rank,))
    nullable = key.nullable or not {*keys} <= {*key.columns}
    return stage, types, TableKey((*names, rank), nullable)


def _names(given: object, option: str) -> tuple[str, ...]:
    """Return the columns that an option names, if any."""
    if given is None:
        return ()
    names = (given,) if isinstance(given, str) else given
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise InvalidArgument(
            f"{describe(option, given)} is neither the name of a column nor several names",
            where=f"top({option}=)",
            hint=f'Write {option}="shop", or {option}=("shop", "day")',
        )
    return tuple(names)
