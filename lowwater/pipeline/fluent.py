"""The fluent, immutable values: streams, keyed and windowed streams, pipelines and processes.

They are in one file because they create one another: a stream is keyed, windowed and aggregated,
and the panes are the records of another stream. What they share are the steps on records
(:mod:`lowwater.pipeline.record_steps`) and the ways to run and write
(:mod:`lowwater.pipeline.runnable`). Each method returns a new value; nothing runs before ``run``,
``collect``, ``to_arrow`` or an output is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn, Self, final

import pyarrow as pa

from lowwater.engine.aggregates import AggregateSpec, collect
from lowwater.engine.graph.graph import MAIN, Flow, Read, Stage
from lowwater.engine.graph.outline import outline, output_suffix, stage_outline
from lowwater.engine.local.delivery import Sink
from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.pane_table import RESERVED, empty_panes
from lowwater.engine.records.panes import Pane
from lowwater.engine.records.stage_output import TIME as EMITTED_TIME
from lowwater.engine.records.stage_output import Emitted, emitted_table
from lowwater.engine.records.stateless import AddWhole, require_names
from lowwater.engine.records.steps import PaneBatch
from lowwater.engine.window.windowing import Accumulation, Closing, OnTime, TimestampRule, Windowing
from lowwater.errors import InvalidArgument, explained, explains, nearest
from lowwater.pipeline.checks import (
    STEPS,
    checked_aggregates,
    key_names,
    require_key_columns,
    require_no_bounds,
)
from lowwater.pipeline.forms import BatchT, Element, ElementForm, ItemT, PaneForm
from lowwater.pipeline.outputs import Writing
from lowwater.pipeline.record_steps import GroupedRecords, Steps
from lowwater.pipeline.runnable import Runnable
from lowwater.pipeline.stages import (
    ResultTypes,
    StreamParts,
    checked_name,
    no_passed_records,
    pane_types,
    panes_as_records,
    passing_stage,
    process_stage,
    public_names,
    window_stage,
    with_conditions,
)
from lowwater.pipeline.vocabulary import no_step
from lowwater.pipeline.window_options import WindowOptions
from lowwater.time import DurationLike
from lowwater.triggers import Trigger
from lowwater.windows import CountWindows, WindowFunction

if TYPE_CHECKING:
    from lowwater.engine.match.absence import Absent
    from lowwater.engine.match.rules import Emit, RowsOut, Skip
    from lowwater.engine.over.rules import Late
    from lowwater.engine.process.outputs import Order
    from lowwater.engine.window.fill import Fill
    from lowwater.pipeline.joins import JoinInputs
    from lowwater.pipeline.matches import Condition, Measure
    from lowwater.pipeline.over import RangeResult
    from lowwater.pipeline.tables import Table

_WHOLE = HIDDEN + "record"
_ENDS = (
    *("run", "run_batches", "collect", "to_arrow", "to_arrow_batches", "to_pandas", "to_polars"),
    *("write_parquet", "write_jsonl", "write_to"),
)
_BEFORE_KEYS = ("deduplicate", "join", "join_as_of", "key_by")


class RecordSteps(Steps["Stream", "KeyedStream", "JoinedStream"]):
    """The steps on records, shared by everything that yields records.

    These are streams, pipelines (whose panes are records) and processes.
    """

    __slots__ = ()

    def _keyed(
        self, stream: Stream, columns: tuple[str, ...], names: tuple[str, ...]
    ) -> KeyedStream:
        require_key_columns(columns, stream._known, "key_by")
        return KeyedStream(stream, columns, key_names(names, RESERVED, where="key_by"))

    def _joined(self, stage: Stage, inputs: JoinInputs) -> JoinedStream:
        from lowwater.pipeline.joins import joined_as_records

        return JoinedStream(stage, Stream(**joined_as_records(stage, inputs)))


@explains
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
        it was named before. Behind steps, or a stage, it names the output that the stream is where
        it is run or written by itself.
        """
        checked_name(name, "clicks")
        flow = self._flows[0]
        if len(self._flows) > 1 or flow.steps or not isinstance(flow.origin, Read):
            return replace(self, _label=name)
        return replace(self, _flows=(replace(flow, origin=replace(flow.origin, name=name)),))

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
                "match": 'Group first: .key_by("...").match(...)',
                "over": 'Group first: .key_by("...").over(...)',
            }
            raise no_step("a stream", name, hints, dir(Stream))


@explains
@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KeyedStream(GroupedRecords):
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
        windows: WindowFunction | Windowing | CountWindows,
        *,
        trigger: Trigger | None = None,
        accumulation: Accumulation | None = None,
        allowed_lateness: DurationLike | None = None,
        closing: Closing = "if_new",
        on_time: OnTime = "always",
        timestamps: TimestampRule = "end",
        allow_data_loss: str | None = None,
        fill: Fill | None = None,
    ) -> WindowedStream:
        """Group by windows of event time, and choose when and how they emit panes.

        Args:
            windows: Where in event time records are grouped; or a whole :class:`Windowing`, or
                :class:`CountWindows`, each without other arguments.
            trigger: When a window emits a pane; by default once when it is complete, and then after
                every bundle with late elements.
            accumulation: How the panes of a window relate: ``"discarding"``, ``"accumulating"``
                or ``"retracting"``. An aggregate requires it if the trigger may fire more than
                once, as it does for late records; a process has no panes, and takes none.
            allowed_lateness: How long after its end a window still accepts late records; by default
                that of the upstream stages (S-C7), or zero over sources.
            closing: Whether an expiring window emits a final pane with nothing new.
            on_time: Whether the on-time pane is emitted even with nothing new.
            timestamps: The event time of a pane.
            allow_data_loss: Why it is acceptable that the trigger may finish too early (S-R3).
            fill: Emit panes of windows without records, too, for keys that had some (S-F1): of up
                to so many windows behind the last with records, ``"2 windows"``, or of those that
                end at most a time behind it, ``lw.until_idle("1h")``. Panes then have a result
                ``is_filled``. See ``docs/howto/fill-gaps.md``.
        """
        options = WindowOptions(
            trigger, accumulation, allowed_lateness, closing, on_time, timestamps,
            allow_data_loss, fill,
        )  # fmt: skip
        if isinstance(windows, CountWindows):
            from lowwater.pipeline.counted import refuse_options

            refuse_options(options)
            return WindowedStream(self, windows)
        windowing = options.windowing(windows, self._stream._flows, "window", open_=True)
        known = self._stream._known
        if known is not None:
            require_names(windowing.windows.columns, known, "window")
        return WindowedStream(self, windowing, options.leaves_open(windows))

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

    def match(
        self,
        pattern: str,
        *,
        define: Mapping[str, Condition] | None = None,
        measures: Mapping[str, Measure] | None = None,
        within: DurationLike | None = None,
        skip: Skip = "past_last",
        rows: RowsOut = "one",
        emit: Emit = "on_time",
        allowed_lateness: DurationLike | None = None,
        order: str | None = None,
        without: Absent | None = None,
    ) -> MatchedStream:
        """Find rows that follow one another as a pattern says, and correct what was found.

        It is ``MATCH_RECOGNIZE`` of SQL:2016 over a stream: see ``docs/match.md``. The rows of a
        key are in order of event time, whatever order they arrive in.

        >>> import lowwater as lw
        >>> prices = [10, 8, 7, 9, 11, 12, 6]
        >>> rows = [{"at": f"2000-01-01T12:0{n}Z", "price": p} for n, p in enumerate(prices)]
        >>> falls = lw.from_iterable(rows, time="at").with_columns(key=lw.lit("A")).key_by("key")
        >>> found = falls.match(
        ...     "start down+ up+",
        ...     define={
        ...         "down": lw.col("price") < lw.prev("price"),
        ...         "up": lw.col("price") > lw.prev("price"),
        ...     },
        ...     measures={"low": lw.min("price", of="down"), "ups": lw.count(of="up")},
        ... )
        >>> [(one["low"], one["ups"]) for one in found.collect().values()]
        [(7, 3)]

        Args:
            pattern: Variables one after the other, with ``|``, ``( )``, ``* + ? {n,m}`` as in
                :mod:`re`, reluctant with a ``?`` behind, and ``..`` for any rows, as few as
                possible. A variable without a condition is any row.
            define: The conditions of variables: expressions, with ``lw.prev(...)`` and
                ``lw.matched(...)`` for other rows, or functions of a ``MatchSoFar``. A condition
                that is null is false.
            measures: What is emitted of a match: aggregates over its rows, with ``of=`` over those
                of a variable, or expressions at its last row.
            within: How much later than its first row a row of a match may be; both ends belong.
            skip: Where the search goes on behind a match: ``"past_last"`` row, the ``"next"`` row
                behind its first, or at the ``("first", variable)`` or ``("last", variable)``; if
                that is not behind the first row, at the next row.
            rows: Whether a match is ``"one"`` record with its measures, or ``"all"`` its rows are
                records, with ``variable`` and the measures so far.
            emit: ``"on_time"``: once the watermark has passed what a match depends on; late rows
                correct it. ``"final"``: once no row can change it. ``"early"``: after each bundle.
            allowed_lateness: How far below the watermark a row may be; by default as far as
                upstream stages emit late.
            order: The column that orders rows of one event time; by default as they arrive.
            without: What must not come behind a match: ``lw.absent(condition, within="30m")``.

        Returns:
            A stream: the keys, ``match_start``, ``match_end`` (or the columns of the row), the
            measures. The time of a match is that of its last row, with ``without`` its end.

        Raises:
            InvalidArgument: The pattern cannot be read, or an argument is wrong.
        """
        from lowwater.pipeline.matches import match_stage, matches_as_records

        stream = self._stream
        stage = match_stage(
            stream, self._keys, self._names, pattern, define=define, measures=measures,
            within=within, skip=skip, rows=rows, emit=emit, allowed_lateness=allowed_lateness,
            order=order, without=without,
        )  # fmt: skip
        return MatchedStream(stage, Stream(**matches_as_records(stage, stream._schema)))

    @explained(
        orderBy="order", order_by="order", grace="allowed_lateness", lateness="allowed_lateness",
        preceding="rows", window="length", retention="keep",
    )  # fmt: skip
    def over(
        self,
        length: DurationLike | None = None,
        *,
        rows: int | None = None,
        order: str | None = None,
        keep: DurationLike | None = None,
        allowed_lateness: DurationLike | None = None,
        late: Late = "correct",
        **results: RangeResult,
    ) -> RangedStream:
        """Emit each record with values over the records of its key up to it: a moving average.

        It is ``OVER (PARTITION BY ... ORDER BY time RANGE/ROWS ... PRECEDING)`` of SQL over a
        stream: see ``docs/howto/moving-averages.md``. A record comes out once the watermark has
        passed it.

        >>> import lowwater as lw
        >>> rows = [{"at": f"2000-01-01T12:0{n}Z", "v": n * n} for n in range(5)]
        >>> values = lw.from_iterable(rows, time="at").with_columns(key=lw.lit("A")).key_by("key")
        >>> moving = values.over("2m", mean=lw.mean("v"), n=lw.count())
        >>> [(one["mean"], one["n"]) for one in moving.collect().values()]
        [(0.0, 1), (0.5, 2), (2.5, 2), (6.5, 2), (12.5, 2)]
        >>> steps = values.over(rows=2, step=lw.col("v") - lw.prev("v"))
        >>> [one["step"] for one in steps.collect().values()]
        [None, 1, 3, 5, 7]

        Args:
            length: The range of a record at ``t`` has the records of its key in ``(t - length,
                t]``: others of the same time belong to it, too, whichever came first.
            rows: The range has this many records instead, the record itself included, in order of
                time, then ``order``, then arrival.
            order: The column that orders records of one time, for ``rows``.
            keep: Records this much older than a record, or more, do not count for it, for
                ``rows``; without it, each key keeps its last records for ever.
            allowed_lateness: How far below the watermark a record may be; by default as far as
                upstream stages emit late. Such a record corrects the results at and after it.
            late: ``"drop"``: records below the watermark are dropped, also where upstream stages
                emit late.
            **results: What is computed, by name: aggregates over the range, :func:`rank`; and for
                ``rows`` :func:`row_number`, or expressions with :func:`prev`.

        Returns:
            A stream: the keys, the columns of the record, the results; at the record's time.

        Raises:
            InvalidArgument: An argument is wrong, or a result is called as a column is.
        """
        from lowwater.pipeline.over import over_stage, ranged_as_records

        stream = self._stream
        stage = over_stage(
            stream, self._keys, self._names, length, results, rows=rows, order=order, keep=keep,
            allowed_lateness=allowed_lateness, late=late,
        )  # fmt: skip
        return RangedStream(stage, Stream(**ranged_as_records(stage, stream._schema)))

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
            steps = (*STEPS, *_BEFORE_KEYS)
            hints |= {step: f"Call .{step}(...) before the records are keyed" for step in steps}
            hints |= dict.fromkeys(
                _ENDS, 'Say what to compute first: .window(lw.FixedWindows("1m")).aggregate(...)'
            )
            raise no_step("a keyed stream", name, hints, dir(KeyedStream))


@explains
@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class WindowedStream(GroupedRecords):
    """Records grouped by key and window."""

    _keyed: KeyedStream
    _windowing: Windowing | CountWindows
    _is_open: bool = False

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
            InvalidArgument: ``process`` is not a process, the windows have a trigger or another
                option of panes, or they merge and a cell cannot; or ``order`` is not known, or not
                for windows with an allowed lateness.
        """
        if isinstance(self._windowing, CountWindows):
            raise InvalidArgument(
                "a process has no windows of a number of records",
                where="process",
                hint="Count in a cell of the process, without .window(...)",
            )
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
        keyed, windowing = self._keyed, self._windowing
        stream, aggregates = with_conditions(stream, aggregates)
        if isinstance(windowing, CountWindows):
            from lowwater.pipeline.counted import count_stage

            stage = count_stage(stream, keyed._keys, keyed._names, windowing, aggregates)
            return Pipeline(stage, *pane_types(stage, stage.work.aggregates, stream._schema))
        if self._is_open:  # only now is it sure that windows fire
            windowing = windowing.with_(accumulation=None)
        require_no_bounds(windowing.windows, aggregates)
        stage = window_stage(stream, keyed._keys, keyed._names, windowing, aggregates)
        return Pipeline(stage, *pane_types(stage, stage.work.aggregates, stream._schema))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            hint = "Aggregate first: .aggregate(n=lw.count()) or .group()"
            hints = dict.fromkeys(_ENDS, hint)
            steps = (*STEPS, *_BEFORE_KEYS)
            hints |= {step: f"Call .{step}(...) before the records are keyed" for step in steps}
            raise no_step("a windowed stream", name, hints, dir(WindowedStream))


@explains
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class EmittedStream(RecordSteps, Runnable[ItemT, BatchT]):
    """The output of a stage, which can be run or read by another stage."""

    _stage: Stage

    def named(self, name: str) -> Self:
        """Name the last stage, for metrics and explanations; return the same output."""
        stage = replace(self._stage, name=checked_name(name, "per minute"))
        return replace(self, _stage=stage)


@explains
@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Pipeline(EmittedStream[Pane, PaneBatch]):
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
        from lowwater.pipeline.pane_tables import pane_table

        windowing = self._stage.windowing
        if windowing is None:
            raise InvalidArgument(
                "windows of a number of records have no row for a key and window: two of a key may "
                "have the same times",
                where="table",
                hint='Count in the table: table(key="...").group_by("...").aggregate(n=lw.count())',
            )
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


@explains
@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Processed(EmittedStream[Element, Emitted]):
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


@explains
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class OutputStream(EmittedStream[Element, Emitted]):
    """The records that a stage emits, as another stage reads them."""

    _stream: Stream

    def named(self, name: str) -> Self:
        """Name the stage, for metrics and explanations; return the same stream."""
        stage = replace(self._stage, name=checked_name(name, "clicked"))
        flow = replace(self._stream._flows[0], origin=stage)
        return replace(self, _stage=stage, _stream=replace(self._stream, _flows=(flow,)))

    def to_stream(self) -> Stream:
        """Return the records as a stream, for the next stage, with their event times."""
        return self._stream

    def _to(self, *sinks: Sink) -> Writing:
        empty = emitted_table((), self._stage.key_names)
        return Writing(self._stage, empty, sinks)

    def _form(self) -> ElementForm:
        return ElementForm(self._stage.key_names)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({stage_outline(self._stage)})"


def _hints_behind(what: str, name: str) -> dict[str, str]:
    """Return what to do in place of a method that there is not."""
    group = f'Group {what} first: .key_by("...")'
    return {
        **dict.fromkeys(("elements", "values"), f"Run it first: .collect().{name}()"),
        **dict.fromkeys(("window", "process", "match", "over"), f"{group}.{name}(...)"),
        **dict.fromkeys(("aggregate", "group"), f"{group}.window(...).{name}(...)"),
    }


@explains
@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class JoinedStream(OutputStream):
    """Two streams joined, as ``join`` returns it. Its output can be read by another stage.

    Each record has the keys, the columns of the left side and those of the right side; within
    windows also ``window_start`` and ``window_end``. Its event time is that of the later record of
    a pair, or of the pane it is of.
    """

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            hints = _hints_behind("the joined records", name)
            raise no_step("a join", name, hints, dir(JoinedStream))


@explains
@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MatchedStream(OutputStream):
    """The matches of a row pattern, as ``match`` returns them; another stage can read them."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            hints = _hints_behind("the matches", name)
            raise no_step("a match", name, hints, dir(MatchedStream))


@explains
@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RangedStream(OutputStream):
    """Records with values over those before them, as ``over`` returns them."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            hints = _hints_behind("the records", name)
            raise no_step("the output of over", name, hints, dir(RangedStream))
