"""The bytes of CSV files: how they are opened, and what Arrow misreads among them."""

from __future__ import annotations

import codecs
import re
from pathlib import Path
from typing import Any, final

import numpy as np
import pyarrow as pa

from lowwater.io.stores import InputFile, LocalFile

BLOCK_BYTES = 8 << 20
SAMPLE_BYTES = 64 << 10
UTF8, LATIN = "utf8", "latin-1"
_PIECE = 128 << 10
_GZIP = b"\x1f\x8b"


def opened_bytes(file: InputFile) -> Any:
    """Return what Arrow reads: a path, whose ending shows the compression; or an open object."""
    if isinstance(file, LocalFile):
        if file.name.endswith(".gz") or not _is_gzip(file.name):
            return file.name
        return pa.CompressedInputStream(pa.OSFile(file.name), "gzip")
    opened = pa.PythonFile(file.open(), mode="r")
    return pa.CompressedInputStream(opened, "gzip") if file.name.endswith(".gz") else opened


def _has_hex(data: bytes) -> bool:
    """Return whether ``0x`` or ``0X`` is among bytes."""
    return (b"x" in data or b"X" in data) and _has_pair(data, "0", "x", case=0x20)


def _has_pair(data: bytes, first: str, second: str, *, case: int = 0) -> bool:
    """Return whether two characters follow one another among bytes.

    In pieces that stay in a processor's cache, which takes a quarter of the time of a search.
    """
    given = np.frombuffer(data, np.uint8)
    for at in range(0, len(given), _PIECE):
        piece = given[at : at + _PIECE + 1]
        behind = piece[1:] | case if case else piece[1:]
        if ((piece[:-1] == ord(first)) & (behind == ord(second))).any():
            return True
    return False


def begins_with_hex(file: InputFile, delimiter: str) -> bool:
    """Return whether one of the first fields of a file begins with ``0x``."""
    watched = Watched(opened_bytes(file), delimiter)
    try:
        watched.read(SAMPLE_BYTES)
    finally:
        watched.close()
    return watched.has_hexadecimal


def _is_gzip(name: str) -> bool:
    with Path(name).open("rb") as opened:
        return opened.read(len(_GZIP)) == _GZIP


@final
class Watched:
    """Bytes that Arrow reads, and whether there were fields among them that it misreads.

    ``taken`` counts the bytes that were read.

    Args:
        source: A path, or what can be read.
        delimiter: The field separator.
        looks: Whether to look for such fields.
    """

    def __init__(self, source: Any, delimiter: str, *, looks: bool = True) -> None:
        self._opened = (
            pa.input_stream(source, compression="detect") if isinstance(source, str) else source
        )
        ends = rb"\r\n" + re.escape(delimiter.encode())
        self._quoted = re.compile(rb'(?:^|[%s])""(?:[%s]|$)' % (ends, ends))
        begins = rb"\r\n\s\"" + re.escape(delimiter.encode())
        self._hexadecimal = re.compile(rb"(?:^|[%s])[+-]?0[xX]" % begins)
        self._last = b""
        self.taken = 0
        self._looks = looks
        self.has_quoted_empty = False
        self.has_hexadecimal = False

    def share(self, size: int) -> float | None:
        """Return how much of a file of so many bytes was read; ``None`` if it is compressed."""
        if isinstance(self._opened, pa.CompressedInputStream):
            return None
        return min(1.0, self.taken / size)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return bool(self._opened.closed)

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        data: bytes = self._opened.read(size if size >= 0 else None)
        self.taken += len(data)
        if not self._looks:
            return data
        if not self.has_quoted_empty:
            for part in (data, self._last + data[:3]):
                # Most files have no quote at all, which is found out ten times as fast.
                if b'"' in part and _has_pair(part, '"', '"') and self._quoted.search(part):
                    self.has_quoted_empty = True
        if not self.has_hexadecimal:
            self.has_hexadecimal = any(
                _has_hex(part) and self._hexadecimal.search(part) is not None
                for part in (data, self._last + data[:3])
            )
        self._last = data[-3:]
        return data

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def close(self) -> None:
        """Close it."""
        self._opened.close()


def encoding_of(file: InputFile) -> str:
    """Return as what to read a file that has rows of the wrong length, or other mistakes.

    Arrow passes the text of such a row to Python, which fails if it is not UTF-8. As Latin-1, in
    which each byte is a character, everything can be passed on and be restored.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    source = opened_bytes(file)
    detect = isinstance(source, str)
    with pa.input_stream(source, compression="detect") if detect else source as opened:
        try:
            while data := opened.read(BLOCK_BYTES):
                decoder.decode(data)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return LATIN
    return UTF8
