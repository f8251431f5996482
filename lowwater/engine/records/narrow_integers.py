"""Makes int64 of narrower integers inside of expressions, before anything is computed with them.

Arrow computes in the narrower type, and wraps (S-B1).
"""

from __future__ import annotations

from typing import Any

from lowwater.engine.records.elementwise import operations
from lowwater.engine.records.integer_arithmetic import ARITHMETIC, SMALL

_NARROW = frozenset({"Int8", "Int16", "Int32"})


def widened(expression: Any) -> Any:
    """Return an expression in which narrower integers become int64 before they are computed with.

    Columns are int64 already: these are the lengths of texts, and what is cast to a narrower type.
    """
    import narwhals as nw

    if not any(_is_narrow(node) for node, _ in operations(expression)):
        return expression
    return nw.Expr(*_widened(tuple(expression._nodes), is_result=True))


def _widened(nodes: tuple[Any, ...], *, is_result: bool) -> list[Any]:
    """Return operations with casts to int64 among them.

    Args:
        nodes: The operations.
        is_result: Whether what they come to is a result, whose type stays what it is.
    """
    import narwhals as nw

    found: list[Any] = []
    last = max((at for at, node in enumerate(nodes) if _is_arithmetic(node)), default=-1)
    for at, node in enumerate(nodes):
        keeps = is_result and at >= last and not _is_arithmetic(node)
        exprs = tuple(
            nw.Expr(*_widened(tuple(one._nodes), is_result=keeps)) if _is_expression(one) else one
            for one in node.exprs
        )
        if any(new is not old for new, old in zip(exprs, node.exprs, strict=True)):
            node = type(node)(  # noqa: PLW2901  # with other arguments it is the same operation
                node.kind, node.name, exprs=exprs, str_as_lit=node.str_as_lit,
                allow_multi_output=node.allow_multi_output, **node.kwargs,
            )  # fmt: skip
        found.append(node)
        if _is_narrow(node) and (at < last or not is_result):
            found.append(nw.col("_").cast(nw.Int64)._nodes[-1])
    return found


def _is_expression(value: Any) -> bool:
    return getattr(value, "_nodes", None) is not None


def _is_arithmetic(node: Any) -> bool:
    return node.name in ARITHMETIC


def _is_narrow(node: Any) -> bool:
    """Whether an operation comes to integers of fewer than 64 bits."""
    return node.name in SMALL or (
        node.name == "cast" and str(node.kwargs.get("dtype")).lstrip("U") in _NARROW
    )
