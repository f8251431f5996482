"""The fluent, immutable values: streams, keyed and windowed streams, pipelines and processes.

They are in one file because they create one another: a stream is keyed, windowed and aggregated,
and the panes are the records of another stream. Each method returns a new value; nothing runs
before ``run``, ``collect``, ``to_arrow`` or an output is called.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeAlias, final

import pyarrow as pa

from lowwater.engine.aggregates import AggregateSpec, collect
from lowwater.engine.graph.graph import MAIN, Flow, Read, Stage
from lowwater.engine.graph.outline import outline, output_suffix, stage_outline
from lowwater.engine.join.joining import AsOfHow, Between, How, LateVersions, Unmatched
from lowwater.engine.local.delivery import Sink
from lowwater.engine.process import Emitted
from lowwater.engine.process.output import TIME as EMITTED_TIME
from lowwater.engine.process.output import Order, emitted_table
from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.deduplicate import Deduplication
from lowwater.engine.records.pane_table import empty_panes
from lowwater.engine.records.panes import Pane
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
    WithColumns,
    require_names,
)
from lowwater.engine.records.steps import PaneBatch
from lowwater.engine.window.windowing import Accumulation, Closing, OnTime, TimestampRule, Windowing
from lowwater.errors import InternalError, InvalidArgument, describe, explained, nearest
from lowwater.pipeline.checks import (
    STEPS,
    checked_aggregates,
    checked_expressions,
    checked_function,
)
from lowwater.pipeline.forms import BatchT, Element, ElementForm, ItemT, PaneForm
from lowwater.pipeline.joins import (
    JoinInputs,
    as_of_stage,
    join_stage,
    joined_as_records,
    window_join_stage,
)
from lowwater.pipeline.outputs import Writing
from lowwater.pipeline.pane_tables import pane_table
from lowwater.pipeline.runnable import Runnable
from lowwater.pipeline.stages import (
    ResultTypes,
    StreamParts,
    check_keys,
    checked_name,
    no_passed_records,
    pane_types,
    panes_as_records,
    passing_stage,
    process_stage,
    public_names,
    window_stage,
)
from lowwater.pipeline.tables import Table, table_of
from lowwater.pipeline.vocabulary import no_step
from lowwater.pipeline.window_options import WindowOptions
from lowwater.time import DurationLike
from lowwater.triggers import Trigger
from lowwater.windows import WindowFunction

if TYPE_CHECKING:
    import narwhals as nw

Key: TypeAlias = str | Callable[[Any], Any]

_WHOLE = HIDDEN + "record"
_ENDS = (
    *("run", "run_batches", "collect", "to_arrow", "to_arrow_batches", "to_pandas", "to_polars"),
    *("write_parquet", "write_jsonl", "write_to"),
)
_BEFORE_KEYS = ("deduplicate", "join", "join_as_of", "key_by")


class RecordSteps(ABC):
    """The steps on records, shared by everything that yields records.

    These are streams, pipelines (whose panes are records) and processes.
    """

    __slots__ = ()

    @abstractmethod
    def to_stream(self) -> Stream:
        """Return the records as a stream."""

    def filter(self, condition: nw.Expr | Callable[[Any], bool]) -> Stream:
        """Keep the records for which a condition is true; null is not true.

        Args:
            condition: A column expression such as ``lw.col("delay") > 5``, which is fast, or a
                Python function of a record.
        """
        return self.to_stream()._with(Filter(condition))

    def with_columns(self, *expressions: nw.Expr, **named: nw.Expr) -> Stream:
        """Add columns computed by expressions, or replace columns of the same name.

        Use expressions that depend on one record only. The result of one that aggregates, such as
        ``lw.col("v").sum()``, would depend on how the records are batched.
        """
        return self.to_stream()._with(
            WithColumns(checked_expressions("with_columns", expressions, named))
        )

    def select(self, *expressions: nw.Expr | str, **named: nw.Expr) -> Stream:
        """Keep only these columns; the columns of event time and arrival are always kept."""
        stream = self.to_stream()
        chosen = checked_expressions("select", expressions, named)
        return stream._with(Select(chosen, stream._always_selected()))

    def map(self, function: RecordFunction) -> Stream:
        """Replace each record by the result of a Python function.

        A record is a mapping of its columns, or a plain value if the source yields plain values. If
        the function returns ``None`` for a mapping, the record is a dead letter (``null_record``).
        """
        return self.to_stream()._with(Map(checked_function("map", function)))

    def flat_map(self, function: Callable[[Any], Iterable[Any]]) -> Stream:
        """Replace each record by the records that a Python function returns, if any."""
        return self.to_stream()._with(FlatMap(checked_function("flat_map", function)))

    def map_batches(self, function: BatchFunction) -> Stream:
        """Replace batches of records by the result of a function of Arrow batches.

        The batches are cut anywhere in the stream, so rows must not depend on each other. If
        ``time`` or a key is a function, or the records are panes of a retracting stage, the
        function must return one row per record, in the same order.
        """
        return self.to_stream()._with(MapBatches(checked_function("map_batches", function)))

    def deduplicate(self, *, id: str | tuple[str, ...], within: DurationLike) -> Stream:
        """Drop records whose id was seen before (S-D1); the last step before ``key_by`` or a join.

        The first record with an id is kept. Until the watermark reaches its event time plus
        ``within``, other records with that id are dropped, and counted in ``metrics.duplicates``.
        So ``within`` must cover the longest delay of a copy, and at least the allowed lateness. A
        record without an id becomes a dead letter.

        Args:
            id: The column of record ids, or a tuple of columns that form an id.
            within: How long to remember an id, in event time; above zero.
        """
        return self.to_stream()._deduplicated(Deduplication(id, within))

    def union(self, *others: RecordSteps) -> Stream:
        """Merge several streams; also written ``a | b``.

        The watermark of the union is the minimum of theirs (S-H3). Each stream keeps its own
        event-time column. If they name different clocks, choose one with ``run(clock=...)``.

        Args:
            *others: Streams, pipelines (for their panes) or processes, with the same columns.

        Raises:
            InvalidArgument: They do not have the same columns.
        """
        for other in others:
            if not isinstance(other, RecordSteps):
                raise InvalidArgument(
                    f"{describe('other', other)} is not a stream of records",
                    where="union",
                    hint="Unite streams, pipelines (their panes) and processes",
                )
        return self.to_stream()._united(other.to_stream() for other in others)

    @explained(
        by="on",
        key="on",
        keys="on",
        interval="within",
        tolerance="within",
        lateness="allowed_lateness",
        allowedLateness="allowed_lateness",
        window="within",
        windows="within",
        mode="accumulation",
        suffix="suffixes",
    )
    def join(
        self,
        other: RecordSteps,
        *,
        on: str | Sequence[str] | None = None,
        left_on: str | Sequence[str] | None = None,
        right_on: str | Sequence[str] | None = None,
        within: DurationLike | Between | WindowFunction | Windowing,
        how: How = "inner",
        unmatched: Unmatched = "final",
        allowed_lateness: DurationLike | None = None,
        suffixes: tuple[str, str] = ("", "_right"),
        trigger: Trigger | None = None,
        accumulation: Accumulation | None = None,
        closing: Closing = "if_new",
        on_time: OnTime = "always",
        timestamps: TimestampRule = "end",
        allow_data_loss: str | None = None,
    ) -> JoinedStream:
        """Join with another stream: records of equal keys whose event times are close (J-1 to J-6).

        A pair is emitted when its second record arrives. Its event time is the later of the two. A
        record is kept until the watermark says that no partner can come any more.

        ``within=`` a window function joins the records that fall into one window (J-7). Then both
        sides are grouped together, and each firing of a window emits its pairs, with the window's
        bounds in the columns ``window_start`` and ``window_end``.

        >>> import lowwater as lw
        >>> searches = lw.from_iterable([{"at": "2000-01-01T12:00Z", "q": 1}], time="at")
        >>> clicks = lw.from_iterable([{"at": "2000-01-01T12:03Z", "q": 1, "n": 7}], time="at")
        >>> [one.value["n"] for one in searches.join(clicks, on="q", within="5m").run()]
        [7]

        Args:
            other: The right side: a stream, a pipeline (for its panes) or a process.
            on: The key columns, where both sides call them alike.
            left_on: The key columns of the left side; the output calls them so too.
            right_on: The key columns of the right side.
            within: How long after the left record the right one may be; or
                ``lw.between("-5m", "1h")`` for ``right.time - left.time``. Both ends belong to it.
                Or a window function, such as ``lw.Sessions("10m")``.
            how: ``inner``: pairs; ``left``, ``right`` and ``outer``: also the records of one side
                or both that have no partner, with nulls; ``semi``: the left records with a partner,
                once; ``anti``: those without one.
            unmatched: When a record without a partner comes out: ``final``, once none can come any
                more; ``on_time``, when the watermark passes its horizon, to be retracted if a late
                partner comes; ``early``, at once, to be retracted when a partner comes.
            allowed_lateness: How far below the watermark a record may be; by default that of the
                upstream stages, or zero. Later ones go to the late output. In windows: how long
                after its end a window still accepts late records.
            suffixes: What is appended to the name of a column that both sides have.
            trigger: In windows only: when a window fires; this and the following are as for
                :meth:`KeyedStream.window`.
            accumulation: Likewise: how the firings of a window relate.
            closing: Likewise: whether an expiring window fires with nothing new.
            on_time: Likewise: whether it fires on time with nothing new.
            timestamps: Likewise: the event time of what it emits.
            allow_data_loss: Likewise: why it is acceptable that the trigger may finish too early.

        Raises:
            InvalidArgument: An argument is wrong, or a column is missing.
        """
        inputs = self._with_other(
            other, on=on, left_on=left_on, right_on=right_on, suffixes=suffixes, where="join"
        )
        options = WindowOptions(
            trigger, accumulation, allowed_lateness, closing, on_time, timestamps, allow_data_loss
        )
        if isinstance(within, (Windowing, WindowFunction)):
            stage = window_join_stage(
                inputs, within=within, how=how, unmatched=unmatched, options=options
            )
            return _joined(stage, inputs)
        options.refuse_beside_interval()
        stage = join_stage(
            inputs, within=within, how=how, unmatched=unmatched, allowed_lateness=allowed_lateness
        )
        return _joined(stage, inputs)

    @explained(
        by="on",
        key="on",
        keys="on",
        within="tolerance",
        allowed_lateness="keep",
        lateness="keep",
        suffix="suffixes",
    )
    def join_as_of(
        self,
        versions: RecordSteps,
        *,
        on: str | Sequence[str] | None = None,
        left_on: str | Sequence[str] | None = None,
        right_on: str | Sequence[str] | None = None,
        order: str | None = None,
        how: AsOfHow = "left",
        tolerance: DurationLike | None = None,
        late_versions: LateVersions = "ignore",
        keep: DurationLike | None = None,
        suffixes: tuple[str, str] = ("", "_right"),
    ) -> JoinedStream:
        """Join each record with the version of its key that was valid at its event time (J-8, J-9).

        A record, here called a fact, waits until the watermark of the versions passes its time.
        Then it meets the newest version at or before its time. It keeps its own time.

        >>> import lowwater as lw
        >>> rates = [{"at": f"2000-01-01T{h}:00Z", "from": "EUR", "rate": h} for h in (10, 12)]
        >>> orders = [{"at": "2000-01-01T11:30Z", "from": "EUR"}]
        >>> history = lw.from_iterable(rates, time="at")
        >>> facts = lw.from_iterable(orders, time="at")
        >>> [one.value["rate"] for one in facts.join_as_of(history, on="from").run()]
        [10]

        Args:
            versions: The right side: each record is valid from its event time on, until the next
                one of its key.
            on: The key columns, where both sides call them alike.
            left_on: The key columns of the facts; the output calls them so too.
            right_on: The key columns of the versions.
            order: The column that tells which of several versions of one time is the newest; by
                default the last to arrive.
            how: ``left``: a fact without a version comes out with nulls; ``inner``: it does not.
            tolerance: How much older than the fact its version may be; by default any age.
            late_versions: ``ignore``: a version that comes late changes no fact that was emitted;
                ``correct``: such facts are retracted and emitted again.
            keep: How far back facts and versions may be late, in event time; later ones go to the
                late output. By default an hour, or the lateness of the upstream stages if that is
                longer. Downstream stages inherit it as lateness.
            suffixes: What is appended to the name of a column that both sides have.

        Raises:
            InvalidArgument: An argument is wrong, or a column is missing.
        """
        inputs = self._with_other(
            versions,
            on=on, left_on=left_on, right_on=right_on, suffixes=suffixes, where="join_as_of",
        )  # fmt: skip
        stage = as_of_stage(
            inputs,
            order=order, how=how, tolerance=tolerance, late_versions=late_versions, keep=keep,
        )  # fmt: skip
        return _joined(stage, inputs)

    @explained(
        id="key",
        on="key",
        primary_key="key",
        order_by="order",
        version="order",
        delete="deleted",
        tombstone="deleted",
        retention="ttl",
    )
    def table(
        self,
        *,
        key: str | Sequence[str] | None = None,
        order: str | None = None,
        deleted: nw.Expr | None = None,
        ttl: DurationLike | None = None,
        keep_deleted: DurationLike | None = None,
    ) -> Table[Stream]:
        """Return the table of which the records are upserts: the newest row of each key (T-1).

        A pipeline of windows may leave ``key`` out. Its table has what stands of each key and
        window; the primary key is its keys with ``window_start`` and ``window_end``, and the other
        columns are the aggregates and ``timestamp``.

        >>> import lowwater as lw
        >>> rows = [{"at": "2000-01-01", "id": 1, "city": c} for c in ("Ulm", "Bonn")]
        >>> people = lw.from_iterable(rows, time="at").table(key="id")
        >>> people.key
        ('id',)

        Args:
            key: The columns of the primary key; ``None``, for a pipeline only: key and window.
            order: The column that says which of two records of a key is the newer: one of a lower
                order is ignored, and counted. By default the one that arrives later.
            deleted: An expression that is true for records that delete their row.
            ttl: How long after its last change a row is deleted, in event time; by default never.
            keep_deleted: How long a deleted key is remembered, in event time, so that older
                records do not bring it back; by default a day.

        Raises:
            InvalidArgument: An argument is wrong, a column is missing, or the stream retracts.
                Without ``key``: the stream has no windows; or they fire more than once, and each
                pane has only what was new, or they merge and are not retracted.
        """
        if key is None:
            others = {"order": order, "deleted": deleted, "ttl": ttl, "keep_deleted": keep_deleted}
            for name, value in others.items():
                if value is not None:
                    raise InvalidArgument(
                        f"{name}= needs key=: without it the table has the panes by key and window",
                        where=f"table({name}=)",
                        hint="Leave it out, or name the primary key",
                    )
            return self._pane_table()
        return table_of(
            self.to_stream(),
            key=key, order=order, deleted=deleted, ttl=ttl, keep_deleted=keep_deleted,
        )  # fmt: skip

    def _pane_table(self) -> Table[Stream]:
        """Return the table of panes by key and window; only a pipeline has one."""
        raise InvalidArgument(
            "a table of records needs the columns of its primary key",
            where="table(key=)",
            hint='Name them, as in table(key="id")',
        )

    def _with_other(self, other: RecordSteps, *, where: str, **options: Any) -> JoinInputs:
        if not isinstance(other, RecordSteps):
            name = "other" if where == "join" else "versions"
            hint = "Join streams, pipelines (their panes) and processes"
            if isinstance(other, (KeyedStream, WindowedStream)):
                hint = f"Call .{where}(...) with the stream before it is keyed; on= names the keys"
            elif isinstance(other, Table):
                hint = 'A table joins tables: make one of this stream, too, with .table(key="...")'
            raise InvalidArgument(
                f"{describe(name, other)} is not a stream of records",
                where=where,
                hint=hint,
            )
        return JoinInputs.of(self.to_stream(), other.to_stream(), where=where, **options)

    def __or__(self, other: RecordSteps) -> Stream:
        return self.union(other)

    def key_by(self, *keys: Key, **named: nw.Expr) -> KeyedStream:
        """Group by columns, or by the results of Python functions of a record.

        Args:
            *keys: Names of columns, or functions of a record.
            **named: Expressions, which become further key columns:
                ``key_by(day=lw.col("at").dt.date())``. ``key_by(all=lw.lit("all"))`` makes one
                group.
        """
        if not keys and not named:
            raise InvalidArgument(
                "key_by needs at least one key",
                hint='Write key_by("origin"), or key_by(all=lw.lit("all")) for one group of all',
            )
        stream = self.with_columns(**named) if named else self.to_stream()
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


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Stream(RecordSteps, Runnable[Element, Emitted], StreamParts):
    """A stream of records, from a reader such as :func:`lowwater.read_parquet`.

    Every step returns a new stream. Columns are checked as far as they are known before a run. A
    stream can be run, collected and written by itself: its records come out as they are, with their
    event time, and with a ``kind`` if they may be retractions.

    >>> import lowwater as lw
    >>> rides = [{"at": "2000-01-01T12:00:26Z", "points": 5}, {"at": "2000-01-01T12:01Z"}]
    >>> lw.from_iterable(rides, time="at").filter(lw.col("points") > 3).collect().values()
    [{'at': '2000-01-01T12:00:26Z', 'points': 5}]
    """

    def __repr__(self) -> str:
        return f"Stream({outline(self._flows, deduplication=self._deduplication)})"

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The names of the columns, if they are known before a run."""
        known = self._known
        return None if known is None else public_names(known)

    def named(self, name: str) -> Stream:
        """Name the source, for metrics and explanations; return the same stream.

        Call it before any other method: a stream that is used twice counts as one source only if
        it was named before.
        """
        checked_name(name, "clicks")
        flow = self._flows[0]
        if len(self._flows) > 1 or flow.steps or not isinstance(flow.origin, Read):
            raise InvalidArgument(
                "only a stream that comes directly from its source can be named",
                where="named",
                hint="Name it where it is read, or name the stage that reads it",
            )
        return replace(self, _flows=(replace(flow, origin=replace(flow.origin, name=name)),))

    def _keyed(self, columns: tuple[str, ...], names: tuple[str, ...]) -> KeyedStream:
        check_keys(columns, names, self)
        return KeyedStream(self, columns, names)

    def to_stream(self) -> Stream:
        """Return the stream itself; pipelines and processes return their output as a stream."""
        return self

    @property
    def _stage(self) -> Stage:
        return passing_stage(self)

    def _to(self, *sinks: Sink) -> Writing:
        stage = self._stage
        return Writing(stage, no_passed_records(stage, self._schema), sinks)

    def _form(self) -> ElementForm:
        return ElementForm(())

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            hints = {
                "window": 'Group first: .key_by("...").window(...)',
                "aggregate": 'Group first: .key_by("...").window(...).aggregate(...)',
                "group": 'Group first: .key_by("...").window(...).group()',
                "process": 'Group first: .key_by("...").process(...)',
            }
            raise no_step("a stream", name, hints, dir(Stream))


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KeyedStream:
    """Records grouped by key."""

    _stream: Stream
    _keys: tuple[str, ...]
    _names: tuple[str, ...]

    def __repr__(self) -> str:
        stream = self._stream
        shown = outline(stream._flows, self._names, deduplication=stream._deduplication)
        return f"KeyedStream({shown})"

    @explained(
        accumulating="accumulation",
        allowedLateness="allowed_lateness",
        grace="allowed_lateness",
        lateness="allowed_lateness",
        mode="accumulation",
        accumulation_mode="accumulation",
        triggering="trigger",
    )
    def window(
        self,
        windows: WindowFunction | Windowing,
        *,
        trigger: Trigger | None = None,
        accumulation: Accumulation | None = None,
        allowed_lateness: DurationLike | None = None,
        closing: Closing = "if_new",
        on_time: OnTime = "always",
        timestamps: TimestampRule = "end",
        allow_data_loss: str | None = None,
    ) -> WindowedStream:
        """Group by windows of event time, and choose when and how they emit panes.

        Args:
            windows: Where in event time records are grouped; or a whole :class:`Windowing`, without
                other arguments.
            trigger: When a window emits a pane; by default once when it is complete, and then after
                every bundle with late elements.
            accumulation: How the panes of a window relate: ``"discarding"``, ``"accumulating"``
                or ``"retracting"``. Required if the trigger may fire more than once.
            allowed_lateness: How long after its end a window still accepts late records; by default
                that of the upstream stages (S-C7), or zero over sources.
            closing: Whether an expiring window emits a final pane with nothing new.
            on_time: Whether the on-time pane is emitted even with nothing new.
            timestamps: The event time of a pane.
            allow_data_loss: Why it is acceptable that the trigger may finish too early (S-R3).
        """
        options = WindowOptions(
            trigger, accumulation, allowed_lateness, closing, on_time, timestamps, allow_data_loss
        )
        windowing = options.windowing(windows, self._stream._flows, "window")
        known = self._stream._known
        if known is not None:
            require_names(windowing.windows.columns, known, "window")
        return WindowedStream(self, windowing)

    def process(self, process: object, *, order: Order = "arrival") -> Processed:
        """Run your own computation on the records of each key: see ``docs/process.md``.

        Args:
            process: An object with ``on_record`` or ``on_records``, and state cells and timers as
                attributes of its class.
            order: ``"arrival"``: records come as they arrive; with several sources, their order
                then depends on how batches interleave. ``"event_time"``: a record waits until the
                watermark has passed it; records and timers come by event time, and late records go
                to the late output (S-K13).

        Raises:
            InvalidArgument: ``process`` is not a process, or ``order`` is not known.
        """
        return self._processed(process, None, order)

    def _processed(self, process: object, windowing: Windowing | None, order: Order) -> Processed:
        stream = self._stream
        stage = process_stage(stream, self._keys, self._names, process, windowing, order)
        return Processed(stage)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            hints = {
                "aggregate": 'Say where in event time first: .window(lw.FixedWindows("1m"))',
                "group": 'Say where in event time first: .window(lw.FixedWindows("1m"))',
            }
            steps = (*STEPS.values(), *_BEFORE_KEYS)
            hints |= {step: f"Call .{step}(...) before the records are keyed" for step in steps}
            hints |= dict.fromkeys(
                _ENDS, 'Say what to compute first: .window(lw.FixedWindows("1m")).aggregate(...)'
            )
            raise no_step("a keyed stream", name, hints, dir(KeyedStream))


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class WindowedStream:
    """Records grouped by key and window."""

    _keyed: KeyedStream
    _windowing: Windowing

    def __repr__(self) -> str:
        keyed, stream = self._keyed, self._keyed._stream
        shown = outline(
            stream._flows, keyed._names, self._windowing, deduplication=stream._deduplication
        )
        return f"WindowedStream({shown})"

    def aggregate(self, *unnamed: AggregateSpec, **named: AggregateSpec) -> Pipeline:
        """Aggregate the records of each window; a pane has one value per aggregate.

        ``aggregate(lw.sum("delay"))`` names the value ``sum``; ``aggregate(total=lw.sum("delay"),
        flights=lw.count())`` names the values ``total`` and ``flights``.

        >>> import lowwater as lw
        >>> rides = [{"at": "2000-01-01T12:00:26Z", "team": "A", "points": 5}]
        >>> minutes = lw.from_iterable(rides, time="at", key="team").window(lw.FixedWindows("1m"))
        >>> minutes.aggregate(lw.sum("points"), rides=lw.count()).collect().panes[0].values
        {'sum': 5, 'rides': 1}
        """
        aggregates = checked_aggregates(unnamed, named)
        if not aggregates:
            raise InvalidArgument(
                "aggregate needs at least one aggregate",
                hint="Write, say, aggregate(n=lw.count()), or use group()",
            )
        return self._pipeline(aggregates, self._keyed._stream)

    def process(self, process: object, *, order: Order = "arrival") -> Processed:
        """Run your own computation, with state per key and window.

        State is released when the window expires.

        Args:
            process: As for :meth:`KeyedStream.process`.
            order: Likewise. In event-time order windows expire at their end.

        Raises:
            InvalidArgument: ``process`` is not a process, the windows have a trigger, or they merge
                and a cell cannot; or ``order`` is not known, or not for windows with an allowed
                lateness.
        """
        return self._keyed._processed(process, self._windowing, order)

    def group(self, column: str | None = None, *, name: str = "records") -> Pipeline:
        """Emit the records of each window as a list, in order of arrival.

        Args:
            column: Collect the values of this column; by default whole records (plain values if the
                source yields plain values).
            name: The name of the list in the panes.
        """
        if column is not None:
            return self._pipeline({name: collect(column)}, self._keyed._stream)
        stream = self._keyed._stream._with(AddWhole(_WHOLE))
        return self._pipeline({name: collect(_WHOLE)}, stream)

    def _pipeline(self, aggregates: Mapping[str, AggregateSpec], stream: Stream) -> Pipeline:
        keyed = self._keyed
        stage = window_stage(stream, keyed._keys, keyed._names, self._windowing, aggregates)
        return Pipeline(stage, *pane_types(stage, aggregates, stream._schema))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            hint = "Aggregate first: .aggregate(n=lw.count()) or .group()"
            hints = dict.fromkeys(_ENDS, hint)
            steps = (*STEPS.values(), *_BEFORE_KEYS)
            hints |= {step: f"Call .{step}(...) before the records are keyed" for step in steps}
            raise no_step("a windowed stream", name, hints, dir(WindowedStream))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class StageOutput(RecordSteps, Runnable[ItemT, BatchT]):
    """The output of a stage, which can be run or read by another stage."""

    _stage: Stage

    def named(self, name: str) -> Self:
        """Name the last stage, for metrics and explanations; return the same output."""
        stage = replace(self._stage, name=checked_name(name, "per minute"))
        return replace(self, _stage=stage)


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Pipeline(StageOutput[Pane, PaneBatch]):
    """A pipeline from its sources to the panes of a windowed stage.

    ``aggregate`` and ``group`` return pipelines. Nothing runs until you run, collect or write one.
    Panes are records for the next stage: a pipeline has ``filter``, ``key_by`` and the other steps
    of a stream.
    """

    _key_types: tuple[pa.DataType, ...] = ()
    _results: ResultTypes | None = None

    def __repr__(self) -> str:
        return f"Pipeline({stage_outline(self._stage)})"

    def to_stream(self) -> Stream:
        """Return the panes as a stream of records, for the next stage.

        Their event time is the timestamp of the pane (S-H1), in the column ``timestamp``. The other
        columns are the keys, ``window_start``, ``window_end``, the aggregates, ``timing``,
        ``index``, ``on_time_index`` and ``is_first``. If panes are retracted, the aggregates of the
        next stage subtract them.
        """
        return Stream(**panes_as_records(self._stage, self._key_types, self._results))

    def _pane_table(self) -> Table[Stream]:
        windowing = self._stage.windowing
        if windowing is None:
            raise InternalError("a pipeline without windows")
        return pane_table(self.to_stream(), self._stage, windowing)

    def _to(self, *sinks: Sink) -> Writing:
        return Writing(self._stage, self._no_panes(), sinks)

    def _form(self) -> PaneForm:
        return PaneForm(self._stage.key_names)

    def _no_panes(self) -> pa.Table:
        names = self._stage.key_names
        types = self._key_types or (pa.null(),) * len(names)
        keys = list(zip(names, types, strict=True))
        return empty_panes(keys, list(self._stage.work.aggregates))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            group = f'Its panes are records of another stage: .key_by("...").{name}(...)'
            hints = {
                **dict.fromkeys(("window", "process"), group),
                **dict.fromkeys(
                    ("aggregate", "group"),
                    'Its panes are records of another stage: .key_by("...").window(...)'
                    f".{name}(...)",
                ),
                **dict.fromkeys(
                    ("panes", "late", "errors", "metrics"), f"Run it first: .collect().{name}"
                ),
                "final": "Run it first: .collect().final()",
                **dict.fromkeys(
                    ("diagram", "graph", "lateness_profile", "why"),
                    f"Run it first, with a trace: .collect(trace=True).{name}(...)",
                ),
            }
            raise no_step("a pipeline", name, hints, dir(Pipeline))


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Processed(StageOutput[Element, Emitted]):
    """A keyed computation, as ``process`` returns it. Its output can be read by another stage.

    Each emitted record has the keys and its own fields (a plain value becomes a column ``value``);
    its event time is the one it was emitted with.
    """

    _output: str = MAIN

    def __repr__(self) -> str:
        return f"Processed({stage_outline(self._stage)}{output_suffix(self._output)})"

    @property
    def outputs(self) -> tuple[str, ...]:
        """The tags that the process may emit to, the main one first."""
        return self._stage.work.outputs

    def output(self, tag: str) -> Processed:
        """Return the same computation with another output selected, to run it or to read it."""
        if tag not in self.outputs:
            raise InvalidArgument(
                f"the process has no output {tag!r}", hint=nearest(str(tag), self.outputs)
            )
        return replace(self, _output=tag)

    def to_stream(self) -> Stream:
        """Return the records emitted to this output as a stream."""
        return Stream((Flow(self._stage, (), EMITTED_TIME, output=self._output),))

    def _to(self, *sinks: Sink) -> Writing:
        empty = emitted_table((), self._stage.key_names)
        return Writing(self._stage, empty, sinks, self._output)

    def _form(self) -> ElementForm:
        return ElementForm(self._stage.key_names, self._output)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            collected = f"Run it first: .collect().{name}()"
            group = f'Group what is emitted first: .key_by("...").{name}(...)'
            hints = {
                **dict.fromkeys(("elements", "values"), collected),
                **dict.fromkeys(("window", "process"), group),
                **dict.fromkeys(
                    ("aggregate", "group"),
                    'Group what is emitted first: .key_by("...").window(...).aggregate(...)',
                ),
            }
            raise no_step("a process", name, hints, dir(Processed))


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class JoinedStream(StageOutput[Element, Emitted]):
    """Two streams joined, as ``join`` returns it. Its output can be read by another stage.

    Each record has the keys, the columns of the left side and those of the right side; within
    windows also ``window_start`` and ``window_end``.
    """

    _stream: Stream

    def __repr__(self) -> str:
        return f"JoinedStream({stage_outline(self._stage)})"

    def named(self, name: str) -> JoinedStream:
        """Name the join, for metrics and explanations; return the same stream."""
        stage = replace(self._stage, name=checked_name(name, "clicked"))
        flow = replace(self._stream._flows[0], origin=stage)
        return replace(self, _stage=stage, _stream=replace(self._stream, _flows=(flow,)))

    def to_stream(self) -> Stream:
        """Return the joined records as a stream, for the next stage.

        Their event time is that of the later record of a pair, or of the pane they are of.
        """
        return self._stream

    def _to(self, *sinks: Sink) -> Writing:
        empty = emitted_table((), self._stage.key_names)
        return Writing(self._stage, empty, sinks)

    def _form(self) -> ElementForm:
        return ElementForm(self._stage.key_names)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            group = 'Group the joined records first: .key_by("...")'
            windows = f"{group}.window(...).{name}(...)"
            hints = {
                **dict.fromkeys(("elements", "values"), f"Run it first: .collect().{name}()"),
                **dict.fromkeys(("window", "process"), f"{group}.{name}(...)"),
                **dict.fromkeys(("aggregate", "group"), windows),
            }
            raise no_step("a join", name, hints, dir(JoinedStream))


def _joined(stage: Stage, inputs: JoinInputs) -> JoinedStream:
    return JoinedStream(stage, Stream(**joined_as_records(stage, inputs)))
