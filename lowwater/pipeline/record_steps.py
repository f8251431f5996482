"""The steps on records: what streams, pipelines (whose panes are records) and processes share.

They make the fluent values of :mod:`lowwater.pipeline.fluent`, which are built on them. So these
values are type parameters here, and bear the names of the values, as ``help()`` shows them.

The file is long because it is what users read of the steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from lowwater.engine.graph.graph import Stage
from lowwater.engine.records.async_calls import AsyncFunction, MapAsync
from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.calls import RecordFunction
from lowwater.engine.records.deduplicate import Deduplication
from lowwater.engine.records.stateless import (
    AddComputed,
    BatchFunction,
    Filter,
    FlatMap,
    Map,
    MapBatches,
    Select,
    WithColumns,
)
from lowwater.engine.window.windowing import Accumulation, Closing, OnTime, TimestampRule, Windowing
from lowwater.errors import InvalidArgument, describe, explained, explains
from lowwater.pipeline.checks import at_least, checked_async, checked_expressions, checked_function
from lowwater.pipeline.stages import StreamParts
from lowwater.pipeline.window_options import WindowOptions
from lowwater.time import DurationLike
from lowwater.triggers import Trigger
from lowwater.windows import WindowFunction
from lowwater.windows._base import positive_duration

if TYPE_CHECKING:
    import narwhals as nw

    from lowwater.engine.join.joining import (
        AsOfHow,
        Between,
        Direction,
        How,
        LateVersions,
        Unmatched,
    )
    from lowwater.engine.join.searching import Match
    from lowwater.engine.records.lookup import LookupHow
    from lowwater.pipeline.joins import JoinInputs
    from lowwater.pipeline.lookups import LookupOn
    from lowwater.pipeline.tables import Table

Key: TypeAlias = str | Callable[[Any], Any]

Stream = TypeVar("Stream", bound=StreamParts)
KeyedStream = TypeVar("KeyedStream")
JoinedStream = TypeVar("JoinedStream")


class GroupedRecords:
    """Records grouped by key, or by key and window: the steps on records come before."""

    __slots__ = ()


class Streamable(ABC):
    """What yields records: streams, pipelines (whose panes are records), processes and joins."""

    __slots__ = ()

    @abstractmethod
    def to_stream(self) -> StreamParts:
        """Return the records as a stream."""


@explains
class Steps(Streamable, Generic[Stream, KeyedStream, JoinedStream]):
    """The steps on records, of which the fluent values that they make are parameters."""

    __slots__ = ()

    @abstractmethod
    def to_stream(self) -> Stream:
        """Return the records as a stream."""

    @abstractmethod
    def _keyed(
        self, stream: Stream, columns: tuple[str, ...], names: tuple[str, ...]
    ) -> KeyedStream:
        """Return a stream grouped by columns, which the panes call by these names."""

    @abstractmethod
    def _joined(self, stage: Stage, inputs: JoinInputs) -> JoinedStream:
        """Return what a stage emits that joins two streams."""

    @explained(expr="condition", function="condition", predicate="condition", where="condition")
    def filter(self, condition: nw.Expr | Callable[[Any], bool]) -> Stream:
        """Keep the records for which a condition is true; null is not true.

        Args:
            condition: A column expression such as ``lw.col("delay") > 5``, which is fast, or a
                Python function of a record. An expression may read only the record itself. A
                record for which it fails is a dead letter (``bad_expression``); for functions, see
                :meth:`map`.
        """
        if not callable(condition):
            checked_expressions("filter", (condition,), {})
        return self.to_stream()._with(Filter(condition))

    def with_columns(self, *expressions: nw.Expr, **named: nw.Expr) -> Stream:
        """Add columns computed by expressions, or replace columns of the same name.

        An expression may read only the record itself. One that looks at others is refused, such
        as ``lw.col("v").sum()`` or ``lw.col("v").shift(1)``: its value would depend on how the
        stream is cut into bundles. A record for which one fails is a dead letter
        (``bad_expression``).
        """
        return self.to_stream()._with(
            WithColumns(checked_expressions("with_columns", expressions, named))
        )

    def select(self, *expressions: nw.Expr | str, **named: nw.Expr) -> Stream:
        """Keep only these columns; the columns of event time and arrival are always kept.

        Expressions are as in :meth:`with_columns`.
        """
        stream = self.to_stream()
        chosen = checked_expressions("select", expressions, named)
        return stream._with(Select(chosen, stream._always_selected()))

    def map(self, function: RecordFunction) -> Stream:
        """Replace each record by the result of a Python function.

        A record is a mapping of its columns, or a plain value if the source yields plain values. If
        the function returns ``None`` for a mapping, the record is a dead letter (``null_record``).

        A function that raises stops the run. With ``on_error="dead_letter"`` the record is a dead
        letter instead (``function_failed``), as it was before this step.
        """
        return self.to_stream()._with(Map(checked_function("map", function)))

    def map_async(
        self,
        function: AsyncFunction,
        *,
        capacity: int = 100,
        timeout: DurationLike | None = None,
        retries: int = 0,
        batch: int | None = None,
    ) -> Stream:
        """Replace each record by what an ``async`` function returns: a service's or a model's word.

        Calls run side by side, and records stay in order: those of a batch that was read wait for
        its slowest call. A call that fails, or takes too long, makes a dead letter of its record
        (``function_failed``, ``timed_out``). A durable run repeats the calls of what was not
        committed when it was killed. All calls of a process run in one event loop, in a thread of
        its own, so a session that the function keeps serves all of them.

        Args:
            function: The function, ``async def``. It gets a record as :meth:`map` does, and returns
                the record that takes its place.
            capacity: How many calls run at once at most, at least 1.
            timeout: How long a call may take; any time by default.
            retries: How often a call that failed is made again, after 0.1 s, 0.2 s and so on.
            batch: How many records a call gets at most, as a list, for which it returns a list of
                as many; by default a call gets one record.

        Raises:
            InvalidArgument: The function is not ``async``, or an option makes no sense.
        """
        checked = checked_async("map_async", function)
        return self.to_stream()._with(
            MapAsync(
                checked,
                at_least("capacity", capacity, 1),
                None if timeout is None else positive_duration(timeout, "timeout"),
                at_least("retries", retries, 0),
                None if batch is None else at_least("batch", batch, 1),
            )
        )

    def flat_map(self, function: Callable[[Any], Iterable[Any]]) -> Stream:
        """Replace each record by the records that a Python function returns, if any.

        If it raises, :meth:`map` says what happens; nothing of that record passes, whatever a
        generator has yielded before.
        """
        return self.to_stream()._with(FlatMap(checked_function("flat_map", function)))

    @explained(
        col="column",
        columns="column",
        name="column",
        by="column",
        index="position",
        ordinality="position",
    )
    def explode(self, column: str, *, position: str | None = None) -> Stream:
        """Replace each record by one for each item of a list; by none for null and an empty list.

        The item takes the place of the list in its column, and the other columns are repeated. The
        records come in the order of the items. Lists of Arrow (``list``, ``large_list`` and
        ``fixed_size_list``) and of Python, tuples and arrays of numpy are lists; text and mappings
        are none. A record with another value is a dead letter (``not_a_list``).

        >>> import lowwater as lw
        >>> orders = [{"at": "2000-01-01T12:00Z", "id": 7, "items": ["pen", "ink"]}]
        >>> stream = lw.from_iterable(orders, time="at").explode("items")
        >>> [(one.value["id"], one.value["items"]) for one in stream.run()]
        [(7, 'pen'), (7, 'ink')]

        Args:
            column: The column of lists. Its type is then that of the items.
            position: Adds a column of this name with the place of the item in its list, int64,
                counted from 0, or replaces it: the rank less one of what :func:`lowwater.top`
                lists.

        Raises:
            InvalidArgument: There is no such column, it is known to hold no lists, or one of the
                two has the event times or times of arrival.
        """
        return self.to_stream()._exploded(column, position)

    @explained(
        by="on", key="on", keys="on", left_on="on", right_on="on", frame="table", right="table",
    )  # fmt: skip
    def lookup(
        self, table: object, on: LookupOn, *, how: LookupHow = "left", reload: bool = False
    ) -> Stream:
        """Add the columns of a fixed table, found by a key: reference data, such as of devices.

        The table is loaded once, when the step is built. Keys are compared as those of joins are:
        ``1`` and ``1.0`` are equal, and a null is equal to nothing.

        >>> import lowwater as lw
        >>> import pyarrow as pa
        >>> teams = pa.table({"id": [1, 2], "name": ["A", "B"]})
        >>> rides = [{"at": "2000-01-01T12:00Z", "team": 2}, {"at": "2000-01-01T12:01Z", "team": 3}]
        >>> named = lw.from_iterable(rides, time="at").lookup(teams, on={"team": "id"})
        >>> [(one.value["team"], one.value["name"]) for one in named.run()]
        [(2, 'B'), (3, None)]

        Args:
            table: A table of Arrow, pandas, polars or another library that narwhals knows, with one
                row for each key. What comes and changes while a run lasts is for ``join`` and
                ``join_as_of``.
            on: The columns with the key: a name, several, or a mapping from the columns of the
                records to those of the table. The other columns of the table are added.
            how: ``"left"``: a record whose key is not in the table has nulls there; ``"inner"``: it
                is dropped.
            reload: A durable run, and one on Spark, remembers a digest of the table, and refuses to
                resume with other content. With ``reload=True`` it takes what it is given; what was
                emitted before stays as it is.

        Raises:
            InvalidArgument: An argument is wrong, a column is missing or is in both, or the table
                has several rows for a key.
        """
        from lowwater.pipeline.lookups import lookup_step

        stream = self.to_stream()
        return stream._with(lookup_step(stream, table, on, how, reload=reload))

    def map_batches(self, function: BatchFunction) -> Stream:
        """Replace batches of records by the result of a function of Arrow batches.

        The batches are cut anywhere in the stream, so rows must not depend on each other. If
        ``time`` or a key is a function, or the records are panes of a retracting stage, the
        function must return one row per record, in the same order. A function that raises stops
        the run: which record is at fault cannot be told.
        """
        return self.to_stream()._with(MapBatches(checked_function("map_batches", function)))

    @explained(
        by="id",
        key="id",
        keys="id",
        on="id",
        subset="id",
        column="id",
        columns="id",
        ttl="within",
        window="within",
        horizon="within",
        allowed_lateness="within",
    )
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

    def union(self, *others: Streamable) -> Stream:
        """Merge several streams; also written ``a | b``.

        The watermark of the union is the minimum of theirs (S-H3). Each stream keeps its own
        event-time column. If they name different clocks, choose one with ``run(clock=...)``.

        Args:
            *others: Streams, pipelines (for their panes) or processes, with the same columns.

        Raises:
            InvalidArgument: They do not have the same columns.
        """
        for other in others:
            if not isinstance(other, Streamable):
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
        other: Streamable,
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
        from lowwater.pipeline.joins import join_stage, window_join_stage

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
            return self._joined(stage, inputs)
        options.refuse_beside_interval()
        stage = join_stage(
            inputs, within=within, how=how, unmatched=unmatched, allowed_lateness=allowed_lateness
        )
        return self._joined(stage, inputs)

    @explained(
        by="on",
        key="on",
        keys="on",
        within="tolerance",
        allowed_lateness="keep",
        lateness="keep",
        suffix="suffixes",
        strategy="direction",
        allow_exact_matches="allow_equal",
    )
    def join_as_of(
        self,
        versions: Streamable,
        *,
        on: str | Sequence[str] | None = None,
        left_on: str | Sequence[str] | None = None,
        right_on: str | Sequence[str] | None = None,
        order: str | None = None,
        how: AsOfHow = "left",
        direction: Direction = "backward",
        allow_equal: bool = True,
        tolerance: DurationLike | None = None,
        late_versions: LateVersions = "ignore",
        keep: DurationLike | None = None,
        suffixes: tuple[str, str] = ("", "_right"),
    ) -> JoinedStream:
        """Join each record with the version of its key for its event time (J-8 to J-12).

        A record, here called a fact, waits until the watermark of the versions passes its time.
        Then it meets the newest version at or before its time: the one that was valid. It keeps its
        own time. With ``direction=`` it meets the next version, or the nearest, and waits until
        none that comes can be nearer.

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
            direction: ``backward``: a fact meets the newest version at or before its time;
                ``forward``: the first at or after it; ``nearest``: whichever of these is nearer,
                the earlier of two at one distance. Of several versions of one time always the
                newest, as ``order`` says.
            allow_equal: Whether a fact may meet a version of its own time.
            tolerance: How far from the fact its version may be, included; by default any age. If
                the fact looks ahead, it must be given: a fact waits no longer than that.
            late_versions: ``ignore``: a version that comes late changes no fact that was emitted;
                ``correct``: such facts are retracted and emitted again.
            keep: How far back facts and versions may be late, in event time; later ones go to the
                late output. By default an hour, or the lateness of the upstream stages if that is
                longer. Downstream stages inherit it as lateness, and the tolerance on top if the
                fact looks ahead and late versions correct.
            suffixes: What is appended to the name of a column that both sides have.

        Raises:
            InvalidArgument: An argument is wrong, or a column is missing.
        """
        from lowwater.pipeline.joins_as_of import as_of_stage

        inputs = self._with_other(
            versions,
            on=on, left_on=left_on, right_on=right_on, suffixes=suffixes, where="join_as_of",
        )  # fmt: skip
        stage = as_of_stage(
            inputs,
            order=order, how=how, tolerance=tolerance, late_versions=late_versions, keep=keep,
            direction=direction, allow_equal=allow_equal,
        )  # fmt: skip
        return self._joined(stage, inputs)

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
        from lowwater.pipeline.tables import table_of

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

    @explained(
        key_by="key", id="key", query="key", column="on", words="on", by="on", how="match",
        mode="match", allowed_lateness="keep", lateness="keep", suffix="suffixes",
    )  # fmt: skip
    def search(
        self,
        queries: Streamable,
        *,
        on: str,
        key: str,
        match: Match = "all",
        late_versions: LateVersions = "ignore",
        keep: DurationLike | None = None,
        suffixes: tuple[str, str] = ("", "_query"),
    ) -> JoinedStream:
        """Find the stored queries that each record, here called a document, matches (J-15 to J-17).

        Each record of ``queries`` is a version of a query, valid from its event time on until the
        next one of its query; one without words withdraws it. A document waits until the watermark
        of the queries passes its time. Then a record is emitted for each query that it matches,
        with the columns of both and the time of the document.

        >>> import lowwater as lw
        >>> asked = [{"at": "2000-01-01T10:00Z", "query": 1, "words": ["red", "car"]}]
        >>> ads = [{"at": "2000-01-01T11Z", "ad": n, "words": ["red", n]} for n in ("car", "bus")]
        >>> queries, documents = (lw.from_iterable(some, time="at") for some in (asked, ads))
        >>> found = documents.search(queries, on="words", key="query")
        >>> [(one.value["ad"], one.key) for one in found.run()]
        [('car', 1)]

        Args:
            queries: The versions of queries.
            on: The column with a list of words, on both sides. Words are equal as keys are (J-1);
                null words do not count.
            key: The column of ``queries`` that says of which query a record is a version; it is the
                key of the output.
            match: ``all``: a document must have all words of a query; ``any``: at least one.
            late_versions: ``ignore``: a version that comes late changes nothing that was emitted;
                ``correct``: documents are searched again for it.
            keep: How far back documents and versions may be late, in event time; later ones go to
                the late output. By default an hour, or the lateness of the upstream stages if that
                is longer. Downstream stages inherit it as lateness.
            suffixes: What is appended to the name of a column that both sides have.

        Raises:
            InvalidArgument: An argument is wrong, or a column is missing or holds no lists.
        """
        from lowwater.pipeline.searches import search_inputs, search_stage

        other = self._other(queries, "queries", "search")
        inputs = search_inputs(self.to_stream(), other, suffixes)
        stage = search_stage(
            inputs, on=on, key=key, match=match, late_versions=late_versions, keep=keep
        )
        return self._joined(stage, inputs)

    def _with_other(self, other: Streamable, *, where: str, **options: Any) -> JoinInputs:
        from lowwater.pipeline.joins import JoinInputs

        right = self._other(other, "other" if where == "join" else "versions", where)
        return JoinInputs.of(self.to_stream(), right, where=where, **options)

    def _other(self, other: Streamable, name: str, where: str) -> Any:
        """Return another stream that a method is given, or raise if it is none."""
        from lowwater.pipeline.tables import Table

        if not isinstance(other, Streamable):
            hint = "Join streams, pipelines (their panes) and processes"
            if isinstance(other, GroupedRecords):
                hint = f"Call .{where}(...) with the stream before it is keyed; on= names the keys"
            elif isinstance(other, Table):
                hint = 'A table joins tables: make one of this stream, too, with .table(key="...")'
            raise InvalidArgument(
                f"{describe(name, other)} is not a stream of records",
                where=where,
                hint=hint,
            )
        return other.to_stream()

    def __or__(self, other: Streamable) -> Stream:
        return self.union(other)

    def key_by(self, *keys: Key, **named: nw.Expr) -> KeyedStream:
        """Group by columns, or by the results of Python functions of a record.

        Args:
            *keys: Names of columns, or functions of a record. If a function raises, :meth:`map`
                says what happens.
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
        return self._keyed(stream, (*columns, *named), (*names, *named))
