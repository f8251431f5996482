"""Sources that record when they are read and closed, and a graph of several outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, final

import numpy as np
import pyarrow as pa

import lowwater as lw
from lowwater.engine.graph.sources import Position
from lowwater.engine.records.batch import Records
from lowwater.engine.records.columns import Column
from lowwater.pipeline import Pipeline, Stream
from lowwater.pipeline.fluent import Processed

SECOND = 1_000_000
EARLY = lw.AfterWatermark(early=lw.AfterCount(1), late=lw.AfterCount(1))


@final
@dataclass
class Watch:
    """Records which keys were read from all sources and which reached each output.

    Attributes:
        read: How many batches of each source were read.
        keys: The keys read.
        given: The keys that each end was given.
        behind: How many keys were not yet with every end, whenever a batch was asked for.
        closed: The sources that are closed or at their end.
    """

    ends: int = 1
    read: dict[int, int] = field(default_factory=dict)
    keys: set[int] = field(default_factory=set)
    behind: list[int] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.given = [set[int]() for _ in range(self.ends)]

    @property
    def waiting(self) -> int:
        """How many keys that were read are not yet with every end."""
        return max(len(self.keys - given) for given in self.given)

    def reads(self, source: int, keys: Iterable[int]) -> None:
        """Note that a source is asked for a batch of these keys."""
        self.behind.append(self.waiting)
        self.read[source] = self.read.get(source, 0) + 1
        self.keys.update(keys)

    def gives(self, at: int = 0) -> Callable[[Iterable[Any]], None]:
        """Return what notes the keys that an end is given."""
        return self.given[at].update


@final
@dataclass(frozen=True, eq=False)
class WatchedSource:
    """A source that makes each batch on request and records the request.

    A batch is a second of event time; its keys are those of no other batch of any source.

    Args:
        number: Its number.
        watch: WatchedSource of each batch; ``None``: nobody is.
        count: How many batches it has.
        rows: How many rows each has.
        ahead: How far its event times are ahead, in seconds.
        rests: How often it has nothing for long, after each batch.
    """

    number: int
    watch: Watch | None
    count: int
    rows: int = 2
    ahead: int = 0
    rests: int = 0

    schema: ClassVar[pa.Schema] = pa.schema([(name, pa.int64()) for name in ("at", "key", "v")])

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Records]:
        for records, _ in self.batches_from(None, size, keys):
            yield records

    def batches_from(
        self, position: Position | None, size: int, keys: tuple[str, ...]
    ) -> Iterator[tuple[Records, Position]]:
        begin = 0 if position is None else position["batch"]
        try:
            for batch in range(begin, self.count):
                rows = np.arange(self.rows)
                own = (self.number * self.count + batch) * self.rows + rows
                if self.watch is not None:
                    self.watch.reads(self.number, own.tolist())
                at = (batch + self.ahead) * SECOND + rows
                made = {"at": at, "key": own, "v": np.ones(self.rows, dtype=np.int64)}
                columns = {name: Column(column) for name, column in made.items()}
                yield Records(columns, self.rows), {"batch": batch + 1}
                for _ in range(self.rests):
                    yield Records({}, 0, rest_seconds=1_000.0), {"batch": batch + 1}
        finally:
            if self.watch is not None:
                self.watch.closed.append(self.number)

    def stream(self) -> Stream:
        """Return its records as a stream."""
        return lw.from_source(self, time="at", watermark=lw.Ascending())


class Passes:
    """Emits what it is given, and three seconds later how often that was."""

    seen = lw.value_cell(0)
    bell = lw.timer()

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        ctx.seen.set(ctx.seen.get() + 1)
        ctx.bell.set(ctx.time + 3 * SECOND)
        ctx.emit({"v": record["v"]})

    def on_timer(self, name: str, ctx: lw.ProcessContext) -> None:
        ctx.emit({"v": ctx.seen.get()})
        ctx.seen.clear()


def summed(stream: Stream | Pipeline | Processed, windows: Any = None, **options: Any) -> Pipeline:
    """Sum values per key and window, shown after every bundle."""
    windows = lw.FixedWindows("2s") if windows is None else windows
    options = {"accumulation": "retracting", "trigger": EARLY, "allowed_lateness": "2s", **options}
    return stream.key_by("key").window(windows, **options).aggregate(v=lw.sum("v"))


def passed(stream: Stream) -> Processed:
    """Have a process emit each record at once."""
    return stream.key_by("key").process(Passes())


def branched(one: Stream, other: Stream) -> list[Pipeline | Processed]:
    """Return ends of one graph, each of which shows every key of both sources at once.

    A union; a stage behind it; a process on a branch; a stage behind two others.
    """
    first = summed(one | other)
    second = summed(first, lw.FixedWindows("4s"))
    beside = summed(one | other, lw.FixedWindows("1s"))
    return [first, second, passed(one | other), summed(first | beside)]
