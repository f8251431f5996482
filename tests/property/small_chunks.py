"""The engine with chunks of three rows where it has thousands: what a chunk ends, few rows show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

import lowwater

ROOT = Path(lowwater.__file__).parent
ROOMS = ("engine", "kernels", "state")
NAMES = re.compile(
    r"^(_?[A-Z_]*(?:AT_ONCE|CHUNK|BLOCK|PORTION|SPARE|GARBAGE|STALE|FULL|HEAP|AHEAD|ROOM|FEW|LARGE)"
    r"(?:_[A-Z_]+)?)(?:: \w+)? = ",
    re.MULTILINE,
)
"""How constants are called that say how many rows are processed, kept or left at once."""

CHUNKS: dict[str, tuple[str, ...]] = {
    "engine.aggregates._lists": ("_SPARE",),
    "engine.aggregates._murmur": ("_FEW",),
    "engine.aggregates._retractable": ("_SPARE",),
    "engine.aggregates._tally": ("_SPARE",),
    "engine.aggregates._top": ("_SPARE",),
    "engine.counted.operator": ("_PAIRS_AT_ONCE",),
    "engine.join.interval_join": ("_FIRST_PORTION",),
    "engine.join.query_index": ("_CELLS_AT_ONCE", "_PAIRS_AT_ONCE"),
    "engine.join.search": ("_DOCUMENTS_AT_ONCE",),
    "engine.keyed.operator": ("_FEW_KEYS", "_GARBAGE"),
    "engine.keyed.records": ("_STALE",),
    "engine.keyed.spilled": ("AT_ONCE", "_CHUNK"),
    "engine.keyed.inspect": ("_AT_ONCE",),
    "engine.local.parted_process": ("_FEW",),
    "engine.match.careful": ("_AHEAD", "_CELLS_AHEAD", "_CELLS_AT_ONCE", "_FEW"),
    "engine.match.measures": ("_AT_ONCE",),
    "engine.match.operator": ("_STALE",),
    "engine.over.operator": ("_STALE",),
    "engine.over.range_aggregates": ("_AT_ONCE",),
    "engine.process.column_execution": ("_SPARE",),
    "engine.process.column_state": ("_GARBAGE",),
    "engine.process.record_execution": ("_ROWS_AT_ONCE",),
    "engine.process.state_keys": ("_GARBAGE",),
    "engine.process.timers": ("_FEW",),
    "engine.records.json_lines": ("_ROWS_AT_ONCE",),
    "engine.records.json_rows": ("ROWS_AT_ONCE",),
    "engine.records.key_hash": ("_BLOCK",),
    "engine.records.keys": ("_FEW",),
    "engine.records.steps": ("PANES_AT_ONCE",),
    "engine.window.slices": ("_FEW",),
    "engine.window.spilling": ("AT_ONCE", "_CHUNK", "_FEW"),
    "engine.window.window_state": ("_GARBAGE",),
    "kernels.pattern_tables": ("_AT_ONCE", "_FEW"),
    "kernels.plain": ("_FEW",),
    "kernels.plain_patterns": ("_FEW",),
    "kernels.plain_xxh64": ("_AT_ONCE", "_BLOCK", "_FEW"),
    "state.deadlines": ("_FEW", "_HEAP"),
    "state.hashed_places": ("_AHEAD",),
    "state.id_set": ("_LARGE", "_ROOM"),
    "state.journal": ("_SPARE",),
    "state.store": ("_ROWS_AT_ONCE",),
    "state.table": ("_AT_ONCE",),
}
KEPT: dict[str, str] = {
    "kernels.compiled: _BLOCK": "is compiled into the kernels, and 256 as it is",
    "state.blocks: FULL": "is the size of stored blocks, by which rows are found again",
    "state.blocks: FEW": "is the base of the sizes of stored blocks",
    "state.rocks_database: _FULL": "says when a disk is full",
    "state.rocks_database: _FULL_CODES": "says when a disk is full",
    "state.rocks_database: _BLOCK": "is RocksDB's own",
    "state.rocks_database: _CHUNK_ROWS": "is of the store on disk; here stores are in memory",
    "state.rocks_database: _CHUNK_BYTES": "is of the store on disk; here stores are in memory",
    "state.versions.root: _CHUNK": "is a number of bytes of a file",
    "state.versions.database: _BLOCK_CACHE_BYTES": "is a number of bytes of a cache",
}
"""Constants of such a name that stay, and why."""


@contextmanager
def small_chunks(size: int = 3) -> Iterator[None]:
    """Shrink all chunks to a number of rows."""
    places = _places()
    usual = [getattr(module, name) for module, name in places]
    try:
        for module, name in places:
            setattr(module, name, size)
        yield
    finally:
        for (module, name), value in zip(places, usual, strict=True):
            setattr(module, name, value)


@cache
def _places() -> list[tuple[ModuleType, str]]:
    return [
        (import_module(f"lowwater.{module}"), name)
        for module, names in CHUNKS.items()
        for name in names
    ]


def chunks_in_the_package() -> set[str]:
    """Return the constants that are called as chunks are, as ``module: NAME``."""
    found = set()
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found |= {f"{module}: {name}" for name in NAMES.findall(path.read_text("utf-8"))}
    return found
