"""What a store holds of a process, read without the process: its facts say what it declares."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowwater.engine.process import persistence as stored
from lowwater.engine.process.cell import ScopeCursor
from lowwater.engine.process.cells import CELLS
from lowwater.engine.process.column_persistence import StoredColumns
from lowwater.engine.process.column_state import ColumnState
from lowwater.engine.process.declarations import Cell, Timer
from lowwater.engine.process.definition import Definition
from lowwater.engine.process.folds import Fold
from lowwater.engine.process.output import MAIN
from lowwater.engine.process.persistence import FACTS, StoredProcess, check_facts, stored_parts
from lowwater.engine.process.state_keys import StateKeys
from lowwater.engine.process.timers import Timers
from lowwater.engine.process.waiting_records import StoredWaiting, WaitingRecords
from lowwater.errors import StateError
from lowwater.state.codec import decode
from lowwater.state.formats import damaged, decoding
from lowwater.state.key_layout import StoredPlace, prefix_range
from lowwater.state.store import StateStore

_WHAT = "the stored state of a process"


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
}


def verify_process(store: StateStore, place: StoredPlace) -> None:
    """Read and decode all that a process has saved, and see that it fits together. O(rows).

    Args:
        store: The store.
        place: Where it is stored.

    Raises:
        StateError: There is nothing of it, or what there is is damaged.
    """
    for part in stored_parts(store, place):
        _verify(store, part)


def _verify(store: StateStore, place: StoredPlace) -> None:
    (data,) = store.get([place.prefix(FACTS)])
    if data is None:
        raise StateError(f"there is nothing of the stage {place.stage!r}")
    with decoding(_WHAT):
        record = decode(data)
        check_facts(record)
        definition = _definition(record)
        if definition.vectorised:
            state = ColumnState(
                definition.name, definition.cells, definition.timers, windowed=_windowed(record)
            )
            StoredColumns(definition, state, None, place).fill(store, record)
            held = {stored.CELLS: 0, stored.TIMERS: 0}
        else:
            cells = [
                CELLS[cell.kind](n, cell, ScopeCursor()) for n, cell in definition.cells.items()
            ]
            timers = Timers([each.domain == "event" for each in definition.timers.values()])
            scopes = StateKeys(windowed=_windowed(record))
            StoredProcess(definition, scopes, cells, timers, None, {0: place}).fill(store, record)
            held = {
                stored.CELLS: sum(len(cell.held) for cell in cells),
                stored.TIMERS: sum(timers.counts.values()),
            }
        if "waiting" in record:
            waiting = StoredWaiting(WaitingRecords(), place, stored.WAITING)
            waiting.load(store, record["waiting"], record["facts"]["watermark"])
        for table, number in held.items():
            found = sum(
                1
                for group in place.groups
                for _ in store.scan(*prefix_range(place.prefix(table, group)))
            )
            if found != number:
                raise damaged(_WHAT, f"{found - number} rows are of nothing that it declares")


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


def _windowed(record: dict[str, Any]) -> bool:
    return record["windows"] is not None
