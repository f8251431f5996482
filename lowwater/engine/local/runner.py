"""The local runner: reads sources and drives their bundles through the stages, in one process.

The file is long because the order of all that happens in a turn (clock, bundles, watermark, end) is
the meaning of a run, and is read in one place.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeAlias, final

from lowwater.engine.graph.clocks import ClockLike
from lowwater.engine.graph.graph import Flow, Graph, Read, Stage, admission_of, is_signed
from lowwater.engine.graph.metrics import Metrics
from lowwater.engine.graph.sources import Position
from lowwater.engine.local.health.conservation import InputCounts, Ledger
from lowwater.engine.local.health.count_log import CountLog
from lowwater.engine.local.health.order_verdict import OrderVerdicts
from lowwater.engine.local.health.source_verdict import RunVerdict
from lowwater.engine.local.health.unit_check import UnitCheck
from lowwater.engine.local.input_watermarks import InputWatermarks
from lowwater.engine.local.key_order import in_order, minds_order
from lowwater.engine.local.outcomes import Outcome, refusal_of
from lowwater.engine.local.source_reader import Input, SourceCut, SourceReader
from lowwater.engine.local.stage_input import StageAdmission, own_dead_letters
from lowwater.engine.local.stage_run import StageRun
from lowwater.engine.records.admission import OnError
from lowwater.engine.records.batch import Records
from lowwater.engine.records.panes import ErrorRecord
from lowwater.engine.records.problems import Tally
from lowwater.engine.records.stage_bundle import StageBundle
from lowwater.engine.records.stateless import set_aside
from lowwater.engine.records.stepping import Apply, applied
from lowwater.errors import InternalError
from lowwater.state.store import Batch, StateStore
from lowwater.time import END_OF_TIME, START_OF_TIME, Instant, Int64Array
from lowwater.watermark import StageWatermark, which_may_read

if TYPE_CHECKING:
    from lowwater.engine.local.arrival_log import ArrivalLog
    from lowwater.engine.local.recorder import Recorder
    from lowwater.engine.local.worker_pool import Workers

Observer: TypeAlias = Callable[[Metrics], None]
_NOTHING: Input = ("", -1)


@final
class LocalRun:
    """One run of a pipeline.

    Each turn takes one bundle of one source through all stages, in topological order. A stage
    advances its clock, processes its queued bundles, and advances its watermark to the lowest
    output watermark upstream (S-O8, S-H3). Its output reaches the downstream stages as one bundle
    in the same turn, so nothing is queued between turns and a slow sink slows down the sources.
    An empty batch is a heartbeat: clocks and watermarks advance all the same.

    The source with the lowest watermark is read next. ``readers`` reads the sources and has the
    position of each; ``ended`` says whether the input has ended and all output was emitted.

    Args:
        graph: The graph to run.
        ends: The stages whose panes leave the pipeline.
        bundle_size: The largest number of elements in a bundle.
        clock: The clock for processing time.
        on_error: How invalid records are handled; ``None``: they are dead letters, and it is
            judged whether too many are (:class:`RunVerdict`).
        observer: Called with the metrics after every bundle and at the end.
        durable: Whether the run can be stopped and resumed. Operators then track their changes,
            and sources must be replayable.
        max_skew_us: How far ahead of the slowest source another one may be read, microseconds of
            event time; ``None``: any distance.
        memory: Approximate memory limit for the state of a durable run, in bytes; the rest stays
            in the store. ``None``: no limit.
        recorder: Records a trace of the run; ``None``: no trace.
        arrivals: Writes what arrives to a folder; ``None``: nothing is written.
        dead_letters: Where the user finds dead letters, as a sentence for hints.
        workers: Have the parts of stages that can be in parts, and call combiners; ``None``: all is
            done here.
        only_now: Whether to read what is there when the run begins, and then to leave windows open
            for the next run.
    """

    def __init__(
        self,
        graph: Graph,
        ends: Sequence[Stage],
        *,
        bundle_size: int,
        clock: ClockLike,
        on_error: OnError | None,
        observer: Observer | None = None,
        durable: bool = False,
        memory: int | None = None,
        max_skew_us: int | None = None,
        recorder: Recorder | None = None,
        arrivals: ArrivalLog | None = None,
        dead_letters: str = "Read them with on_dead_letter=",
        workers: Workers | None = None,
        only_now: bool = False,
    ) -> None:
        self.graph = graph
        self._max_skew_us = max_skew_us
        self._workers = workers
        self.metrics = Metrics(reporter=self.watermarks)
        self._bundle_size = bundle_size
        sets_aside = on_error == "dead_letter"
        self._apply: Apply = set_aside if sets_aside else applied
        if workers is not None:
            from lowwater.engine.local.worker_steps import apply_in

            self._apply = apply_in(workers, graph, sets_aside=sets_aside)
        is_judged = on_error is None
        on_error = "dead_letter" if on_error is None else on_error
        self._raise = on_error == "raise"
        self._observer = observer
        self._durable = durable
        self._is_limited = durable and memory is not None
        self.ended = False
        self._stopping = False
        self._iterated = False
        self._ends = [graph.name_of(end) for end in ends]
        self._stages = [
            StageRun(
                stage,
                number,
                is_end=stage in ends,
                is_read=any(True for _ in graph.into(stage)),
                # What workers have is not counted against a limit of memory.
                workers=workers if memory is None or not stage.spills else None,
            )
            for number, stage in enumerate(graph.stages)
        ]
        self._waiting: list[list[StageBundle]] = [[] for _ in self._stages]
        self.metrics.stages = {graph.name_of(run.stage): run.metrics for run in self._stages}
        self.readers = [
            SourceReader(
                read,
                [self._entry(at, nth, on_error) for at, nth in graph.into(read)],
                _dictionaries(graph, read),
                bundle_size=bundle_size,
                clock=clock,
                on_error=on_error,
                durable=durable,
                stages=[graph.name_of(stage) for stage in graph.stages],
                only_now=only_now,
                name=graph.name_of(read) if len(graph.reads) > 1 else None,
            )
            for read in graph.reads
        ]
        # Of sources with the same watermark, the first here is read next: after a change of the
        # graph, those that were there before come as they did.
        self._in_turn = list(self.readers)
        self._unit_checks = {
            reader: UnitCheck(reader.read.time, graph.name_of(reader.read), reader.read.times.unit)
            for reader in self.readers
        }
        # The inputs of downstream stages, by the number of the stage that they read.
        self._between = [
            [self._entry(at, nth, on_error) for at, nth in graph.into(stage)]
            for stage in graph.stages
        ]
        self._verdict = RunVerdict(
            self.readers,
            self._between,
            sources=[graph.name_of(read) for read in graph.reads],
            stages=[graph.name_of(stage) for stage in graph.stages],
            is_judged=is_judged,
            place=dead_letters,
        )
        self._orders = OrderVerdicts(
            graph.stages,
            [graph.name_of(stage) for stage in graph.stages],
            [run.metrics for run in self._stages],
            self._tallies(),
        )
        self._inputs = InputWatermarks(graph, self.readers, self._stages)
        self._ledger = Ledger(
            graph,
            self._stages,
            self.readers,
            {(entry.stage, entry.nth): entry.counts for entry in self._entries()},
            frozenset(run.number for run in self._stages if run.stage in ends),
        )
        if durable:
            from lowwater.engine.local.run_record import place_of

            share = None if memory is None else memory // max(1, len(self._stages))
            for run in self._stages:
                run.keep_in_store(place_of(graph, run.stage), share)
        self._clock = START_OF_TIME
        self._count_log = CountLog(self.metrics)
        self._recorder = recorder
        self._arrivals = arrivals
        if recorder is not None:
            for run in self._stages:
                run.record(recorder.stage(run.number))

    @property
    def ending(self) -> bool:
        """Whether the input has ended, even if output is still to be emitted."""
        return all(reader.ended for reader in self.readers)

    def sum_up(self) -> None:
        """Count what was emitted since the last bundle ended: a run may be closed within one."""
        self.metrics.sum_up(self._ends)

    def stop(self) -> None:
        """Stop at the next boundary, before more is read; may be called from another thread.

        Windows stay open: a durable run can be resumed.
        """
        self._stopping = True

    @property
    def is_stopped(self) -> bool:
        """Whether the run was asked to stop before its input ended."""
        return self._stopping and not self.ended

    @property
    def is_over(self) -> bool:
        """Whether state exceeds its memory limit; :meth:`save` then spills rows to the store."""
        return self._is_limited and any(run.operator.is_over for run in self._stages)

    @property
    def taken(self) -> int:
        """How many elements this run has processed; ``metrics.events`` counts those read."""
        return sum(reader.taken for reader in self.readers)

    def close(self) -> None:
        """End the workers of a durable run, which are needed until its last commit."""
        if self._workers is not None:
            self._workers.close()

    @property
    def parted(self) -> list[str]:
        """The names of the stages whose keys are in parts, for workers."""
        return [self.graph.name_of(run.stage) for run in self._stages if run.is_parted]

    def report_replaced(self) -> None:
        """Report in outcomes which windows with panes merged away; not for a durable run."""
        for run in self._stages:
            run.report_replaced()

    def save(self, batch: Batch) -> dict[str, Any]:
        """Add the operators' changes to a batch; return the run's position, as plain values.

        Call it at a boundary only (:class:`Outcome`): elsewhere a bundle is half processed.
        """
        self._ledger.check(ended=self.ended)
        for run in self._stages:
            run.save(batch)
        self._ledger.note_rows()
        return {
            "sources": {
                self.graph.name_of(reader.read): reader.remember() for reader in self._in_turn
            },
            "between": {
                self.graph.name_of(stage): [
                    [*self._input_of(entry), entry.remember()] for entry in entries
                ]
                for stage, entries in zip(self.graph.stages, self._between, strict=True)
            },
            "metrics": self.metrics.remember(),
            "ended": self.ended,
        }

    def resume(
        self,
        store: StateStore,
        known: Mapping[str, Any] | None,
        inputs: Mapping[Input, Input] | None = None,
    ) -> None:
        """Resume from an earlier run, if there was one; call it before a durable run starts.

        Sources, stages and inputs of stages that the earlier run did not have begin afresh.

        Args:
            store: The store to read from, now and until the run ends.
            known: What the earlier run's :meth:`save` returned; ``None`` for a new run.
            inputs: The inputs of stages that are still there, by what they were; ``None``: all.
        """
        if inputs is None:
            graph = self.graph
            every = [
                (graph.name_of(stage), nth)
                for stage in graph.stages
                for nth in range(len(stage.inputs))
            ]
            inputs = dict(zip(every, every, strict=True))
        for run in self._stages:
            run.resume(store, fresh=known is None)
        if known is None:
            return
        sources = known["sources"]
        for reader in self.readers:
            name = self.graph.name_of(reader.read)
            if name in sources:
                reader.resume(sources[name], inputs)
        places = {name: at for at, name in enumerate(sources)}
        self._in_turn.sort(key=lambda one: places.get(self.graph.name_of(one.read), len(places)))
        entries = {self._input_of(entry): entry for some in self._between for entry in some}
        for stored in known["between"].values():
            for stage, nth, learned in stored:
                entry = entries.get(inputs.get((stage, nth), _NOTHING))
                if entry is not None:
                    entry.resume(learned)
        self._verdict.resume()
        self._orders.resume()
        self.metrics.resume(known["metrics"])
        self._ledger.resume(known["metrics"]["stages"])
        self.ended = known["ended"]
        self._count_log.resume()

    def _input_of(self, entry: StageAdmission) -> Input:
        return self.graph.name_of(self.graph.stages[entry.stage]), entry.nth

    def watermark_of(self, stage: str) -> int:
        """Return the input watermark of a stage, by its name."""
        (run,) = (run for run in self._stages if self.graph.name_of(run.stage) == stage)
        return run.operator.watermark

    @property
    def state_rows(self) -> int:
        """How many rows of state the stages have."""
        return sum(run.operator.state_rows for run in self._stages)

    def due_times(self) -> dict[str, Int64Array]:
        """Return when what each stage has in memory is due next, by the name of the stage."""
        return {self.graph.name_of(run.stage): run.operator.due_times() for run in self._stages}

    def watermarks(self) -> list[StageWatermark]:
        """Report the watermarks of sources and stages, and what holds each (S-H3)."""
        return self._inputs.report(self._clock, with_due=True)

    def __iter__(self) -> Generator[Outcome, None, None]:
        """Run, yielding outcomes as they occur. Closing the iterator closes the sources."""
        if self._iterated:
            raise InternalError("a run was iterated a second time; its sources are closed")
        self._iterated = True
        with ExitStack() as closing:
            if self._workers is not None:
                self._workers.start()
                if not self._durable:  # else the last commit is still to come
                    closing.callback(self._workers.close)
            if self._arrivals is not None:
                closing.callback(self._arrivals.close)
            for reader in self.readers:
                closing.callback(reader.close)
            yield from self._leaving(self._outcomes())

    def _leaving(self, outcomes: Iterator[Outcome]) -> Iterator[Outcome]:
        """Count what leaves the run; check at each boundary if that is asked for (S-B2)."""
        ledger = self._ledger
        for outcome in outcomes:
            ledger.leave(outcome)
            if outcome.boundary and ledger.is_strict:
                ledger.check()
            yield outcome

    def _entries(self) -> Iterator[StageAdmission]:
        """Yield what admits records to each input of a stage."""
        for reader in self.readers:
            yield from reader.entries
        for entries in self._between:
            yield from entries

    def _outcomes(self) -> Iterator[Outcome]:
        began = time.perf_counter()
        if self.ended:
            return
        if self._advancing() is not None:
            yield from self._turn(began)  # the earlier run stopped in the middle of a turn
        while (reader := self._next_reader()) is not None:
            if self._stopping:
                return
            batch = reader.next()
            if batch is None:
                if reader.is_left_open:  # silence is measured up to now
                    self._move_clock(reader.now())
                reader.finish(self._clock)
                self._verdict.judge_source(reader)
                # The end of the last source is one turn with the end of input, below.
                if all(reader.is_read for reader in self.readers):
                    break
                yield from self._turn(began)
                yield Outcome(boundary=True)
                continue
            records, position = batch
            if reader.bundles_done and records.is_rest:
                yield Outcome(boundary=True)  # the batch that is resumed is still to come
                continue
            yield from self._process(reader, records, position, began)
            if self._stopping:
                return
            yield Outcome(boundary=True)
        yield from self._turn(began)
        if not self.ending:  # what was there is read, and more may come: windows stay open
            yield Outcome(boundary=True)
            self._report_progress()
            return
        for entries in self._between:
            for entry in entries:
                entry.end()
        self._verdict.judge_rest()
        self.ended = True
        self._ledger.check(ended=True)
        for run in self._stages:
            run.forget(END_OF_TIME)
        self._report_progress()

    def _report_progress(self) -> None:
        if self._observer is not None:
            self._observer(self.metrics)

    def give(self, source: int, records: Records) -> Iterator[Outcome]:
        """Process a batch of a source that the caller reads; an empty one is a heartbeat.

        For a caller that decides which source comes next, instead of iterating over the run.

        Args:
            source: The number of the source in the graph.
            records: The batch.
        """
        began = time.perf_counter()
        yield from self._leaving(self._process(self.readers[source], records, None, began))

    def end_of(self, *sources: int) -> Iterator[Outcome]:
        """End sources that the caller reads, all in one turn.

        Args:
            *sources: Their numbers in the graph.
        """
        for source in sources:
            self.readers[source].ended = True
        self._move_clock(self.readers[0].now())
        yield from self._leaving(self._turn(time.perf_counter()))
        self.ended = self.ending
        self._ledger.check(ended=self.ended)

    def _process(
        self, reader: SourceReader, records: Records, position: Position | None, began: float
    ) -> Iterator[Outcome]:
        """Process a batch; if the run is stopped amid it, its position is the one before it."""
        taken = reader.taken + records.length + len(records.unreadable)
        if records.partitions:
            reader.mark.announce(records.partitions)
        if self._recorder is not None:
            records = self._recorder.read(reader.read, records)
        if self._arrivals is not None:
            is_numbered = self._recorder is not None
            records = self._arrivals.read(reader.read, records, is_numbered=is_numbered)
        yield from self._read(reader, records, began)
        if self._stopping:
            return
        reader.taken = taken
        reader.position = position
        reader.bundles_done = 0
        self._orders.judge()

    def _tallies(self) -> dict[int, list[Tally]]:
        """Return the counts of what is admitted to each stage, by its number."""
        tallies: dict[int, list[Tally]] = {number: [] for number in range(len(self._stages))}
        for reader in self.readers:
            for stage, tally in reader.tallies()[1]:
                tallies[stage].append(tally)
        for entries in self._between:
            for entry in entries:
                tallies[entry.stage].append(entry.admission.tally)
        return tallies

    def _entry(self, stage: int, nth: int, on_error: OnError) -> StageAdmission:
        at = self.graph.stages[stage]
        flow = at.inputs[nth]
        admission = admission_of(at, nth, on_error, self._max_ahead_of(flow))
        return StageAdmission(
            stage,
            flow.steps,
            admission,
            flow.output,
            is_signed(flow),
            minds_order(flow, at),
            nth,
            self._apply,
            InputCounts.of(flow.steps),
        )

    def _max_ahead_of(self, flow: Flow) -> int | None:
        """Return how far ahead the one stage that reads a source allows; else the reader checks."""
        origin = flow.origin
        if isinstance(origin, Read) and len(list(self.graph.into(origin))) == 1:
            return origin.max_ahead_us
        return None

    def _next_reader(self) -> SourceReader | None:
        """Return the source to read next: the one furthest behind among those due for a poll."""
        if len(self._in_turn) == 1:
            (only,) = self._in_turn
            return None if only.is_read else only
        left = [reader for reader in self._in_turn if not reader.is_read]
        if len(left) < 2:
            return left[0] if left else None
        if (begun := next((reader for reader in left if reader.bundles_done), None)) is not None:
            # The earlier run stopped inside this source's batch. Finish it first: the stored
            # bundle count is relative to that batch.
            return begun
        at = [None if reader.is_idle() else reader.watermark() for reader in left]
        may = which_may_read(at, self._max_skew_us)
        now = time.monotonic()
        ready = [place for place in may if left[place].due_at <= now]
        # None is due for a poll yet: take the one that is due first.
        if not ready:
            return left[min(may, key=lambda place: left[place].due_at)]
        return left[min(ready, key=lambda place: left[place].watermark())]

    def _read(self, reader: SourceReader, records: Records, began: float) -> Iterator[Outcome]:
        unread = records.unreadable
        # A heartbeat: time has passed, so timers may be due and an idle source may stop holding
        # others.
        if not records.length and not unread:
            self._move_clock(reader.now())
            reader.rest(records.rest_seconds, self._clock)
            yield from self._turn(began)
            if self._observer is not None:
                self._observer(self.metrics)
        resumed, was_counted = reader.bundles_done, reader.was_counted
        reader.begin(records, fresh=not resumed)
        is_judged_before = bool(resumed)  # a bundle of this batch was processed
        if not resumed and not was_counted:
            self.metrics.events = self.metrics.read + len(unread)
            self.metrics.read += records.length + len(unread)
            if unread:
                yield self._dead_letters(unread)
        if not records.columns:
            self.metrics.events = self.metrics.read
            self._verdict.judge_source(reader, quiet=is_judged_before)
            return
        done, before = 0, self.metrics.read - records.length
        for cut in reader.cuts(records):
            self._verdict.judge_source(reader, quiet=is_judged_before)
            if not isinstance(cut, SourceCut):
                self._ledger.report(len(cut))
                if not resumed:
                    yield self._dead_letters(cut)
                continue
            # Counted before it is skipped: the ledger of a resumed batch is that of the whole
            # batch.
            done += 1
            self._ledger.hand(cut.bundles, done=done <= resumed)
            # An earlier run processed this bundle; it is cut again only so that the next ones are
            # the same.
            if done <= resumed:
                continue
            self.metrics.bundles += 1
            self._move_clock(reader.now() if cut.clock is None else cut.clock)
            for log in (self._recorder, self._arrivals):
                if log is not None:
                    log.cut(reader.read, cut)
            check = self._unit_checks[reader]
            for bundle in cut.bundles:
                if check.is_open:
                    check.look_at(bundle)
                self._waiting[bundle.stage].append(bundle)
            reader.observe(cut, self._clock)
            reader.taken += len(cut.times)
            # Before the turn, not after: a turn may contain boundaries, and a run that resumes
            # from one of them must not process this bundle again.
            if self._durable:
                reader.bundles_done = done
            begun = min(cut.start + len(cut.times), records.length)
            self.metrics.events = max(self.metrics.events, before + begun)
            yield from self._turn(began)
            if self._observer is not None:
                self._observer(self.metrics)
            yield Outcome(boundary=True)
            if self._stopping:
                return
        self.metrics.events = self.metrics.read
        # A batch of which nothing is left has no cuts.
        self._verdict.judge_source(reader, quiet=is_judged_before)

    def _turn(self, began: float) -> Iterator[Outcome]:
        """Process queued bundles through all stages, and advance their clocks and watermarks."""
        at = self._advancing() or 0
        while True:
            # While a stage is in the middle of an advance, its upstream stages wait: new input
            # would change the state that the rest of the advance is about.
            for run in self._stages[at:]:
                operator = run.operator
                if operator.is_advancing:
                    to = operator.watermark
                else:
                    to = self._inputs.of(run)
                    if self._clock > START_OF_TIME:
                        yield from self._counted(run.tick(self._clock))
                    if waiting := self._waiting[run.number]:
                        self._waiting[run.number] = []
                        yield from self._counted(run.take(waiting))
                if self._inputs.set_right(run) or to > START_OF_TIME:
                    yield from self._counted(run.advance(to))
                if self._between[run.number]:
                    yield from self._hand_on(run)
            advancing = self._advancing()
            if advancing is None:
                break
            at = advancing
            yield Outcome(boundary=True)
        self._finish_turn(began)

    def _advancing(self) -> int | None:
        """Return the number of the last stage in the middle of an advance, if any."""
        for run in reversed(self._stages):
            if run.operator.is_advancing:
                return run.number
        return None

    def _move_clock(self, now: int | None) -> None:
        """Advance the clock; ``None`` or an earlier instant changes nothing (S-T4)."""
        if now is not None:
            self._clock = max(now, self._clock)

    def _hand_on(self, run: StageRun) -> Iterator[Outcome]:
        """Queue a stage's output for the stages that read it."""
        outputs = run.take_outputs()
        if self._recorder is not None and run.stage.work.emits_panes:
            recorder = self._recorder.stage(run.number)
            outputs = {output: recorder.handed(records) for output, records in outputs.items()}
        # In the order of inputs, not of outputs: which output a process emits to first depends on
        # which keys it sees first, and so on where they are computed.
        earlier: dict[str, list[StageAdmission]] = {}
        for entry in self._between[run.number]:
            # Which key a stage computes first differs between runners; what depends on order is
            # sorted.
            records = outputs.get(entry.output)
            if records is not None and entry.minds_order:
                records = in_order(records, run.stage)
            if records is None:
                continue
            entry.counts.read += records.length
            admitted = entry.take(records)
            if admitted is None:
                continue
            self._verdict.judge_output(run.number)
            errors: Sequence[ErrorRecord] = admitted.admitted.errors
            if errors and (others := earlier.get(entry.output)):
                own = own_dead_letters(entry, others, admitted.error_steps)
                errors = [errors[place] for place in own.tolist()]
            earlier.setdefault(entry.output, []).append(entry)
            if errors:
                self._ledger.report(len(errors))
                yield self._dead_letters(errors)
            # Keep a retraction and the pane that replaces it in one bundle: a downstream
            # stage that fires between the two would emit a result without either (S-C5).
            size = len(admitted.admitted.bundle) or 1 if entry.signed else self._bundle_size
            bundles = list(admitted.bundles(size))
            self._ledger.hand(bundles)
            self._waiting[entry.stage] += bundles

    def set_aside(self, errors: Sequence[ErrorRecord]) -> Sequence[ErrorRecord]:
        """Count dead letters that are met after the stages: of the last steps of a table."""
        return self._dead_letters(errors).errors

    def _counted(self, outcomes: Iterable[Outcome]) -> Iterator[Outcome]:
        """Count the dead letters of what a stage did: records that a process emitted."""
        for outcome in outcomes:
            yield self._dead_letters(outcome.errors) if outcome.errors else outcome

    def _dead_letters(self, errors: Sequence[ErrorRecord]) -> Outcome:
        if self._raise:
            raise refusal_of(errors[0])
        for error in errors:
            self.metrics.errors[error.reason] += 1
        if self._recorder is not None:
            self._recorder.failed(errors)
        return Outcome(errors=errors)

    def _finish_turn(self, began: float) -> None:
        metrics = self.metrics
        for run in self._stages:
            of, operator = run.metrics, run.operator
            of.watermark = Instant(operator.watermark)
            of.output_watermark = Instant(operator.output_watermark)
            of.open_windows = operator.open_windows
        metrics.sum_up(self._ends)
        last = self._stages[-1].operator
        metrics.watermark = Instant(last.watermark)
        metrics.clock = Instant(last.clock)
        metrics.elapsed = time.perf_counter() - began
        metrics.share = self._share()
        self._count_log.log()
        if self._recorder is not None:
            self._record(self._recorder)
        if self._arrivals is not None:
            self._arrivals.turned(self._clock, *self._inputs.of_sources())

    def _share(self) -> float | None:
        """Return how much of what there is to read was read; ``None``: not known.

        Sources count by how many records they are about to have given; one that nothing was read
        of counts as the mean of the others.
        """
        read, total, begun = 0, 0.0, 0
        for reader in self.readers:
            share = reader.share
            if share:
                read += reader.taken
                total += reader.taken / share
                begun += 1
            elif reader.taken or not reader.is_known_to_end:
                return None
        if not total:
            return None
        share = read * begun / (total * len(self.readers))
        return min(1.0, max(share, self.metrics.share or 0.0))

    def _record(self, recorder: Recorder) -> None:
        """Record the watermarks of sources and stages after a turn."""
        clock = self._clock
        for reader in self.readers:
            recorder.stood(reader, clock, idle=reader.is_idle())
        recorder.turned(clock, *self._inputs.of_sources())
        marks = self._inputs.report(clock)
        holders = {watermark.stage: watermark.held_by for watermark in marks}
        for run in self._stages:
            operator = run.operator
            recorder.stage(run.number).moved(
                operator.clock,
                operator.watermark,
                operator.output_watermark,
                holders[self.graph.name_of(run.stage)],
                self._inputs.sides(run),
            )


def _dictionaries(graph: Graph, read: Read) -> tuple[str, ...]:
    """Return the key columns of the stages that read a source."""
    keys = [key for at, nth in graph.into(read) for key in graph.stages[at].keys_of(nth)]
    return tuple(dict.fromkeys(keys))
