"""A join within windows: both sides are grouped together, and a firing emits pairs (J-7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias, final

import numpy as np
import pyarrow as pa

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.aggregates._column_values import ColumnValues, flattened
from lowwater.engine.join.joining import How
from lowwater.engine.join.pairs import JoinedColumns
from lowwater.engine.keyed.operator import record_hashes
from lowwater.engine.keyed.sides import LEFT, RIGHT, Side
from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.columns import Column, Types
from lowwater.engine.records.pane_table import instants_to_arrow
from lowwater.engine.records.stage_output import Emitted, StageOutput, only
from lowwater.engine.records.steps import INSERT, Bundle, PaneBatch, StepInput
from lowwater.engine.window.operator import WindowOperator
from lowwater.engine.window.windowing import Windowing
from lowwater.kernels.positions import repeated
from lowwater.state.key_layout import StoredPlace
from lowwater.state.store import Batch, StateStore
from lowwater.time import Int64Array
from lowwater.watermark import Hold

WINDOW = ("window_start", "window_end")
"""The columns of the output that say which window a pair is of."""
_SIDES = ("left", "right")
_PRESENT = HIDDEN + "present"
_HASH = HIDDEN + "hash"


@final
class PairedPanes:
    """Makes pairs of the records in panes, which hold the columns of both sides as lists.

    Args:
        how: Which rows come out.
        columns: The columns of both sides, and their names in the output.
        signed: Whether inputs may retract records. A hash of the record is then kept beside each
            value, so that a retraction cancels the same record in every column.
    """

    def __init__(self, how: How, columns: JoinedColumns, *, signed: bool) -> None:
        self._how = how
        self._columns = columns
        self._signed = signed
        self._emits_right = how not in ("semi", "anti")
        # A side of which no column comes out has one all the same, to count its records.
        self._kept: tuple[Types, Types] = (
            columns.left or {_PRESENT: pa.int64()},
            (columns.right if self._emits_right else {}) or {_PRESENT: pa.int64()},
        )

    @property
    def aggregates(self) -> dict[str, AggregateSpec]:
        """What panes hold: the values of each column, by side and name."""
        by = _HASH if self._signed else None
        return {
            _name(side, name): ColumnValues(_name(side, name), by)
            for side in (LEFT, RIGHT)
            for name in self._kept[side]
        }

    def side_bundle(self, side: Side, bundle: Bundle, columns: Mapping[str, Column]) -> Bundle:
        """Return a bundle of one side with the columns that the aggregates read.

        Args:
            side: The side.
            bundle: The bundle; it keeps the columns that windows read.
            columns: The columns of its records, without the keys.
        """
        count = len(bundle)
        found = dict(bundle.values)
        for name, kind in self._kept[side].items():
            column = columns.get(name)
            if name == _PRESENT:
                column = Column(np.zeros(count, dtype=np.int64))
            elif column is None or (column.type is not None and pa.types.is_null(column.type)):
                column = _nulls(count, kind)
            found[_name(side, name)] = column
        if self._signed:
            found[_HASH] = Column(record_hashes(replace(bundle, values=dict(columns))))
        return replace(bundle, values=found)

    def pairs(self, panes: PaneBatch, *, retracts: bool) -> Emitted | None:
        """Return what panes come to; ``None`` if that is nothing.

        Of each pane, pairs come in the order of arrival on the left, then on the right.

        Args:
            panes: The panes.
            retracts: Whether to say which are retractions.
        """
        left, of_left = self._flat(LEFT, panes)
        right, of_right = self._flat(RIGHT, panes)
        pane, at_left, at_right = _rows(self._how, of_left, of_right)
        if not pane.size:
            return None
        labels = {
            name: Column(arrow=instants_to_arrow(bounds[pane]))
            for name, bounds in zip(WINDOW, (panes.start, panes.end), strict=True)
        }
        to_left, to_right = self._columns.names(tuple(left), tuple(right))
        found = {to_left[name]: _taken(column, at_left) for name, column in left.items()}
        if self._emits_right:
            found |= {to_right[name]: _taken(column, at_right) for name, column in right.items()}
        signs = np.where(panes.kind[pane] == INSERT, 1, -1).astype(np.int8) if retracts else None
        keys = tuple(key.take(pane) for key in panes.keys)
        return Emitted(panes.timestamp[pane], keys, {**labels, **found}, signs=signs)

    def _flat(self, side: Side, panes: PaneBatch) -> tuple[dict[str, Column], Int64Array]:
        """Return the columns of a side, the records of all panes, and how many are in each pane."""
        found: dict[str, Column] = {}
        counts = np.zeros(len(panes), dtype=np.int64)
        for name, kind in self._kept[side].items():
            column, counts = flattened(panes.values[_name(side, name)])
            if name != _PRESENT:
                untyped = column.type is not None and pa.types.is_null(column.type)
                found[name] = _nulls(len(column), kind) if untyped else column
        return found, counts


@final
@dataclass(frozen=True, slots=True)
class PanedSide:
    """A bundle of one side of a join within windows.

    Args:
        side: The side.
        bundle: Its elements; ``values`` are the columns that windows read.
        columns: The columns of its records, without the keys.
    """

    side: Side
    bundle: Bundle
    columns: Mapping[str, Column]


WindowJoinInput: TypeAlias = StepInput | PanedSide


@final
class WindowJoinOperator:
    """Groups both sides of a join by key and window, and emits pairs where panes would be (J-7).

    Args:
        windowing: The windows of both sides, and when they fire.
        pairing: Makes pairs of panes.
        signed: Whether inputs may contain retractions (S-C1).
        retracts: Whether the output may.
    """

    def __init__(
        self, windowing: Windowing, pairing: PairedPanes, *, signed: bool, retracts: bool
    ) -> None:
        self.windows = WindowOperator(windowing, pairing.aggregates, signed=signed)
        self._pairing = pairing
        self._retracts = retracts

    @property
    def watermark(self) -> int:
        """The input watermark, int microseconds."""
        return self.windows.watermark

    @property
    def output_watermark(self) -> int:
        """What downstream stages can rely on, int microseconds."""
        return self.windows.output_watermark

    @property
    def clock(self) -> int:
        """The clock, int microseconds."""
        return self.windows.clock

    @property
    def next_deadline(self) -> int:
        """The earliest clock at which a window has a timer, int microseconds."""
        return self.windows.next_deadline

    def due_times(self) -> Int64Array:
        """Return the watermark at which each window in memory is due next."""
        return self.windows.due_times()

    def next_due(self) -> int:
        """Return the watermark at which a window is next due, or the end of time."""
        return self.windows.next_due()

    @property
    def is_advancing(self) -> bool:
        """Whether an advance of the watermark is still to be continued."""
        return self.windows.is_advancing

    @property
    def is_over(self) -> bool:
        """Whether windows exceed their memory limit, and some can be spilled."""
        return self.windows.is_over

    @property
    def open_windows(self) -> int:
        """How many windows there are, spilled ones included."""
        return self.windows.open_windows

    @property
    def state_rows(self) -> int:
        """How many rows of state there are, spilled ones included."""
        return self.windows.state_rows

    @property
    def spilled_rows(self) -> int:
        """How many of them are in the store alone."""
        return self.windows.spilled_rows

    @property
    def admitted(self) -> int:
        """How many records were admitted so far (S-B2)."""
        return self.windows.admitted

    @property
    def partly(self) -> int:
        """How many records were dropped from some of their windows and admitted to others."""
        return self.windows.partly

    @property
    def waiting(self) -> int:
        """How many records are still to be processed: none."""
        return self.windows.waiting

    def hold(self) -> Hold | None:
        """Return what holds the output watermark below the input's, if anything."""
        return self.windows.hold()

    def report_to_trace(self) -> None:
        """Report in steps which windows merged into which, for traces."""
        self.windows.report_to_trace()

    def report_replaced(self) -> None:
        """Do nothing: rows that a merge undoes are retracted."""

    def prepare(self, store: StateStore, step: WindowJoinInput) -> Iterator[WindowJoinInput]:
        """Load the windows that a step needs; an advance may be cut short (``is_advancing``)."""
        if isinstance(step, PanedSide):
            self.windows.load(store, step.bundle)
            yield step
        else:
            yield from self.windows.prepare(store, step)

    def step(self, step: WindowJoinInput) -> StageOutput:
        """Process one input and return its output (S-O1)."""
        if isinstance(step, PanedSide):
            step = self._pairing.side_bundle(step.side, step.bundle, step.columns)
        output = self.windows.step(step)
        if output.panes is None:
            return output
        emitted = self._pairing.pairs(output.panes, retracts=self._retracts)
        return replace(output, outputs=only(emitted), replaced=())

    def settle(self, store: StateStore) -> None:
        """Load what holds the output watermark, so that it is known exactly; after steps."""
        self.windows.settle(store)

    def keep_in_store(self, place: StoredPlace, memory: int | None = None) -> None:
        """Track changes for :meth:`save`, and spill what exceeds a limit of memory."""
        self.windows.keep_in_store(place, memory)

    def save(self, batch: Batch) -> None:
        """Add what changed since the last save to a batch of a store."""
        self.windows.save(batch)

    def restore(self, store: StateStore) -> bool:
        """Load what was saved; return whether there was anything."""
        return self.windows.restore(store)


def _rows(
    how: How, left: Int64Array, right: Int64Array
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Return the rows that panes come to.

    Args:
        how: Which rows come out.
        left: How many records of the left side are in each pane.
        right: How many of the right side.

    Returns:
        The pane of each row; its place among all records of the left side, or -1; and of the right.

    >>> _rows("outer", np.array([2, 1]), np.array([1, 0]))
    (array([0, 0, 1]), array([0, 1, 2]), array([ 0,  0, -1]))
    """
    if how == "semi":
        width, height = np.minimum(right, 1), left
    elif how == "anti":
        width, height = (right == 0).astype(np.int64), left
    else:
        width = np.maximum(right, 1) if how in ("left", "outer") else right
        height = np.maximum(left, 1) if how in ("right", "outer") else left
    count = np.where((left > 0) | (right > 0), height * width, 0)
    pane = repeated(np.arange(len(count), dtype=np.int64), count)
    nth = np.arange(len(pane), dtype=np.int64) - (np.cumsum(count) - count)[pane]
    row, column = np.divmod(nth, np.maximum(width, 1)[pane])
    at_left = np.where(left[pane] > 0, (np.cumsum(left) - left)[pane] + row, -1)
    at_right = np.where(right[pane] > 0, (np.cumsum(right) - right)[pane] + column, -1)
    return pane, at_left, at_right


def _taken(column: Column, at: Int64Array) -> Column:
    """Return values by place, null where that is -1."""
    missing = at < 0
    if not missing.any():
        return column.take(at)
    if column.arrow is not None:
        return Column.from_arrow(column.arrow.take(pa.array(at, mask=missing)))
    if not len(column):
        return _nulls(len(at), column.type)
    taken = column.take(np.where(missing, 0, at))
    valid = ~missing if taken.valid is None else taken.valid & ~missing
    return Column(taken.data, valid, taken.type)


def _nulls(count: int, kind: pa.DataType | None) -> Column:
    """Return nulls, of a type if it is known."""
    if kind is not None and not pa.types.is_null(kind):
        return Column.from_arrow(pa.nulls(count, kind))
    return Column(np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.bool_))


def _name(side: Side, name: str) -> str:
    return f"{_SIDES[side]}:{name}"
