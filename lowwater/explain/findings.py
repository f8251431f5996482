"""Finds likely mistakes in a pipeline without running it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal, final

from lowwater.display import html
from lowwater.display.text import counted, shown
from lowwater.engine.graph.finding import Finding, Severity, Upstream
from lowwater.engine.graph.graph import Flow, Graph, Read, Stage
from lowwater.engine.local.delivery import Sink
from lowwater.errors import InvalidArgument, describe
from lowwater.explain.endless import is_endless
from lowwater.triggers import (
    Moment,
    outlook,
)
from lowwater.watermark import External, PerPartition

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


def check(
    pipeline: Any,
    *,
    runner: Literal["embedded", "spark"] = "embedded",
    until: Literal["end", "available"] = "end",
) -> Findings:
    """Check a pipeline for likely mistakes, without running it.

    Args:
        pipeline: The result of ``aggregate``, ``group``, ``process`` or ``join``, a table, or a
            pipeline with a sink.
        runner: ``"spark"`` adds a note for each source of which Spark may make something else.
        until: ``"available"`` checks it for runs that leave the input open: only sources with
            ``ends=True`` end.

    Raises:
        InvalidArgument: The value is none of these.

    >>> import lowwater as lw
    >>> stream = lw.from_iterable([], time="at", watermark=lw.Ascending())
    >>> check(stream.key_by("page").window(lw.FixedWindows("1m")).aggregate(n=lw.count()))
    no problems found
    """
    from lowwater.explain.spark_findings import spark_findings

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
    if until not in ("end", "available"):
        raise InvalidArgument(
            f"{describe('until', until)} is neither 'end' nor 'available'",
            where="check(until=)",
            hint="Name one of the two",
        )
    graph, goes_on = Graph.of([stage]), until == "available"
    found = findings_of(graph, [(stage, getattr(pipeline, "_sinks", ()))], goes_on=goes_on)
    return found if runner == "embedded" else Findings((*found, *spark_findings(graph)))


def findings_of(
    graph: Graph, outputs: Iterable[tuple[Stage, Sequence[Sink]]], *, goes_on: bool = False
) -> Findings:
    """Check a graph. O(stages + flows), and O(sources) for each stage.

    Args:
        graph: The graph.
        outputs: The stages whose output leaves it, and the sinks of each.
        goes_on: Whether runs end with what is there, and leave the input open for the next one.
    """
    upstream = _reads_upstream(graph)
    endless = frozenset(read for read in graph.reads if is_endless(read, goes_on=goes_on))
    found = [
        finding for read in graph.reads for finding in _of_read(graph, read, upstream, endless)
    ]
    for stage in graph.stages:
        found += _of_stage(stage, graph.name_of(stage), upstream, endless)
    for stage, sinks in outputs:
        found += _of_output(graph, stage, sinks)
    return Findings(tuple(sorted(found, key=lambda finding: _RANK.index(finding.severity))))


def _of_read(
    graph: Graph,
    read: Read,
    upstream: Mapping[Stage, frozenset[Read]],
    endless: frozenset[Read],
) -> Iterator[Finding]:
    where, is_open = graph.name_of(read), read in endless
    if read.watermark is None:
        stages = [stage for stage, reads in upstream.items() if read in reads]
        yield _without_watermark(read, stages, where, is_open=is_open)
    meets = any(read in reads and len(reads) > 1 for reads in upstream.values())
    is_frame = hasattr(read.source, "refuse_embedded")  # from_spark has no idle_after=
    if is_open and read.idle_after_us is None and meets and not is_frame:
        yield Finding(
            "note",
            "other sources are merged or joined with it, and it holds their watermark while it is "
            "silent",
            where,
            'Set idle_after=, as in idle_after="1m"; or ends=True if it is complete, for a '
            'run(until="available")',
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


def _without_watermark(
    read: Read, stages: Sequence[Stage], where: str, *, is_open: bool
) -> Finding:
    what = "it has no watermark until its input ends"
    if is_open:
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


def _of_stage(
    stage: Stage,
    where: str,
    upstream: Mapping[Stage, frozenset[Read]],
    endless: frozenset[Read],
) -> Iterator[Finding]:
    flows = [_upstream_of(flow, upstream, endless) for flow in stage.inputs]
    if stage.deduplication is not None and any(flow.is_blind for flow in flows):
        yield Finding(
            "warning",
            "deduplicate keeps ids until the watermark passes them, and there is no watermark",
            where,
            "Give the source a watermark",
        )
    yield from stage.work.findings(stage, where, flows)


def _upstream_of(
    flow: Flow, upstream: Mapping[Stage, frozenset[Read]], endless: frozenset[Read]
) -> Upstream:
    """Return what is known of the sources behind an input."""
    origin = flow.origin
    reads = {origin} if isinstance(origin, Read) else upstream[origin]
    is_open = reads & endless
    return Upstream(bool(is_open), any(read.watermark is None for read in is_open))


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


def _reads_upstream(graph: Graph) -> dict[Stage, frozenset[Read]]:
    """Return the sources that each stage depends on; stages come after those they read."""
    found: dict[Stage, frozenset[Read]] = {}
    for stage in graph.stages:
        origins = [flow.origin for flow in stage.inputs]
        parts = [frozenset([at]) if isinstance(at, Read) else found[at] for at in origins]
        found[stage] = frozenset().union(*parts)
    return found
