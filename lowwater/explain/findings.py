"""Finds likely mistakes in a pipeline without running it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal, final

from lowwater.display import html
from lowwater.display.text import shown
from lowwater.engine.graph.graph import Computed, Graph, Joined, Read, Stage, Upserted
from lowwater.engine.graph.sources import BUNDLE_SIZE
from lowwater.engine.local.delivery import Sink
from lowwater.engine.window.windowing import Windowing
from lowwater.errors import InvalidArgument, describe
from lowwater.explain.endless import is_endless
from lowwater.explain.finding import Finding, Severity
from lowwater.explain.join_findings import join_findings, table_findings
from lowwater.explain.spark_findings import spark_findings
from lowwater.explain.text import counted
from lowwater.time import format_duration
from lowwater.triggers import (
    AfterCount,
    AfterWatermark,
    Default,
    Moment,
    Trigger,
    looks_at_watermark,
    outlook,
)
from lowwater.triggers._machine import compile_trigger, walk
from lowwater.watermark import External, PerPartition
from lowwater.windows import GlobalWindow, Sessions, SlidingWindows

_KINDS: dict[Severity, html.Kind] = {"error": "dropped", "warning": "late", "note": "quiet"}
_RANK: tuple[Severity, ...] = ("error", "warning", "note")
_LEAST_FIRST = _RANK[::-1]


@final
@dataclass(frozen=True, slots=True, repr=False)
class Findings:
    """The findings about a pipeline, the most severe first; false if there are none.

    Args:
        findings: The findings.
    """

    findings: tuple[Finding, ...]

    def __bool__(self) -> bool:
        return bool(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __getitem__(self, at: int) -> Finding:
        return self.findings[at]

    def _repr_html_(self) -> str:
        if not self.findings:
            return html.display("No problems found")
        parts = [
            part
            for each in self.findings
            for part in (
                html.line(html.badge(each.severity, _KINDS[each.severity]), each.where),
                html.event("", html.sentence([f"{each.what}."]), indent=1),
                html.event("", html.sentence([f"{each.hint}."]), indent=1),
            )
        ]
        return html.display(counted(len(self.findings), "finding"), *parts)

    def __repr__(self) -> str:
        return "\n".join(map(str, self.findings)) or "no problems found"


def check(pipeline: Any, *, runner: Literal["embedded", "spark"] = "embedded") -> Findings:
    """Check a pipeline for likely mistakes, without running it.

    Args:
        pipeline: The result of ``aggregate``, ``group``, ``process`` or ``join``, a table, or a
            pipeline with a sink.
        runner: ``"spark"`` adds a note for each source of which Spark may make something else.

    Raises:
        InvalidArgument: The value is none of these.

    >>> import lowwater as lw
    >>> stream = lw.from_iterable([], time="at", watermark=lw.Ascending())
    >>> check(stream.key_by("page").window(lw.FixedWindows("1m")).aggregate(n=lw.count()))
    no problems found
    """
    stage = getattr(pipeline, "_stage", None)
    if not isinstance(stage, Stage):
        raise InvalidArgument(
            f"{describe('pipeline', pipeline)} is not a pipeline",
            where="check",
            hint="Give what .aggregate(...), .group() or .process(...) returned",
        )
    if runner not in ("embedded", "spark"):
        raise InvalidArgument(
            f"{describe('runner', runner)} is neither 'embedded' nor 'spark'",
            where="check(runner=)",
            hint="Name one of the two",
        )
    graph = Graph.of([stage])
    found = findings_of(graph, [(stage, getattr(pipeline, "_sinks", ()))])
    return found if runner == "embedded" else Findings((*found, *spark_findings(graph)))


def findings_of(graph: Graph, outputs: Iterable[tuple[Stage, Sequence[Sink]]]) -> Findings:
    """Check a graph. O(stages + flows), and O(sources) for each stage.

    Args:
        graph: The graph.
        outputs: The stages whose output leaves it, and the sinks of each.
    """
    upstream = _reads_upstream(graph)
    found = [finding for read in graph.reads for finding in _of_read(graph, read, upstream)]
    for stage in graph.stages:
        found += _of_stage(stage, graph.name_of(stage), upstream[stage])
        if isinstance(stage.work, Joined):
            found += join_findings(stage, stage.work, graph.name_of(stage), upstream)
        if isinstance(stage.work, Upserted):
            found += table_findings(stage, stage.work, graph.name_of(stage), upstream[stage])
    for stage, sinks in outputs:
        found += _of_output(graph, stage, sinks)
    return Findings(tuple(sorted(found, key=lambda finding: _RANK.index(finding.severity))))


def _of_read(
    graph: Graph, read: Read, upstream: Mapping[Stage, frozenset[Read]]
) -> Iterator[Finding]:
    where = graph.name_of(read)
    endless = is_endless(read)
    if read.watermark is None:
        stages = [stage for stage, reads in upstream.items() if read in reads]
        yield _without_watermark(read, stages, where)
    meets = any(read in reads and len(reads) > 1 for reads in upstream.values())
    is_frame = hasattr(read.source, "refuse_embedded")  # from_spark has no idle_after=
    if endless and read.idle_after_us is None and meets and not is_frame:
        yield Finding(
            "note",
            "other sources are merged or joined with it, and it holds their watermark while it is "
            "silent",
            where,
            'Set idle_after=, as in idle_after="1m"',
        )
    estimator = read.watermark
    if (
        getattr(read.source, "partitioned", False)
        and estimator is not None
        and not isinstance(estimator, (PerPartition, External))
    ):
        yield Finding(
            "warning",
            "its partitions are read at different speeds, but have one watermark: records of a "
            "partition that is behind are late",
            where,
            f"Use PerPartition({shown(estimator)})",
        )
    if endless and isinstance(estimator, PerPartition) and estimator.idle_after is None:
        yield Finding(
            "warning",
            "a partition that falls silent, or never has a record, holds the watermark forever",
            where,
            'Set idle_after=, as in PerPartition(..., idle_after="1m")',
        )


def _without_watermark(read: Read, stages: Sequence[Stage], where: str) -> Finding:
    what = "it has no watermark until its input ends"
    if is_endless(read):
        what += ", which may never happen: until then no window is complete"
        harms: list[Severity] = ["note", *(_harm(stage) for stage in stages)]
        severity = max(harms, key=_LEAST_FIRST.index)
        return Finding(severity, what, where, 'Give it one, as in watermark=BoundedDisorder("10s")')
    if getattr(read.source, "endless", False) is None:
        what += "; it is an iterator, which may be endless, and then no window is ever complete"
        hint = (
            "Pass a list or a table if the input ends; otherwise set a watermark, as in "
            'watermark=BoundedDisorder("10s")'
        )
        return Finding("note", what, where, hint)
    hint = "This is right for a batch; set watermark= to emit results as windows complete"
    return Finding("note", what, where, hint)


def _harm(stage: Stage) -> Severity:
    """Return how bad it is for a stage if its windows are never complete."""
    windowing = stage.windowing
    if windowing is not None and stage.fires:
        said = outlook(windowing.trigger, late_possible=windowing.lateness_us > 0)
        return "note" if said.fires is Moment.ANYTIME else "error"
    return "note" if windowing is None else "warning"


def _of_stage(stage: Stage, where: str, reads: Iterable[Read]) -> Iterator[Finding]:
    endless = any(is_endless(read) for read in reads)
    blind = endless and any(read.watermark is None for read in reads)
    if stage.deduplication is not None and blind:
        yield Finding(
            "warning",
            "deduplicate keeps ids until the watermark passes them, and there is no watermark",
            where,
            "Give the source a watermark",
        )
    windowing = stage.windowing
    if not stage.fires:
        if isinstance(stage.work, Computed) and stage.work.order == "event_time" and blind:
            yield Finding(
                "warning",
                "records wait until the watermark passes them, and there is no watermark",
                where,
                "Give the source a watermark",
            )
        if isinstance(stage.work, Computed) and windowing is None and endless:
            yield Finding(
                "note",
                "a process without windows keeps its state until it clears it",
                where,
                "Clear state with a timer, or use windows",
            )
        return
    if windowing is not None:
        yield from _of_windowing(windowing, where, endless=endless, blind=blind)


def _of_windowing(
    windowing: Windowing, where: str, *, endless: bool, blind: bool
) -> Iterator[Finding]:
    trigger, lateness = windowing.trigger, windowing.lateness_us
    said = outlook(trigger, late_possible=lateness > 0)
    loses = said.finishes is Moment.ANYTIME or (
        said.finishes is Moment.AT_COMPLETION and lateness > 0
    )
    if loses:  # accepted in words, so there is nothing to warn about
        yield Finding(
            "note",
            f"{shown(trigger)} may finish before its window expires, and later elements are then "
            f"dropped (accepted by allow_data_loss={windowing.allow_data_loss!r})",
            where,
            f"Use Repeatedly({shown(trigger)}) unless this is intended",
        )
    if (count := _small_count(trigger)) is not None:
        yield Finding(
            "note",
            f"AfterCount({count}) is judged at the end of each bundle, of up to {BUNDLE_SIZE:,} "
            "elements by default: a window with more new elements than that fires once for all of "
            "them",
            where,
            "Use run(bundle_size=1) to judge it after each element",
        )
    if isinstance(windowing.windows, GlobalWindow):
        yield from _of_global(windowing, said.fires, where, endless=endless)
        return
    windows = windowing.windows
    if isinstance(windows, SlidingWindows) and windows.period_us > windows.size_us:
        size, period = map(format_duration, (windows.size_us, windows.period_us))
        gap = format_duration(windows.period_us - windows.size_us)
        yield Finding(
            "warning",
            f"{shown(windows)} leaves gaps of {gap} between windows: "
            "elements in a gap are dropped as 'unwindowed'",
            where,
            f'The size comes first: SlidingWindows("{period}", "{size}")',
        )
    if isinstance(windowing.windows, Sessions) and blind:
        yield Finding(
            "warning" if said.fires is Moment.ANYTIME else "error",
            "only the watermark closes sessions, and the source has none: their number only grows",
            where,
            "Give the source a watermark",
        )
    elif blind:
        yield Finding(
            "warning",
            "without a watermark no window expires, so the state of every window is kept",
            where,
            "Give the source a watermark",
        )
    if said.fires is Moment.NEVER:
        yield Finding(
            "warning",
            f"{shown(trigger)} never fires: windows emit only when they expire",
            where,
            "Use AfterWatermark() unless this is intended",
        )
    elif not loses and not looks_at_watermark(trigger):
        yield Finding(
            "note",
            f"{shown(trigger)} ignores the watermark: no pane marks a window as complete, and "
            "remaining elements are emitted only when the window expires",
            where,
            "Use AfterWatermark(early=..., late=...) to get on-time panes",
        )
    late = trigger.late if isinstance(trigger, AfterWatermark) else None
    if late is not None and not lateness:
        yield Finding(
            "warning",
            f"late={shown(late)} never fires, because allowed_lateness is 0s",
            where,
            'Set allowed_lateness=, as in allowed_lateness="1h", or remove late=',
        )
    if (
        lateness
        and isinstance(trigger, (AfterWatermark, Default))
        and windowing.mode == ("discarding")
    ):
        yield Finding(
            "note",
            f"late elements are emitted in separate panes for {format_duration(lateness)}: a "
            "consumer that keeps only the last pane of a window loses the earlier ones",
            where,
            'Use accumulation="accumulating", or add up the panes in the consumer',
        )


def _of_global(
    windowing: Windowing, fires: Moment, where: str, *, endless: bool
) -> Iterator[Finding]:
    if fires is Moment.ANYTIME:
        if endless:
            yield Finding(
                "note",
                "the global window never expires: the state of every key is kept forever",
                where,
                "Use windows that end if the number of keys is unbounded",
            )
        return
    yield Finding(
        "error" if endless else "note",
        f"the global window ends at the end of time, so {shown(windowing.trigger)} fires only when "
        "the input ends" + (", which may never happen" if endless else ""),
        where,
        "Use a trigger that does not wait for the watermark, as in Repeatedly(AfterCount(100))",
    )


def _of_output(graph: Graph, stage: Stage, sinks: Sequence[Sink]) -> Iterator[Finding]:
    """Yield findings about the sinks of a pipeline."""
    windowing, where = stage.windowing, graph.name_of(stage)
    if windowing is None or not stage.fires:
        return
    said = outlook(windowing.trigger, late_possible=windowing.lateness_us > 0)
    # Files keep every pane, while a table, which is a part of its place, replaces a window's.
    places = [place for sink in sinks for place in sink.places()]
    appends = any(isinstance(place.at, PurePath) and not place.parts for place in places)
    if appends and windowing.mode == "accumulating" and said.times > 1:
        yield Finding(
            "warning",
            "each pane contains all elements of its window so far, and the output files keep "
            "every pane: adding them up counts elements more than once",
            where,
            "Read only the last pane (the highest index) of each window, write to a table, which "
            'replaces panes, or use accumulation="discarding"',
        )
    for each in graph.stages:
        if each.signed and isinstance(each.work, Computed):
            yield Finding(
                "note",
                "it receives upstream retractions as records with kind 'retract'",
                graph.name_of(each),
                "Check the column kind in the process",
            )


def _small_count(trigger: Trigger) -> int | None:
    """Return the smallest count below the size of a bundle that a trigger waits for, if any."""
    parts = [node.trigger for node in walk(compile_trigger(trigger, "t"))]
    counts = [part.count for part in parts if isinstance(part, AfterCount)]
    return min((count for count in counts if count < BUNDLE_SIZE), default=None)


def _reads_upstream(graph: Graph) -> dict[Stage, frozenset[Read]]:
    """Return the sources that each stage depends on; stages come after those they read."""
    found: dict[Stage, frozenset[Read]] = {}
    for stage in graph.stages:
        origins = [flow.origin for flow in stage.inputs]
        parts = [frozenset([at]) if isinstance(at, Read) else found[at] for at in origins]
        found[stage] = frozenset().union(*parts)
    return found
