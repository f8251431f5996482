"""Approximate counts of distinct values: HyperLogLog.

Flajolet, Fusy, Gandouet and Meunier, "HyperLogLog" (2007): a value is hashed to a slot and a rank,
and a register keeps the largest rank of each slot. A *coupon* is a slot and a rank in one integer.
The registers are those of the HLL_8 sketches of Apache DataSketches. The estimate is that of Ertl,
"New cardinality estimation algorithms for HyperLogLog sketches" (2017): it depends on the registers
alone, and these on the set of values alone.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from lowwater.engine.aggregates._base import AggregateInput, State, StateColumn
from lowwater.engine.aggregates._murmur import hashes
from lowwater.engine.aggregates._order import grouped_order
from lowwater.engine.aggregates._tally import Counts, rows_grown
from lowwater.engine.records.columns import Column
from lowwater.kernels import kernels
from lowwater.kernels.positions import repeated
from lowwater.state.arrays import distinct, run_starts
from lowwater.time import Int64Array

_RANKS = 64  # a rank is at most 63
_RANK_BITS = 6
_ADDRESS = np.uint64((1 << 26) - 1)
_ALPHA = 0.5 / np.log(2)


def coupons(values: NDArray[Any], precision: int) -> NDArray[np.int32]:
    """Return the coupon of each value: its slot, and in the lowest 6 bits its rank. O(n).

    Args:
        values: The values, dtype as in :class:`Column`, without nulls.
        precision: There are ``2**precision`` slots.
    """
    low, high = hashes(values)
    slots = (low & _ADDRESS).astype(np.int32) & np.int32((1 << precision) - 1)
    ranks = np.minimum(_leading_zeros(high), 62).astype(np.int32) + np.int32(1)
    return (slots << np.int32(_RANK_BITS)) | ranks


def _leading_zeros(words: NDArray[np.uint64]) -> NDArray[np.uint8]:
    for bits in (1, 2, 4, 8, 16, 32):
        words = words | (words >> np.uint64(bits))
    return np.uint8(64) - np.bitwise_count(words)


@final
class ApproxDistinct:
    """Counts distinct values approximately, from the largest rank of each slot.

    A row holds coupons while they are few, one per slot after each pass, and from then on registers
    alone, as bytes: an eighth of the slots takes about as much as all registers do.

    Args:
        precision: There are ``2**precision`` slots.
    """

    def __init__(self, precision: int) -> None:
        self._precision = precision
        self._slots = 1 << precision
        self.columns = (
            StateColumn("coupons", np.int32, None, bag=True),
            StateColumn("slots", np.int64),
            StateColumn("registers", object, None),
            StateColumn("dense", np.bool_, False),
        )

    def add(self, state: State, batch: AggregateInput) -> None:
        if batch.values is None or not len(batch.rows):
            return
        found = coupons(batch.values, self._precision)
        rows, arrival = batch.rows, batch.arrival
        dense = state["dense"][rows]
        if dense.any():
            self._raise_registers(state, rows[dense], found[dense])
            rows, found, arrival = rows[~dense], found[~dense], arrival[~dense]
        state["coupons"].append(rows, found, arrival)
        grown = rows_grown(state["coupons"], rows, state["slots"])
        if len(grown):
            self._thin_out(state, grown)

    def merge(self, state: State, into: Int64Array, rows: Int64Array) -> None:
        state["coupons"].merge(into, rows)
        kernels().add_at(state["slots"], into, state["slots"][rows])
        registers, dense = state["registers"], state["dense"]
        for target, row in zip(into.tolist(), rows.tolist(), strict=True):
            if not dense[row]:
                continue
            own = registers[target] if dense[target] else None
            registers[target] = registers[row] if own is None else _larger(own, registers[row])
            dense[target] = True
        targets = distinct(into)
        self._empty_into_registers(state, targets[dense[targets]])
        grown = rows_grown(state["coupons"], targets, state["slots"])
        if len(grown):
            self._thin_out(state, grown)

    def result(self, state: State, rows: Int64Array) -> Column:
        owner, held = self._held(state, rows)
        ranks = _rank_counts(owner, held, len(rows), self._slots)
        for at in np.flatnonzero(state["dense"][rows]).tolist():
            whole = np.frombuffer(state["registers"][rows[at]], dtype=np.uint8)
            ranks[at] = np.bincount(whole, minlength=_RANKS)
        return Column(estimates(ranks, self._slots))

    def _held(self, state: State, rows: Int64Array) -> tuple[Int64Array, NDArray[np.int32]]:
        """Return the largest coupon of each row and slot, with the place of its row."""
        held, of_each = state["coupons"].gather(rows)
        return _largest(held, repeated(np.arange(len(rows), dtype=np.int64), of_each))

    def _empty_into_registers(self, state: State, rows: Int64Array) -> None:
        """Raise the registers of rows that have some by their coupons, and drop these."""
        owner, held = self._held(state, rows)
        if len(owner):
            self._raise_registers(state, rows[owner], held)
            state["coupons"].replace(rows, owner[:0], held[:0])

    def _thin_out(self, state: State, rows: Int64Array) -> None:
        """Keep the largest coupon of each slot; rows with many of them get registers."""
        owner, held = self._held(state, rows)
        slots = np.bincount(owner, minlength=len(rows))
        is_dense = (slots > self._slots // 8)[owner]
        if is_dense.any():
            self._raise_registers(state, rows[owner[is_dense]], held[is_dense])
            owner, held = owner[~is_dense], held[~is_dense]
        state["coupons"].replace(rows, owner, held)
        state["slots"][rows] = np.bincount(owner, minlength=len(rows))

    def _raise_registers(self, state: State, rows: Int64Array, found: NDArray[np.int32]) -> None:
        """Raise the registers of rows, which may repeat; create those that are not there."""
        registers, dense = state["registers"], state["dense"]
        order = np.argsort(rows, kind="stable")
        owner, found = rows[order], found[order]
        begins = np.flatnonzero(run_starts(owner))
        slots, ranks = found >> _RANK_BITS, (found & (_RANKS - 1)).astype(np.uint8)
        bounds = [*begins.tolist(), len(owner)]
        for number, row in enumerate(owner[begins].tolist()):
            low, high = bounds[number], bounds[number + 1]
            whole = (
                np.frombuffer(registers[row], dtype=np.uint8).copy()
                if dense[row]
                else np.zeros(self._slots, dtype=np.uint8)
            )
            np.maximum.at(whole, slots[low:high], ranks[low:high])
            registers[row] = whole.tobytes()
        dense[owner[begins]] = True


@final
class DistinctCoupons:
    """Estimates the number of distinct values from counts of their coupons.

    The form for inputs that are retracted: a register forgets all but the largest rank.

    Args:
        precision: There are ``2**precision`` slots.
    """

    def __init__(self, precision: int) -> None:
        self._slots = 1 << precision

    def __call__(self, counts: Counts, rows: int) -> Column:
        """Return the estimate of each row."""
        owner, held = _largest(counts.values, counts.owner)
        ranks = _rank_counts(owner, held, rows, self._slots)
        return Column(estimates(ranks, self._slots))


def _largest(held: NDArray[np.int32], owner: Int64Array) -> tuple[Int64Array, NDArray[np.int32]]:
    """Return the largest coupon of each owner and slot, by owner. O(n log n)."""
    order = grouped_order(owner, held.astype(np.int64))
    owner, held = owner[order], held[order]
    if not len(owner):
        return owner, held
    last = np.append(run_starts(owner, held >> _RANK_BITS)[1:], True)
    return owner[last], held[last]


def _rank_counts(owner: Int64Array, held: NDArray[np.int32], rows: int, slots: int) -> Int64Array:
    """Return how many registers of each row have each rank, int64, shape (rows, 64)."""
    places = owner * _RANKS + (held & (_RANKS - 1))
    counts = np.bincount(places, minlength=rows * _RANKS).reshape(rows, _RANKS)
    counts[:, 0] = slots - counts.sum(axis=1)
    return counts


def _larger(one: bytes, other: bytes) -> bytes:
    pair = (np.frombuffer(each, dtype=np.uint8) for each in (one, other))
    return np.maximum(*pair).tobytes()


def estimates(ranks: Int64Array, slots: int) -> Int64Array:
    """Return the number of distinct values that registers suggest, int64, shape (rows,).

    Args:
        ranks: How many registers of each row have each rank, int64, shape (rows, 64).
        slots: How many registers a row has.
    """
    z = slots * _tau(1 - ranks[:, _RANKS - 1] / slots)
    for rank in range(_RANKS - 2, 0, -1):
        z = 0.5 * (z + ranks[:, rank])
    z = z + slots * _sigma(ranks[:, 0] / slots)
    return np.rint(_ALPHA * slots * slots / z).astype(np.int64)


def _sigma(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``x + sum of x**(2**k) * 2**(k-1)``, which is infinite for 1."""
    y, z = np.ones(len(x)), x.copy()
    power = np.where(x == 1, 0.0, x)
    while True:
        power = power * power
        before = z
        z = z + power * y
        y = y + y
        if np.array_equal(z, before):
            return np.where(x == 1, np.inf, z)


def _tau(x: NDArray[np.float64]) -> NDArray[np.float64]:
    ends = (x == 0) | (x == 1)
    root = np.where(ends, 0.5, x)
    y, z = np.ones(len(x)), 1 - root
    while True:
        root = np.sqrt(root)
        before = z
        y = 0.5 * y
        z = z - (1 - root) ** 2 * y
        if np.array_equal(z, before):
            return np.where(ends, 0.0, z / 3)
