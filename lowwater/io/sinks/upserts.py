"""A database table of the latest pane of each key and window, or of the rows of a table.

The file is long because the statements of a delivery are one transaction with the record of it.
"""

# ruff: noqa: S608  # the names in statements are quoted, and values are parameters
from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import pyarrow as pa

from lowwater.engine.local.delivery import Delivery, Writer
from lowwater.engine.records.json_rows import json_text, rows_of
from lowwater.errors import DataError, StateError
from lowwater.io.sinks.dialect import (
    Cursor,
    Dialect,
    Kind,
    Unreadable,
    kind_of,
    readable_values_of,
    values_of,
)
from lowwater.io.sinks.output_owner import ahead, foreign_opening, lost, swapped

Row: TypeAlias = tuple[Any, ...]
# The tables that a writer has made, and the kinds of the columns that come from panes.
Made: TypeAlias = dict[str, dict[str, Kind]]

LEDGER = "lowwater_outputs"
NOT_STORABLE = "not_storable"
"""The reason of a dead letter for a pane that the database cannot hold."""

_SHOWN = 80
_VERSION = 3
# What a column becomes that holds the one kind and is given the other.
_WIDER: Mapping[tuple[Kind, Kind], Kind] = {
    ("integer", "real"): "real",
    ("real", "integer"): "real",
}


@final
class Upserts:
    """One table, its row in the ledger of outputs, and the tables beside it.

    The ledger says who writes the table, up to which delivery it has, and which of the tables the
    writer has made, with their columns. A table that it has not made is never touched.

    Args:
        cursor: Of a connection on which no transaction is open but those begun here.
        table: The table's name.
        dialect: How to speak to the database.
        writer: Who opens the table.
    """

    def __init__(self, cursor: Cursor, table: str, dialect: Dialect, writer: Writer) -> None:
        self._cursor = cursor
        self._table = table
        self._dialect = dialect
        self._writer = writer
        self._own = dialect.named(table)
        schema, dot, _ = table.rpartition(".") if dialect.schemas else ("", "", table)
        self._ledger = dialect.named(f"{schema}{dot}{LEDGER}")  # lives beside the table

    def look(self, *, overwrite: bool) -> None:
        """Raise what :meth:`prepare` would raise; change nothing."""
        self._within(lambda: self._look(overwrite=overwrite), end="ROLLBACK")

    def prepare(self, *, overwrite: bool) -> None:
        """Check that the table is ours, and enter it into the ledger if it is new.

        Args:
            overwrite: Whether the output of another writer is to be dropped.

        Raises:
            StateError: Something else, or another writer, has written the table.
        """
        self._within(lambda: self._enter(overwrite=overwrite))

    def finish(self, *, complete: bool) -> None:
        """Note that the run is complete; forget a run that failed before it wrote anything."""
        self._within(lambda: self._finish(complete=complete))

    def apply(self, delivery: Delivery) -> None:
        """Apply a delivery and note it, in one transaction; do nothing if it is noted already.

        Raises:
            DataError: A column is of another type than before.
            StateError: The ledger has been tampered with.
        """
        self._within(lambda: self._apply(delivery))

    def _within(self, work: Callable[[], object], end: str = "COMMIT") -> None:
        self._run(self._dialect.begin)
        try:
            work()
            self._run(end)
        except BaseException:
            try:
                self._run("ROLLBACK")
            except Exception:  # noqa: S110  # what led here is what to tell
                pass
            raise

    def _enter(self, *, overwrite: bool) -> None:
        mark, writer = self._dialect.mark, self._writer
        replaced = self._look(overwrite=overwrite)
        if replaced is None:
            self._run(
                f"UPDATE {self._ledger} SET opening = {mark}, complete = {mark} "
                f"WHERE table_name = {mark}",
                (writer.opening, False, self._table),
            )
            return
        for table in replaced:
            self._run(f"DROP TABLE IF EXISTS {self._dialect.named(table)}")
        self._run(f"DELETE FROM {self._ledger} WHERE table_name = {mark}", (self._table,))
        self._run(
            f"INSERT INTO {self._ledger} "
            f"(table_name, version, writer, opening, output, resumes, complete, columns) "
            f"VALUES ({', '.join([mark] * 8)})",
            (
                self._table, _VERSION, writer.id, writer.opening, writer.output, writer.resumes,
                False, "{}",
            ),
        )  # fmt: skip

    def _look(self, *, overwrite: bool) -> Made | None:
        """Return the tables of another writer to replace; ``None`` if they are this one's."""
        of, mark = self._dialect.types, self._dialect.mark
        if self._dialect.guard:
            self._run(self._dialect.guard)
        self._run(
            f"CREATE TABLE IF NOT EXISTS {self._ledger} ("
            f"table_name {self._dialect.name_type} PRIMARY KEY, version {of['integer']} NOT NULL, "
            f"writer {of['text']} NOT NULL, opening {of['text']} NOT NULL, "
            f"output {of['integer']} NOT NULL, "
            f"resumes {of['boolean']} NOT NULL, complete {of['boolean']} NOT NULL, "
            f"epoch {of['integer']}, piece {of['integer']}, columns {of['text']} NOT NULL)"
        )
        self._check_version()
        self._run(
            f"SELECT writer, opening, output, resumes, epoch, columns "
            f"FROM {self._ledger} WHERE table_name = {mark}",
            (self._table,),
        )
        known = self._cursor.fetchone()
        if known is None and self._writer.delivered:
            raise lost(self._table, is_another=False)
        made = {} if known is None else self._made(known)
        is_ours = known is not None and self._is_ours(known[:5], overwrite=overwrite)
        for table in tables_of(self._table):
            if table not in made:
                self._refuse_stranger(table)
            elif is_ours and not self._is_there(table):
                raise StateError(
                    f"the table {table!r} is gone, to which rows were delivered",
                    hint=f"Restore it; or drop what is left of {self._table!r} and its row in "
                    f"{LEDGER!r}, reset the state directory and run from the start",
                )
        return None if is_ours else made

    def _check_version(self) -> None:
        """Raise if the ledger is of another layout, whose columns may differ."""
        self._run(f"SELECT version FROM {self._ledger} WHERE version <> {_VERSION}")
        if (other := self._cursor.fetchone()) is not None:
            raise StateError(
                f"the table {LEDGER!r} was written in layout {other[0]}, and {_VERSION} is known",
                hint="Use the version of lowwater that wrote it, or another database",
            )

    def _made(self, known: tuple[Any, ...]) -> Made:
        """Return the tables that a writer has made, of its row in the ledger."""
        made: Made = json.loads(known[-1])
        return made

    def _is_ours(self, known: tuple[Any, ...], *, overwrite: bool) -> bool:
        writer, opening, output, resumes, epoch = known
        if (writer, output) == (self._writer.id, self._writer.output):
            if not self._writer.follows(opening):
                raise foreign_opening(self._table, opening, self._writer)
            if self._writer.resumes and (epoch or 0) > self._writer.epoch:
                raise ahead(self._table, epoch, self._writer)
            return True
        if writer == self._writer.id:
            raise swapped(self._table, output, self._writer.output)
        if self._writer.delivered:
            raise lost(self._table, is_another=True)
        if overwrite:
            return False
        if resumes:
            whose = f"the output of another state directory ({writer}, not {self._writer.id})"
        else:
            whose = "the output of another run"
        raise StateError(
            f"the table {self._table!r} holds {whose}: the two would mix",
            hint="Give another table, or replace what is there with overwrite=True",
        )

    def _finish(self, *, complete: bool) -> None:
        mark, writer = self._dialect.mark, self._writer
        if complete:
            self._run(
                f"UPDATE {self._ledger} SET complete = {mark} "
                f"WHERE table_name = {mark} AND writer = {mark} AND opening = {mark} "
                f"AND output = {mark}",
                (True, self._table, writer.id, writer.opening, writer.output),
            )
        elif not writer.resumes:
            # Another writer may have replaced this one's row meanwhile.
            self._run(
                f"DELETE FROM {self._ledger} WHERE epoch IS NULL "
                f"AND table_name = {mark} AND writer = {mark} AND opening = {mark} "
                f"AND output = {mark}",
                (self._table, writer.id, writer.opening, writer.output),
            )

    def _refuse_stranger(self, table: str) -> None:
        if self._is_there(table):
            raise StateError(
                f"there is a table {table!r} already, which this sink did not make",
                hint="Give another name, or drop that table",
            )

    def _is_there(self, table: str) -> bool:
        self._run(self._dialect.exists, (table,))
        return self._cursor.fetchone() is not None

    def _apply(self, delivery: Delivery) -> None:
        mark = self._dialect.mark
        self._run(
            f"SELECT writer, opening, output, epoch, piece, columns FROM {self._ledger} "
            f"WHERE table_name = {mark}{self._dialect.lock}",
            (self._table,),
        )
        known = self._cursor.fetchone()
        own = (self._writer.id, self._writer.opening, self._writer.output)
        if known is None or known[:3] != own:
            raise StateError(
                f"the row of {self._table!r} in {LEDGER!r} has vanished, or is another run's",
                hint="Let one run at a time write to a table; if the row was removed, drop the "
                "table, reset the state directory and run from the start",
            )
        epoch, piece = known[3:5]
        if epoch is not None and (delivery.epoch, delivery.piece) <= (epoch, piece):
            return
        made = self._made(known)
        refused: list[dict[str, Any]] = []
        if delivery.panes.num_rows:
            made[self._table] = self._fit(delivery, made.get(self._table, {}))
            refused = self._change(delivery, made[self._table])
        _, late, errors = tables_of(self._table)
        for name, rows in (
            (late, _rows_of(delivery.late)),
            (errors, [*_rows_of(delivery.errors), *refused]),
        ):
            if rows:
                if name not in made:
                    self._make_side_table(name)
                    made[name] = {}
                self._append(name, delivery.id, rows)
        self._run(
            f"UPDATE {self._ledger} SET epoch = {mark}, piece = {mark}, columns = {mark} "
            f"WHERE table_name = {mark}",
            (delivery.epoch, delivery.piece, json.dumps(made), self._table),
        )

    def _fit(self, delivery: Delivery, columns: Mapping[str, Kind]) -> dict[str, Kind]:
        """Make the table, or the columns of it, that the delivery needs; return all columns.

        A column appears with the first value that is not null, as that tells its type.
        """
        of, quoted = self._dialect.types, self._dialect.quoted
        given = {f.name: kind_of(f) for f in delivery.panes.schema if f.name != "kind"}
        given = {name: kind for name, kind in given.items() if kind != "nothing"}
        if not columns:
            self._refuse_stranger(self._table)
            key = _key(delivery)
            lines = [f"{quoted(n)} {of[k]}{' NOT NULL' * (n in key)}" for n, k in given.items()]
            lines.append(f"PRIMARY KEY ({', '.join(map(quoted, key))})")
            self._run(f"CREATE TABLE {self._own} ({', '.join(lines)}){self._dialect.keys}")
            return given
        fitted = dict(columns)
        for name, kind in given.items():
            held = columns.get(name)
            if held is None:
                self._run(f"ALTER TABLE {self._own} ADD COLUMN {quoted(name)} {of[kind]}")
                fitted[name] = kind
            elif held != kind:
                fitted[name] = self._widened(name, held, kind)
        return fitted

    def _widened(self, name: str, held: Kind, kind: Kind) -> Kind:
        wider = _WIDER.get((held, kind))
        if wider is None:
            raise DataError(
                f"the column {name!r} of the table {self._table!r} holds values of kind {held}, "
                f"and now come some of kind {kind}",
                hint="Let the aggregate always give one type, and write to a new table",
            )
        if wider != held and self._dialect.widen:
            self._run(
                self._dialect.widen.format(
                    table=self._own,
                    column=self._dialect.quoted(name),
                    type=self._dialect.types[wider],
                )
            )
        return wider

    def _change(self, delivery: Delivery, columns: Mapping[str, Kind]) -> list[dict[str, Any]]:
        """Apply the panes; return those that the database cannot hold, as dead letters.

        The delivery is committed already and would come again at every restart, so refusing it
        would stop the run for good. The row of such a pane is removed: it is not the latest.
        """
        panes = delivery.panes
        # The key comes first, in any table of panes or of changes.
        names = [name for name in panes.schema.names if name in columns]
        values, is_odd = [], False
        for name in names:
            given = panes.schema.field(name), panes.column(name), self._dialect.shapes
            try:
                values.append(values_of(*given))
            except (OverflowError, ValueError):
                values.append(readable_values_of(*given))
                is_odd = True
        key = _key(delivery)
        change = changes(
            zip(*values, strict=True),
            (kind == "retract" for kind in panes.column("kind").to_pylist()),
            key=len(key),
            index=None if delivery.is_table else names.index("index"),
        )
        quoted, mark, own = self._dialect.quoted, self._dialect.mark, self._own
        same = " AND ".join(f"{quoted(name)} = {mark}" for name in key)
        into = ", ".join(map(quoted, names))
        rest = ", ".join(f"{quoted(n)} = excluded.{quoted(n)}" for n in names if n not in key)
        on_conflict = f"DO UPDATE SET {rest}" if rest else "DO NOTHING"
        take = f"DELETE FROM {own} WHERE {same} AND {quoted('index')} = {mark}"
        drop = f"DELETE FROM {own} WHERE {same}"
        put = (
            f"INSERT INTO {own} ({into}) VALUES ({', '.join([mark] * len(names))}) "
            f"ON CONFLICT ({', '.join(map(quoted, key))}) {on_conflict}"
        )

        def each(statement: str, rows: Sequence[Row]) -> list[tuple[Row, object]]:
            sound, refused = _parted(rows) if is_odd else (rows, [])
            return [*refused, *self._each(statement, sound)]

        for statement, rows in ((take, change.taken), (drop, change.gone)):
            each(statement, rows)  # a key that cannot be stored has no row to remove
        failed = each(put, change.rows)
        each(drop, [row[: len(key)] for row, _ in failed])
        return [
            {
                "reason": NOT_STORABLE,
                "detail": f"{_shown(dict(zip(key, row, strict=False)))}: {_message(error)}",
                "where": f"delivery {delivery.id}",
                "record": dict(zip(names, row, strict=True)),
            }
            for row, error in failed
        ]

    def _each(self, statement: str, rows: Sequence[Row]) -> list[tuple[Row, Exception]]:
        """Run a statement for each row; return the rows that the database cannot hold, and why.

        Complexity: a call per block of rows; about 2 log n more for each row that is refused.
        """
        if not rows:
            return []
        self._run("SAVEPOINT rows")
        try:
            self._cursor.executemany(statement, rows)
        except Exception as error:
            if not self._dialect.refuses(error):
                raise
            self._run("ROLLBACK TO SAVEPOINT rows")
            self._run("RELEASE SAVEPOINT rows")
            if len(rows) == 1:
                return [(rows[0], error)]
            half = len(rows) // 2
            return [*self._each(statement, rows[:half]), *self._each(statement, rows[half:])]
        self._run("RELEASE SAVEPOINT rows")
        return []

    def _make_side_table(self, table: str) -> None:
        of, own = self._dialect.types, self._dialect.named(table)
        self._refuse_stranger(table)
        self._run(
            f"CREATE TABLE {own} (delivery {of['text']} NOT NULL, "
            f"place {of['integer']} NOT NULL, reason {of['text']}, record {of['record']}, "
            "PRIMARY KEY (delivery, place))"
        )

    def _append(self, table: str, delivery: str, rows: Sequence[Mapping[str, Any]]) -> None:
        mark, own = self._dialect.mark, self._dialect.named(table)
        statement = (
            f"INSERT INTO {own} (delivery, place, reason, record) "
            f"VALUES ({mark}, {mark}, {mark}, {mark})"
        )
        failed: list[tuple[Row, Exception]] = []
        places: Sequence[int] = range(len(rows))
        # The database's encoding may lack a character, which JSON can escape; or the record is too
        # long, and only why it is here can be kept.
        for written in (json_text, _escaped, _without_record):
            failed = self._each(
                statement,
                [(delivery, at, rows[at].get("reason"), written(rows[at])) for at in places],
            )
            if not failed:
                return
            places = [row[1] for row, _ in failed]
        raise failed[0][1]

    def _run(self, statement: str, parameters: Sequence[Any] = ()) -> None:
        self._cursor.execute(statement, parameters)


@final
@dataclass(frozen=True, slots=True)
class Changes:
    """Three kinds of changes, of distinct rows but for the first; apply them in this order.

    Args:
        taken: (key columns..., index) of rows that go if they have this index.
        gone: Key columns of rows that go in any case.
        rows: Whole rows, new or in place of the one of the same key.
    """

    taken: Sequence[Row]
    gone: Sequence[Row]
    rows: Sequence[Row]


def changes(
    rows: Iterable[Row], retracts: Iterable[bool], *, key: int, index: int | None
) -> Changes:
    """Return what rows in order come to: an insert puts a row, a retract takes back just that one.

    After an insert the outcome no longer depends on what the table held, so that a window that
    fired a hundred times costs one statement.

    Args:
        rows: The panes; the first ``key`` values of each name its row.
        retracts: Which of them are taken back.
        key: How many values name a row.
        index: Where the pane's index is among the values; ``None``: they are rows of a table, and a
            retract removes the row of its key whatever it holds.

    >>> changes([("a", 1, 0), ("a", 2, 1), ("b", 7, 4)], [False, False, True], key=1, index=2)
    Changes(taken=[('b', 4)], gone=[], rows=[('a', 2, 1)])
    """
    last: dict[Row, Row | None] = {}
    taken: list[Row] = []
    for row, retract in zip(rows, retracts, strict=True):
        name = row[:key]
        if not retract:
            last[name] = row
        elif index is None:
            last[name] = None
        elif name not in last:
            taken.append((*name, row[index]))
        else:
            shown = last[name]
            if shown is not None and shown[index] == row[index]:
                last[name] = None
    return Changes(
        taken,
        [name for name, row in last.items() if row is None],
        [row for row in last.values() if row is not None],
    )


def tables_of(table: str) -> tuple[str, str, str]:
    """Return the tables of a sink: that of panes, of late elements, and of dead letters."""
    return table, f"{table}_late", f"{table}_errors"


def _rows_of(table: pa.Table | None) -> list[dict[str, Any]]:
    return [] if table is None else list(rows_of(table))


def _parted(rows: Sequence[Row]) -> tuple[list[Row], list[tuple[Row, object]]]:
    """Return the rows to give to the database, and those with a value that Python cannot hold."""
    sound: list[Row] = []
    refused: list[tuple[Row, object]] = []
    for row in rows:
        odd = [value for value in row if type(value) is Unreadable]
        if odd:
            refused.append((row, odd[0].why))
        else:
            sound.append(row)
    return sound, refused


def _shown(values: Mapping[str, Any]) -> str:
    """Return values as an error names them: a long one is cut."""
    texts = ((name, repr(value)) for name, value in values.items())
    return ", ".join(
        f"{name}={text if len(text) <= _SHOWN else f'{text[:_SHOWN]}… ({len(text)} characters)'}"
        for name, text in texts
    )


def _message(error: object) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _escaped(row: Mapping[str, Any]) -> str:
    """Return a row as JSON in ASCII."""
    return "".join(char if char.isascii() else json.dumps(char)[1:-1] for char in json_text(row))


def _without_record(row: Mapping[str, Any]) -> str:
    return _escaped({name: value for name, value in row.items() if name != "record"})


def _key(delivery: Delivery) -> tuple[str, ...]:
    return delivery.keys if delivery.is_table else (*delivery.keys, "window_start", "window_end")
