"""State of our own: the cells of key groups in files that are named by the micro-batch.

Tasks of ``mapInArrow`` have no state store. They keep cells in files beside the checkpoint, one for
each task of a level::

    LOCATION/QUERY/runs/...                             the runs of the query, in order
    LOCATION/QUERY/level-1/cells/8/3/42-5-RUN-ATTEMPT   what task 3 of 8 left in micro-batch 42
    LOCATION/QUERY/level-1/idle/43-5-RUN-ATTEMPT        a micro-batch in which nothing was sent

(numbers with leading zeros, ``RUN`` and ``ATTEMPT`` random). A file is written once, whole, before
its task gives any row; an attempt that dies leaves a file whose checksum is wrong, or none. Nothing
is ever renamed or overwritten, so any filesystem or object store will do.

**Which file is the state after micro-batch N?** Nobody records which attempt Spark took. It needs
no record, for what an attempt writes is determined:

1.  A step is a function of the state before, of the *set* of messages (they are sorted by sender)
    and of the micro-batch's time, which Spark logs with its offsets and gives again when it runs
    again. Functions that the user gives must be deterministic, as for any retry of a Spark task.
2.  Within one run of a query, all attempts at a task of micro-batch N get the same messages: it is
    the same plan over the same splits of the same offsets. So retries, zombies, speculative tasks,
    recomputed shuffle files and a second action on the DataFrame in ``foreachBatch`` write files
    that differ in name, but not in what they mean: **any whole file of the run will do**.
3.  Another run has the same records of a micro-batch that runs again, but may have them in other
    splits (another number of cores, say), and then in another order. States of two runs must not
    be mixed with each other's output. If the run that asks has executed N itself, its own files
    count, all of them, as Spark commits N only when every task of it has ended. If not, N was
    executed last by the latest of the runs before that left a file of N: an earlier one did not
    get to its commit, or its output was replaced by the later one's under the same number. (A sink
    that finds N among what it wrote already may execute nothing: then the earlier run's output
    and its files both stand.) :mod:`lowwater.spark.run_order` tells which run is later, so what
    tasks write that survived their driver never counts for a run after theirs. Where one task
    packs and steps (:mod:`lowwater.spark.one_task`) a first micro-batch's may, under a number that
    is too high; the states of both runs are equal then, and so any of them will do.

So: **of the whole files of N, one of the latest run that is not later than one's own.** There is
one for each task, unless nothing was sent in N, which the tasks of that run note. What is missing
otherwise is an error: a micro-batch whose DataFrame was not read to its end has no state that could
be resumed, as with Spark's own operators.

A query that is resumed from an older copy of its checkpoint is a new run, which reads the files of
the micro-batch that the copy had committed, and whose own files count from there on. But a *newer*
copy from before that must not be resumed after it, unless the state is restored with it: it would
find the files of another history under the numbers of its own.

Which task has which group is no part of the state: a query that is restarted with another number of
partitions finds cells by group.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from struct import Struct
from typing import Any, final
from uuid import uuid4
from zlib import crc32

import msgspec

from lowwater.errors import StateError
from lowwater.spark.group_numbers import numbers_of_groups, spark_hash
from lowwater.spark.micro_batch import MicroBatch
from lowwater.spark.run_order import RunOrder, Standing
from lowwater.spark.state_backends import GroupCell
from lowwater.state.formats import FORMATS, check_format
from lowwater.state.versions.root import Root, root_at

_NAME = re.compile(r"(\d{12})-(\d{8})-[0-9a-f]{32}-[0-9a-f]{32}")
_CHECK = Struct("<I")
_FORMAT = "Spark cell files"
_RETAINED_MORE = 2
"""Micro-batches kept beyond those that may run again: the state before them, and one to spare."""


@final
@dataclass(frozen=True, slots=True)
class CellPlace:
    """Where and how a query keeps its cells; a value that Spark ships to the workers.

    Args:
        location: A folder or URI that all tasks reach.
        plan: The name of the DataFrame, new with each call of ``to_spark``.
        key_groups: How many key groups there are.
        partitions: Over how many partitions they are spread.
        backend: The name of the backend that the cells belong to.
        retain: Micro-batches that may be run again.
        filesystem: A ``pyarrow.fs.FileSystem``, for what a URI cannot say.
        collect_every: After how many micro-batches each old files are deleted.
    """

    location: str
    plan: str
    key_groups: int
    partitions: int
    backend: str
    retain: int = 100
    filesystem: Any = None
    collect_every: int = 16

    def root(self) -> Root:
        """Return where files are written."""
        if self.filesystem is None:
            return _root_of(self.location)
        return root_at(self.location, self.filesystem)

    def runs(self) -> RunOrder:
        """Return the order of runs."""
        return RunOrder(self.root(), self.plan, self.partitions)

    def partition_of(self, key_group: int, partitions: int | None = None) -> int:
        """Return the partition into which Spark puts the rows of a key group."""
        number = numbers_of_groups(self.key_groups)[key_group]
        return spark_hash(number) % (self.partitions if partitions is None else partitions)

    def groups_of(self, partition: int) -> list[int]:
        """Return the key groups of a partition, ascending."""
        groups = range(self.key_groups)
        return [group for group in groups if self.partition_of(group) == partition]


def partitions_of(key_groups: int, most: int) -> int:
    """Return over how many partitions to spread key groups: so that each has one at least.

    A task without a message then tells that nothing was sent to any group.

    >>> partitions_of(8, 2), partitions_of(8, 200), partitions_of(3, 3)
    (2, 8, 3)
    """
    hashes = [spark_hash(number) for number in numbers_of_groups(key_groups)]
    return next(
        count
        for count in range(max(1, min(most, key_groups)), 0, -1)
        if len({one % count for one in hashes}) == count
    )


@cache
def _root_of(location: str) -> Root:
    return root_at(location)


@final
class CellFiles:
    """The cells of one level, as a task of a micro-batch reads and writes them.

    Args:
        place: Where they are.
        level: The level.
        batch: The micro-batch of the task.
    """

    def __init__(self, place: CellPlace, level: int, batch: MicroBatch) -> None:
        self._place = place
        self._batch = batch
        self._root = place.root()
        self._home = f"{batch.query}/level-{level}"

    def read(self, groups: Sequence[int]) -> tuple[int, dict[int, GroupCell]]:
        """Return the cells of key groups after the micro-batch before this one.

        Args:
            groups: The key groups.

        Returns:
            The number of the micro-batch that left them, and the cells; -1 and none if nothing was
            sent to the level before.

        Raises:
            StateError: They are not there; or they are of another pipeline, or layout.
        """
        if not self._batch.number:
            return -1, {}
        standing = self._place.runs().standing(self._batch)
        idle: dict[int, int] = {}
        for one in self._listed(self._idle(), standing):
            idle[one.batch] = max(one.run, idle.get(one.batch, 0))
        for number in range(self._batch.number - 1, -1, -1):
            # Of a run that sent nothing, what an earlier one left does not count either.
            found = self._latest(groups, number, standing, idle.get(number, 0))
            missing = [group for group in groups if group not in found]
            if not missing:
                return number, found
            if found or number not in idle:
                raise self._missing(missing, number)
        return -1, {}

    def write(self, partition: int, cells: Mapping[int, GroupCell]) -> None:
        """Keep the cells of a partition's key groups after this micro-batch; durable on return."""
        rows = [[group, *cell.to_row()] for group, cell in sorted(cells.items())]
        packed = msgspec.msgpack.encode([FORMATS[_FORMAT], rows])
        self._put(
            self._cells(self._place.partitions, partition), _CHECK.pack(crc32(packed)) + packed
        )

    def note_idle(self) -> None:
        """Note that nothing was sent to the level in this micro-batch."""
        self._place.runs().register(self._batch)
        self._put(self._idle(), b"")

    def collect(self, partition: int, base: int) -> None:
        """Delete what is older than any micro-batch that may be run again; now and then.

        Args:
            partition: The partition; tasks do this in turn.
            base: The number of the micro-batch that left the cells which were read.
        """
        place = self._place
        if (self._batch.number + partition) % place.collect_every:
            return
        oldest = base - place.retain - _RETAINED_MORE
        standing = place.runs().standing(self._batch)
        directories = [
            self._cells(partitions, part)
            for partitions in standing.partitions
            for part in range(partition, partitions, place.partitions)
        ]
        for directory in [*directories, self._idle()]:
            old = [one.name for one in self._listed(directory, standing) if one.batch < oldest]
            if old:
                self._root.delete(directory, old)

    def _put(self, directory: str, data: bytes) -> None:
        batch = self._batch
        number = self._place.runs().standing(batch).number
        name = f"{batch.number:012}-{number:08}-{batch.run}-{uuid4().hex}"
        self._root.put(directory, {}, name, data)

    def _latest(
        self, groups: Sequence[int], number: int, standing: Standing, after: int
    ) -> dict[int, GroupCell]:
        """Return the cells after a micro-batch, of the latest run that has them.

        Args:
            groups: The key groups.
            number: The number of the micro-batch.
            standing: Where this run stands.
            after: The number of a run: earlier ones do not count.
        """
        files: list[tuple[_File, str, list[int]]] = []
        for partitions in standing.partitions:
            by_partition: dict[int, list[int]] = defaultdict(list)
            for group in groups:
                by_partition[self._place.partition_of(group, partitions)].append(group)
            for partition, here in by_partition.items():
                directory = self._cells(partitions, partition)
                files += [
                    (one, directory, here)
                    for one in self._listed(directory, standing)
                    if one.batch == number and one.run > after
                ]
            if any(one.run == standing.number for one, *_ in files):
                break  # no run counts for more than one's own, which has no other partitions
        found: dict[int, GroupCell] = {}
        for one, directory, here in sorted(files, key=lambda each: each[0].rank, reverse=True):
            wanted = [group for group in here if group not in found]
            if wanted:
                cells = self._cells_in(directory, one.name)
                found |= {group: cells[group] for group in wanted if group in cells}
        return found

    def _cells_in(self, directory: str, name: str) -> dict[int, GroupCell]:
        """Return the cells in a file; none if whoever wrote it did not get to the end."""
        data = self._root.read(directory, name)
        packed = data[_CHECK.size :]
        if data[: _CHECK.size] != _CHECK.pack(crc32(packed)):
            return {}
        where = self._root.where(directory, name)
        layout, rows = msgspec.msgpack.decode(packed)
        check_format(_FORMAT, layout, where=where, hint="Begin with a new checkpoint")
        groups, backend = self._place.key_groups, self._place.backend
        return {
            group: GroupCell.from_row(tuple(row), key_groups=groups, backend=backend)
            for group, *row in rows
        }

    def _listed(self, directory: str, standing: Standing) -> list[_File]:
        """Return the files in a directory, but for those of later runs than this one."""
        found = map(_File.of, self._root.sizes(directory))
        return [one for one in found if one is not None and one.run <= standing.number]

    def _cells(self, partitions: int, partition: int) -> str:
        return f"{self._home}/cells/{partitions}/{partition}"

    def _idle(self) -> str:
        return f"{self._home}/idle"

    def _missing(self, groups: Iterable[int], number: int) -> StateError:
        named = ", ".join(map(str, groups))
        return StateError(
            f"the state of key group {named} after micro-batch {number} is not there",
            where=self._root.where(self._home),
            hint="Name the state_location that the checkpoint was begun with, and have "
            "foreachBatch read its whole DataFrame in each micro-batch; what another operator "
            "began cannot be resumed by mapInArrow: begin with a new checkpoint",
        )


@final
@dataclass(frozen=True, slots=True)
class _File:
    """The name of a file.

    Args:
        name: The name.
        batch: The number of the micro-batch.
        run: The number of the run.
    """

    name: str
    batch: int
    run: int

    @property
    def rank(self) -> tuple[int, str]:
        """How much it counts among those of a micro-batch."""
        return self.run, self.name

    @classmethod
    def of(cls, name: str) -> _File | None:
        parts = _NAME.fullmatch(name)
        return None if parts is None else cls(name, int(parts[1]), int(parts[2]))
