"""Runs the window operator of one key group on the records of one micro-batch."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, final

import numpy as np
import pyarrow as pa

from lowwater.engine.graph.graph import Windowed
from lowwater.engine.graph.metrics import StageMetrics
from lowwater.engine.records.steps import (
    REASONS,
    TIMINGS,
    ClockAdvance,
    EndOfInput,
    StepInput,
    StepOutput,
    WatermarkAdvance,
)
from lowwater.engine.window.operator import WindowOperator
from lowwater.spark.shuffle import (
    SHUFFLE_SCHEMA,
    ShuffledElements,
    from_bytes,
    read_elements,
    to_bytes,
)
from lowwater.spark.signals import CarriedTime
from lowwater.spark.state_backends import LIVE, GroupCell, LiveOperators, StateBackend
from lowwater.spark.types import OutputRows
from lowwater.time import END_OF_TIME, START_OF_TIME
from lowwater.watermark import Observed, WatermarkEstimator

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.state import GroupState

Timers: TypeAlias = Literal["batches", "clock"]

_MS = 1000
_LONG_MS = 10 * 365 * 86_400_000
_SHUFFLE_COLUMNS = SHUFFLE_SCHEMA.names[1:]

PARTS = (
    "events", "early", "on_time", "late_panes", "retractions", "expired", "closed", "unwindowed",
    "dead_letters", "open_windows", "watermark", "clock", "state_bytes",
)  # fmt: skip
"""The counters of each call, int64; instants in microseconds."""
OUTPUT_DDL = "rows binary, " + ", ".join(f"{name} long" for name in PARTS)
OUTPUT_SCHEMA = pa.schema([("rows", pa.binary()), *((name, pa.int64()) for name in PARTS)])
"""The output of a call: an Arrow stream of rows, and the counters."""


@final
@dataclass(frozen=True, slots=True)
class ShuffleRows:
    """All shuffle rows of one key group in one micro-batch, combined.

    Args:
        events: The number of records read, invalid ones included.
        latest: The latest event time of all partitions, int microseconds; ``None`` for none.
        clock: The clock that the records carried, if any.
        watermark: The watermark that the records carried, if any.
        elements: Arrow streams of elements, ordered by partition.
        dead_letters: Arrow streams of dead letters.
    """

    events: int = 0
    latest: int | None = None
    clock: int | None = None
    watermark: int | None = None
    elements: Sequence[bytes] = ()
    dead_letters: Sequence[bytes] = ()

    @classmethod
    def of_table(cls, table: pa.Table) -> ShuffleRows:
        """Combine the shuffle rows of an Arrow table."""
        columns = [table.column(name).to_pylist() for name in _SHUFFLE_COLUMNS]
        return cls.of(_with_ints(zip(*columns, strict=True)))

    @classmethod
    def of(cls, shuffle_rows: Iterable[tuple[Any, ...]]) -> ShuffleRows:
        """Combine shuffle rows. Their order does not matter: Spark does not guarantee one.

        Args:
            shuffle_rows: (partition, sequence, events, latest, clock, watermark, elements,
                dead_letters) each.
        """
        rows = sorted(shuffle_rows, key=lambda row: (row[0], row[1]))
        return cls(
            events=sum(row[2] for row in rows),
            latest=max((row[3] for row in rows if row[3] is not None), default=None),
            clock=max((row[4] for row in rows if row[4] is not None), default=None),
            watermark=max((row[5] for row in rows if row[5] is not None), default=None),
            elements=[row[6] for row in rows if isinstance(row[6], bytes)],
            dead_letters=[row[7] for row in rows if isinstance(row[7], bytes)],
        )


@final
@dataclass(frozen=True, slots=True)
class KeyGroup:
    """The function for ``applyInPandasWithState``: a value that Spark ships to the workers.

    In each micro-batch, in this order: the clock moves to the micro-batch's time, all elements
    arrive as one bundle, the watermark moves to where they put it (S-O8).

    Args:
        stage: The name of the stage, unique in the worker process.
        work: The windowing and aggregates of the stage.
        key_names: The names of the keys in its panes.
        watermark: The watermark estimator; ``None``: no watermark until the input ends.
        schema: The schema of the output rows.
        key_groups: The number of key groups.
        backend: The state backend.
        timers: Whether the clock alone may wake a group.
        ends: Whether a micro-batch without records ends the input.
        carries_clock: Whether records carry the clock, which then stands still without records.
    """

    stage: str
    work: Windowed
    key_names: tuple[str, ...]
    watermark: WatermarkEstimator | None
    schema: pa.Schema
    key_groups: int
    backend: StateBackend
    timers: Timers
    ends: bool
    carries_clock: bool = False

    def __call__(
        self, key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        """Process the shuffle rows of a key group in one micro-batch; yield the output."""
        timed_out = state.hasTimedOut
        shuffle_rows = ShuffleRows() if timed_out else ShuffleRows.of(_shuffle_rows(frames))
        held = None
        if state.exists:
            held = GroupCell.from_row(
                state.get, key_groups=self.key_groups, backend=self.backend.name
            )
        now = int(state.getCurrentProcessingTimeMs()) * _MS
        given, cell, deadline = self.step(
            int(key[0]), held, shuffle_rows, now, ended=self.ends and timed_out
        )
        state.update(cell.to_row())
        if self.ends:
            state.setTimeoutTimestamp(max(1, state.getCurrentWatermarkMs()))
        elif self.timers == "clock":
            state.setTimeoutDuration(_wait_ms(deadline, now))
        yield given.to_pandas()

    def step(
        self,
        key_group: int,
        held: GroupCell | None,
        shuffle_rows: ShuffleRows,
        now: int,
        *,
        ended: bool = False,
        live: LiveOperators = LIVE,
    ) -> tuple[pa.Table, GroupCell, int]:
        """Step one micro-batch; return its output, the new cell and the next deadline.

        Args:
            key_group: The number of the key group.
            held: The stored cell; ``None`` for a new key group.
            shuffle_rows: The input.
            now: The micro-batch's time, int microseconds.
            ended: Whether the input has ended.
            live: The operators that this process still holds.
        """
        kept = None if held is None else live.take(self.stage, key_group, held.stamp)
        if kept is None:
            content = None if held is None else held.content
            kept = self.backend.open(self._operator, key_group, content)
        latest = _later(None if held is None else held.latest, shuffle_rows.latest)
        stepped = self._stepped(kept.operator, shuffle_rows, now, latest, ended=ended)
        content = kept.save()
        # A random stamp, so that the cell differs from every other one, including those written
        # by other attempts at the same micro-batch.
        stamp = uuid.uuid4().bytes
        live.put(self.stage, key_group, stamp, kept)
        cell = GroupCell(self.key_groups, self.backend.name, stamp, latest, content)
        given = stepped.given(kept.operator, shuffle_rows.events, kept.stored_bytes)
        return given, cell, kept.operator.next_deadline

    def once(self, shuffle_rows: ShuffleRows, now: int) -> pa.Table:
        """Process all input at once, to the end of the input; for batch DataFrames."""
        operator = self._operator()
        whole = replace(shuffle_rows, watermark=START_OF_TIME)  # advance only at the end
        stepped = self._stepped(operator, whole, now, None, ended=True)
        return stepped.given(operator, shuffle_rows.events, 0)

    def _operator(self) -> WindowOperator:
        return WindowOperator(self.work.windowing, self.work.aggregates)

    def _stepped(
        self,
        operator: WindowOperator,
        shuffle_rows: ShuffleRows,
        now: int,
        latest: int | None,
        *,
        ended: bool,
    ) -> _Stepped:
        rows = OutputRows(self.schema, self.key_names)
        stepped = _Stepped(rows)
        for dead_letters in shuffle_rows.dead_letters:
            stepped.dead_letters += rows.add_dead_letters(from_bytes(dead_letters))
        elements = read_elements(shuffle_rows.elements, len(self.key_names))
        inputs: list[StepInput] = []
        if shuffle_rows.clock is not None or not self.carries_clock:
            inputs.append(ClockAdvance(now if shuffle_rows.clock is None else shuffle_rows.clock))
        if elements is not None:
            inputs.append(elements.bundle)
        inputs.append(WatermarkAdvance(self._watermark(shuffle_rows, latest, now)))
        if ended:
            inputs.append(EndOfInput())
        for one in inputs:
            stepped.add(operator.step(one), elements)
        return stepped

    def _watermark(self, shuffle_rows: ShuffleRows, latest: int | None, now: int) -> int:
        if shuffle_rows.watermark is not None:
            return shuffle_rows.watermark
        estimator = self.watermark
        if estimator is None or latest is None or isinstance(estimator, CarriedTime):
            return START_OF_TIME
        guess = estimator.start()
        guess.observe(Observed(np.array([latest], dtype=np.int64), {}, now))
        return guess.current(now)


@final
class _Stepped:
    """Collects the output of the steps of one call."""

    def __init__(self, rows: OutputRows) -> None:
        self._rows = rows
        self._metrics = StageMetrics()
        self.dead_letters = 0

    def add(self, output: StepOutput, elements: ShuffledElements | None) -> None:
        """Add the output of one step."""
        if output.late is not None and elements is not None:
            self._metrics.count_late(output.late)
            self._rows.add_late(output.late, elements)
        if output.panes is not None:
            self._metrics.count_panes(output.panes)
            self._rows.add_panes(output.panes)

    def given(self, operator: WindowOperator, events: int, state_bytes: int) -> pa.Table:
        """Return rows and counters as a table of one row."""
        metrics = self._metrics
        parts = (
            events,
            *(metrics.panes[timing] for timing in TIMINGS),
            metrics.retractions,
            *(metrics.late[reason] for reason in REASONS),
            self.dead_letters,
            operator.open_windows,
            operator.watermark,
            operator.clock,
            state_bytes,
        )
        rows = to_bytes(self._rows.table())
        return pa.table(
            {"rows": [rows], **{n: [v] for n, v in zip(PARTS, parts, strict=True)}},
            schema=OUTPUT_SCHEMA,
        )


def _shuffle_rows(frames: Iterable[pd.DataFrame]) -> Iterator[tuple[Any, ...]]:
    for frame in frames:
        columns = [frame[name].tolist() for name in _SHUFFLE_COLUMNS]
        yield from _with_ints(zip(*columns, strict=True))


def _with_ints(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    return ((*row[:3], *map(_maybe_int, row[3:6]), *row[6:]) for row in rows)


def _maybe_int(text: Any) -> int | None:
    return int(text) if isinstance(text, str) else None


def _later(one: int | None, other: int | None) -> int | None:
    known = [at for at in (one, other) if at is not None]
    return max(known) if known else None


def _wait_ms(deadline: int, now: int) -> int:
    """Return the milliseconds to wait for a deadline; one less, as Spark wakes strictly later."""
    if deadline >= END_OF_TIME:
        return _LONG_MS
    return max(1, min(_LONG_MS, -(-(deadline - now) // _MS) - 1))
