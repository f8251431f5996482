"""Losses to plant in an engine, each in one place: records go where no count expects them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import lowwater as lw
from lowwater.engine.join.tables import GroupOperator, UpsertOperator
from lowwater.engine.join.tops import TopOperator
from lowwater.engine.join.two_sided import TwoSided
from lowwater.engine.keyed.spilled import SpilledKeys
from lowwater.engine.local import (
    source_reader,
    stage_input,
    stage_run,
    worker_steps,
)
from lowwater.engine.local.duplicates import DuplicateFilter
from lowwater.engine.local.parted_process import HostedParts
from lowwater.engine.local.runner import LocalRun
from lowwater.engine.local.source_reader import SourceReader
from lowwater.engine.local.stage_input import AdmittedBatch
from lowwater.engine.local.stage_run import StageRun
from lowwater.engine.process.record_execution import RecordProcess
from lowwater.engine.process.waiting_records import WaitingRecords
from lowwater.engine.records import pane_table, stage_output, stateless
from lowwater.engine.records.admission import Admission
from lowwater.engine.window.operator import WindowOperator
from lowwater.engine.window.placement import DroppedElements
from tests.property.every_operator import CASES
from tests.property.operator_parts import WINDOWS, Case

Plant = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Loss:
    """A planted loss.

    Args:
        name: What is lost.
        plant: Plants it.
        of: The name of the case that meets it.
        said: What the message must contain.
        options: How the case is run.
    """

    name: str
    plant: Plant
    of: str
    said: str
    options: dict[str, Any]

    def __str__(self) -> str:
        return self.name

    @property
    def case(self) -> Case:
        """The case that meets it."""
        return OWN if self.of == OWN.name else CASES[self.of]


OWN = Case(
    "union of branches",
    lambda stream: (
        (stream.filter(lw.col("i") < 4) | stream.filter(lw.col("i") > 6))
        .key_by("k")
        .window(WINDOWS["fixed"])
        .aggregate(rows=lw.count())
    ),
)
LOSSES: list[Loss] = []


def loss(name: str, case: str, said: str, **options: Any) -> Callable[[Plant], Plant]:
    def note(plant: Plant) -> Plant:
        LOSSES.append(Loss(name, plant, case, said, options))
        return plant

    return note


IN_ORDER = "answering process, event_time"


@loss("all but the first records of an advance", IN_ORDER, "records that arrived")
def _(patch: pytest.MonkeyPatch) -> None:
    right = RecordProcess._pass

    def passed(self: Any, waited: Any) -> Any:
        # What `range(0, len(waited), _ROWS_AT_ONCE)` did, where `waited` is a NamedTuple of three.
        return right(self, None if waited is None else waited.slice(0, 3))

    patch.setattr(RecordProcess, "_pass", passed)


@loss("a bundle that is not queued", "stages over a process", "came to the runner")
def _(patch: pytest.MonkeyPatch) -> None:
    right = AdmittedBatch.bundles
    patch.setattr(AdmittedBatch, "bundles", lambda self, size: list(right(self, size))[1:])


@loss("a queued bundle that no stage takes", "fixed windows", "from its queue", batch=100)
def _(patch: pytest.MonkeyPatch) -> None:
    right = StageRun.take

    def take(self: Any, waiting: Any) -> Any:
        return right(self, [one for one in waiting if one.start != 20])

    patch.setattr(StageRun, "take", take)


@loss("the share of one of several stages", "branches of one stream", "came to the runner")
def _(patch: pytest.MonkeyPatch) -> None:
    right = SourceReader._bundles_by_cut

    def by_cut(self: Any, entry: Any, sound: Any, cuts: Any) -> Any:
        bundles, *others = right(self, entry, sound, cuts)
        return [None] * len(bundles) if entry.stage else bundles, *others

    patch.setattr(SourceReader, "_bundles_by_cut", by_cut)


@loss("a slice of a batch in a worker", "filter by function", "records", workers=2, batch=600)
def _(patch: pytest.MonkeyPatch) -> None:
    right = worker_steps._together
    patch.setattr(worker_steps, "SLICE", 30)
    patch.setattr(worker_steps, "_together", lambda made: right(made[:1]))


@loss("a record that a worker does not process", "answering process, arrival", "arrived", workers=2)
def _(patch: pytest.MonkeyPatch) -> None:
    right = HostedParts.take

    def take(self: Any, nth: int, bundle: Any, rows: Any) -> Any:
        stop = max(1, len(bundle) - 1)
        return right(self, nth, bundle.slice(0, stop), None if rows is None else rows[:stop])

    patch.setattr(HostedParts, "take", take)


@loss("windows that are due in the store", "fixed windows", "rows of state at the end", memory=1)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WindowOperator, "load_due", lambda self, store, to: None)


@loss("facts that are due in the store", "left join as of, ignore", "at the end", memory=1)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SpilledKeys, "load_due", lambda self, store, dues, to: None)
    patch.setattr(SpilledKeys, "load_last", lambda self, store, dues, after: None)


@loss("records that wait, at a restart", IN_ORDER, "waiting records", restarts=2)
def _(patch: pytest.MonkeyPatch) -> None:
    right = WaitingRecords.rebuild

    def rebuild(self: Any) -> None:
        self.table.release(self.table.live()[:1])
        right(self)

    patch.setattr(WaitingRecords, "rebuild", rebuild)


@loss("a late element that is not reported", "fixed windows", "records that arrived")
def _(patch: pytest.MonkeyPatch) -> None:
    right = DroppedElements.batch

    def batch(self: Any) -> Any:
        late = right(self)
        if late is None or not len(late):
            return late
        fields = {name: getattr(late, name)[1:] for name in ("element", "start", "end", "reason")}
        return replace(late, **fields)

    patch.setattr(DroppedElements, "batch", batch)


@loss("late elements that do not leave the run", "left join, early", "late elements")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stage_run, "late_elements", lambda *args: None)


@loss("output that does not leave the run", "echoing process, arrival", "output rows")
def _(patch: pytest.MonkeyPatch) -> None:
    right = StageRun._emit

    def emitted(self: Any, output: Any, late: Any) -> Any:
        return list(right(self, output, late))[1:]

    patch.setattr(StageRun, "_emit", emitted)


@loss("an output that another stage reads", "stages over a process", "came to it")
def _(patch: pytest.MonkeyPatch) -> None:
    right = LocalRun.__init__

    def made(self: Any, *args: Any, **options: Any) -> None:
        right(self, *args, **options)
        self._between = [entries[1:] for entries in self._between]

    patch.setattr(LocalRun, "__init__", made)


@loss("an input of a union of branches", "union of branches", "came to it")
def _(patch: pytest.MonkeyPatch) -> None:
    right = source_reader._Cutting.of

    def cutting(read: Any, entries: Any, on_error: Any) -> Any:
        return right(read, entries[:1], on_error)

    patch.setattr(source_reader._Cutting, "of", cutting)


@loss("a dead letter of a step", "map", "dead letters")
def _(patch: pytest.MonkeyPatch) -> None:
    right = stage_input._in_order

    def in_order(stepped: Any, admitted: Any) -> Any:
        return tuple(part[1:] for part in right(stepped, admitted))

    patch.setattr(stage_input, "_in_order", in_order)


@loss("a record that passes a filter", "filter", "its step 1, filter")
def _(patch: pytest.MonkeyPatch) -> None:
    right = stateless._only

    def only(*args: Any, **options: Any) -> Any:
        done = right(*args, **options)
        rows = np.arange(1, done.records.length)
        return replace(done, records=done.records.take(rows))

    patch.setattr(stateless, "_only", only)


@loss("an invalid record", "unusable values in windows", "left it")
def _(patch: pytest.MonkeyPatch) -> None:
    right = Admission._sift

    def sift(self: Any, *args: Any) -> Any:
        admitted = right(self, *args)
        return replace(admitted, errors=admitted.errors[1:])

    patch.setattr(Admission, "_sift", sift)


@loss("a record that is no duplicate", "no duplicates", "records that arrived")
def _(patch: pytest.MonkeyPatch) -> None:
    right = DuplicateFilter.kept

    def kept(self: Any, *args: Any) -> Any:
        found = right(self, *args)
        return None if found is None else found[:-1]

    patch.setattr(DuplicateFilter, "kept", kept)


@loss("a record of a join", "inner join, final", "records that arrived")
def _(patch: pytest.MonkeyPatch) -> None:
    right = TwoSided._take_timely

    def take(self: Any, side: Any, bundle: Any) -> Any:
        return right(self, side, bundle.slice(0, max(1, len(bundle) - 1)))

    patch.setattr(TwoSided, "_take_timely", take)


@loss("an upsert", "table by order", "records that arrived")
def _(patch: pytest.MonkeyPatch) -> None:
    right = UpsertOperator._take

    def take(self: Any, side: Any, bundle: Any) -> Any:
        return right(self, side, bundle.slice(0, max(1, len(bundle) - 1)))

    patch.setattr(UpsertOperator, "_take", take)


@loss("a row of a group", "groups of a table, adding", "records that arrived")
def _(patch: pytest.MonkeyPatch) -> None:
    right = GroupOperator._take

    def take(self: Any, side: Any, bundle: Any) -> Any:
        return right(self, side, bundle.slice(0, max(1, len(bundle) - 1)))

    patch.setattr(GroupOperator, "_take", take)


@loss("a row of a top", "top of a table", "records that arrived")
def _(patch: pytest.MonkeyPatch) -> None:
    right = TopOperator._take

    def take(self: Any, side: Any, bundle: Any) -> Any:
        return right(self, side, bundle.slice(0, max(1, len(bundle) - 1)))

    patch.setattr(TopOperator, "_take", take)


@loss("a pane on its way to another stage", "chain of fixed and fixed", "came to it")
def _(patch: pytest.MonkeyPatch) -> None:
    right = pane_table.records_of

    def records_of(panes: Any, keys: Any, *, signed: bool) -> Any:
        records = right(panes, keys, signed=signed)
        return records.slice(0, max(1, records.length - 1))

    patch.setattr(stage_output, "records_of", records_of)


@loss("a window, at a restart", "sessions windows", "rows of state", restarts=2)
def _(patch: pytest.MonkeyPatch) -> None:
    right = WindowOperator._resume

    def resume(self: Any, facts: Any) -> None:
        self._state.drop(self._state.table.live()[:1])
        right(self, facts)

    patch.setattr(WindowOperator, "_resume", resume)


@loss("elements in no window", "gaps between windows", "records that arrived")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DroppedElements, "add_unwindowed", lambda self, element: None)
