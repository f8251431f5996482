"""Frames: the encoding of a schema or a batch of records in a segment.

A frame is a header of 40 bytes, all little-endian, and a payload, a whole number of 8 bytes::

    offset  type  what
    0       4s    magic, b"LWLG"
    4       u16   version of this layout, 1
    6       u16   kind of payload: 0 an Arrow schema message, 1 an Arrow record batch message,
                  2 what compaction or erasure left of records
    8       u64   offset of the first record
    16      i64   time of the append, microseconds since 1970
    24      u32   how many records; 0 for a schema; of kind 2, how many there were
    28      u32   bytes of payload
    32      u32   CRC-32 of bytes 0 to 31
    36      u32   CRC-32 of bytes 0 to 35 and the payload

The header has its own checksum, so that frames can be skipped without reading their payload. A
segment begins with a schema; its record batches do not repeat it.

A frame of kind 2 covers all offsets of the frames that it replaces, those of removed records too.
So the frames of a partition still follow each other without a gap, and a frame or segment that is
missing is noticed. Its payload is::

    0       i64   time of the compaction that first rewrote these records, microseconds since
                  1970; 2**63 - 1 if none has, and records were only erased
    8       u32   how many records are left
    12      4x    zeros
    16      u32   for each of them its offset minus the frame's, rising; zeros up to 8 bytes
    ...           an Arrow record batch message, if any are left
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, final

import numpy as np
import pyarrow as pa

from lowwater.time import Int64Array

MAGIC = b"LWLG"
LAYOUT = 1
HEADER_BYTES = 40
ALIGNMENT = 8
LONGEST_PAYLOAD = 2**32 - ALIGNMENT
LAST_OFFSET = 2**63 - 1
LONGEST_SPAN = 2**32 - 1
"""The most offsets that a frame can cover."""
_NEVER = 2**63 - 1

_PLAIN = struct.Struct("<4sHHQqII")
_HEADER = struct.Struct("<4sHHQqIIII")
_CRC = struct.Struct("<I")
_SPARSE = struct.Struct("<qI4x")


class Damaged(Exception):
    """A frame differs from what was written; the message says how."""


class Kind(IntEnum):
    """The kind of a frame's payload."""

    SCHEMA = 0
    RECORDS = 1
    SPARSE = 2


@final
@dataclass(frozen=True, slots=True)
class Header:
    """The header of a frame.

    Args:
        kind: The kind of its payload.
        offset: Offset of its first record; of the next one, for a schema.
        time: When it was appended, microseconds.
        count: The number of offsets that it covers: of its records, and of those removed.
        length: Bytes of payload.
        checksum: CRC-32 of the header so far and the payload.
    """

    kind: Kind
    offset: int
    time: int
    count: int
    length: int
    checksum: int

    @property
    def size(self) -> int:
        """Bytes of the whole frame."""
        return HEADER_BYTES + self.length

    @property
    def next_offset(self) -> int:
        """Offset after the last that it covers."""
        return self.offset + self.count


@final
@dataclass(frozen=True, slots=True)
class Sparse:
    """What compaction or erasure left of the records of a frame.

    Args:
        since: When they were first compacted, microseconds; ``None``: never.
        places: The offset of each record minus the frame's, int64, rising.
        records: The records; ``None`` if none are left.
    """

    since: int | None
    places: Int64Array
    records: pa.RecordBatch | None


def encode_header(kind: Kind, offset: int, time: int, count: int, payload: Any) -> bytes:
    """Encode the header of a frame.

    Args:
        kind: The kind of the payload.
        offset: Offset of the first record.
        time: When it is appended, microseconds.
        count: How many records.
        payload: The payload, anything that is a buffer, shorter than 4 GiB.
    """
    plain = _PLAIN.pack(MAGIC, LAYOUT, kind, offset, time, count, len(payload))
    plain += _CRC.pack(zlib.crc32(plain))
    return plain + _CRC.pack(zlib.crc32(payload, zlib.crc32(plain)))


def decode_header(data: bytes | memoryview) -> Header | None:
    """Decode the header at the start of ``data`` (at least 40 bytes); ``None`` if it is invalid."""
    magic, layout, kind, offset, time, count, length, own, checksum = _HEADER.unpack_from(data)
    if magic != MAGIC or layout != LAYOUT or own != zlib.crc32(data[: _PLAIN.size]):
        return None
    if kind > Kind.SPARSE or (kind == Kind.SCHEMA and count):
        return None
    if length % ALIGNMENT or offset + count > LAST_OFFSET:
        return None
    return Header(Kind(kind), offset, time, count, length, checksum)


def is_sound(header: Header, frame: bytes | memoryview) -> bool:
    """Return whether the checksum of a whole frame is correct."""
    before = zlib.crc32(frame[: HEADER_BYTES - 4])
    return zlib.crc32(frame[HEADER_BYTES : header.size], before) == header.checksum


def encode_payload(what: pa.Schema | pa.RecordBatch) -> pa.Buffer:
    """Encode a schema or record batch as an Arrow IPC message."""
    payload = what.serialize()
    over = payload.size % ALIGNMENT
    return pa.py_buffer(payload.to_pybytes() + bytes(ALIGNMENT - over)) if over else payload


def decode_schema(payload: Any) -> pa.Schema:
    """Decode the schema in a payload.

    Raises:
        Damaged: The payload is not a valid schema.
    """
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(payload))
        if len(set(schema.names)) == len(schema.names):  # the names are text, too
            return schema
    except _UNREADABLE as error:
        raise Damaged(f"the schema cannot be read ({_short(error)})") from None
    raise Damaged("the schema has two columns of one name")


def decode_records(payload: Any, schema: pa.Schema, count: int) -> pa.RecordBatch:
    """Decode the records in a payload without copying.

    Validates them in full, because offsets in a damaged Arrow message could otherwise make later
    code read outside the payload.

    Raises:
        Damaged: The payload does not contain valid records of this schema and count.
    """
    try:
        batch = pa.ipc.read_record_batch(pa.py_buffer(payload), schema)
        batch.validate(full=True)
    except _UNREADABLE as error:
        raise Damaged(f"the records cannot be read ({_short(error)})") from None
    if batch.num_rows != count:
        raise Damaged(f"there are {batch.num_rows} records instead of {count}")
    return batch


def encode_sparse(content: Sparse) -> bytes:
    """Encode what compaction or erasure left of a frame as its payload."""
    since = _NEVER if content.since is None else content.since
    head = _SPARSE.pack(since, len(content.places))
    places = content.places.astype("<u4").tobytes()
    message = b"" if content.records is None else encode_payload(content.records).to_pybytes()
    return head + places + bytes(-len(places) % ALIGNMENT) + message


def decode_sparse(payload: memoryview, schema: pa.Schema, count: int) -> Sparse:
    """Decode the payload of a frame that was rewritten, without copying its records.

    Raises:
        Damaged: The payload does not contain valid records of this schema at places below count.
    """
    if len(payload) < _SPARSE.size:
        raise Damaged("the payload is too short")
    since, left = _SPARSE.unpack_from(payload)
    end = _SPARSE.size + 4 * left
    message = payload[end + -end % ALIGNMENT :]
    if left > count or end > len(payload) or bool(left) != bool(message):
        raise Damaged(f"there cannot be {left} records")
    places = np.frombuffer(payload, "<u4", left, _SPARSE.size).astype(np.int64)
    if left and (places[-1] >= count or (np.diff(places) <= 0).any()):
        raise Damaged("the offsets of the records are out of order")
    records = decode_records(message, schema, left) if left else None
    return Sparse(None if since == _NEVER else since, places, records)


_UNREADABLE = (pa.ArrowException, OSError, ValueError, TypeError, KeyError, EOFError, MemoryError)


def _short(error: BaseException) -> str:
    return str(error).partition("\n")[0][:200].rstrip(".") or type(error).__name__
