"""What a table is, whichever way its server is reached and however its name is written."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from contextlib import closing

from lowwater.engine.local.delivery import Identities, Place
from lowwater.io.postgres_changes.client import LOG, client, connected

# A restored copy shares the system's identifier, so the start of the server is part of it. Of a
# table that is not there yet, its name is: the table is made in the first schema of the path.
_IDENTITY = """
SELECT s.system_identifier::text, pg_postmaster_start_time()::text, d.oid::int8,
  coalesce(n.nspname, %(schema)s, current_schema()::name)::text,
  coalesce(c.relname, %(name)s)::text
FROM pg_control_system() s
  JOIN pg_database d ON d.datname = current_database()
  LEFT JOIN pg_class c ON c.oid = to_regclass(%(quoted)s)
  LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
"""
RELATIVES = """
SELECT n.nspname || '.' || c.relname
FROM (SELECT relid FROM pg_partition_tree(%(table)s::oid::regclass)
  UNION SELECT relid FROM pg_partition_ancestors(%(table)s::oid::regclass)) AS r
  JOIN pg_class c ON c.oid = r.relid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid <> %(table)s ORDER BY 1
"""
"""The partitions of a table, and the tables that it is a partition of."""


def tables_at(dsn: str, name: str, tables: tuple[str, ...]) -> Place:
    """Return tables as a place that a run reads or writes.

    Args:
        dsn: How to connect.
        name: What errors call the place.
        tables: The names of tables, with or without their schemas.
    """

    def identify(wanted: Collection[str]) -> Identities:
        return identities(dsn, wanted)

    return Place(f"postgresql {dsn}", name, tables, identify=identify)


def identities(dsn: str, tables: Collection[str]) -> Identities:
    """Ask a server what tables are; nothing if it does not answer, which the run itself reports."""
    psycopg = client()
    found: dict[str, set[Hashable]] = {}
    try:
        with closing(connected(dsn)) as connection:
            for table in tables:
                schema, _, name = table.rpartition(".")
                quoted = ".".join(
                    psycopg.sql.Identifier(part).as_string(connection) for part in table.split(".")
                )
                named = {"schema": schema or None, "name": name, "quoted": quoted}
                try:
                    found[table] = set(connection.execute(_IDENTITY, named).fetchall())
                except psycopg.Error as error:  # no right to look into its schema
                    LOG.debug("a server does not say what %r is: %s", table, type(error).__name__)
    except psycopg.Error as error:
        LOG.debug("a server does not say what its tables are: %s", type(error).__name__)
    return found
