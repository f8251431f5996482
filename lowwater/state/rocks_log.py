"""A look at RocksDB's logs before RocksDB reads them.

A log, and a manifest likewise, is a run of blocks of 32 KiB; in them records of a checksum (u32), a
length (u16), a type (u8), little-endian, and so many bytes. RocksDB 9.8 does not return from
reading a record whose type is one of those that only re-used logs have, in a log that is not one
(facebook/rocksdb#13333): and a flipped bit is enough to make such a type.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from struct import Struct

from lowwater.errors import StateError

_BLOCK = 32 << 10
_HEADER = Struct("<IHB")
_ENDLESS = frozenset({5, 6, 7, 8, 11})


def check_logs(directory: Path, *, hint: str) -> None:
    """Raise ``StateError`` if reading the logs of a database would not end.

    It looks at the headers of records alone, not at checksums: those are RocksDB's to compare.
    """
    for pattern in ("*.log", "MANIFEST-*"):
        for path in sorted(directory.glob(pattern)):
            at = _endless(path)
            if at is not None:
                what = f"it is damaged: byte {at} begins what is no record of this log"
                raise StateError(what, where=str(path), hint=hint)


def _endless(path: Path) -> int | None:
    with path.open("rb") as file:
        if not path.stat().st_size:
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as log:
            at, size = 0, len(log)
            while at + _HEADER.size <= size:
                block_end = at - at % _BLOCK + _BLOCK
                if at + _HEADER.size > block_end:
                    at = block_end
                    continue
                _, length, kind = _HEADER.unpack_from(log, at)
                if kind in _ENDLESS:
                    return at
                after = at + _HEADER.size + length
                # A length that leaves the block is damage; zeros are room that was never used.
                at = after if after <= block_end and (length or kind) else block_end
    return None
