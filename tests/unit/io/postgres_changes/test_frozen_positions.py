"""Positions in the changes of a table, as commit 07f6227b stored them: see ``tests/goldens``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from tests.goldens.changes import STORED, batches, change, prepare, source
from tests.unit.io.postgresql import running_server

psycopg = pytest.importorskip("psycopg", reason="needs the extra postgres")
pytestmark = pytest.mark.long(reason="needs a server")

Rows = list[dict[str, Any]]


def view_of(parts: Iterable[Rows]) -> dict[tuple[int, str], Any]:
    """Return the table that changes make."""
    view: dict[tuple[int, str], Any] = {}
    for row in (row for part in parts for row in part):
        for old in (row["before"],) if row["before"] is not None else ():
            view.pop((old["id"], old["part"]), None)
        if row["op"] != "d":
            view[row["after"]["id"], row["after"]["part"]] = row["after"]
    return view


def shape(value: Any) -> Any:
    """Return a position without its numbers, which each server has of its own."""
    match value:
        case dict():
            return {name: shape(each) for name, each in value.items()}
        case list() | tuple():
            return [shape(each) for each in value]
        case _:
            return type(value).__name__


def test_reading_resumes_from_stored_positions() -> None:
    stored: list[tuple[Rows, dict[str, Any]]] = json.loads(STORED.read_text())
    with running_server() as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        execute: Any = connection.execute
        prepare(execute)
        done: list[int] = []

        def changed() -> None:
            if not done:
                done.append(1)
                change(execute)

        found = batches(source(dsn), None, changed)
        assert [rows for rows, _ in found] == [rows for rows, _ in stored]
        for (_, now), (_, then) in zip(found, stored, strict=True):
            assert shape({name: now[name] for name in then}) == shape(then)
        whole = view_of(rows for rows, _ in found)
        for at, (_, then) in enumerate(stored):
            old: Mapping[str, Any] = {name: found[at][1][name] for name in then}
            rest = [rows for rows, _ in batches(source(dsn), old, lambda: None)]
            if old["rows"] is None:
                assert rest == [rows for rows, _ in found[at + 1 :]], old
            assert view_of([*(rows for rows, _ in found[: at + 1]), *rest]) == whole, old
