"""Checks run options, and yields the outcomes of a run."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, final, get_args

from lowwater.display.text import shown
from lowwater.engine.graph.clocks import ArrivalClock, Clock, ClockLike, WallClock
from lowwater.engine.graph.graph import Graph, Read, Stage
from lowwater.engine.graph.metrics import Metrics
from lowwater.engine.graph.sources import BUNDLE_SIZE, options_to_end
from lowwater.engine.graph.trace import Trace, Tracing
from lowwater.engine.local.delivery import Sink
from lowwater.engine.local.health.late_line import LateTally
from lowwater.engine.local.outcomes import LateElements, Outcome
from lowwater.engine.local.progress import Progress, observer_for
from lowwater.engine.local.runner import LocalRun
from lowwater.engine.records.admission import OnError
from lowwater.engine.records.panes import ErrorRecord, LateRecord
from lowwater.errors import InvalidArgument, PipelineWarning, describe, warn
from lowwater.explain.endless import is_endless
from lowwater.explain.findings import Findings, findings_of
from lowwater.io.terminal import say
from lowwater.kernels import check_choice
from lowwater.pipeline.served import ServedRun
from lowwater.pipeline.vocabulary import require_options
from lowwater.pipeline.written_options import written_out
from lowwater.time import DurationLike, duration

if TYPE_CHECKING:
    from lowwater.engine.local.arrival_log import Recording
    from lowwater.engine.local.recorder import Recorder
    from lowwater.io.paths import PathLike
    from lowwater.live.serving import Serving
    from lowwater.live.watch import Watch

Until: TypeAlias = Literal["end", "available"]
OnLate: TypeAlias = Callable[[LateRecord], object]
OnDeadLetter: TypeAlias = Callable[[ErrorRecord], object]


_OF_OUTPUTS = {
    name: f"{name}= belongs to a run that writes: "
    f'.write_parquet("out").run({needs}), or .write_jsonl or .write_to(...); panes that are '
    "only returned have no state to keep"
    for name, needs in (
        ("state", 'state="state"'),
        ("commit_every", "commit_every=..."),
        ("memory_limit", 'state="state", memory_limit=...'),
        ("state_dir", 'state="state"'),
        ("checkpoint", 'state="state"'),
        ("checkpoint_dir", 'state="state"'),
    )
}
_LOG = logging.getLogger("lowwater.pipeline")
_LARGEST = 2**63 - 1


class RunOptions(TypedDict, total=False):
    """The options of a run.

    Args:
        bundle_size: The maximum number of elements per bundle. Triggers are evaluated once per
            bundle.
        clock: Where processing time comes from; by default the clock of the sources, which must
            agree, or else the machine's.
        on_error: ``"dead_letter"`` turns invalid records into dead letters, and those for which a
            Python function of a step raises; ``"raise"`` stops at the first one. Without it invalid
            records become dead letters too, but a function that raises stops the run; and each
            source and stage is judged once it had 1,000 records, or has ended: more than 1 % of
            dead letters give a ``DataWarning``. If all that the sources delivered until then are
            dead letters, for one reason, a ``DataError`` stops the run. ``on_dead_letter=`` is
            like ``"dead_letter"``: nothing is judged.
        progress: A function that is called with the metrics after each bundle; ``True`` for a
            status line, ``False`` for none. By default a status line if standard error is a
            terminal.
        on_late: Called with each element dropped from one of its windows.
        on_dead_letter: Called with each invalid record.
        max_skew: How far a source may be ahead of the slowest one, in event time; a source that is
            further ahead waits. Unlimited by default.
        trace: Whether to record what happens to the elements, for ``explain``, ``why`` and
            diagrams. ``True`` keeps at least 50,000 elements of each stage, and a sample of more;
            ``lw.Tracing(limit=...)`` keeps another number.
        until: ``"end"``: the run ends when its input does, and then closes all windows.
            ``"available"``, for a run with ``state=`` that a scheduler starts again and again: it
            reads what is there when it begins, commits, and leaves windows open; the next run
            reads on. Both may be used in turn over one state.
        record: A folder to which the run writes what arrives, for
            :func:`lowwater.testing.recorded`: bundles, the clock and watermarks; or a
            :class:`lowwater.Recording`, which says how much. See ``docs/howto/incident.md``.
        workers: How many worker processes call the user's Python, 1 to 16, or ``"auto"``: one for
            each processor, if there is such Python: functions of steps for each record, hooks of
            per-record processes, combiners of windows. Output, order and state are the same for any
            number. With 1, it is called in the process of the run. Needs a system that can fork,
            and values that are plain. Without it, keys of processes are not divided: their state is
            laid out otherwise.
        serve: Whether to show the run in a browser while it goes on, and where: ``True`` for
            127.0.0.1 and port 4410, or another one if that is taken; a port there; or an address,
            as in ``"0.0.0.0:8000"``, whose link has a token. The link is written to standard
            error. The same server has ``/metrics`` for Prometheus, and ``/health``. It ends with
            the run. See ``docs/howto/watch.md``.
    """

    bundle_size: int
    clock: ClockLike | None
    on_error: OnError | None
    progress: Progress | None
    on_late: OnLate | None
    on_dead_letter: OnDeadLetter | None
    max_skew: DurationLike | None
    trace: bool | Tracing
    until: Until
    record: PathLike | Recording | None
    workers: int | Literal["auto"] | None
    serve: bool | int | str


with_run_options = written_out(
    RunOptions,
    {
        "bundle_size": BUNDLE_SIZE,
        "trace": False,
        "until": "end",
        "serve": False,
    },
)
"""Writes the options of a run out in the signature and the docstring of what takes them."""


@final
class Outcomes:
    """Yields the outcomes of a run, and passes them to the user's callbacks first.

    Args:
        stages: The stages whose output leaves the pipeline.
        options: The options of the run.
        dead_letters_in: Where the caller stores or returns dead letters, for hints; ``None`` if it
            does not: their number is then written to standard error when the run ends.
        tells_late: Whether to write on standard error, when the run ends, how many records were
            dropped as late, why, and which lateness would have admitted them.
        durable: Whether the run can be stopped and resumed.
        memory: Approximate memory limit for state, in bytes.
        sinks: The sinks of each stage.

    Raises:
        InvalidArgument: An option or ``LOWWATER_KERNELS`` is invalid, or ``lw.check`` calls
            something an error.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        options: RunOptions,
        *,
        dead_letters_in: str | None = "the output",
        tells_late: bool = True,
        durable: bool = False,
        memory: int | None = None,
        sinks: Sequence[tuple[Stage, Sequence[Sink]]] = (),
    ) -> None:
        require_options(options, RunOptions.__annotations__, _OF_OUTPUTS)
        check_choice()
        size = options.get("bundle_size", BUNDLE_SIZE)
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= _LARGEST:
            raise InvalidArgument(
                f"{describe('bundle_size', size)} must be an int of at least 1, of 63 bits at most",
                hint="Use, say, 50_000; or 1 to judge triggers after every element",
            )
        self.page = ServedRun.of(options.get("serve"), observer_for(options.get("progress")))
        self._observer = self.page.observer
        self.is_driven = False
        self._on_late = _callback("on_late", options.get("on_late"))
        self._on_dead_letter = _callback("on_dead_letter", options.get("on_dead_letter"))
        self._lost: Counter[str] | None = None  # dead letters that nobody takes, by reason
        if dead_letters_in is None and self._on_dead_letter is None:
            self._lost = Counter()
        # Of late records that nobody takes but the output, if anything does; or to be shown.
        self._late: LateTally | None = None
        self._tells_late = self._on_late is None and tells_late
        if self._tells_late or self.page.is_asked_for:
            self._late = LateTally()
        self._read_late = (
            "Take them with on_late=, or read collect().late"
            if dead_letters_in is None
            else "Read them beside the output, or take them with on_late="
        )
        self._options = options
        self.bundle_size = size
        self.has_begun = False
        self._is_over = False
        self.graph = Graph.of(stages)
        _refuse_elsewhere(self.graph)
        if durable:
            _check_names(self.graph)
        only_now = _is_only_now(options.get("until", "end"), durable=durable)
        outputs = sinks or [(stage, ()) for stage in stages]
        heed(findings_of(self.graph, outputs, goes_on=only_now))
        given = options.get("clock")
        self.clock = _clock_of(self.graph.reads) if given is None else _clock(given)
        _check_arrivals(self.clock, self.graph)
        tracing = _tracing(options.get("trace", False))
        self._recorder: Recorder | None = None
        if tracing is not None:
            from lowwater.engine.local.recorder import Recorder

            self._recorder = Recorder(self.graph, tracing)
        self._arrivals = None
        if options.get("record") is not None:
            from lowwater.engine.local.arrival_log import arrival_log

            self._arrivals = arrival_log(options["record"], self.graph)
        workers = None
        if options.get("workers") is not None:
            from lowwater.pipeline.worker_option import workers_of

            workers = workers_of(options["workers"], self.graph, memory)
        self._worker_count = 0 if workers is None else workers.count
        on_error = options.get("on_error")
        if on_error is None and self._on_dead_letter is not None:
            on_error = (
                "dead_letter"  # the user looks at them, so they are neither warned nor stopped
            )
        self.local = self._run = LocalRun(
            self.graph,
            stages,
            bundle_size=size,
            clock=self.clock,
            on_error=on_error,
            observer=self._observer,
            durable=durable,
            memory=memory,
            max_skew_us=_max_skew(options.get("max_skew")),
            recorder=self._recorder,
            arrivals=self._arrivals,
            workers=workers,
            only_now=only_now,
            dead_letters=(
                "Read them with on_dead_letter="
                if dead_letters_in is None
                else f"Read them in {dead_letters_in}"
            ),
        )

    @property
    def metrics(self) -> Metrics:
        return self._run.metrics

    def stop(self) -> None:
        """Ask the run to stop at the next boundary of bundles."""
        self._run.stop()

    def set_aside(self, errors: Sequence[ErrorRecord]) -> None:
        """Count rows of a table that its last steps reject, after the run has emitted them.

        Raises:
            DataError: ``on_error`` is ``"raise"``.
        """
        self._take(self._run.set_aside(errors))
        if self._is_over and self._lost is not None:
            _say_lost(Counter(error.reason for error in errors), self.metrics.events)

    def open_page(self) -> Serving | None:
        """Open the page of the run, if it is to be shown; see :class:`ServedRun`."""
        return self.page.open(self._run, self._late, self._recorder, self._worker_count)

    def watched(self, late: Sequence[LateElements], errors: Sequence[ErrorRecord]) -> Watch:
        """Return what watched the run, which has ended; see :meth:`ServedRun.watched`."""
        return self.page.watched(self._run, self._recorder, self._worker_count, late, errors)

    def _take(self, errors: Sequence[ErrorRecord]) -> None:
        if self._on_dead_letter is not None:
            for error in errors:
                self._on_dead_letter(error)
        elif self._lost is not None and errors:
            self._lost.update(error.reason for error in errors)

    def trace(self) -> Trace:
        """Return what was recorded so far.

        Raises:
            InvalidArgument: Nothing was to be recorded.
        """
        if self._recorder is None:
            raise InvalidArgument(
                "the run was not traced", hint="Run it with trace=True, as in collect(trace=True)"
            )
        return self._recorder.trace()

    def __iter__(self) -> Generator[Outcome, None, None]:
        if _LOG.isEnabledFor(logging.INFO):
            named = ((self.graph.name_of(read), read.source) for read in self.graph.reads)
            sources = ", ".join(f"{name} ({source!r})" for name, source in named)
            _LOG.info("the run of %s begins, with the options %r", sources, self._options)
        ending = "was closed before its end"
        failure: Exception | None = None
        page = self.page
        self.has_begun = True
        serving = self.open_page()
        try:
            if serving is not None:
                serving.begin()
            with closing(iter(self._run)) as outcomes:
                for outcome in outcomes:
                    self._take(outcome.errors)
                    if serving is not None:
                        serving.watch.see(outcome)
                    if self._on_late is not None and outcome.late is not None:
                        for late in outcome.late.to_records():
                            self._on_late(late)
                    if self._late is not None and outcome.late is not None:
                        stage = self.graph.stages[outcome.stage]
                        self._late.add(outcome.late, stage.work.lateness_option)
                    yield outcome
            if self._recorder is not None:
                self.metrics.trace = self._recorder.trace()
            if self._run.is_stopped:
                ending = "was stopped"
            elif self._run.ended:
                ending, page.ending = "ended", "ended"
            else:
                ending, page.ending = "has read what was there", "available"
            if self._lost:
                _say_lost(self._lost, self.metrics.events)
            if self._tells_late and self._late is not None:
                text = self._late.text(self._read_late)
                if text is not None:
                    say(f"lowwater: {text}", file=sys.stderr)
            self._is_over = True
        except Exception as error:
            ending, failure = f"failed ({type(error).__name__})", error
            raise
        finally:
            if self._observer is not None:
                self._observer.close()
            self._run.sum_up()
            at = self.metrics
            _LOG.info(
                "the run %s after %d records: %d panes, %d late, %d dead letters",
                ending, at.events, at.panes.total(), at.late.total(), at.errors.total(),
            )  # fmt: skip
            if not self.is_driven:  # else more can fail: what is written
                page.close(failure)


def _is_only_now(until: object, *, durable: bool) -> bool:
    if until not in get_args(Until):
        raise InvalidArgument(
            f"{describe('until', until)} is neither 'end' nor 'available'",
            where="run(until=)",
            hint='Use until="available" to read what is there now, and the rest in later runs',
        )
    if until == "available" and not durable:
        raise InvalidArgument(
            'until="available" leaves windows open for the next run, and nothing would keep them',
            where="run(until=)",
            hint='Give the pipeline an output and a state directory: .write_parquet("out").'
            'run(state="state", until="available")',
        )
    return until == "available"


def heed(findings: Findings) -> None:
    """Raise the first error among findings, and give a Python warning for each warning.

    Raises:
        InvalidArgument: One of them is an error.
    """
    for finding in findings:
        if finding.severity == "error":
            raise InvalidArgument(finding.what, where=finding.where, hint=finding.hint)
        if finding.severity == "warning":
            warn(PipelineWarning, finding.what, where=finding.where, hint=finding.hint)


def refuse_endless(graph: Graph, step: str) -> None:
    """Raise if a step that waits for the end of the input would wait for ever.

    Args:
        graph: The graph to run.
        step: What the user called, such as ``collect``.
    """
    _refuse_elsewhere(graph)
    for read in graph.reads:
        if is_endless(read):
            options = options_to_end(read.source)
            ending = f"let the source end, as with {options}" if options else "read one that ends"
            raise InvalidArgument(
                f"{step} returns at the end of the input, and this source never ends",
                where=graph.name_of(read),
                hint=f"Iterate over run() or use write_to(...).start(); or {ending}",
            )


def _refuse_elsewhere(graph: Graph) -> None:
    """Raise if a source can be read by another runner only, which its own message names."""
    for read in graph.reads:
        refuse = getattr(read.source, "refuse_embedded", None)
        if refuse is not None:
            refuse()


def _check_names(graph: Graph) -> None:
    """Raise for a name that cannot be stored."""
    for name in graph.names:
        if any("\ud800" <= sign <= "\udfff" for sign in name):
            raise InvalidArgument(
                f"the name {name!r} has half of a surrogate pair, so it cannot be stored",
                where="run(state=)",
                hint="Name the source or stage with valid text",
            )


def _say_lost(lost: Counter[str], events: int) -> None:
    """Write on standard error how many records became dead letters that nobody took."""
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in lost.most_common())
    say(
        f"lowwater: {lost.total():,} of {events:,} records became dead letters, and nothing took "
        f"them ({reasons}). Take them with on_dead_letter=, or read the errors of collect()",
        file=sys.stderr,
    )


def _callback(name: str, function: Any) -> Any:
    if function is not None and not callable(function):
        raise InvalidArgument(
            f"{describe(name, function)} is not a function", hint="Give a function of one record"
        )
    return function


def _tracing(value: object) -> Tracing | None:
    if isinstance(value, Tracing):
        return value
    if not isinstance(value, bool):
        raise InvalidArgument(
            f"{describe('trace', value)} is neither True nor False, nor a Tracing",
            hint="Write trace=True, or trace=Tracing(limit=100_000) to keep more elements",
        )
    return Tracing() if value else None


def _max_skew(value: DurationLike | None) -> int | None:
    if value is None:
        return None
    found = duration(value, name="max_skew")
    if found < 0:
        raise InvalidArgument(
            f"{describe('max_skew', value)} must not be negative", hint='Use, say, "10m"'
        )
    return found


def _clock_of(reads: Iterable[Read]) -> ClockLike:
    """Return the clock that the sources name: a run has one alone."""
    named = [read.clock for read in reads if read.clock is not None]
    for clock in named:
        if clock != named[0]:
            raise InvalidArgument(
                f"the sources have different clocks: {shown(named[0])} and {shown(clock)}",
                where="run",
                hint="Say which holds for the run: run(clock=...)",
            )
    return _clock(named[0]) if named else WallClock()


def _check_arrivals(clock: ClockLike, graph: Graph) -> None:
    """Raise if a source is known not to say when its records arrived."""
    if not isinstance(clock, ArrivalClock):
        return
    for read in graph.reads:
        schema = read.source.schema
        if schema is not None and clock.column not in schema.names:
            raise InvalidArgument(
                f"the clock of the run is {shown(clock)}, but {graph.name_of(read)} has no column "
                f"{clock.column!r}",
                where="run",
                hint="Add the column to the source, or give the run another clock: run(clock=...)",
            )


def _clock(clock: object) -> ClockLike:
    if isinstance(clock, type):
        raise InvalidArgument(
            f"clock={clock.__name__} is a class", hint=f"Make one: {clock.__name__}(...)"
        )
    if not isinstance(clock, (ArrivalClock, Clock)):
        raise InvalidArgument(
            f"{describe('clock', clock)} is not a clock",
            hint='Use WallClock(), ArrivalClock("landed"), or an object with now()',
        )
    return clock
