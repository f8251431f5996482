"""A stand-in for psycopg that keeps its tables in an SQLite file, named by the dsn."""

from __future__ import annotations

import datetime as dt
import re
import sqlite3
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock


@contextmanager
def fake_psycopg() -> Iterator[types.ModuleType]:
    """Let ``import psycopg`` give the stand-in."""
    module = types.ModuleType("psycopg")
    contents: dict[str, Any] = {
        "Error": FakeError,
        "DataError": FakeDataError,
        "OperationalError": FakeOperationalError,
        "conninfo": types.SimpleNamespace(conninfo_to_dict=lambda dsn: {"dbname": dsn}),
        "connect": lambda dsn, autocommit: FakeConnection(dsn),
    }
    module.__dict__.update(contents)
    with mock.patch.dict(sys.modules, psycopg=module):
        yield module


class FakeCursor:
    """A cursor that takes what is said to PostgreSQL and says it to SQLite."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._cursor = cursor
        self.fetchone = cursor.fetchone

    def execute(self, statement: str, parameters: Any) -> None:
        if "to_regclass" in statement:
            statement = "SELECT 1 FROM sqlite_master WHERE name = %s"
        if statement.startswith("SET ") or "pg_advisory_xact_lock" in statement:
            return
        if "ALTER COLUMN" in statement:  # any column takes any number here
            return
        self._cursor.execute(_in_sqlite(statement), list(map(_plain, parameters)))

    def executemany(self, statement: str, rows: Any) -> None:
        self._cursor.executemany(_in_sqlite(statement), [list(map(_plain, row)) for row in rows])


class FakeConnection:
    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self.close = self._connection.close

    def cursor(self) -> FakeCursor:
        return FakeCursor(self._connection.cursor())


class FakeError(Exception):
    sqlstate = "53100"


class FakeDataError(FakeError):
    sqlstate = "22021"


class FakeOperationalError(FakeError):
    sqlstate = ""


def _in_sqlite(statement: str) -> str:
    statement = statement.replace(" FOR UPDATE", "")
    return re.sub("%(.)", lambda found: "?" if found[1] == "s" else found[1], statement)


def _plain(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return value
