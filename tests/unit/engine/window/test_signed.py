"""Operators whose elements may be taken back (S-C1 to S-C6), aggregate by aggregate."""

from __future__ import annotations

import builtins
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.aggregates import AggregateInput as Inputs
from lowwater.engine.aggregates import AggregateSpec, Needs, StateColumn
from lowwater.engine.aggregates._retractable import uncancelled
from lowwater.engine.records.columns import Column
from lowwater.engine.records.panes import Pane
from lowwater.engine.records.stage_output import StageOutput
from lowwater.engine.records.steps import Bundle, EndOfInput, WatermarkAdvance
from lowwater.engine.window.operator import WindowOperator
from lowwater.engine.window.windowing import Windowing
from lowwater.errors import DataError, InternalError, InvalidArgument, StateError
from lowwater.state.key_layout import StoredPlace
from lowwater.state.memory import MemoryContents, MemoryStore
from lowwater.state.store import Batch
from tests.property.retracted_elements import Tally

MAX = 2**63 - 1
MIN = -(2**63)
EACH = lw.Repeatedly(lw.AfterCount(1))
ONE_WINDOW = Windowing(windows=lw.GlobalWindow(), trigger=EACH, accumulation="accumulating")
Signed = tuple[Any, int]  # value, sign


def bundle(
    values: Sequence[Any] | Column, signs: Sequence[int], times: Sequence[int] | None = None
) -> Bundle:
    column = values if isinstance(values, Column) else Column.of_objects(values)
    if not isinstance(values, Column) and set(map(type, values)) in ({int}, {float}, {bool}):
        column = Column(np.array(values))
    count = len(column)
    at = np.zeros(count, dtype=np.int64) if times is None else np.array(times, dtype=np.int64)
    keys = (Column(np.zeros(count, dtype=np.int64)),)
    return Bundle(at, keys, {"value": column}, np.array(signs, dtype=np.int8))


def operator(windowing: Windowing = ONE_WINDOW, /, **aggregates: AggregateSpec) -> WindowOperator:
    return WindowOperator(windowing, aggregates, signed=True)


def panes(output: StageOutput) -> list[Pane]:
    return [] if output.panes is None else output.panes.to_panes()


def shown(stage: WindowOperator, *bundles: Bundle) -> Any:
    """What the last pane shows, after these bundles."""
    value = None
    for each in bundles:
        value = panes(stage.step(each))[-1].value
    return value


def in_turn(spec: AggregateSpec, *signed: Signed) -> Any:
    """What a window shows once elements at one time came and went, one by one."""
    return shown(operator(x=spec), *(bundle([value], [sign]) for value, sign in signed))


# -- what cancels -------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 1), st.booleans())))
def test_a_retraction_cancels_the_latest_insert_or_waits(elements: list[Any]) -> None:
    stacks: dict[Any, list[tuple[int, int]]] = {}
    for at, (*group, comes) in enumerate(elements):
        stack = stacks.setdefault(tuple(group), [])
        sign = 1 if comes else -1
        if stack and stack[-1][1] == -sign:
            stack.pop()
        else:
            stack.append((at, sign))
    wanted = sorted(at for stack in stacks.values() for at, _ in stack)
    columns = np.array([group for *group, _ in elements], dtype=np.int64).reshape(-1, 3).T
    signs = np.array([1 if comes else -1 for *_, comes in elements], dtype=np.int8)
    assert np.flatnonzero(uncancelled(signs, *columns)).tolist() == wanted


ALL = {
    "count": lw.count(), "some": lw.count("value"), "sum": lw.sum(), "mean": lw.mean(),
    "var": lw.var(), "std": lw.std(ddof=0), "min": lw.min(), "max": lw.max(), "first": lw.first(),
    "last": lw.last(), "collect": lw.collect(), "set": lw.collect_set(),
    "distinct": lw.count_distinct(), "tally": lw.combine(Tally()),
}  # fmt: skip


@given(st.lists(st.integers(0, 3), max_size=8), st.lists(st.integers(4, 6)), st.randoms())
def test_it_does_not_matter_in_which_order_a_bundle_has_them(
    stays: list[int], goes: list[int], random: Any
) -> None:
    signed = [(value, 1) for value in stays + goes] + [(value, -1) for value in goes]
    random.shuffle(signed)
    stage = operator(**ALL)
    stage.step(bundle([9], [1], [9]))
    values, signs = zip(*[*signed, (9, -1)], strict=True)
    (pane,) = panes(stage.step(bundle(values, signs, values)))
    left = [value for value, sign in signed if sign > 0 and value in stays]
    wanted = {
        "count": len(left),
        "some": len(left),
        "sum": builtins.sum(left),
        "mean": statistics.fmean(left) if left else None,
        "var": float(statistics.variance(left)) if len(left) > 1 else None,
        "std": statistics.pstdev(left) if left else None,
        "min": min(left, default=None),
        "max": max(left, default=None),
        "first": min(left, default=None),
        "last": max(left, default=None),
        "collect": left,
        "set": list(dict.fromkeys(left)),
        "distinct": len(set(left)),
        "tally": sorted((value, left.count(value)) for value in set(left)),
    }
    for name in ("mean", "var", "std"):
        assert pane.values[name] == (wanted[name] and pytest.approx(wanted[name]))
    # Which of several equal elements is left is seen in a list alone: compare what is in it.
    assert sorted(pane.values["collect"]) == sorted(left)
    assert sorted(pane.values["set"]) == sorted(set(left))
    rest = set(wanted) - {"mean", "var", "std", "collect", "set"}
    assert {name: pane.values[name] for name in rest} == {name: wanted[name] for name in rest}


def test_time_tells_equal_values_apart() -> None:
    stage = operator(x=lw.first(), at=lw.collect())
    stage.step(bundle([1, 2, 1], [1, 1, 1], [5, 6, 7]))
    (pane,) = panes(stage.step(bundle([1], [-1], [5])))
    assert pane.values == {"x": 2, "at": [2, 1]}


def test_nulls_are_left_out_of_both() -> None:
    column = Column(np.array([7, 0, 0]), np.array([True, False, False]))
    stage = operator(x=lw.count("value"), all=lw.count(), most=lw.max())
    (pane,) = panes(stage.step(bundle(column, [1, 1, -1])))
    assert pane.values == {"x": 1, "all": 1, "most": 7}


@pytest.mark.parametrize(
    "value", ["a", b"a", math.nan, -0.0, True, (1, math.nan), [1, [2]], {"a": {1}}, 2**70]
)
@pytest.mark.parametrize("columnar", [True, False])
def test_values_of_any_kind_cancel(value: Any, columnar: bool) -> None:
    other = [value, None]
    made = [bundle([value], [1]), bundle([other], [1]), bundle([_again(value)], [-1])]
    if columnar and isinstance(value, float):
        made = [bundle([v], [s]) for v, s in ((value, 1), (1.5, 1), (_again(value), -1))]
        assert shown(operator(x=lw.collect()), *made) == [1.5]
    else:
        assert shown(operator(x=lw.collect()), *made) == [other]


def _again(value: Any) -> Any:
    """Another object that is equal."""
    if value == 0 and isinstance(value, float):
        return 0.0
    if isinstance(value, float):
        return float("nan")
    return (1, float("nan")) if isinstance(value, tuple) else value


def test_any_nan_takes_back_any_other() -> None:
    """Of floats and of objects: their bits differ by where they were made."""
    quiet = np.array([0x7FF8000000000001], dtype=np.int64).view(np.float64)
    stage = operator(x=lw.collect())
    stage.step(bundle([math.nan, 1.0], [1, 1]))
    assert shown(stage, bundle(Column(quiet), [-1])) == [1.0]
    plain = Windowing(windows=lw.GlobalWindow(), trigger=EACH, accumulation="accumulating")
    distinct = WindowOperator(plain, {"x": lw.count_distinct()})
    elements = bundle([(1, float("nan")), (1, float("nan"))], [1, 1])
    assert shown(distinct, Bundle(elements.times, elements.keys, elements.values)) == 1


def test_values_that_cannot_be_told_apart_are_an_error() -> None:
    class Odd:
        __hash__ = None  # type: ignore[assignment]

    odd = Odd()
    stage = operator(x=lw.last())
    stage.step(bundle([odd], [1]))
    with pytest.raises(DataError, match="cannot be compared for equality") as raised:
        stage.step(bundle([odd], [-1]))
    assert "taken back" in str(raised.value)


# -- sums ---------------------------------------------------------------------------------------


def test_integer_sums_are_exact_and_go_below_zero() -> None:
    assert in_turn(lw.sum(), (MAX, 1), (MAX, -1), (5, -1)) == -5
    assert in_turn(lw.sum(), (MIN, 1), (MIN, -1), (3, 1)) == 3
    stage = operator(x=lw.sum())
    assert shown(stage, bundle([MIN, MAX, MIN], [1, 1, -1])) == MAX
    assert shown(stage, bundle([MAX, MAX], [-1, -1])) == -MAX


@pytest.mark.parametrize("signed", [[(MIN, -1)], [(MAX, -1), (2, -1)], [(MIN, 1), (1, -1)]])
def test_integer_sums_that_do_not_fit_are_errors(signed: list[Signed]) -> None:
    with pytest.raises(DataError, match="does not fit 64 bits"):
        in_turn(lw.sum(), *signed)


def test_sums_of_floats_forget_what_was_taken_back() -> None:
    assert in_turn(lw.sum(), (1e16, 1), (1.0, 1), (1e16, -1)) == 1.0
    assert in_turn(lw.sum(), (0.1, 1), (0.2, 1), (0.3, 1), (0.1, -1), (0.3, -1), (0.2, -1)) == 0.0
    assert shown(operator(x=lw.sum()), bundle([1e16, 1.0, 1e16], [1, 1, -1])) == 1.0


@pytest.mark.parametrize("spec", [lw.sum(), lw.mean()])
def test_infinities_and_nan_can_be_taken_back(spec: AggregateSpec) -> None:
    inf, nan = math.inf, math.nan
    assert in_turn(spec, (2.0, 1), (inf, 1), (nan, 1), (nan, -1)) == inf
    assert in_turn(spec, (2.0, 1), (inf, 1), (-inf, 1), (inf, -1)) == -inf
    assert math.isnan(in_turn(spec, (2.0, 1), (inf, 1), (-inf, 1)))
    assert in_turn(spec, (2.0, 1), (inf, 1), (nan, 1), (inf, -1), (nan, -1)) == 2.0
    assert math.isnan(in_turn(lw.var(), (2.0, 1), (1.0, 1), (inf, 1)))
    assert in_turn(lw.var(), (3.0, 1), (1.0, 1), (inf, 1), (inf, -1)) == 2.0


def test_a_sum_of_integers_may_go_on_as_one_of_floats() -> None:
    stage = operator(x=lw.sum())
    stage.step(bundle([5, 7], [1, 1]))
    assert shown(stage, bundle([0.5], [1])) == 12.5
    assert shown(stage, bundle([5], [-1]), bundle([0.5], [-1])) == 7.0


floats = st.floats(-1e6, 1e6, allow_subnormal=False)


@given(st.lists(floats, max_size=20), st.lists(floats | st.floats(-1e14, 1e14), max_size=20))
def test_spread_is_that_of_what_is_left(stays: list[float], goes: list[float]) -> None:
    """A large value that was taken back leaves no trace in mean, variance and deviation."""
    stage = operator(mean=lw.mean(), var=lw.var(), std=lw.std(ddof=0), sum=lw.sum())
    for value in [*stays[:10], *goes, *stays[10:]]:
        stage.step(bundle([value], [1]))
    pane = panes(stage.step(bundle([*goes, 1.0, 1.0], [*[-1] * len(goes), 1, -1])))[-1]
    scale = max(map(abs, stays), default=0.0)
    near = scale * 1e-12 + 1e-12
    assert pane.values["sum"] == pytest.approx(math.fsum(stays), rel=1e-9, abs=near)
    if not stays:
        assert (pane.values["mean"], pane.values["std"]) == (None, None)
        return
    assert pane.values["mean"] == pytest.approx(statistics.fmean(stays), rel=1e-9, abs=near)
    # The differences of equal numbers are not below the digits of their squares.
    blur = 1e-9 * scale * scale + 1e-6
    if len(stays) > 1:
        assert pane.values["var"] == pytest.approx(statistics.variance(stays), rel=1e-6, abs=blur)


def test_small_spreads_about_large_means_stay() -> None:
    values = [1e9 + at for at in (4.0, 7.0, 13.0, 16.0)]
    stage = operator(x=lw.var())
    stage.step(bundle([*values, 1e12], [1] * 5))
    assert shown(stage, bundle([1e12], [-1])) == pytest.approx(30.0, rel=1e-12)


def test_tests_count() -> None:
    stage = operator(any=lw.any(), all=lw.all())
    truths = [bundle([v], [s]) for v, s in ((True, 1), (False, 1), (True, -1), (False, -1))]
    seen = [tuple(panes(stage.step(each))[-1].values.values()) for each in truths]
    assert seen == [(True, True), (True, False), (False, False), (False, True)]


# -- the user's own -----------------------------------------------------------------------------


def test_a_combiner_that_subtracts_keeps_no_inputs() -> None:
    """S-C4."""
    stage = operator(x=lw.combine(Tally()))
    assert shown(stage, bundle([1, 2, 2], [1, 1, 1]), bundle([2, 1], [-1, -1])) == [(2, 1)]
    assert not stage._state.aggregation.bags()


def test_an_error_in_remove_input_names_it() -> None:
    class Bad(Tally):
        def remove_input(self, accumulator: dict[int, int], value: int) -> dict[int, int]:
            raise ZeroDivisionError

    with pytest.raises(Exception, match="remove_input"):
        in_turn(lw.combine(Bad()), (1, 1), (1, -1))


# -- state --------------------------------------------------------------------------------------


def test_state_does_not_grow_with_retractions() -> None:
    stage = operator(
        Windowing(windows=lw.GlobalWindow(), trigger=lw.AfterWatermark()),
        most=lw.max(), all=lw.collect(),
    )  # fmt: skip
    for turn in range(300):
        back = [turn - 1] * 100 if turn else []
        values, signs = [turn] * 100 + back, [1] * 100 + [-1] * len(back)
        stage.step(bundle(values, signs))
        assert max(map(len, stage._state.aggregation.bags().values())) < 3_000
    (pane,) = panes(stage.step(EndOfInput()))
    assert pane.values == {"most": 299, "all": [299] * 100}


def test_a_row_that_is_shown_drops_what_cancelled() -> None:
    stage = operator(x=lw.max())
    for turn in range(50):
        assert shown(stage, bundle([turn], [1])) == turn
        assert shown(stage, bundle([turn], [-1])) is None
    assert {len(bag) for bag in stage._state.aggregation.bags().values()} == {0}


def test_unsigned_operators_keep_what_they_kept() -> None:
    plain = WindowOperator(ONE_WINDOW, dict(ALL))
    signs = None
    elements = bundle([1, 2], [1, 1])
    plain.step(Bundle(elements.times, elements.keys, elements.values, signs))
    assert set(plain._state.aggregation.bags()) == {
        "collect:values", "set:values", "distinct:values"
    }  # fmt: skip
    with pytest.raises(InternalError, match="without signed"):
        plain.step(elements)


def test_a_store_holds_what_may_be_taken_back() -> None:
    stage = operator(**ALL)
    stage.step(bundle([3, 1, 2, 5], [1, 1, 1, -1], [3, 1, 2, 5]))
    stage.keep_in_store(StoredPlace("stage 7", 0, 4))
    stage._state.touch(stage._state.table.live())
    store, batch = MemoryStore(MemoryContents()), Batch()
    stage.save(batch)
    store.commit(batch)
    after = bundle([3, 5, 1], [-1, 1, 1], [3, 5, 9])
    (wanted,) = panes(stage.step(after))
    assert wanted.values["collect"] == [1, 2, 1]
    for_store = operator(**ALL)
    for_store.keep_in_store(StoredPlace("stage 7", 0, 4))
    assert for_store.restore(store)
    assert panes(for_store.step(after)) == [wanted]


def test_unsigned_state_is_not_taken_for_signed() -> None:
    plain = WindowOperator(ONE_WINDOW, {"x": lw.max()})
    elements = bundle([1], [1])
    place = StoredPlace("stage 7", 0, 4)
    plain.keep_in_store(place)
    plain.step(Bundle(elements.times, elements.keys, elements.values))
    store, batch = MemoryStore(MemoryContents()), Batch()
    plain.save(batch)
    store.commit(batch)
    signed = operator(x=lw.max())
    signed.keep_in_store(place)
    with pytest.raises(StateError):
        signed.restore(store)


# -- windows and modes --------------------------------------------------------------------------


def test_a_window_of_which_all_was_taken_back_shows_the_identity() -> None:
    """S-C3, S-P5."""
    stage = operator(ONE_WINDOW.with_(accumulation="retracting"), **ALL)
    stage.step(bundle([4], [1]))
    back, now = panes(stage.step(bundle([4], [-1])))
    assert (back.kind, back.values["sum"]) == ("retract", 4)
    assert now.values == {
        "count": 0, "some": 0, "sum": 0, "mean": None, "var": None, "std": None, "min": None,
        "max": None, "first": None, "last": None, "collect": [], "set": [], "distinct": 0,
        "tally": [],
    }  # fmt: skip


def test_a_retraction_counts_for_triggers_and_is_news() -> None:
    """S-C2."""
    trigger = lw.Repeatedly(lw.AfterCount(2))
    stage = operator(ONE_WINDOW.with_(trigger=trigger), x=lw.count())
    assert panes(stage.step(bundle([1], [1]))) == []
    assert [pane.value for pane in panes(stage.step(bundle([1], [-1])))] == [0]


def test_differences_go_below_zero() -> None:
    """S-C5."""
    stage = operator(ONE_WINDOW.with_(accumulation="discarding"), n=lw.count(), x=lw.sum())
    stage.step(bundle([5, 2], [1, 1]))
    (pane,) = panes(stage.step(bundle([5], [-1])))
    assert pane.values == {"n": -1, "x": -5}


@pytest.mark.parametrize("spec", [s for n, s in ALL.items() if n not in ("count", "some", "sum")])
def test_what_has_no_differences_is_refused_where_panes_show_them(spec: AggregateSpec) -> None:
    with pytest.raises(InvalidArgument, match="cannot be discarded between panes") as raised:
        operator(ONE_WINDOW.with_(accumulation="discarding"), x=spec)
    assert 'accumulation="retracting"' in str(raised.value)


def test_one_pane_of_a_window_shows_content_in_any_mode() -> None:
    windows = Windowing(windows=lw.FixedWindows(10), trigger=lw.AfterWatermark())
    stage = operator(windows, x=lw.max())
    stage.step(bundle([5, 2, 5], [1, 1, -1]))
    assert [pane.value for pane in panes(stage.step(EndOfInput()))] == [2]


def test_retractions_are_late_as_elements_are() -> None:
    """S-C6, S-O3."""
    stage = operator(Windowing(windows=lw.FixedWindows(10)), x=lw.sum())
    stage.step(bundle([5], [1]))
    stage.step(WatermarkAdvance(10))
    output = stage.step(bundle([5], [-1]))
    assert output.panes is None
    assert output.late is not None
    assert output.late.element.tolist() == [0]


def test_signs_go_with_their_elements_into_each_window() -> None:
    windows = Windowing(windows=lw.SlidingWindows(20, 10), allowed_lateness=0)
    stage = operator(windows, n=lw.count(), x=lw.sum(), all=lw.collect())
    stage.step(WatermarkAdvance(10))
    # The first is late for both of its windows; 7 is taken back from both of its own.
    stage.step(bundle([5, 7, 3, 7], [1, 1, 1, -1], [-5, 15, 25, 15]))
    (first, second, third) = panes(stage.step(EndOfInput()))
    assert first.values == {"n": 0, "x": 0, "all": []}
    assert second.values == third.values == {"n": 1, "x": 3, "all": [3]}


def test_sessions_merge_what_came_and_what_was_taken_back() -> None:
    windows = Windowing(
        windows=lw.Sessions(10), trigger=EACH, accumulation="accumulating", allowed_lateness=100
    )
    stage = operator(windows, **ALL)
    stage.step(bundle([1, 2, 8], [1, 1, 1], [0, 20, 20]))
    stage.step(bundle([2], [-1], [20]))
    (pane,) = panes(stage.step(bundle([4], [1], [10 - 1])))
    assert (pane.window.start, pane.window.end) == (0, 19)
    (pane,) = panes(stage.step(bundle([3], [1], [15])))
    assert (pane.window.start, pane.window.end) == (0, 30)
    assert pane.values["collect"] == [1, 8, 4, 3]
    assert pane.values["sum"] == 16
    assert pane.values["var"] == pytest.approx(statistics.variance([1, 8, 4, 3]))
    assert pane.values["max"] == 8
    (pane,) = panes(stage.step(bundle([8, 1], [-1, -1], [20, 0])))
    assert (pane.values["collect"], pane.values["max"]) == ([4, 3], 4)


@final
@dataclass(frozen=True)
class Product:
    """A vectorised aggregate of the user's own, that knows nothing of signs."""

    column: str = "value"
    needs: Needs = "numbers"
    name: str = "product"
    columns: tuple[StateColumn, ...] = (StateColumn("product", np.float64, 1.0),)

    def bind(self, type: Any, dtype: Any) -> Product:
        return self

    def add(self, state: Any, batch: Inputs) -> None:
        values = np.ones(0) if batch.values is None else batch.values
        np.multiply.at(state["product"], batch.rows, values)

    def merge(self, state: Any, into: Any, rows: Any) -> None:
        raise AssertionError("inputs merge, not products")

    def result(self, state: Any, rows: Any) -> Column:
        return Column(state["product"][rows])


def test_an_aggregate_of_ones_own_is_computed_from_what_is_left() -> None:
    assert in_turn(Product(), (2.0, 1), (0.0, 1), (5.0, 1), (0.0, -1)) == 10.0


def test_what_cuts_and_picks_elements_keeps_their_signs() -> None:
    elements = bundle([1, 2, 3], [1, -1, 1], [4, 5, 6])
    for part in (elements.slice(1, 3), elements.take(np.array([1, 2]))):
        assert part.signs is not None
        assert (part.times.tolist(), part.signs.tolist()) == ([5, 6], [-1, 1])
    plain = Bundle(elements.times, elements.keys, elements.values)
    assert plain.slice(1, 3).signs is plain.take(np.array([0])).signs is None
