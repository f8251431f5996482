"""Every state of the model is as it has to be, and each of its rules is needed."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterable
from typing import Any

import pytest

from tests.examples import is_campaign
from tests.protocol import model
from tests.protocol.checker import visit
from tests.protocol.model import Bounds, Kind, Protocol

KINDS: tuple[Kind, ...] = ("files", "ledger", "collecting")
SMALL = {f"{kind}, crashes": Bounds((kind,), copies=0, crashes=1) for kind in KINDS}
SMALL |= {
    "collecting, losses": Bounds(("collecting",), records=1, copies=0, crashes=1, losses=1),
    "files, forks": Bounds(("files",), records=1, copies=0, crashes=0, forks=1),
    "ledger, forks": Bounds(("ledger",), records=1, copies=0, crashes=0, forks=1),
    "two places": Bounds(("files", "collecting"), copies=0, crashes=2, openings=3),
    "changes": Bounds(("files", "collecting"), copies=0, crashes=1, changes=1),
    "more changes": Bounds(("collecting", "files"), copies=0, crashes=1, changes=2, openings=3),
    "files, copies": Bounds(("files",), records=1, openings=2, crashes=1),
    "ledger, copies": Bounds(("ledger",), records=1, openings=2, crashes=1),
    "collecting, copies": Bounds(("collecting",), records=1, openings=2, crashes=1),
    "files that stay, copies": Bounds(("files",), openings=2, crashes=0, forgets=False),
    "collecting, many openings": Bounds(("collecting",), records=1, crashes=0),
    "ledger, many openings": Bounds(("ledger",), records=1, crashes=0),
}
_MANY_STATES = (
    "collecting, copies", "collecting, many openings", "files that stay, copies", "more changes",
)  # fmt: skip
LARGE = {
    "collecting, many openings": Bounds(("collecting",), records=1, crashes=1),
    "ledger, many openings": Bounds(("ledger",), records=1, crashes=1),
    "files": Bounds(("files",), crashes=1),
    "files that stay": Bounds(("files",), crashes=1, forgets=False),
    "collecting, losses and copies": Bounds(("collecting",), records=1, crashes=1, losses=1),
    "two places": Bounds(("files", "collecting"), copies=0, crashes=3, openings=4),
    "changes": Bounds(("collecting", "files", "ledger"), copies=0, crashes=2, changes=2),
    "forks": Bounds(("collecting",), copies=0, crashes=1, forks=1),
}

RULES: dict[str, tuple[str, str]] = {
    "a child of a run does nothing with its sinks": (
        "files, forks",
        "a forked child wrote, and removed, what its parent had open",
    ),
    "a delivery comes after its commit": (
        "files, crashes",
        "a crash left output that the state did not know",
    ),
    "a delivery that came before has no effect": (
        "files, crashes",
        "what came again was written under another name",
    ),
    "a folder is locked by the run that writes there": (
        "collecting, many openings",
        "two copies of a state wrote to one folder at the same time",
    ),
    "a joined file says which deliveries it holds": (
        "collecting, crashes",
        "a kill between publishing and removing gave rows twice",
    ),
    "a new output gets what follows": (
        "changes",
        "an output that was added got what came again for others",
    ),
    "an output that is owed deliveries is not let go": (
        "more changes",
        "an output was removed whose last rows nobody had delivered",
    ),
    "what waits at a place that is left is published": (
        "more changes",
        "rows that waited in a folder whose output was removed were never published",
    ),
    "a place belongs to the openings that the state names": (
        "files that stay, copies",
        "an older copy that was put back went on, and rows came twice",
    ),
    "a place is looked at again when it is opened": (
        "collecting, many openings",
        "a place was another's by the time that it was opened",
    ),
    "a place is not ahead of the state": (
        "files that stay, copies",
        "a copy of the same opening numbered other rows like those that were there",
    ),
    "a source is told what is durable": (
        "files, crashes",
        "offsets were acknowledged before the commit",
    ),
    "a source says that it has forgotten": (
        "ledger, copies",
        "a slot that was moved on was read as if nothing were missing",
    ),
    "a state directory has one owner": (
        "files, crashes",
        "a second process committed over the first",
    ),
    "a transaction finds the place still its own": (
        "ledger, many openings",
        "a run wrote into a table that another run had taken over",
    ),
    "an opening is stored before a place names it": (
        "files, crashes",
        "a kill before the first commit left outputs that no restart could have",
    ),
    "openings are kept until the next commit": (
        "files, crashes",
        "two kills before a commit left an output of an opening that was forgotten",
    ),
    "the outbox is in the commit": (
        "files, crashes",
        "a kill after the commit lost what it had to deliver",
    ),
    "the position is in the commit": (
        "files, crashes",
        "records were counted twice after a kill between two writes",
    ),
    "what is published is removed from what waits": (
        "collecting, crashes",
        "rows were published again that a kill had left waiting",
    ),
    "what waits is compared with the list of the commit": (
        "collecting, losses",
        "files of `.pending` were lost without a word",
    ),
    "what waits is in the commit": (
        "collecting, crashes",
        "a restart removed files that nobody would deliver again",
    ),
    "what waits is removed once it is published": (
        "collecting, crashes",
        "a kill between removing and publishing lost rows",
    ),
}
"""The rules of the protocol: the smallest bounds that show what each is for, and the defect that it
prevents. Those that this package has had are in the changelog."""


def _long_if_in(names: Iterable[str], some: Collection[str]) -> list[Any]:
    mark = pytest.mark.long(reason="visits 10,000 states and more")
    return [pytest.param(name, marks=mark if name in some else ()) for name in names]


@pytest.mark.parametrize("name", _long_if_in(SMALL, _MANY_STATES))
def test_every_state_is_as_it_has_to_be(name: str) -> None:
    found = visit(Protocol(SMALL[name]))
    print(f"{name}: {found}")
    assert found.broken is None, str(found)
    assert found.states > 100


@pytest.mark.long(reason="visits 100,000 states")
@pytest.mark.parametrize("name", LARGE if is_campaign() else list(LARGE)[:2])
def test_every_state_is_as_it_has_to_be_in_larger_bounds(name: str) -> None:
    found = visit(Protocol(LARGE[name]))
    print(f"{name}: {found}")
    assert found.broken is None, str(found)


@pytest.mark.parametrize(
    "rule", _long_if_in(RULES, [rule for rule in RULES if RULES[rule][0] in _MANY_STATES])
)
def test_each_rule_is_needed(rule: str) -> None:
    bounds, _ = RULES[rule]
    found = visit(Protocol(SMALL[bounds], without=rule))
    print(f"without {rule!r}, {found}")
    assert found.broken is not None


def test_all_rules_are_listed() -> None:
    named = set(re.findall(r'holds\(\s*"([^"]+)"', inspect.getsource(model)))
    assert named == set(RULES)
