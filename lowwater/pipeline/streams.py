"""The fluent, immutable steps from a source to a pipeline: what, where, when and how."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, final

import pyarrow as pa

from lowwater.engine.aggregates import AggregateSpec, collect
from lowwater.engine.clocks import ArrivalClock, ClockLike
from lowwater.engine.deduplicate import Deduplication
from lowwater.engine.expressions import Expressions
from lowwater.engine.pane_table import RESERVED
from lowwater.engine.records import HIDDEN, Records
from lowwater.engine.runner import Plan
from lowwater.engine.sources import Source
from lowwater.engine.stateless import (
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
from lowwater.engine.windowing import Accumulation, Closing, OnTime, TimestampRule, Windowing
from lowwater.errors import InvalidArgument, describe
from lowwater.pipeline._outline import outline
from lowwater.pipeline.built import Pipeline
from lowwater.time import DurationLike
from lowwater.triggers import Default, Trigger
from lowwater.watermark import WatermarkEstimator
from lowwater.windows import WindowFunction

if TYPE_CHECKING:
    import narwhals as nw

Key: TypeAlias = str | Callable[[Any], Any]

_WHOLE = HIDDEN + "record"


class _OutOfOrder(InvalidArgument, AttributeError):
    """A step was asked for where it cannot come."""


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Stream:
    """Records on their way: made by :func:`lowwater.read_parquet` and its like.

    Every method returns a new stream. Columns are checked as far as they are known beforehand.
    """

    _source: Source
    _time: str
    _timezone: str | None = None
    _watermark: WatermarkEstimator | None = None
    _clock: ClockLike | None = None
    _steps: tuple[Step, ...] = ()
    _schema: pa.Schema | None = None
    _deduplication: Deduplication | None = None

    def __repr__(self) -> str:
        shown = outline(self._source, self._steps, deduplication=self._deduplication)
        return f"Stream({shown})"

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The names of the columns, if they are known without running."""
        if self._schema is None:
            return None
        return tuple(name for name in self._schema.names if not name.startswith(HIDDEN))

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
        clock = self._clock
        keep = (self._time, clock.column) if isinstance(clock, ArrivalClock) else (self._time,)
        return self._with(Select(Expressions(expressions, named), keep))

    def map(self, function: RecordFunction) -> Stream:
        """Replace each record by what a Python function makes of it.

        A record is a mapping of its columns, or a plain value where the source gives those.
        """
        return self._with(Map(_function("map", function)))

    def flat_map(self, function: Callable[[Any], Iterable[Any]]) -> Stream:
        """Replace each record by any number of records that a Python function makes of it."""
        return self._with(FlatMap(_function("flat_map", function)))

    def map_batches(self, function: BatchFunction) -> Stream:
        """Replace batches of records, as Arrow, by what a function makes of them.

        How the stream is cut into batches is not fixed, so rows should not depend on one another.
        """
        return self._with(MapBatches(_function("map_batches", function)))

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
        if self._schema is not None:
            require_names(deduplication.columns, self._schema.names, "deduplicate")
        self._check_order("deduplicate")
        return replace(self, _deduplication=deduplication)

    def key_by(self, *keys: Key) -> KeyedStream:
        """Group by one or several columns, or by what Python functions make of a record."""
        if not keys:
            raise InvalidArgument("key_by needs at least one key", mend='Write key_by("origin")')
        stream = self
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
                    mend='Write key_by("origin"), key_by("origin", "carrier") or key_by(function);'
                    " make a column of an expression with with_columns first",
                )
            column = f"{HIDDEN}key{at}"
            stream = stream._with(AddComputed(column, key))
            columns.append(column)
            names.append("key" if len(keys) == 1 else f"key{at}")
        return stream._keyed(tuple(columns), tuple(names))

    def _keyed(self, columns: tuple[str, ...], names: tuple[str, ...]) -> KeyedStream:
        if self._schema is not None:
            require_names(columns, self._schema.names, "key_by")
        for name in names:
            if names.count(name) > 1 or name in RESERVED:
                raise InvalidArgument(
                    f"a key cannot be called {name!r}: " + _why(name, names),
                    where="key_by",
                    mend="Rename it with with_columns",
                )
        return KeyedStream(self, columns, names)

    def _check_order(self, step: str) -> None:
        """Raise if a step would come behind ``deduplicate``: which copies it sees would matter."""
        if self._deduplication is not None:
            raise InvalidArgument(
                f"{step} comes after deduplicate, which is the last step before key_by",
                where=step,
                mend="Call deduplicate once, after all other steps on records",
            )

    def _with(self, step: Step) -> Stream:
        if not isinstance(step, (AddComputed, AddWhole)):
            self._check_order(_STEPS[type(step)])
        return replace(self, _steps=(*self._steps, step), _schema=_after(step, self._schema))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            hints = {
                "window": 'Group first: .key_by("...").window(...)',
                "aggregate": 'Group first: .key_by("...").window(...).aggregate(...)',
                "group": 'Group first: .key_by("...").window(...).group()',
            }
            raise _no_step("a stream", name, hints)


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KeyedStream:
    """Records grouped by key."""

    _stream: Stream
    _keys: tuple[str, ...]
    _names: tuple[str, ...]

    def __repr__(self) -> str:
        stream = self._stream
        shown = outline(
            stream._source, stream._steps, self._names, deduplication=stream._deduplication
        )
        return f"KeyedStream({shown})"

    def window(
        self,
        windows: WindowFunction | Windowing,
        *,
        trigger: Trigger | None = None,
        accumulation: Accumulation | None = None,
        allowed_lateness: DurationLike = 0,
        closing: Closing = "if_new",
        on_time: OnTime = "always",
        timestamps: TimestampRule = "end",
        allow_data_loss: str | None = None,
    ) -> WindowedStream:
        """Group by windows of event time too, and say when and how they are shown.

        Args:
            windows: Where in event time records are grouped; or a whole :class:`Windowing`, then
                alone.
            trigger: When a window is shown; once it is complete, then with every late bundle,
                unless given.
            accumulation: How the panes of a window relate: ``"discarding"``, ``"accumulating"``
                or ``"retracting"``; to be named when the trigger may fire more than once.
            allowed_lateness: How long after its end a window still takes late records.
            closing: Whether an expiring window is shown again with nothing new.
            on_time: Whether the on-time pane comes even with nothing new.
            timestamps: The event time of a pane.
            allow_data_loss: Why it is fine that the trigger may finish too early (S-R3).
        """
        options: dict[str, Any] = {
            "trigger": trigger,
            "accumulation": accumulation,
            "allowed_lateness": allowed_lateness,
            "closing": closing,
            "on_time": on_time,
            "timestamps": timestamps,
            "allow_data_loss": allow_data_loss,
        }
        if isinstance(windows, Windowing):
            given = [name for name, value in options.items() if value != _DEFAULTS[name]]
            if given:
                raise InvalidArgument(
                    f"window takes either a Windowing or {given[0]}=, not both",
                    mend=f"Use windowing.with_({given[0]}=...)",
                )
            return self._windowed(windows)
        options["trigger"] = Default() if trigger is None else trigger
        return self._windowed(Windowing(windows=windows, **options))

    def _windowed(self, windowing: Windowing) -> WindowedStream:
        schema = self._stream._schema
        if schema is not None:
            require_names(windowing.windows.columns, schema.names, "window")
        return WindowedStream(self, windowing)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            hints = {
                "aggregate": 'Say where in event time first: .window(lw.FixedWindows("1m"))',
                "group": 'Say where in event time first: .window(lw.FixedWindows("1m"))',
            }
            steps = (*_STEPS.values(), "deduplicate", "key_by")
            hints |= dict.fromkeys(steps, f"Call .{name}(...) before the records are keyed")
            raise _no_step("a keyed stream", name, hints)


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class WindowedStream:
    """Records grouped by key and window."""

    _keyed: KeyedStream
    _windowing: Windowing

    def __repr__(self) -> str:
        keyed, stream = self._keyed, self._keyed._stream
        shown = outline(
            stream._source, stream._steps, keyed._names, self._windowing,
            deduplication=stream._deduplication,
        )  # fmt: skip
        return f"WindowedStream({shown})"

    def aggregate(self, *unnamed: AggregateSpec, **named: AggregateSpec) -> Pipeline:
        """Say what panes show: aggregates, by name or by the name of the function.

        ``aggregate(lw.sum("delay"))`` shows a ``sum``; ``aggregate(total=lw.sum("delay"),
        flights=lw.count())`` shows ``total`` and ``flights``.
        """
        aggregates: dict[str, AggregateSpec] = {}
        for spec in unnamed:
            name = _checked("an aggregate", spec).name
            if name in aggregates or name in named:
                raise InvalidArgument(
                    f"two aggregates are called {name!r}",
                    where="aggregate",
                    mend=f"Name them: aggregate(first_{name}=..., second_{name}=...)",
                )
            aggregates[name] = spec
        for name, spec in named.items():
            aggregates[name] = _checked(name, spec)
        if not aggregates:
            raise InvalidArgument(
                "aggregate needs at least one aggregate",
                mend="Write, say, aggregate(n=lw.count()), or use group()",
            )
        return self._built(aggregates, self._keyed._stream)

    def group(self, column: str | None = None, *, name: str = "records") -> Pipeline:
        """Show lists, in order of arrival: of whole records, or of one column's values.

        Args:
            column: The column; left out, whole records (plain values where the source gives
                those).
            name: What panes call the list.
        """
        if column is not None:
            return self._built({name: collect(column)}, self._keyed._stream)
        stream = self._keyed._stream._with(AddWhole(_WHOLE))
        return self._built({name: collect(_WHOLE)}, stream)

    def _built(self, aggregates: Mapping[str, AggregateSpec], stream: Stream) -> Pipeline:
        keyed = self._keyed
        for name in aggregates:
            if name in RESERVED or name in keyed._names:
                why = "that is a key" if name in keyed._names else "panes have that already"
                raise InvalidArgument(
                    f"an aggregate cannot be called {name!r}: {why}",
                    where="aggregate",
                    mend=f"Name it, as in aggregate(my_{name}=...)",
                )
        plan = Plan(
            source=stream._source,
            steps=stream._steps,
            time=stream._time,
            timezone=stream._timezone,
            keys=keyed._keys,
            key_names=keyed._names,
            windowing=self._windowing,
            aggregates=dict(aggregates),
            watermark=stream._watermark,
            deduplication=stream._deduplication,
        )
        types: tuple[pa.DataType, ...] = ()
        if stream._schema is not None:
            plan.ingest("dead_letter").admit(_no_records(stream._schema))
            types = tuple(stream._schema.field(name).type for name in keyed._keys)
        return Pipeline(plan, stream._clock, types)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            hint = "Say what to show first: .aggregate(n=lw.count()) or .group()"
            ends = ("run", "run_batches", "collect", "to_arrow", "to_pandas")
            raise _no_step(
                "a windowed stream",
                name,
                dict.fromkeys((*ends, "write_parquet", "write_jsonl"), hint),
            )


_STEPS: dict[type, str] = {
    Filter: "filter",
    WithColumns: "with_columns",
    Select: "select",
    Map: "map",
    FlatMap: "flat_map",
    MapBatches: "map_batches",
}

_DEFAULTS: dict[str, object] = {
    "trigger": None,
    "accumulation": None,
    "allowed_lateness": 0,
    "closing": "if_new",
    "on_time": "always",
    "timestamps": "end",
    "allow_data_loss": None,
}


def _after(step: Step, schema: pa.Schema | None) -> pa.Schema | None:
    """Return the schema after a step, as far as it can be known; this also checks the step."""
    if schema is None:
        return None
    if isinstance(step, AddComputed):
        return schema.append(pa.field(step.name, pa.null()))
    if isinstance(step, Filter) and not step.vectorised:
        return schema
    if not step.vectorised:
        return None
    made = step.apply(_no_records(schema)).columns
    return pa.schema([(name, column.to_arrow().type) for name, column in made.items()])


def _no_records(schema: pa.Schema) -> Records:
    arrays = [pa.array([], type=field.type) for field in schema]
    return Records.from_arrow(pa.RecordBatch.from_arrays(arrays, names=schema.names))


def _checked(name: str, spec: object) -> AggregateSpec:
    if all(hasattr(spec, part) for part in ("bind", "needs", "column", "name")):
        return spec  # type: ignore[return-value]  # it has all that the Protocol asks for
    if callable(spec):
        mend = f"Call it: lw.{getattr(spec, '__name__', 'sum')}(...)"
    else:
        mend = 'Use, say, lw.sum("delay") or lw.count()'
    raise InvalidArgument(f"{describe(name, spec)} is not an aggregate", mend=mend)


def _function(step: str, function: Any) -> Any:
    if not callable(function):
        raise InvalidArgument(
            f"{describe('function', function)} is not a function",
            where=step,
            mend="Give a Python function",
        )
    return function


def _why(name: str, names: tuple[str, ...]) -> str:
    return "there are two" if names.count(name) > 1 else "panes have a column of that name"


def _no_step(what: str, name: str, hints: Mapping[str, str]) -> _OutOfOrder:
    return _OutOfOrder(f"{what} has no {name!r}", mend=hints.get(name))
