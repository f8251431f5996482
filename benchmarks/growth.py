"""Time per event as things grow, each along one axis while the rest stays as it is.

``python -m benchmarks --only growth``; ``--events`` is the most events, from which the other
largest sizes follow, and ``--plot FILE.svg`` draws the figures.

Events come from memory in bundles of 50,000. Time is that of the CPU, as other work on the machine
changes it least, without the time that making the events takes. Windows and keys are opened first,
and that is not counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, final

import numpy as np
import pyarrow as pa

import lowwater as lw
from benchmarks.events import KEYS
from benchmarks.machine import load, machine, resident_bytes
from lowwater.cli.bench import DISORDER_US, START_US, events_in_memory
from lowwater.kernels import WORTH_LOADING, count_records, kernels
from lowwater.pipeline import Stream
from lowwater.time import Int64Array

MOST_EVENTS = 100_000_000
FLAT = 0.15  # of the first figure: what counts as flat
BUNDLE = 50_000
_MINUTE_US = 60_000_000
_POOL = 1_000_000
_WIDE_KEYS = 1_000
_TOUCHED = 1_000
_NEW_EACH = 100  # bundles
_DISORDER = lw.BoundedDisorder(f"{2 * DISORDER_US}us")
_ALL_OPEN = lw.BoundedDisorder("3650d")  # so that the watermark closes none of the windows
_TIME = pa.timestamp("us", "UTC")


@final
@dataclass(frozen=True, slots=True)
class Point:
    """What a size came to.

    Args:
        line: What else tells it from other figures of the axis; empty if nothing does.
        size: The size.
        ns: Nanoseconds of the CPU per event (and stage, along the axis of stages).
        resident: Bytes of resident memory then, along the axis of events.
    """

    line: str
    size: int
    ns: float
    resident: int = 0


@final
@dataclass(frozen=True, slots=True)
class Axis:
    """Something that grows.

    Args:
        name: What it is.
        unit: What is measured.
        measure: Measures one round, given the most events.
    """

    name: str
    unit: str
    measure: Callable[[int], Iterator[Point]]


@final
@dataclass(frozen=True, slots=True)
class Line:
    """The figures of all rounds along an axis.

    Args:
        axis: The axis.
        name: What tells it from other lines of the axis.
        rounds: Nanoseconds by size, one for each round.
        resident: Bytes of resident memory by size, in the first round.
    """

    axis: Axis
    name: str
    rounds: dict[int, list[float]]
    resident: dict[int, int]

    @property
    def medians(self) -> dict[int, float]:
        """The median of the rounds by size."""
        return {size: median(found) for size, found in self.rounds.items()}

    @property
    def against_first(self) -> dict[int, float]:
        """Each size against the first one: the median of what the rounds give."""
        first = next(iter(self.rounds.values()))
        return {
            size: median(a / b for a, b in zip(found, first, strict=True))
            for size, found in self.rounds.items()
        }


class _EnoughError(Exception):
    """Ends a run in which no more is to be measured: its windows need not close."""


@final
class _Parts:
    """A source of several parts; ``marks`` has the CPU seconds at which each began, and the end.

    The time that making the events took is not in them.
    """

    def __init__(self, schema: pa.Schema, *parts: Iterable[pa.RecordBatch]) -> None:
        self.schema = schema
        self.marks: list[float] = []
        self.resident: list[int] = []
        self._parts = parts

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[lw.Records]:
        making = 0.0
        for part in self._parts:
            self._mark(making)
            batches = iter(part)
            while True:
                began = time.process_time()
                batch = next(batches, None)
                making += time.process_time() - began
                if batch is None:
                    break
                yield lw.Records.from_arrow(batch)
        self._mark(making)
        raise _EnoughError

    def _mark(self, making: float) -> None:
        self.marks.append(time.process_time() - making)
        self.resident.append(resident_bytes())


def _seconds(source: _Parts, watermark: Any, build: Callable[[Stream], Any]) -> list[float]:
    """Run a pipeline over a source, and return how long each of its parts took."""
    stream = lw.from_source(source, time="at", watermark=watermark)
    try:
        for _ in build(stream).run_batches(bundle_size=BUNDLE, progress=False):
            pass
    except _EnoughError:
        pass
    return np.diff(source.marks).tolist()


def _per_minute(stream: Stream) -> Any:
    return stream.key_by("key").window(lw.FixedWindows("1m")).aggregate(total=lw.sum("value"))


# ------------------------------------------------------------------------------------- events


def _endless(pool: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield the same events again and again, each time later, without an end."""
    batches = pool.to_batches(max_chunksize=BUNDLE)
    times = [batch.column("at").cast(pa.int64()).to_numpy() for batch in batches]
    at = pool.schema.get_field_index("at")
    shift = 0
    while True:
        for batch, own in zip(batches, times, strict=True):
            yield batch.set_column(at, "at", pa.array(own + shift).cast(_TIME))
        shift += len(pool) * 1_000  # one arrives each millisecond


def _up_to(batches: Iterator[pa.RecordBatch], count: int) -> Iterator[pa.RecordBatch]:
    """Yield batches of at least so many events in all."""
    while count > 0:
        batch = next(batches)
        count -= len(batch)
        yield batch


def _events(most: int) -> Iterator[Point]:
    """One run: each figure is of the events between the size before and this one.

    While it waits, short runs of their own say what the same events take at their beginning: a long
    run on a shared machine meets more and less of the neighbours.
    """
    sizes = _until(most, (most // 100, most // 30, most // 10, most // 3, most))
    pool = events_in_memory(min(_POOL, sizes[0]), KEYS)
    endless = _endless(pool)
    counts = np.diff([0, *sizes]).tolist()
    beside: list[list[float]] = [[] for _ in sizes]
    parts = (
        _interrupted(_up_to(endless, count), pool, found)
        for count, found in zip(counts, beside, strict=True)
    )
    source = _Parts(pool.schema, *parts)
    spent = _seconds(source, _DISORDER, _per_minute)
    of_all = zip(sizes, counts, spent, source.resident[1:], strict=True)
    for size, count, seconds, resident in of_all:
        yield Point("one run", size, seconds / count * 1e9, resident)
    for size, found in zip(sizes, beside, strict=True):
        yield Point("new runs then", size, median(found))


def _interrupted(
    batches: Iterable[pa.RecordBatch], pool: pa.Table, found: list[float]
) -> Iterator[pa.RecordBatch]:
    """Yield batches, and now and then run over some events anew: nanoseconds an event."""
    for at, batch in enumerate(batches):
        if at % _NEW_EACH == 0:
            source = _Parts(pool.schema, _up_to(_endless(pool), len(pool)))
            (seconds,) = _seconds(source, _DISORDER, _per_minute)
            found.append(seconds / len(pool) * 1e9)
        yield batch


# ----------------------------------------------------------------------------- windows and keys


def _windows(most: int) -> Iterator[Point]:
    """Windows of a minute over a fixed number of keys; a row of windows is opened for all keys."""

    def batch(number: Int64Array) -> pa.RecordBatch:
        times = START_US + number // _WIDE_KEYS * _MINUTE_US
        return _batch(times, pa.array(number % _WIDE_KEYS))

    for size in _until(most // 10, (1_000, 10_000, 100_000, 1_000_000, 10_000_000)):
        random = np.random.default_rng(size)
        count = _timed(most)
        few = random.choice(size, min(size, _TOUCHED), replace=False)
        source = _Parts(
            batch(np.arange(1)).schema,
            map(batch, _pieces(np.arange(size))),
            (batch(random.integers(0, size, each)) for each in _lengths(count)),
            (batch(few[random.integers(0, len(few), each)]) for each in _lengths(count)),
        )
        _, of_all, of_few = _seconds(source, _ALL_OPEN, _per_minute)
        yield Point("all touched", size, of_all / count * 1e9)
        yield Point(f"{_TOUCHED:,} touched", size, of_few / count * 1e9)


def _keys(most: int) -> Iterator[Point]:
    """One window for each key; its events are of any key."""
    for size in _until(most // 20, (10, 1_000, 10_000, 100_000, 1_000_000, 5_000_000)):
        for kind in ("integers", "strings"):
            names: pa.Array = pa.array(np.arange(size))
            if kind == "strings":
                names = pa.compute.binary_join_element_wise("key", names.cast(pa.string()), "-")
            random = np.random.default_rng(size)
            count = _timed(most)

            def batch(number: Int64Array, names: pa.Array = names) -> pa.RecordBatch:
                return _batch(np.full(len(number), START_US), names.take(pa.array(number)))

            source = _Parts(
                batch(np.arange(1)).schema,
                map(batch, _pieces(np.arange(size))),
                (batch(random.integers(0, size, each)) for each in _lengths(count)),
            )
            _, spent = _seconds(source, _ALL_OPEN, _per_minute)
            yield Point(kind, size, spent / count * 1e9)


def _batch(times: Int64Array, key: pa.Array) -> pa.RecordBatch:
    value = pa.array(np.ones(len(times), dtype=np.int64))
    return pa.RecordBatch.from_arrays(
        [pa.array(times).cast(_TIME), key, value], names=["at", "key", "value"]
    )


# ------------------------------------------------------------------------- stages and partitions


def _stages(most: int) -> Iterator[Point]:
    """Each stage passes on as many records as it gets: a difference for each key and bundle."""

    def batches(bundles: Iterable[int]) -> Iterator[pa.RecordBatch]:
        for at in bundles:
            yield _batch(START_US + at * BUNDLE * 1_000 + np.arange(BUNDLE) * 1_000, keys)

    def chain(stream: Any, size: int) -> Any:
        for _ in range(size):
            stream = (
                stream.key_by("key")
                .window(
                    lw.FixedWindows("1m"),
                    trigger=lw.Repeatedly(lw.AfterCount(1)),
                    accumulation="discarding",
                )
                .aggregate(value=lw.sum("value"))
            )
        return stream

    keys = pa.array(np.arange(BUNDLE))
    count = len(_lengths(_timed(most))) * BUNDLE
    for size in (1, 2, 4, 8):
        bundles = iter(range(2 + count // BUNDLE))
        first = (next(bundles) for _ in range(2))
        source = _Parts(next(batches([0])).schema, batches(first), batches(bundles))
        _, spent = _seconds(source, _DISORDER, partial(chain, size=size))
        yield Point("", size, spent / count / size * 1e9)


def _partitions(most: int) -> Iterator[Point]:
    count = _timed(most)
    pool = events_in_memory(min(_POOL, count), KEYS)
    for size in (1, 10, 100, 1_000):
        numbers = pa.array(np.arange(len(pool)) * 7919 % size)
        endless = _endless(pool.append_column("part", numbers))
        source = _Parts(
            pool.append_column("part", numbers).schema,
            _up_to(endless, 2 * BUNDLE),
            _up_to(endless, count),
        )
        _, spent = _seconds(source, lw.PerPartition(_DISORDER, by="part"), _per_minute)
        yield Point("", size, spent / count * 1e9)


def _until(most: int, sizes: Sequence[int]) -> list[int]:
    return [size for size in sizes if size <= most] or [max(1, most)]


def _timed(most: int) -> int:
    """Return how many events are timed where another thing than events grows."""
    return max(1, min(2_000_000, most // 50))


def _lengths(count: int) -> list[int]:
    """Return the lengths of bundles of so many events."""
    return [min(BUNDLE, count - first) for first in range(0, count, BUNDLE)]


def _pieces(numbers: Int64Array) -> Iterator[Int64Array]:
    return (numbers[first : first + BUNDLE] for first in range(0, len(numbers), BUNDLE))


AXES = (
    Axis("events so far", "ns an event", _events),
    Axis("open windows", "ns an event", _windows),
    Axis("keys, each with an open window", "ns an event", _keys),
    Axis("stages in a chain", "ns an event and stage", _stages),
    Axis("partitions of the source", "ns an event", _partitions),
)


def measure(most: int, rounds: int) -> list[Line]:
    """Measure all axes in turn, after a short round that does not count."""
    count_records(WORTH_LOADING)  # loads the compiled kernels, unless the environment says no
    for axis in AXES:
        list(axis.measure(max(1, most // 100)))
    lines: dict[tuple[Axis, str], Line] = {}
    for _ in range(rounds):
        for axis in AXES:
            for point in axis.measure(most):
                line = lines.setdefault((axis, point.line), Line(axis, point.line, {}, {}))
                line.resident.setdefault(point.size, point.resident)
                line.rounds.setdefault(point.size, []).append(point.ns)
    return list(lines.values())


def show(most: int, rounds: int, plot: Path | None = None) -> None:
    """Print the table of growth, and draw it."""
    before, began = load(), time.monotonic()
    lines = measure(most, rounds)
    minutes = (time.monotonic() - began) / 60
    circumstances = (
        f"{kernels().NAME} kernels, load {before:.1f} to {load():.1f}, {rounds} rounds in "
        f"{minutes:.0f} min"
    )
    print(f"{circumstances}\n")
    print("| what grows | to | time | least to most | against the first | resident, MB |")
    print("|---|---|---|---|---|---|")
    for line in lines:
        name = f"{line.axis.name}: {line.name}" if line.name else line.axis.name
        for size, ratio in line.against_first.items():
            found = line.rounds[size]
            resident = f"{line.resident[size] / 1e6:,.0f}" if line.resident[size] else ""
            print(
                f"| {name} | {size:,} | {median(found):,.0f} {line.axis.unit} "
                f"| {min(found):,.0f} to {max(found):,.0f} | {ratio:.2f} | {resident} |"
            )
    if plot is not None:
        from benchmarks.growth_picture import save

        command = f"python -m benchmarks --only growth --events {most} --rounds {rounds}"
        save(lines, plot, f"{command} --plot {plot}; {machine('numpy')}; {circumstances}")
