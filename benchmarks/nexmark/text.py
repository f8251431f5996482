"""Columns of random text, made at once: letters are drawn for a whole column, then cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", dtype=np.uint8)
_SHORTEST = 3


def words(random: np.random.Generator, count: int, longest: int, blank: str = " ") -> pa.Array:
    """Return text of 3 to ``longest`` - 1 characters, of which one in 13 is ``blank``.

    Args:
        random: Where chance comes from.
        count: How many values.
        longest: Characters that no value reaches.
        blank: What stands between letters; blanks at both ends are cut off.
    """
    cut = _cut(random, random.integers(_SHORTEST, longest, count), blank)
    return pc.utf8_trim_whitespace(cut)


def padding(random: np.random.Generator, used: Any, size: int) -> pa.Array:
    """Return letters that bring each record to ``size`` bytes on average, give or take a fifth.

    Args:
        random: Where chance comes from.
        used: How many bytes the other fields of each record have.
        size: Bytes of a record, on average.
    """
    wanted = np.maximum(size - np.asarray(used), 0)
    spread = np.round(wanted * 0.2).astype(np.int64)
    return _cut(random, wanted - spread + random.integers(0, np.maximum(2 * spread, 1)), "")


def chosen(random: np.random.Generator, count: int, of: list[str]) -> pa.Array:
    """Return one of some texts for each of ``count`` records, all as likely."""
    return pa.array(of).take(pa.array(random.integers(0, len(of), count)))


def _cut(random: np.random.Generator, lengths: Any, blank: str) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    letters = _LETTERS[random.integers(0, len(_LETTERS), offsets[-1], dtype=np.uint8)]
    if blank:
        letters[random.integers(0, 13, offsets[-1], dtype=np.uint8) == 0] = ord(blank)
    return pa.StringArray.from_buffers(
        len(lengths), pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(letters))
    )
