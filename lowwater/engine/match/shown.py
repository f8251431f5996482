"""The output of matches that may still be taken back, and what changes of it (P-7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from lowwater.engine.keyed.operator import record_hashes
from lowwater.engine.keyed.records import KeyedRecords
from lowwater.engine.records.columns import Column, Mask
from lowwater.engine.records.steps import Bundle
from lowwater.kernels.positions import repeated
from lowwater.state.arrays import NONE, mixed, run_starts
from lowwater.state.table import Field
from lowwater.time import Int64Array


@final
@dataclass(frozen=True, slots=True)
class Wanted:
    """The output that there should be of some keys; each part has shape (n,).

    Args:
        key: The place of each record's key among the keys, int64, rising.
        times: Their event times, int64.
        begun: The event time of the first row of each one's match, int64.
        identity: A hash of the rows that each is of, int64; equal ones are of the same rows, with
            the same variables.
        stays: Which may still be taken back.
    """

    key: Int64Array
    times: Int64Array
    begun: Int64Array
    identity: Int64Array
    stays: Mask


@final
class Shown:
    """Records that were emitted and may be taken back, in rows of a table."""

    def __init__(self) -> None:
        fields = [Field(name, np.int64) for name in ("identity", "content", "begun")]
        self.records = KeyedRecords({}, fields)

    def of_keys(self, keys: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the rows of some keys, and the place of each one's key."""
        if not len(self.records):
            return NONE, NONE
        counts = self.records.segments.counts(keys)
        return self.records.segments.of_keys(keys), repeated(np.arange(len(keys)), counts)

    def same_rows(self, rows: Int64Array, of: Int64Array, wanted: Wanted) -> tuple[Mask, Mask]:
        """Return which records that are out are of the same rows as one that should be.

        Args:
            rows: What is out.
            of: The place of each one's key.
            wanted: What should be.

        Returns:
            (Of those that are out, of those that should be.) One that may not be taken back any
            more is forgotten.
        """
        out, new = paired(
            mixed([of, self.records.table["identity"][rows]]), mixed([wanted.key, wanted.identity])
        )
        self._forget(rows[out], wanted.stays[new])
        return _mask(out, len(rows)), _mask(new, len(wanted.key))

    def same_content(
        self,
        rows: Int64Array,
        of: Int64Array,
        wanted: Wanted,
        at: Int64Array,
        content: Int64Array,
    ) -> tuple[Mask, Mask]:
        """Return which records that are out are equal to one that should be: they stay as they are.

        Args:
            rows: What is out.
            of: The place of each one's key.
            wanted: What should be.
            at: Which of these are compared.
            content: A hash of each of them.

        Returns:
            (Of those that are out, of those that are compared.)
        """
        table = self.records.table
        out, new = paired(mixed([of, table["content"][rows]]), mixed([wanted.key[at], content]))
        table["identity"][rows[out]] = wanted.identity[at[new]]
        table["begun"][rows[out]] = wanted.begun[at[new]]
        self.records.touch(rows[out])
        self._forget(rows[out], wanted.stays[at[new]])
        return _mask(out, len(rows)), _mask(new, len(at))

    def _forget(self, rows: Int64Array, stays: Mask) -> None:
        self.records.remove(rows[~stays])

    def add(
        self,
        keys: Int64Array,
        wanted: Wanted,
        at: Int64Array,
        columns: dict[str, Column],
        content: Int64Array,
    ) -> None:
        """Keep records that were emitted.

        Args:
            keys: The ids of their keys.
            wanted: What should be out.
            at: Which of it they are.
            columns: Their columns.
            content: A hash of each.
        """
        rows = self.records.insert(keys, wanted.times[at], columns, None)
        table = self.records.table
        table["identity"][rows], table["content"][rows] = wanted.identity[at], content
        table["begun"][rows] = wanted.begun[at]


def content_of(times: Int64Array, columns: dict[str, Column]) -> Int64Array:
    """Return a hash of each record, int64: equal for equal records."""
    hashes = record_hashes(Bundle(times, (), columns))
    return mixed([times, hashes]).view(np.int64)


def paired(left: NDArray[np.uint64], right: NDArray[np.uint64]) -> tuple[Int64Array, Int64Array]:
    """Return the places of equal values on either side, each in at most one pair.

    >>> paired(np.array([5, 7, 5], np.uint64), np.array([7, 5], np.uint64))
    (array([0, 1]), array([1, 0]))
    """
    every = np.concatenate((left, right)).view(np.int64)
    side = repeated(np.array([0, 1]), [len(left), len(right)])
    order = np.lexsort((side, every))
    values, side = every[order], side[order]
    run = np.cumsum(run_starts(values)) - 1 if len(values) else NONE
    # The rank of each among the equal ones of its side.
    rank = np.empty(len(order), dtype=np.int64)
    for one in (0, 1):
        at = np.flatnonzero(side == one)
        first = run_starts(run[at]) if len(at) else np.zeros(0, dtype=np.bool_)
        places = np.arange(len(at))
        rank[at] = places - np.maximum.accumulate(np.where(first, places, 0))
    key = np.lexsort((side, rank, run))
    pairs = (run[key][1:] == run[key][:-1]) & (rank[key][1:] == rank[key][:-1])
    at = np.flatnonzero(pairs)
    found_left, found_right = order[key[at]], order[key[at + 1]] - len(left)
    by = np.argsort(found_left, kind="stable")
    return found_left[by], found_right[by]


def _mask(places: Int64Array, length: int) -> Mask:
    found = np.zeros(length, dtype=np.bool_)
    found[places] = True
    return found
