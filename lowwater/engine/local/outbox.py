"""A delivery as bytes, as a state store keeps it until a sink has taken it.

Layout, version 2, little-endian::

    magic "LWOB"   version u16   parts u16   epoch u64   output u32   piece u32
    length of panes u64   of late u64   of errors u64   crc32 u32   panes   late   errors

``parts`` has bit 0 for late elements and bit 1 for dead letters. Each part is one Arrow IPC
stream, its buffers compressed with LZ4 (what is not compressed is read too). The checksum is over
all other bytes.
"""

from __future__ import annotations

import struct
import zlib

import pyarrow as pa

from lowwater.engine.local.delivery import Delivery
from lowwater.errors import InvalidArgument, StateError

_MAGIC = b"LWOB"
_VERSION = 2
_HEAD = struct.Struct("<4sHHQIIQQQ")
_SUM = struct.Struct("<I")
_LATE, _ERRORS = 1, 2
# Most of a pane's columns repeat themselves: what a commit writes shrinks several times over.
# Columns are compressed side by side where there is much to compress: handing a small one to
# another thread takes ten times as long as compressing it. The bytes are the same.
_ALONE = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_SIDE_BY_SIDE = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=True)
_MUCH = 1 << 20  # bytes
_HINT = "Restore the state directory from a copy, or reset it and run from the start"


def encode_delivery(delivery: Delivery) -> bytes:
    """Return a delivery as bytes: the same bytes for the same delivery.

    Complexity: linear in the size of the tables, which are copied once.
    """
    late, errors = delivery.late, delivery.errors
    parts = [
        _stream(delivery.panes),
        b"" if late is None else _stream(late),
        b"" if errors is None else _stream(errors),
    ]
    present = (0 if late is None else _LATE) | (0 if errors is None else _ERRORS)
    head = _HEAD.pack(
        _MAGIC,
        _VERSION,
        present,
        delivery.epoch,
        delivery.output,
        delivery.piece,
        *map(len, parts),
    )
    total = zlib.crc32(head)
    for part in parts:
        total = zlib.crc32(part, total)
    return b"".join([head, _SUM.pack(total), *parts])


def decode_delivery(data: bytes) -> Delivery:
    """Return the delivery that was encoded; runs no code that the bytes bring along.

    Raises:
        StateError: The bytes are not those of a delivery, or were changed since.
    """
    if len(data) < _HEAD.size + _SUM.size:
        raise _damaged(f"it has {len(data)} bytes, fewer than its header")
    magic, version, present, epoch, output, piece, *lengths = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise _damaged(f"it begins with {magic!r}")
    if version != _VERSION:
        raise StateError(
            f"an undelivered output has layout {version}, and {_VERSION} is known",
            hint="Use the version of lowwater that wrote the state directory, or a later one",
        )
    body = memoryview(data)[_HEAD.size + _SUM.size :]
    if sum(lengths) != len(body):
        raise _damaged(f"it should have {sum(lengths)} bytes after its header, not {len(body)}")
    (expected,) = _SUM.unpack_from(data, _HEAD.size)
    if zlib.crc32(body, zlib.crc32(data[: _HEAD.size])) != expected:
        raise _damaged("its checksum does not match")
    panes, late, errors = lengths
    if present & ~(_LATE | _ERRORS) or (late and not present & _LATE):
        raise _damaged("its header contradicts itself")
    if errors and not present & _ERRORS:
        raise _damaged("its header contradicts itself")
    try:
        return Delivery(
            epoch,
            output,
            piece,
            _table(body[:panes]),
            _table(body[panes : panes + late]) if present & _LATE else None,
            _table(body[panes + late :]) if present & _ERRORS else None,
        )
    except InvalidArgument as error:
        raise _damaged(error.what) from error


def _stream(table: pa.Table) -> memoryview:
    table = table.unify_dictionaries().combine_chunks()
    sink = pa.BufferOutputStream()
    options = _SIDE_BY_SIDE if table.nbytes >= _MUCH else _ALONE
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())


def _table(data: memoryview) -> pa.Table:
    try:
        source = pa.BufferReader(pa.py_buffer(data))
        with pa.ipc.open_stream(source) as reader:
            table = reader.read_all()
        if source.tell() != len(data):
            raise _damaged("an Arrow stream in it ends too early")
        # A stream's own bounds are not checked when it is read.
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise _damaged(f"an Arrow stream in it cannot be read: {error}") from error
    return table


def _damaged(what: str) -> StateError:
    return StateError(f"an undelivered output is damaged: {what}", hint=_HINT)
