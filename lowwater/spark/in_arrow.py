"""Levels as plain ``mapInArrow`` functions, with state of our own: no state store, and no pandas.

Any number of them, with an exchange before each, is a plan without stateful operators, which
Spark's checks take as it is. :mod:`lowwater.spark.cell_files` says how state is named, and why a
retry, a zombie or a restart finds the right one.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StructField, StructType

from lowwater.errors import InternalError
from lowwater.spark.cell_files import CellFiles, CellPlace
from lowwater.spark.chains import delivered
from lowwater.spark.group_numbers import numbers_of_groups
from lowwater.spark.level_call import LIVE, LevelCall
from lowwater.spark.messages import Message
from lowwater.spark.micro_batch import MicroBatch
from lowwater.spark.rows import COUNTED, ROW_DDL, ROW_SCHEMA, with_counters
from lowwater.spark.shipped import shipped
from lowwater.spark.state_backends import GroupCell

_REMEMBERED_AT_MOST = 256


def in_arrow(rows: DataFrame, calls: Sequence[LevelCall], place: CellPlace) -> DataFrame:
    """Return the output rows of a streaming query, and rows that have counters alone.

    Args:
        rows: The rows of :data:`~lowwater.spark.rows.ROW_SCHEMA` that sources give, whose
            tasks have registered the run.
        calls: The function of each level, in order.
        place: Where cells are kept.
    """
    levels = [LevelInArrow(call, place, is_last=call.level == len(calls)) for call in calls]
    if place.partitions == 1:  # one task has all key groups of a level: it steps them all
        function = stepped(LevelsInOneTask(tuple(levels)))
        return rows.repartition(1, "key_group").mapInArrow(function, output_type(calls[-1]))
    for level in levels:
        call = level.call
        spread = rows.repartition(place.partitions, "key_group")
        rows = spread.mapInArrow(stepped(level), output_type(call) if level.is_last else ROW_DDL)
        if not level.is_last:
            rows = delivered(rows, call.level + 1, call.options.key_groups)
    return rows


def output_type(call: LevelCall) -> StructType:
    """Return the columns of output rows, and behind them that of counters."""
    return StructType([*call.outputs.to_spark().fields, StructField(COUNTED, BinaryType())])


def stepped(function: Any) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    """Return what ``mapInArrow`` takes, of a function of batches that is sent to workers."""
    sent = shipped(function)

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from sent(batches)

    return step


@final
@dataclass(frozen=True, slots=True)
class Registering:
    """A packing function that registers the run of its query first.

    Args:
        pack: The function.
        place: Where cells are kept.
    """

    pack: Any
    place: CellPlace

    def __call__(self, *arguments: Any) -> Any:
        self.place.runs().register(MicroBatch.of_task())
        return self.pack(*arguments)


@final
@dataclass(slots=True)
class _Remembered:
    """What this process wrote last of a partition: what it holds may go on from there."""

    batch: MicroBatch
    stamps: Mapping[int, bytes]


_REMEMBERED: OrderedDict[tuple[str, int, int], _Remembered] = OrderedDict()


@final
@dataclass(frozen=True, slots=True)
class LevelInArrow:
    """The function of a level for ``mapInArrow``.

    All state is written before the first row is given: a consumer that stops early, as ``limit``
    does, loses rows but no state.

    Args:
        call: The function of the level.
        place: Where cells are kept.
        is_last: Whether its rows go to no other level, but to whatever the user does with them: as
            output rows, beside counters.
    """

    call: LevelCall
    place: CellPlace
    is_last: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        bodies: dict[int, list[bytes | Message]] = defaultdict(list)
        passing: list[pa.RecordBatch] = []
        for rows in batches:
            other = self._sorted_out(rows, bodies)
            if other is not None and self.is_last:
                passing.append(other)
            elif other is not None:
                yield other
        yield from self.stepped(bodies, passing)

    def stepped(
        self, bodies: Mapping[int, Sequence[bytes | Message]], passing: Sequence[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Step all key groups that have messages; give the rows that pass, and those made.

        Args:
            bodies: The messages for each key group, or what they were sent as.
            passing: Rows that leave the pipeline.
        """
        batch = MicroBatch.of_task()
        files = CellFiles(self.place, self.call.level, batch)
        made: list[pa.Table] = []
        if not bodies:
            files.note_idle()
        by_partition: dict[int, list[int]] = defaultdict(list)
        for group in sorted(bodies):
            by_partition[self.place.partition_of(group)].append(group)
        for partition, groups in by_partition.items():
            if groups != self.place.groups_of(partition):
                raise InternalError(f"of partition {partition}, only groups {groups} got messages")
            made += self._stepped(
                partition, {group: bodies[group] for group in groups}, files, batch
            )
        for rows in itertools.chain(passing, *(table.to_batches() for table in made)):
            if self.is_last:
                yield from with_counters(rows, self.call.outputs.schema)
            else:
                yield rows

    def _sorted_out(
        self, rows: pa.RecordBatch, bodies: dict[int, list[bytes | Message]]
    ) -> pa.RecordBatch | None:
        """Collect the messages for the level; return the rows that pass through it, if any."""
        here = pc.equal(pc.abs(rows.column("level")), self.call.level)
        mine = rows.filter(here)
        numbers = mine.column("key_group").to_pylist()
        for number, body in zip(numbers, mine.column("body").to_pylist(), strict=True):
            bodies[self.call.group_of(number)].append(body)
        if len(mine) == len(rows):
            return None
        # Spark knows of some columns that they hold no null: a stream has one schema.
        other = rows.filter(pc.invert(here))
        return pa.RecordBatch.from_arrays(other.columns, schema=ROW_SCHEMA)

    def _stepped(
        self,
        partition: int,
        bodies: Mapping[int, Sequence[bytes | Message]],
        files: CellFiles,
        batch: MicroBatch,
    ) -> list[pa.Table]:
        """Step the key groups of a partition and keep their cells; return the rows."""
        call = self.call
        before = _Before(call, files, batch, partition, list(bodies))
        tables, cells = [], {}
        for group, messages in bodies.items():
            table, cells[group], _ = call.step(
                group, before.cell(group), messages, None, ended=False
            )
            tables.append(table)
        files.write(partition, cells)
        stamps = {group: cell.stamp for group, cell in cells.items()}
        _remember(call, partition, _Remembered(batch, stamps))
        files.collect(partition, before.number)
        return tables


@final
@dataclass(frozen=True, slots=True)
class LevelsInOneTask:
    """The function of all levels for ``mapInArrow``, one after the other in one task.

    A level takes all rows of the one before it, which has then written its state: so all state is
    written before the first row is given.

    Args:
        levels: Their functions, in order, each with all its key groups in one partition.
    """

    levels: tuple[LevelInArrow, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for level in self.levels:
            batches = level(_delivered(batches, level.call))
        return batches


def _delivered(batches: Iterable[pa.RecordBatch], call: LevelCall) -> Iterator[pa.RecordBatch]:
    """Make a row for each key group of a level of one that is for all of them."""
    numbers = numbers_of_groups(call.options.key_groups)
    for rows in batches:
        to_all = pc.equal(rows.column("level"), -call.level)
        if not pc.any(to_all).as_py():
            yield rows
            continue
        yield rows.filter(pc.invert(to_all))
        every = rows.filter(to_all)
        for number in numbers:
            group = pa.array([number] * len(every), ROW_SCHEMA.field("key_group").type)
            yield pa.RecordBatch.from_arrays([group, *every.columns[1:]], schema=ROW_SCHEMA)


@final
class _Before:
    """The cells of a partition's key groups after the micro-batch before: read if it must be.

    What this process wrote in the same run is as good as any other file of that micro-batch, so
    nothing is read of groups that it holds. Of these the content of the cell is not needed.
    """

    def __init__(
        self,
        call: LevelCall,
        files: CellFiles,
        batch: MicroBatch,
        partition: int,
        groups: Sequence[int],
    ) -> None:
        self._call = call
        self._files = files
        self._groups = groups
        self.number = batch.number - 1
        self._read: dict[int, GroupCell] | None = None
        known = _REMEMBERED.get((call.query, call.level, partition))
        before = MicroBatch(batch.query, batch.run, batch.number - 1)
        self._stamps = known.stamps if known is not None and known.batch == before else {}

    def cell(self, group: int) -> GroupCell | None:
        """Return the cell of a key group; ``None`` if nothing was ever sent to it."""
        call = self._call
        stamp = self._stamps.get(group)
        if stamp is not None and LIVE.holds(call.query, call.level, group, stamp):
            return GroupCell(call.options.key_groups, call.backend.name, stamp, b"")
        if self._read is None:
            self.number, self._read = self._files.read(self._groups)
        return self._read.get(group)


def _remember(call: LevelCall, partition: int, written: _Remembered) -> None:
    key = (call.query, call.level, partition)
    _REMEMBERED[key] = written
    _REMEMBERED.move_to_end(key)
    while len(_REMEMBERED) > _REMEMBERED_AT_MOST:
        _REMEMBERED.popitem(last=False)
