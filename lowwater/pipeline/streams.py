"""Streams of records: the fluent, immutable steps before they are grouped."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, final

import pyarrow as pa

from lowwater.engine.graph.clocks import ArrivalClock, ClockLike
from lowwater.engine.graph.graph import Flow, Read, Windowed, is_signed
from lowwater.engine.graph.outline import outline
from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.deduplicate import Deduplication
from lowwater.engine.records.expressions import Expressions
from lowwater.engine.records.pane_table import RESERVED, TIME, records_schema
from lowwater.engine.records.stateless import (
    AddComputed,
    AddWhole,
    BatchFunction,
    Filter,
    FlatMap,
    Map,
    MapBatches,
    RecordFunction,
    Select,
    Step,
    WithColumns,
    require_names,
)
from lowwater.errors import InvalidArgument, describe, nearest
from lowwater.pipeline.checks import STEPS, checked_function, names_after, no_step, schema_after
from lowwater.pipeline.keyed import KeyedStream
from lowwater.time import DurationLike

if TYPE_CHECKING:
    import narwhals as nw

    from lowwater.pipeline.pipeline import Pipeline
    from lowwater.pipeline.process_stage import Processed

Key: TypeAlias = str | Callable[[Any], Any]


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Stream:
    """Records on their way: made by :func:`lowwater.read_parquet` and its like.

    Every method returns a new stream. Columns are checked as far as they are known beforehand.
    """

    _flows: tuple[Flow, ...]
    _clock: ClockLike | None = None
    _schema: pa.Schema | None = None
    _deduplication: Deduplication | None = None
    _names: tuple[str, ...] | None = None  # of the columns, where their types are not known

    def __repr__(self) -> str:
        return f"Stream({outline(self._flows, deduplication=self._deduplication)})"

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The names of the columns, if they are known without running."""
        known = self._known
        return None if known is None else _shown(known)

    @property
    def _known(self) -> tuple[str, ...] | None:
        """The names of the columns, the hidden ones too, if they are known without running."""
        return self._names if self._schema is None else tuple(self._schema.names)

    def named(self, name: str) -> Stream:
        """Return the same stream, its source called ``name`` in metrics and explanations.

        To be called before anything else: a stream that is used twice is one source only if it
        has its name by then.
        """
        if not isinstance(name, str) or not name:
            raise InvalidArgument(
                f"{describe('name', name)} is not a name", hint='Write, say, named("clicks")'
            )
        flow = self._flows[0]
        if len(self._flows) > 1 or flow.steps or not isinstance(flow.origin, Read):
            raise InvalidArgument(
                "only a stream straight from its source can be named: this is its name",
                where="named",
                hint="Name it where it is read, or name the stage behind it",
            )
        return replace(self, _flows=(replace(flow, origin=replace(flow.origin, name=name)),))

    def filter(self, condition: nw.Expr | Callable[[Any], bool]) -> Stream:
        """Keep the records for which a condition is true; null does not count as true.

        Args:
            condition: A column expression such as ``lw.col("delay") > 5``, which is fast, or a
                Python function of a record.
        """
        return self._with(Filter(condition))

    def with_columns(self, *expressions: nw.Expr, **named: nw.Expr) -> Stream:
        """Add columns by expressions, or replace those of the same name.

        Expressions look at one record at a time: one that aggregates, such as
        ``lw.col("v").sum()``, would see however many records happen to be read together.
        """
        return self._with(WithColumns(Expressions(expressions, named)))

    def select(self, *expressions: nw.Expr | str, **named: nw.Expr) -> Stream:
        """Leave only these columns; those of the event time and the arrival always stay."""
        reads = [flow.origin for flow in self._flows if isinstance(flow.origin, Read)]
        clocks = (read.clock for read in reads)
        arrival = (clock.column for clock in clocks if isinstance(clock, ArrivalClock))
        times = dict.fromkeys(flow.time for flow in self._flows)
        return self._with(Select(Expressions(expressions, named), (*times, *arrival)))

    def map(self, function: RecordFunction) -> Stream:
        """Replace each record by what a Python function makes of it.

        A record is a mapping of its columns, or a plain value where the source gives those.
        """
        return self._with(Map(checked_function("map", function)))

    def flat_map(self, function: Callable[[Any], Iterable[Any]]) -> Stream:
        """Replace each record by any number of records that a Python function makes of it."""
        return self._with(FlatMap(checked_function("flat_map", function)))

    def map_batches(self, function: BatchFunction) -> Stream:
        """Replace batches of records, as Arrow, by what a function makes of them.

        How the stream is cut into batches is not fixed, so rows should not depend on one another.
        Where ``time`` or keys are functions, or the records are panes of a retracting stage, the
        function has to give a row for each, in their order.
        """
        return self._with(MapBatches(checked_function("map_batches", function)))

    def deduplicate(self, *, id: str | tuple[str, ...], within: DurationLike) -> Stream:
        """Drop records whose id was seen before (S-D1); the last step before ``key_by``.

        The first record with an id is kept. The id is remembered until the watermark reaches that
        record's event time plus ``within``; until then whatever else comes with it is dropped and
        counted in ``metrics.duplicates``. Copies that may come later than that need a longer one:
        as long as the allowed lateness, at least. A record without an id is a dead letter.

        Args:
            id: The column of record ids, or several that make up one.
            within: How long an id is remembered; above zero.
        """
        deduplication = Deduplication(id, within)
        if self._known is not None:
            require_names(deduplication.columns, self._known, "deduplicate")
        self._check_order("deduplicate")
        if any(is_signed(flow) for flow in self._flows):
            raise InvalidArgument(
                "deduplicate comes behind a stage that takes panes back: a pane and its retraction "
                "have the same id",
                where="deduplicate",
                hint="Drop duplicates before the first window",
            )
        return replace(self, _deduplication=deduplication)

    def union(self, *others: Stream | Pipeline | Processed) -> Stream:
        """Bring several streams together; also written ``a | b``.

        The watermark behind it is the lowest of theirs (S-H3). Each keeps its own column of event
        times. If they name different clocks, the run has to say which holds: ``run(clock=...)``.

        Args:
            *others: Streams, or pipelines whose panes are meant, with the same columns.

        Raises:
            InvalidArgument: They do not have the same columns.
        """
        self._check_order("union")
        flows, schema, names, clock = list(self._flows), self._schema, self._known, self._clock
        for other in others:
            if not isinstance(other, Stream) and not hasattr(other, "to_stream"):
                raise InvalidArgument(
                    f"{describe('other', other)} is no stream of records",
                    where="union",
                    hint="Unite streams, pipelines (their panes) and processes",
                )
            stream = other if isinstance(other, Stream) else other.to_stream()
            stream._check_order("union")
            flows.extend(stream._flows)
            clock = stream._clock if clock is None else clock
            names = _common_names(names, stream._known)
            schema = common_schema(schema, stream._schema)
        return replace(self, _flows=tuple(flows), _clock=clock, _schema=schema, _names=names)

    def __or__(self, other: Stream | Pipeline | Processed) -> Stream:
        return self.union(other)

    def key_by(self, *keys: Key, **named: nw.Expr) -> KeyedStream:
        """Group by one or several columns, or by what Python functions make of a record.

        Args:
            *keys: Names of columns, or functions of a record.
            **named: Columns to add by expressions, and to group by behind the others:
                ``key_by(day=lw.col("at").dt.date())``; ``key_by(all=lw.lit("all"))`` is one group.
        """
        if not keys and not named:
            raise InvalidArgument(
                "key_by needs at least one key",
                hint='Write key_by("origin"), or key_by(all=lw.lit("all")) for one group of all',
            )
        stream = self.with_columns(**named) if named else self
        columns: list[str] = []
        names: list[str] = []
        for at, key in enumerate(keys):
            if isinstance(key, str):
                columns.append(key)
                names.append(key)
                continue
            if not callable(key):
                raise InvalidArgument(
                    f"{describe('key', key)} is neither the name of a column nor a function",
                    where="key_by",
                    hint='Write key_by("origin"), key_by("origin", "carrier") or key_by(function);'
                    ' key_by(day=lw.col("at").dt.date()) for an expression',
                )
            column = f"{HIDDEN}key{at}"
            stream = stream._with(AddComputed(column, key))
            columns.append(column)
            names.append("key" if len(keys) == 1 else f"key{at}")
        return stream._keyed((*columns, *named), (*names, *named))

    def _keyed(self, columns: tuple[str, ...], names: tuple[str, ...]) -> KeyedStream:
        if self._known is not None:
            require_names(columns, self._known, "key_by")
        for name in names:
            if names.count(name) > 1 or name in RESERVED:
                raise InvalidArgument(
                    f"a key cannot be called {name!r}: " + _why(name, names),
                    where="key_by",
                    hint="Rename it with with_columns",
                )
        return KeyedStream(self, columns, names)

    def _check_order(self, step: str) -> None:
        """Raise if a step would come behind ``deduplicate``: which copies it sees would matter."""
        if self._deduplication is not None:
            raise InvalidArgument(
                f"{step} comes after deduplicate, which is the last step before key_by",
                where=step,
                hint="Call deduplicate once, after all other steps on records",
            )

    def _with(self, step: Step) -> Stream:
        if not isinstance(step, (AddComputed, AddWhole)):
            self._check_order(STEPS[type(step)])
        flows = tuple(replace(flow, steps=(*flow.steps, step)) for flow in self._flows)
        schema = schema_after(step, self._schema)
        names = None if schema is not None else names_after(step, self._known)
        return replace(self, _flows=flows, _schema=schema, _names=names)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            hints = {
                **dict.fromkeys(
                    ("run", "collect", "to_arrow", "to_pandas", "write_parquet", "write_jsonl"),
                    'Group first: .key_by("...").window(...).aggregate(...)',
                ),
                "window": 'Group first: .key_by("...").window(...)',
                "aggregate": 'Group first: .key_by("...").window(...).aggregate(...)',
                "group": 'Group first: .key_by("...").window(...).group()',
            }
            raise no_step("a stream", name, hints)


def as_stream(pipeline: Pipeline) -> Stream:
    """Return the panes of a pipeline as the records of a stream (S-H1)."""
    stage, results = pipeline._stage, pipeline._results
    known = {name: kind for name, kind in (results or {}).items() if kind is not None}
    flows = (Flow(stage, (), TIME),)
    if results is not None and len(known) == len(results):
        keys = dict(zip(stage.key_names, pipeline._key_types, strict=True))
        schema = records_schema(keys, known, signed=stage.retracts)
        return Stream(flows, pipeline._clock, schema)
    assert isinstance(stage.work, Windowed)
    some: dict[str, pa.DataType] = dict.fromkeys(stage.work.aggregates, pa.null())
    keys = dict.fromkeys(stage.key_names, pa.null())
    names = records_schema(keys, some, signed=stage.retracts).names
    return Stream(flows, pipeline._clock, _names=tuple(names))


def common_schema(first: pa.Schema | None, second: pa.Schema | None) -> pa.Schema | None:
    """Return the columns of two streams that come together.

    Raises:
        InvalidArgument: They have types that do not go together.
    """
    if first is None or second is None:
        return None
    try:
        return pa.unify_schemas([first, second], promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InvalidArgument(
            f"streams that come together differ in the types of their columns: {error}",
            where="union",
            hint="Convert one of them with with_columns",
        ) from error


def _common_names(
    first: tuple[str, ...] | None, second: tuple[str, ...] | None
) -> tuple[str, ...] | None:
    """Return the columns of two streams by name; raise if one has some that the other lacks."""
    if first is None or second is None:
        return None
    shown = _shown(first), _shown(second)
    for name in sorted({*shown[0]} ^ {*shown[1]}):
        without = shown[1] if name in shown[0] else shown[0]
        raise InvalidArgument(
            f"streams that come together have the same columns, but one has {name!r} and the other "
            "does not",
            where="union",
            hint=nearest(name, without),
        )
    return tuple(dict.fromkeys((*first, *second)))


def _shown(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if not name.startswith(HIDDEN))


def _why(name: str, names: tuple[str, ...]) -> str:
    return "there are two" if names.count(name) > 1 else "panes have a column of that name"
