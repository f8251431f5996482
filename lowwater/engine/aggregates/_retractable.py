"""Retractions for aggregates that cannot subtract: their inputs are kept (S-C4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

from lowwater.engine.aggregates._base import (
    Aggregate,
    AggregateInput,
    AggregateSpec,
    Needs,
    Read,
    State,
    StateColumn,
    bound,
)
from lowwater.engine.aggregates._column_values import (
    further_columns,
    further_of,
    further_values,
    valid_name,
)
from lowwater.engine.aggregates._conditions import Condition
from lowwater.engine.aggregates._equality import equality_codes
from lowwater.engine.aggregates._result_cache import ResultCache
from lowwater.engine.records.columns import Column
from lowwater.errors import InvalidArgument
from lowwater.kernels.positions import repeated
from lowwater.state.arrays import run_starts
from lowwater.state.bag import Bag
from lowwater.time import Int64Array

_SPARE = 1024
_RATIO = 4
"""Elements to a retraction, from which on most need not be looked at."""
_MIX = np.uint64(0x9E3779B97F4A7C15)
_SLOT_BITS = 16


@final
class Retractable:
    """Keeps the inputs of each row and recomputes the result from those not retracted.

    A row is parallel bags: value, event time and sign of each input, and what orders the inputs and
    whether the value is null, where the aggregate takes that. A retraction cancels the latest
    insert that is equal in all but the sign; if there is none yet, it waits for it. Cancelled pairs
    are dropped lazily: when the row is read, and in all rows once retractions are a quarter of the
    stored inputs. That is amortised O(log n) per retraction. The last result of a row is cached,
    and mostly outlasts a change (:class:`ResultCache`): then nothing is recomputed.

    Args:
        dtype: The dtype of the values.
        make: Returns the aggregate that computes results, bound to its column.
        valued: Whether the aggregate takes values.
        by: The dtype of the values that order the inputs; ``None`` if the aggregate takes none.
        nulls: Whether the aggregate takes null values.
        also: The types of the further columns that it reads.
    """

    def __init__(
        self,
        dtype: DTypeLike,
        make: Callable[[], Aggregate],
        *,
        valued: bool = True,
        by: DTypeLike | None = None,
        nulls: bool = False,
        also: Sequence[Read] = (),
    ) -> None:
        self._make = make
        self._valued = valued
        self._cache = ResultCache(make())
        self.notes = {"taken back": 0}
        self.columns = (
            StateColumn("value", dtype if valued else np.int8, None, bag=True),
            *(() if by is None else (StateColumn("by", by, None, bag=True),)),
            *((StateColumn("valid", np.bool_, None, bag=True),) if nulls else ()),
            *further_columns(also),
            StateColumn("time", np.int64, None, bag=True),
            StateColumn("sign", np.int8, None, bag=True),
        )
        self._told_apart = [column.name for column in self.columns[:-2]]

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it takes beside its state, about."""
        return self._cache.nbytes

    def add(self, state: State, batch: AggregateInput) -> None:
        count = len(batch.rows)
        signs = np.ones(count, dtype=np.int8) if batch.signs is None else batch.signs
        values = batch.values
        if values is None or not self._valued:
            values = np.zeros(count, dtype=np.int8)
        valid = np.ones(count, dtype=np.bool_) if batch.valid is None else batch.valid
        given = {
            "value": values,
            "by": batch.by,
            "valid": valid,
            "time": batch.times,
            "sign": signs,
            **further_values(batch),
        }
        for column in self.columns:
            state[column.name].append(batch.rows, given[column.name], batch.arrival)
        self._cache.update(batch)
        self.notes["taken back"] += int((signs < 0).sum())
        bag: Bag = state["sign"]
        if self.notes["taken back"] > max(_SPARE, len(bag) // 4):
            self._held(state, bag.filled_rows())
            self.notes["taken back"] = 0

    def merge(self, state: State, into: Int64Array, rows: Int64Array) -> None:
        for column in self.columns:
            state[column.name].merge(into, rows)
        self._cache.forget(into)
        self._cache.forget(rows)

    def release_elsewhere(self, state: State, rows: Int64Array) -> None:
        """Drop rows from the cache: they are released, or filled by other means than inputs."""
        self._cache.forget(rows)

    def result(self, state: State, rows: Int64Array) -> Column:
        cached = self._cache.cached(rows)
        if not cached.all():
            made = self._made(state, rows[~cached])
            if not cached.any():
                return made
            if not self._cache.cached(rows).all():
                return self._made(state, rows)
        return self._cache.results(rows)

    def _made(self, state: State, rows: Int64Array) -> Column:
        """Return the results of rows, made from all their inputs."""
        held, signs = self._held(state, rows)
        there = signs > 0
        settled = np.ones(len(rows), dtype=np.bool_)
        if not there.all():  # a waiting retraction has no effect yet
            settled[held.rows[~there]] = False
            held = held.where(there)
        aggregate = self._make()
        inputs = _Inputs(aggregate.columns, len(rows))
        if len(held.rows):
            aggregate.add(inputs, held)
        result = aggregate.result(inputs, np.arange(len(rows), dtype=np.int64))
        self._cache.take(rows, inputs, result, settled)
        return result

    def _held(self, state: State, rows: Int64Array) -> tuple[AggregateInput, NDArray[np.int8]]:
        """Drop cancelled pairs; return the rest, rows numbered by position, and their signs."""
        signs, arrival, counts = state["sign"].gather_with_arrivals(rows)
        held = {column.name: state[column.name].gather(rows)[0] for column in self.columns[:-1]}
        held["sign"] = signs
        owner = repeated(np.arange(len(rows), dtype=np.int64), counts)
        if len(signs) and signs.min() < 0:
            codes = [
                equality_codes(held[name], where="an aggregate whose inputs may be taken back")
                for name in self._told_apart
            ]
            # Nulls hold arbitrary values, which must not tell them apart.
            if "valid" in held:
                codes[0] = np.where(held["valid"], codes[0], 0)
            for at, name in enumerate(self._told_apart):
                if (valid := held.get(valid_name(name))) is not None:
                    codes[at] = np.where(valid, codes[at], 0)
            left = uncancelled(signs, owner, held["time"], *codes)
            if not left.all():
                for name, column in held.items():
                    state[name].keep(rows, (column, arrival, counts), left)
                held = {name: column[left] for name, column in held.items()}
                owner, arrival = owner[left], arrival[left]
        inputs = AggregateInput(
            owner, held["value"] if self._valued else None, held["time"], arrival,
            by=held.get("by"), valid=held.get("valid"), also=further_of(held),
        )  # fmt: skip
        return inputs, held["sign"]


def uncancelled(signs: NDArray[np.int8], *columns: Int64Array) -> NDArray[np.bool_]:
    """Return which elements remain after each retraction has cancelled an insert (S-C1).

    Those equal in all columns are taken in their order: a retraction cancels the latest insert that
    is left, or waits for the next one. So with the running sum of their signs as a height, an
    insert is left if it is the last to reach its height above 0, and a retraction if it is the last
    to reach its depth below. O(n), and O(m log m) in those that a retraction may equal.

    Args:
        signs: +1 or -1, int8, shape (n,).
        columns: State row, event time, and for each column of values integers that are equal where
            the values are.

    >>> uncancelled(np.array([1, 1, -1, 1], dtype=np.int8), np.zeros(4, dtype=np.int64))
    array([ True, False, False,  True])
    """
    few = _like_those_taken_back(signs, columns)
    if few is None:
        return _uncancelled(signs, columns)
    left = np.ones(len(signs), dtype=np.bool_)
    left[few] = _uncancelled(signs[few], [column[few] for column in columns])
    return left


def _like_those_taken_back(
    signs: NDArray[np.int8], columns: Sequence[Int64Array]
) -> Int64Array | None:
    """Return the elements that may equal a retraction, and maybe some more; ``None`` for all. O(n).

    A retraction concerns nothing else, and most rows have few.
    """
    taken_back = signs < 0
    if np.count_nonzero(taken_back) * _RATIO > len(signs):
        return None
    mixed = np.zeros(len(signs), dtype=np.uint64)
    for column in columns:
        mixed ^= column.view(np.uint64)
        mixed *= _MIX
        mixed ^= mixed >> np.uint64(32)
    slot = (mixed >> np.uint64(64 - _SLOT_BITS)).astype(np.intp)
    marked = np.zeros(1 << _SLOT_BITS, dtype=np.bool_)
    marked[slot[taken_back]] = True
    return np.flatnonzero(marked[slot])


def _uncancelled(signs: NDArray[np.int8], columns: Sequence[Int64Array]) -> NDArray[np.bool_]:
    order = np.lexsort(columns)
    sign = signs[order].astype(np.int64)
    begins = run_starts(*(column[order] for column in columns))
    group = np.cumsum(begins) - 1
    height = np.cumsum(sign)
    height -= (height - sign)[begins][group]
    # Offset the groups by more than any height within them, so that one sort handles all groups.
    apart = group * (2 * len(sign) + 1)
    low = np.minimum.accumulate((height + apart)[::-1])[::-1] - apart
    high = np.maximum.accumulate((height - apart)[::-1])[::-1] + apart
    left = np.empty(len(sign), dtype=np.bool_)
    left[order] = np.where(
        sign > 0, (height >= 1) & (height <= low), (height <= -1) & (height >= high)
    )
    return left


@final
class _Inputs:
    """The state of an aggregate that exists only while one result is computed."""

    def __init__(self, columns: tuple[StateColumn, ...], rows: int) -> None:
        self._columns: dict[str, Any] = {}
        for column in columns:
            if column.bag:
                self._columns[column.name] = Bag(column.dtype)
            else:
                held = np.empty(rows, dtype=column.dtype)
                held[:] = column.fill
                self._columns[column.name] = held

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]


@final
@dataclass(frozen=True, slots=True)
class Signed:
    """An aggregate that accepts retractions: by subtracting if it can, else by keeping its inputs.

    Args:
        plain: The aggregate that the user wrote.
    """

    plain: AggregateSpec

    @property
    def column(self) -> str | None:
        """The column it reads."""
        return self.plain.column

    @property
    def needs(self) -> Needs:
        """The kind of values it accepts."""
        return self.plain.needs

    @property
    def name(self) -> str:
        """The output's default name."""
        return self.plain.name

    @property
    def by(self) -> str | None:
        """The column that decides which value is picked."""
        return getattr(self.plain, "by", None)

    @property
    def nulls(self) -> bool:
        """Whether it takes null values."""
        return getattr(self.plain, "nulls", False)

    @property
    def also(self) -> tuple[str, ...]:
        """The further columns it reads."""
        return getattr(self.plain, "also", ())

    @property
    def where(self) -> Condition | None:
        """Which elements count."""
        return getattr(self.plain, "where", None)

    def bind(
        self,
        type: pa.DataType | None,
        dtype: DTypeLike,
        by: DTypeLike | None = None,
        also: Sequence[Read] = (),
    ) -> Aggregate:
        """Return the aggregate for columns of these Arrow types and dtypes."""
        if (make := getattr(self.plain, "make_signed", None)) is not None:
            subtracts: Aggregate = make(type, dtype)
            return subtracts
        valued = self.plain.column is not None and self.plain.needs not in ("nothing", "presence")
        return Retractable(
            dtype, lambda: bound(self.plain, type, dtype, by, also),
            valued=valued, by=by, nulls=self.nulls, also=also,
        )  # fmt: skip


def signed_specs(
    aggregates: Mapping[str, AggregateSpec], *, differences: bool
) -> dict[str, AggregateSpec]:
    """Return the aggregates in a form that accepts retractions, by output name (S-C4).

    Args:
        aggregates: The aggregates of the panes, by output name.
        differences: Whether panes contain only the change since the last pane (discarding).

    Raises:
        InvalidArgument: Panes contain changes, but the change of an aggregate cannot be expressed
            as a value of its own (S-C5).
    """
    for name, spec in aggregates.items():
        if differences and not getattr(spec, "differs", False):
            raise InvalidArgument(
                f"{name}={spec!r} cannot be discarded between panes: this input has retractions, "
                "and a pane with only the change cannot correct what an earlier pane emitted",
                where="window(accumulation='discarding')",
                hint='Use accumulation="retracting" or "accumulating", or only count() and sum()',
            )
    return {name: Signed(spec) for name, spec in aggregates.items()}
