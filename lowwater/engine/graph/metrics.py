"""Metrics of a run: counts and watermarks, per stage and in total."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, final

import numpy as np

from lowwater.display import html
from lowwater.display.text import printable
from lowwater.engine.records.steps import INSERT, REASONS, TIMINGS, LateBatch, PaneBatch
from lowwater.time import END_OF_TIME, START_OF_TIME, Instant, format_instant
from lowwater.watermark import StageWatermark

if TYPE_CHECKING:
    from lowwater.engine.graph.trace import Trace

_NO_COUNT = "none"
_CONSERVED = ("arrived", "admitted", "dropped", "waiting", "dead", "rows")


@final
@dataclass(slots=True)
class StepMetrics:
    """Counts of one step between a source or stage and the stage that reads it (S-B2).

    Args:
        step: The step, such as ``"filter"``.
        taken: Records that it was given: those of the next three.
        passed: Records that passed. ``flat_map`` and ``explode`` may have made any number of each.
        filtered: Records that it dropped without a dead letter.
        dead: Records that it rejected.
        made: Records that it output.
    """

    step: str
    taken: int = 0
    passed: int = 0
    filtered: int = 0
    dead: int = 0
    made: int = 0

    def add(self, counts: Sequence[int]) -> None:
        """Add the counts of a batch, in the order of the fields."""
        taken, passed, filtered, dead, made = counts
        self.taken += taken
        self.passed += passed
        self.filtered += filtered
        self.dead += dead
        self.made += made


@final
@dataclass(slots=True)
class StageMetrics:
    """Counts of one stage of a run.

    Args:
        panes: Emitted panes by timing, without retractions.
        retractions: Emitted retractions.
        emitted: Records that a process emitted, by output.
        late: Elements dropped from one of their windows, by reason.
        duplicates: Records dropped because their id was seen before (S-D1).
        superseded: Upserts that a table has ignored because it knows newer ones (T-1).
        arrived: Valid records that came to the stage. Each of them is a duplicate, superseded, or
            one of the following three (S-B2).
        admitted: Records that are in at least one window, or were processed, joined or stored.
        dropped: Records that were dropped from all their windows, each counted once.
        waiting: Records that wait for the watermark before they are processed or joined.
        dead: Invalid records that came to the stage.
        rows: How much state the stage keeps, as of the last commit.
        steps: The counts of the steps in front of the stage, of one input after the other. A step
            in front of several stages counts in each.
        watermark: The input watermark.
        output_watermark: The output watermark (S-H3).
        open_windows: The number of open windows.
    """

    panes: Counter[str] = field(default_factory=Counter)
    retractions: int = 0
    emitted: Counter[str] = field(default_factory=Counter)
    late: Counter[str] = field(default_factory=Counter)
    duplicates: int = 0
    superseded: int = 0
    arrived: int = 0
    admitted: int = 0
    dropped: int = 0
    waiting: int = 0
    dead: int = 0
    rows: int = 0
    steps: list[StepMetrics] = field(default_factory=list)
    watermark: Instant = Instant(START_OF_TIME)  # noqa: RUF009  # an immutable value
    output_watermark: Instant = Instant(START_OF_TIME)  # noqa: RUF009  # an immutable value
    open_windows: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the counts and watermarks as plain values; see :meth:`Metrics.to_dict`."""
        return {
            **self.remember(),
            "steps": [asdict(step) for step in self.steps],
            "ended": self.watermark == END_OF_TIME,
            "watermark": _iso(self.watermark),
            "output_watermark": _iso(self.output_watermark),
            "open_windows": self.open_windows,
        }

    def remember(self) -> dict[str, Any]:
        """Return the counts as plain values."""
        return {
            "panes": dict(self.panes),
            "retractions": self.retractions,
            "emitted": dict(self.emitted),
            "late": dict(self.late),
            "duplicates": self.duplicates,
            "superseded": self.superseded,
            **{name: getattr(self, name) for name in _CONSERVED},
        }

    def resume(self, known: Mapping[str, Any]) -> None:
        """Continue from the counts of an earlier run."""
        for name in _CONSERVED:  # earlier versions did not count them
            setattr(self, name, known.get(name, 0))
        self.panes = Counter(known["panes"])
        self.retractions = known["retractions"]
        self.emitted = Counter(known["emitted"])
        self.late = Counter(known["late"])
        self.duplicates = known["duplicates"]
        self.superseded = known.get("superseded", 0)

    def count_panes(self, panes: PaneBatch) -> None:
        """Count emitted panes. O(n)."""
        inserts = panes.kind == INSERT
        shown = int(np.count_nonzero(inserts))
        self.retractions += len(panes) - shown
        timing = panes.timing if shown == len(panes) else panes.timing[inserts]
        _add(self.panes, timing, TIMINGS)

    def count_late(self, late: LateBatch) -> None:
        """Count dropped elements; one that was dropped from several windows is one record. O(n)."""
        _add(self.late, late.reason, REASONS)
        self.dropped += len(np.unique(late.element))


@final
@dataclass(slots=True, repr=False)
class Metrics:
    """Counts of a run, updated while it goes on.

    Args:
        events: Records read from the sources, invalid ones included. While a run goes on, those up
            to the last bundle.
        panes: Panes that left the pipeline, by timing, without retractions.
        retractions: Retractions that left the pipeline.
        emitted: Records that joins, tables and processes have emitted and that left the pipeline,
            retractions included.
        late: Elements dropped from one of their windows in any stage, by reason.
        errors: Dead letters, by reason.
        duplicates: Records dropped because their id was seen before (S-D1).
        superseded: Upserts that a table has ignored because it knows newer ones (T-1).
        admitted: Records that were admitted to a window, processed, joined or stored, in all stages
            together (S-B2).
        dropped: Records that a stage dropped from all their windows, each counted once.
        waiting: Records that wait for the watermark in any stage.
        bundles: Bundles read from the sources.
        watermark: The input watermark of the last stage.
        clock: The clock.
        open_windows: The number of open windows in all stages.
        elapsed: Seconds since the run started, by the runner's stopwatch.
        share: How much of what there is to read the run has read, 0 to 1; ``None`` where the end of
            a source is not known, as of one that follows or of an iterator.
        stages: The same for each stage, by its name.
        trace: The trace, after a run with ``trace=True`` has ended.
        reporter: Returns the watermarks of the run.
        read: Records read from the sources, of which those of a batch in hand may still be ahead of
            ``events``.
        resumed_at: Records that earlier runs over the same state had read.
    """

    events: int = 0
    panes: Counter[str] = field(default_factory=Counter)
    retractions: int = 0
    emitted: int = 0
    late: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    duplicates: int = 0
    superseded: int = 0
    admitted: int = 0
    dropped: int = 0
    waiting: int = 0
    bundles: int = 0
    watermark: Instant = Instant(START_OF_TIME)  # noqa: RUF009  # an immutable value
    clock: Instant = Instant(START_OF_TIME)  # noqa: RUF009  # an immutable value
    open_windows: int = 0
    elapsed: float = 0.0
    stages: dict[str, StageMetrics] = field(default_factory=dict)
    trace: Trace | None = field(default=None, compare=False, repr=False)
    reporter: Callable[[], list[StageWatermark]] | None = field(
        default=None, repr=False, compare=False
    )
    share: float | None = field(default=None, compare=False)
    read: int = field(default=0, compare=False)
    resumed_at: int = field(default=0, compare=False)

    def __repr__(self) -> str:
        parts = [f"{self.events:,} events"]
        if self.panes.total() or not self.emitted:
            parts.append(f"panes: {_counts(self.panes)}")
        if self.emitted:
            parts.append(f"emitted: {self.emitted:,}")
        if self.retractions:
            parts.append(f"{self.retractions:,} retractions")
        parts += [f"late: {_counts(self.late)}", f"dead letters: {_counts(self.errors)}"]
        if self.duplicates:
            parts.append(f"{self.duplicates:,} duplicates")
        if self.superseded:
            parts.append(f"{self.superseded:,} superseded")
        if self.waiting:
            parts.append(f"{self.waiting:,} waiting")
        parts += [f"{self.open_windows:,} open windows"]
        return f"<Metrics: {', '.join(parts)}, watermark {watermark_text(self.watermark)}>"

    def _repr_html_(self) -> str:
        shown: list[tuple[str, Any, html.Kind]] = [("events", f"{self.events:,}", "mark")]
        panes = {timing: self.panes[timing] for timing in TIMINGS if self.panes[timing]}
        shown += [
            (f"{name} panes", f"{number:,}", html.TIMINGS[name]) for name, number in panes.items()
        ] or ([] if self.emitted else [("panes", "0", "ontime")])
        if self.emitted:
            shown.append(("emitted", f"{self.emitted:,}", "ontime"))
        if self.retractions:
            shown.append(("retractions", f"{self.retractions:,}", "retract"))
        shown += _reasons("late, dropped", self.late, "late")
        shown += _reasons("dead letters", self.errors, "dropped")
        if self.duplicates:
            shown.append(("duplicates", f"{self.duplicates:,}", "retract"))
        if self.superseded:
            shown.append(("superseded", f"{self.superseded:,}", "retract"))
        if self.waiting:
            shown.append(("waiting", f"{self.waiting:,}", "quiet"))
        shown.append(("open windows", f"{self.open_windows:,}", "quiet"))
        if self.elapsed > 0:
            shown.append(("events per second", f"{self.events_per_second:,.0f}", "quiet"))
        watermark = html.note(f"watermark: {watermark_text(self.watermark)}")
        return html.display("Metrics of a run", html.tiles(shown), watermark, self._stage_table())

    def _stage_table(self) -> html.Markup:
        if not self.stages:
            return html.Markup()
        stages = self.stages.values()
        columns: dict[str, list[Any]] = {
            "stage": list(self.stages),
            "records": [of.arrived for of in stages],
            "admitted": [of.admitted for of in stages],
            "dropped": [of.dropped for of in stages],
            "waiting": [of.waiting for of in stages],
            "panes": [_counts(of.panes) for of in stages],
            "retractions": [of.retractions for of in stages],
            "emitted": [_counts(of.emitted) for of in stages],
            "late": [_counts(of.late) for of in stages],
            "duplicates": [of.duplicates for of in stages],
            "superseded": [of.superseded for of in stages],
            "open windows": [of.open_windows for of in stages],
            "watermark in": [watermark_text(of.watermark) for of in stages],
            "watermark out": [watermark_text(of.output_watermark) for of in stages],
        }
        used = {name: values for name, values in columns.items() if set(values) - {0, _NO_COUNT}}
        return html.table(list(used), zip(*used.values(), strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Return the counts and watermarks as plain values, which JSON can hold.

        Watermarks and the clock are ISO-8601 text in UTC. ``None`` where there is no such text:
        before anything is known, and after the input has ended, when ``ended`` is true.
        """
        return {
            **self.remember(),
            "events": self.events,
            "ended": self.watermark == END_OF_TIME,
            "watermark": _iso(self.watermark),
            "clock": _iso(self.clock),
            "open_windows": self.open_windows,
            "elapsed": self.elapsed,
            "events_per_second": self.events_per_second,
            "share": self.share,
            "seconds_left": self.seconds_left,
            "stages": {name: stage.to_dict() for name, stage in self.stages.items()},
        }

    def watermarks(self) -> list[StageWatermark]:
        """Report the watermarks of each source and stage, and what holds each (S-H3).

        The holder is a source and partition, or a key and window of a stage. O(windows).
        """
        return [] if self.reporter is None else self.reporter()

    @property
    def events_per_second(self) -> float:
        """Records read per second of this run; 0 before any time has passed."""
        return (self.events - self.resumed_at) / self.elapsed if self.elapsed > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Seconds until all is read, if it goes on as fast; ``None`` where the end is not known."""
        if not self.share:
            return None
        return self.elapsed * (1 - self.share) / self.share

    def remember(self) -> dict[str, Any]:
        """Return the counts as plain values, without the elapsed time."""
        return {
            "events": max(self.events, self.read),
            "panes": dict(self.panes),
            "retractions": self.retractions,
            "emitted": self.emitted,
            "late": dict(self.late),
            "errors": dict(self.errors),
            "duplicates": self.duplicates,
            "superseded": self.superseded,
            "admitted": self.admitted,
            "dropped": self.dropped,
            "waiting": self.waiting,
            "bundles": self.bundles,
            "stages": {name: stage.remember() for name, stage in self.stages.items()},
        }

    def resume(self, known: Mapping[str, Any]) -> None:
        """Continue from the counts of an earlier run."""
        self.events = self.read = self.resumed_at = known["events"]
        self.panes = Counter(known["panes"])
        self.retractions = known["retractions"]
        self.emitted = known.get("emitted", 0)
        self.late = Counter(known["late"])
        self.errors = Counter(known["errors"])
        self.duplicates = known["duplicates"]
        self.superseded = known.get("superseded", 0)
        self.admitted = known.get("admitted", 0)
        self.dropped = known.get("dropped", 0)
        self.waiting = known.get("waiting", 0)
        self.bundles = known["bundles"]
        for name, stage in self.stages.items():
            if name in known["stages"]:  # else it is new
                stage.resume(known["stages"][name])

    def sum_up(self, ends: Iterable[str]) -> None:
        """Sum the counts of the stages; panes count only where they leave the pipeline.

        Args:
            ends: The names of the stages whose panes leave the pipeline.
        """
        self.panes, self.late = Counter(), Counter()
        self.retractions = self.emitted = 0
        self.duplicates = self.superseded = self.open_windows = 0
        self.admitted = self.dropped = self.waiting = 0
        for name in ends:
            stage = self.stages[name]
            self.emitted += stage.emitted.total()
            if stage.panes:
                self.panes.update(stage.panes)
            self.retractions += stage.retractions
        for stage in self.stages.values():
            if stage.late:
                self.late.update(stage.late)
            self.duplicates += stage.duplicates
            self.superseded += stage.superseded
            self.admitted += stage.admitted
            self.dropped += stage.dropped
            self.waiting += stage.waiting
            self.open_windows += stage.open_windows


def watermark_text(watermark: int) -> str:
    """Format a watermark in few words.

    >>> watermark_text(0), watermark_text(END_OF_TIME)
    ('1970-01-01T00:00:00Z', 'at the end')
    """
    ends = {START_OF_TIME: "not known yet", END_OF_TIME: "at the end"}
    return ends.get(watermark) or format_instant(watermark)


def _iso(at: int) -> str | None:
    """Format an instant as ISO-8601; ``None`` for one outside the years 1 to 9999."""
    text = format_instant(at)
    return text if text.endswith("Z") else None


def _counts(counts: Mapping[str, int]) -> str:
    some = (f"{number:,} {printable(name)}" for name, number in counts.items() if number)
    return ", ".join(some) or _NO_COUNT


def _reasons(name: str, counts: Counter[str], kind: html.Kind) -> list[tuple[str, Any, html.Kind]]:
    """Return the tile of what was dropped, with the reasons if there are any."""
    why = f": {', '.join(reason for reason, number in counts.items() if number)}"
    total = counts.total()
    return [(name + (why if total else ""), f"{total:,}", kind if total else "quiet")]


def _add(
    counts: Counter[str],
    codes: np.ndarray[tuple[int, ...], np.dtype[np.uint8]],
    names: tuple[str, ...],
) -> None:
    found = np.bincount(codes, minlength=len(names))
    for name, number in zip(names, found.tolist(), strict=True):
        if number:
            counts[name] += number
