"""Tables: at most one row per primary key, changed over time (T-1 to T-5).

The file is long because tables and grouped tables create one another, and hold what users read of
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    NoReturn,
    TypeAlias,
    TypeVar,
    Unpack,
    final,
    get_args,
)

import pyarrow as pa

from lowwater.display.text import shown
from lowwater.engine.aggregates import AggregateSpec, signed_specs
from lowwater.engine.aggregates._base import columns_read
from lowwater.engine.graph.graph import Graph, Stage, is_signed
from lowwater.engine.graph.outline import outline
from lowwater.engine.join.changes import DebeziumForm, UpsertForm
from lowwater.engine.join.joining import HOWS, How, of_tables
from lowwater.engine.join.upserting import DELETED, Upserting
from lowwater.engine.join.views import ROW_KEY, View
from lowwater.engine.local.delivery import Sink
from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.columns import Types
from lowwater.engine.records.expressions import Expressions
from lowwater.engine.records.pane_table import to_values
from lowwater.engine.records.stage_output import Output
from lowwater.engine.records.stateless import Filter, Select, WithColumns, no_records, require_names
from lowwater.engine.stages.grouped import Grouped
from lowwater.engine.stages.upserted import Upserted
from lowwater.engine.window.aggregation import result_type
from lowwater.errors import InternalError, InvalidArgument, describe, explained, explains, nearest
from lowwater.explain.graph_text import explain_graph, mermaid_graph
from lowwater.pipeline.checks import OF_TABLES, checked_aggregates, checked_expressions, key_names
from lowwater.pipeline.forms import as_pandas, as_polars
from lowwater.pipeline.joined_keys import TableKey, joined_key
from lowwater.pipeline.joins import (
    JoinInputs,
    check_choice,
    joined_as_records,
    known_columns,
)
from lowwater.pipeline.outcomes import (
    Outcomes,
    RunOptions,
    refuse_endless,
    with_run_options,
)
from lowwater.pipeline.outputs import Writing
from lowwater.pipeline.stages import (
    StreamParts,
    checked_name,
    emitted_as_records,
    public_names,
    with_conditions,
)
from lowwater.pipeline.tops import top_stage
from lowwater.pipeline.vocabulary import no_step
from lowwater.time import DurationLike, duration

if TYPE_CHECKING:
    import narwhals as nw
    import pandas as pd
    import polars as pl

    from lowwater.display.palette import Theme
    from lowwater.viz import GraphDiagram

Form: TypeAlias = Literal["retract", "upsert", "debezium"]
"""The forms of a table's changes."""

StreamT = TypeVar("StreamT", bound=StreamParts)

_KEEP_DELETED = "1d"


@explains
@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Table(Generic[StreamT]):
    """A table: at most one row per primary key, changed over time.

    Its changes are a stream of records: an old row is retracted, and a new one inserted. Nothing
    runs before the changes are run, collected or written.
    """

    _stream: StreamT
    _key: TableKey

    def __repr__(self) -> str:
        keys = ", ".join(map(repr, self.key))
        return f"Table({outline(self._stream._flows)}, key={keys})"

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the primary key."""
        return self._key.public

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The names of the columns, if they are known before a run."""
        types = known_columns(self._stream)
        return None if types is None else tuple(n for n in types if not n.startswith("__lw_"))

    def named(self, name: str) -> Table[StreamT]:
        """Name the stage that makes the table, for metrics and explanations."""
        flow = self._stream._flows[0]
        if not isinstance(flow.origin, Stage):
            raise InvalidArgument("this table has no stage of its own", where="named")
        stage = replace(flow.origin, name=checked_name(name, "people"))
        return replace(self, _stream=replace(self._stream, _flows=(replace(flow, origin=stage),)))

    def filter(self, condition: nw.Expr) -> Table[StreamT]:
        """Keep the rows for which a condition is true; null is not true. The key stays.

        Args:
            condition: A column expression such as ``lw.col("open")``.
        """
        checked_expressions("filter", (condition,), {})
        return replace(self, _stream=self._stream._with(Filter(condition)))

    def with_columns(self, *expressions: nw.Expr, **named: nw.Expr) -> Table[StreamT]:
        """Add columns computed by expressions, or replace columns of the same name.

        The key stays, and its columns cannot be replaced.
        """
        chosen = checked_expressions("with_columns", expressions, named)
        for name in (*_names_of(expressions, known_columns(self._stream)), *named):
            if name in self.key:
                raise InvalidArgument(
                    f"the column {name!r} belongs to the primary key, and cannot be replaced",
                    where="with_columns",
                    hint="Give the new column another name",
                )
        return replace(self, _stream=self._stream._with(WithColumns(chosen)))

    def select(self, *expressions: nw.Expr | str, **named: nw.Expr) -> Table[StreamT]:
        """Keep only these columns. Those of the primary key must be among them, by their names."""
        chosen = checked_expressions("select", expressions, named)
        names = [one for one in expressions if isinstance(one, str)]
        missing = [name for name in self.key if name not in names]
        if missing:
            raise InvalidArgument(
                f"the column {missing[0]!r} of the primary key is not selected by its name",
                where="select",
                hint=f'Name it: select("{missing[0]}", ...)',
            )
        stream = self._stream
        return replace(self, _stream=stream._with(Select(chosen, stream._always_selected())))

    @explained(by="on", key="on", suffix="suffixes")
    def join(
        self,
        other: Table[StreamT],
        *,
        on: str | Sequence[str] | None = None,
        left_on: str | Sequence[str] | None = None,
        right_on: str | Sequence[str] | None = None,
        how: How = "inner",
        suffixes: tuple[str, str] = ("", "_right"),
    ) -> Table[StreamT]:
        """Join with another table; a change costs the rows that it joins (T-3).

        The primary key of the result is that of the left table if each left row meets at most one
        right row, which is so where the right table is joined on its own key; else it is both.
        With ``how="right"`` and ``"outer"`` it is both, unless both are joined on their own keys.
        A null matches nothing, as in SQL.

        Args:
            other: The right table.
            on: The columns that must be equal, where both tables call them alike.
            left_on: Those of the left table; the result calls them so too.
            right_on: Those of the right table.
            how: ``inner``, ``left``, ``right``, ``outer``, ``semi`` or ``anti``.
            suffixes: What is appended to the name of a column that both tables have.

        Raises:
            InvalidArgument: An argument is wrong, or a column is missing.
        """
        if not isinstance(other, Table):
            raise InvalidArgument(
                f"{describe('other', other)} is not a table",
                where="join",
                hint='Make a table of it: .table(key="...")',
            )
        check_choice("how", how, HOWS, "join")
        inputs = JoinInputs.of(
            self._stream, other._stream,
            on=on, left_on=left_on, right_on=right_on, suffixes=suffixes, where="join",
        )  # fmt: skip
        key, columns = joined_key(self._key, other._key, inputs, how)
        stage = inputs.stage(of_tables(how), columns)
        return Table(self._stream._of(joined_as_records(stage, inputs)), key)

    def group_by(self, *columns: str) -> GroupedTable[StreamT]:
        """Group the rows by columns, to be aggregated. Nulls are equal, and make a group.

        Args:
            *columns: Names of columns.
        """
        if not columns or not all(isinstance(name, str) for name in columns):
            raise InvalidArgument(
                f"group_by takes the names of columns, not {columns!r}",
                where="group_by",
                hint='Write group_by("city"); add a computed column with with_columns first',
            )
        if (known := self.columns) is not None:
            require_names(columns, known, "group_by")
        return GroupedTable(self, columns, key_names(columns, OF_TABLES, where="group_by"))

    @explained(
        k="n", order_by="by", on="by", key="per", group_by="per", partition_by="per",
        ascending="reverse", descending="reverse", keep="n",
    )  # fmt: skip
    def top(
        self,
        n: int,
        *,
        per: str | Sequence[str] | None = None,
        by: str,
        ties: str | Sequence[str] = (),
        reverse: bool = False,
        rank: str = "rank",
    ) -> Table[StreamT]:
        """Return the rows of each group with the largest values of a column, as a table (T-6).

        It has a column ``rank``, int64: 1 for the row that comes first, up to ``n``. The primary
        key of the result is the columns of ``per`` and ``rank``. Of rows with equal ``by`` the ones
        with smaller ``ties`` come first, then the ones with smaller primary keys, so that ranks
        depend on the rows alone. Rows in which ``by`` is null have no rank.

        A change emits the ranks whose row is another one now, at most ``n`` of each group that it
        touches; it costs as much as ``n`` rows, and sometimes the square root of the group.

        Args:
            n: How many rows of a group.
            per: The columns to group by, in which nulls are equal; by default all rows are one
                group.
            by: The column that decides, of any ordered type.
            ties: The columns that order rows of equal ``by``, ascending, nulls first.
            reverse: Returns the rows with the smallest values, the smallest first.
            rank: What the column of ranks is called.

        Raises:
            InvalidArgument: An argument is wrong, a column is missing, or the table has a column of
                that name.
        """
        stream = self._stream
        stage, types, key = top_stage(stream, self._key, n, per, by, ties, rank, reverse=reverse)
        return Table(stream._of(emitted_as_records(stage, types)), key)

    def changes(self, form: Form = "retract") -> StreamT:
        """Return the changes as a stream, for further stages (T-4).

        A change has the event time of its row. With ``upsert`` and ``debezium``, of several changes
        of a key that come in one batch only what they come to is a record.

        Args:
            form: ``retract``: old rows as retractions, new ones as inserts; a process reads the
                column ``kind``. ``upsert``: the new row with ``deleted`` false; or of a row that
                went the key, null in the other columns, and ``deleted`` true. ``debezium``: records
                with ``op`` (``c``, ``u`` or ``d``), ``before`` and ``after`` (rows as structs, or
                null) and ``ts_ms`` (event time, int milliseconds since 1970). The stream of the
                last two does not retract. A record of a row that went has the time of that row, so
                windows may find it late.

        Raises:
            InvalidArgument: ``form`` is not known, or the table has a column ``deleted``.
        """
        match form:
            case "retract":
                return self._stream
            case "upsert":
                return self._stream._with(UpsertForm(self._key.columns))
            case "debezium":
                return self._stream._with(DebeziumForm(self._key.columns))
            case _:
                raise InvalidArgument(
                    f"{describe('form', form)} is not known",
                    where="changes(form=)",
                    hint=nearest(str(form), get_args(Form)),
                )

    def write_to(self, *sinks: Sink) -> Writing:
        """Return an output that keeps the rows in tables outside; call ``run`` on it (T-4).

        :class:`lowwater.io.sinks.SqliteTable` and :class:`lowwater.io.sinks.PostgresTable` keep one
        row per primary key: after each delivery they hold the rows that stand. Columns are those of
        the table and ``timestamp``, the event time of the row. SQL allows no nulls in a primary
        key. Where the key may hold some, as behind an outer join or ``group_by``, the primary key
        is a column ``row_key`` instead: the key as a JSON list. Any other sink gets the net changes
        of each delivery: see :class:`lowwater.io.sinks.Delivery`.

        Args:
            *sinks: Where the rows go.

        Raises:
            InvalidArgument: There is no sink, or one cannot take these columns.
        """
        if not sinks:
            raise InvalidArgument(
                "write_to needs at least one sink",
                where="write_to",
                hint='Write, say, write_to(lowwater.io.sinks.SqliteTable("app.db", "people"))',
            )
        stage, view = self._stage_and_view("write_to")
        names = self.columns
        for name in names or ():
            if name == "kind" or (name == ROW_KEY and self._key.nullable):
                raise InvalidArgument(
                    f"the column {name!r} has the name of one that is written beside the rows",
                    where="write_to",
                    hint="Rename it with with_columns, and leave it out with select",
                )
        return Writing(stage, view.empty(self._stream._schema, names or ()), sinks, _view=view)

    @with_run_options
    def to_arrow(self, **options: Unpack[RunOptions]) -> pa.Table:
        """Run to the end and return the rows that stand, in order of their last change.

        Args:
            **options: See :class:`RunOptions`.

        Returns:
            The columns of the table, and ``timestamp``, the event time of the row.

        Raises:
            InvalidArgument: A source never ends.
        """
        return self._standing("to_arrow", options)

    @with_run_options
    def to_pandas(self, **options: Unpack[RunOptions]) -> pd.DataFrame:
        """Run to the end and return the same as a pandas DataFrame.

        Args:
            **options: See :class:`RunOptions`.
        """
        return as_pandas(self._standing("to_pandas", options))

    @with_run_options
    def to_polars(self, **options: Unpack[RunOptions]) -> pl.DataFrame:
        """Run to the end and return the same as a polars DataFrame.

        Needs ``pip install "lowwater[polars]"``.

        Args:
            **options: See :class:`RunOptions`.
        """
        return as_polars(self._standing("to_polars", options))

    @with_run_options
    def rows(self, **options: Unpack[RunOptions]) -> list[dict[str, Any]]:
        """Run to the end and return the rows that stand as dicts, without ``timestamp``.

        >>> import lowwater as lw
        >>> moves = [{"at": "2000-01-01T12Z", "id": 1, "city": c} for c in ("Ulm", "Bonn")]
        >>> lw.from_iterable(moves, time="at").table(key="id").select("id", "city").rows()
        [{'id': 1, 'city': 'Bonn'}]

        Args:
            **options: See :class:`RunOptions`.
        """
        rows = self._standing("rows", options)
        if "timestamp" not in (self.columns or ()):
            rows = rows.drop_columns(["timestamp"])
        values = [to_values(field, rows.column(field.name)) for field in rows.schema]
        names = rows.column_names
        return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]

    @property
    def _stage(self) -> Stage:
        """The last stage, for ``lw.check``."""
        return self._stage_and_view("check")[0]

    def explain(self) -> str:
        """Describe the stages: what each does, and where data is exchanged."""
        return explain_graph(Graph.of([self._stage]))

    def to_mermaid(self) -> str:
        """Return the graph of stages as Mermaid text, for Markdown and notebooks."""
        return mermaid_graph(Graph.of([self._stage]))

    def graph(self, *, theme: Theme = "auto") -> GraphDiagram:
        """Draw the graph of stages.

        Args:
            theme: ``light``, ``dark``, or ``auto``, which follows the system of the reader.
        """
        from lowwater.viz import GraphDiagram

        return GraphDiagram.of(Graph.of([self._stage]), theme=theme)

    def _standing(self, step: str, options: RunOptions) -> pa.Table:
        stage, view = self._stage_and_view(step)
        refuse_endless(Graph.of([stage]), step)
        parts: list[Output] = []
        outcomes = Outcomes((stage,), options, dead_letters_in=None)
        for outcome in outcomes:
            parts.extend(outcome.outputs.values())
        if parts:
            return view.rows(view.records(parts, stage.key_names, outcomes.set_aside))
        empty = view.empty(self._stream._schema, self.columns or ())
        beside = [name for name in ("kind", ROW_KEY) if name in empty.column_names]
        return empty.drop_columns(beside).replace_schema_metadata(None)

    def _stage_and_view(self, step: str) -> tuple[Stage, View]:
        """Return the last stage, and how its output becomes the rows."""
        (flow,) = self._stream._flows
        if not isinstance(flow.origin, Stage):
            raise InternalError(f"{step}: a table has no stage")
        key = self._key
        return flow.origin, View(key.columns, key.nullable, flow.steps, flow.origin.retracts)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            public = {each for each in dir(type(self._stream)) if not each.startswith("_")}
            of_stream = f"Its changes are a stream: .changes().{name}(...)"
            hints = {
                **dict.fromkeys(public, of_stream),
                **dict.fromkeys(("run", "collect"), f"{of_stream}. Its rows: .rows()"),
                **dict.fromkeys(("head", "show"), "Its rows: .rows(), or .to_polars()"),
                "process": 'Its changes are a stream: .changes().key_by("...").process(...)',
                "window": "A table has no windows: window the stream that it is made of, or "
                '.changes(form="upsert").key_by("...").window(...)',
                "union": "Unite the streams of upserts, and make one table of them",
                "deduplicate": "A table has one row per key in any case",
                "join_as_of": "Join the stream with the one that the table is made of",
                "aggregate": 'Group first: .group_by("...").aggregate(...)',
                **dict.fromkeys(
                    ("groupBy", "groupby", "group_by_key", "partition_by"),
                    'In lowwater it is .group_by("...").aggregate(...)',
                ),
            }
            raise no_step("a table", name, hints, dir(Table))


@explains
@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GroupedTable(Generic[StreamT]):
    """The rows of a table, grouped by columns."""

    _table: Table[StreamT]
    _columns: tuple[str, ...]
    _names: tuple[str, ...]

    def __repr__(self) -> str:
        return f"GroupedTable({self._table!r} by {', '.join(map(repr, self._columns))})"

    def aggregate(self, *unnamed: AggregateSpec, **named: AggregateSpec) -> Table[StreamT]:
        """Aggregate the rows of each group; a group without rows is deleted (T-3).

        The primary key of the result is the columns that it is grouped by.

        Args:
            *unnamed: Aggregates that are named after themselves: ``lw.count()`` is ``count``.
            **named: The aggregates by name, such as ``total=lw.sum("amount")``.

        Raises:
            InvalidArgument: There is none, its name is taken, or its column is missing.
        """
        specs = checked_aggregates(unnamed, named)
        if not specs:
            raise InvalidArgument(
                "aggregate needs at least one aggregate",
                where="aggregate",
                hint="Write, say, aggregate(n=lw.count())",
            )
        for name in specs:
            if name in self._columns or name in self._names:
                raise InvalidArgument(
                    f"an aggregate cannot be called {name!r}: it is grouped by that column",
                    where="aggregate",
                    hint=f"Name it, as in aggregate(my_{name}=...)",
                )
        signed_specs(specs, differences=False)
        stream, specs = with_conditions(self._table._stream, specs)
        known = known_columns(stream)
        if known is not None:
            needed = [column for spec in specs.values() for column, _ in columns_read(spec)]
            require_names(needed, public_names(tuple(known)), "aggregate")
        stage = Stage(stream._flows, self._columns, self._names, Grouped(specs))
        types: Mapping[str, pa.DataType | None] | None = None
        if known is not None:
            sure = {name: kind for name, kind in known.items() if kind is not None}
            results = {name: result_type(spec, sure) for name, spec in specs.items()}
            pairs = zip(self._names, self._columns, strict=True)
            types = {**{name: known[column] for name, column in pairs}, **results}
        of_table = self._table._key
        nullable = of_table.nullable or not {*self._columns} <= {*of_table.columns}
        key = TableKey(self._names, nullable)
        return Table(stream._of(emitted_as_records(stage, types)), key)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            public = [each for each in dir(Table) if not each.startswith("_")]
            hints = {
                **dict.fromkeys(public, f"Aggregate first: .aggregate(n=lw.count()).{name}(...)"),
                "window": "A table has no windows: .aggregate(n=lw.count()) gives a row per group",
            }
            raise no_step("a grouped table", name, hints, dir(GroupedTable))


def table_of(
    stream: StreamT,
    *,
    key: str | Sequence[str],
    order: str | None,
    deleted: nw.Expr | str | None,
    ttl: DurationLike | None,
    keep_deleted: DurationLike | None,
) -> Table[StreamT]:
    """Return the table of a stream of upserts.

    ``deleted`` may be ``DELETED``, for a stream that has the column of this name already.

    Raises:
        InvalidArgument: An argument is wrong, a column is missing, or the stream retracts.
    """
    keys = checked_key(key, "table")
    if stream._deduplication is not None:
        raise InvalidArgument(
            "a table does not drop duplicates: it has one row per key in any case",
            where="deduplicate(...).table",
            hint="Leave deduplicate out",
        )
    if any(is_signed(flow) for flow in stream._flows):
        raise InvalidArgument(
            "the stream retracts records, and a table is made of upserts",
            where="table",
            hint="Make the table of the stream in front of the stage that retracts; the changes of "
            'a table are upserts as changes(form="upsert")',
        )
    _check_order(order, keys)
    known = known_columns(stream) or None  # of a list without elements nothing is known
    if known is not None:
        names = public_names(tuple(known))
        require_names(keys, names, "table(key=)")
        require_names([] if order is None else [order], names, "table(order=)")
    key_columns = key_names(keys, OF_TABLES, others=known or (), where="table(key=)")
    if deleted is not None and deleted is not DELETED:
        checked = checked_expressions("table(deleted=)", (deleted,), {}).unnamed
        _check_deleted(checked[0], known)
        stream = stream._with(WithColumns(Expressions((), {DELETED: checked[0]})))
    age = None if ttl is None else duration(ttl, name="ttl")
    keep = duration(_KEEP_DELETED if keep_deleted is None else keep_deleted, name="keep_deleted")
    for name, given, us in (("ttl", ttl, age), ("keep_deleted", keep_deleted, keep)):
        if us is not None and us < 0:
            raise InvalidArgument(
                f"{describe(name, given)} is below zero",
                where=f"table({name}=)",
                hint=f'Write, say, {name}="1d"',
            )
    types = {
        name: kind
        for name, kind in (known or {}).items()
        if name not in keys and not name.startswith("__lw_")
    }
    work = Upserted(Upserting(order, keep, age), types, deletes=deleted is not None)
    stage = Stage(stream._flows, keys, key_columns, work)
    every = None
    if known is not None:
        named = zip(key_columns, keys, strict=True)
        every = {**{name: known[column] for name, column in named}, **types}
    return Table(stream._of(emitted_as_records(stage, every)), TableKey(key_columns))


def checked_key(key: object, where: str) -> tuple[str, ...]:
    """Return the columns of a primary key, as a user has given them, or raise."""
    keys = (key,) if isinstance(key, str) else tuple(key) if isinstance(key, Sequence) else ()
    if not keys or not all(isinstance(name, str) for name in keys):
        raise InvalidArgument(
            f"{describe('key', key)} is neither the name of a column nor several names",
            where=f"{where}(key=)",
            hint='Write key="id", or key=("shop", "id")',
        )
    return keys


def _check_order(order: object, keys: tuple[str, ...]) -> None:
    """Raise if this is no column that could say which of two upserts of a key is the newer."""
    if order is not None and not isinstance(order, str):
        raise InvalidArgument(
            f"{describe('order', order)} is not the name of a column",
            where="table(order=)",
            hint='Write, say, order="version"',
        )
    if order in keys:
        raise InvalidArgument(
            f"{describe('order', order)} is a column of the key, so all upserts of a row have the "
            "same",
            where="table(order=)",
            hint='Name a column that grows with each upsert, such as order="version"',
        )


def _check_deleted(deleted: Any, types: Types | None) -> None:
    """Raise if an expression is not true or false, as far as can be known without running."""
    if (schema := _schema_of(types)) is None:
        return
    try:
        step = Select(Expressions((), {DELETED: _column(deleted)}), ())
        records = step.apply(no_records(schema)).records
    except InvalidArgument as error:
        raise InvalidArgument(error.what, where="table(deleted=)", hint=error.hint) from None
    kind = records.columns[DELETED].to_arrow().type
    if not (pa.types.is_boolean(kind) or pa.types.is_null(kind)):
        raise InvalidArgument(
            f"deleted={shown(deleted)} has type {kind}, not bool",
            where="table(deleted=)",
            hint='Compare something, as in lw.col("op") == "d"',
        )


def _column(expression: Any) -> Any:
    from lowwater.engine.records.column_expressions import col

    return col(expression) if isinstance(expression, str) else expression


def _names_of(expressions: tuple[Any, ...], types: Types | None) -> tuple[str, ...]:
    """Return the names of what expressions compute, as far as can be known without running."""
    if not expressions or (schema := _schema_of(types)) is None:
        return tuple(name for name in expressions if isinstance(name, str))
    return tuple(Select(Expressions(expressions, {}), ()).apply(no_records(schema)).records.columns)


def _schema_of(types: Types | None) -> pa.Schema | None:
    """Return the public columns as a schema if all of their types are known."""
    public = {name: kind for name, kind in (types or {}).items() if not name.startswith(HIDDEN)}
    if not public or any(kind is None for kind in public.values()):
        return None
    return pa.schema(list(public.items()))
