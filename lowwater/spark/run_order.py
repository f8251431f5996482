"""The order of the runs of a query: which one started after which, known without any clock.

A run is what one start of a query executes, under an id of its own that says nothing of time. The
tasks that pack a source register their run before they end, under the number behind the highest
that they find::

    LOCATION/QUERY/runs/00000003-RUN-PLAN-8-ATTEMPT

Two facts follow if the location lists what was written (as every filesystem and object store of
today does), and Spark has one driver at a time on a checkpoint.

1.  A task that has messages for a level belongs to a registered run, and that was registered while
    its driver lived: the driver started the task's stage after a packing task, which registers
    before it ends, was reported to have ended.
2.  So of two runs that ever wrote state the later one has the higher number: its first packing task
    started after the earlier driver had died, and listed the earlier registration.

The first fact is not so where one task packs and steps, and so neither is the second:
:mod:`lowwater.spark.one_task` says why that makes no difference there.

A packing task that goes on after its driver died may register its run late, under any number. No
task of that run steps a level then, so the number is never compared with another.

Where a source has no partitions in a micro-batch, nothing is packed. Then the tasks of the levels
register their run before they note that nothing was sent. One of them that survives its driver may
do so late: that makes no difference either, as whether a micro-batch has partitions depends on its
offsets, so that no run sends anything in it.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import final
from uuid import uuid4

from lowwater.errors import StateError
from lowwater.spark.micro_batch import MicroBatch
from lowwater.state.versions.root import Root

_NAME = re.compile(r"(\d{8})-([0-9a-f]{32})-([0-9a-f]{32})-(\d+)-[0-9a-f]{32}")
_KEPT = 100
_KNOWN_AT_MOST = 256


@final
@dataclass(frozen=True, slots=True)
class Standing:
    """Where a run stands among all runs of its query.

    Args:
        number: Its number.
        partitions: Over how many partitions it and the runs before it spread their key groups.
    """

    number: int
    partitions: tuple[int, ...]


@final
@dataclass(frozen=True, slots=True)
class _Registration:
    name: str
    number: int
    run: str
    plan: str
    partitions: int


_STANDINGS: OrderedDict[tuple[str, str, str], Standing] = OrderedDict()
"""What this process knows, by place, run and plan: it does not change while a run lasts."""


@final
class RunOrder:
    """The registered runs of a query.

    Args:
        root: Where the query keeps its state.
        plan: The name of the DataFrame, new with each call of ``to_spark``.
        partitions: Over how many partitions it spreads key groups.
    """

    def __init__(self, root: Root, plan: str, partitions: int) -> None:
        self._root = root
        self._plan = plan
        self._partitions = partitions

    def register(self, batch: MicroBatch) -> None:
        """Register the run of a task, once.

        Raises:
            StateError: Another pipeline of the same query keeps its state at this place.
        """
        if self._known(batch) is not None:
            return
        directory = _directory(batch)
        found = self._listed(directory)
        if not any((one.run, one.plan) == (batch.run, self._plan) for one in found):
            number = 1 + max((one.number for one in found), default=0)
            name = f"{number:08}-{batch.run}-{self._plan}-{self._partitions}-{uuid4().hex}"
            self._root.put(directory, {}, name, b"")
            # Listed again: of two pipelines that register at a time, one sees the other.
            found = self._listed(directory)
            self._prune(directory, found)
        self._note(batch, found)

    def standing(self, batch: MicroBatch) -> Standing:
        """Return where the run of a task stands that has messages for a level.

        Raises:
            StateError: Many later runs have started; or another pipeline uses this place.
        """
        known = self._known(batch)
        return self._note(batch, self._listed(_directory(batch))) if known is None else known

    def _known(self, batch: MicroBatch) -> Standing | None:
        return _STANDINGS.get(self._key(batch))

    def _key(self, batch: MicroBatch) -> tuple[str, str, str]:
        return self._root.where(_directory(batch)), batch.run, self._plan

    def _note(self, batch: MicroBatch, found: list[_Registration]) -> Standing:
        own = [one for one in found if one.run == batch.run]
        if any(one.plan != self._plan for one in own):
            raise StateError(
                "two pipelines of one query keep their state at the same place",
                where=self._root.where(_directory(batch)),
                hint="Give each a state_location of its own",
            )
        if not own:
            raise StateError(
                f"the run {batch.run} of the query is not registered: later ones have replaced it",
                where=self._root.where(_directory(batch)),
                hint="If the query runs nowhere else, see that nothing deletes files there",
            )
        standing = Standing(
            min(one.number for one in own),
            # Its own number of partitions first: what is there is mostly in the same.
            tuple(dict.fromkeys([self._partitions, *sorted(one.partitions for one in found)])),
        )
        _STANDINGS[self._key(batch)] = standing
        while len(_STANDINGS) > _KNOWN_AT_MOST:
            _STANDINGS.popitem(last=False)
        return standing

    def _listed(self, directory: str) -> list[_Registration]:
        found = []
        for name in self._root.sizes(directory):
            parts = _NAME.fullmatch(name)
            if parts is not None:
                number, run, plan, partitions = parts.groups()
                found.append(_Registration(name, int(number), run, plan, int(partitions)))
        return sorted(found, key=lambda one: (one.number, one.name))

    def _prune(self, directory: str, found: list[_Registration]) -> None:
        """Delete old registrations: the highest number and all numbers of partitions remain."""
        if len(found) < 2 * _KEPT:
            return
        last = {one.partitions: one.name for one in found}
        kept = {*last.values(), *(one.name for one in found[-_KEPT:])}
        self._root.delete(directory, [one.name for one in found if one.name not in kept])


def _directory(batch: MicroBatch) -> str:
    return f"{batch.query}/runs"
