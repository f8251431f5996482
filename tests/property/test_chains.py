"""A stage over the panes of a retracting stage is right at every moment (S-C1, S-C5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, TypeAlias

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

import lowwater as lw
from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.records.columns import Column
from lowwater.engine.records.panes import Pane
from lowwater.engine.records.steps import RETRACT, Bundle, PaneBatch, WatermarkAdvance
from lowwater.engine.window.operator import WindowOperator
from lowwater.engine.window.windowing import Windowing
from lowwater.testing import Scenario, _drive
from lowwater.testing._oracle_windows import merge_sets, windows_of
from lowwater.time import Instant
from lowwater.triggers import AfterCount, AfterWatermark, Repeatedly
from lowwater.windows import Window
from tests.examples import examples
from tests.property import strategies as own

EXAMPLES = examples(2)
SIDES = {"A": 0, "B": 0, "C": 1}
EACH = Repeatedly(AfterCount(1))
Item: TypeAlias = tuple[int, int, Any]  # side, time, value
Place: TypeAlias = tuple[int, Window]

AGGREGATES: dict[str, AggregateSpec] = {
    "count": lw.count(),
    "total": lw.sum(),
    "most": lw.max(),
    "first": lw.first(),
    "lead": lw.max_by("value", "rank"),
    "trail": lw.first(by="rank"),
    "all": lw.collect(),
    "distinct": lw.count_distinct(),
    "mean": lw.mean(),
}
BATCH: dict[str, Callable[[list[Item]], Any]] = {
    "count": len,
    "total": lambda items: sum(value for _, _, value in items),
    "most": lambda items: max((value for _, _, value in items), default=None),
    "first": lambda items: min(items, key=lambda item: item[1])[2] if items else None,
    "lead": lambda items: _pick(max, reversed(items)),
    "trail": lambda items: _pick(min, items),
    "all": lambda items: [value for _, _, value in items],
    "distinct": lambda items: len({value for _, _, value in items}),
    "mean": lambda items: sum(value for _, _, value in items) / len(items) if items else None,
}
SUBTRACTED = ("count", "total")


def rank(value: int) -> int:
    """What values are ranked by; many have the same."""
    return value % 3


def _pick(best: Callable[..., Item | None], items: Iterable[Item]) -> Any:
    found = best(items, key=lambda item: (rank(item[2]), item[1]), default=None)
    return None if found is None else found[2]


def as_elements(panes: PaneBatch) -> Bundle:
    """The panes of a stage as elements of the next one, keyed by side."""
    sides = [SIDES[team] for team in panes.keys[0].to_list()]
    signs = np.where(panes.kind == RETRACT, -1, 1).astype(np.int8)
    keys = (Column(np.array(sides, dtype=np.int64)),)
    values = panes.values["value"]
    ranks = Column(np.array([rank(value) for value in values.to_list()], dtype=np.int64))
    return Bundle(panes.timestamp, keys, {"value": values, "rank": ranks}, signs)


class Chain:
    """Two stages by hand, and what a batch would make of the panes that the first has shown."""

    def __init__(
        self, scenario: Scenario, upstream: Windowing, downstream: Windowing, names: Any
    ) -> None:
        self._windows = downstream.windows
        specs: dict[str, AggregateSpec] = {"value": lw.sum()}
        self._source = _drive._Source(scenario, upstream, specs, "raise", None)
        self._first = WindowOperator(
            upstream, specs, watermark=scenario.watermark_at_start, clock=scenario.start
        )
        self._second = WindowOperator(
            downstream,
            {name: AGGREGATES[name] for name in names},
            watermark=scenario.watermark_at_start,
            clock=scenario.start,
            signed=True,
        )
        self._names = names
        self.there: list[Item] = []
        self._came: set[tuple[int, int]] = set()
        self.panes: list[Pane] = []

    def moments(self) -> Iterator[None]:
        """Make all steps; yield after each."""
        for step, _ in self._source.inputs():
            panes = self._first.step(step).panes
            if panes is not None:
                self._note(panes)
                self._take(as_elements(panes))
            self._take(WatermarkAdvance(self._first.output_watermark))
            yield

    def batch(self) -> dict[Place, dict[str, Any]]:
        """What a batch shows of the elements there are, in every window there was."""
        places: dict[Place, list[Item]] = {}
        for side in sorted(SIDES.values()):
            protos = {
                window
                for other, at in self._came
                if other == side
                for window in windows_of(self._windows, Instant(at), {})
            }
            sets = [([window], window) for window in protos]
            if self._windows.merge_scope != "none":
                sets = list(merge_sets(self._windows, list(protos)))
            for members, window in sets:
                places[side, window] = [
                    item
                    for item in self.there
                    if item[0] == side
                    for proto in windows_of(self._windows, Instant(item[1]), {})
                    if proto in members
                ]
        return {
            place: {name: BATCH[name](items) for name in self._names}
            for place, items in places.items()
        }

    def shown(self) -> dict[Place, dict[str, Any]]:
        """What the second stage shows: its panes, less those it took back."""
        shown: dict[Place, dict[str, Any]] = {}
        for pane in self.panes:
            if pane.kind == "retract":
                assert shown.pop((pane.key, pane.window)) == pane.values
            else:
                assert (pane.key, pane.window) not in shown
                shown[pane.key, pane.window] = dict(pane.values)
        return shown

    def sums(self) -> dict[Place, dict[str, Any]]:
        """The sums of what the second stage showed; a session has those of its parts too."""
        sums = {place: dict.fromkeys(values, 0) for place, values in self.batch().items()}
        for pane in self.panes:
            (total,) = (
                total
                for (side, window), total in sums.items()
                if side == pane.key
                if window.start <= pane.window.start and pane.window.end <= window.end
            )
            for name, value in pane.values.items():
                total[name] += value
        return sums

    def _take(self, step: Any) -> None:
        output = self._second.step(step)
        assert output.late is None
        if output.panes is not None:
            self.panes.extend(output.panes)

    def _note(self, panes: PaneBatch) -> None:
        for pane in panes:
            item = (SIDES[pane.key], int(pane.timestamp), pane.value)
            self._came.add(item[:2])
            if pane.kind == "insert":
                self.there.append(item)
            else:
                last = len(self.there) - 1 - self.there[::-1].index(item)
                del self.there[last]


@cache
def plain_windows() -> st.SearchStrategy[Any]:
    return own.fixed() | own.sliding() | st.just(lw.GlobalWindow()) | plain_sessions()


@cache
def plain_sessions() -> st.SearchStrategy[Any]:
    return st.builds(lw.Sessions, own.seconds(1, 10), merge_touching=st.booleans())


def safe() -> st.SearchStrategy[Any]:
    return st.builds(Repeatedly, own.triggers(2)) | st.builds(
        AfterWatermark, st.none() | own.triggers(2), own.triggers(2)
    )


@cache
def windows_without_gaps() -> Any:
    return own.fixed() | st.just(lw.GlobalWindow()) | plain_sessions()


@st.composite
def chains(draw: st.DrawFn, trigger: Any, mode: str, names: Any) -> Chain:
    """A chain whose second stage takes elements for as long as the first one does."""
    lateness = draw(st.just(0) | own.seconds(1, 20))
    upstream = draw(
        own.windowings(
            plain_windows(),
            accumulation="retracting",
            allowed_lateness=lateness,
            timestamps="end",
        )
    )
    downstream = draw(
        own.windowings(
            # Windows with gaps have no place for some panes.
            windows_without_gaps(),
            trigger,
            accumulation=mode,
            allowed_lateness=lateness,
        )
    )
    return Chain(draw(own.scenarios(gaps=False)), upstream, downstream, names)


@given(chains(st.just(EACH), "retracting", tuple(AGGREGATES)))
@EXAMPLES
def test_retracting_is_right_at_every_moment(chain: Chain) -> None:
    for _ in chain.moments():
        assert chain.shown() == chain.batch()


@given(chains(safe(), "retracting", tuple(AGGREGATES)))
@EXAMPLES
def test_retracting_is_right_at_the_end_whatever_the_trigger(chain: Chain) -> None:
    for _ in chain.moments():
        pass
    assert chain.shown() == chain.batch()


@given(chains(safe(), "discarding", SUBTRACTED))
@EXAMPLES
def test_discarding_shows_differences_that_add_up(chain: Chain) -> None:
    for _ in chain.moments():
        pass
    assert chain.sums() == chain.batch()


@given(chains(st.just(EACH), "discarding", SUBTRACTED))
@EXAMPLES
def test_differences_add_up_at_every_moment(chain: Chain) -> None:
    for _ in chain.moments():
        assert chain.sums() == chain.batch()
