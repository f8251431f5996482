"""Reads expressions: which columns they need, and whether they look beyond their row.

An expression is accepted only if its value for a record depends on that record alone. Otherwise it
would depend on which records share its bundle, and so on how fast they come. Narwhals classifies
each operation itself; this module reads that classification, and refuses what it does not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

from lowwater.errors import InvalidArgument

_WITHIN_ROW = frozenset(
    {"ALL", "COL", "ELEMENTWISE", "EXCLUDE", "LITERAL", "NTH", "SELECTOR", "WHEN_THEN"}
)
"""The kinds of operations of narwhals whose result for a row depends on that row alone."""

COMPARISONS = frozenset({"__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"})
"""The operations that compare."""

_GUESSES = frozenset({"str.to_datetime", "str.to_date"})
"""Operations that, without a format, take it from the first values that they are given."""

_OTHER_ROWS: Mapping[str, str] = {
    "over": "Group with key_by(...), and aggregate in .window(...)",
    "len": "Count with .key_by(...).window(...).aggregate(n=lw.count())",
    "is_duplicated": "Drop copies with deduplicate(id=..., within=...)",
    "is_first_distinct": "Drop copies with deduplicate(id=..., within=...)",
    "is_last_distinct": "Drop copies with deduplicate(id=..., within=...)",
    "is_unique": "Drop copies with deduplicate(id=..., within=...)",
    "unique": "Drop copies with deduplicate(id=..., within=...)",
    "drop_nulls": 'Use filter(~lw.col("v").is_null())',
    "filter": "Use the filter step: .filter(...)",
    "map_batches": "Use .map(...) for a Python function of a record",
    "fill_null": "Fill with a value, as in fill_null(0), or remember the last one in a process",
}
_BEFORE = frozenset({"cum_count", "cum_max", "cum_min", "cum_prod", "cum_sum", "diff", "shift"})
_IN_WINDOWS = (
    'Aggregate in windows: .key_by(...).window(lw.FixedWindows("1h")).aggregate(...); join() '
    "brings the result back to the records"
)
_IN_ORDER = (
    'Keep the values before in a process: .key_by(...).process(..., order="event_time"), or '
    "aggregate in windows"
)


@final
@dataclass(frozen=True, slots=True)
class Reading:
    """What an expression reads.

    Args:
        columns: The names of the columns; ``None``: any, depending on which there are.
        guessed: Those of them whose text is converted to times without a format.
        fields: The fields that are read inside of columns: the column, the field, the field in it.
    """

    columns: frozenset[str] | None
    guessed: frozenset[str] = frozenset()
    fields: frozenset[tuple[str, ...]] = frozenset()


def check_within_row(expression: Any, step: str, *, of_match: bool = False) -> None:
    """Check that the value of an expression for a record depends on that record alone.

    Args:
        expression: An expression of narwhals.
        step: The step that it is for.
        of_match: Whether it is part of a row pattern, and so may refer to other rows with
            ``lw.prev`` and ``lw.matched``.

    Raises:
        InvalidArgument: It does not.
    """
    if (nodes := _nodes(expression)) is None:
        metadata = getattr(expression, "_metadata", None)  # narwhals before 2.10
        if getattr(metadata, "is_elementwise", False):
            return
        raise _beyond("it", "", step)
    for node, before in _every(nodes):
        if node.kind.name == "SERIES" or any(map(_is_series, node.exprs)):
            raise InvalidArgument(
                "the expression contains a Series, whose rows are not those of the records",
                where=step,
                hint="Join its values to the stream, or look them up in a function: .map(...)",
            )
        if node.kind.name not in _WITHIN_ROW:
            raise _beyond(_written(node), node.name, step)
        if node.name in _GUESSES and node.kwargs.get("format") is None and len(before) != 1:
            raise InvalidArgument(
                f"{node.name}() without a format takes it from the other records of a bundle",
                where=step,
                hint=f'Name it, as in .{node.name}("%Y-%m-%d %H:%M:%S")',
            )
        if not of_match:
            for name in _named(node):
                _check_own_row(name, step)


def check_single(expression: Any, step: str) -> None:
    """Check that an expression has one result, as a condition must.

    Raises:
        InvalidArgument: It begins with several columns.
    """
    nodes = _nodes(expression) or ()
    if not nodes:
        return
    kind = nodes[0].kind.name
    names = nodes[0].kwargs.get("names", ())
    if kind in ("ALL", "EXCLUDE", "SELECTOR") or (kind == "COL" and len(names) > 1):
        raise InvalidArgument(
            f"{expression!r} has a result for each of several columns",
            where=step,
            hint='Combine them: (lw.col("a") > 1) & (lw.col("b") > 1)',
        )


def reading_of(expressions: Iterable[Any]) -> Reading:
    """Return what expressions read; names of columns are expressions, too."""
    columns: set[str] | None = set()
    guessed: set[str] = set()
    fields: set[tuple[str, ...]] = set()
    for expression in expressions:
        if isinstance(expression, str):
            if columns is not None:
                columns.add(expression)
            continue
        if (nodes := _nodes(expression)) is None:
            return Reading(None)
        for node, before in _every(nodes):
            if node.kind.name in ("ALL", "EXCLUDE", "NTH", "SELECTOR"):
                columns = None
            if columns is not None:
                columns.update(_named(node))
            if node.name in _GUESSES and node.kwargs.get("format") is None and len(before) == 1:
                guessed.update(map(str, before[0].kwargs.get("names", ())))
            fields.update(_fields(node, before))
    names = None if columns is None else frozenset(columns)
    return Reading(names, frozenset(guessed), frozenset(fields))


def columns_named(expression: Any) -> Iterator[str]:
    """Yield the columns that an expression names; it may read more, as ``nw.all()`` does."""
    for node, _ in operations(expression):
        yield from _named(node)


def _named(node: Any) -> Iterator[str]:
    """Yield the columns that an operation names, but for those in expressions inside of it."""
    if node.kind.name == "COL":
        yield from map(str, node.kwargs["names"])
    if not node.str_as_lit:
        yield from (value for value in node.exprs if isinstance(value, str))


def _check_own_row(name: str, step: str) -> None:
    """Raise for a virtual column, whose values there are in row patterns alone."""
    if not name.startswith(("prev(", "matched(")):
        return
    from lowwater.engine.records.other_rows import Prev, reference_of  # few pipelines have patterns

    if (reference := reference_of(name)) is None:
        return
    if isinstance(reference, Prev):
        what = "lw.prev(...) refers to another row"
    else:
        what = "lw.matched(...) refers to the rows of a match"
    raise InvalidArgument(
        f"{what}, which only the conditions and measures of .match(...) can",
        where=step,
        hint="Find rows by it with .key_by(...).match(...); or keep the values before in a "
        'process: .key_by(...).process(..., order="event_time")',
    )


def _fields(node: Any, before: tuple[Any, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the columns and fields that an operation reads, if it reads a field of a column."""
    if not before or before[0].kind.name != "COL":
        return
    inside = (*before[1:], node)
    if all(one.name == "struct.field" for one in inside):
        for name in before[0].kwargs["names"]:
            yield (str(name), *(str(one.kwargs["name"]) for one in inside))


def copied_column(expression: Any) -> str | None:
    """Return the name of the column that an expression copies; ``None`` if it computes anything.

    >>> copied_column("price")
    'price'
    """
    if isinstance(expression, str):
        return expression
    nodes = _nodes(expression)
    if nodes is None or len(nodes) != 1 or nodes[0].kind.name != "COL":
        return None
    names = nodes[0].kwargs["names"]
    return str(names[0]) if len(names) == 1 else None


def comparison_of(expression: Any) -> tuple[str, str, str] | None:
    """Return the columns that an expression compares, and how; ``None`` if it is anything else.

    >>> import narwhals as nw
    >>> comparison_of(nw.col("price") < nw.col("limit"))
    ('price', '__lt__', 'limit')

    Returns:
        (column on the left, name of the operation, column on the right).
    """
    nodes = _nodes(expression)
    if nodes is None or len(nodes) != 2 or nodes[1].name not in COMPARISONS:
        return None
    first, compared = nodes
    names = first.kwargs.get("names", ())
    if first.kind.name != "COL" or len(names) != 1 or len(compared.exprs) != 1:
        return None
    (other,) = compared.exprs
    right = None if isinstance(other, str) else copied_column(other)
    return None if right is None else (str(names[0]), compared.name, right)


def operations(expression: Any) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Yield each operation of an expression, also of its arguments, and those before it."""
    yield from _every(_nodes(expression) or ())


def _nodes(expression: Any) -> tuple[Any, ...] | None:
    nodes = getattr(expression, "_nodes", None)
    return None if nodes is None else tuple(nodes)


def _every(nodes: tuple[Any, ...]) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Yield each operation, also of expressions that are arguments, and those before it."""
    for number, node in enumerate(nodes):
        yield node, nodes[:number]
        for value in _parts(node):
            if (inner := _nodes(value)) is not None:
                yield from _every(inner)


def _parts(node: Any) -> Iterator[Any]:
    """Yield the arguments of an operation, also those inside lists."""
    waiting = [*node.exprs, *node.kwargs.values()]
    while waiting:
        value = waiting.pop()
        if isinstance(value, (list, tuple, set, frozenset)):
            waiting.extend(value)
        elif isinstance(value, Mapping):
            waiting.extend(value.values())
        else:
            yield value


def _is_series(value: Any) -> bool:
    import narwhals as nw

    return isinstance(value, nw.Series)


def _written(node: Any) -> str:
    return f"{node.name}({', '.join(map(str, node.exprs))})"


def _beyond(what: str, name: str, step: str) -> InvalidArgument:
    hint = _OTHER_ROWS.get(name)
    if hint is None:
        is_ordered = name in _BEFORE or name.startswith(("rolling_", "ewm_"))
        hint = _IN_ORDER if is_ordered else _IN_WINDOWS
    subject = "the expression" if what == "it" else f"{what} in the expression"
    return InvalidArgument(
        f"{subject} looks at other records than its own: its value would depend on how the stream "
        "is cut into bundles",
        where=step,
        hint=hint,
    )
