"""Scenarios as what Spark reads: a micro-batch per step, time carried in the records.

A row is an element or, without an event time, a heartbeat that says where the clock and the
watermark are. What a scenario leaves open here is only how its columns are typed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, cast, final

import pyarrow as pa
import pyarrow.compute as pc

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.aggregates._conditions import WHERE, with_condition_columns
from lowwater.engine.graph.graph import Flow, Graph, Read, Stage
from lowwater.engine.records.expressions import Expressions
from lowwater.engine.records.panes import Pane
from lowwater.engine.records.python_values import FIRST_DATETIME, LAST_DATETIME
from lowwater.engine.records.stateless import WithColumns
from lowwater.engine.stages.windowed import Windowed
from lowwater.engine.window.windowing import Windowing
from lowwater.spark import CarriedTime, GrowingBackend, InlineBackend, KeptState, StateBackend
from lowwater.spark.level import LevelOptions
from lowwater.spark.level_call import LevelCall, PackCall
from lowwater.spark.levels import Elsewhere, Levels
from lowwater.spark.messages import table_of
from lowwater.spark.output_schema import ColumnTypes, OutputSchema, QueryOutput, schema_of
from lowwater.spark.rows import LEAVES
from lowwater.spark.signals import CarriedSignals
from lowwater.spark.source_packer import SourcePacker
from lowwater.spark.state_backends import Live
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
        ("rank", pa.float64()),
        ("name", pa.string()),
        ("opened", pa.string()),
        ("expires", pa.string()),
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
        return Windowed(self.windowing, with_condition_columns(self.aggregates)[0])

    def stage(self) -> Stage:
        read = Read(Elsewhere(), "time", watermark=CARRIED)
        conditions = with_condition_columns(self.aggregates)[1]
        steps = (WithColumns(Expressions((), conditions), WHERE),) if conditions else ()
        return Stage((Flow(read, steps, "time"),), ("key",), ("key",), self.work)

    @cached_property
    def levels(self) -> Levels:
        return Levels(Graph.of([self.stage()]))

    @cached_property
    def outputs(self) -> OutputSchema:
        """The columns of its rows: panes, late elements and dead letters."""
        stage = self.stage()
        types = ColumnTypes(Graph.of([stage]), [self.input], {})
        return schema_of([(0, QueryOutput(stage))], types, several=False, sides=True)

    def packer(self) -> PackCall:
        """Return what packs its records, for one key group."""
        packer = SourcePacker(
            self.levels, 0, CarriedSignals(CARRIED, "time"), 1, "dead_letter", keep_records=True
        )
        return PackCall(packer, self.outputs, self.input.names)

    def call(
        self,
        backend: StateBackend | None = None,
        query: str = "query",
        memory: int | None = None,
    ) -> LevelCall:
        """Return the function of its only level."""
        options = LevelOptions(
            1, frozenset({0}), keep_records=True, carries_clock=True, memory=memory
        )
        return LevelCall(query, self.levels, 1, options, self.outputs, backend or InlineBackend())

    def packed(self, batch: pa.RecordBatch) -> pa.Table:
        """Return what a micro-batch is packed into."""
        return pa.concat_tables(self.packer()([batch], 0))

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
                **{name: element.columns.get(name) for name in INPUT.names[3:-2]},
            }
            for element in elements
        ]
        rows.append({})
        for row in rows:
            row["at_clock"] = clock
        if watermark != START_OF_TIME:
            rows[-1]["at_watermark"] = watermark
        return pa.RecordBatch.from_pylist(rows, schema=self.input)


@final
@dataclass(frozen=True)
class ApartBackend:
    """State in the cell, as a store of its own: windows may leave memory for it."""

    name: ClassVar[str] = "apart"

    def keep(self, level: int, key_group: int, content: bytes | None) -> KeptState:
        kept: Any = InlineBackend().keep(level, key_group, content)
        kept.is_apart = True
        return cast("KeptState", kept)


def run_directly(
    case: Case, memory: int | None = None, most_in_cell: int | None = None
) -> pa.Table:
    """Run a case through packers and its level, the state written and read again at each step.

    Args:
        case: The case.
        memory: About how many bytes its windows may take. With a limit, what the process held
            after the step before is used every other time.
        most_in_cell: The bytes in the cell at which state moves to a store; ``None``: it is in
            one, if memory is limited.
    """
    backend: StateBackend = InlineBackend() if memory is None else ApartBackend()
    if most_in_cell is not None:
        backend = GrowingBackend(ApartBackend(), most_in_cell)
    call, cell = case.call(backend, memory=memory), None
    held: Live[Any] = Live()
    tables = [case.outputs.schema.empty_table()]
    for at, batch in enumerate(case.micro_batches()):
        packed = case.packed(batch)
        live = held if memory is not None and at % 2 else Live()
        given, cell, _ = call.step(0, cell, bodies_of(packed), 0, ended=False, live=live)
        held = live
        tables += [*leaving(packed), *leaving(given)]
    return pa.concat_tables(tables)


def bodies_of(rows: pa.Table) -> list[bytes]:
    """Return the messages to the level among rows."""
    bodies: list[bytes] = rows.filter(pc.equal(rows.column("level"), 1)).column("body").to_pylist()
    return bodies


def leaving(rows: pa.Table) -> list[pa.Table]:
    """Return the output rows among rows."""
    bodies = rows.filter(pc.equal(rows.column("level"), LEAVES)).column("body").to_pylist()
    return [table_of(body) for body in bodies if body is not None]


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
