"""Reads what a run with ``record=`` has written, as a scenario."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lowwater.engine.graph.graph import Graph
from lowwater.engine.graph.trace import TracedTurn
from lowwater.engine.local.arrival_log import FORMAT, LENGTH
from lowwater.errors import InvalidArgument, StateError
from lowwater.io.paths import PathLike
from lowwater.state.codec import decode
from lowwater.testing._arrivals import ScenarioElement
from lowwater.testing._inputs import Built, built_stage, place_of
from lowwater.testing._recorded import element_of, scenario_of_turns
from lowwater.testing.scenario import Scenario
from lowwater.time import Instant

_WHERE = "recorded"


def recorded(directory: PathLike, pipeline: Built, *, run: int | None = None) -> Scenario:
    """Return what arrived in a run with ``record=`` as a scenario, for ``run_pipeline``.

    Each bundle is a step, with the advance of the watermark that it caused; so is each other
    advance of clock or watermark. Of a run that wrote more than its :class:`lowwater.Recording`
    allows, the scenario begins where the earliest segment does.

    Args:
        directory: The folder that ``record=`` named.
        pipeline: The pipeline that was run.
        run: The number of the run, from 1; the last one by default.

    Raises:
        InvalidArgument: There is no such recording, or it is of another pipeline.
    """
    folder = _folder(Path(directory), run)
    graph = Graph.of([built_stage(pipeline)])
    names = [graph.name_of(read) for read in graph.reads]
    places = [place_of(graph, read) for read in graph.reads]
    turns: list[TracedTurn] = []
    elements: list[dict[int, ScenarioElement]] = [{} for _ in names]
    numbers: defaultdict[int, int] = defaultdict(int)
    for path in sorted(folder.glob("arrivals-*")):
        head, *rest = _frames(path)
        if head["sources"] != names:
            raise InvalidArgument(
                f"the recording is of the sources {', '.join(head['sources'])}, and the pipeline "
                f"reads {', '.join(names)}",
                where=_WHERE,
                hint="Name the pipeline that was run",
            )
        if not turns:
            clock, marks, ended = head["stood"]
            turns.append(TracedTurn(clock, None, 0, 0, tuple(marks), tuple(ended)))
        for clock, source, rows, marks, ended in rest:
            first = 0 if source is None else numbers[source]
            for time, record in rows:
                at = None if time is None else Instant(time)
                made = element_of(record, at, places[source])
                elements[source][numbers[source]] = made
                numbers[source] += 1
            stop = 0 if source is None else numbers[source]
            turns.append(TracedTurn(clock, source, first, stop, tuple(marks), tuple(ended)))
    return scenario_of_turns(turns, graph, elements)


def _folder(directory: Path, run: int | None) -> Path:
    # A run that was refused, or read nothing, has written nothing.
    runs = [one for one in sorted(directory.glob("run-*")) if any(one.glob("arrivals-*"))]
    if run is not None:
        runs = [one for one in runs if one.name == f"run-{run:06}"]
    if not runs:
        what = "recording" if run is None else f"recording of a run {run}"
        raise InvalidArgument(
            f"there is no {what} in {str(directory)!r}",
            where=_WHERE,
            hint='Record one: pipeline.collect(record="arrivals")',
        )
    return runs[-1]


def _frames(path: Path) -> Iterator[Any]:
    """Yield the values of a segment; one that was cut off at the end is left out."""
    data = path.read_bytes()
    at, first = 0, True
    while at + LENGTH.size <= len(data):
        (length,) = LENGTH.unpack_from(data, at)
        at += LENGTH.size
        if at + length > len(data):
            break
        try:
            value = decode(data[at : at + length])
        except StateError:
            raise InvalidArgument(
                f"{str(path)!r} is damaged", where=_WHERE, hint="Record the run again"
            ) from None
        if first and (not isinstance(value, dict) or value.get("format") != FORMAT):
            break
        at, first = at + length, False
        yield value
    if first:
        raise InvalidArgument(
            f"{str(path)!r} is not part of a recording that this version reads",
            where=_WHERE,
            hint="Record the run again",
        )
