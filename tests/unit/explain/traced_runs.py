"""Runs to trace: sources that fall silent, by a clock that is driven by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import lowwater as lw
from lowwater.engine.graph.graph import Flow, Read
from lowwater.engine.records.batch import Records
from lowwater.engine.records.columns import Column
from lowwater.pipeline.fluent import Stream
from lowwater.testing._moments import moment


@dataclass(frozen=True)
class Script:
    """A source that gives rows as a clock goes by, then falls silent, and ends at last.

    Args:
        clock: The clock; it is moved to when each row comes.
        rows: (when it comes, key, event time, value); without the rest, a heartbeat.
        rest_seconds: How long the run has others go first once there was nothing new.
    """

    clock: lw.ManualClock
    rows: Sequence[tuple[Any, ...]]
    rest_seconds: float = 0.0

    schema: pa.Schema | None = None

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Records]:
        for at, *rest in self.rows:
            self.clock.advance_to(moment(at))
            if not rest:
                yield Records({}, 0, rest_seconds=self.rest_seconds)
                continue
            key, time, value = rest
            columns = {
                "k": Column.of_objects([key]),
                "at": Column.of_objects([moment(time)]),
                "v": Column.of_objects([value]),
            }
            yield Records(columns, 1)


def scripted(
    name: str,
    clock: lw.ManualClock,
    rows: Sequence[tuple[Any, ...]],
    *,
    rest_seconds: float = 0.0,
    watermark: Any = None,
    idle_after: int | None = None,
) -> Stream:
    """Return a stream of such a source."""
    read = Read(
        Script(clock, rows, rest_seconds),
        "at",
        watermark=watermark or lw.Ascending(),
        clock=clock,
        name=name,
        idle_after_us=idle_after,
    )
    return Stream((Flow(read, (), "at"),))
