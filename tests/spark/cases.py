"""Scenarios as what Spark reads: a micro-batch per step, time carried in the records.

A row is an element or, without an event time, a heartbeat that says where the clock and the
watermark are. What a scenario leaves open here is only how its columns are typed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

import pyarrow as pa

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.graph.graph import Flow, Read, Stage, Windowed
from lowwater.engine.records.panes import Pane
from lowwater.engine.records.python_values import FIRST_DATETIME, LAST_DATETIME
from lowwater.engine.window.windowing import Windowing
from lowwater.spark import CarriedTime
from lowwater.spark.key_group import KeyGroup, ShuffleRows
from lowwater.spark.shuffle import ShuffleWriter, from_bytes
from lowwater.spark.signals import CarriedSignals
from lowwater.spark.state_backends import InlineBackend, LiveOperators
from lowwater.spark.supported import Elsewhere
from lowwater.spark.types import pane_schema, result_types
from lowwater.testing import Scenario
from lowwater.testing._arrivals import Add, ClockMove, ScenarioElement, WatermarkMove
from lowwater.time import END_OF_TIME, START_OF_TIME, Instant
from lowwater.windows import Window

CARRIED = CarriedTime("at_watermark", clock="at_clock")
INPUT = pa.schema(
    [
        ("time", pa.int64()),
        ("key", pa.string()),
        ("value", pa.int64()),
        ("gap", pa.int64()),
        ("at_clock", pa.int64()),
        ("at_watermark", pa.int64()),
    ]
)
UNKNOWN = Instant(END_OF_TIME)  # stands for a null


@final
@dataclass(frozen=True)
class Case:
    """A windowing, a scenario for it, and what panes are to show."""

    windowing: Windowing
    scenario: Scenario
    aggregates: Mapping[str, AggregateSpec]

    @property
    def work(self) -> Windowed:
        return Windowed(self.windowing, self.aggregates)

    def stage(self) -> Stage:
        read = Read(Elsewhere(), "time", watermark=CARRIED)
        return Stage((Flow(read, (), "time"),), ("key",), ("key",), self.work)

    def packer(self) -> ShuffleWriter:
        return ShuffleWriter(
            stage=self.stage(),
            key_groups=1,
            on_error="dead_letter",
            signals=CarriedSignals(CARRIED, "time"),
            keep_records=True,
            max_ahead_us=None,
            partition=lambda: 0,
        )

    def key_group(self) -> KeyGroup:
        types = {field.name: field.type for field in self.input}
        shown = pane_schema(
            {"key": pa.string()}, result_types(self.aggregates, types, {}), tagged=True
        )
        return KeyGroup(
            "stage", self.work, ("key",), CARRIED, shown, 1, InlineBackend(), "batches", ends=False
        )

    def micro_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield what arrives in each step; the clock and the watermark go with it."""
        clock, watermark = int(self.scenario.start), int(self.scenario.watermark_at_start)
        yield self._batch([], clock, watermark)
        for step in self.scenario.steps:
            if step.at is not None:
                clock = max(clock, int(step.at))
            elements: tuple[ScenarioElement, ...] = ()
            match step:
                case Add(elements):
                    pass
                case WatermarkMove(to):
                    watermark = max(watermark, int(to))
                case ClockMove():
                    pass
                case _:
                    watermark = END_OF_TIME
            yield self._batch(list(elements), clock, watermark)

    @property
    def input(self) -> pa.Schema:
        """The columns of its records: those of one type have that of their values."""
        values = [e.value for e in self.scenario.elements if e.value is not None]
        kind = pa.array(values).type if values else pa.int64()
        return INPUT.set(INPUT.get_field_index("value"), pa.field("value", kind))

    def _batch(self, elements: list[ScenarioElement], clock: int, watermark: int) -> pa.RecordBatch:
        rows: list[dict[str, Any]] = [
            {
                "time": element.time if isinstance(element.time, Instant) else None,
                "key": element.key,
                "value": element.value,
                "gap": element.columns.get("gap"),
            }
            for element in elements
        ]
        rows.append({})
        for row in rows:
            row["at_clock"] = clock
        if watermark != START_OF_TIME:
            rows[-1]["at_watermark"] = watermark
        return pa.RecordBatch.from_pylist(rows, schema=self.input)


def run_directly(case: Case) -> pa.Table:
    """Run a case through packers and key groups, the state written and read again at each step."""
    packer, group = case.packer(), case.key_group()
    cell = None
    tables = [group.schema.empty_table()]
    for batch in case.micro_batches():
        live = LiveOperators()
        table = pa.Table.from_batches(list(packer(iter([batch]))))
        given, cell, _ = group.step(0, cell, ShuffleRows.of_table(table), 0, live=live)
        tables.append(from_bytes(given.column("rows")[0].as_py()))
    return pa.concat_tables(tables)


def panes_of(table: pa.Table, names: tuple[str, ...]) -> list[Pane]:
    """Return the panes among rows as Python values."""
    rows = [row for row in _micros(table).to_pylist() if row["output"] == "pane"]
    return [
        Pane(
            key=row["key"],
            window=Window(Instant(row["window_start"]), Instant(row["window_end"])),
            values={name: row[name] for name in names},
            timing=row["timing"],
            index=row["index"],
            on_time_index=row["on_time_index"],
            is_first=row["is_first"],
            is_last=row["is_last"],
            kind=row["kind"],
            timestamp=Instant(row["timestamp"]),
            emitted_at=UNKNOWN if row["emitted_at"] is None else Instant(row["emitted_at"]),
            watermark=UNKNOWN if row["watermark"] is None else Instant(row["watermark"]),
        )
        for row in rows
    ]


def near(at: int) -> Instant:
    """Return an instant as it comes through a column of timestamps: within the years 1 to 9999."""
    return Instant(min(max(int(at), FIRST_DATETIME), LAST_DATETIME))


def known(at: int) -> Instant:
    """Return when a pane was emitted as it comes through rows: infinities are nulls there."""
    return Instant(at) if FIRST_DATETIME < at < LAST_DATETIME else UNKNOWN


def wanted_panes(panes: list[Pane]) -> list[Pane]:
    """Return panes as they can come through a column of timestamps: not beyond year 9999."""
    return [
        Pane(
            key=pane.key,
            window=Window(near(pane.window.start), near(pane.window.end)),
            values=pane.values,
            timing=pane.timing,
            index=pane.index,
            on_time_index=pane.on_time_index,
            is_first=pane.is_first,
            is_last=pane.is_last,
            kind=pane.kind,
            timestamp=near(pane.timestamp),
            emitted_at=known(pane.emitted_at),
            watermark=known(pane.watermark),
        )
        for pane in panes
    ]


def late_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return the late elements among rows: (record, key, window start, end, reason)."""
    return [
        (row["record"], row["key"], row["window_start"], row["window_end"], row["reason"])
        for row in _micros(table).to_pylist()
        if row["output"] == "late"
    ]


def letters_of(table: pa.Table) -> list[str]:
    """Return the reasons of dead letters."""
    return [row["reason"] for row in table.to_pylist() if row["output"] == "dead_letter"]


def _micros(table: pa.Table) -> pa.Table:
    fields = [
        field.with_type(pa.int64()) if pa.types.is_timestamp(field.type) else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))
