"""The options of ``to_spark``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, final

import pyarrow as pa

from lowwater.engine.local.memory_budget import MemoryBudget, SizeLike
from lowwater.engine.records.admission import OnError
from lowwater.errors import InvalidArgument, UnsupportedByRunner, describe, nearest
from lowwater.spark.state_backends import InlineBackend, StateBackend
from lowwater.time import DurationLike
from lowwater.windows._base import positive_duration

Outputs: TypeAlias = Literal["panes", "all"]
Timers: TypeAlias = Literal["batches", "clock"]
Operator: TypeAlias = Literal["mapInArrow"]

KEY_GROUPS = 8
_MOST_GROUPS = 4_096
_EMBEDDED = {
    "bundle_size": "A stage takes what each input has in a micro-batch as one bundle: use "
    "files_per_batch=, or an option of the source, such as maxFilesPerTrigger",
    "clock": "Leave it out for the time of micro-batches, or give the source an ArrivalClock",
    "commit_every": "Every micro-batch is committed: the trigger of the query says how often",
    "max_skew": "Spark decides how much of each source a micro-batch has: use files_per_batch=, or "
    "an option of the source, such as maxFilesPerTrigger",
    "on_dead_letter": 'Use outputs="all", and filter by output in foreachBatch',
    "trace": 'Leave it out; outputs="all" and lowwater.spark.progress(query) tell why',
    "on_late": 'Use outputs="all", and filter by output in foreachBatch',
    "progress": "Use lowwater.spark.progress(query), or lowwater.spark.counts(query.lastProgress)",
    "workers": "Spark's tasks are the workers: key_groups= says how many have work",
}
"""Options of the embedded runner, with the closest equivalent on Spark."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """How a pipeline runs on Spark.

    Args:
        key_groups: The number of groups that keys are hashed into, which is the most tasks that
            can share the work. It is fixed for the lifetime of a checkpoint.
        state: The state backend. ``"inline"`` is Spark's own state store. ``"rocksdb"`` is a store
            for each level and key group at ``state_location``. With ``"auto"`` each key group of a
            level is inline until its state takes 4 MiB, and then in such a store. Or a
            ``StateBackend``. By default ``"auto"`` if ``state_location`` is given, and ``"inline"``
            otherwise. A checkpoint belongs to one backend, but ``"auto"`` takes over what was
            inline.
        state_location: The location for ``"rocksdb"`` and ``"auto"``, and for what
            ``operator="mapInArrow"`` keeps: a folder or URI that all tasks can reach.
            By default a folder below ``spark.sql.streaming.checkpointLocation``, if that is set.
        operator: ``None``: levels run on Spark's stateful operators for Python. ``"mapInArrow"``:
            they run on a stateless one, and keep their state in files at ``state_location``, named
            by the micro-batch. That costs less per micro-batch, needs no state store, and any
            number of levels passes Spark's checks. But Spark then runs no micro-batch without
            records: ``drain`` and ``timers="clock"`` are refused. A checkpoint belongs to one
            operator.
        outputs: ``"panes"``, or ``"all"`` to include late records and dead letters as rows.
        memory_limit: The memory that windows, joins and tables may use in all key groups together,
            such as ``"4GB"``; at least 16 MiB. What is beyond it is left in the store, and loaded
            when it is needed. Stages and key groups share it equally; it is kept between
            micro-batches, not within one. Needs a store (``"rocksdb"`` or ``"auto"``), and has no
            effect on state that is inline. It may change from start to start. ``None``: about 8 MiB
            for each stage and key group in a store, and no limit otherwise.
        timers: Whether processing-time triggers, and timers of the clock that a process sets, fire
            in micro-batches that run anyway (``"batches"``), or wake Spark by themselves
            (``"clock"``); such a query never ends. By default the clock wakes Spark where a trigger
            waits for it, unless ``drain`` is said. What a process will wait for is not known before
            it runs, so say ``"clock"`` if its timers must not wait for the next records.
        drain: Whether the input ends at the first micro-batch without records. Only for the
            trigger ``availableNow``, which has such a batch at the end of its source.
        max_ahead: How far ahead of the clock (the micro-batch's time, unless records carry one)
            an event time may be; by default the limit of the source.
        on_error: How invalid records are handled. By default they are dead letters, but a Python
            function that raises fails the query; ``"dead_letter"`` sets such records aside, too;
            ``"raise"`` fails the query for any.
        files_per_batch: The most files in a micro-batch, if the pipeline reads files.
        types: Types of result columns that are not known in advance, as Spark or Arrow write them:
            aggregates of your own combiners, keys and aggregates of columns that Python functions
            made, and the fields that a process emits.
        checkpoint: The ``checkpointLocation`` that the query will have. A changed pipeline is then
            refused here; otherwise its first micro-batch is, and a restart with nothing to read
            has none. Not with ``operator="mapInArrow"``, nor for state in a store.
    """

    key_groups: int = KEY_GROUPS
    state: str | StateBackend | None = None
    state_location: str | Path | None = None
    operator: Operator | None = None
    outputs: Outputs = "panes"
    memory_limit: SizeLike | None = None
    timers: Timers | None = None
    drain: bool = False
    max_ahead: DurationLike | None = None
    on_error: OnError | None = None
    files_per_batch: int | None = None
    types: Mapping[str, str | pa.DataType] | None = None
    checkpoint: str | Path | None = None

    def __post_init__(self) -> None:
        _require_positive("key_groups", self.key_groups, "Use a few for each core of the cluster")
        if self.key_groups > _MOST_GROUPS:
            raise InvalidArgument(
                f"{describe('key_groups', self.key_groups)} is more than {_MOST_GROUPS}",
                hint="Use a few for each core of the cluster",
            )
        _require_choice("outputs", self.outputs, ("panes", "all"))
        _require_choice("operator", self.operator, (None, "mapInArrow"))
        _require_choice("timers", self.timers, (None, "batches", "clock"))
        _require_choice("on_error", self.on_error, (None, "dead_letter", "raise"))
        if self.memory_limit is not None:
            MemoryBudget.of(self.memory_limit)
            in_cells = self.state is None and self.state_location is None
            if in_cells or self.state == "inline" or isinstance(self.state, InlineBackend):
                raise InvalidArgument(
                    "memory_limit= needs a store for what leaves memory",
                    where="to_spark(memory_limit=)",
                    hint='Give a state_location=, or say state="auto" or "rocksdb"',
                )
        if self.max_ahead is not None:
            positive_duration(self.max_ahead, "max_ahead")
        if self.files_per_batch is not None:
            _require_positive("files_per_batch", self.files_per_batch, "Use, say, 1")
        if self.checkpoint is not None and self.operator is not None:
            raise InvalidArgument(
                'checkpoint= reads the state store of Spark, which operator="mapInArrow" has none '
                "of",
                where="to_spark(checkpoint=)",
                hint="Leave one of them out",
            )
        if self.drain and self.timers == "clock":
            raise InvalidArgument(
                'drain=True and timers="clock" exclude each other: a query that the clock wakes '
                "has no end",
                hint="Leave one of them out",
            )


def options_of(given: Mapping[str, Any]) -> SparkOptions:
    """Build the options from keyword arguments.

    Raises:
        InvalidArgument: There is no such option, or its value is invalid.
        UnsupportedByRunner: The option applies to the embedded runner only.
    """
    known = SparkOptions.__dataclass_fields__
    for name in given:
        if name in _EMBEDDED:
            raise UnsupportedByRunner(
                f"{name}= is for the embedded runner", where="to_spark", hint=_EMBEDDED[name]
            )
        if name not in known:
            raise InvalidArgument(
                f"there is no option {name!r}", where="to_spark", hint=nearest(name, known)
            )
    return SparkOptions(**given)


def _require_positive(name: str, value: object, hint: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidArgument(f"{describe(name, value)} must be an int of at least 1", hint=hint)


def _require_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    if value not in choices:
        raise InvalidArgument(
            f"{describe(name, value)} is not known",
            hint="Use one of: " + ", ".join(repr(choice) for choice in choices),
        )
