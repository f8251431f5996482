"""Watches a run from its own thread, and shows what it does in snapshots.

A snapshot is made between two bundles, so nothing is locked: at most twice a second while somebody
looks, every five seconds otherwise, and never more often than that it takes a fiftieth of the time.
Memory is bounded: of the past there are some hundred points and the last twenty dead letters.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, final

from lowwater.display.text import shown
from lowwater.engine.graph.graph import Graph
from lowwater.engine.graph.metrics import Metrics
from lowwater.engine.local.delivery import Delivery
from lowwater.engine.local.health.late_line import LateTally
from lowwater.engine.local.outcomes import Outcome
from lowwater.engine.local.runner import LocalRun
from lowwater.engine.records.panes import ErrorRecord
from lowwater.live.feed import Feed
from lowwater.live.history import History
from lowwater.live.snapshot import (
    CommitSnapshot,
    OutputSnapshot,
    PartSnapshot,
    RunState,
    Snapshot,
    counters_of,
    dead_letter,
    for_people,
    late_bars,
    lateness_text,
    marks_by_name,
    shown_sinks,
    source_part,
    stage_part,
    totals_of,
)

if TYPE_CHECKING:
    from lowwater.engine.graph.trace import Trace
    from lowwater.engine.local.pieces import RunOutput
    from lowwater.engine.local.recorder import Recorder

_WATCHED_S, _ALONE_S = 0.5, 5.0
_SHARE = 50
"""A snapshot that takes a millisecond is followed by 50 without."""
_DEAD_LETTERS, _COMMITS = 20, 60
_RATE_S, _MEASURED_S = 5.0, 10.0
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The limits of the histogram of commits, in seconds: those that Prometheus' clients have."""


@final
class Watch:
    """Watches one run; an observer of it.

    Args:
        graph: The graph of the run.
        local: The run.
        tally: Counts the late records of the run.
        recorder: Records its trace; ``None``: there is none.
        workers: The number of its worker processes.
    """

    def __init__(
        self,
        graph: Graph,
        local: LocalRun,
        tally: LateTally,
        recorder: Recorder | None,
        workers: int = 0,
    ) -> None:
        self.graph = graph
        self.feed = Feed()
        self._local = local
        self._tally = tally
        self._recorder = recorder
        self._workers = workers
        self._began = time.time()
        self._began_at = time.monotonic()
        self._next = self._soonest = float("-inf")
        self._asked: deque[Future[tuple[Trace, float]]] = deque()
        self._dead_letters: deque[ErrorRecord] = deque(maxlen=_DEAD_LETTERS)
        self._history = History()
        self._recent: deque[tuple[float, list[int]]] = deque()
        self._outputs: list[OutputSnapshot] = []
        self._commits: CommitSnapshot | None = None
        self._committed_at: float | None = None
        self._counters = counters_of(local.metrics)
        self._state: Path | None = None
        self._size: int | None = None
        self._measured_at = float("-inf")
        self._is_over = False

    def writes(self, outputs: Sequence[RunOutput], state: str | None) -> None:
        """Take the outputs of the run, and its state directory, if it has one."""
        stages = self.graph.stages
        self._outputs = [
            {
                "name": self.graph.name_of(stages[output.stage]),
                "sinks": shown_sinks(output.sinks),
                "deliveries": 0,
                "rows": 0,
            }
            for output in outputs
        ]
        if state is not None:
            self._state = Path(state)
            self._commits = {
                "epoch": 0, "count": 0, "seconds": 0.0, "buckets": [(at, 0) for at in BUCKETS],
                "last": [], "ago": None, "state_bytes": None,
            }  # fmt: skip

    def begin(self) -> None:
        """Note what earlier runs over the same state had done."""
        self._counters = counters_of(self._local.metrics)

    # -- in the thread of the run ----------------------------------------------------------------

    def __call__(self, metrics: Metrics) -> None:
        """Handle the end of a bundle, or of a poll without one."""
        feed, now = self.feed, time.monotonic()
        feed.seen_at = now
        if self._asked:
            self._answer()
        if now >= self._next or (feed.is_wanted and now >= self._soonest):
            self._show(metrics, "running")

    def see(self, outcome: Outcome) -> None:
        """Keep the last dead letters."""
        self._dead_letters.extend(outcome.errors[-_DEAD_LETTERS:])

    def delivered(self, output: int, delivery: Delivery) -> None:
        """Count what an output was given.

        Args:
            output: Its place among the outputs of the run.
            delivery: What it was given.
        """
        given = self._outputs[output]
        given["deliveries"] += 1
        given["rows"] += delivery.panes.num_rows

    def committed(self, epoch: int, seconds: float, size_bytes: int) -> None:
        """Count a commit. What is counted until now is never repeated.

        Args:
            epoch: Its number.
            seconds: What it took.
            size_bytes: How much was written.
        """
        self.feed.seen_at = self._committed_at = time.monotonic()
        self._counters = counters_of(self._local.metrics)
        known = self._commits
        if known is None:
            return
        self._commits = {
            **known,
            "epoch": epoch,
            "count": known["count"] + 1,
            "seconds": known["seconds"] + seconds,
            "buckets": [(at, n + (seconds <= at)) for at, n in known["buckets"]],
            "last": [*known["last"][1 - _COMMITS :], (seconds, size_bytes)],
        }

    def end(self, state: RunState, error: BaseException | None) -> None:
        """Show how the run has ended."""
        text = None if error is None else _in_words(error)
        self._is_over = True
        self._answer()
        self._show(self._local.metrics, state, text, last=True)

    def _show(
        self, metrics: Metrics, state: RunState, error: str | None = None, *, last: bool = False
    ) -> None:
        began = time.monotonic()
        self.feed.put(self._snapshot(metrics, state, error, began), last=last)
        now = time.monotonic()
        rest = _SHARE * (now - began)
        self._soonest = now + max(_WATCHED_S, rest)
        self._next = now + max(_ALONE_S, rest)

    def _snapshot(
        self, metrics: Metrics, state: RunState, error: str | None, now: float
    ) -> Snapshot:
        parts = self._parts(metrics)
        events = max(metrics.events, metrics.read)
        counts = [events, *(part["records"] for part in parts)]
        rates = self._rates(now, counts)
        for part, rate in zip(parts, rates[1:], strict=True):
            part["rate"] = rate
        at = time.time()
        late, dead = metrics.late.total(), metrics.errors.total()
        self._history.add([at, events, rates[0], late, dead, parts[-1]["behind"]])
        commits = self._commits
        if commits is None or state in ("ended", "stopped", "available"):
            # Of a durable run, what no commit has may be read, and so counted, again.
            self._counters = counters_of(metrics)
        if commits is not None:
            ago = None if self._committed_at is None else now - self._committed_at
            commits = {**commits, "ago": ago, "state_bytes": self._state_bytes(now)}
        return {
            "title": f"{parts[0]['name']} → {parts[-1]['name']}",
            "state": state,
            "error": error,
            "at": at,
            "began": self._began,
            "elapsed": now - self._began_at,
            "totals": totals_of(metrics, rates[0]),
            "parts": parts,
            "late": late_bars(self._tally),
            "lateness": lateness_text(self._tally),
            "dead_letters": [dead_letter(one) for one in self._dead_letters],
            "commits": commits,
            "outputs": [{**output} for output in self._outputs],
            "workers": self._workers,
            "traced": self._recorder is not None,
            "history": self._history.points(),
            "counters": self._counters,
        }

    def _parts(self, metrics: Metrics) -> list[PartSnapshot]:
        graph, local = self.graph, self._local
        marks = marks_by_name(metrics.watermarks())
        due = local.due_times()
        parts = []
        for read, reader in zip(graph.reads, local.readers, strict=True):
            name = graph.name_of(read)
            part = source_part(name, shown(read.source), marks.get(name))
            part["records"], part["dead"] = reader.delivered, reader.invalid
            part["share"] = reader.share
            part["idle_seconds"] = reader.mark.silent_seconds()
            parts.append(part)
        for stage in graph.stages:
            name = graph.name_of(stage)
            of = metrics.stages[name]
            parts.append(stage_part(graph, stage, of, marks.get(name), due[name]))
        return parts

    def _rates(self, now: float, counts: list[int]) -> list[float]:
        """Return how fast counts have grown in the last seconds, per second."""
        recent = self._recent
        recent.append((now, counts))
        while len(recent) > 2 and now - recent[1][0] >= _RATE_S:
            recent.popleft()
        since, before = recent[0]
        if now - since <= 0:
            return [0.0] * len(counts)
        return [
            round((count - old) / (now - since), 1)
            for count, old in zip(counts, before, strict=True)
        ]

    def _state_bytes(self, now: float) -> int | None:
        """Return the size of the state directory, which is looked at every ten seconds."""
        if self._state is not None and now >= self._measured_at + _MEASURED_S:
            self._measured_at, self._size = now, _size_of(self._state)
        return self._size

    # -- asked by other threads ------------------------------------------------------------------

    def trace(self) -> Future[tuple[Trace, float]]:
        """Return the trace, which the run hands over between two bundles, and the seconds it took.

        It has what was recorded until then, and does not change.
        """
        asked: Future[tuple[Trace, float]] = Future()
        self._asked.append(asked)
        if self._is_over:
            self._answer()
        return asked

    @property
    def is_traced(self) -> bool:
        """Whether there is a trace to ask about."""
        return self._recorder is not None

    def _answer(self) -> None:
        while True:
            try:
                asked = self._asked.popleft()
            except IndexError:  # after the end, those who ask answer themselves, at once
                return
            if self._recorder is None or not asked.set_running_or_notify_cancel():
                continue
            began = time.monotonic()
            try:
                asked.set_result((self._recorder.trace(), time.monotonic() - began))
            except Exception as error:  # who asks is told; the run goes on
                asked.set_exception(error)


def _in_words(error: BaseException) -> str:
    """Return an error as text; one of a user's class may raise when it is read."""
    try:
        return for_people(f"{type(error).__name__}: {error}")
    except Exception as another:  # else it would take the place of what ended the run
        return f"{type(error).__name__}, which raises {type(another).__name__} when it is read"


def _size_of(directory: Path) -> int:
    """Return how many bytes the files below a directory have; files may go meanwhile."""
    total = 0
    for folder, _, names in os.walk(directory):  # which leaves out what it cannot read
        for name in names:
            with suppress(OSError):
                total += Path(folder, name).stat().st_size
    return total
