"""Records with the advances between them, and runs that cut them into bundles of any size.

A run here differs from another in how it cuts records into bundles, in nothing else: watermarks and
the clock advance between the same records (J-2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar, Literal, TypeAlias, final
from unittest import mock

import numpy as np
import pyarrow as pa

import lowwater as lw
from lowwater.engine.graph.graph import Graph, Read, Stage
from lowwater.engine.graph.sources import Position
from lowwater.engine.local import worker_pool
from lowwater.engine.local.outcomes import Outcome
from lowwater.engine.records.batch import Records
from lowwater.engine.records.steps import PaneBatch
from lowwater.engine.stages.windowed import Windowed
from lowwater.engine.window.standing import Replaced, standing
from lowwater.io.in_memory import IterableSource
from lowwater.pipeline import Stream
from lowwater.pipeline.forms import ElementForm, PaneForm
from lowwater.pipeline.outcomes import Outcomes, RunOptions
from lowwater.pipeline.tables import Table
from lowwater.state.codec import decode, encode
from lowwater.state.memory import MemoryContents, MemoryStore
from lowwater.state.store import Batch
from lowwater.time import Instant
from tests.property.simulated_workers import SimulatedWorkers

SECOND = 1_000_000
BASE = 1_700_000_000 * SECOND


def span(rows: int) -> int:
    """Return how much event time records cover: as much for few as for 4,000, then more."""
    return 1_000 * SECOND * max(1, rows // 4_000)


Written: TypeAlias = Literal["arrow", "python"]
"""How records come: as typed columns, or as Python values, of which some cannot be used."""

# -- what arrives --------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Move:
    """What happens next: rows of an input come, or time advances.

    Args:
        of: The input whose rows come; ``None``: none come.
        start: The first of its rows.
        stop: The row after the last one.
        watermarks: Where the watermark of each input is afterwards.
        clock: Where the clock is afterwards.
    """

    of: int | None = None
    start: int = 0
    stop: int = 0
    watermarks: tuple[int, ...] = ()
    clock: int | None = None


@final
@dataclass(frozen=True, eq=False)
class Arrivals:
    """The records of each input, and in which order they and the advances of time come.

    The input ends after the last move.
    """

    tables: tuple[pa.Table, ...]
    moves: tuple[Move, ...]
    written: Written

    @property
    def rows(self) -> int:
        """How many records there are in all."""
        return sum(table.num_rows for table in self.tables)

    @cache  # noqa: B019  # made once for each test, and as long-lived as its module
    def python_rows(self, nth: int) -> list[dict[str, Any]]:
        """Return the records of an input as Python values, some of which cannot be used."""
        return _with_unusable(self.tables[nth].to_pylist())

    def records(self, nth: int, start: int, stop: int) -> Records:
        """Return some records of an input as a reader gives them."""
        if self.written == "arrow":
            (batch,) = self.tables[nth].slice(start, stop - start).combine_chunks().to_batches()
            return Records.from_arrow(batch)
        rows = self.python_rows(nth)[start:stop]
        (records,) = IterableSource(rows, {}).batches(len(rows) + 1, ())
        return records


@cache
def arrivals(rows: int, inputs: int = 1, written: Written = "arrow", seed: int = 1) -> Arrivals:
    """Return records whose times, keys and values are about as real ones.

    Most come in the order of their times, some behind the watermark; keys are skewed, times tie,
    values may be null. Almost half of the records wait for one advance of the watermark, and all
    that is left for the end of the input.

    Args:
        rows: How many records each input has.
        inputs: How many inputs there are.
        written: How they come.
        seed: Chooses the values.
    """
    tables = tuple(_table(rows, seed + nth) for nth in range(inputs))
    moves: list[Move] = []
    cuts = [0.02, 0.46, 0.5, 0.55, 0.97, 1.0]
    done, clock = [0] * inputs, BASE
    for turn, cut in enumerate(cuts):
        for nth in range(inputs):
            stop = round(rows * cut)
            moves.append(Move(nth, done[nth], stop))
            done[nth] = stop
        clock = BASE + round(span(rows) * cut)
        behind = [clock - (30 + 20 * nth) * SECOND for nth in range(inputs)]
        if turn == len(cuts) - 1:
            break  # what is left waits for the end
        if turn % 2:
            moves.append(Move(clock=clock))
        moves.append(Move(watermarks=tuple(behind)))
    return Arrivals(tables, tuple(moves), written)


def _table(rows: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    step = span(rows) // rows
    arrived = BASE + np.arange(rows) * step
    late = random.random(rows)
    times = arrived - (random.exponential(8, rows) * SECOND).astype(np.int64)
    times -= np.where(late < 0.05, (random.random(rows) * 300 * SECOND).astype(np.int64), 0)
    times -= times % (4 * step)  # ties
    number = np.arange(rows)
    keys = np.minimum(random.zipf(1.4, rows), max(4, min(60, rows // 20)))
    v = random.integers(-50, 1_000, rows)
    big = np.where(random.random(rows) < 0.1, 2**53 + 1, 0) + v

    def some(values: Any, type_: pa.DataType, nulls: float) -> pa.Array:
        return pa.array(values, type_, mask=random.random(rows) < nulls)

    return pa.table(
        {
            "time": pa.array(times, pa.timestamp("us", "UTC")),
            "k": some([f"key {key}" for key in keys], pa.string(), 0.01),
            "i": pa.array((keys * 7) % 11, pa.int64()),
            "g": pa.array(number % max(1, rows // 1_500), pa.int64()),  # so that few join
            "f": pa.array(keys / 2, pa.float64()),
            "n": pa.array(number, pa.int64()),
            "v": some(v, pa.int64(), 0.05),
            "x": some(v / 8, pa.float64(), 0.05),
            "big": some(big, pa.int64(), 0.02),
            "b": some(v % 3 == 0, pa.bool_(), 0.05),
            "s": some([f"text {n % 17}" for n in v], pa.string(), 0.05),
            "day": pa.array(number % 5 + 19_000, pa.int32()).cast(pa.date32()),
            "id": pa.array(np.where(random.random(rows) < 0.1, number // 2, number), pa.int64()),
            "gone": pa.array(random.random(rows) < 0.1, pa.bool_()),
            "version": some(number + random.integers(-40, 40, rows), pa.int64(), 0.02),
        }
    )


def _with_unusable(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of which some have a value that no step or stage can take."""
    for at, row in enumerate(rows):
        if at % 97 == 13:
            row["time"] = [None, "soon", 1.5, float("nan")][at // 97 % 4]
        elif at % 97 == 31:
            row["v"] = ["n/a", float("nan"), [1], None][at // 97 % 4]
        elif at % 97 == 57:
            row["k"] = [float("nan"), {"a": 1}, None, [2]][at // 97 % 4]
        elif at % 97 == 71:
            row["x"] = [1, "text", True, b"bytes"][at // 97 % 4]
        elif at % 97 == 83:
            row["k"] = [1, ("a", 2), True, 2.5][at // 97 % 4]  # keys of other types
    return rows


@final
@dataclass(frozen=True, eq=False, repr=False)
class Handed:
    """A source whose records the driver of a run hands over."""

    schema: pa.Schema | None
    name: str
    endless: ClassVar[bool] = False

    def __repr__(self) -> str:
        return f"Handed({self.name})"

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Records]:
        raise AssertionError("nothing is read: the driver hands records over")

    def batches_from(
        self, position: Position | None, size: int, keys: tuple[str, ...]
    ) -> Iterator[tuple[Records, Position]]:
        raise AssertionError("nothing is read: the driver hands records over")


# -- what comes out ------------------------------------------------------------------------------

Content: TypeAlias = Literal["all", "final", "untimed", "last"]
"""What of an output is the same for any bundles.

``all``: the net of what was emitted, with the panes' labels, and where time stands after each
advance. ``final``: what stands of panes, where how often a window fires depends on bundles (S-O1).
``untimed``: the net without its event times, where these are those of such panes or of a table's
group (T-3), and without the order of lists, as groups get rows of several keys (S-K1). ``last``:
the rows that are left, where a table's changes are one record for each bundle and key (T-4).
"""


@final
@dataclass
class Given:
    """What a run gave, as multisets of text."""

    emitted: Counter[str] = field(default_factory=Counter)
    late: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    counts: dict[str, Any] = field(default_factory=dict)
    stood: list[tuple[Any, ...]] = field(default_factory=list)
    spreads: dict[str, list[tuple[float, ...]]] = field(default_factory=dict)

    def check_equal(self, other: Given, *, stood: bool = True) -> None:
        """Raise an assertion that shows what differs.

        Args:
            other: What another run gave.
            stood: Whether time and the number of state rows are compared after each advance.
        """
        for name in ("errors", "late", "emitted"):
            mine, its = getattr(self, name), getattr(other, name)
            if mine != its:
                lost, added = mine - its, its - mine
                raise AssertionError(
                    f"{name}: {lost.total()} of {mine.total()} are gone, {added.total()} are new\n"
                    + "\n".join(f"  gone {one}" for one in sorted(lost)[:4])
                    + "\n"
                    + "\n".join(f"  new  {one}" for one in sorted(added)[:4])
                )
        assert self.counts == other.counts
        for text, spreads in self.spreads.items():
            assert np.allclose(sorted(spreads), sorted(other.spreads[text]), rtol=1e-9), text
        assert not stood or self.stood == other.stood


@final
class _Taken:
    """Collects the outcomes of a run."""

    def __init__(self, ends: Sequence[Stage], content: Content, run: Any) -> None:
        self.given = Given()
        self._content = content
        self._ends = [(run.graph.stages.index(end), end) for end in ends]
        self._panes: dict[int, list[PaneBatch]] = {number: [] for number, _ in self._ends}
        self._replaced: dict[int, list[Replaced]] = {number: [] for number, _ in self._ends}
        self._last: dict[Any, str] = {}

    def add(self, outcomes: Iterator[Outcome]) -> Iterator[Outcome]:
        for outcome in outcomes:
            self._add(outcome)
            yield outcome

    def _add(self, outcome: Outcome) -> None:
        given = self.given
        if outcome.late is not None:
            given.late.update(
                f"{outcome.stage} {replace(late, key=_key(late.key))}"
                for late in outcome.late.to_records()
            )
        given.errors.update(
            f"{error.reason} {error.detail} {error.record!r}" for error in outcome.errors
        )
        for number, end in self._ends:
            if outcome.stage != number:
                continue
            if outcome.panes is not None:
                before = sum(map(len, self._panes[number]))
                self._replaced[number].extend(Replaced(each, before) for each in outcome.replaced)
                self._panes[number].append(outcome.panes)
            for output in end.work.outputs:
                form = ElementForm(end.key_names, output)
                batch = form.batch_of(outcome)
                for one in () if batch is None else form.items(batch):
                    key = _key(one.key)
                    text = f"{number} {output} {key!r} {one.timestamp} {one.value!r}"
                    if self._content == "untimed":
                        value = _sorted(_without_spreads(one.value)[0])
                        text = f"{number} {output} {key!r} {value!r}"
                    if self._content == "last":
                        self._note_row(one.value)
                    else:
                        given.emitted[text] += 1 if one.kind == "insert" else -1

    def _note_row(self, record: Any) -> None:
        """Take a record of a table's changes, of either form, as the row of its key."""
        is_upsert = "deleted" in record
        row = record if is_upsert else record["after"] or record["before"]
        if record["deleted"] if is_upsert else record["after"] is None:
            self._last.pop(row["row"], None)
        else:
            self._last[row["row"]] = repr(row)

    def finish(self) -> Given:
        given = self.given
        for number, end in self._ends:
            batches = self._panes[number]
            if self._content == "final" and isinstance(end.work, Windowed):
                replaced = self._replaced[number]
                work = end.work
                batches = standing(batches, replaced, work.windowing, work.aggregates)
            form = PaneForm(end.key_names)
            # Which part of a merged session came first, its panes do not tell.
            is_mixed = self._content == "final" and _is_mixed(end)
            for batch in batches:
                for whole in form.items(batch):
                    values, spreads = _without_spreads(whole.values)
                    pane = replace(whole, key=_key(whole.key), values=values)
                    text = f"{number} {pane}"
                    if self._content == "final":
                        values = _sorted(values) if is_mixed else values
                        text = f"{number} {pane.key!r} {pane.window} {values}"
                    given.emitted[text] += 1
                    if spreads:
                        given.spreads.setdefault(text, []).append(spreads)
        given.emitted.update(self._last.values())
        given.emitted = Counter({text: n for text, n in given.emitted.items() if n})
        return given


def _is_mixed(end: Stage) -> bool:
    windowing = end.windowing
    merges = windowing is not None and windowing.merging is not None
    return merges and windowing is not None and windowing.mode == "discarding"


def _sorted(value: Any) -> Any:
    """Return a record with its lists in an order of their own."""
    return {
        name: sorted(each, key=repr) if isinstance(each, list) else each
        for name, each in value.items()
    }


def _without_spreads(values: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[float, ...]]:
    """Return results without variances, and these: their last digits depend on how they add up."""
    if "var" not in values:
        return values, ()
    others = {name: value for name, value in values.items() if name not in ("var", "std")}
    return others, tuple(-1.0 if values[n] is None else values[n] for n in ("var", "std"))


def _key(key: Any) -> Any:
    """Return a key as one of those that equal it.

    Which of ``1``, ``1.0`` and ``True`` a key is that comes again depends on whether the engine had
    forgotten it, because nothing of it was kept.
    """
    if isinstance(key, tuple):
        return tuple(map(_key, key))
    if isinstance(key, float):
        return int(key) if key.is_integer() else key
    return int(key) if isinstance(key, bool) else key


# -- runs ----------------------------------------------------------------------------------------

Build: TypeAlias = Callable[..., Any]
"""Builds a pipeline, a process, a table, a stream, or a tuple of such, from one stream each."""


def run(
    build: Build,
    what: Arrivals,
    size: int,
    *,
    content: Content = "all",
    batch: int | None = None,
    restarts: int | None = None,
    memory: int | None = None,
    workers: int | None = None,
) -> Given:
    """Run a pipeline over records that are cut into bundles of a size.

    Args:
        build: Builds it.
        what: The records and the advances between them.
        size: The largest number of records in a bundle.
        content: What of the output is returned.
        batch: How many records a batch of the source has; ``None``: as many as a bundle.
        restarts: After how many turns each the run is stopped and resumed; ``None``: never.
        memory: The limit of memory for its state, in bytes.
        workers: How many workers call its Python; they are simulated.
    """
    driven = _Driven(build, what, size, content, restarts, memory, workers)
    return driven.to_the_end(size if batch is None else batch)


class _Driven:
    def __init__(
        self,
        build: Build,
        what: Arrivals,
        size: int,
        content: Content,
        restarts: int | None,
        memory: int | None,
        workers: int | None,
    ) -> None:
        self._build, self._what, self._size = build, what, size
        self._content, self._restarts, self._memory = content, restarts, memory
        self._workers = workers
        self._durable = restarts is not None or memory is not None
        self._contents = MemoryContents()
        self._clock = lw.ManualClock(BASE)
        self._turns = 0
        self._taken: _Taken | None = None
        self._begin(None)

    def _begin(self, known: Any) -> None:
        what = self._what
        self._marks = [lw.External() for _ in what.tables]
        streams = []
        for nth, mark in enumerate(self._marks):
            schema = what.tables[nth].schema if what.written == "arrow" else None
            streams.append(
                lw.from_source(Handed(schema, f"input {nth}"), time="time", watermark=mark)
            )
            if schema is None:  # as of a list that was looked at
                names = tuple(what.tables[nth].column_names)
                streams[-1] = replace(streams[-1], _names=names)
        ends = stages_of(self._build(*streams))
        options: RunOptions = {
            "clock": self._clock,
            "on_error": "dead_letter",
            "progress": False,
            "bundle_size": self._size,
        }
        if self._workers is not None:
            options["workers"] = self._workers
        with mock.patch.object(worker_pool, "Workers", SimulatedWorkers):
            outcomes = Outcomes(ends, options, durable=self._durable, memory=self._memory)
        self._run = outcomes.local
        graph = self._run.graph
        reads = [stream._flows[0].origin for stream in streams]
        self._source = [graph.reads.index(read) for read in reads if isinstance(read, Read)]
        if not self._durable:
            self._run.report_replaced()
        if self._taken is None:
            self._taken = _Taken(ends, self._content, self._run)
        self._store = MemoryStore(self._contents)
        if self._durable:
            self._run.resume(self._store, known)

    def to_the_end(self, size: int) -> Given:
        assert self._taken is not None
        for move in self._what.moves:
            if move.clock is not None:
                self._clock.advance_to(Instant(move.clock))
            for mark, to in zip(self._marks, move.watermarks, strict=False):
                mark.advance_to(Instant(to))
            if move.of is None:
                self._turn(self._run.give(self._source[0], Records({}, 0)))
                self._note()
                continue
            for start in range(move.start, move.stop, size):
                stop = min(start + size, move.stop)
                records = self._what.records(move.of, start, stop)
                self._turn(self._run.give(self._source[move.of], records))
                if self._restarts is not None and self._turns % self._restarts == 0:
                    self._restart()
        self._turn(self._run.end_of(*self._source))
        given = self._taken.finish()
        metrics = self._run.metrics
        given.counts = {
            "duplicates": metrics.duplicates,
            "superseded": metrics.superseded,
            "late": dict(metrics.late),
            "errors": dict(metrics.errors),
        }
        assert self._run.state_rows == 0 or self._run.ended
        return given

    def _turn(self, outcomes: Iterator[Outcome]) -> None:
        assert self._taken is not None
        for outcome in self._taken.add(outcomes):
            if self._memory is not None and outcome.boundary and self._run.is_over:
                self._commit()
        self._turns += 1

    def _commit(self) -> Any:
        batch = Batch()
        known = encode(self._run.save(batch))
        self._store.commit(batch)
        return known

    def _restart(self) -> None:
        known = self._commit()
        marks = self._marks
        self._begin(decode(known))
        for new, old in zip(self._marks, marks, strict=True):
            new.advance_to(old.at)

    def _note(self) -> None:
        """Note where time stands after an advance, and how much state there is."""
        assert self._taken is not None
        stood = [(int(each.input), int(each.output)) for each in self._run.watermarks()]
        rows = self._run.state_rows if self._memory is None else None
        if self._content == "all":
            self._taken.given.stood.append((*stood, rows))


def stages_of(built: Any) -> list[Stage]:
    """Return the stages that what a case has built ends in."""
    found: list[Stage] = []
    for each in built if isinstance(built, tuple) else (built,):
        end = each
        if isinstance(end, Table):
            end = end.changes()
        if isinstance(end, Stream):
            flow = end._flows[0]
            plain = len(end._flows) == 1 and not flow.steps and isinstance(flow.origin, Stage)
            found.append(flow.origin if plain and isinstance(flow.origin, Stage) else end._stage)
        else:
            found.append(end._stage)
    return list(dict.fromkeys(found))


def graph_of(build: Build, inputs: int = 1) -> Graph:
    """Return the graph of what a case builds, over inputs with the columns of :func:`arrivals`."""
    schema = arrivals(40, 1).tables[0].schema
    streams = [lw.from_source(Handed(schema, f"input {nth}"), time="time") for nth in range(inputs)]
    return Graph.of(stages_of(build(*streams)))
