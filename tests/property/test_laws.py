"""Laws of panes that need no second engine; the oracle keeps them too.

Where a shipped law states the same, the engine is held to that one, in ``test_laws_hold.py``, and
here it is the oracle alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater.engine.records.panes import Pane
from lowwater.engine.window.windowing import Windowing
from lowwater.testing import Scenario
from lowwater.testing._oracle_windows import windows_of
from lowwater.time import Instant
from lowwater.triggers import AfterWatermark, Repeatedly
from lowwater.windows import CustomWindows, Sessions
from tests.examples import examples
from tests.property import strategies as own
from tests.property.both_engines import BOTH, Run, by_oracle, plain, shown

Case = tuple[Windowing, Scenario]
EXAMPLES = examples(2.5, is_core=True)
both = pytest.mark.parametrize("run", BOTH)
oracle_alone = pytest.mark.parametrize("run", [by_oracle])


@oracle_alone
@given(case=own.cases(own.windowings(accumulation="discarding")))
@EXAMPLES
def test_discarding_panes_and_late_records_partition_the_input(run: Run, case: Case) -> None:
    """S-A1, S-O3, S-O6: each (element, window) is in exactly one pane or one late record."""
    windowing, scenario = case
    panes, late = run(scenario, windowing)
    wanted = Counter(
        {
            e.value: max(1, len(windows_of(windowing.windows, e.time, e.columns)))
            for e in scenario.elements
        }
    )
    assert shown(panes) + Counter(map(plain, late)) == wanted


@both
@given(case=own.cases(own.windowings(accumulation="discarding"), ends=False))
@EXAMPLES
def test_what_is_held_back_comes_later_and_nothing_is_taken_back(run: Run, case: Case) -> None:
    """S-T4: a scenario's outputs begin with those of each shorter one; S-O6: the rest follows."""
    windowing, scenario = case
    panes, late = run(scenario, windowing)
    all_panes, all_late = run(scenario.end(), windowing)
    assert all_panes[: len(panes)] == panes
    assert all_late == late
    held = Counter(e.value for e in scenario.elements) - shown(panes) - Counter(map(plain, late))
    assert not held - shown(all_panes[len(panes) :])


@both
@given(case=own.cases(own.windowings(own.not_merging())))
@EXAMPLES
def test_accumulating_is_the_union_of_discarding(run: Run, case: Case) -> None:
    """S-A2: the n-th accumulating pane shows what the discarding panes up to n showed."""
    windowing, scenario = case
    discarding, _ = run(scenario, windowing.with_(accumulation="discarding"))
    accumulating, _ = run(scenario, windowing.with_(accumulation="accumulating"))
    so_far: dict[Any, list[Any]] = defaultdict(list)
    for new, total in zip(discarding, accumulating, strict=True):
        assert (new.key, new.window, new.index) == (total.key, total.window, total.index)
        so_far[new.key, new.window] += new.value
        assert total.value == so_far[new.key, new.window]


@oracle_alone
@given(case=own.cases())
@EXAMPLES
def test_retractions_telescope(run: Run, case: Case) -> None:
    """S-A3: inserts minus retracts are, after each firing, all that was shown so far."""
    windowing, scenario = case
    discarding, _ = run(scenario, windowing.with_(accumulation="discarding"))
    retracting, _ = run(scenario, windowing.with_(accumulation="retracting"))
    firings = iter(discarding)
    shown_by_key: dict[Any, Counter[Any]] = defaultdict(Counter)
    net: dict[Any, Counter[Any]] = defaultdict(Counter)
    for pane in retracting:
        if pane.kind == "retract":
            net[pane.key].subtract(pane.value)
            continue
        net[pane.key].update(pane.value)
        firing = next(firings)
        assert (firing.key, firing.window) == (pane.key, pane.window)
        shown_by_key[firing.key].update(firing.value)
        assert +net[pane.key] == shown_by_key[pane.key]
        assert min(net[pane.key].values(), default=0) >= 0
    assert next(firings, None) is None


@oracle_alone
@given(case=own.cases(own.windowings(own.not_merging(), accumulation="accumulating")))
@EXAMPLES
def test_labels(run: Run, case: Case) -> None:
    """S-P1, S-P2: indices count, EARLY comes first, then ON_TIME once at most, last is last."""
    windowing, scenario = case
    panes, _ = run(scenario, windowing)
    by_window: dict[Any, list[Pane]] = defaultdict(list)
    for pane in panes:
        by_window[pane.key, pane.window].append(pane)
    order = ["EARLY", "ON_TIME", "LATE"]
    for same in by_window.values():
        assert [pane.index for pane in same] == list(range(len(same)))
        assert [pane.is_first for pane in same] == [True] + [False] * (len(same) - 1)
        assert not any(pane.is_last for pane in same[:-1])
        timings = [pane.timing for pane in same]
        assert timings == sorted(timings, key=order.index)
        assert timings.count("ON_TIME") <= 1
        later = [pane.on_time_index for pane in same if pane.timing != "EARLY"]
        assert later == list(range(len(later)))
        assert all((p.watermark < p.window.end) == (p.timing == "EARLY") for p in same)
        if not isinstance(
            windowing.windows, CustomWindows
        ):  # those need not contain their elements
            assert all(pane.timestamp in pane.window for pane in same)


@both
@given(
    case=own.cases(
        own.windowings(
            own.not_merging(), st.builds(Repeatedly, own.triggers(2)), accumulation="accumulating"
        )
    )
)
@EXAMPLES
def test_closing_always_marks_the_end_of_every_window(run: Run, case: Case) -> None:
    """S-O6: the last pane of a window, and no other, is_last; without it there may be none."""
    windowing, scenario = case
    always, _ = run(scenario, windowing.with_(closing="always"))
    if_new, _ = run(scenario, windowing.with_(closing="if_new"))
    last = {(pane.key, pane.window): pane.is_last for pane in always}
    assert all(last.values())
    assert set(last) == {(pane.key, pane.window) for pane in if_new}
    assert len(always) - len(if_new) == len(last) - sum(pane.is_last for pane in if_new)


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[Windowing, Scenario, Scenario]:
    """One input in two orders, the watermark never ahead of what is still to come."""
    windowing = draw(
        own.windowings(
            own.fixed() | own.sliding() | own.sessions(),
            st.builds(AfterWatermark, st.none() | own.triggers(2), st.none() | own.triggers(2)),
            accumulation="accumulating",
            on_time="always",
        )
    )
    elements = draw(own.scenarios(gaps=bool(windowing.windows.columns))).elements
    orders = (elements, tuple(draw(st.permutations(elements))))
    one, other = (_perfect(draw, windowing, order) for order in orders)
    return windowing, one, other


def _perfect(draw: st.DrawFn, windowing: Windowing, elements: Any) -> Scenario:
    scenario = Scenario(start=Instant(0), watermark=Instant(-(10**9)))
    touching = isinstance(windowing.windows, Sessions) and windowing.windows.merge_touching
    for at, element in enumerate(elements):
        clock = Instant(at * own.SECOND)
        scenario = scenario.add(
            (element.value, element.time, element.key, element.columns), at=clock
        )
        left = [e.time for e in elements[at + 1 :]]
        moves: bool = draw(st.booleans())
        if left and moves:
            # A window that ends where an element is still to come would merge with it: stay below.
            scenario = scenario.watermark(Instant(min(left) - touching))
    return scenario.end()


@oracle_alone
@given(case=arrivals())
@EXAMPLES
def test_on_time_panes_do_not_depend_on_the_order_of_arrival(run: Run, case: Any) -> None:
    """S-W7: the same windows, each with the same content."""
    windowing, one, other = case
    results = []
    for scenario in (one, other):
        panes, late = run(scenario, windowing)
        assert all(record.reason == "unwindowed" for record in late)
        results.append(
            {(p.key, p.window, tuple(sorted(p.value))) for p in panes if p.timing == "ON_TIME"}
        )
    assert results[0] == results[1]


def _split(scenario: Scenario) -> Scenario:
    """Return the same input with each element a bundle of its own."""
    split = Scenario(start=scenario.start, watermark=scenario.watermark_at_start)
    for step in scenario.steps:
        for element in getattr(step, "elements", ()):
            split = split.add(
                (element.value, element.time, element.key, element.columns), at=step.at
            )
        if not hasattr(step, "elements"):
            split = split._with(step)
    return split


@oracle_alone
@given(
    case=own.cases(
        own.windowings(
            own.not_merging() | own.sessions(),
            st.builds(AfterWatermark, st.none() | own.triggers(2)),
            accumulation="accumulating",
            allowed_lateness=0,
            on_time="always",
        )
    )
)
@EXAMPLES
def test_splitting_bundles_changes_early_panes_alone(run: Run, case: Case) -> None:
    """S-O1: how elements are bundled changes only how often early panes come."""
    windowing, scenario = case

    def settled(given_scenario: Scenario) -> Any:
        panes, late = run(given_scenario, windowing)
        # Wake-ups that early triggers asked for may change the order within one advance.
        panes = sorted(panes, key=lambda p: (p.window.end, p.window.start, p.key))
        return [
            (p.key, p.window, p.value, p.timing, p.on_time_index, p.timestamp, p.emitted_at)
            for p in panes
            if p.timing != "EARLY"
        ], late

    assert settled(scenario) == settled(_split(scenario))
