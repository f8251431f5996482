"""The level function: rows and a cell in, rows and a cell out. Spark's operators adapt to it.

What rows are is said in :mod:`lowwater.spark.rows`. Rows that are not for a level pass through it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, final

import pyarrow as pa

from lowwater.engine.records.steps import REASONS, TIMINGS
from lowwater.errors import DataError
from lowwater.spark.group_numbers import numbers_of_groups
from lowwater.spark.level import DuplicatesRun, LevelOptions, LevelOutput, LevelRun
from lowwater.spark.levels import Levels, is_split
from lowwater.spark.messages import Message, table_bytes
from lowwater.spark.output_schema import OutputRows, OutputSchema
from lowwater.spark.rows import SentRows
from lowwater.spark.source_packer import PackedRecords, SourcePacker
from lowwater.spark.state_backends import GroupCell, KeptState, Live, StateBackend
from lowwater.state.store import Batch


@final
class _Current:
    """The store of the micro-batch: what operators read, though each call opens it anew."""

    def __init__(self) -> None:
        self.store: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


@final
@dataclass(slots=True)
class _Held:
    """What a worker holds of a key group between micro-batches."""

    kept: KeptState
    run: LevelRun
    store: _Current


LIVE: Live[_Held] = Live()
"""What this process holds."""


@final
@dataclass(frozen=True)
class LevelCall:
    """The function of one level; a value that Spark ships to the workers.

    Args:
        query: The name of the query, unique in the worker process.
        levels: The graph.
        level: The level.
        options: How all levels run.
        outputs: The columns of output rows.
        backend: The state backend.
    """

    query: str
    levels: Levels
    level: int
    options: LevelOptions
    outputs: OutputSchema
    backend: StateBackend

    def step(
        self,
        key_group: int,
        held: GroupCell | None,
        bodies: Iterable[bytes | Message],
        now: int | None,
        *,
        ended: bool,
        live: Live[_Held] = LIVE,
    ) -> tuple[pa.Table, GroupCell, int]:
        """Step one micro-batch; return the rows, the new cell and the next deadline.

        Args:
            key_group: The key group.
            held: The stored cell; ``None`` for a new key group.
            bodies: The messages, or what they were sent as.
            now: The micro-batch's time, int microseconds, if it is known.
            ended: Whether the input has ended.
            live: What this process still holds.
        """
        messages = _messages(bodies)
        found = None if held is None else live.take(self.query, self.level, key_group, held.stamp)
        fresh = found is None
        if found is None:
            content = None if held is None else held.content
            kept = self.backend.keep(self.level, key_group, content)
            found = _Held(kept, self._run(key_group, apart=kept.is_apart), _Current())
        was_apart = found.kept.is_apart
        with found.kept.opened() as store:
            found.store.store = store
            if fresh:
                found.run.resume(found.store)
            output = found.run.step(messages, now, ended=ended)
            batch = Batch()
            found.run.save(batch)
            content = found.kept.save(batch)
        # A random stamp, so that the cell differs from every other one, including those written
        # by other attempts at the same micro-batch.
        stamp = uuid.uuid4().bytes
        if found.kept.is_apart == was_apart:
            live.put(self.query, self.level, key_group, stamp, found)
        rows = self._rows(found.run, output, found.kept.stored_bytes)
        cell = GroupCell(self.options.key_groups, self.backend.name, stamp, content)
        return rows, cell, found.run.next_deadline

    def once(self, key_group: int, bodies: Iterable[bytes]) -> pa.Table:
        """Process all input at once, to its end; return the rows. For static DataFrames."""
        run = self._run(key_group, apart=False)
        messages = _messages(bodies)
        with self.backend.keep(self.level, key_group, None).opened() as store:
            run.resume(store)
            output = run.step(messages, None, ended=True)
        return self._rows(run, output, 0)

    def group_of(self, number: int) -> int:
        """Return the key group that a number stands for."""
        return self._groups[number]

    @cached_property
    def _groups(self) -> dict[int, int]:
        numbers = numbers_of_groups(self.options.key_groups)
        return {number: group for group, number in enumerate(numbers)}

    def _run(self, key_group: int, *, apart: bool) -> LevelRun:
        options = self.options if apart else replace(self.options, memory=None)
        return LevelRun(self.levels, self.level, key_group, options)

    def _send(self, rows: SentRows, output: LevelOutput, key_group: int) -> None:
        """Add messages: one row for one that most key groups of a level get."""
        groups = self.options.key_groups
        to: dict[tuple[int, int], list[tuple[int, Message]]] = {}
        for level, group, message in output.messages:
            to.setdefault((level, id(message)), []).append((group, message))
        for (level, _), found in to.items():
            if len(found) > 1 and 2 * len(found) >= groups:
                # The others get it too, beside one that tells the same and has elements.
                rows.send_to_all(level, key_group, found[0][1])
            else:
                for group, message in found:
                    rows.send(level, group, message)

    def _rows(self, run: LevelRun, output: LevelOutput, state_bytes: int) -> pa.Table:
        rows = SentRows(self.options.key_groups)
        self._send(rows, output, run.key_group)
        made: dict[int, OutputRows] = {}
        names = self.levels.graph
        for made_by, outcome in output.outcomes:
            # What is held from the last micro-batch has the graph as it was sent then.
            node = self.levels.nodes[made_by.number]
            own = made.setdefault(node.number, OutputRows(self.outputs))
            keys = node.stage.key_names
            for tag, emitted in outcome.outputs.items():
                unfit = own.add(node.number, tag, emitted, keys)
                if unfit and self.options.on_error == "raise":
                    raise DataError(
                        f"a record was emitted that does not fit: {unfit[0].detail}",
                        where=unfit[0].where,
                        hint='Emit values of that type, or use on_error="dead_letter"',
                    )
                output.counts[node.number].dead_letters += len(unfit)
                own.add_dead_letters(unfit)
            if outcome.late is not None:
                own.add_late(node.stage, names.name_of(node.stage), outcome.late)
            own.add_dead_letters(outcome.errors)
        for node, one in zip(self.levels.at(self.level), run.runs, strict=True):
            counts = output.counts[node.number]
            metrics = counts.metrics
            table = made[node.number].table() if node.number in made else None
            stands = one if isinstance(one, DuplicatesRun) else one.operator
            hold = counts.hold
            taken_before = is_split(node.stage) and not node.drops_duplicates
            counted: dict[str, int] = {
                "tells": True,
                "events": 0 if taken_before else counts.events,
                **{name.lower(): metrics.panes[name] for name in TIMINGS},
                "retractions": metrics.retractions,
                "emitted": metrics.emitted.total(),
                **{reason: metrics.late[reason] for reason in REASONS},
                "duplicates": metrics.duplicates,
                "superseded": metrics.superseded,
                "received": counts.events,
                "sent": counts.sent,
                # What drops duplicates for a stage in another level admits nothing itself.
                "admitted": 0 if node.drops_duplicates else metrics.admitted,
                "dropped": metrics.dropped,
                "waiting": metrics.waiting,
                "dead_letters": counts.dead_letters,
                "open_windows": 0 if isinstance(one, DuplicatesRun) else one.operator.open_windows,
                "state_bytes": state_bytes,
                "watermark": stands.watermark,  # which does not go back, as that of a source may
                "output_watermark": run.output_watermark(one),
                "clock": run.clock,
            }
            state_bytes = 0  # it is that of all nodes of the level together
            rows.leave(
                run.key_group,
                self.levels.place_of(node),
                counted,
                body=None if table is None else table_bytes(table),
                held_by=None if hold is None else hold.what,
            )
        for source, mark in enumerate(run.sources):
            at = run.source_watermark(source)
            told = {
                "tells": True,
                "watermark": at,
                "output_watermark": at,
                "clock": run.clock,
            }
            rows.leave(run.key_group, -1 - source, told, held_by=mark.holder(run.clock))
        return rows.table()


_SHORT = 256
"""Messages of fewer bytes have no elements, as a rule, and come to several key groups of a task."""
_short_message = lru_cache(maxsize=1_024)(Message.of_bytes)


def _messages(bodies: Iterable[bytes | Message]) -> list[Message]:
    return [body if isinstance(body, Message) else _message_of(body) for body in bodies]


def _message_of(body: bytes) -> Message:
    return _short_message(body) if len(body) < _SHORT else Message.of_bytes(body)


@final
@dataclass(frozen=True, slots=True)
class PackCall:
    """The function that packs a partition of a source; a value that Spark ships to the workers.

    Args:
        packer: What packs it.
        outputs: The columns of output rows.
        names: The names of the columns, in order.
    """

    packer: SourcePacker
    outputs: OutputSchema
    names: Sequence[str]

    def __call__(self, batches: Iterable[pa.RecordBatch], partition: int) -> Iterator[pa.Table]:
        """Yield the rows of a partition, some for each of its stretches."""
        for packed in self.packed(batches, partition):
            rows = SentRows(self.packer.key_groups)
            for level, group, message in packed.messages:
                rows.send(level, group, message)
            yield self._leaving(rows, packed, partition).table()

    def packed(self, batches: Iterable[pa.RecordBatch], partition: int) -> Iterator[PackedRecords]:
        """Yield what is packed of a partition, for each of its stretches."""
        return self.packer.pack((batch.rename_columns(self.names) for batch in batches), partition)

    def leaving(self, packed: PackedRecords, partition: int) -> pa.Table:
        """Return the rows of a stretch that leave the pipeline: dead letters, and counters."""
        return self._leaving(SentRows(self.packer.key_groups), packed, partition).table()

    def _leaving(self, rows: SentRows, packed: PackedRecords, partition: int) -> SentRows:
        made = OutputRows(self.outputs)
        made.add_dead_letters(packed.dead_letters)
        table = made.table()
        counted = {
            "events": packed.events,
            "sent": packed.sent,
            "dead_letters": len(packed.dead_letters),
        }
        body = None if table is None else table_bytes(table)
        group = partition % self.packer.key_groups
        rows.leave(group, -1 - self.packer.source, counted, body=body)
        return rows


@final
@dataclass(frozen=True, slots=True)
class BeatCall:
    """The function that says to all key groups that a source was read, and nothing else.

    Args:
        source: The number of the source.
        levels: The graph.
        key_groups: How many key groups there are.
    """

    source: int
    levels: Levels
    key_groups: int

    def __call__(self) -> pa.Table:
        """Return the rows."""
        rows = SentRows(self.key_groups)
        for level in self.levels.levels_told():
            for group in range(self.key_groups):
                rows.send(level, group, Message(origin=-1 - self.source, part=-1))
        return rows.table()
