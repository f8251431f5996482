"""The operator of windows of a number of records, in bundles of columns (C-1 to C-4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import numpy as np

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.counted.places import Arrivals, Places
from lowwater.engine.keyed.operator import KeyedOperator, SidesAdvance
from lowwater.engine.keyed.records import KeyedRecords
from lowwater.engine.keyed.sides import Side
from lowwater.engine.keyed.spilled import SpilledKeys
from lowwater.engine.records.stage_output import NOTHING, StageOutput, only
from lowwater.engine.records.steps import INSERT, ON_TIME, Bundle, PaneBatch
from lowwater.state.store import StateStore
from lowwater.state.table import Field
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array
from lowwater.watermark import Hold
from lowwater.windows.counted import CountWindows

_PAIRS_AT_ONCE = 1 << 20
"""How many pairs of a record and a window are made at once."""


@final
class CountOperator(KeyedOperator):
    """Counts the records of each key into windows, and emits a pane for each that is full.

    Each open window is a row: ``number`` is how many records of its key were before its first one,
    ``seen`` how many it has, ``low`` and ``high`` are the least and the greatest event time of
    them, and ``last`` is that of the last to come. All open windows of a key have its last record.
    So what a key has is the same after each record, however records are cut into bundles.

    Args:
        windows: The windows.
        aggregates: What panes hold, by name.
        watermark: Input watermark to begin with, int microseconds.
        clock: Clock to begin with, int microseconds.
    """

    def __init__(
        self,
        windows: CountWindows,
        aggregates: Mapping[str, AggregateSpec],
        *,
        watermark: int = START_OF_TIME,
        clock: int = START_OF_TIME,
    ) -> None:
        self.windows = windows
        names = ("number", "seen", "low", "high", "last")
        fields = [Field(name, np.int64) for name in names]
        self._open = KeyedRecords({}, fields, aggregates=aggregates)
        self._arrivals = 0
        super().__init__(
            (self._open,), signed=False, retracts=False, watermark=watermark, clock=clock
        )
        # While the input ends, and what is due then leaves the store in portions: up to where.
        self._ending: int | None = None

    def hold(self) -> Hold | None:
        """Return ``None``: windows that are not full hold nothing (C-3)."""
        return None

    def due_times(self) -> Int64Array:
        """Return the end of time for each window in memory: no watermark makes one due."""
        return np.full(len(self._open.table), END_OF_TIME)

    def next_due(self) -> int:
        """Return the end of time: no watermark makes a window due."""
        return END_OF_TIME

    def _take_up(self, facts: Mapping[str, int]) -> None:
        self._arrivals = facts["arrivals"]

    def waits(self, side: int, rows: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
        # Windows leave the store by this as the input ends; no watermark makes them due before.
        never = np.full(len(rows), END_OF_TIME)
        return self._open.table["high"][rows], never, never

    def readmitted(self, side: int, rows: Int64Array) -> None:
        """Open windows wait for records alone."""

    def load_due(self, store: StateStore, to: int, right: int) -> SidesAdvance | None:
        return super().load_due(store, to, right) if to == END_OF_TIME else None

    def _load_last(self, store: StateStore, spilled: SpilledKeys) -> int | None:
        self._ending = spilled.load_last(store, spilled.dues, 0)
        return self._ending

    def _facts(self) -> dict[str, int]:
        return {**super()._facts(), "arrivals": self._arrivals}

    # -- records that come ---------------------------------------------------------------------

    def _take(self, side: Side, bundle: Bundle) -> StageOutput:
        if not len(bundle):
            return NOTHING
        _, keys = self._encode(bundle)
        self.admitted += len(bundle)
        portion = max(1, _PAIRS_AT_ONCE // self.windows.overlap)
        panes = []
        for first in range(0, len(bundle), portion):
            part, its = bundle, keys
            if len(bundle) > portion:
                some = np.arange(first, min(first + portion, len(bundle)))
                part, its = bundle.take(some), keys[some]
            if (filled := self._counted(part, its)) is not None:
                panes.append(filled)
        return self._done(panes)

    def _counted(self, bundle: Bundle, keys: Int64Array) -> PaneBatch | None:
        """Add records to their windows; return the panes of those that are full.

        A window that begins and fills here takes a row for as long as it is aggregated, and no
        place among the open ones.
        """
        count, every = self.windows.count, self.windows.step
        table = self._open.table
        arrivals = Arrivals.of(keys)
        held = self._open.segments.of_keys(arrivals.keys)
        of_held = np.searchsorted(arrivals.keys, table["key"][held])
        before = np.zeros(len(arrivals.keys), dtype=np.int64)
        before[of_held] = table["number"][held] + table["seen"][held]
        places = Places.of(arrivals, before, count, every)
        rows = np.full(len(places.key), -1, dtype=np.int64)
        least = (places.number[places.lowest] // every)[of_held]
        rows[places.lowest[of_held] + table["number"][held] // every - least] = held
        new = np.flatnonzero(rows < 0)
        passing = new[places.is_full[new]]
        staying = new[~places.is_full[new]]
        # By arrival of their first records, whatever the ids of keys.
        staying = staying[np.argsort(arrivals.order[places.first[staying]], kind="stable")]
        rows[passing] = table.allocate(len(passing))
        times = bundle.times
        starts = times[arrivals.order[places.first[staying]]]
        rows[staying] = self._open.insert(arrivals.keys[places.key[staying]], starts, {}, None)
        table["number"][rows[new]] = places.number[new]
        table["key"][rows[passing]] = arrivals.keys[places.key[passing]]
        table["low"][rows[new]], table["high"][rows[new]] = END_OF_TIME, START_OF_TIME
        by_key = times[arrivals.order]
        low, high = _extremes(by_key, places)
        table["low"][rows] = np.minimum(table["low"][rows], low)
        table["high"][rows] = np.maximum(table["high"][rows], high)
        table["seen"][rows] += places.stop - places.first
        table["last"][rows] = by_key[places.stop - 1]
        element, window = places.pairs(arrivals, before, count, every)
        arrival = self._arrivals + np.arange(len(bundle), dtype=np.int64)
        self._arrivals += len(bundle)
        self._open.aggregation.add(bundle, element, rows[window], arrival)
        self._open.touch(held)  # those that begin here are noted already
        full = np.flatnonzero(places.is_full)
        if not full.size:
            return None
        filled = arrivals.order[places.stop[full] - 1]
        panes = self._panes(rows[full[np.argsort(filled, kind="stable")]])
        self._open.aggregation.release(rows[passing])
        table.release(rows[passing])
        self._open.remove(held[table["seen"][held] == count])
        return panes

    def _panes(self, rows: Int64Array) -> PaneBatch:
        """Return the panes of windows."""
        assert self.keys is not None
        table, count = self._open.table, len(rows)
        index = np.zeros(count, dtype=np.int64)
        once = np.ones(count, dtype=np.bool_)
        return PaneBatch(
            keys=self.keys.decode(table["key"][rows]),
            start=table["low"][rows],
            end=table["high"][rows] + 1,
            values=self._open.aggregation.results(rows),
            timing=np.full(count, ON_TIME, dtype=np.uint8),
            index=index,
            on_time_index=index,
            is_first=once,
            is_last=once,
            kind=np.full(count, INSERT, dtype=np.uint8),
            timestamp=np.maximum(table["last"][rows], self.output_watermark),
            emitted_at=np.full(count, self.clock, dtype=np.int64),
            watermark=np.full(count, self.watermark, dtype=np.int64),
        )

    # -- the end of the input ------------------------------------------------------------------

    def _advance(self, to: int, right: int) -> StageOutput:
        if self._ending is not None and to == self._ending:
            self._ending = None
            return self._done(self._rest(to))
        if to <= self.watermark:
            return NOTHING
        if to < END_OF_TIME:
            self.watermark = self.output_watermark = to
            return NOTHING
        panes = self._rest(END_OF_TIME)
        self.watermark = self.output_watermark = to
        return self._done(panes)

    def _rest(self, to: int) -> list[PaneBatch]:
        """Remove windows that are not full; return their panes.

        Args:
            to: The greatest event time of those to emit.
        """
        table = self._open.table
        rows = table.live()
        rows = rows[table["high"][rows] <= to]
        if not rows.size:
            return []
        rows = rows[np.lexsort((table["born"][rows], table["high"][rows]))]
        panes = self._panes(rows)
        self._open.remove(rows)
        return [panes]

    def _done(self, panes: list[PaneBatch]) -> StageOutput:
        self._finish(None)
        if not panes:
            return NOTHING
        return StageOutput(only(PaneBatch.concat(panes)))


def _extremes(times: Int64Array, places: Places) -> tuple[Int64Array, Int64Array]:
    """Return the least and the greatest event time of the records of each window.

    Args:
        times: The event times of the records, by key.
        places: The windows.
    """
    bounds = np.empty(2 * len(places.first), dtype=np.intp)
    bounds[::2], bounds[1::2] = places.first, places.stop
    padded = np.append(times, times[-1:])  # a bound may lie behind the last record
    low: Int64Array = np.minimum.reduceat(padded, bounds)[::2]
    high: Int64Array = np.maximum.reduceat(padded, bounds)[::2]
    return low, high
