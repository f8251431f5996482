"""What a store holds of rows by key, read without their pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowwater.engine.keyed import persistence as stored
from lowwater.engine.keyed.persistence import WHAT, read_facts
from lowwater.engine.keyed.rows import read_keys_of_rows
from lowwater.engine.keyed.rows_by_key import check_keys
from lowwater.engine.keyed.spilled_format import StoredParts, read_part_keys, read_records
from lowwater.engine.records.stored_keys import read_keys
from lowwater.errors import StateError
from lowwater.state.arrays import NONE
from lowwater.state.formats import damaged, decoding
from lowwater.state.hashed_places import Places, Queue, hashes_of, some_of
from lowwater.state.key_layout import StoredPlace
from lowwater.state.row_codec import Layouts
from lowwater.state.side_format import read_sides
from lowwater.state.store import StateStore

_AT_ONCE = 1 << 12


def tables_of(left: str, right: str) -> dict[int, str]:
    """Return what the stored tables of a stage hold, by tag.

    Args:
        left: What the rows of its left side are called, or of its only one.
        right: What those of its right side are.
    """
    return {
        stored.FACTS: "facts",
        stored.KEYS: "keys",
        stored.KEYS_GONE: "keys that are gone",
        stored.FIRST_ROWS: left,
        stored.FIRST_ROWS + 1: f"{left} that are gone",
        stored.FIRST_ROWS + 2: right,
        stored.FIRST_ROWS + 3: f"{right} that are gone",
        stored.SPILLED: "keys whose records are not in memory",
        stored.DUES: "when those are due",
        stored.RIGHT_DUES: "when the right side makes those due",
        stored.HOLDS: "what those hold",
    }


_QUEUES = {"due": stored.DUES, "right": stored.RIGHT_DUES, "hold": stored.HOLDS}


def verify_records(store: StateStore, place: StoredPlace) -> None:
    """Read and decode all rows that a stage has saved, and see that it fits. O(rows).

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
        ids, watermark = NONE, record["facts"]["watermark"]
        if record["keys"] is not None:
            ids, _ = read_keys(store, place, stored.KEYS, record["keys"])
        used = [
            read_keys_of_rows(store, place, stored.FIRST_ROWS + 2 * number, side, watermark, WHAT)
            for number, side in enumerate(record["sides"])
        ]
        check_keys(used, ids, WHAT)
        _verify_spilled(store, place, record["spilled"], record["sides"])


def _verify_spilled(
    store: StateStore, place: StoredPlace, record: dict[str, Any], sides: list[dict[str, Any]]
) -> None:
    """Read all keys whose records are not in memory, and see that it fits."""
    layouts = Layouts()
    layouts.expect(record["layouts"])
    of_sides = []
    for side in sides:
        of_sides.append(Layouts())
        of_sides[-1].expect(side["layouts"])
    kinds = [(kind, dtype) for kind, dtype in record["kinds"]]
    queues = {name: (Places(place, table), Queue(place, table)) for name, table in _QUEUES.items()}
    queued = dict.fromkeys(queues, 0)
    count, rows = 0, [0] * len(sides)
    for found in Places(place, stored.SPILLED).scans(store):
        for values in some_of(found, _AT_ONCE):
            parts = StoredParts.read(list(values.values()), len(sides))
            _, first = read_part_keys(parts.keys, layouts, kinds)
            for number, stored_rows in enumerate(parts.sides):
                records, begin = read_records(stored_rows, of_sides[number])
                for each in records:
                    read_sides(each.sides, each.counts)
                    if (each.chunk.records["key"] >= np.diff(first)[each.part]).any():
                        raise damaged(WHAT, "a record is of no key")
                rows[number] += int(begin[-1])
            for name, (entries, queue) in queues.items():
                wanted = list(queue.entries(list(values), parts.waits[name]))
                if None in store.get(entries.keys(wanted, hashes_of(wanted))):
                    raise damaged(WHAT, "a key that is not in memory is not queued")
                queued[name] += len(wanted)
            count += len(values)
    if [count, *rows] != [record["parts"], *record["rows"]]:
        raise damaged(WHAT, f"{count} of {record['parts']} keys are there")
    for name, (entries, _) in queues.items():
        if sum(1 for found in entries.scans(store) for _ in found) != queued[name]:
            raise damaged(WHAT, "a key is queued whose records are in memory, or nowhere")
