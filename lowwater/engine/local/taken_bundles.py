"""The bundles that a stage has processed, as a trace keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import final

import numpy as np
from numpy.typing import NDArray

from lowwater.engine.graph.trace import TracedSide
from lowwater.engine.records.batch import Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.stage_bundle import StageBundle
from lowwater.engine.records.steps import Bundle, LateBatch
from lowwater.time import Int64Array


@final
@dataclass(frozen=True, slots=True)
class TakenBundle:
    """A bundle that a stage has processed.

    Args:
        bundle: The elements that arrived, duplicates included.
        kept: Indices of the elements that are not duplicates, int64; ``None`` for all.
        late: The elements that were dropped, by index among those kept.
        records: The batch that contains the elements.
        rows: Row of each element in ``records``, int64, shape (n,).
        watermark: The input watermark when they arrived.
        clock: The clock when they arrived.
        side: The side of a join that they came to.
    """

    bundle: Bundle
    kept: Int64Array | None
    late: LateBatch | None
    records: Records
    rows: Int64Array
    watermark: int
    clock: int
    side: TracedSide | None = None

    @classmethod
    def of(
        cls,
        incoming: StageBundle,
        kept: Int64Array | None,
        late: LateBatch | None,
        watermark: int,
        clock: int,
        side: TracedSide | None = None,
    ) -> TakenBundle:
        """Return a bundle as a stage has just processed it; see the arguments of the class."""
        rows = np.arange(incoming.start, incoming.start + len(incoming.bundle), dtype=np.int64)
        if incoming.admitted.kept is not None:
            rows = incoming.admitted.kept[rows]
        return cls(incoming.bundle, kept, late, incoming.records, rows, watermark, clock, side)

    def __len__(self) -> int:
        return len(self.bundle)

    @property
    def places(self) -> Int64Array:
        """Index of each element that is not a duplicate, int64."""
        return np.arange(len(self), dtype=np.int64) if self.kept is None else self.kept

    def take(self, rows: Int64Array) -> TakenBundle:
        """Select elements by index, ascending; what is not selected is released."""
        records = plain(self.records.take(self.rows[rows]))
        own = np.arange(len(rows), dtype=np.int64)
        return self._selected(rows, self.bundle.take(rows), records, own)

    def _selected(
        self, rows: Int64Array, bundle: Bundle, records: Records, own: Int64Array
    ) -> TakenBundle:
        kept, late, places = self.kept, self.late, self.places
        if kept is not None:
            kept = np.flatnonzero(mask_of(kept, len(self))[rows])
        if late is not None:
            dropped = places[late.element]
            selected = np.flatnonzero(mask_of(rows, len(self))[dropped])
            late = _late_at(late, selected)
            place = np.searchsorted(rows, dropped[selected])
            late = replace(late, element=place if kept is None else np.searchsorted(kept, place))
        return TakenBundle(bundle, kept, late, records, own, self.watermark, self.clock, self.side)


def take_together(taken: Sequence[TakenBundle], rows: Sequence[Int64Array]) -> list[TakenBundle]:
    """Select elements of several bundles that are cut from one batch, as :meth:`TakenBundle.take`.

    What they share is selected once for all of them, which costs a fraction of doing it for each.

    Args:
        taken: The bundles, at least one, with the same ``records``.
        rows: Which elements of each to keep, by index, ascending.
    """
    bundles = [each.bundle for each in taken]
    if len(taken) == 1 or not _are_alike(bundles):
        return [each.take(own) for each, own in zip(taken, rows, strict=True)]
    chosen = np.concatenate([each.rows[own] for each, own in zip(taken, rows, strict=True)])
    records = plain(taken[0].records.take(chosen))
    begins = np.cumsum([0, *map(len, bundles)]).tolist()
    of_all = [own + begin for own, begin in zip(rows, begins[:-1], strict=True)]
    bundle = _joined(bundles).take(np.concatenate(of_all))
    own = np.arange(len(chosen), dtype=np.int64)
    bounds = np.cumsum([0, *map(len, rows)]).tolist()
    return [
        each._selected(kept, bundle.slice(start, stop), records, own[start:stop])
        for each, kept, (start, stop) in zip(taken, rows, pairwise(bounds), strict=True)
    ]


def _are_alike(bundles: Sequence[Bundle]) -> bool:
    """Whether joining the columns of bundles leaves all values what they are."""
    first = bundles[0]
    return all(
        len(each.keys) == len(first.keys)
        and each.values.keys() == first.values.keys()
        and (each.signs is None) == (first.signs is None)
        and all(map(_is_alike, each.keys, first.keys))
        and all(_is_alike(column, first.values[name]) for name, column in each.values.items())
        for each in bundles[1:]
    )


def _is_alike(one: Column, other: Column) -> bool:
    if one.arrow is not None and other.arrow is not None:
        return bool(one.type == other.type)
    if one.arrow is not None or other.arrow is not None:
        return False
    return one.type == other.type and one.data.dtype == other.data.dtype


def _joined(bundles: Sequence[Bundle]) -> Bundle:
    signs = [each.signs for each in bundles if each.signs is not None]
    return Bundle(
        np.concatenate([each.times for each in bundles]),
        tuple(map(Column.concat, zip(*(each.keys for each in bundles), strict=True))),
        {
            name: Column.concat([each.values[name] for each in bundles])
            for name in bundles[0].values
        },
        np.concatenate(signs) if signs else None,
    )


def mask_of(places: Int64Array, number: int) -> NDArray[np.bool_]:
    """Return which of so many elements some places are; bool, shape (number,)."""
    found = np.zeros(number, dtype=np.bool_)
    found[places] = True
    return found


def _late_at(late: LateBatch, rows: Int64Array) -> LateBatch:
    return replace(
        late, element=late.element[rows], start=late.start[rows], end=late.end[rows],
        reason=late.reason[rows],
        details=None if late.details is None else [late.details[row] for row in rows.tolist()],
    )  # fmt: skip


def plain(records: Records) -> Records:
    """Return records without what refers to the batch that they were in."""
    return Records(records.columns, records.length)
