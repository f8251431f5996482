"""Writes the messages of ``pgoutput``, as a server would."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Literal

Value = bytes | None | Literal["unchanged"]


def begin(lsn: int, at_us: int, xid: int) -> bytes:
    return b"B" + struct.pack(">QqI", lsn, at_us, xid)


def commit(lsn: int, end: int, at_us: int) -> bytes:
    return b"C" + struct.pack(">BQQq", 0, lsn, end, at_us)


def relation(oid: int, name: str, columns: Sequence[tuple[str, int]]) -> bytes:
    text = b"R" + struct.pack(">I", oid) + b"public\0" + name.encode() + b"\0d"
    text += struct.pack(">H", len(columns))
    for column, type_id in columns:
        text += b"\1" + column.encode() + b"\0" + struct.pack(">Ii", type_id, -1)
    return text


def insert(oid: int, row: Sequence[Value]) -> bytes:
    return b"I" + struct.pack(">I", oid) + b"N" + _tuple(row)


def update(oid: int, row: Sequence[Value], old: Sequence[Value] | None, kind: bytes) -> bytes:
    before = b"" if old is None else kind + _tuple(old)
    return b"U" + struct.pack(">I", oid) + before + b"N" + _tuple(row)


def delete(oid: int, old: Sequence[Value], kind: bytes) -> bytes:
    return b"D" + struct.pack(">I", oid) + kind + _tuple(old)


def truncate(*oids: int) -> bytes:
    return b"T" + struct.pack(f">IB{len(oids)}I", len(oids), 0, *oids)


def _tuple(row: Sequence[Value]) -> bytes:
    text = struct.pack(">H", len(row))
    for value in row:
        if value is None:
            text += b"n"
        elif isinstance(value, str):
            text += b"u"
        else:
            text += b"t" + struct.pack(">I", len(value)) + value
    return text
