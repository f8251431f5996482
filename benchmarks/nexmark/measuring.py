"""Timing each query, and counting the lines that it takes to write it."""

from __future__ import annotations

import ast
import inspect
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import final

import pyarrow as pa

import lowwater as lw
from benchmarks.nexmark import queries
from benchmarks.nexmark.answers import Compared, compare, run
from benchmarks.nexmark.events import Events
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.references import REFERENCES, Frames
from benchmarks.nexmark.streams import Nexmark
from lowwater.kernels import WORTH_LOADING, count_records


@final
@dataclass(frozen=True, slots=True)
class Measured:
    """A run of a query.

    Args:
        query: Its name.
        compared: What the comparison with the reference found.
        lines: Lines of code of the query.
        events: How many events there were.
        seconds: How long it ran.
        cpu: Processor time of this process meanwhile, in seconds; not known where others work.
    """

    query: str
    compared: Compared
    lines: int
    events: int
    seconds: float
    cpu: float | None


def streams_of(events: Events, table: pa.Table, folder: str) -> Nexmark:
    """Return the streams of events in memory.

    Args:
        events: How they were made.
        table: What was made.
        folder: Where queries write files.
    """
    watermark = lw.BoundedDisorder(events.out_of_order)
    stream = lw.from_arrow(table, time="date_time", watermark=watermark)
    return Nexmark.of(stream, events, table.schema, folder)


def measure(events: Events, names: list[str], bundle_size: int) -> Iterator[Measured]:
    """Run queries one after the other, each once, and compare what they answer.

    Args:
        events: What they run over; it is made first, which is not timed.
        names: Which queries.
        bundle_size: Events in a bundle.
    """
    table = events.table()
    frames = Frames(table)
    for name in names:
        _timed(name, events, table.slice(0, 5_000), 500)  # imports and compiles
        count_records(WORTH_LOADING)  # the kernels of a process that has run for long
        found, seconds, cpu = _timed(name, events, table, bundle_size)
        compared = compare(found, REFERENCES[name](frames))
        yield Measured(name, compared, lines_of(name), events.count, seconds, cpu)


def _timed(
    name: str, events: Events, table: pa.Table, bundle_size: int
) -> tuple[pa.Table, float, float]:
    """What a query emits, how long it took, and how much of the processor."""
    with tempfile.TemporaryDirectory() as folder:
        answer = QUERIES[name](streams_of(events, table, folder))
        began, cpu = time.perf_counter(), time.process_time()
        found = run(answer, bundle_size, folder)
        return found, time.perf_counter() - began, time.process_time() - cpu


def lines_of(name: str) -> int:
    """Return the lines of code of a query and of what it shares with others of its module.

    Args:
        name: Of the query.
    """
    functions, assigned = _parts(queries)
    seen: set[str] = set()
    waiting = [name]
    total = 0
    while waiting:
        if (one := waiting.pop()) in seen:
            continue
        seen.add(one)
        if one in functions:
            lines, body = _body(functions[one])
        else:
            body = [assigned[one]]
            lines = _span(body)
        total += lines
        used = {node.id for part in body for node in ast.walk(part) if isinstance(node, ast.Name)}
        waiting += [other for other in used if other in functions or other in assigned]
    return total


def _parts(module: ModuleType) -> tuple[dict[str, ast.FunctionDef], dict[str, ast.stmt]]:
    """The functions of a module, and what it assigns to private names."""
    tree = ast.parse(Path(inspect.getfile(module)).read_text())
    functions = {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef)}
    assigned: dict[str, ast.stmt] = {
        one.targets[0].id: one
        for one in tree.body
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name)
    }
    return functions, {name: one for name, one in assigned.items() if name.startswith("_")}


def _body(function: ast.FunctionDef) -> tuple[int, list[ast.stmt]]:
    """How many lines a function has without its signature and docstring, and its statements."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return _span(body), body


def _span(body: list[ast.stmt]) -> int:
    """From the first line to the last one, without blank ones between statements."""
    return sum((one.end_lineno or one.lineno) - one.lineno + 1 for one in body)
