"""What must stay as it is on the server while a table's changes are followed.

A table is known by its OID, a column by its number: a name may be given to another. What the server
stops publishing is not told by any message, so it is looked for.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Self, final

from lowwater.errors import DataError, PipelineWarning, warn
from lowwater.io.postgres_changes.table_definition import TableDefinition
from lowwater.state.formats import damaged

_STATE = """
SELECT c.oid::int8, c.relreplident = 'f',
  (SELECT coalesce(json_object_agg(a.attname, a.attnum ORDER BY a.attnum), '{}')::text
   FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = ANY (%(columns)s::text[])
   AND NOT a.attisdropped),
  coalesce(p.oid, 0)::int8, p.puballtables,
  ARRAY(SELECT r.oid::int8 FROM pg_publication_rel r
    WHERE r.prpubid = p.oid AND (r.prrelid = c.oid OR r.prrelid IN (
      SELECT relid FROM pg_partition_ancestors(c.oid)))
    UNION SELECT s.oid::int8 FROM pg_publication_namespace s
    JOIN pg_class o ON o.relnamespace = s.pnnspid
    WHERE s.pnpubid = p.oid AND (o.oid = c.oid OR o.oid IN (
      SELECT relid FROM pg_partition_ancestors(c.oid)))
    ORDER BY 1),
  concat(CASE WHEN p.pubinsert THEN 'i' END, CASE WHEN p.pubupdate THEN 'u' END,
    CASE WHEN p.pubdelete THEN 'd' END, CASE WHEN p.pubtruncate THEN 't' END),
  ARRAY(SELECT relid::oid::int8 FROM pg_partition_tree(c.oid) WHERE relid <> c.oid ORDER BY 1)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN pg_publication p ON p.pubname = %(publication)s
WHERE n.nspname = %(schema)s AND c.relname = %(name)s
"""
_KINDS = {"i": "inserts", "u": "updates", "d": "deletes", "t": "truncates"}
_ANEW = (
    "What has changed meanwhile may be missing: begin with a state directory and a slot of their "
    "own, so that the table is read anew"
)


@final
@dataclass(frozen=True, slots=True)
class TableState:
    """What a table and its publication are at an instant.

    Args:
        oid: The OID of the table.
        full: Whether changes come with all of the row before.
        columns: The number of each column that is read, as far as they are there.
        publication: The OID of the publication; 0 if it is gone.
        members: The OIDs of the entries by which it has the table; none if it has all tables.
        publishes: The kinds of changes that it publishes, a letter for each.
        partitions: The OIDs of the table's partitions.
        is_published: Whether the publication has the table.
    """

    oid: int
    full: bool
    columns: dict[str, int]
    publication: int
    members: list[int]
    publishes: str
    partitions: list[int]
    is_published: bool = True

    @classmethod
    def of(cls, connection: Any, table: TableDefinition, publication: str) -> Self:
        """Ask the server.

        Raises:
            DataError: There is no table of this name.
        """
        found = connection.execute(
            _STATE,
            {
                "schema": table.schema, "name": table.name, "publication": publication,
                "columns": [column.name for column in table.columns],
            },
        ).fetchone()  # fmt: skip
        if found is None:
            raise DataError(
                f"the table {table.shown} is gone: it was dropped or renamed",
                where=table.shown,
                hint="Give the table its name again; or begin with a state directory and a slot of "
                "their own",
            )
        oid, full, columns, number, has_all, members, publishes, partitions = found
        return cls(
            oid, full, json.loads(columns), number, members, publishes, partitions,
            bool(has_all or members),
        )  # fmt: skip

    @classmethod
    def from_position(cls, fields: Any) -> Self:
        """Return what a position holds.

        Raises:
            StateError: It is none.
        """
        lists = ("members", "partitions")
        if (
            not isinstance(fields, dict)
            or set(fields) != set(cls.__slots__)
            or not all(isinstance(fields[name], list) for name in lists)
            or not all(type(fields[name]) is int for name in ("oid", "publication"))
            or not isinstance(fields["publishes"], str)
            or not isinstance(fields["columns"], dict)
        ):
            raise damaged("the position in the changes of a table", f"it has {fields!r}")
        return cls(**fields)

    def to_position(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)

    def check(
        self, table: TableDefinition, publication: str, now: TableState, *, keep_truncates: bool
    ) -> None:
        """Raise if changes may be missing between this state and a later one.

        Args:
            table: The table.
            publication: The name of the publication.
            now: The later state.
            keep_truncates: Whether rows may go that are not told of.

        Raises:
            DataError: The name is another table's, a column was replaced, a partition is gone, or
                something is or was not published.
        """
        if now.oid != self.oid:
            raise table.replaced()
        for column, number in self.columns.items():
            if now.columns.get(column, number) != number:
                raise _refused(
                    table,
                    f"the column {column!r} of {table.shown} was dropped and added again: what it "
                    "holds now was not told by any change",
                )
        self._check_publication(table, publication, now)
        if self.full and not now.full:
            raise DataError(
                f"{table.shown} no longer has REPLICA IDENTITY FULL: changes come without the row "
                "before them",
                where=table.shown,
                hint=f"ALTER TABLE {table.shown} REPLICA IDENTITY FULL",
            )
        if gone := set(self.partitions) - set(now.partitions):
            what = f"{len(gone)} partitions of {table.shown} were detached or dropped"
            if not keep_truncates:
                raise _refused(table, f"{what}, which does not say which rows went")
            warn(PipelineWarning, what, where=table.shown, hint="Its rows are not told of")
        if came := set(now.partitions) - set(self.partitions):
            warn(
                PipelineWarning,
                f"{table.shown} has {len(came)} new partitions: rows that they had before are not "
                "read",
                where=table.shown,
                hint="Attach partitions that are empty; otherwise begin with a state directory and "
                "a slot of their own",
            )

    def _check_publication(self, table: TableDefinition, publication: str, now: TableState) -> None:
        if not now.publication:
            raise _refused(table, f"the publication {publication!r} is gone")
        if not now.is_published:
            raise _refused(
                table, f"the publication {publication!r} no longer has the table {table.shown}"
            )
        if now.publication != self.publication:
            raise _refused(table, f"the publication {publication!r} was dropped and created anew")
        if now.members != self.members:
            raise _refused(
                table, f"what the publication {publication!r} has of {table.shown} was changed"
            )
        if lost := [kind for letter, kind in _KINDS.items() if letter in self._lost(now)]:
            raise _refused(
                table, f"the publication {publication!r} no longer publishes {', '.join(lost)}"
            )

    def _lost(self, now: TableState) -> set[str]:
        """Return the letters of the kinds of changes that a later state no longer publishes."""
        return set(self.publishes) - set(now.publishes)


def _refused(table: TableDefinition, what: str) -> DataError:
    return DataError(what, where=table.shown, hint=_ANEW)
