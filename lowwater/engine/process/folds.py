"""The combiners of combining cells: a user's own, or one of the plain aggregates."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal, final

from lowwater.engine.aggregates import AggregateSpec, Combiner, checked_combiner
from lowwater.engine.aggregates.built_in import check_no_variable
from lowwater.engine.aggregates.specs import VALUE, BuiltIn
from lowwater.errors import InvalidArgument, describe


@final
@dataclass(frozen=True, slots=True)
class Fold:
    """An aggregate over single values, as a :class:`~lowwater.Combiner`.

    Args:
        name: Which one.
    """

    name: Literal["count", "sum", "min", "max", "mean"]

    def create_accumulator(self) -> Any:
        """Return an accumulator of nothing."""
        return _FOLDS[self.name][0]

    def add_input(self, accumulator: Any, value: Any) -> Any:
        """Return the accumulator with a value added; null adds nothing."""
        return accumulator if value is None else _FOLDS[self.name][1](accumulator, value)

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        """Return one accumulator for all the values of several."""
        start, _, merge = _FOLDS[self.name]
        return reduce(merge, accumulators, start)

    def extract_output(self, accumulator: Any) -> Any:
        """Return the count, sum, extreme or mean; of nothing 0, 0 and nulls (S-P5)."""
        if self.name != "mean":
            return accumulator
        total, count = accumulator
        return total / count if count else None


def _least(left: Any, right: Any) -> Any:
    if left is None or right is None:
        return right if left is None else left
    return min(left, right)


def _most(left: Any, right: Any) -> Any:
    if left is None or right is None:
        return right if left is None else left
    return max(left, right)


_FOLDS: dict[str, tuple[Any, Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "count": (0, lambda count, _: count + 1, lambda a, b: a + b),
    "sum": (0, lambda total, value: total + value, lambda a, b: a + b),
    "min": (None, _least, _least),
    "max": (None, _most, _most),
    "mean": (
        (0, 0), lambda a, value: (a[0] + value, a[1] + 1), lambda a, b: (a[0] + b[0], a[1] + b[1]),
    ),
}  # fmt: skip


def fold_of(combiner: Combiner | AggregateSpec) -> Combiner:
    """Return the combiner for what a user gave to ``combining_cell``.

    Raises:
        InvalidArgument: It is neither a combiner nor an aggregate that needs no column.
    """
    if isinstance(combiner, BuiltIn):
        check_no_variable(combiner, "combining_cell")
        plain = combiner.column in (None, VALUE) and combiner.where is None
        if combiner.name in _FOLDS and plain:
            return Fold(combiner.name)  # type: ignore[arg-type]  # it is one of the five
        raise InvalidArgument(
            f"{describe('combiner', combiner)} cannot add up the values of a cell",
            where="combining_cell",
            hint="Use lw.count(), lw.sum(), lw.min(), lw.max() or lw.mean(), without a column "
            "and where=, or a combiner of your own",
        )
    return checked_combiner(combiner, "combining_cell")
