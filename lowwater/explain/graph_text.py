"""Describes a graph of stages in words, and as Mermaid text."""

from __future__ import annotations

from collections.abc import Iterator

from lowwater.display.text import shown
from lowwater.engine.graph.clocks import ClockLike
from lowwater.engine.graph.graph import MAIN, Flow, Graph, Read, Stage
from lowwater.engine.graph.outline import deduplication_text, step_texts
from lowwater.engine.records.batch import WHOLE
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
        text = "<br/>".join(map(_escaped, [graph.name_of(stage), *summary_texts(stage)]))
        shape = f'[("{text}")]' if stage.makes_table else f'["{text}"]'  # a cylinder, or a box
        lines.append(f"  n{number[id(stage)]}{shape}")
    for stage in graph.stages:
        for nth, flow in enumerate(stage.inputs):
            label = "<br/>".join(map(_escaped, _edge_texts(stage, nth)))
            arrow = f'=="{label}"==>' if stage.key_names else f'-- "{label}" -->'
            arrow = arrow if label else "-->"
            lines.append(f"  n{number[id(flow.origin)]} {arrow} n{number[id(stage)]}")
    return "\n".join(lines)


def _read_lines(read: Read) -> Iterator[str]:
    times = read.times
    zone = "" if times.timezone is None else f"; times without a zone are in {times.timezone}"
    unit = "" if times.unit is None else f"; plain numbers are in {times.unit}"
    whose = ", the clock at arrival" if read.arrives else ""
    yield f"event time: {read.time}{whose}{zone}{unit}"
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
    lines = [graph.name_of(stage)]
    for nth, flow in enumerate(stage.inputs):
        side = stage.work.side_name(nth)
        reads = f"reads {side}: " if side else "reads: "
        lines.append(f"{reads}{graph.name_of(flow.origin)}{_output(flow)}{_steps(flow)}")
    if stage.deduplication is not None:
        lines.append(f"drops duplicates: {stage.deduplication!r}")
    if stage.key_names:
        lines.append(f"exchanges records by: {_exchange_keys(stage)}")
    windowing = stage.windowing
    if windowing is not None:
        lines.append(f"windows: {shown(windowing.windows)}")
        if stage.fires:
            lines.append(f"trigger: {shown(windowing.trigger)}, {windowing.mode}")
        lines.append(f"allowed lateness: {format_duration(windowing.lateness_us)}")
    lines.extend(stage.work.lines(stage))
    if stage.signed:
        lines.append("applies upstream retractions")
    return lines


def _steps(flow: Flow) -> str:
    return "".join(f" → {text}" for text in step_texts(flow.steps))


def _output(flow: Flow) -> str:
    return "" if flow.output == MAIN else f", output {flow.output!r}"


def _exchange_keys(stage: Stage) -> str:
    names, last = _key_names(stage), len(stage.inputs) - 1
    if stage.keys_of(last) == stage.keys:
        return names
    left, right = (stage.work.side_name(nth) for nth in (0, last))
    return f"{names} ({left}), {', '.join(stage.keys_of(last))} ({right})"


def _key_names(stage: Stage) -> str:
    return "nothing: all are one group" if WHOLE in stage.keys else ", ".join(stage.key_names)


def _edge_texts(stage: Stage, nth: int) -> Iterator[str]:
    """Yield the steps on the way into a stage, a line each."""
    flow = stage.inputs[nth]
    if flow.output != MAIN:
        yield f"output {flow.output!r}"
    yield from step_texts(flow.steps)
    if (by := exchange_text(stage, nth)) is not None:
        yield by


def exchange_text(stage: Stage, nth: int) -> str | None:
    """Return by what records are exchanged on the way into a stage, and the side of a join."""
    if not stage.key_names:
        return None
    side = stage.work.side_name(nth)
    has_own = side and WHOLE not in stage.keys
    by = f"by {', '.join(stage.keys_of(nth)) if has_own else _key_names(stage)}"
    return f"{side}, {by}" if side else by


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
    yield from stage.work.summary(stage)


def _escaped(text: str) -> str:
    """Escape text for a quoted Mermaid label."""
    for sign, code in (("&", "&amp;"), ('"', "&quot;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(sign, code)
    return text
