"""What is stored of a process beside its rows: where it stands, and what it declares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, final

from lowwater.engine.process.definition import Definition
from lowwater.engine.process.outputs import Order
from lowwater.engine.window.placement import Placement
from lowwater.errors import StateError
from lowwater.state.codec import Encoded, decode, encode
from lowwater.state.formats import FORMATS, check_format, damaged, decoding
from lowwater.state.key_layout import StoredPlace
from lowwater.state.store import Batch, StateStore
from lowwater.time import END_OF_TIME, START_OF_TIME

FORMAT = "process state"
(
    FACTS, ROWS, ROWS_GONE, KEYS, KEYS_GONE, SCOPES, CELLS, TIMERS, WAITING, WAITING_GONE, PARTS,
) = range(11)  # fmt: skip
"""Tags of the tables of a process: a vectorised one has rows and keys, another one has scopes,
cells, timers and facts of its parts. One in event-time order has waiting records.
"""
WHAT = "the stored state of a process"
TIMES = ("watermark", "clock", "output watermark")


@final
class StoredFacts:
    """The facts of a process, in one row.

    Args:
        definition: What the process declares.
        placement: Its windows; ``None`` for none.
        place: Where it is stored; if it is in parts, the first of these.
        order: The order in which it takes records.
    """

    def __init__(
        self,
        definition: Definition,
        placement: Placement | None,
        place: StoredPlace,
        order: Order,
    ) -> None:
        self._definition = definition
        self._placement = placement
        self.place = place
        self._order = order
        self._windows = None if placement is None else repr(placement.windowing.windows)
        self._encoded = Encoded(self._declared())

    def write(self, batch: Batch, facts: Mapping[str, int], **beside: Any) -> None:
        """Add the facts to a batch.

        Args:
            batch: The batch.
            facts: The times at which it stands, and what else is a number.
            beside: What the kind of process stores in addition.
        """
        placement = self._placement
        record = {
            "layout": FORMATS[FORMAT],
            "facts": {
                **facts,
                "lateness": 0 if placement is None else placement.windowing.lateness_us,
                "gone until": START_OF_TIME if placement is None else placement.gone_until,
            },
            "declared": self._encoded,
            "windows": self._windows,
            "order": self._order,
            "groups": self.place.count,
            **beside,
        }
        batch.put([self.place.prefix(FACTS)], [encode(record)])

    def load(
        self, store: StateStore, fill: Callable[[StateStore, dict[str, Any]], None]
    ) -> dict[str, int] | None:
        """Return the facts, after ``fill`` has read the rest; ``None`` if nothing is stored.

        Raises:
            StateError: What is stored is damaged, or another process's.
        """
        record = read_facts(store, self.place)
        if record is None:
            return None
        with decoding(WHAT):
            self._check_same(record)
            fill(store, record)
            facts: dict[str, int] = record["facts"]
            if self._placement is not None:
                lateness, gone_until = facts["lateness"], facts["gone until"]
                self._placement.resume(lateness, facts["watermark"], gone_until)
            return facts

    def _declared(self) -> list[list[Any]]:
        cells, timers = self._definition.cells, self._definition.timers
        return [["cell", name, each.kind, each.dtype] for name, each in cells.items()] + [
            ["timer", name, each.domain] for name, each in timers.items()
        ]

    def _check_same(self, record: dict[str, Any]) -> None:
        """Raise ``StateError`` unless stored facts go with the process's declarations."""
        definition = self._definition
        now = self._declared()
        for each in record["declared"]:
            if each not in now:
                raise StateError(
                    f"the stored state has the {each[0]} {each[1]!r} ({each[2]}), and the process "
                    "no longer does",
                    where=definition.name,
                    hint="Declare it as it was, or reset the state",
                )
        for name, is_now in (("windows", self._windows), ("order", self._order)):
            if record[name] != is_now:
                was = record[name]
                shown = (was, is_now) if name == "windows" else (repr(was), repr(is_now))
                raise StateError(
                    f"the stored state is of {name}={shown[0]}, the process has {name}={shown[1]}",
                    where=definition.name,
                    hint=f"Leave the {name} as before, or reset the state",
                )


def read_facts(store: StateStore, place: StoredPlace) -> dict[str, Any] | None:
    """Return the facts of a process, whatever the process; ``None`` if nothing is stored.

    Raises:
        StateError: They are damaged, or of another layout.
    """
    (data,) = store.get([place.prefix(FACTS)])
    if data is None:
        return None
    with decoding(WHAT):
        record: dict[str, Any] = decode(data)
        check_format(FORMAT, record["layout"])
        facts = record["facts"]
        check_times({name: facts.get(name) for name in (*TIMES, "lateness", "gone until")})
        check_times(facts)
        return record


def check_times(facts: Mapping[str, Any]) -> None:
    """Raise ``StateError`` unless facts are times, or numbers between these."""
    for name, fact in facts.items():
        if type(fact) is not int or not START_OF_TIME <= fact <= END_OF_TIME:
            raise damaged(WHAT, f"{name} is {fact!r}")


def parts_of_facts(record: dict[str, Any], place: StoredPlace) -> list[StoredPlace]:
    """Return where the parts of a stage are stored; or the one place.

    Args:
        record: Its facts.
        place: Where all of it is stored.

    Raises:
        StateError: What is stored is damaged.
    """
    count = record["groups"]
    if type(count) is not int or count < 1 or place.count % count:
        raise damaged(WHAT, f"a part has {count!r} of {place.count} key groups")
    return [replace(place, first=first, count=count) for first in place.groups[::count]]
