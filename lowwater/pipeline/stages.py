"""What streams consist of, and the stages that are built on them. Values and checks, no state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, TypeVar, get_args

import pyarrow as pa

from lowwater.engine.aggregates import AggregateSpec, signed_specs
from lowwater.engine.aggregates._base import strictest_needs
from lowwater.engine.aggregates._conditions import WHERE, with_condition_columns
from lowwater.engine.aggregates.built_in import IS_FILLED
from lowwater.engine.graph.clocks import ArrivalClock
from lowwater.engine.graph.graph import Flow, Read, Stage, admission_of, is_signed
from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.deduplicate import Deduplication
from lowwater.engine.records.explode import Explode
from lowwater.engine.records.expressions import Expressions
from lowwater.engine.records.pane_table import (
    MICROS_UTC,
    RESERVED,
    SIGN,
    TIME,
    records_schema,
)
from lowwater.engine.records.stage_output import RECORDS, emitted_table
from lowwater.engine.records.stage_output import TIME as EMITTED_TIME
from lowwater.engine.records.stateless import (
    AddComputed,
    AddWhole,
    WithColumns,
    no_records,
    require_names,
    schema_after,
)
from lowwater.engine.records.stepping import Step
from lowwater.engine.stages.windowed import Windowed
from lowwater.engine.window.aggregation import result_type
from lowwater.engine.window.windowing import Windowing
from lowwater.errors import InvalidArgument, describe, nearest
from lowwater.pipeline.checks import (
    check_adds_up,
    check_no_table,
    inherited_lateness,
)
from lowwater.time import format_duration

if TYPE_CHECKING:
    from lowwater.engine.process.outputs import Order

ResultTypes = Mapping[str, pa.DataType | None]
"""The types of aggregates by name; ``None`` for one that only a run can tell."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class StreamParts:
    """What a stream of records consists of.

    Args:
        _flows: Where the records come from, and the steps on the way; several are a union.
        _schema: The columns, if their types are known without running.
        _deduplication: Which records are duplicates, if any are to be dropped.
        _names: The names of the columns, where only these are known.
        _label: What the stream is called as an output of its own, if it has a name.
    """

    _flows: tuple[Flow, ...]
    _schema: pa.Schema | None = None
    _deduplication: Deduplication | None = None
    _names: tuple[str, ...] | None = None
    _label: str | None = None

    @property
    def _known(self) -> tuple[str, ...] | None:
        """The names of the columns, the hidden ones too, if they are known without running."""
        return self._names if self._schema is None else tuple(self._schema.names)

    def _with(self, step: Step) -> Self:
        if not _is_hidden(step):
            self._check_order(step.method)
        flows = tuple(replace(flow, steps=(*flow.steps, step)) for flow in self._flows)
        schema = schema_after(step, self._schema)
        names = None if schema is not None else step.names_after(self._known)
        return replace(self, _flows=flows, _schema=schema, _names=names)

    def _of(self, parts: Mapping[str, Any]) -> Self:
        """Return another stream of the same kind, of these parts."""
        nothing = {"_schema": None, "_names": None, "_deduplication": None}
        return replace(self, **{**nothing, **parts})

    def _united(self, others: Iterable[StreamParts]) -> Self:
        self._check_order("union")
        flows, schema, names = list(self._flows), self._schema, self._known
        for other in others:
            other._check_order("union")
            flows.extend(other._flows)
            names = _common_names(names, other._known)
            schema = common_schema(schema, other._schema)
        return replace(self, _flows=tuple(flows), _schema=schema, _names=names)

    def _exploded(self, column: object, position: object) -> Self:
        if not isinstance(column, str):
            raise InvalidArgument(
                f"{describe('column', column)} is not the name of a column",
                where="explode",
                hint='Write explode("items"); several lists one after the other',
            )
        known = None if self._known is None else public_names(self._known)
        if known is not None and column not in self._always_selected():
            require_names((column,), known, "explode")
        if column in self._always_selected() or column.startswith(HIDDEN):
            is_time = any(flow.time == column for flow in self._flows)
            raise InvalidArgument(
                f"the column {column!r} has the {'event times' if is_time else 'times of arrival'} "
                "of the records, so it holds no lists",
                where="explode",
                hint="Name the column of lists",
            )
        if position is None:
            return self._with(Explode(column))
        taken = (column, *self._always_selected())
        is_name = isinstance(position, str) and position and not position.startswith(HIDDEN)
        if not is_name or position in taken:
            raise InvalidArgument(
                f"{describe('position', position)} is not a name for a new column",
                where="explode(position=)",
                hint='Write, say, position="place"; event times, times of arrival and the items '
                "keep their columns",
            )
        return self._with(Explode(column, str(position)))

    def _deduplicated(self, deduplication: Deduplication) -> Self:
        if self._known is not None:
            require_names(deduplication.columns, self._known, "deduplicate")
        self._check_order("deduplicate")
        if any(is_signed(flow) for flow in self._flows):
            raise InvalidArgument(
                "deduplicate comes after a stage that retracts panes: a pane and its retraction "
                "have the same id",
                where="deduplicate",
                hint="Drop duplicates before the first window",
            )
        return replace(self, _deduplication=deduplication)

    def _check_order(self, step: str) -> None:
        """Raise if a step would come after ``deduplicate``: which copies it sees would matter."""
        if self._deduplication is not None:
            raise InvalidArgument(
                f"{step} comes after deduplicate, which is the last step before key_by or a join",
                where=step,
                hint="Call deduplicate once, after all other steps on records",
            )

    def _always_selected(self) -> tuple[str, ...]:
        """Return the columns that ``select`` leaves in any case: event times and arrivals."""
        reads = [flow.origin for flow in self._flows if isinstance(flow.origin, Read)]
        clocks = (read.clock for read in reads)
        arrival = (clock.column for clock in clocks if isinstance(clock, ArrivalClock))
        return (*dict.fromkeys(flow.time for flow in self._flows), *arrival)


def _is_hidden(step: Step) -> bool:
    """Whether a step only adds columns that users never see."""
    if isinstance(step, WithColumns):
        return step.is_hidden
    return isinstance(step, (AddComputed, AddWhole))


StreamT = TypeVar("StreamT", bound=StreamParts)

_LONGEST_NAME = 1_000


def checked_name(name: object, example: str) -> str:
    """Return a name that a user has given to a source or a stage, or raise."""
    if not isinstance(name, str) or not name:
        raise InvalidArgument(
            f"{describe('name', name)} is not a name", hint=f"Write, say, named({example!r})"
        )
    if len(name) > _LONGEST_NAME:
        raise InvalidArgument(
            f"{describe('name', name)} is too long: metrics, errors and stored state contain names",
            hint=f"Write, say, named({example!r})",
        )
    return name


def with_conditions(
    stream: StreamT, aggregates: Mapping[str, AggregateSpec]
) -> tuple[StreamT, dict[str, AggregateSpec]]:
    """Return a stream with the columns of conditions, and the aggregates, which read these.

    Raises:
        InvalidArgument: A condition reads a column that is missing, or its result is not bool.
    """
    ready, columns = with_condition_columns(aggregates)
    if not columns:
        return stream, ready
    stream = stream._with(WithColumns(Expressions((), columns), WHERE))
    for name, spec in ready.items():
        where = getattr(spec, "where", None)
        if where is None or stream._schema is None:
            continue
        kind = stream._schema.field(where.column).type
        if not (pa.types.is_boolean(kind) or pa.types.is_null(kind)):
            raise InvalidArgument(
                f"the condition of {name}={spec!r} has type {kind}, not bool",
                where=WHERE,
                hint='Compare something, as in where=lw.col("price") < 10',
            )
    return stream, ready


def check_names(aggregates: Iterable[str], keys: tuple[str, ...]) -> None:
    """Raise if an aggregate is called as a key is, or as a column that panes have."""
    for name in aggregates:
        if name in RESERVED or name in keys:
            why = "that is a key" if name in keys else "panes have that already"
            raise InvalidArgument(
                f"an aggregate cannot be called {name!r}: {why}",
                where="aggregate",
                hint=f"Name it, as in aggregate(my_{name}=...)",
            )


def window_stage(
    stream: StreamParts,
    keys: tuple[str, ...],
    names: tuple[str, ...],
    windowing: Windowing,
    aggregates: Mapping[str, AggregateSpec],
) -> Stage:
    """Return the stage of windows and aggregates, checked as far as can be without running."""
    check_names(aggregates, names)
    check_adds_up(stream._flows)
    if windowing.fill is not None and IS_FILLED in (*aggregates, *names):
        what = "an aggregate" if IS_FILLED in aggregates else "a key"
        raise InvalidArgument(
            f"{what} cannot be called {IS_FILLED!r}: panes of filled windows have that",
            where="aggregate",
            hint=f"Give it another name, such as my_{IS_FILLED}",
        )
    work = Windowed(windowing, dict(aggregates))
    stage = Stage(stream._flows, keys, names, work, stream._deduplication)
    if stage.signed:  # can the aggregates be computed from what is added and retracted?
        signed_specs(aggregates, differences=windowing.shows_differences)
    if stream._known is not None:
        require_names(strictest_needs(aggregates), stream._known, "aggregate")
    return stage


def pane_types(
    stage: Stage, aggregates: Mapping[str, AggregateSpec], schema: pa.Schema | None
) -> tuple[tuple[pa.DataType, ...], ResultTypes | None]:
    """Return the types of a stage's keys and aggregates, as far as its input's are known.

    Raises:
        InvalidArgument: The stage cannot take its input's types.
    """
    if schema is None:
        return (), None
    try:
        admission_of(stage, 0, "dead_letter").admit(no_records(schema))
    except InvalidArgument as error:
        raise _with_place(error, stage, schema) from None
    types = {name: schema.field(name).type for name in schema.names}
    results = {name: result_type(spec, types) for name, spec in aggregates.items()}
    return tuple(types[key] for key in stage.keys), results


def _with_place(error: InvalidArgument, stage: Stage, schema: pa.Schema) -> InvalidArgument:
    """Return an error about a column of text that also says which value made it one."""
    for flow in stage.inputs:
        if not isinstance(flow.origin, Read) or flow.steps:
            continue
        first_odd: Callable[[str], tuple[str, str] | None] | None
        first_odd = getattr(flow.origin.source, "first_odd", None)
        if first_odd is None:
            continue
        for name in (field.name for field in schema if pa.types.is_string(field.type)):
            if error.what.startswith(f"the column {name!r} is ") and (odd := first_odd(name)):
                place, text = odd
                what = f"{error.what}, and its value {text!r} is none"
                return InvalidArgument(what, where=place, hint=error.hint)
    return error


def process_stage(
    stream: StreamParts,
    keys: tuple[str, ...],
    names: tuple[str, ...],
    process: object,
    windowing: Windowing | None,
    order: Order,
) -> Stage:
    """Return the stage of a process, checked.

    Raises:
        InvalidArgument: The object is no process, or not one for these windows; or the order is
            not known, or not one for this lateness.
    """
    from lowwater.engine.process.definition import Definition
    from lowwater.engine.process.outputs import Order
    from lowwater.engine.stages.computed import Computed, kind_taken

    if order not in get_args(Order):
        raise InvalidArgument(
            f"{describe('order', order)} is not known",
            where="process(order=)",
            hint='Use "arrival" or "event_time"',
        )
    if order == "event_time" and windowing is not None:
        if windowing.lateness_us > inherited_lateness(stream._flows):
            raise InvalidArgument(
                f"allowed_lateness={format_duration(windowing.lateness_us)!r} has no meaning in "
                "event-time order, in which no late record is accepted",
                where="process(order=)",
                hint="Leave it out; a watermark with more patience waits for more records",
            )
        windowing = windowing.with_(allowed_lateness=0)
    if order == "event_time":
        check_no_table(stream._flows, "process(order=)")
    definition = Definition.of(process, windowing)
    work = Computed(
        process, windowing, definition.outputs, definition.retracts, definition.lateness_us, order
    )
    stage = Stage(stream._flows, keys, names, work, stream._deduplication)
    if stage.signed and "kind" in (stream._known or ()):
        raise kind_taken()
    return stage


def passing_stage(stream: StreamParts) -> Stage:
    """Return the stage of a stream that is run by itself."""
    from lowwater.engine.stages.passed import Passed

    stage = Stage(stream._flows, (), (), Passed(), stream._deduplication)
    return stage if stream._label is None else replace(stage, name=stream._label)


def no_passed_records(stage: Stage, schema: pa.Schema | None) -> pa.Table:
    """Return the table without rows of a stream that is run by itself."""
    if schema is None:
        return emitted_table((), ())
    fields = {name: schema.field(name) for name in public_names(tuple(schema.names))}
    if stage.retracts:
        fields["kind"] = pa.field("kind", pa.string())
    fields.setdefault("timestamp", pa.field("timestamp", MICROS_UTC))
    return pa.Table.from_batches([], pa.schema(list(fields.values()), RECORDS))


def panes_as_records(
    stage: Stage, key_types: Sequence[pa.DataType], results: ResultTypes | None
) -> dict[str, Any]:
    """Return the parts of the stream of a stage's panes (S-H1): its flow, and what is known."""
    flows = (Flow(stage, (), TIME),)
    known = {name: kind for name, kind in (results or {}).items() if kind is not None}
    if results is not None and len(known) == len(results):
        keys = dict(zip(stage.key_names, key_types, strict=True))
        return {"_flows": flows, "_schema": records_schema(keys, known, signed=stage.retracts)}
    some: dict[str, pa.DataType] = dict.fromkeys(stage.work.aggregates, pa.null())
    keys = dict.fromkeys(stage.key_names, pa.null())
    names = records_schema(keys, some, signed=stage.retracts).names
    return {"_flows": flows, "_names": tuple(names)}


def emitted_as_records(
    stage: Stage, types: Mapping[str, pa.DataType | None] | None
) -> dict[str, Any]:
    """Return the parts of the stream of what a stage emits: its flow, and what is known of it.

    Args:
        stage: A stage that emits records.
        types: Its columns, with their types where these are known; ``None``: only a run can tell.
    """
    flows = (Flow(stage, (), EMITTED_TIME),)
    if types is None:
        return {"_flows": flows}
    every = {**types, EMITTED_TIME: MICROS_UTC, **({SIGN: pa.int64()} if stage.retracts else {})}
    if any(kind is None for kind in every.values()):
        return {"_flows": flows, "_names": tuple(every)}
    return {"_flows": flows, "_schema": pa.schema(list(every.items()))}


def common_schema(first: pa.Schema | None, second: pa.Schema | None) -> pa.Schema | None:
    """Return the columns of the union of two streams.

    Raises:
        InvalidArgument: The types of a column have no common type.
    """
    if first is None or second is None:
        return None
    try:
        return pa.unify_schemas([first, second], promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InvalidArgument(
            f"the streams of a union differ in the types of their columns: {error}",
            where="union",
            hint="Convert one of them with with_columns",
        ) from error


def _common_names(
    first: tuple[str, ...] | None, second: tuple[str, ...] | None
) -> tuple[str, ...] | None:
    """Return the columns of two streams by name; raise if one has some that the other lacks."""
    if first is None or second is None:
        return None
    public = public_names(first), public_names(second)
    for name in sorted({*public[0]} ^ {*public[1]}):
        without = public[1] if name in public[0] else public[0]
        raise InvalidArgument(
            f"the streams of a union must have the same columns, but one has {name!r} and the "
            "other does not",
            where="union",
            hint=nearest(name, without),
        )
    return tuple(dict.fromkeys((*first, *second)))


def public_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of columns without those that only the library sees."""
    return tuple(name for name in names if not name.startswith(HIDDEN))
