"""Runs that survive being killed: state, outputs and positions committed together.

MillWheel's recipe (Akidau and others, VLDB 2013): one atomic, durable write holds the state that
changed, where the source and the watermark are, and what was produced but not delivered; then the
output is delivered; then it is forgotten. After a crash the last commit is taken up, and what its
outbox holds is delivered again under the same ids.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import is_dataclass, replace
from typing import Any, final

from lowwater.engine.graph.clocks import ClockLike
from lowwater.engine.graph.metrics import Metrics
from lowwater.engine.graph.sources import Position, is_replayable, option_to_wait
from lowwater.engine.local.commit_policy import CommitPolicy, CommitTimer
from lowwater.engine.local.compatibility import describe_graph, stored_stages
from lowwater.engine.local.delivery import Delivery, Writer
from lowwater.engine.local.graph_change import GraphChange, find_change
from lowwater.engine.local.left_places import LeftPlaces, Reopen, cannot_reopen
from lowwater.engine.local.memory_budget import MemoryBudget
from lowwater.engine.local.outbox import encode_delivery
from lowwater.engine.local.outcomes import Outcome
from lowwater.engine.local.pieces import Opened, Pieces, RunOutput, opened
from lowwater.engine.local.run_record import (
    FORMAT,
    OUTBOX,
    StoredHeld,
    StoredOutput,
    StoredRun,
    moved,
    outbox_key,
    read_outbox,
    read_run,
    stored_outputs,
)
from lowwater.engine.local.runner import LocalRun
from lowwater.engine.local.source_reader import SourceReader
from lowwater.engine.records.batch import Records
from lowwater.engine.records.key_hash import KEY_GROUPS
from lowwater.errors import InvalidArgument, PipelineWarning, StateError, warn
from lowwater.state.codec import Encoded
from lowwater.state.formats import FORMATS, decoding
from lowwater.state.key_layout import prefix_range, stage_range
from lowwater.state.store import Batch, StateStore
from lowwater.time import END_OF_TIME, START_OF_TIME, format_instant

_LOG = logging.getLogger("lowwater.engine")
_SLOW_COMMIT_S = 1.0


def _ignore(point: str) -> None:
    """Do nothing at a point between two steps of a commit."""


on_point: Callable[[str], None] = _ignore
"""Called with a :class:`Point` between the steps of a run: where tests crash, and what they hold
against the model of the protocol (``tests/protocol``)."""

POINTS = (
    "after taking up",
    "after the announcement",
    "after opening",
    "after telling",
    "before the write",
    "after the write",
    "before publishing",
    "between sinks",
    "before forgetting",
)
"""The points, in the order in which a run first comes to them."""


@final
class Point(str):
    """The name of a point between two steps.

    ``fact`` says more: the number of the commit that was taken up, written or told; of one that is
    about to be written also what it owes; of a delivery its id, its output and the place among the
    output's sinks.
    """

    fact: object

    def __new__(cls, name: str, fact: object) -> Point:
        made = super().__new__(cls, name)
        made.fact = fact
        return made


def _reach(name: str, fact: object = None) -> None:
    """Pass a point; nothing is made for it if nobody listens. A callable fact is called."""
    if on_point is not _ignore:
        on_point(Point(name, fact() if callable(fact) else fact))


@final
class DurableRun:
    """One run of a pipeline over a state directory; a later one resumes where it stopped.

    An epoch is a commit. Dead letters go to the first output. After each commit ``on_commit``,
    unless it is ``None``, is called with the epoch, what it took in seconds, and how many bytes
    were written.

    Args:
        run: The run, made with ``durable=True``.
        path: The state directory.
        outputs: Where panes leave it.
        every: When to commit.
        clock: The run's.
        bundle_size: The run's; it must stay what it was.
        memory: How the memory of the run is shared out.
        remove: The names of parts of the pipeline that may be gone since the last run.
        drop_undelivered: Whether deliveries to outputs that are gone may be dropped, and rows that
            a sink held and no longer has.
        reopen: Opens a place that no sink of the run has.
    """

    def __init__(
        self,
        run: LocalRun,
        path: str,
        outputs: Sequence[RunOutput],
        every: CommitPolicy,
        clock: ClockLike,
        bundle_size: int,
        memory: MemoryBudget,
        *,
        remove: Collection[str] = (),
        drop_undelivered: bool = False,
        reopen: Reopen = cannot_reopen,
    ) -> None:
        for read in run.graph.reads:
            if not is_replayable(read.source):
                raise InvalidArgument(
                    f"{type(read.source).__name__} cannot be read again after a restart",
                    where="run(state=)",
                    hint="Write the elements to files or to a lowwater.io.Log, and read those: "
                    "read_parquet, read_csv, read_jsonl",
                )
        self._bundle_size = bundle_size
        self._run = run
        self._path = path
        self._outputs = outputs
        self._remove = remove
        self._drop_undelivered = drop_undelivered
        self._reopen = reopen
        self._every = every
        leaving = [(output.stage, output.tag) for output in outputs]
        views = [output.view for output in outputs]
        self._description = describe_graph(
            run.graph, leaving, clock, bundle_size, views, run.parted
        )
        # What every commit writes, and what never changes.
        self._described = Encoded(self._description), Encoded(stored_stages(run.graph))
        self._memory = memory
        self._epoch = 0
        self._state_id = ""
        self._stored = StoredRun(None)
        self._change: GraphChange | None = None
        self._known_outputs: Sequence[StoredOutput] = ()
        self._outputs_given = 0
        self._delivered: frozenset[str] = frozenset()  # the places of sinks at the last commit
        self._held: Sequence[StoredHeld] = ()  # what they held then
        self._lost_outputs: frozenset[int] = frozenset()
        self._sinks: Opened | None = None
        # A copy of the directory gets other ids from here on: sinks tell the two apart by them.
        self._opening = uuid.uuid4().hex
        self.on_commit: Callable[[int, float, int], None] | None = None
        self._openings: list[str] = []  # those that sinks may name: all since the last commit

    @property
    def outputs(self) -> Sequence[RunOutput]:
        """Where panes leave it, with the numbers of their deliveries."""
        return self._outputs

    @property
    def metrics(self) -> Metrics:
        """What all runs over this state have done, in numbers."""
        return self._run.metrics

    def deliveries(self, outcomes: Iterator[Outcome]) -> Generator[Delivery, None, None]:
        """Run to the end; yield what is committed and has been delivered to the sinks.

        Args:
            outcomes: The run's own outcomes, perhaps after callbacks have seen them.
        """
        with self._memory.open(self._path) as store, closing(self._run):
            stored = self._take_up(store)
            _reach("after taking up", self._epoch)
            again = list(read_outbox(store))
            writer = Writer(
                id=self._state_id,
                output=0,
                resumes=True,
                opening=self._opening,
                openings=tuple(self._openings),
                epoch=self._epoch,
                drops=self._drop_undelivered,
            )
            left = LeftPlaces(
                self._held, again, writer, self._reopen, self._lost_outputs, self._path
            )

            def announce(sinks: Opened) -> None:
                places = [name for output in self._outputs for name in output.places]
                left.look({held.id for held in sinks.held()}, places)
                self._announce(store, stored)

            with opened(
                self._outputs,
                writer,
                delivered=self._delivered,
                held=self._held,
                again=again,
                announce=announce,
            ) as sinks:
                self._sinks = sinks
                _reach("after opening")
                self._openings = [self._opening]
                self._tell_sources()  # the last run may have been killed before it did
                if again:
                    _LOG.info(
                        "%d deliveries of epoch %d come again: the last run may not have finished "
                        "them",
                        len(again), self._epoch,
                    )  # fmt: skip
                left.finish()
                yield from self._deliver(again, finished=left.outputs)
                if self._change is not None or left.is_any:
                    # Before anything is read: until here the state is that of the former graph.
                    yield from self._commit(store, [])
                yield from self._go_on(store, outcomes, sinks)
                sinks.complete = self._run.ended

    def _take_up(self, store: StateStore) -> Mapping[str, Any] | None:
        """Resume from the record of an earlier run, and return it."""
        record = read_run(store, self._path)
        self._stored = StoredRun(record)
        if record is not None and record["moved"]:
            raise moved(record, self._path)
        change = find_change(
            self._run.graph,
            self._description,
            self._outputs,
            record,
            remove=self._remove,
            path=self._path,
        )
        self._change = change if change.is_any else None
        self._lost_outputs = frozenset(output.number for output in change.lost_outputs)
        self._known_outputs, self._outputs_given = change.outputs, change.outputs_given
        self._outputs = [
            replace(output, number=known.number)
            for output, known in zip(self._outputs, change.outputs, strict=True)
        ]
        if record is None:
            self._state_id = uuid.uuid4().hex
            self._run.resume(store, None)
            _LOG.info("%s is a new state, %s", self._path, self._state_id)
            return None
        if self._change is not None:
            self._refuse_undelivered(store, self._change)
        self._state_id = record["state_id"]
        self._epoch = record["epoch"]
        self._delivered = frozenset(
            name for output in stored_outputs(record) for name in output.places
        )
        self._openings = record["openings"]
        self._held = record["held"]
        began = time.perf_counter()
        with decoding("the record of the run"):
            self._run.resume(store, record["run"], change.inputs)
        _LOG.info(
            "%s resumes after epoch %d: %d rows of state restored in %.3f s",
            self._path, self._epoch, self._run.state_rows, time.perf_counter() - began,
        )  # fmt: skip
        for reader in self._run.readers:
            if reader.ended:
                self._refuse_more(reader)
        if self._change is not None:
            self._take_up_change(self._change)
        return record

    def _refuse_undelivered(self, store: StateStore, change: GraphChange) -> None:
        """Raise if outputs that are gone may lack deliveries, unless these may be dropped."""
        names = {output.number: output.name for output in change.lost_outputs}
        rows = dict.fromkeys(names.values(), 0)
        for delivery in read_outbox(store) if names else ():
            if delivery.output in names:
                rows[names[delivery.output]] += delivery.rows
        for name, count in rows.items():
            if count and self._drop_undelivered:
                _LOG.warning(
                    "%s: the output of %r is gone; what its sinks had not taken of its last %d "
                    "rows is dropped",
                    self._path, name, count,
                )  # fmt: skip
            elif count:
                raise StateError(
                    f"the output of {name!r} is gone, and its last {count:,} rows may not have "
                    "been delivered",
                    where=self._path,
                    hint="Run the pipeline as it was until it ends or is stopped, which delivers "
                    "them; or drop them: drop_undelivered=True",
                )

    def _take_up_change(self, change: GraphChange) -> None:
        """Check that what is new can get anything, and say what it means.

        Raises:
            StateError: It would get nothing, because the input has ended.
        """
        new = (*change.gained, *change.gaining)
        if self._run.ended and new:
            raise StateError(
                f"the run over this state is complete: {', '.join(map(repr, new))} would get "
                "nothing",
                where=self._path,
                hint="Run what is new with a state directory of its own",
            )
        for name in change.gaining:
            at = self._run.watermark_of(name)
            if at == END_OF_TIME:
                raise StateError(
                    f"the stage {name!r} has seen the end of its input, and cannot get another one",
                    where=self._path,
                    hint="Run it over the new input with a state directory of its own",
                )
            if at > START_OF_TIME:
                warn(
                    PipelineWarning,
                    f"a new input begins at its start, and the watermark of the stage stays at "
                    f"{format_instant(at)}: earlier records are late",
                    where=name,
                    hint="Give the new input a stage of its own if all of it should count",
                )
        _LOG.info("%s: the pipeline %s", self._path, change.to_text())

    def _announce(self, store: StateStore, record: Mapping[str, Any] | None) -> None:
        """Store the id of this opening before a sink may name it, and nothing else.

        Killed before all sinks name it, some name an earlier one; so those are kept until the
        next commit. Until then the state belongs to the pipeline that committed last.
        """
        self._openings = [*self._openings, self._opening]
        batch = Batch()
        before = self._record(None) if record is None else record
        self._stored.write(batch, {**before, "openings": self._openings})
        store.commit(batch)
        _reach("after the announcement")

    def _refuse_more(self, reader: SourceReader) -> None:
        """Raise if a source that was read to its end has more to read by now."""
        for records, _ in self._beyond(reader):
            if records.length or records.unreadable:
                waits = option_to_wait(reader.read.source)
                later = '; read what comes later in further runs, with until="available"'
                later += f", or in one that goes on, with {waits}" if waits else ""
                raise StateError(
                    "the run over this state is complete, but there is more to read now"
                    + ("" if records.origin is None else f": {records.origin!r}"),
                    where=self._path,
                    hint="Run over the new input with a state directory of its own, or reset this "
                    f"one and run over everything{later}",
                )

    def _beyond(self, reader: SourceReader) -> Iterator[tuple[Records, Position]]:
        """Return what a source has beyond its position by now; what was read must not differ."""
        source: Any = reader.read.source
        follow = getattr(source, "follow", None)
        if follow and is_dataclass(source):
            ends: Any = source
            source = replace(ends, follow=False if follow is True else None)
        beyond: Iterator[tuple[Records, Position]]
        beyond = source.batches_from(reader.position, self._bundle_size, reader.keys)
        return beyond

    def _record(self, run: Mapping[str, Any] | None) -> dict[str, Any]:
        description, stages = self._described
        return {
            "layout": FORMATS[FORMAT],
            "state_id": self._state_id,
            "epoch": self._epoch,
            # From the first commit on, sinks must have their output: they open before it.
            "outputs": [output.remember() for output in self._known_outputs] if self._epoch else [],
            "outputs_given": self._outputs_given if self._epoch else 0,
            "openings": self._openings,
            "description": description,
            "stages": stages,
            "key_groups": KEY_GROUPS,
            "moved": [],
            "held": [] if self._sinks is None else self._sinks.held(),
            "run": run,
        }

    def _go_on(
        self, store: StateStore, outcomes: Iterator[Outcome], sinks: Opened
    ) -> Iterator[Delivery]:
        pieces = Pieces(self._outputs)
        pieces.begin(self._epoch + 1)
        timer = CommitTimer(self._every, self._run)
        ready: list[Delivery] = []
        pending = False
        for outcome in outcomes:
            sinks.check_process()
            if not outcome.boundary:
                pending = True
                ready.extend(pieces.add(outcome))
                continue
            sinks.publish_due()
            if self._run.is_over or pieces.is_cut or timer.is_due(pending=pending):
                yield from self._commit(store, [*ready, *pieces.rest()])
                ready, pending = [], False
                pieces.begin(self._epoch + 1)
                timer.restart()
        for reader in self._run.readers if self._run.ended else ():
            next(self._beyond(reader), None)  # raises if a file grew while it was read
        yield from self._commit(store, [*ready, *pieces.rest()])
        yield from self._commit(store, [])  # forgets what was delivered

    def _commit(self, store: StateStore, deliveries: Sequence[Delivery]) -> Iterator[Delivery]:
        began = time.perf_counter()
        self._epoch += 1
        batch = Batch()
        batch.delete_range(*prefix_range(OUTBOX))  # delivered by now
        if self._change is not None:
            for name in self._change.lost:
                batch.delete_range(*stage_range(name))
        batch.put(
            [outbox_key(delivery) for delivery in deliveries],
            [encode_delivery(delivery) for delivery in deliveries],
        )
        self._stored.write(batch, self._record(self._run.save(batch)))
        _reach("before the write", lambda: (self._epoch, self._owed(deliveries)))
        store.commit(batch)
        _reach("after the write", self._epoch)
        self._change = None
        self._tell_sources()
        seconds = time.perf_counter() - began
        slow = seconds >= _SLOW_COMMIT_S
        _LOG.log(
            logging.WARNING if slow else logging.DEBUG,
            "epoch %d was committed%s in %.3f s, with %d deliveries",
            self._epoch, " slowly," if slow else "", seconds, len(deliveries),
        )  # fmt: skip
        if self.on_commit is not None:
            self.on_commit(self._epoch, seconds, batch.size_bytes)
        yield from self._deliver(deliveries)
        _reach("before forgetting", self._epoch)

    def _tell_sources(self) -> None:
        for reader in self._run.readers:
            reader.committed()
        _reach("after telling", self._epoch)

    def _deliver(
        self, deliveries: Sequence[Delivery], finished: Collection[int] = ()
    ) -> Iterator[Delivery]:
        """Deliver to the sinks.

        Args:
            deliveries: What to deliver.
            finished: The outputs of which a place that is left has got these deliveries: a sink
                that takes over from it gets what follows.
        """
        sinks = {output.number: [*enumerate(output.sinks)] for output in self._outputs}
        if self._sinks is not None:
            for number in sinks.keys() & {*finished}:
                left = [(nth, one) for nth, one in sinks[number] if not self._sinks.is_new(one)]
                sinks[number] = left
        for delivery in deliveries:
            for nth, sink in sinks.get(delivery.output, ()):
                place = delivery.id, delivery.output, nth
                _reach("before publishing", place)
                sink.deliver(delivery)
                _reach("between sinks", place)
            yield delivery

    def _owed(self, deliveries: Sequence[Delivery]) -> tuple[tuple[str, int, int], ...]:
        """Return what a commit owes to each place, for those who listen to points."""
        sinks = {output.number: len(output.sinks) for output in self._outputs}
        return tuple(
            (delivery.id, delivery.output, nth)
            for delivery in deliveries
            for nth in range(sinks.get(delivery.output, 0))
        )
