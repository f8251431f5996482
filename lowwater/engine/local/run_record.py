"""What a state directory holds of a run beside its operator's state: a record, and an outbox.

The record is one value. What only grows in it, such as the files that a source has read, has rows
of its own, so that a commit writes what is new and not what has been there for days.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from lowwater.engine.graph.graph import Graph, Stage
from lowwater.engine.graph.sources import GrowingMap
from lowwater.engine.local.delivery import EPOCHS, Delivery
from lowwater.engine.local.outbox import decode_delivery
from lowwater.engine.records.key_hash import KEY_GROUPS
from lowwater.errors import StateError
from lowwater.state.codec import decode, encode
from lowwater.state.formats import check_format, damaged, decoding
from lowwater.state.key_layout import StoredPlace, decode_int64, encode_int64, prefix_range
from lowwater.state.store import Batch, StateStore

FORMAT = "the run record"
# Where each layout has had the record, so that a former one is recognised. No stage begins so.
RUN = bytes(5)
OUTBOX = bytes(4) + b"\x01"
GROWN = bytes(4) + b"\x02"
HELD = bytes(4) + b"\x03"

_WHAT = "the record of the run"
_FIELDS: dict[str, tuple[type, ...]] = {
    "state_id": (str,),
    "epoch": (int,),
    "outputs": (list,),
    "outputs_given": (int,),
    "moved": (list,),
    "openings": (list,),
    "description": (dict,),
    "stages": (dict,),
    "key_groups": (int,),
    "run": (dict, type(None)),
    "grown": (list,),
}
_RUN_FIELDS: dict[str, tuple[type, ...]] = {
    "sources": (dict,),
    "between": (dict,),
    "metrics": (dict,),
    "ended": (bool,),
}
_SOURCE_FIELDS: dict[str, tuple[type, ...]] = {
    "position": (dict, type(None)),
    "bundles": (int,),
    "learned": (dict,),
    "ended": (bool,),
}


def read_run(store: StateStore, path: str) -> dict[str, Any] | None:
    """Return the record of a run; ``None`` if there is none yet.

    Raises:
        StateError: It is damaged, or of another layout.
    """
    (data,) = store.get([RUN])
    if data is None:
        return None
    with decoding(_WHAT):
        record: dict[str, Any] = decode(data)
        check_format(FORMAT, record["layout"], where=path)
        _check(record, _FIELDS)
        if record["key_groups"] != KEY_GROUPS:
            raise damaged(_WHAT, f"it has {record['key_groups']} key groups")
        if not 0 <= record["epoch"] < EPOCHS:
            raise damaged(_WHAT, f"its epoch is {record['epoch']}")
        if record["run"] is not None:
            _check(record["run"], _RUN_FIELDS)
            for source in record["run"]["sources"].values():
                _check(source, _SOURCE_FIELDS)
        _restore_grown(store, record)
        _restore_held(store, record)
        return record


@final
class StoredRun:
    """Writes the record of a run; of what only grows in it, what is new.

    Args:
        record: What :func:`read_run` returned; ``None`` if there is none yet.
    """

    def __init__(self, record: Mapping[str, Any] | None) -> None:
        # The number that rows are stored under, and what is stored, by source and part. A number
        # is kept as long as its source: one that has nothing yet may come before others later.
        self._stored: dict[tuple[str, str], tuple[int, GrowingMap]] = {}
        if record is not None:
            numbers = {(source, part): number for source, part, number, _ in record["grown"]}
            self._stored = {name: (numbers[name], entries) for name, entries in _growing(record)}
        # The same of what sinks hold, by the id of its place.
        self._held: dict[str, tuple[int, GrowingMap]] = {}
        for one in () if record is None else record.get("held", ()):
            if one.is_listed:
                self._held[one.id] = one.number, one.files
        self._is_first = True

    def write(self, batch: Batch, record: Mapping[str, Any]) -> None:
        """Add the changes to a batch, which must be committed."""
        held = record.get("held", ())
        said = {"held": self._write_held(batch, [one for one in held if one.is_listed])}
        if not all(one.is_listed for one in held):
            said = {}  # still as the version left it that had no lists
        self._write(batch, {**{n: v for n, v in record.items() if n != "held"}, **said})

    def _write(self, batch: Batch, record: Mapping[str, Any]) -> None:
        grown: list[list[Any]] = []
        growing = dict(_growing(record))
        if not (growing or self._stored):
            batch.put([RUN], [encode({**record, "grown": grown})])
            return
        for name in [name for name in self._stored if name not in growing]:
            batch.delete_range(*prefix_range(_numbered(GROWN, self._stored.pop(name)[0])))
        free = 1 + max((number for number, _ in self._stored.values()), default=-1)
        for name, entries in growing.items():
            number, stored = self._stored.get(name, (free, GrowingMap()))
            free = max(free, number + 1)
            grown.append([*name, number, len(entries)])
            _write_new(batch, _numbered(GROWN, number), stored, entries)
            self._stored[name] = number, entries
        batch.put([RUN], [encode({**_without_grown(record), "grown": grown})])

    def _write_held(self, batch: Batch, held: Sequence[StoredHeld]) -> list[list[Any]]:
        """Add what sinks hold to a batch; return what the record says of it."""
        if self._is_first and not self._held:
            batch.delete_range(*prefix_range(HELD))  # an older version keeps rows, not the record
        self._is_first = False
        for id_ in self._held.keys() - {one.id for one in held}:
            batch.delete_range(*prefix_range(_numbered(HELD, self._held.pop(id_)[0])))
        free = 1 + max((number for number, _ in self._held.values()), default=-1)
        said = []
        for one in held:
            number, stored = self._held.get(one.id, (free, GrowingMap()))
            free = max(free, number + 1)
            _write_new(batch, _numbered(HELD, number), stored, one.files)
            self._held[one.id] = number, one.files
            said.append([one.output, one.kind, one.place, one.id, number, len(one.files)])
        return said


def _numbered(prefix: bytes, number: int) -> bytes:
    return prefix + encode_int64(np.array([number], dtype=np.int64)).tobytes()


def _write_new(batch: Batch, prefix: bytes, stored: GrowingMap, entries: GrowingMap) -> None:
    """Add to a batch what entries have beyond the stored ones; all of them if they differ."""
    start = len(stored)
    if not entries.continues(stored):
        batch.delete_range(*prefix_range(prefix))
        start = 0
    if new := entries.since(start):
        place = encode_int64(np.array([start], dtype=np.int64)).tobytes()
        batch.put([prefix + place], [encode(new)])


@final
@dataclass(frozen=True, slots=True)
class StoredOutput:
    """An output of a run, as its state directory knows it.

    Args:
        number: Its number in the names of deliveries; it is never given to another output.
        name: The name of its stage, and which output of the stage it is.
        text: The same, and how the stage's output becomes a table.
        places: The places of its sinks, as of the last commit.
    """

    number: int
    name: str
    text: str
    places: tuple[str, ...]

    def remember(self) -> list[Any]:
        """Return it as plain values."""
        return [self.number, self.name, self.text, list(self.places)]


def stored_outputs(record: Mapping[str, Any]) -> list[StoredOutput]:
    """Return the outputs of a run, from its record."""
    with decoding(_WHAT):
        return [
            StoredOutput(number, name, text, tuple(places))
            for number, name, text, places in record["outputs"]
        ]


@final
@dataclass(frozen=True, slots=True)
class StoredHeld:
    """What a sink held at the last commit, as the state directory knows it.

    Args:
        output: The number of its output.
        kind: The name of the sink's class; empty if the state has no list.
        place: The name of its place.
        id: The id of that place; empty if the state has no list.
        files: See :class:`~lowwater.engine.local.delivery.Held`.
        number: What its rows are stored under; -1 if they are not stored yet.
    """

    output: int
    kind: str
    place: str
    id: str
    files: GrowingMap
    number: int = -1

    @property
    def is_listed(self) -> bool:
        """Whether the state says what the sink held: versions before the lists did not."""
        return bool(self.id)

    @property
    def rows(self) -> int:
        """How many rows the files have."""
        return sum(rows for _, _, rows in self.files.values())


def moved(record: Mapping[str, Any], path: str) -> StateError:
    """Return the error for a state directory whose state was moved to others."""
    places = ", ".join(map(repr, record["moved"]))
    return StateError(
        f"what was stored here was split or merged into {places}",
        where=path,
        hint="Run the pipelines over these directories; if one of them is not there, the command "
        "was interrupted: give the same `python -m lowwater state` command again",
    )


def rewrite_run(batch: Batch, record: Mapping[str, Any]) -> None:
    """Replace the record of a run, where what only grows has changed after all."""
    batch.delete_range(*prefix_range(GROWN))
    batch.delete_range(*prefix_range(HELD))
    StoredRun(None).write(batch, record)


def _growing(record: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], GrowingMap]]:
    """Yield the parts of positions that only grow, by source and name."""
    for source, known in (record["run"] or {"sources": {}})["sources"].items():
        for part, value in (known["position"] or {}).items():
            if isinstance(value, GrowingMap):
                yield (source, part), value


def _without_grown(record: Mapping[str, Any]) -> Mapping[str, Any]:
    run = record["run"]
    if run is None:
        return record
    sources = {}
    for name, known in run["sources"].items():
        position = known["position"]
        if position is not None:
            position = {n: v for n, v in position.items() if not isinstance(v, GrowingMap)}
        sources[name] = {**known, "position": position}
    return {**record, "run": {**run, "sources": sources}}


def _entries(store: StateStore, prefix: bytes) -> dict[int, dict[str, Any]]:
    """Return what is stored of maps that grow, by their numbers."""
    entries: dict[int, dict[str, Any]] = defaultdict(dict)
    for key, value in store.scan(*prefix_range(prefix)):
        place = np.frombuffer(key, dtype=np.uint8, offset=len(prefix)).reshape(2, 8)
        number, start = decode_int64(place).tolist()
        if len(entries[number]) != start:
            raise damaged(_WHAT, f"entries after the first {len(entries[number])} are missing")
        entries[number].update(decode(value))
    return entries


def _restore_held(store: StateStore, record: dict[str, Any]) -> None:
    """Put what sinks held into a record, or only their places if it has no lists."""
    said = record.get("held")
    if said is None:
        record["held"] = [
            StoredHeld(output.number, "", place, "", GrowingMap())
            for output in stored_outputs(record)
            for place in output.places
        ]
        return
    record["held"] = []
    entries = _entries(store, HELD) if said else {}
    for output, kind, place, id_, number, count in said:
        files = GrowingMap(entries.pop(number, {}))
        if len(files) != count:
            raise damaged(_WHAT, f"it has {len(files)} of {count} files that {place!r} holds")
        if any([type(part) for part in facts] != [int, int, int] for facts in files.values()):
            raise damaged(_WHAT, f"it has no sizes and checksums of what {place!r} holds")
        record["held"].append(StoredHeld(output, kind, place, id_, files, number))


def _restore_grown(store: StateStore, record: Mapping[str, Any]) -> None:
    """Put what only grows back into the positions of a record."""
    entries = _entries(store, GROWN)
    for source, part, number, count in record["grown"]:
        if len(entries[number]) != count:
            raise damaged(_WHAT, f"it has {len(entries[number])} of {count} entries of {part!r}")
        record["run"]["sources"][source]["position"][part] = GrowingMap(entries.pop(number))
    if any(entries.values()):
        raise damaged(_WHAT, "there are entries that belong to no source")


def read_outbox(store: StateStore) -> Iterator[Delivery]:
    """Yield the deliveries that sinks may not have taken yet, in order.

    Raises:
        StateError: One of them is damaged.
    """
    for key, value in store.scan(*prefix_range(OUTBOX)):
        delivery = decode_delivery(value)
        if outbox_key(delivery) != key:
            raise damaged("an undelivered output", "it is stored under another name")
        yield delivery


def outbox_key(delivery: Delivery) -> bytes:
    """Return the key that a delivery is stored under: keys sort as deliveries come."""
    place = np.array([delivery.epoch, delivery.output, delivery.piece], dtype=np.int64)
    return OUTBOX + encode_int64(place).tobytes()


def place_of(graph: Graph, stage: Stage) -> StoredPlace:
    """Return where a stage's state is stored."""
    return StoredPlace(graph.name_of(stage), 0, KEY_GROUPS)


def _check(record: Any, kinds: Mapping[str, tuple[type, ...]]) -> None:
    for name, kind in kinds.items():
        if type(record[name]) not in kind:
            raise damaged(_WHAT, f"{name} is {record[name]!r}")
