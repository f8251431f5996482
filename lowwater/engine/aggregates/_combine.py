"""User-defined combiners, with the protocol of Beam's CombineFn: Python code per element."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from inspect import signature
from operator import length_hint
from typing import Any, Protocol, cast, final, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from lowwater.display.text import readable
from lowwater.engine.aggregates._base import AggregateInput, State, StateColumn
from lowwater.engine.records.columns import Column
from lowwater.errors import DataError, InvalidArgument, describe, user_code
from lowwater.time import Int64Array


@runtime_checkable
class Combiner(Protocol):
    """Combines values; the operation must be associative and commutative.

    A fifth method is optional: ``remove_input(accumulator, value)`` returns the accumulator
    without a value that was added, for stages whose input has retractions (S-C4). Without it such
    a stage keeps all values and combines the remaining ones again.
    """

    def create_accumulator(self) -> Any:
        """Return an empty accumulator."""
        ...

    def add_input(self, accumulator: Any, value: Any, /) -> Any:
        """Add a value and return the accumulator, which may be modified in place."""
        ...

    def merge_accumulators(self, accumulators: Iterable[Any], /) -> Any:
        """Merge several accumulators into one."""
        ...

    def extract_output(self, accumulator: Any, /) -> Any:
        """Return the value for a pane; the accumulator remains in use afterwards."""
        ...


_METHODS = {  # and how it is called
    "create_accumulator": (),
    "add_input": ("accumulator", "value"),
    "merge_accumulators": ("accumulators",),
    "extract_output": ("accumulator",),
}


def checked_combiner(combiner: object, where: str) -> Combiner:
    """Return a combiner that a user has given, or say what it lacks.

    Merging may be rare, so a method with other parameters would fail long after the start.

    Raises:
        InvalidArgument: It is a class, lacks a method, or a method has other parameters.
    """
    given = describe("combiner", combiner)
    if isinstance(combiner, type):
        raise InvalidArgument(
            f"{given} is a class", where=where, hint=f"Make one: {combiner.__name__}(...)"
        )
    missing = [name for name in _METHODS if not callable(getattr(combiner, name, None))]
    if missing:
        raise InvalidArgument(
            f"{given} is not a combiner: it has no {', '.join(missing)}",
            where=where,
            hint=f"Give it {', '.join(list(_METHODS)[:3])} and extract_output, or use an aggregate "
            "such as lw.sum()",
        )
    for name, parameters in _METHODS.items():
        try:
            signature(getattr(combiner, name)).bind(*parameters)
        except ValueError:  # one written in C need not tell
            continue
        except TypeError as error:
            raise InvalidArgument(
                f"{name} of {readable(repr(combiner))} cannot be called with "
                f"({', '.join(parameters)}): {error}",
                where=where,
                hint=f"Write def {name}({', '.join(('self', *parameters))})",
            ) from None
    return cast(Combiner, combiner)


@final
class Combine:
    """Runs a user's combiner.

    ``begun`` says how many calls of the combiner the last method has begun: where it failed, if it
    did. Of those of :meth:`add`, values that are added come before those that are removed.
    """

    columns = (StateColumn("accumulator", object, None),)

    def __init__(self, combiner: Combiner) -> None:
        self._combiner = combiner
        self.begun = 0

    def add(self, state: State, batch: AggregateInput) -> None:
        held: NDArray[Any] = state["accumulator"]
        values = [] if batch.values is None else batch.values.tolist()
        pairs = list(zip(batch.rows.tolist(), values, strict=True))
        back: list[tuple[int, Any]] = []
        if batch.signs is not None:  # inserts first, so that a retraction finds what it removes
            signs = batch.signs.tolist()
            back = [pair for pair, sign in zip(pairs, signs, strict=True) if sign < 0]
            pairs = [pair for pair, sign in zip(pairs, signs, strict=True) if sign > 0]
        left = iter(pairs)
        try:
            with user_code(f"add_input of {self._combiner!r}"):
                for row, value in left:
                    held[row] = added = self._combiner.add_input(self._of(held, row), value)
                    if added is None:
                        self._check_lost("add_input")
        finally:
            self.begun = len(pairs) - length_hint(left)  # counting in the loop would cost more
        if not back:
            return
        remove = self._combiner.remove_input  # type: ignore[attr-defined]  # bound only if it has
        with user_code(f"remove_input of {self._combiner!r}"):
            for row, value in back:
                self.begun += 1
                held[row] = remove(self._of(held, row), value)

    def merge(self, state: State, into: Int64Array, rows: Int64Array) -> None:
        held: NDArray[Any] = state["accumulator"]
        with user_code(f"merge_accumulators of {self._combiner!r}"):
            pairs = zip(into.tolist(), rows.tolist(), strict=True)
            for self.begun, (target, row) in enumerate(pairs, 1):
                if held[row] is None:
                    continue
                both = [self._of(held, target), held[row]]
                held[target] = merged = self._combiner.merge_accumulators(both)
                if merged is None:
                    self._check_lost("merge_accumulators")

    def result(self, state: State, rows: Int64Array) -> Column:
        held: NDArray[Any] = state["accumulator"]
        results = np.empty(len(rows), dtype=object)
        with user_code(f"extract_output of {self._combiner!r}"):
            for at, row in enumerate(rows.tolist()):
                self.begun = at + 1
                output = self._combiner.extract_output(self._of(held, row))
                # Copy: the output may share parts with the accumulator, which keeps changing, but
                # an emitted pane must stay what it was, for its retraction (S-A2, S-A3).
                results[at] = copy.deepcopy(output)
        return Column(results)

    def _check_lost(self, method: str) -> None:
        """Raise for a method that returned ``None``, unless that is the combiner's empty value.

        A row without an accumulator holds ``None``, so the window would silently be empty again.
        """
        if self._combiner.create_accumulator() is not None:
            raise DataError(
                f"{method} of {readable(repr(self._combiner))} returned None, which would lose "
                "what was added",
                hint="Return the accumulator, also if it was modified in place (is there a "
                "`return`?)",
            )

    def _of(self, held: NDArray[Any], row: int) -> Any:
        accumulator = held[row]
        return self._combiner.create_accumulator() if accumulator is None else accumulator
