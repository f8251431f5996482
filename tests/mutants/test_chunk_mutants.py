"""Bugs planted where the engine takes rows in chunks are caught by the law of bundles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from lowwater.engine.process.record_execution import RecordProcess
from lowwater.engine.process.waiting_records import PassedRecords
from lowwater.engine.window import standing
from lowwater.engine.window.aggregation import Aggregation
from lowwater.state.table import Index
from tests.property.bundled import arrivals, run
from tests.property.every_operator import CASES
from tests.property.small_chunks import small_chunks

Plant = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mutant:
    """A planted bug.

    Args:
        name: What is wrong.
        case: The case of ``every_operator`` that shows it.
        plant: Plants it.
    """

    name: str
    case: str
    plant: Plant


MUTANTS: list[Mutant] = []


def mutant(name: str, case: str) -> Callable[[Plant], Plant]:
    def note(plant: Plant) -> Plant:
        MUTANTS.append(Mutant(name, case, plant))
        return plant

    return note


@mutant("records that waited are counted as three", "answering process, event_time")
def _(patch: pytest.MonkeyPatch) -> None:
    """As the length of a named tuple of three fields was."""
    patch.setattr(PassedRecords, "__len__", lambda self: 3)


@mutant("records that waited are counted as three in windows", "windowed process, event_time")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PassedRecords, "__len__", lambda self: 3)


@mutant("a later chunk refuses records of the first", "answering process, event_time")
def _(patch: pytest.MonkeyPatch) -> None:
    right = RecordProcess._take

    def take(self: Any, bundle: Any, late: Any, first: int = 0, plain: Any = None) -> None:
        right(self, bundle, late, 0, plain)

    patch.setattr(RecordProcess, "_take", take)


@mutant("every chunk but the first lacks its last record", "echoing process, event_time")
def _(patch: pytest.MonkeyPatch) -> None:
    right = PassedRecords.slice
    patch.setattr(
        PassedRecords,
        "slice",
        lambda self, start, stop: right(self, start, stop - 1 if start else stop),
    )


@mutant("of the windows beyond a chunk the key is forgotten", "several keys")
def _(patch: pytest.MonkeyPatch) -> None:
    right = Index.find_or_insert

    def find(self: Any, *values: Any) -> Any:
        rows, new = right(self, *values)
        return (rows[:1].repeat(len(rows)), new) if 0 < len(rows) <= 3 else (rows, new)

    patch.setattr(Index, "find_or_insert", find)


@mutant("lists of panes begin again with each bundle", "fixed windows, discarding, early and late")
def _(patch: pytest.MonkeyPatch) -> None:
    right = Aggregation.add

    def add(self: Any, bundle: Any, element: Any, rows: Any, arrival: Any) -> None:
        right(self, bundle, element, rows, arrival - arrival[:1].sum())

    class Restarting(Aggregation):  # type: ignore[misc]  # final
        pass

    patch.setattr(Restarting, "add", add, raising=False)
    patch.setattr(standing, "Aggregation", Restarting)


def check(case: str) -> None:
    """Hold the law against a case, with few records, in small chunks."""
    of = CASES[case]
    what = arrivals(150, of.inputs, of.written)
    whole = run(of.build, what, 10**6, content=of.content)
    with small_chunks():
        whole.check_equal(run(of.build, what, 25, content=of.content))


@pytest.mark.filterwarnings("ignore::lowwater.errors.InternalWarning")
@pytest.mark.parametrize("planted", MUTANTS, ids=lambda planted: planted.name)
def test_a_planted_bug_is_caught(planted: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    check(planted.case)
    # The run's own count of its records would find most of them first: the law has to, too.
    monkeypatch.setenv("LOWWATER_CHECK", "0")
    planted.plant(monkeypatch)
    with pytest.raises(AssertionError):
        check(planted.case)
