"""The scene of a join: both inputs as lanes, and the pairs between them.

Each lane has event time to the right and processing time upwards, as the scene of a windowed stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast, final

import numpy as np

from lowwater.engine.graph.trace import StageTrace, TracedElement, TracedPair, TracedSide
from lowwater.engine.join.joining import AsOf, Joining
from lowwater.engine.keyed.sides import LEFT, RIGHT
from lowwater.engine.local.traced_columns import TraceColumns
from lowwater.errors import InvalidArgument, nearest
from lowwater.time import (
    END_OF_TIME,
    START_OF_TIME,
    Instant,
    Int64Array,
    format_duration,
    saturating_add,
)
from lowwater.viz._panel import evenly, fair_share
from lowwater.viz.axes import MOST_STEPS, TraceOrdinates, span_of, visible_steps
from lowwater.viz.match_scene import MatchScene
from lowwater.viz.scene import Mark, Scene, Span, WatermarkStep
from lowwater.viz.words import (
    element_title,
    key_text,
    move_title,
    pair_title,
    reason_text,
    value_text,
    watermark_text,
)

_FRONTIERS = {False: "released", True: "dropped"}
MOST_RECORDS = 200
"""How many records are drawn, of all keys together."""
MOST_LINKS = 300
"""How many pairs are drawn, of all keys together."""


@final
@dataclass(frozen=True, slots=True)
class Link:
    """A pair: a line from a record of the left lane to one of the right.

    Args:
        left: The index of the left record among the marks of its lane.
        right: That of the right record.
        y: When it was emitted.
        retracted: When it was retracted; ``None`` if it stands.
        title: A description.
    """

    left: int
    right: int
    y: int
    retracted: int | None
    title: str


@final
@dataclass(frozen=True, slots=True)
class Alone:
    """A record that came out by itself: with nulls for its partner, or of a semi or anti join.

    Args:
        mark: The index of the record among the marks of its lane.
        y: When it was emitted.
        retracted: When it was retracted; ``None`` if it stands.
        title: A description.
    """

    mark: int
    y: int
    retracted: int | None
    title: str


@final
@dataclass(frozen=True, slots=True)
class Lane:
    """One side of a join.

    Args:
        name: The side.
        marks: Its records.
        alone: Those that came out by themselves.
        watermark: Its own watermark.
        frontier: Records before it are released (J-3), or dropped as late (J-9); empty if they
            never are.
    """

    name: str
    marks: tuple[Mark, ...]
    alone: tuple[Alone, ...]
    watermark: tuple[WatermarkStep, ...]
    frontier: tuple[WatermarkStep, ...]


@final
@dataclass(frozen=True, slots=True)
class JoinPanel:
    """The content of one key: both lanes and the links between them."""

    name: str
    left: Lane
    right: Lane
    links: tuple[Link, ...]
    notes: tuple[str, ...] = ()

    @property
    def lanes(self) -> tuple[Lane, Lane]:
        """Both lanes, the left side first."""
        return self.left, self.right


@final
@dataclass(frozen=True, slots=True)
class JoinScene:
    """The content of the diagram of a join.

    Args:
        title: The stage and its rules.
        x: The range of event times.
        y: The range of processing times, or of steps.
        steps: Whether ``y`` counts steps, because the clock hardly moved.
        watermark: The watermark of the join, the lower of both sides.
        panels: One for each key that is drawn.
        headed: Whether each panel has its key as a heading: if there are several keys.
        alone: What a record that came out by itself is called.
        frontier: What happens to records before the frontier of their lane.
        notes: What is left out, in words.
    """

    title: str
    x: Span
    y: Span
    steps: bool
    watermark: tuple[WatermarkStep, ...]
    panels: tuple[JoinPanel, ...]
    headed: bool
    alone: str
    frontier: str
    notes: tuple[str, ...] = field(default=())

    @property
    def frames(self) -> tuple[int, ...]:
        """The moments at which something appears in the picture, ascending."""
        moments = {step.y for step in self.watermark if step.y > self.y.low}
        for panel in self.panels:
            moments.update(link.y for link in panel.links)
            moments.update(link.retracted for link in panel.links if link.retracted is not None)
            for lane in panel.lanes:
                moments.update(mark.y for mark in lane.marks)
                moments.update(one.y for one in lane.alone)
                moments.update(o.retracted for o in lane.alone if o.retracted is not None)
        return tuple(sorted({self.y.clip(moment) for moment in moments}))


AnyScene: TypeAlias = Scene | JoinScene | MatchScene
"""The content of any diagram."""


def join_scene(
    trace: StageTrace,
    columns: TraceColumns,
    chosen: Sequence[int],
    *,
    column: str | None,
    stretch: Span | None,
    headed: bool,
    notes: Sequence[str],
) -> JoinScene:
    """Return the scene of a join. O(n log n) in records and pairs.

    Args:
        trace: The trace of the stage.
        columns: Its elements.
        chosen: The numbers of the keys to draw.
        column: The column whose values are written at records; by default the first of each side
            that is neither a key nor a time.
        stretch: The event times to draw; ``None`` for all.
        headed: Whether there are several keys.
        notes: What is left out, in words.

    Raises:
        InvalidArgument: No record has such a column.
    """
    joining = trace.joining
    assert joining is not None
    _check_column(trace, column)
    ordinates = TraceOrdinates.of(trace, columns)
    x = stretch or span_of(columns.elements.time, 25)
    moments = np.concatenate([ordinates.elements, ordinates.pairs])
    y = span_of(moments if len(moments) else ordinates.moves, 8)
    watermark = tuple(_steps(trace, ordinates, None))
    limits = _Limits.of(trace, columns, chosen, x, y)
    panels = [
        _PanelOf(trace, columns, ordinates, key, stretch, column, limits).build(watermark)
        for key in chosen
    ]
    return JoinScene(
        title=_title(trace.name, joining),
        x=x,
        y=y,
        steps=ordinates.steps,
        watermark=visible_steps(watermark, x, y, limits.steps),
        panels=tuple(panels),
        headed=headed,
        alone=_alone_name(joining),
        frontier=_FRONTIERS[isinstance(joining, AsOf)],
        notes=tuple(notes),
    )


@final
@dataclass(frozen=True, slots=True)
class _Limits:
    """How much of each kind a panel shows, so that a picture of a long run stays small.

    Args:
        records: The most records.
        links: The most pairs.
        steps: About the most steps of a watermark.
        x, y: The axes.
    """

    records: int
    links: int
    steps: int
    x: Span
    y: Span

    @classmethod
    def of(
        cls, trace: StageTrace, columns: TraceColumns, keys: Sequence[int], x: Span, y: Span
    ) -> _Limits:
        """Return the limits of each panel, such that the panels together keep to them."""
        many = max(1, len(keys))
        return cls(
            fair_share(MOST_RECORDS, columns.elements.of_keys(len(columns.keys))[keys].tolist()),
            MOST_LINKS if many == 1 else fair_share(MOST_LINKS, [len(trace.pairs)] * many),
            MOST_STEPS // many,
            x,
            y,
        )

    def visible(self, steps: Sequence[WatermarkStep]) -> tuple[WatermarkStep, ...]:
        """Return the steps of a watermark that are large enough to see."""
        return visible_steps(steps, self.x, self.y, self.steps)


@final
class _PanelOf:
    """Collects the records and pairs of one key."""

    def __init__(
        self,
        trace: StageTrace,
        columns: TraceColumns,
        ordinates: TraceOrdinates,
        key: int,
        stretch: Span | None,
        column: str | None,
        limits: _Limits,
    ) -> None:
        self._trace, self._ordinates, self._column = trace, ordinates, column
        self._most, self._key = limits, columns.keys[key]
        is_drawn = columns.elements.key == key
        if stretch is not None:
            time = columns.elements.time
            is_drawn &= (time >= stretch.low) & (time < stretch.high)
        drawn = self._chosen(np.flatnonzero(is_drawn), limits.records)
        self._left_out = int(is_drawn.sum()) - len(drawn)
        self._of: dict[TracedSide, list[int]] = {
            side: [at for at in drawn if trace.elements[at].side == side]
            for side in ("left", "right")
        }
        self._place = {
            at: place for elements in self._of.values() for place, at in enumerate(elements)
        }

    def _chosen(self, rows: Int64Array, most: int) -> list[int]:
        """Return the elements to draw, spread over the run; pairs stay together."""
        if len(rows) <= most:
            return cast("list[int]", rows.tolist())
        own = set(rows.tolist())
        pairs = [
            (pair.left, pair.right)
            for pair in self._trace.pairs
            if pair.left in own and pair.right in own
        ]
        chosen: set[int] = set()
        # Half of the records are those of pairs, as long as there are any; the rest are any.
        for at in evenly(len(pairs), most // 4).tolist():
            chosen.update(cast("tuple[int, int]", pairs[at]))
        others = np.array([row for row in rows.tolist() if row not in chosen])
        return sorted([*chosen, *others[evenly(len(others), most - len(chosen))].tolist()])

    def build(self, watermark: tuple[WatermarkStep, ...]) -> JoinPanel:
        links: list[Link] = []
        alone: dict[TracedSide, list[Alone]] = {"left": [], "right": []}
        for pair, y, retracted in self._pairs():
            title = pair_title(self._trace, pair)
            ends = [self._place.get(at) for at in (pair.left, pair.right) if at is not None]
            if None in ends:
                continue
            left = None if pair.left is None else self._place[pair.left]
            right = None if pair.right is None else self._place[pair.right]
            if left is not None and right is not None:
                links.append(Link(left, right, y, retracted, title))
            elif left is not None:
                alone["left"].append(Alone(left, y, retracted, title))
            elif right is not None:
                alone["right"].append(Alone(right, y, retracted, title))
        notes = []
        if self._left_out:
            notes.append(f"{self._left_out:,} more records are not shown: narrow between=")
        most = self._most.links
        if len(links) > most:
            notes.append(f"{len(links) - most:,} of {len(links):,} pairs are not shown")
            links = [links[at] for at in evenly(len(links), most).tolist()]
        return JoinPanel(
            key_text(self._key),
            self._lane("left", alone["left"], watermark),
            self._lane("right", alone["right"], watermark),
            tuple(links),
            tuple(notes),
        )

    def _lane(
        self, side: TracedSide, alone: Sequence[Alone], watermark: tuple[WatermarkStep, ...]
    ) -> Lane:
        joining = self._trace.joining
        assert joining is not None
        names = ("facts", "versions") if isinstance(joining, AsOf) else ("left", "right")
        name, inputs = names[side == "right"], self._trace.inputs
        if len(inputs) == len(names):  # else a side is a union, or both are of one origin
            own = inputs[side == "right"]
            name = name if own == name else f"{name}: {own}"
        mark = tuple(_steps(self._trace, self._ordinates, side))
        return Lane(
            name,
            tuple(self._mark(at) for at in self._of[side]),
            tuple(alone),
            self._most.visible(mark) if _places(mark) != _places(watermark) else (),
            self._most.visible(tuple(_frontier(joining, side, watermark))),
        )

    def _mark(self, at: int) -> Mark:
        element = self._trace.elements[at]
        name = self._column
        if name is None or name not in element.values:
            name = _first_column(element, self._trace.key_names)
        text = "" if name is None else value_text(element.values[name])
        return Mark(
            element.time, int(self._ordinates.elements[at]), text, element.outcome,
            element_title(element, name), element.retract, reason_text(element), at,
        )  # fmt: skip

    def _pairs(self) -> Iterator[tuple[TracedPair, int, int | None]]:
        """Yield each pair that was emitted, when, and when it was retracted, if it was."""
        standing: dict[tuple[int | None, int | None], list[int]] = {}
        found: list[tuple[TracedPair, int, int | None]] = []
        for pair, y in zip(self._trace.pairs, self._ordinates.pairs.tolist(), strict=True):
            ends = (pair.left, pair.right)
            if not pair.retract:
                standing.setdefault(ends, []).append(len(found))
                found.append((pair, y, None))
            elif standing.get(ends):
                at = standing[ends].pop()
                found[at] = (*found[at][:2], y)
        yield from found


def _first_column(element: TracedElement, keys: Sequence[str]) -> str | None:
    """Return the column that a record is known by: neither its key nor its time."""
    names = [name for name in element.values if name not in keys]
    told = [name for name in names if not _is_time(element.values[name], element.time)]
    return next(iter(told or names), None)


def _is_time(value: Any, time: Instant) -> bool:
    """Whether a value is the event time of its record."""
    if isinstance(value, int):
        return value == time
    return hasattr(value, "isoformat") or (isinstance(value, str) and value == str(time))


def _check_column(trace: StageTrace, column: str | None) -> None:
    if column is None:
        return
    names = dict.fromkeys(name for element in trace.elements for name in element.values)
    if column not in names:
        raise InvalidArgument(
            f"no record of the join {trace.name!r} has a column {column!r}",
            where="diagram(column=)",
            hint=nearest(column, names),
        )


def _steps(
    trace: StageTrace, ordinates: TraceOrdinates, side: TracedSide | None
) -> Iterator[WatermarkStep]:
    """Yield the steps of the watermark of a side, or of the join."""
    at = START_OF_TIME
    for move, y in zip(trace.moves, ordinates.moves.tolist(), strict=True):
        to = move.input_watermark
        if side is not None and move.sides is not None:
            to = move.sides[side == "right"]
        if to > at:
            at = to
            whose = "" if side is None else f" of the {side} side"
            title = move_title(move) if side is None else f"watermark{whose} {watermark_text(to)}"
            yield WatermarkStep(y, to, title)


def _frontier(
    joining: Joining | AsOf, side: TracedSide, watermark: Sequence[WatermarkStep]
) -> Iterator[WatermarkStep]:
    """Yield the steps of where the records of a side are released; none if they never are."""
    if isinstance(joining, Joining):
        if joining.within is None:
            return
        behind = joining.horizon_us(LEFT if side == "left" else RIGHT)
    else:
        behind = 0
    behind = saturating_add(behind, joining.lateness_us)
    if not behind:
        return  # the watermark itself
    for step in watermark:
        to = END_OF_TIME if step.x == END_OF_TIME else saturating_add(step.x, -behind)
        what = _FRONTIERS[isinstance(joining, AsOf)]
        title = f"{side} records before {watermark_text(to)} are {what}"
        yield WatermarkStep(step.y, to, title)


def _places(steps: Sequence[WatermarkStep]) -> list[tuple[int, int]]:
    return [(step.y, step.x) for step in steps]


def _alone_name(joining: Joining | AsOf) -> str:
    if isinstance(joining, AsOf):
        return "fact without a version"
    if joining.how == "semi":
        return "record with a partner"
    return "record without a partner"


def _title(name: str, joining: Joining | AsOf) -> str:
    if isinstance(joining, AsOf):
        parts = [f"{joining.how} join {joining.text}", f"late versions {joining.late_versions}"]
        parts.append(f"keeps {format_duration(joining.keep_us)}")
        return f"{name}: {', '.join(parts)}"
    if joining.within is None:
        return f"{name}: {joining.how} join of tables"
    parts = [f"{joining.how} join within {joining.within!r}"]
    if joining.is_alone(LEFT) or joining.is_alone(RIGHT):
        parts.append(f"unmatched {joining.unmatched}")
    if joining.lateness_us:
        parts.append(f"allowed lateness {format_duration(joining.lateness_us)}")
    return f"{name}: {', '.join(parts)}"
