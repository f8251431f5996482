"""What every operator does, so that whatever hosts one need not know which it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from lowwater.engine.records.stage_output import StageOutput
from lowwater.state.key_layout import StoredPlace
from lowwater.state.store import Batch, StateStore
from lowwater.time import Int64Array
from lowwater.watermark import Hold


class Operator(Protocol):
    """Turns inputs into output by key (S-O1): windows, processes, joins and tables.

    A step does no I/O. Where state may be in a store alone, a host therefore steps through what
    :meth:`prepare` yields, and calls :meth:`settle` afterwards::

        for portion in operator.prepare(store, step):
            output = operator.step(portion)
            ...
        operator.settle(store)

    An advance of the watermark may end before it is done (``is_advancing``), so that a host can
    commit in between; the next one to the same watermark continues it.
    """

    @property
    def watermark(self) -> int:
        """The input watermark, int microseconds."""
        ...

    @property
    def output_watermark(self) -> int:
        """What downstream stages can rely on, int microseconds."""
        ...

    @property
    def clock(self) -> int:
        """The clock, int microseconds."""
        ...

    @property
    def next_deadline(self) -> int:
        """The earliest clock at which anything is to be done, int microseconds."""
        ...

    @property
    def is_advancing(self) -> bool:
        """Whether an advance of the watermark is still to be continued."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether state exceeds its memory limit, and some of it can be spilled."""
        ...

    @property
    def open_windows(self) -> int:
        """How many windows, or other units of state, there are, spilled ones included."""
        ...

    @property
    def state_rows(self) -> int:
        """How many rows of state there are, spilled ones included."""
        ...

    @property
    def admitted(self) -> int:
        """How many records were admitted so far (S-B2)."""
        ...

    @property
    def partly(self) -> int:
        """How many records were dropped from some of their windows and admitted to others."""
        ...

    @property
    def waiting(self) -> int:
        """How many records arrived that are still to be processed."""
        ...

    def next_due(self) -> int:
        """Return the earliest watermark at which anything is to be done, int microseconds.

        Output or released state, if nothing more arrives; the end of time for nothing before the
        end. Of what is in the store alone, nothing is to be done earlier. O(state in memory).
        """
        ...

    def due_times(self) -> Int64Array:
        """Return the watermark at which each unit of state in memory is due next, int64.

        The end of time for what waits for no watermark; nothing where units are not counted so.
        O(state in memory).
        """
        ...

    def hold(self) -> Hold | None:
        """Return what holds the output watermark below the input's, if anything."""
        ...

    def prepare(self, store: StateStore, step: Any) -> Iterator[Any]:
        """Load what a step needs; yield it, or it in portions, each with all that it needs."""
        ...

    def step(self, step: Any) -> StageOutput:
        """Process one input and return its output (S-O1)."""
        ...

    def settle(self, store: StateStore) -> None:
        """Load what holds the output watermark, so that it is known exactly; after steps."""
        ...

    def report_to_trace(self) -> None:
        """Report in outputs from now on what a trace needs: merges of windows, and timers."""
        ...

    def report_replaced(self) -> None:
        """Report in outputs which windows with panes merged into others, if there can be any."""
        ...

    def keep_in_store(self, place: StoredPlace, memory: int | None = None) -> None:
        """Track changes, so that :meth:`save` can write them; call it before the first step.

        Args:
            place: Where: the name of its stage, and the key groups.
            memory: About how many bytes state may take, where it can be spilled; ``None``: any.
        """
        ...

    def save(self, batch: Batch) -> None:
        """Add what changed since the last save to a batch of a store."""
        ...

    def restore(self, store: StateStore) -> bool:
        """Load what was saved, before the first step; return whether there was anything."""
        ...
