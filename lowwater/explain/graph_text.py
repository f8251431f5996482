"""Describes a graph of stages in words, and as Mermaid text."""

from __future__ import annotations

from collections.abc import Iterator

from lowwater.display.text import shown
from lowwater.engine.graph.clocks import ClockLike
from lowwater.engine.graph.graph import MAIN, Flow, Graph, Read, Stage
from lowwater.engine.graph.outline import deduplication_text, step_texts, work_texts
from lowwater.time import format_duration
from lowwater.triggers import Default


def explain_graph(graph: Graph) -> str:
    """Describe the sources and stages in topological order, a paragraph each.

    Data is exchanged where records are grouped, because one task must have all records of a key.
    """
    parts = [
        [f"{graph.name_of(read)}: {shown(read.source)}", *_read_lines(read)] for read in graph.reads
    ]
    parts += [_stage_lines(graph, stage) for stage in graph.stages]
    return "\n".join("\n".join([head, *(f"  {line}" for line in lines)]) for head, *lines in parts)


def mermaid_graph(graph: Graph) -> str:
    """Render the graph as Mermaid text; thick arrows mark where data is exchanged by key."""
    lines = ["flowchart LR"]
    number = {id(part): at for at, part in enumerate((*graph.reads, *graph.stages))}
    lines += [f'  n{number[id(r)]}(["{_escaped(graph.name_of(r))}"])' for r in graph.reads]
    for stage in graph.stages:
        texts = [graph.name_of(stage), *summary_texts(stage)]
        lines.append(f'  n{number[id(stage)]}["{"<br/>".join(map(_escaped, texts))}"]')
    for stage in graph.stages:
        for flow in stage.inputs:
            label = "<br/>".join(map(_escaped, _edge_texts(stage, flow)))
            arrow = f'=="{label}"==>' if stage.key_names else f'-- "{label}" -->'
            arrow = arrow if label else "-->"
            lines.append(f"  n{number[id(flow.origin)]} {arrow} n{number[id(stage)]}")
    return "\n".join(lines)


def _read_lines(read: Read) -> Iterator[str]:
    times = read.times
    zone = "" if times.timezone is None else f"; times without a zone are in {times.timezone}"
    unit = "" if times.unit is None else f"; plain numbers are in {times.unit}"
    yield f"event time: {read.time}{zone}{unit}"
    if read.watermark is None:
        yield "watermark: none until the input ends"
    else:
        yield f"watermark: {shown(read.watermark)}"
    if read.clock is not None:
        yield f"clock: {_clock_text(read.clock)}"
    if read.max_ahead_us is not None:
        yield f"max_ahead: {format_duration(read.max_ahead_us)}"
    if read.idle_after_us is not None:
        yield f"idle_after: {format_duration(read.idle_after_us)}"


def _clock_text(clock: ClockLike) -> str:
    return shown(clock)


def _stage_lines(graph: Graph, stage: Stage) -> list[str]:
    reads = [
        f"reads: {graph.name_of(flow.origin)}{_output(flow)}{_steps(flow)}" for flow in stage.inputs
    ]
    lines = [graph.name_of(stage), *reads]
    if stage.deduplication is not None:
        lines.append(f"drops duplicates: {stage.deduplication!r}")
    if stage.key_names:
        lines.append(f"exchanges records by: {', '.join(stage.key_names)}")
    windowing = stage.windowing
    if windowing is not None:
        lines.append(f"windows: {shown(windowing.windows)}")
        if stage.fires:
            lines.append(f"trigger: {shown(windowing.trigger)}, {windowing.mode}")
        lines.append(f"allowed lateness: {format_duration(windowing.lateness_us)}")
    emits = "emits: " if stage.work.emits_panes else ""
    lines.extend(f"{emits}{text}" for text in work_texts(stage))
    if stage.signed:
        lines.append("applies upstream retractions")
    return lines


def _steps(flow: Flow) -> str:
    return "".join(f" → {text}" for text in step_texts(flow.steps))


def _output(flow: Flow) -> str:
    return "" if flow.output == MAIN else f", output {flow.output!r}"


def _edge_texts(stage: Stage, flow: Flow) -> Iterator[str]:
    """Yield the steps on the way into a stage, a line each."""
    if flow.output != MAIN:
        yield f"output {flow.output!r}"
    yield from step_texts(flow.steps)
    if stage.key_names:
        yield f"by {', '.join(stage.key_names)}"


def summary_texts(stage: Stage) -> Iterator[str]:
    """Yield a summary of a stage, a line each, as in pictures of the graph."""
    if stage.deduplication is not None:
        yield deduplication_text(stage.deduplication)
    windowing = stage.windowing
    if windowing is not None:
        yield shown(windowing.windows)
        if stage.fires:
            if windowing.trigger != Default():
                yield shown(windowing.trigger)
            yield windowing.mode
        if windowing.lateness_us:
            yield f"allowed lateness: {format_duration(windowing.lateness_us)}"
    yield from work_texts(stage)


def _escaped(text: str) -> str:
    """Escape text for a quoted Mermaid label."""
    for sign, code in (("&", "&amp;"), ('"', "&quot;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(sign, code)
    return text
