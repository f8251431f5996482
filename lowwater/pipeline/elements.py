"""What a run of a process gives: as it comes, or all of it held in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, final

import pyarrow as pa

from lowwater.engine.graph.graph import MAIN
from lowwater.engine.graph.metrics import Metrics
from lowwater.engine.graph.trace import Trace
from lowwater.engine.process import Emitted
from lowwater.engine.process.emitted import emitted_table
from lowwater.engine.records.panes import ErrorRecord, LateRecord
from lowwater.engine.records.tagged import encoding_of, to_values
from lowwater.pipeline.checks import no_step
from lowwater.pipeline.run import Outcomes, UnderWay
from lowwater.pipeline.traced import Traced
from lowwater.time import Instant

if TYPE_CHECKING:
    import pandas as pd

    from lowwater.viz import GraphDiagram


@final
@dataclass(frozen=True, slots=True)
class Element:
    """A record that a process emitted.

    Args:
        key: The key it was emitted for: a plain value, or a tuple of several.
        value: What was emitted.
        timestamp: Its event time.
        output: The tag of the output it was emitted to.
    """

    key: Any
    value: Any
    timestamp: Instant
    output: str


@final
class ProcessResult(Traced):
    """What a run of a process gave, held in memory.

    Args:
        keys: The names of the key columns.
        run: The run.
    """

    def __init__(self, keys: tuple[str, ...], run: Outcomes) -> None:
        self._keys = keys
        self._run = run
        self._emitted: dict[str, list[Emitted]] = {}
        self.late: list[LateRecord] = []
        self.errors: list[ErrorRecord] = []

    @property
    def metrics(self) -> Metrics:
        """What the run did, in numbers."""
        return self._run.metrics

    @property
    def trace(self) -> Trace:
        """What the run did, step by step; needs ``collect(trace=True)``."""
        return self._run.trace()

    def graph(self) -> GraphDiagram:
        """Return sources and stages as a picture, with their watermarks at the end."""
        from lowwater.viz import GraphDiagram

        return GraphDiagram.of(self._run.graph, self.metrics)

    def elements(self, output: str = MAIN) -> list[Element]:
        """Return what was emitted to an output, in order."""
        found = self._emitted.get(output, [])
        return [element for part in found for element in _elements(part, output)]

    def values(self, output: str = MAIN) -> list[Any]:
        """Return the values emitted to an output, in order."""
        return [value for part in self._emitted.get(output, []) for value in part.to_list()]

    def to_arrow(self, output: str = MAIN) -> pa.Table:
        """Return what was emitted to an output as a table: keys, fields and ``timestamp``.

        A column whose values Arrow has no one type for holds msgpack, and its metadata says so.
        """
        return emitted_table(self._emitted.get(output, []), self._keys)

    def to_pandas(self, output: str = MAIN) -> pd.DataFrame:
        """Return what was emitted to an output as a DataFrame: keys, fields and ``timestamp``.

        A column whose values Arrow has no one type for holds them as they are.
        """
        table = self.to_arrow(output)
        frame: pd.DataFrame = table.to_pandas()
        for field, column in zip(table.schema, table.columns, strict=True):
            if encoding_of(field) is not None:
                frame[field.name] = to_values(field, column)
        return frame

    def __repr__(self) -> str:
        counts = {tag: sum(map(len, parts)) for tag, parts in self._emitted.items()}
        shown = ", ".join(f"{number} {tag}" for tag, number in counts.items())
        return f"ProcessResult({self.metrics.events} events, emitted: {shown or 'nothing'})"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            hints = {"panes": "A process emits elements: .elements(), .values()"}
            raise no_step("the result of a process", name, hints)


@final
class Elements(UnderWay, Iterator[Element]):
    """What a run of a process emits to one output, as it comes, and its metrics."""

    def __init__(self, outcomes: Outcomes, output: str) -> None:
        super().__init__(outcomes)
        self._elements = _emitted(outcomes, output)

    def __repr__(self) -> str:
        return f"<elements of a run, {self.metrics.events} events so far>"

    def __next__(self) -> Element:
        return next(self._elements)


def _emitted(outcomes: Outcomes, output: str) -> Iterator[Element]:
    with closing(iter(outcomes)) as found:
        for outcome in found:
            if output in outcome.emitted:
                yield from _elements(outcome.emitted[output], output)


def _elements(emitted: Emitted, output: str) -> Iterator[Element]:
    keys = [column.to_list() for column in emitted.keys]
    each = keys[0] if len(keys) == 1 else list(zip(*keys, strict=True))
    for key, value, time in zip(each, emitted.to_list(), emitted.times.tolist(), strict=True):
        yield Element(key, value, Instant(time), output)
