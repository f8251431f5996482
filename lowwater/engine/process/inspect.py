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
from lowwater.engine.process.persistence import FACTS, LOOSE, StoredProcess, check_facts
from lowwater.engine.process.state_keys import StateKeys
from lowwater.engine.process.timers import Timers
from lowwater.errors import StateError
from lowwater.state.codec import decode
from lowwater.state.damage import damaged, decoding
from lowwater.state.key_layout import prefix_range, table_prefix
from lowwater.state.store import StateStore

_WHAT = "the stored state of a process"


def verify_process(store: StateStore, operator: int, group: int = 0) -> None:
    """Read and decode all that a process has saved, and see that it fits together. O(rows).

    Args:
        store: The store.
        operator: Number of the operator.
        group: Number of the key group.

    Raises:
        StateError: There is nothing of it, or what there is is damaged.
    """
    (data,) = store.get([table_prefix(operator, group, FACTS)])
    if data is None:
        raise StateError(f"there is nothing of operator {operator}, group {group}")
    with decoding(_WHAT):
        record = decode(data)
        check_facts(record)
        definition = _definition(record)
        if definition.vectorised:
            state = ColumnState(
                definition.name, definition.cells, definition.timers, windowed=_windowed(record)
            )
            StoredColumns(definition, state, None, operator, group).fill(store, record)
            held = {stored.CELLS: 0, stored.TIMERS: 0}
        else:
            cells = [
                CELLS[cell.kind](n, cell, ScopeCursor()) for n, cell in definition.cells.items()
            ]
            timers = Timers([each.domain == "event" for each in definition.timers.values()])
            scopes = StateKeys(windowed=_windowed(record))
            StoredProcess(definition, scopes, cells, timers, operator, group).fill(store, record)
            held = {
                stored.CELLS: sum(len(cell.held) for cell in cells),
                stored.TIMERS: timers.count,
            }
        for table, number in {**held, LOOSE: 0}.items():
            found = sum(1 for _ in store.scan(*prefix_range(table_prefix(operator, group, table))))
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
