"""The columns of a query's result, and the rows that workers make of what leaves the pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructField, StructType

from lowwater.engine.graph.graph import MAIN, Flow, Graph, Read, Stage
from lowwater.engine.graph.input_types import InputTypes
from lowwater.engine.local.outcomes import LateElements
from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.pane_table import (
    EMISSION,
    MICROS_UTC,
    PANE_FIELDS,
    SIGN,
    encoding_of,
    instants_to_arrow,
    known_instants,
    panes_to_arrow,
    records_schema,
    to_values,
)
from lowwater.engine.records.panes import ErrorRecord
from lowwater.engine.records.stage_output import TIME as EMITTED_TIME
from lowwater.engine.records.stage_output import Emitted, Output, emitted_table
from lowwater.engine.records.stateless import schema_after
from lowwater.engine.records.steps import REASONS, PaneBatch
from lowwater.errors import DataError, InvalidArgument, UnsupportedByRunner, describe, nearest
from lowwater.spark.messages import record_text
from lowwater.spark.types import spark_like, spark_schema

OUTPUTS = "lowwater.outputs"
"""Metadata of a column of the result: the names of the outputs that have it."""
PANE, LATE, DEAD_LETTER = "pane", "late", "dead_letter"
SIDES = (LATE, DEAD_LETTER)
_OUTPUT = pa.field("output", pa.string())
_STAGE = pa.field("stage", pa.string())
SIDE_FIELDS = (
    pa.field("reason", pa.string()),
    pa.field("detail", pa.string()),
    pa.field("record", pa.string()),
)
"""Columns that are added to those of outputs when late records and dead letters are included."""
LATE_FIELDS = tuple(
    pa.field(name, MICROS_UTC) for name in ("window_start", "window_end", "timestamp", "watermark")
)
"""Columns of late records, which panes have too."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class QueryOutput:
    """An output of a pipeline.

    Args:
        stage: The stage.
        tag: Which of its outputs.
        name: What rows of it are called, if there are several outputs.
    """

    stage: Stage
    tag: str = MAIN
    name: str = PANE


@final
@dataclass(frozen=True, slots=True)
class OutputSchema:
    """What columns rows have, and which of them are of which output.

    Args:
        schema: All columns.
        columns: The names of the columns of each output, by the number of its node and its tag.
        names: What the rows of each output are called, likewise.
        sides: Whether late records and dead letters are rows too.
        tagged: Whether rows say which output they are of, in the first column.
    """

    schema: pa.Schema
    columns: Mapping[tuple[int, str], tuple[str, ...]]
    names: Mapping[tuple[int, str], str]
    sides: bool
    tagged: bool

    def to_spark(self) -> StructType:
        """Return the schema as Spark's; each column knows which outputs have it."""
        whole = spark_schema(self.schema)
        if not self.tagged:
            return whole
        every = [*self.names.values(), *(SIDES if self.sides else ())]
        fields = []
        for one in whole.fields:
            of = [self.names[at] for at, columns in self.columns.items() if one.name in columns]
            if one.name == _OUTPUT.name:
                of = every
            elif self.sides:
                of += [side for side in SIDES if one.name in _of_side(side, self)]
            fields.append(StructField(one.name, one.dataType, True, {OUTPUTS: of}))
        return StructType(fields)


@final
@dataclass(frozen=True, slots=True)
class ColumnTypes:
    """The types of columns in a graph, as far as they are known before it runs.

    Args:
        graph: The graph.
        sources: The columns of each source, in the order of the graph's.
        given: Types that the user has said, by column, for outputs and for stages before them.
    """

    graph: Graph
    sources: Sequence[pa.Schema]
    given: Mapping[str, pa.DataType]
    _known: dict[Stage, pa.Schema | None] = field(default_factory=dict)

    def of_flow(self, flow: Flow) -> pa.Schema | None:
        """Return the columns of an input after its steps; ``None`` if they are not known."""
        schema: pa.Schema | None
        if isinstance(flow.origin, Read):
            schema = self.sources[self.graph.reads.index(flow.origin)]
        else:
            schema = self._of_stage(flow.origin)
        for step in flow.steps:
            schema = schema_after(step, schema)
        return schema

    def output(self, output: QueryOutput) -> list[pa.Field]:
        """Return the columns of an output.

        Raises:
            UnsupportedByRunner: The type of a column is neither known nor given.
        """
        stage = output.stage
        columns, emitted = self._into(stage), self._emitted(stage)
        # A stage may emit other keys than it has.
        own = {} if emitted is None else {n: emitted.pop(n, None) for n in stage.key_names}
        fields = [
            pa.field(name, self._type(name, own.get(name) or columns.get(key)))
            for name, key in zip(stage.key_names, stage.keys, strict=True)
        ]
        if stage.work.emits_panes:
            fields += [pa.field("window_start", MICROS_UTC), pa.field("window_end", MICROS_UTC)]
        if emitted is not None:
            fields += [pa.field(name, self._type(name, kind)) for name, kind in emitted.items()]
            if stage.work.emits_panes:
                return [*fields, *PANE_FIELDS]
            kinds = [pa.field("kind", pa.string())] if stage.retracts else []
            # A column of that name, as panes have, takes the place of the event time.
            times = [] if "timestamp" in emitted else [pa.field("timestamp", MICROS_UTC)]
            return [*fields, *kinds, *times]
        kinds = [pa.field("kind", pa.string())] if stage.retracts else []
        taken = {"timestamp", *stage.key_names, *(one.name for one in kinds)}
        given = {name: kind for name, kind in self.given.items() if name not in taken}
        fields += [*(pa.field(name, kind) for name, kind in given.items()), *kinds]
        return [*fields, pa.field("timestamp", self.given.get("timestamp", MICROS_UTC))]

    def check_given(self, outputs: Sequence[QueryOutput]) -> None:
        """Raise if a type is given for a column that no output has."""
        if not all(output.stage.work.emits_panes for output in outputs):
            return  # the fields that it emits are not known
        stages = [output.stage for output in outputs]
        known = [name for one in stages for name in (*one.key_names, *one.work.aggregates)]
        for name in self.given:
            if name not in known:
                raise InvalidArgument(
                    f"types= names {name!r}, which is no key and no aggregate of an output",
                    where="to_spark",
                    hint=nearest(name, known),
                )

    def _type(self, name: str, known: pa.DataType | None) -> pa.DataType:
        kind = self.given.get(name) or known
        if kind is None or pa.types.is_null(kind):
            raise UnsupportedByRunner(
                f"the type of {name!r} is not known before the pipeline has run, but Spark must "
                "know it",
                where="to_spark",
                hint=f'Say it, as in to_spark(spark, types={{"{name}": "bigint"}}): "string", '
                '"double", "timestamp", "array<string>" or another type of Spark\'s',
            )
        return kind

    def _into(self, stage: Stage) -> dict[str, pa.DataType]:
        """Return the types of what a stage reads, a join on its left; none if some are unknown."""
        return self._of_flows(stage.left_inputs)

    def _of_flows(self, flows: Sequence[Flow]) -> dict[str, pa.DataType]:
        schemas = [self.of_flow(flow) for flow in flows]
        known = [schema for schema in schemas if schema is not None]
        if not schemas or len(known) < len(schemas):
            return {}
        whole = pa.unify_schemas(known, promote_options="permissive")
        return {one.name: one.type for one in whole}

    def _emitted(self, stage: Stage) -> dict[str, pa.DataType | None] | None:
        """Return the types of what a stage emits besides the keys.

        ``None`` for a process, whose fields are not known, and in place of types that are not.
        """
        left, right = self._of_flows(stage.left_inputs), self._of_flows(stage.right_inputs)
        return stage.work.emitted_types(stage, InputTypes(left, right, self.given))

    def _records(self, stage: Stage, emitted: Mapping[str, pa.DataType | None]) -> pa.Schema | None:
        into = self._into(stage)
        named = zip(stage.key_names, stage.keys, strict=True)
        keys = {
            name: self.given.get(name)
            or into.get(name if key.startswith(HIDDEN) else key)
            or into.get(key)
            for name, key in named
        }
        found = {**keys, **emitted}
        if any(kind is None for kind in found.values()):
            return None
        signs = {SIGN: pa.int64()} if stage.retracts else {}
        return pa.schema(list({**found, EMITTED_TIME: MICROS_UTC, **signs}.items()))

    def _of_stage(self, stage: Stage) -> pa.Schema | None:
        if stage not in self._known:
            self._known[stage] = self._found(stage)
        return self._known[stage]

    def _found(self, stage: Stage) -> pa.Schema | None:
        emitted = self._emitted(stage)
        if emitted is None:
            return None
        if not stage.work.emits_panes:
            return self._records(stage, emitted)
        columns = self._into(stage)
        keys = {
            name: self.given.get(name) or columns.get(key)
            for name, key in zip(stage.key_names, stage.keys, strict=True)
        }
        if any(kind is None for kind in (*keys.values(), *emitted.values())):
            return None
        return records_schema(keys, emitted, signed=stage.retracts)


def _of_side(side: str, schema: OutputSchema) -> set[str]:
    """Return the columns that late records, or dead letters, have."""
    if side == DEAD_LETTER:
        return {one.name for one in SIDE_FIELDS}
    panes = {one.name for one in PANE_FIELDS} - {"timestamp", "watermark"}
    return {*schema.schema.names} - panes


def schema_of(
    outputs: Sequence[tuple[int, QueryOutput]], types: ColumnTypes, *, several: bool, sides: bool
) -> OutputSchema:
    """Return the columns of outputs side by side.

    Args:
        outputs: The outputs, with the numbers of their nodes.
        types: The types of columns.
        several: Whether rows are to say which output they are of.
        sides: Whether late records and dead letters are rows too.

    Raises:
        InvalidArgument: Two outputs have a column of one name and of different types; or names
            differ only by case, which Spark ignores.
    """
    types.check_given([output for _, output in outputs])
    fields: dict[str, pa.Field] = {}
    columns: dict[tuple[int, str], tuple[str, ...]] = {}
    for number, output in outputs:
        own = [one.with_type(spark_like(one.type)) for one in types.output(output)]
        columns[number, output.tag] = tuple(one.name for one in own)
        _require_distinct(columns[number, output.tag], output.stage.key_names)
        for one in own:
            other = fields.setdefault(one.name, one)
            if other.type != one.type:
                raise InvalidArgument(
                    f"the column {one.name!r} is {other.type} in one output and {one.type} in "
                    "another",
                    where="to_spark",
                    hint=f'Rename one, or say one type: to_spark(..., types={{"{one.name}": ...}})',
                )
    if sides and any(stage.windowing is not None for stage in types.graph.stages):
        for one in LATE_FIELDS:  # an output of a process has no windows, stages before it may
            fields.setdefault(one.name, one)
    head = [_OUTPUT] if several or sides else []
    tail = [*([_STAGE] if several and sides else []), *(SIDE_FIELDS if sides else ())]
    keys = tuple(name for _, one in outputs for name in one.stage.key_names)
    _require_distinct(tuple(fields), keys, added=[one.name for one in (*head, *tail)])
    return OutputSchema(
        pa.schema([*head, *fields.values(), *tail]),
        columns,
        {(number, output.tag): output.name for number, output in outputs},
        sides,
        tagged=bool(head),
    )


def _require_distinct(names: Sequence[str], keys: Sequence[str], added: Sequence[str] = ()) -> None:
    """Raise if names of result columns differ only by case, which Spark ignores."""
    taken = {name.casefold() for name in added}
    seen: dict[str, str] = {}
    for name in names:
        if name.casefold() in taken:
            raise InvalidArgument(
                f'{_called(name, keys)} is called as a column that outputs="all", or several '
                "outputs, add",
                where="to_spark",
                hint='Rename it, or leave outputs="all" out',
            )
        other = seen.setdefault(name.casefold(), name)
        if other is not name:
            raise InvalidArgument(
                f"{_called(other, keys)} and {_called(name, keys)} are one name to Spark",
                where="to_spark",
                hint="Rename it",
            )


def _called(name: str, keys: Sequence[str]) -> str:
    return f"the key {name!r}" if name in keys else f"the column {name!r}"


@final
class OutputRows:
    """Collects rows.

    Args:
        schema: What columns they have.
    """

    def __init__(self, schema: OutputSchema) -> None:
        self._schema = schema
        self._parts: list[pa.Table] = []

    def table(self) -> pa.Table | None:
        """Return all rows, in the order of addition; ``None`` for none."""
        return pa.concat_tables(self._parts) if self._parts else None

    def add(self, node: int, tag: str, emitted: Output, keys: Sequence[str]) -> list[ErrorRecord]:
        """Add what a node emitted, if it is an output; see :meth:`_add_records`."""
        name = self._schema.names.get((node, tag))
        if name is None:
            return []
        if isinstance(emitted, PaneBatch):
            self._add_panes(name, emitted, keys)
            return []
        return self._add_records(name, self._schema.columns[node, tag], emitted, keys)

    def _add_panes(self, name: str, panes: PaneBatch, keys: Sequence[str]) -> None:
        batch = panes_to_arrow(panes, keys)
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        # pandas counts nanoseconds, so toPandas fails on the year 9999, which stands for infinity.
        columns |= {one: known_instants(columns[one]) for one in EMISSION}
        self._add(name, columns, len(batch))

    def _add_records(
        self, name: str, columns_told: Sequence[str], emitted: Emitted, keys: Sequence[str]
    ) -> list[ErrorRecord]:
        """Add records.

        Returns:
            The records with a value that is not of the type that was given for its column: they
            are not added.

        Raises:
            DataError: It emitted a field whose type was not given.
        """
        table = emitted_table([emitted], keys)
        for one, kind in zip(table.schema.names, table.schema.types, strict=True):
            if one not in columns_told:
                raise DataError(
                    f"the process emitted a field {one!r}, of which Spark was not told",
                    where="to_spark",
                    hint=f'Say its type: to_spark(spark, types={{"{one}": "{_said(kind)}"}})',
                )
        columns, faults = _as_declared(table, self._schema.schema)
        kept = pa.array(np.setdiff1d(np.arange(table.num_rows), list(faults)), pa.int64())
        if faults:
            columns = {one: column.take(kept) for one, column in columns.items()}
        self._add(name, columns, len(kept))
        rows = emitted.to_list() if faults else []
        return [
            ErrorRecord(rows[row], "wrong_type", detail, f"emit of {name}")
            for row, detail in sorted(faults.items())
        ]

    def add_late(self, stage: Stage, name: str, late: LateElements) -> None:
        """Add late elements of a stage, with the records that contain them."""
        if not self._schema.sides:
            return
        batch = late.batch
        columns = {
            key: column.to_arrow()
            for key, column in zip(stage.key_names, late.keys, strict=True)
            if key in self._schema.schema.names
        }
        for bound, instants in (("window_start", batch.start), ("window_end", batch.end)):
            made = instants_to_arrow(instants)
            columns[bound] = pc.if_else(pa.array(batch.windowed), made, None)
        columns["timestamp"] = instants_to_arrow(late.times)
        at = np.full(len(late), batch.watermark, dtype=np.int64)
        columns["watermark"] = known_instants(instants_to_arrow(at))
        columns["reason"] = pa.array([REASONS[code] for code in batch.reason.tolist()])
        columns["detail"] = pa.array(batch.all_details(), pa.string())
        columns["record"] = pa.array([record_text(r) for r in late.records.rows(late.rows)])
        columns["stage"] = pa.array([name] * len(late))
        self._add(LATE, columns, len(late))

    def add_dead_letters(self, letters: Sequence[ErrorRecord]) -> None:
        """Add dead letters, if they are to be rows."""
        if not self._schema.sides or not letters:
            return
        columns = {
            "reason": pa.array([letter.reason for letter in letters]),
            "detail": pa.array([letter.detail for letter in letters]),
            "record": pa.array([record_text(letter.record) for letter in letters]),
        }
        self._add(DEAD_LETTER, columns, len(letters))

    def _add(self, output: str, columns: dict[str, pa.Array], length: int) -> None:
        if self._schema.tagged:
            columns["output"] = pa.array([output] * length)
        arrays = []
        for one in self._schema.schema:
            made = columns.get(one.name)
            arrays.append(pa.nulls(length, one.type) if made is None else fitted(made, one))
        self._parts.append(pa.Table.from_arrays(arrays, schema=self._schema.schema))


def _said(kind: pa.DataType) -> str:
    """Return a type as Spark writes it; text for one that it lacks."""
    try:
        return str(spark_schema(pa.schema([("_", kind)]))[0].dataType.simpleString())
    except UnsupportedByRunner:
        return "string"


def _as_declared(
    table: pa.Table, declared: pa.Schema
) -> tuple[dict[str, pa.Array | pa.ChunkedArray], dict[int, str]]:
    """Return the columns of a table as the types that were declared, and what does not fit, by row.

    Columns that fit as a whole stay as they are. In others, as where values are of several types,
    each value is judged alone.
    """
    columns: dict[str, pa.Array | pa.ChunkedArray] = {}
    faults: dict[int, str] = {}
    for own, column in zip(table.schema, table.columns, strict=True):
        field = declared.field(own.name)
        if encoding_of(own) is None or pa.types.is_binary(field.type):
            try:
                columns[own.name] = fitted(column, field)
                continue
            except DataError:  # some of the values are not of the type
                pass
        parts = []
        for row, value in enumerate(to_values(own, column)):
            try:
                parts.append(fitted(pa.array([value]), field))
            except (DataError, pa.ArrowException, OverflowError, TypeError, ValueError):
                parts.append(pa.nulls(1, field.type))
                faults.setdefault(
                    row,
                    f"{describe(own.name, value)} is not {field.type}, which to_spark(types=) says "
                    "it is",
                )
        columns[own.name] = pa.concat_arrays(parts) if parts else pa.nulls(0, field.type)
    return columns, faults


def fitted(array: pa.Array | pa.ChunkedArray, field: pa.Field) -> pa.Array | pa.ChunkedArray:
    """Cast a column to the type that was declared to Spark.

    Raises:
        DataError: A value is not of that type.
    """
    if array.type == field.type:
        return array
    try:
        if pa.types.is_string(field.type) and not _is_text(array.type):
            return array.cast(field.type)
        is_exact = not (pa.types.is_temporal(field.type) or pa.types.is_floating(field.type))
        return array.cast(field.type, safe=is_exact)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(
            f"the column {field.name!r} came out as {array.type}, no {field.type}: {error}",
            where="to_spark(types=)",
            hint=f"Say what type {field.name!r} is: to_spark(spark, types=...)",
        ) from error


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
