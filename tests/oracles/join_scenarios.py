"""Hypothesis strategies for joins: two inputs full of disorder, and their common watermark.

A schedule is a list of steps: a bundle of one side, ``("left", elements)``, or an advance of the
watermark, ``("watermark", to)``. Times are a few microseconds around zero, so that they collide.
Each input advances by itself, and the watermark is that of the slower one. An input may be silent,
empty or far behind. Elements are late relative to the common watermark.

In signed schedules a retraction comes after its insertion, possibly in the same bundle. Neither is
so late that it is dropped.

Needs the ``testing`` extra.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, TypeAlias, final

from lowwater.errors import load_extra
from lowwater.time import START_OF_TIME
from tests.oracles.as_of import AsOfKind, AsOfOracle, Direction, LateVersions
from tests.oracles.joins import (
    JoinElement,
    JoinKind,
    JoinOracle,
    JoinOutput,
    Unmatched,
)

try:
    import hypothesis.strategies as st
except ImportError:
    load_extra("hypothesis", extra="testing", purpose="tests.oracles.join_scenarios")
    raise  # it is there, and lacks something

# ("left" | "right" | "facts" | "versions", elements), ("watermark", to), or, for joins with a
# history, ("watermark", to, versions_to).
Step: TypeAlias = tuple[Any, ...]
Schedule: TypeAlias = list[Step]

JOIN_KINDS: tuple[JoinKind, ...] = ("inner", "left", "right", "outer", "semi", "anti")
UNMATCHED: tuple[Unmatched, ...] = ("final", "on_time", "early")
DIRECTIONS: tuple[Direction, ...] = ("backward", "forward", "nearest")


@final
@dataclass(frozen=True, slots=True)
class JoinCase:
    """An interval join, and what its inputs bring."""

    how: JoinKind
    low: int
    high: int
    unmatched: Unmatched
    lateness: int
    signed: bool
    schedule: Schedule

    def oracle(self) -> JoinOracle:
        """Return a new oracle of the join."""
        return JoinOracle(
            self.how,
            self.low,
            self.high,
            unmatched=self.unmatched,
            lateness=self.lateness,
            signed=self.signed,
        )


@final
@dataclass(frozen=True, slots=True)
class AsOfCase:
    """A join with a history, and what its inputs bring."""

    how: AsOfKind
    tolerance: int | None
    late_versions: LateVersions
    keep: int
    signed: bool
    schedule: Schedule
    direction: Direction = "backward"
    allow_equal: bool = True

    def oracle(self) -> AsOfOracle:
        """Return a new oracle of the join."""
        return AsOfOracle(
            self.how,
            tolerance=self.tolerance,
            late_versions=self.late_versions,
            keep=self.keep,
            signed=self.signed,
            direction=self.direction,
            allow_equal=self.allow_equal,
        )


@st.composite
def intervals(draw: st.DrawFn) -> tuple[int, int]:
    """Return the bounds of ``right.time - left.time``: around zero, on one side of it, or equal."""
    low = draw(st.sampled_from([0, 0, -2, -4, -9, 3]))
    return low, low + draw(st.sampled_from([4, 8, 8, 0, 1]))


@st.composite
def join_cases(
    draw: st.DrawFn,
    *,
    hows: Sequence[JoinKind] = JOIN_KINDS,
    unmatched: Sequence[Unmatched] = UNMATCHED,
    signed: bool | None = None,
) -> JoinCase:
    """Return interval joins with schedules for them.

    Args:
        draw: Given by Hypothesis.
        hows: The kinds of join.
        unmatched: When null rows come out.
        signed: Whether there are retractions; ``None`` for either.
    """
    low, high = draw(intervals())
    lateness = draw(st.sampled_from([0, 0, 3, 10]))
    has_signs = draw(st.booleans()) if signed is None else signed
    how, mode = draw(st.sampled_from(hows)), draw(st.sampled_from(unmatched))
    schedule = draw(schedules(lateness=lateness, signed=has_signs))
    return JoinCase(how, low, high, mode, lateness, has_signs, schedule)


@st.composite
def as_of_cases(
    draw: st.DrawFn,
    *,
    late_versions: Sequence[LateVersions] = ("ignore", "correct"),
    signed: bool | None = None,
    directions: Sequence[Direction] = DIRECTIONS,
) -> AsOfCase:
    """Return joins with a history, with schedules for them.

    Args:
        draw: Given by Hypothesis.
        late_versions: How late versions are handled.
        signed: Whether there are retractions; ``None`` for either.
        directions: Where versions may be, as seen from the facts.
    """
    keep = draw(st.sampled_from([0, 0, 3, 10]))
    direction = draw(st.sampled_from(directions))
    allow_equal = draw(st.booleans())
    least = 0 if allow_equal else 1
    if direction == "backward":
        tolerance = draw(st.sampled_from([None, None, least, 4]))
    else:
        tolerance = draw(st.sampled_from([least, 1, 2, 5, 9, 20]))
    has_signs = draw(st.booleans()) if signed is None else signed
    how: AsOfKind = draw(st.sampled_from(["inner", "left"]))
    mode = draw(st.sampled_from(late_versions))
    ordered = draw(st.booleans())
    schedule = draw(as_of_schedules(lateness=keep, signed=has_signs, ordered=ordered))
    return AsOfCase(how, tolerance, mode, keep, has_signs, schedule, direction, allow_equal)


def schedules(*, lateness: int = 0, signed: bool = False) -> st.SearchStrategy[Schedule]:
    """Return schedules of a ``"left"`` and a ``"right"`` input and their common watermark.

    Args:
        lateness: The allowed lateness, beyond which elements are dropped.
        signed: Whether there are retractions.
    """
    return _steps(lateness, signed, False).map(
        lambda steps: [step[:2] if step[0] == "watermark" else step for step in steps]
    )


def as_of_schedules(
    *, lateness: int = 0, signed: bool = False, ordered: bool = False
) -> st.SearchStrategy[Schedule]:
    """Return schedules of ``"facts"`` and ``"versions"`` and the watermark.

    Steps of the watermark are ``("watermark", to, versions_to)``.

    Args:
        lateness: How far below the watermark elements are not dropped.
        signed: Whether there are retractions.
        ordered: Whether versions have an ``order`` other than that of arrival.
    """
    names = {"left": "facts", "right": "versions", "watermark": "watermark"}
    return _steps(lateness, signed, ordered).map(
        lambda steps: [(names[step[0]], *step[1:]) for step in steps]
    )


@st.composite
def _steps(draw: st.DrawFn, lateness: int, signed: bool, ordered: bool) -> Schedule:
    """Draw bundles of both sides and ``("watermark", of both, of the right)``."""
    start = draw(st.sampled_from([0, -20]))
    sides = draw(st.sampled_from([("left", "right")] * 14 + [("left", "left"), ("right", "right")]))
    # Mostly both inputs advance; in some schedules one of them never does.
    moving = draw(
        st.sampled_from([("both", "left", "right", "both")] * 8 + [("left",), ("right",)])
    )
    at = {"left": start, "right": start}  # how far each input has come
    made: dict[str, list[JoinElement]] = {"left": [], "right": []}
    kept: dict[str, list[JoinElement]] = {"left": [], "right": []}  # these can be retracted
    watermark = START_OF_TIME
    steps: Schedule = []
    for turn in range(draw(st.integers(8, 20))):  # a turn may bring nothing
        if draw(st.integers(0, 3)) == 3:
            moves, by = draw(st.sampled_from(moving)), draw(st.integers(0, 12))
            for side in ("left", "right"):
                at[side] += by if moves in (side, "both") else 0
            watermark = min(at.values())
            steps.append(("watermark", watermark, at["right"]))
            continue
        side = sides[(turn + draw(st.integers(0, 1))) % 2]
        bundle = []
        for _ in range(draw(st.integers(0, 4))):
            choice = draw(st.integers(0, 7))
            open_to_retraction = [one for one in kept[side] if one.time >= watermark - lateness]
            if choice >= 6 and signed and open_to_retraction:
                one = draw(st.sampled_from(open_to_retraction))
                kept[side].remove(one)
                bundle.append(replace(one, sign=-1))
                continue
            if choice == 5 and made[side]:
                one = draw(st.sampled_from(made[side]))  # a duplicate, however old
            else:
                # Late data are about the common watermark, to which lateness refers.
                behind = choice == 4 and watermark > START_OF_TIME
                time = watermark - draw(st.integers(-1, 12)) if behind else at[side]
                time += 0 if behind else draw(st.integers(0, 9))
                one = JoinElement(
                    draw(st.sampled_from("AAAB")),
                    time,
                    f"{side[0]}{draw(st.integers(0, 2))}",
                    order=draw(st.integers(0, 2)) if ordered and side == "right" else None,
                )
            made[side].append(one)
            if one.time >= watermark - lateness:
                kept[side].append(one)
            bundle.append(one)
        if bundle:
            steps.append((side, bundle))
    return steps


def drive(oracle: JoinOracle | AsOfOracle, step: Step) -> list[JoinOutput]:
    """Give an oracle one step, and return what it emits."""
    kind, *arguments = step
    if kind == "watermark":
        return oracle.advance(*arguments)
    return oracle.take(kind, *arguments)


def rebundled(schedule: Schedule, random: Random) -> Schedule:
    """Return the schedule with its elements in other bundles.

    Adjacent bundles of one side may merge, and all may be cut. The order of all records and
    watermarks stays.
    """
    steps: Schedule = []
    for kind, run in _runs(schedule):
        if kind == "watermark":
            steps += run
            continue
        elements = [element for _, bundle in run for element in bundle]
        while elements:
            size = random.randint(1, len(elements))
            steps.append((kind, elements[:size]))
            elements = elements[size:]
    return steps


def interleaved(schedule: Schedule, random: Random) -> Schedule:
    """Return the schedule with the bundles of the two sides in another order.

    The order of each side's records stays, and so does the order of records and watermarks.
    """
    steps: Schedule = []
    waiting: dict[str, list[Step]] = {}
    for step in [*schedule, ("watermark",)]:
        if step[0] != "watermark":
            waiting.setdefault(step[0], []).append(step)
            continue
        while sides := [side for side, bundles in waiting.items() if bundles]:
            steps.append(waiting[random.choice(sides)].pop(0))
        steps.append(step)
    return steps[:-1]


def _runs(schedule: Schedule) -> Iterator[tuple[str, list[Step]]]:
    """Yield the runs of adjacent steps of one kind."""
    run: list[Step] = []
    for step in schedule:
        if run and run[-1][0] != step[0]:
            yield run[0][0], run
            run = []
        run.append(step)
    if run:
        yield run[0][0], run
