"""What a store holds of a process, read without the process: its facts say what it declares."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowwater.engine.process import stored_facts as stored
from lowwater.engine.process.cell import ScopeCursor
from lowwater.engine.process.cells import CELLS
from lowwater.engine.process.column_persistence import StoredColumns
from lowwater.engine.process.column_state import ColumnState
from lowwater.engine.process.declarations import Cell, Timer
from lowwater.engine.process.definition import Definition
from lowwater.engine.process.folds import Fold
from lowwater.engine.process.record_persistence import StoredProcess, read_part
from lowwater.engine.process.state_keys import StateKeys
from lowwater.engine.process.stored_facts import WHAT, StoredFacts, parts_of_facts, read_facts
from lowwater.engine.process.timers import Timers
from lowwater.engine.process.waiting_records import WaitingRecords
from lowwater.engine.records.stage_output import MAIN
from lowwater.errors import StateError
from lowwater.state.formats import damaged, decoding
from lowwater.state.key_layout import StoredPlace, prefix_range
from lowwater.state.store import StateStore

TABLES = {
    stored.FACTS: "facts",
    stored.ROWS: "keys in windows",
    stored.ROWS_GONE: "keys in windows that are gone",
    stored.KEYS: "keys",
    stored.KEYS_GONE: "keys that are gone",
    stored.SCOPES: "keys in windows, one by one",
    stored.CELLS: "cells",
    stored.TIMERS: "timers",
    stored.WAITING: "records that wait",
    stored.WAITING_GONE: "records that wait no more",
    stored.PARTS: "facts of parts of the keys",
}


def verify_process(store: StateStore, place: StoredPlace) -> None:
    """Read and decode all that a process has saved, and see that it fits together. O(rows).

    Args:
        store: The store.
        place: Where it is stored.

    Raises:
        StateError: There is nothing of it, or what there is is damaged.
    """
    record = read_facts(store, place)
    if record is None:
        raise StateError(f"there is nothing of the stage {place.stage!r}")
    with decoding(WHAT):
        parts = parts_of_facts(record, place)
        for number, part in enumerate(parts):
            _verify(store, record, part, None if len(parts) == 1 else number)


def count_keys(store: StateStore, place: StoredPlace) -> int:
    """Return how many keys of a process have state.

    Args:
        store: The store.
        place: Where it is stored.

    Raises:
        StateError: What is stored is damaged.
    """
    record = read_facts(store, place)
    if record is None:
        return 0
    if "table" in record:
        return 0 if record["keys"] is None else int(record["keys"]["count"])
    return sum(int(read_part(store, part)["keys"]) for part in parts_of_facts(record, place))


def _verify(
    store: StateStore, record: dict[str, Any], place: StoredPlace, part: int | None
) -> None:
    definition = _definition(record)
    windowed = record["windows"] is not None
    facts = StoredFacts(definition, None, place, record["order"])
    waiting = WaitingRecords() if record["order"] == "event_time" else None
    if definition.vectorised:
        state = ColumnState(definition.name, definition.cells, definition.timers, windowed=windowed)
        StoredColumns(definition, state, facts, waiting).fill(store, record)
        held = {stored.CELLS: 0, stored.TIMERS: 0}
    else:
        cells = [CELLS[cell.kind](n, cell, ScopeCursor()) for n, cell in definition.cells.items()]
        timers = Timers([each.domain == "event" for each in definition.timers.values()])
        scopes = StateKeys(windowed=windowed, parted=part is not None)
        parts = {part or 0: place}
        waits = None if waiting is None else {part or 0: waiting}
        StoredProcess(definition, scopes, cells, timers, facts, parts, waits).fill(store, record)
        held = {
            stored.CELLS: sum(len(cell.held) for cell in cells),
            stored.TIMERS: sum(timers.counts.values()),
        }
    for table, number in held.items():
        found = sum(
            1
            for group in place.groups
            for _ in store.scan(*prefix_range(place.prefix(table, group)))
        )
        if found != number:
            raise damaged(WHAT, f"{found - number} rows are of nothing that it declares")


def _definition(record: dict[str, Any]) -> Definition:
    """Return what a stored process declares; of the rest of it nothing is known."""
    cells: dict[str, Cell] = {}
    timers: dict[str, Timer] = {}
    for what, name, *more in record["declared"]:
        if what == "timer":
            (domain,) = more
            timers[name] = Timer(domain=domain)
        else:
            kind, dtype = more
            cells[name] = Cell(
                kind=kind,
                default=None if dtype is None else np.dtype(dtype).type().item(),
                dtype=dtype,
                combiner=Fold("count") if kind == "combining" else None,  # it is not asked to add
            )
    return Definition(None, "process", "table" in record, cells, timers, (MAIN,))
