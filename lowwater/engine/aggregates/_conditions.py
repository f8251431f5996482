"""Which elements an aggregate counts: ``lw.count(where=lw.col("price") < 10)``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np

from lowwater.engine.records.batch import CONDITION_OF
from lowwater.engine.records.elementwise import check_single, check_within_row, operations
from lowwater.errors import InvalidArgument, describe

WHERE = "aggregate(where=)"
"""What messages call the step that evaluates conditions."""


@final
@dataclass(frozen=True, slots=True, repr=False)
class Condition:
    """An expression that is true for the elements that count; null is not true.

    The expression is evaluated in front of the aggregate, which reads its result as a column.

    Args:
        expression: The expression. Comparing two yields a third, so equality is judged by the text
            and the literals.
        text: The expression as text.
        literals: The repr of each literal: ``1`` and ``"1"`` have the same text.
        column: The column with the result; ``None`` while there is none.
    """

    expression: Any = field(compare=False)
    text: str
    literals: tuple[str, ...] = ()
    column: str | None = None

    def __repr__(self) -> str:
        return self.text


def condition_of(where: object, step: str = WHERE, *, name: str = "where") -> Condition | None:
    """Return the condition that a user gave as ``where=``; ``None`` for none.

    Args:
        where: What was given.
        step: What messages call the step that evaluates it.
        name: What they call the argument.

    Raises:
        InvalidArgument: It is no expression, or looks beyond its record.
    """
    if where is None:
        return None
    import narwhals as nw  # a pipeline without expressions never loads it

    if not isinstance(where, nw.Expr):
        raise InvalidArgument(
            f"{describe(name, where)} is not an expression over columns",
            where=step,
            hint=f'Write, say, {name}=lw.col("price") < 10; compute what takes a Python function '
            f'in front, as a column: {name}=lw.col("is_cheap")',
        )
    check_within_row(where, step)
    check_single(where, step)
    return Condition(where, repr(where), tuple(_literals(where)))


def _literals(expression: Any) -> list[str]:
    values = (
        # The repr of a long array leaves most of it out.
        value.tolist() if isinstance(value, np.ndarray) else value
        for node, _ in operations(expression)
        for value in (*node.exprs, *node.kwargs.values())
    )
    return [f"{type(one).__name__} {one!r}" for one in values if not hasattr(one, "_nodes")]


def with_condition_columns(
    aggregates: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return aggregates that read their conditions as columns, and the expressions of these.

    Aggregates with equal conditions read the same column.

    Returns:
        (the aggregates by output name, the expressions by hidden column).
    """
    columns: dict[str, Any] = {}
    names: dict[Condition, str] = {}
    ready: dict[str, Any] = {}
    for name, spec in aggregates.items():
        condition: Condition | None = getattr(spec, "where", None)
        if condition is None:
            ready[name] = spec
            continue
        key = replace(condition, column=None)
        if key not in names:
            names[key] = f"{CONDITION_OF}{condition.text} {len(names)}"
            columns[names[key]] = condition.expression
        ready[name] = replace(spec, where=replace(condition, column=names[key]))
    return ready, columns
