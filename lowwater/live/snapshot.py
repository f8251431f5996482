"""What a run has done and what it waits for, as plain values that JSON can hold.

A snapshot is made in the thread of the run, between two bundles, and is not changed afterwards: all
that other threads show comes from it. The page, the metrics for machines and the report of a
finished run have no other source.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias, TypedDict

import numpy as np

from lowwater.display.secrets import redacted
from lowwater.display.text import cut, printable, shown
from lowwater.engine.graph.graph import Graph, Stage
from lowwater.engine.graph.metrics import Metrics, StageMetrics, watermark_text
from lowwater.engine.local.health.late_line import LateTally
from lowwater.engine.records.panes import ErrorRecord
from lowwater.explain.graph_text import summary_texts
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array, format_duration, rounded_up
from lowwater.watermark import StageWatermark

RunState: TypeAlias = Literal["running", "ended", "stopped", "available", "failed"]
"""``available``: all that was there is read, and windows stay open for the next run."""

_BARS = 40
_LONGEST = 300


class Bar(TypedDict):
    """One bar of a histogram: how many, up to which value, and that value in words."""

    upto: float
    text: str
    count: int


class PartSnapshot(TypedDict):
    """A source or a stage.

    ``behind`` is how far its output watermark is behind the clock, in seconds; ``None`` while
    either is not known, and once the input has ended. ``rate`` is records per second, of the last
    seconds. Counts of a source are only ``records`` and ``dead``.
    """

    name: str
    kind: Literal["source", "stage", "table"]
    lines: list[str]
    inputs: list[str]
    records: int
    rate: float
    watermark: str
    output: str
    behind: float | None
    held_by: str
    due: str | None
    due_at_clock: str | None
    idle_seconds: float | None
    ended: bool
    share: float | None
    admitted: int
    dropped: int
    waiting: int
    dead: int
    rows: int
    panes: dict[str, int]
    retractions: int
    emitted: dict[str, int]
    late: dict[str, int]
    duplicates: int
    superseded: int
    open_windows: int
    open_noun: str
    windows: list[Bar]


class DeadLetter(TypedDict):
    """An invalid record, in words."""

    reason: str
    detail: str
    where: str | None
    record: str


class CommitSnapshot(TypedDict):
    """The commits of a durable run: the last ones, and all of this process in a histogram.

    ``buckets`` has how many commits took at most so many seconds, as Prometheus counts them.
    """

    epoch: int
    count: int
    seconds: float
    buckets: list[tuple[float, int]]
    last: list[tuple[float, int]]
    ago: float | None
    state_bytes: int | None


class OutputSnapshot(TypedDict):
    """An output: its sinks, and what they have been given by this process."""

    name: str
    sinks: list[str]
    deliveries: int
    rows: int


class Totals(TypedDict):
    """The counts of all stages together; see :class:`lowwater.engine.graph.metrics.Metrics`."""

    events: int
    bundles: int
    rate: float
    share: float | None
    seconds_left: float | None
    panes: dict[str, int]
    retractions: int
    emitted: int
    late: dict[str, int]
    errors: dict[str, int]
    duplicates: int
    superseded: int
    admitted: int
    dropped: int
    waiting: int
    open_windows: int
    watermark: str
    clock: str


class Snapshot(TypedDict):
    """All that is shown of a run.

    Args:
        title: What runs.
        state: Whether it goes on, or how it ended.
        error: What ended it, in words.
        at: When this was made, in seconds since 1970.
        began: When the run began.
        elapsed: Seconds of this run.
        totals: Counts of all stages.
        parts: Sources, then stages, each after what it reads.
        late: Late records by how long a lateness would have admitted them.
        lateness: The lateness that would have admitted 99 % of them, as a duration.
        dead_letters: The last ones.
        commits: Those of a durable run.
        outputs: What is written where.
        workers: The number of worker processes, or 0.
        traced: Whether windows and elements can be explained, and drawn.
        history: Points: seconds since 1970, records read, records per second, late records, dead
            letters, and seconds that the last stage is behind the clock.
        counters: The counts that machines read. Of a durable run they are those of the last commit:
            so a run that was killed, and repeats some records, never counts one twice.
    """

    title: str
    state: RunState
    error: str | None
    at: float
    began: float
    elapsed: float
    totals: Totals
    parts: list[PartSnapshot]
    late: list[Bar]
    lateness: str | None
    dead_letters: list[DeadLetter]
    commits: CommitSnapshot | None
    outputs: list[OutputSnapshot]
    workers: int
    traced: bool
    history: list[list[float | None]]
    counters: Counters


class StageCounters(TypedDict):
    """The counts of a stage that only grow."""

    arrived: int
    admitted: int
    dropped: int
    dead: int
    duplicates: int
    superseded: int
    retractions: int
    panes: dict[str, int]
    emitted: dict[str, int]
    late: dict[str, int]


class Counters(TypedDict):
    """The counts that only grow: of the run, and of each stage by its name."""

    events: int
    bundles: int
    errors: dict[str, int]
    stages: dict[str, StageCounters]


def counters_of(metrics: Metrics) -> Counters:
    """Return the counts of a run that only grow, as they are now. O(stages)."""
    return {
        "events": max(metrics.events, metrics.read),
        "bundles": metrics.bundles,
        "errors": dict(metrics.errors),
        "stages": {
            name: {
                "arrived": of.arrived,
                "admitted": of.admitted,
                "dropped": of.dropped,
                "dead": of.dead,
                "duplicates": of.duplicates,
                "superseded": of.superseded,
                "retractions": of.retractions,
                "panes": dict(of.panes),
                "emitted": dict(of.emitted),
                "late": dict(of.late),
            }
            for name, of in metrics.stages.items()
        },
    }


def without_run(
    title: str, metrics: Metrics, parts: list[PartSnapshot], *, began: float, elapsed: float
) -> Snapshot:
    """Return what metrics alone tell; the rest is empty.

    Args:
        title: What runs.
        metrics: Its counts.
        parts: Its sources and stages.
        began: When it began, in seconds since 1970.
        elapsed: For how long it has run, in seconds.
    """
    return {
        "title": title,
        "state": "running",
        "error": None,
        "at": time.time(),
        "began": began,
        "elapsed": elapsed,
        "totals": totals_of(metrics, 0.0),
        "parts": parts,
        "late": [],
        "lateness": None,
        "dead_letters": [],
        "commits": None,
        "outputs": [],
        "workers": 0,
        "traced": False,
        "history": [],
        "counters": counters_of(metrics),
    }


def totals_of(metrics: Metrics, rate: float) -> Totals:
    """Return the counts of all stages together."""
    return {
        "events": max(metrics.events, metrics.read),
        "bundles": metrics.bundles,
        "rate": rate,
        "share": metrics.share,
        "seconds_left": metrics.seconds_left,
        "panes": dict(metrics.panes),
        "retractions": metrics.retractions,
        "emitted": metrics.emitted,
        "late": dict(metrics.late),
        "errors": dict(metrics.errors),
        "duplicates": metrics.duplicates,
        "superseded": metrics.superseded,
        "admitted": metrics.admitted,
        "dropped": metrics.dropped,
        "waiting": metrics.waiting,
        "open_windows": metrics.open_windows,
        "watermark": watermark_text(metrics.watermark),
        "clock": watermark_text(metrics.clock),
    }


def source_part(name: str, line: str, mark: StageWatermark | None) -> PartSnapshot:
    """Return a source of which nothing has been read."""
    return _part(name, "source", [line], [], mark)


def stage_part(
    graph: Graph,
    stage: Stage,
    metrics: StageMetrics,
    mark: StageWatermark | None,
    due: Int64Array | None,
) -> PartSnapshot:
    """Return a stage.

    Args:
        graph: Its graph.
        stage: The stage.
        metrics: Its counts.
        mark: Its watermarks.
        due: The watermarks at which its windows are due, int64; ``None``: not known.
    """
    part = _part(
        graph.name_of(stage),
        "table" if stage.makes_table else "stage",
        [*summary_texts(stage)],
        [*dict.fromkeys(graph.name_of(flow.origin) for flow in stage.inputs)],
        mark,
    )
    add_counts(part, metrics)
    part["open_noun"] = "rows" if stage.work.keeps_rows else "open windows"
    part["windows"] = [] if due is None else window_bars(due, int(metrics.watermark))
    return part


def add_counts(part: PartSnapshot, of: StageMetrics) -> None:
    """Set the counts of a stage."""
    part["records"] = of.arrived
    part["admitted"] = of.admitted
    part["dropped"] = of.dropped
    part["waiting"] = of.waiting
    part["dead"] = of.dead
    part["rows"] = of.rows
    part["panes"] = dict(of.panes)
    part["retractions"] = of.retractions
    part["emitted"] = dict(of.emitted)
    part["late"] = dict(of.late)
    part["duplicates"] = of.duplicates
    part["superseded"] = of.superseded
    part["open_windows"] = of.open_windows


def _part(
    name: str,
    kind: Literal["source", "stage", "table"],
    lines: Iterable[str],
    inputs: list[str],
    mark: StageWatermark | None,
) -> PartSnapshot:
    return {
        "name": name,
        "kind": kind,
        "lines": [for_people(line) for line in lines],
        "inputs": inputs,
        "records": 0,
        "rate": 0.0,
        "watermark": watermark_text(START_OF_TIME if mark is None else mark.input),
        "output": watermark_text(START_OF_TIME if mark is None else mark.output),
        "behind": None if mark is None or mark.gap_us is None else mark.gap_us / 1e6,
        "held_by": "" if mark is None else for_people(mark.held_by),
        "due": None if mark is None or mark.due is None else watermark_text(mark.due),
        "due_at_clock": (
            None if mark is None or mark.due_at_clock is None else watermark_text(mark.due_at_clock)
        ),
        "idle_seconds": None,
        "ended": mark is not None and mark.output == END_OF_TIME,
        "share": None,
        "admitted": 0,
        "dropped": 0,
        "waiting": 0,
        "dead": 0,
        "rows": 0,
        "panes": {},
        "retractions": 0,
        "emitted": {},
        "late": {},
        "duplicates": 0,
        "superseded": 0,
        "open_windows": 0,
        "open_noun": "open windows",
        "windows": [],
    }


def window_bars(due: Int64Array, watermark: int) -> list[Bar]:
    """Return how many windows are due next, and later, in at most 40 bars of one length. O(n).

    Args:
        due: The watermarks at which they are due, int64; what is never due is left out.
        watermark: The watermark now.
    """
    due = due[due < END_OF_TIME]
    if not due.size:
        return []
    low, high = int(due.min()), int(due.max())
    step = max(1, -(-(high - low + 1) // _BARS))
    counts = np.bincount((due - low) // step)
    bars: list[Bar] = []
    for at in np.flatnonzero(counts).tolist():
        upto = min(high, low + (at + 1) * step - 1)
        seconds = (upto - watermark) / 1e6 if watermark > START_OF_TIME else upto / 1e6
        bars.append({"upto": seconds, "text": watermark_text(upto), "count": int(counts[at])})
    return bars


def late_bars(tally: LateTally) -> list[Bar]:
    """Return how many late records which lateness would have admitted, in at most 40 bars."""
    bins = tally.histogram()
    while len(bins) > _BARS:  # neighbours together, the greater limit stays
        pairs = [bins[at : at + 2] for at in range(0, len(bins), 2)]
        bins = [(pair[-1][0], sum(count for _, count in pair)) for pair in pairs]
    return [
        {"upto": upto / 1e6, "text": format_duration(rounded_up_us(upto)), "count": count}
        for upto, count in bins
    ]


def rounded_up_us(lateness_us: int) -> int:
    """Round a duration up to two digits or so: bars have limits that can be read."""
    digits = max(0, len(str(lateness_us)) - 2)
    return -(-lateness_us // 10**digits) * 10**digits


def lateness_text(tally: LateTally) -> str | None:
    """Return the lateness that would have admitted 99 % of what came too late."""
    lateness = tally.lateness_us()
    return None if lateness is None else rounded_up(lateness)


def dead_letter(error: ErrorRecord) -> DeadLetter:
    """Return a dead letter in words, without secrets."""
    return {
        "reason": error.reason,
        "detail": for_people(error.detail),
        "where": None if error.where is None else for_people(error.where),
        "record": for_people(shown(error.record)),
    }


def for_people(text: str) -> str:
    """Return a text without secrets and control characters, of at most 300 characters."""
    return cut(printable(redacted(text)), _LONGEST)


def shown_sinks(sinks: Sequence[object]) -> list[str]:
    """Return sinks in words."""
    return [for_people(shown(sink)) for sink in sinks]


def marks_by_name(marks: Iterable[StageWatermark]) -> Mapping[str, StageWatermark]:
    """Return the watermarks of sources and stages by their name."""
    return {mark.stage: mark for mark in marks}
