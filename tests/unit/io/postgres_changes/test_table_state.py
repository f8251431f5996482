"""A table is known by its OID and its columns by their numbers, whatever they are called."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lowwater.errors import DataError, PipelineWarning, StateError
from lowwater.io.postgres_changes.pgoutput import ChangeDecoder, lsn_of, lsn_text
from lowwater.io.postgres_changes.slot import ServerState
from lowwater.io.postgres_changes.table_definition import TableColumn, TableDefinition
from lowwater.io.postgres_changes.table_state import TableState
from lowwater.io.postgres_changes.transactions import TransactionCutter
from tests.unit.io.postgres_changes import pgoutput

ID = TableColumn("id", 23, "integer", pa.int32())
TABLE = TableDefinition("public", "t", (ID,), (ID,), oid=7)
STATE = TableState(7, False, {"id": 1, "n": 2}, 90, [91], "iudt", [8, 9])


def transaction(oid: int, name: str, number: int, lsn: int) -> list[bytes]:
    return [
        pgoutput.begin(lsn, 0, 1),
        pgoutput.relation(oid, name, [("id", 23)]),
        pgoutput.insert(oid, [str(number).encode()]),
        pgoutput.commit(lsn, lsn + 8, 0),
    ]


def read(messages: list[bytes], size: int = 100) -> list[int]:
    cutter = TransactionCutter(TABLE, size, 0)
    decoder = ChangeDecoder(TABLE, keep_truncates=False)
    cutter.feed(messages)
    parts = cutter.parts(final=True)
    return [row["after"]["id"] for part in parts for row in decoder.records(part.content).rows()]


@pytest.mark.parametrize("size", [1, 100])
def test_a_table_that_is_renamed_is_the_same_table(size: int) -> None:
    names = ["t", "t", "x", "t_old", "t"]
    messages = [
        message
        for number, name in enumerate(names)
        for message in transaction(7, name, number, 16 * number)
    ]
    assert read(messages, size) == list(range(len(names)))
    assert read([*messages, *transaction(6, "x", 9, 99)], size) == list(range(len(names)))


@pytest.mark.parametrize("before", [0, 1, 5])
def test_another_table_of_its_name(before: int) -> None:
    messages = [m for number in range(before) for m in transaction(7, "t", number, 16 * number)]
    with pytest.raises(DataError, match="it was dropped and created anew, or another one was"):
        read([*messages, *transaction(8, "t", 9, 999)])
    with pytest.raises(DataError, match="dropped and created anew"):
        ChangeDecoder(TABLE, keep_truncates=False).records(transaction(8, "t", 9, 999))


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"oid": 8}, "not the one that was read before"),
    ({"columns": {"id": 1, "n": 3}}, "the column 'n' of public.t was dropped and added again"),
    ({"columns": {"id": 3}}, "the column 'id' of public.t was dropped"),
    ({"publication": 0, "publishes": ""}, "the publication 'p' is gone"),
    ({"publication": 99}, "'p' was dropped and created anew"),
    ({"members": [92]}, "what the publication 'p' has of public.t was changed"),
    ({"members": [], "is_published": False}, "'p' no longer has the table public.t"),
    ({"publishes": "iu"}, "no longer publishes deletes, truncates"),
    ({"publishes": "udt"}, "no longer publishes inserts"),
    ({"partitions": [9]}, "1 partitions of public.t were detached or dropped, which"),
]


@pytest.mark.parametrize(("fields", "said"), REFUSED)
def test_what_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said) as raised:
        STATE.check(TABLE, "p", replace(STATE, **fields), keep_truncates=False)
    assert raised.value.where == "public.t"
    assert raised.value.hint


@pytest.mark.parametrize(
    "fields",
    [{}, {"full": True}, {"columns": {"id": 1}}, {"columns": {"id": 1, "n": 2, "new": 3}}],
)
def test_what_is_not(fields: dict[str, Any]) -> None:
    """A column that is gone is told of by the next change."""
    STATE.check(TABLE, "p", replace(STATE, **fields), keep_truncates=False)


def test_what_may_be_missing_is_said() -> None:
    with pytest.warns(PipelineWarning, match="rows that they had before are not read"):
        STATE.check(TABLE, "p", replace(STATE, partitions=[8, 9, 10]), keep_truncates=False)
    with pytest.warns(PipelineWarning, match="1 partitions of public.t were detached"):
        STATE.check(TABLE, "p", replace(STATE, partitions=[9]), keep_truncates=True)
    full = replace(STATE, full=True)
    with pytest.raises(DataError, match="no longer has REPLICA IDENTITY FULL"):
        full.check(TABLE, "p", STATE, keep_truncates=False)


def test_as_a_position_holds_it() -> None:
    assert TableState.from_position(STATE.to_position()) == STATE
    wrong: list[Any] = [None, [], {}, {**STATE.to_position(), "oid": "7"}, {"oid": 7}]
    for fields in wrong:
        with pytest.raises(StateError):
            TableState.from_position(fields)


def test_the_history_of_a_server() -> None:
    """A place is known if it was read before the server's history left the one of the place."""
    server = ServerState("1", 3, 900, {1: 100, 2: 500})
    known = [(3, 900), (3, 0), (2, 500), (1, 100), (None, 900)]
    unknown = [(3, 901), (2, 501), (1, 101), (4, 0), (None, 901)]
    assert all(server.has_read(timeline, lsn) for timeline, lsn in known)
    assert not any(server.has_read(timeline, lsn) for timeline, lsn in unknown)
    assert [lsn_of(lsn_text(lsn)) for lsn in (0, 1, 2**32, 2**63)] == [0, 1, 2**32, 2**63]
