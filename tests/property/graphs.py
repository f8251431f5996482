"""Hypothesis strategies: whole pipelines, of sources that say nothing for a while and stages behind
stages.

Times are whole seconds behind one instant. Every stream has the columns ``key``, ``v`` and ``n``,
all of them ints, so that any stage can be behind any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, TypeAlias, final

import hypothesis.strategies as st
import narwhals as nw
import pyarrow as pa

import lowwater as lw
from lowwater.engine.graph.clocks import ClockLike
from lowwater.engine.graph.graph import Graph, Read, Stage, is_signed
from lowwater.engine.graph.outline import stage_outline
from lowwater.engine.graph.sources import Position
from lowwater.engine.join.joining import AS_OF_HOWS, DIRECTIONS, HOWS, UNMATCHED
from lowwater.engine.records.batch import Records
from lowwater.pipeline import Pipeline, Stream
from lowwater.pipeline.checks import inherited_lateness
from lowwater.pipeline.fluent import JoinedStream, MatchedStream, Processed
from lowwater.watermark import WatermarkEstimator

SECOND = 1_000_000
BASE = 1_000 * SECOND
PARTS = ("p", "q")
NAMES = ("at", "key", "v", "n", "part", "arrived")
SCHEMA = pa.schema(
    [(name, pa.string() if name == "part" else pa.int64()) for name in NAMES],
)
Row: TypeAlias = tuple[int, int, int, int, str, int]
Made: TypeAlias = Pipeline | Processed | JoinedStream | MatchedStream
Node: TypeAlias = Stream | Made


@final
@dataclass(frozen=True, eq=False)
class Batches:
    """A source that can be read again, whose batches are given; one without rows is a heartbeat."""

    rows: Sequence[Sequence[Row]] = field(repr=False)
    rest_seconds: float = 0.0

    schema: ClassVar[pa.Schema] = SCHEMA

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Records]:
        return (records for records, _ in self.batches_from(None, size, keys))

    def batches_from(
        self, position: Position | None, size: int, keys: tuple[str, ...]
    ) -> Iterator[tuple[Records, Position]]:
        begin = 0 if position is None else position["batch"]
        for at, rows in enumerate(self.rows[begin:], begin):
            yield records(rows, self.rest_seconds), {"batch": at + 1}


def records(rows: Sequence[Row], rest_seconds: float = 0.0) -> Records:
    """Return rows as a source gives them; without any, it says when it will look again."""
    if not rows:
        return Records({}, 0, rest_seconds=rest_seconds)
    columns = [
        pa.array(column, field.type)
        for column, field in zip(zip(*rows, strict=True), SCHEMA, strict=True)
    ]
    return Records.from_arrow(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))


class Alarms:
    """Sets, moves and clears timers, and tells of each that fires."""

    near = lw.timer()
    far = lw.timer()
    rang = lw.output()

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        v = record["v"]
        for name, at, held, tag in timers_of(v, ctx.time):
            if at is None:
                getattr(ctx, name).clear(tag=tag)
            else:
                getattr(ctx, name).set(at, output_time=held, tag=tag)
        ctx.emit({"v": v, "n": 1})

    def on_timer(self, name: str, ctx: lw.ProcessContext) -> None:
        ctx.emit({"v": ctx.due // SECOND, "n": ctx.tag or 0, "name": name}, tag="rang")
        if name == "near":
            ctx.far.set(ctx.due + 2 * SECOND)


def timers_of(v: int, time: int) -> list[tuple[str, int | None, int | None, int | None]]:
    """Return what :class:`Alarms` does with a record: name, time or ``None``, hold and tag."""
    match v % 5:
        case 0:
            return [("near", time + 3 * SECOND, time, None)]
        case 1:
            return [("far", time + 10 * SECOND, None, None)]
        case 2:
            return [("near", None, None, None)]
        case 3:
            return [("far", time - 5 * SECOND, None, v % 3), ("far", time + SECOND, time, None)]
        case _:
            return [("near", time + 6 * SECOND, time + 2 * SECOND, 1)]


@final
@dataclass(frozen=True, eq=False, repr=False)
class Drawn:
    """A pipeline with several ends, and how to run it."""

    ends: tuple[Made, ...]
    clock: ClockLike
    options: dict[str, Any]

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))

    def __repr__(self) -> str:
        graph = Graph.of([end._stage for end in self.ends])
        reads = [
            f"{getattr(read.source, 'rows', ())} {read.watermark} idle {read.idle_after_us}"
            for read in graph.reads
        ]
        stages = [stage_outline(stage) for stage in graph.stages]
        return "\n".join(["", *reads, *stages, f"{self.clock} {self.options}"])


@cache
def seconds(low: int, high: int) -> st.SearchStrategy[int]:
    """Durations of whole seconds, in microseconds."""
    return st.integers(low, high).map(lambda n: n * SECOND)


def estimators(
    parts: tuple[str, ...], *, idle: bool
) -> st.SearchStrategy[WatermarkEstimator | None]:
    """Estimators of every sort: also of partitions of which one may never come."""
    simple = st.builds(lw.BoundedDisorder, seconds(0, 6)) | st.just(lw.Ascending())
    return st.one_of(
        st.none(),
        simple,
        simple,
        st.builds(
            lw.PerPartition,
            simple,
            by=st.just("part"),
            expected=st.just(parts) if len(parts) > len(PARTS) else st.none() | st.just(parts),
            idle_after=st.none() | seconds(1, 5) if idle else st.none(),
        ),
        st.builds(lw.Quantile, st.just(0.9)),
        st.builds(lw.Punctuated, st.just("arrived")),
    )


@st.composite
def batches(draw: st.DrawFn, *, heartbeats: bool = True) -> Batches:
    """Rows whose times go up roughly, in batches, some of them empty."""
    at, arrived = 0, 0
    found: list[list[Row]] = []
    for _ in range(draw(st.integers(0, 7))):
        rows = []
        for _ in range(draw(st.integers(0 if heartbeats else 1, 4))):
            at += draw(st.integers(0, 5))
            arrived += draw(st.integers(0, 3))
            time = max(0, at + draw(st.sampled_from([0, 0, 0, -1, -4, -12, 3])))
            v, part = draw(st.integers(0, 9)), draw(st.sampled_from(PARTS))
            key = draw(st.integers(0, 2))
            rows.append((BASE + time * SECOND, key, v, 1, part, BASE + arrived * SECOND))
        found.append(rows)
    return Batches(found)


@st.composite
def drawn(
    draw: st.DrawFn,
    *,
    idle: bool = True,
    heartbeats: bool = True,
    parts: tuple[str, ...] = PARTS,
) -> Drawn:
    """Draw pipelines: sources, unions, branches, windows and processes behind one another.

    Args:
        draw: Given by Hypothesis.
        idle: Whether sources and partitions may be left out when they are silent.
        heartbeats: Whether sources may have nothing to give for a while.
        parts: The partitions that are expected, where any are.
    """
    clocks: list[ClockLike] = [lw.ManualClock(BASE), lw.ArrivalClock("arrived", tick="1s")]
    clock = draw(st.sampled_from(clocks))
    nodes: list[Node] = []
    for _ in range(draw(st.integers(1, 3))):
        silent = draw(st.none() | seconds(1, 6)) if idle else None
        source = draw(batches(heartbeats=heartbeats))
        watermark = draw(estimators(parts, idle=idle))
        nodes.append(lw.from_source(source, time="at", watermark=watermark, idle_after=silent))
    stages: list[Made] = []
    for _ in range(draw(st.integers(1, 4))):
        stream = _input(draw, nodes)
        made: Made
        match draw(st.integers(0, 8)):
            case 3:
                made = _process(draw, stream)
            case 4:
                made = _joined(draw, stream, _input(draw, nodes))
            case 5:
                made = _tabled(draw, stream, _input(draw, nodes))
            case 6:
                made = _matched(draw, stream)
            case _:
                made = _windowed(draw, stream)
        stages.append(made)
        if isinstance(made, Processed) and "rang" in made.outputs:
            nodes.append(made.output("rang"))
        if not made._stage.makes_table and _can_be_read(made):
            nodes.append(made)
    read = {flow.origin for stage in stages for flow in stage._stage.inputs}
    ends = [stage for stage in stages if stage._stage not in read or draw(st.booleans())]
    options = {
        "bundle_size": draw(st.sampled_from([1, 2, 3, 100])),
        "max_skew": draw(st.none() | st.none() | seconds(0, 9)),
    }
    return Drawn(tuple(ends), clock, options)


def null_keys_and_duplicates(*, deep: bool = True) -> Drawn:
    """Return two pipelines: outer joins of groups of which several have the key null, and a join
    of streams with duplicates.

    Args:
        deep: Whether the first outer join is joined again.
    """
    rows = [(BASE + n * SECOND, n % 4, n % 5, n % 3, "p", BASE + n * SECOND) for n in range(24)]
    read = lw.from_source(Batches([rows[:9], rows[9:12], rows[12:]]), time="at")
    source = read.select("key", "v", "n", "arrived")
    key = nw.col("key")
    table = source.table(key=("key", "n")).with_columns(some=nw.when(key > 1).then(key))
    sums = table.group_by("some").aggregate(v=lw.sum("v"))
    most = table.filter(lw.col("v") != 2).group_by("some").aggregate(n=lw.max("n"))
    joined = sums.join(most, on="some", how="outer")
    if deep:
        joined = joined.join(sums, left_on="n", right_on="v", how="outer")
    (flow,) = joined.changes()._flows
    assert isinstance(flow.origin, Stage)
    other = source.deduplicate(id=("n", "key"), within="20s")
    once = source.deduplicate(id="v", within="8s").join(
        other, on="key", within="5s", how="outer", unmatched="early"
    )
    return Drawn((Processed(flow.origin), once), lw.ArrivalClock("arrived", tick="1s"), {})


def _can_be_read(made: Made) -> bool:
    """Whether a stage may be behind it (S-C7, S-C8)."""
    windowing = made._stage.windowing
    if windowing is None or isinstance(made, Processed):
        return True
    if windowing.mode == "retracting":
        return windowing.timestamps == "end"
    return windowing.mode == "discarding"


def _input(draw: st.DrawFn, nodes: Sequence[Node]) -> Stream:
    """Return a stream: of one node, or of several with the same columns."""
    node = draw(st.sampled_from(nodes))
    stream = _stream_of(node)
    if draw(st.integers(0, 2)) == 0:
        others = [one for one in nodes if one is not node and type(one) is type(node)]
        if others:
            stream = stream | _stream_of(draw(st.sampled_from(others)))
    if draw(st.integers(0, 3)) == 0:
        stream = stream.filter(lw.col("v") % 7 != 3)
    step = draw(st.integers(0, 15))
    if step == 0:
        stream = stream.map(_more)
    elif step == 1:
        stream = stream.map_batches(_whole)
    elif step == 2 and not any(is_signed(flow) for flow in stream._flows):
        stream = stream.flat_map(_odd_ones_twice)
    elif step == 3:
        stream = stream.with_columns(n=nw.list("n", "n")).explode("n")
    return stream


def _filled(record: Any) -> Any:
    v, n = record["v"], record["n"]
    return {**record, "v": 3 if v is None else v, "n": 1 if n is None else n}


def _more(record: Any) -> Any:
    return {**record, "n": record["n"] + record["v"] % 2}


def _odd_ones_twice(record: Any) -> list[Any]:
    return [record] * (1 + record["v"] % 2)


def _key_of(record: Any) -> int:
    return int(record["key"] + record["v"] % 2)


def _whole(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def _stream_of(node: Node) -> Stream:
    if isinstance(node, JoinedStream):  # a record without a partner has nulls
        return node.map(_filled)
    return node if isinstance(node, Stream) else node.to_stream()


def _keyed(draw: st.DrawFn, stream: Stream) -> Any:
    match draw(st.integers(0, 8)):
        case 0 | 1 | 2:
            return stream.key_by(key=lw.lit(0))
        case 3:
            return stream.key_by(_key_of)
        case _:
            return stream.key_by("key")


def _perhaps_deduplicated(draw: st.DrawFn, stream: Stream) -> Any:
    """Group a stream by keys; of some streams, duplicates are dropped first."""
    if draw(st.integers(0, 5)) == 0 and not any(is_signed(flow) for flow in stream._flows):
        ids: Any = draw(st.sampled_from(["v", ("v", "key")]))
        return stream.deduplicate(id=ids, within=draw(seconds(1, 20))).key_by("key")
    return _keyed(draw, stream)


def _windowed(draw: st.DrawFn, stream: Stream) -> Pipeline:
    keyed = _perhaps_deduplicated(draw, stream)
    pipeline: Pipeline = keyed.window(
        draw(_window_functions()),
        trigger=draw(_triggers()),
        accumulation=draw(st.sampled_from(["discarding", "retracting", "accumulating"])),
        allowed_lateness=draw(_lateness(inherited_lateness(stream._flows))),
        timestamps=draw(st.sampled_from(["end", "earliest", "latest"])),
        allow_data_loss="a test",
    ).aggregate(v=lw.sum("v"), n=lw.count())
    return pipeline


@cache
def _window_functions() -> st.SearchStrategy[Any]:
    return (
        st.builds(lw.FixedWindows, seconds(1, 15))
        | st.builds(lw.SlidingWindows, seconds(4, 12), seconds(2, 4))
        | st.builds(lw.Sessions, seconds(1, 8))
    )


@cache
def _triggers() -> st.SearchStrategy[lw.Trigger]:
    late = st.none() | st.builds(lw.AfterCount, st.integers(1, 2))
    early = st.none() | st.builds(lw.AfterCount, st.integers(1, 3)) | _patience()
    return (
        st.builds(lw.AfterWatermark, early=early, late=late)
        | st.just(lw.Default())
        | st.builds(lw.Repeatedly, st.builds(lw.AfterCount, st.integers(1, 4)))
    )


def _lateness(least: int) -> st.SearchStrategy[int]:
    return st.just(least) | seconds(0, 10).map(lambda us: us + least)


def _process(draw: st.DrawFn, stream: Stream) -> Processed:
    order = draw(st.sampled_from(["arrival", "arrival", "event_time"]))
    made: Processed = _perhaps_deduplicated(draw, stream).process(Alarms(), order=order)
    return made


_PATTERNS: dict[str, tuple[str, ...]] = {
    "low up+": ("up",),
    "low .. top": ("top",),
    "low (up | top)+? any": ("up", "top"),
    "low up{1,2} | top": ("up", "top"),
    "low more*": ("more",),
}
"""Patterns, with their variables that have a condition."""


def _matched(draw: st.DrawFn, stream: Stream) -> MatchedStream:
    text = draw(st.sampled_from([*_PATTERNS]))
    conditions: dict[str, Any] = {
        "up": lw.col("v") > lw.prev("v"),
        "top": lw.col("v") > 6,
        "more": lw.col("v") >= lw.matched().first("v"),
    }
    without = None
    if draw(st.integers(0, 4)) == 0:
        without = lw.absent(lw.col("v") == 2, within=draw(seconds(0, 5)))
    keyed = _perhaps_deduplicated(draw, stream)
    made: MatchedStream = keyed.match(
        text,
        define={name: conditions[name] for name in _PATTERNS[text]},
        measures={"v": lw.sum("v"), "n": lw.count()},
        within=draw(seconds(0, 12)),
        skip=draw(st.sampled_from(["past_last", "next", ("last", "low")])),
        emit=draw(st.sampled_from(["on_time", "on_time", "final", "early"])),
        allowed_lateness=draw(_lateness(inherited_lateness(stream._flows))),
        order=draw(st.sampled_from([None, "v"])),
        without=without,
    )
    return made


def _tabled(draw: st.DrawFn, stream: Stream, other: Stream) -> Made:
    """Return a table of upserts, two joined, or one aggregated; windows, if there are none."""
    if any(map(is_signed, (*stream._flows, *other._flows))):
        return _windowed(draw, stream)
    order = draw(st.sampled_from([None, "n"]))
    ttl = draw(st.none() | seconds(1, 9))
    table = _chosen(stream).table(
        key="v", order=order, deleted=draw(st.sampled_from([None, lw.col("v") == 4])), ttl=ttl
    )
    joins, groups, has_nulls = draw(st.booleans()), draw(st.booleans()), draw(st.booleans())
    key = nw.col("key")
    if has_nulls:
        table = table.with_columns(key=nw.when(key != 1).then(key))
    if joins:
        one = _chosen(other).table(
            key="key" if not has_nulls else "v", keep_deleted=draw(seconds(0, 9))
        )
        if has_nulls:
            one = one.with_columns(key=nw.when(key != 2).then(key))
        on = draw(st.sampled_from(["key", ("key", "n")]))
        table = table.join(one, on=on, how=draw(st.sampled_from(HOWS)))
    if groups:
        by = ("key", "v_right") if "v_right" in (table.columns or ()) else ("key",)
        table = table.group_by(*by).aggregate(total=lw.sum("v"), n=lw.count())
    (flow,) = table.changes()._flows
    assert isinstance(flow.origin, Stage)
    return Processed(flow.origin)


def _joined(draw: st.DrawFn, left: Stream, right: Stream) -> JoinedStream:
    match draw(st.integers(0, 4)):
        case 0:
            return _joined_as_of(draw, left, right)
        case 1 | 2:
            return _joined_in_windows(draw, left, right)
    how: Any = draw(st.sampled_from(HOWS))
    low, length = draw(st.integers(-6, 6)), draw(st.integers(0, 6))
    unmatched: Any = "final"
    if how not in ("inner", "semi"):
        unmatched = draw(st.sampled_from(UNMATCHED))
    least = inherited_lateness((*left._flows, *right._flows))
    return _for_a_join(draw, left).join(
        _for_a_join(draw, right),
        on="key",
        within=lw.between(f"{low}s", f"{low + length}s"),
        how=how,
        unmatched=unmatched,
        allowed_lateness=draw(st.just(least) | seconds(0, 10).map(lambda us: us + least)),
    )


def _joined_in_windows(draw: st.DrawFn, left: Stream, right: Stream) -> JoinedStream:
    flows = (*left._flows, *right._flows)
    signed = any(map(is_signed, flows))
    modes: list[Any] = ["retracting", "accumulating", *([] if signed else ["discarding"])]
    how: Any = draw(st.sampled_from(HOWS))
    return _chosen(left).join(
        _chosen(right),
        on="key",
        within=draw(_window_functions()),
        how=how,
        trigger=draw(_triggers()),
        accumulation=draw(st.sampled_from(modes)),
        allowed_lateness=draw(_lateness(inherited_lateness(flows))),
        timestamps=draw(st.sampled_from(["end", "end", "earliest", "latest"])),
        allow_data_loss="a test",
    )


def _joined_as_of(draw: st.DrawFn, facts: Stream, versions: Stream) -> JoinedStream:
    flows = (*facts._flows, *versions._flows)
    corrects = any(map(is_signed, flows)) or draw(st.booleans())
    least = inherited_lateness(flows)
    direction = draw(st.sampled_from(DIRECTIONS))
    some = seconds(1, 6)
    return _for_a_join(draw, facts).join_as_of(
        _for_a_join(draw, versions),
        on="key",
        how=draw(st.sampled_from(AS_OF_HOWS)),
        order=draw(st.sampled_from([None, "v"])),
        direction=direction,
        allow_equal=draw(st.booleans()),
        tolerance=draw(st.none() | some if direction == "backward" else some),
        late_versions="correct" if corrects else "ignore",
        keep=draw(st.just(least) | seconds(0, 10).map(lambda us: us + least)),
    )


def _for_a_join(draw: st.DrawFn, stream: Stream) -> Stream:
    """Return a stream whose columns are known, of some streams without duplicates."""
    stream, signed = _chosen(stream), any(is_signed(flow) for flow in stream._flows)
    if draw(st.integers(0, 3)) == 0 and not signed:
        ids: Any = draw(st.sampled_from(["v", ("v", "key")]))
        return stream.deduplicate(id=ids, within=draw(seconds(1, 20)))
    return stream


def _chosen(stream: Stream) -> Stream:
    """Return a stream whose columns are known before it runs."""
    reads = any(isinstance(flow.origin, Read) for flow in stream._flows)
    return stream.select("key", "v", "n", *(("arrived",) if reads else ()))


@cache
def _patience() -> st.SearchStrategy[lw.Trigger]:
    return st.builds(lw.AfterProcessingTime, seconds(0, 5))
