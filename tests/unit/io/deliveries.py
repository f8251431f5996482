"""Deliveries to give to sinks, and the ways in which a process can die while it does so."""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.engine.local.delivery import Delivery, Sink, Writer
from lowwater.engine.records.pane_table import panes_to_table
from lowwater.engine.records.steps import PaneBatch
from lowwater.errors import DataError
from lowwater.io.sinks import (
    errors_to_table,
    file_forms,
    folders,
    json_lines_file,
    late_to_table,
)
from lowwater.state import ownership

SECOND = 1_000_000
GAP = 10
# Of states that have committed all that tests deliver.
WRITER = Writer(id="a-state", output=0, resumes=True, epoch=1_000)
ANOTHER = Writer(id="another", output=0, resumes=True, epoch=1_000)
RUN, NEXT_RUN = (Writer(id=run, output=0, resumes=False) for run in ("a-run", "a-later-run"))


class Killed(BaseException):
    """What a test raises where the process is to die: no handler of errors sees it."""


def of_items(items: list[dict[str, Any]], aggregates: dict[str, Any], **options: Any) -> pa.Table:
    """Return the panes of minutes of items with ``t`` and ``k``."""
    built = lw.from_iterable(
        items, time="t", key="k", watermark=lw.Ascending(), clock=lw.ManualClock(0)
    )
    return panes_of(built.window(lw.FixedWindows("1m")).aggregate(**aggregates), **options)


def panes_of(pipeline: lw.Pipeline, **options: Any) -> pa.Table:
    """Return the panes of a pipeline as sinks get them."""
    run = pipeline.run_batches(**options)
    return panes_to_table(PaneBatch.concat(list(run)), pipeline._stage.key_names)


def with_everything(epoch: int = 1, piece: int = 0, add: int = 0) -> Delivery:
    """Return a delivery with panes, late elements and dead letters."""
    return Delivery(epoch, 0, piece, *_everything(add))


@cache
def _everything(add: int) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Return panes, late elements and dead letters."""
    items: list[dict[str, Any]] = [
        {"t": i * 10 * SECOND, "k": "ab"[i % 2], "v": i + add} for i in range(20)
    ]
    items += [{"t": 0, "k": "a", "v": 3}, {"t": None, "k": "b", "v": b"\xff"}]
    pipeline = (
        lw.from_iterable(
            items, time="t", key="k", watermark=lw.Ascending(), clock=lw.ManualClock(0)
        )
        .window(lw.FixedWindows("1m"))
        .aggregate(total=lw.sum("v"), values=lw.collect("v"), mean=lw.mean("v"))
    )
    result = pipeline.collect(bundle_size=1, on_error="dead_letter")
    assert result.late
    assert result.errors
    panes = panes_of(pipeline, bundle_size=1, on_error="dead_letter")
    return panes, late_to_table(result.late), errors_to_table(result.errors)


def empty(epoch: int, piece: int = 0) -> Delivery:
    """Return a delivery of nothing."""
    return Delivery(epoch, 0, piece, with_everything().panes.slice(0, 0))


@cache
def sessions(seed: int) -> tuple[list[Delivery], dict[tuple[str, int, int], int]]:
    """Return what a retracting pipeline of sessions gives, and the batch answer.

    Sessions merge, early and late panes fire, and a delivery holds several firings. The answer is
    the sum by (key, first second, end) of each session.
    """
    random_ = random.Random(seed)
    seconds = [(random_.choice("abc"), random_.randrange(300)) for _ in range(150)]
    items = [{"t": at * SECOND, "k": key, "v": i} for i, (key, at) in enumerate(seconds)]
    run = (
        lw.from_iterable(
            items,
            time="t",
            key="k",
            watermark=lw.BoundedDisorder("100s"),
            clock=lw.ManualClock(0),
        )
        .window(
            lw.Sessions(f"{GAP}s"),
            trigger=lw.AfterWatermark(early=lw.AfterCount(1), late=lw.AfterCount(1)),
            accumulation="retracting",
            allowed_lateness="1h",
        )
        .aggregate(total=lw.sum("v"))
        .run_batches(bundle_size=3)
    )
    batches = list(run)
    deliveries = []
    epoch = 0
    while batches:
        epoch += random_.randint(1, 3)
        for piece in range(random_.randint(1, 3)):
            size = random_.randint(1, 6)
            some, batches = batches[:size], batches[size:]
            if some:
                panes = panes_to_table(PaneBatch.concat(some), ["k"])
                deliveries.append(Delivery(epoch, 0, piece, panes))
    return deliveries, _in_one_go(items)


def _in_one_go(items: Iterable[dict[str, Any]]) -> dict[tuple[str, int, int], int]:
    by_key = defaultdict(list)
    for item in items:
        by_key[item["k"]].append((item["t"] // SECOND, item["v"]))
    answer: dict[tuple[str, int, int], int] = {}
    for key, elements in by_key.items():
        start, end, total = None, 0, 0
        for at, value in sorted(elements):
            if start is not None and at < end:
                end, total = at + GAP, total + value
                continue
            if start is not None:
                answer[key, start, end] = total
            start, end, total = at, at + GAP, value
        assert start is not None
        answer[key, start, end] = total
    return answer


class Whatever:
    """A combiner that gives a value of a type that Arrow or Parquet lacks."""

    def __init__(self, *values: Any) -> None:
        self._values = values

    def create_accumulator(self) -> list[Any]:
        return []

    def add_input(self, accumulator: list[Any], value: Any) -> list[Any]:
        return [*accumulator, value]

    def merge_accumulators(self, accumulators: Iterable[list[Any]]) -> list[Any]:
        return [value for one in accumulators for value in one]

    def extract_output(self, accumulator: list[Any]) -> Any:
        return self._values[accumulator[0]]


def deliver_all(
    sink: Sink, deliveries: Iterable[Delivery], writer: Writer = WRITER, *, complete: bool = True
) -> None:
    """Open a sink, deliver and close it, as a run does."""
    sink.open(writer)
    for delivery in deliveries:
        sink.deliver(delivery)
    sink.close(complete=complete)


def message_of(sink: Sink, delivery: Delivery) -> str | None:
    """Return what a sink says as it refuses a delivery; ``None`` if it takes it."""
    try:
        sink.deliver(delivery)
    except DataError as error:
        return str(error)
    return None


@pytest.fixture
def encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sinks encode a table once in a test, however often they get it."""
    for owner, name in (
        (folders, "json_lines"),
        (file_forms, "json_lines"),
        (json_lines_file, "json_lines"),
        (file_forms.ParquetFiles, "encode"),
    ):
        monkeypatch.setattr(owner, name, _once_for_each_table(getattr(owner, name)))


def _once_for_each_table(encode: Callable[..., bytes]) -> Callable[..., bytes]:
    known: dict[int, tuple[pa.Table, bytes]] = {}  # with the tables, so that no other has their id

    def encoded(*args: Any) -> bytes:
        table = args[-1]
        if id(table) not in known:
            known[id(table)] = table, encode(*args)
        return known[id(table)][1]

    return encoded


def files_in(folder: Path) -> dict[str, bytes]:
    """Return what a reader sees in a folder: files by name, but for hidden ones."""
    if not folder.is_dir():
        return {}
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if path.is_file() and not path.name.startswith(".")
    }


class Moments:
    """Counts calls; at the one that is due, raises before or after it, and at all that follow."""

    def __init__(self, at: int, error: Callable[[], BaseException], *, after: bool) -> None:
        self._left = at
        self._error = error
        self._after = after
        self.reached = False

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function with the calls to it counted."""

        def called(*args: Any, **options: Any) -> Any:
            if self.reached:
                raise self._error()
            self._left -= 1
            self.reached = self._left < 0
            if not self.reached:
                return function(*args, **options)
            if self._after:
                function(*args, **options)
            raise self._error()

        return called


@contextmanager
def dying_in_files(at: int, *, after: bool) -> Iterator[Moments]:
    """Let the process die at the ``at``-th call that changes the file system."""
    moments = Moments(at, Killed, after=after)
    names = ("mkdir", "open", "write", "fsync", "close", "replace", "unlink", "ftruncate")
    with ExitStack() as stack:
        for name in names:
            counted = moments.around(getattr(os, name))
            stack.enter_context(mock.patch.object(os, name, counted))
        yield moments
    die()


def die() -> None:
    """Release all locks on files, as the operating system does when a process ends."""
    for lock in list(ownership._locked.values()):
        lock.release()


def staged_in(folder: Path) -> list[str]:
    """Return the names of files that are staged in a folder."""
    return [path.name for path in (folder / ".staging").iterdir() if path.name != "lock"]


@contextmanager
def dying_in_database(module: Any, moments: Moments) -> Iterator[None]:
    """Let the process die at a statement to the database whose ``connect`` the module has."""
    made: list[Any] = []
    connect = module.connect

    def mortal(*args: Any, **options: Any) -> _Mortal:
        made.append(connect(*args, **options))
        return _Mortal(made[-1], moments)

    with mock.patch.object(module, "connect", mortal):
        yield
    for connection in made:
        connection.close()


class _Mortal:
    """A connection to a database that dies at some statement; all that follow find it dead."""

    def __init__(self, connection: Any, moments: Moments) -> None:
        self._connection = connection
        self._moments = moments

    def cursor(self) -> _MortalCursor:
        return _MortalCursor(self._connection.cursor(), self._moments)

    def execute(self, *args: Any) -> Any:
        return self._connection.execute(*args)

    def close(self) -> None:
        self._connection.close()


class _MortalCursor:
    def __init__(self, cursor: Any, moments: Moments) -> None:
        self.execute = moments.around(cursor.execute)
        self.executemany = moments.around(cursor.executemany)
        self.fetchone = cursor.fetchone
