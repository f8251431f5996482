"""How much memory the state of a run may take, and how that is shared out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, final

from lowwater.errors import InvalidArgument, describe

if TYPE_CHECKING:
    from lowwater.state.rocks import RocksStore

SizeLike: TypeAlias = int | str
MemoryLimit: TypeAlias = SizeLike

_UNITS = {
    "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30,
}  # fmt: skip
_LEAST = 16 << 20
_MEMTABLES = 2
_MOST_MEMTABLE = 32 << 20
_MOST_CACHE = 256 << 20


@final
@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """What the parts of a run may take, in bytes.

    Args:
        rows: The operator's state; ``None``: any number.
        cache: Blocks read from the store.
        memtable: Rows on their way to the store's tables; there are two at most.
    """

    rows: int | None = None
    cache: int = 64 << 20
    memtable: int = _MOST_MEMTABLE

    @classmethod
    def of(cls, limit: MemoryLimit | None) -> MemoryBudget:
        """Return what ``memory_limit=`` stands for.

        Three eighths are for the state itself, one for blocks of the store, and another for rows
        on their way there. The rest is for what a commit takes while it is made, for what an
        advance of the watermark brings back, and for what allocators keep to themselves.

        Raises:
            InvalidArgument: It is not a number of bytes or a size such as ``"512MB"``, or it is
                less than 16 MiB.
        """
        if limit is None:
            return cls()
        size = size_bytes(limit, name="memory_limit")
        if size < _LEAST:
            raise InvalidArgument(
                f"{describe('memory_limit', limit)} is too little: the store alone needs some",
                hint='Use at least "16MiB"',
            )
        cache = min(size // 8, _MOST_CACHE)
        memtable = min(size // 8 // _MEMTABLES, _MOST_MEMTABLE)
        return cls(size // 8 * 3, cache, memtable)

    def open(self, path: str) -> RocksStore:
        """Open the store of a state directory with its share."""
        from lowwater.state.rocks import RocksStore, Tuning

        tuning = Tuning(memtable_bytes=self.memtable)
        return RocksStore(path, block_cache_bytes=self.cache, tuning=tuning)


def size_bytes(size: SizeLike, *, name: str) -> int:
    """Return a size in bytes.

    Args:
        size: A number of bytes, or text such as ``"512MB"`` or ``"1GiB"``.
        name: What errors call it.

    Raises:
        InvalidArgument: It is neither.
    """
    if isinstance(size, int) and not isinstance(size, bool):
        return size
    if isinstance(size, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*", size)
        if match and match[2].lower() in _UNITS:
            return int(float(match[1]) * _UNITS[match[2].lower()])
    raise InvalidArgument(
        f"{describe(name, size)} is not a size",
        hint='Use, say, "512MB", "1GiB", or a number of bytes',
    )
