"""Bugs planted in aggregates that order or sketch: the comparison with the oracle finds each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import given

from lowwater.engine.aggregates import _hyperloglog, _order, _quantiles, _tally, _top
from lowwater.engine.window import aggregation
from tests.property import ranked, test_ranked_equals_oracle
from tests.property import retracted_elements as signed
from tests.property import strategies as own
from tests.property.test_ranked_equals_oracle import AGGREGATES, PLAIN

Plant = Callable[[pytest.MonkeyPatch], None]


def ties_by_arrival(patch: pytest.MonkeyPatch) -> None:
    def unsorted(self: Any, order: Any, *_rest: Any) -> Any:
        return np.empty(0, dtype=np.int64)

    patch.setattr(_top.Top, "_sort_ties", unsorted)


def one_too_few(patch: pytest.MonkeyPatch) -> None:
    first = _top.Top._first

    def fewer(self: Any, owner: Any, held: Any) -> Any:
        rows, ends = first(self, owner, held)
        return rows[:-1], ends

    patch.setattr(_top.Top, "_first", fewer)


def retractions_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    add = _tally.Tally.add

    def added(self: Any, state: Any, batch: Any) -> None:
        add(self, state, batch if batch.signs is None else batch.where(batch.signs > 0))

    patch.setattr(_tally.Tally, "add", added)


def counts_of_merged_sessions_are_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_tally.Tally, "merge", lambda self, state, into, rows: None)


def ranks_are_rounded(patch: pytest.MonkeyPatch) -> None:
    def rounded(fraction: Any, totals: Any) -> Any:
        return np.maximum(np.floor(float(fraction) * totals).astype(np.int64), 1)

    patch.setattr(_quantiles, "_nearest_rank", rounded)


def negative_bins_are_positive(patch: pytest.MonkeyPatch) -> None:
    values = _quantiles.LogBins.values
    patch.setattr(_quantiles.LogBins, "values", lambda self, bins: abs(values(self, bins)))


def texts_in_order_of_arrival(patch: pytest.MonkeyPatch) -> None:
    def by_arrival(values: Any) -> Any:
        return np.array([list(values).index(value) for value in values], dtype=np.int64)

    patch.setattr(_order, "_ranks_of_text", by_arrival)


def coupons_of_merged_sessions_are_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_hyperloglog.ApproxDistinct, "merge", lambda self, state, into, rows: None)


def null_conditions_are_true(patch: pytest.MonkeyPatch) -> None:
    def true(column: Any, element: Any) -> Any:
        found = column.data.astype(np.bool_)
        if column.valid is not None:
            found = found | ~column.valid
        return found if element is None else found[element]

    patch.setattr(aggregation, "true_rows", true)


rarely_shown = pytest.mark.long(reason="many scenarios are drawn before one shows the bug")
PLAIN_BUGS: list[Any] = [
    one_too_few,
    ranks_are_rounded,
    null_conditions_are_true,
    pytest.param(ties_by_arrival, marks=rarely_shown),
    pytest.param(texts_in_order_of_arrival, marks=rarely_shown),
    pytest.param(counts_of_merged_sessions_are_lost, marks=rarely_shown),
    pytest.param(coupons_of_merged_sessions_are_lost, marks=rarely_shown),
]
SIGNED_BUGS: list[Any] = [
    retractions_are_forgotten,
    pytest.param(ranks_are_rounded, marks=rarely_shown),
]


def caught(case: Any, check: Callable[[Any], None]) -> bool:
    """Return whether a comparison finds a difference in one of 150 cases."""

    @hypothesis.settings(
        max_examples=150, database=None, deadline=None, derandomize=True,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    @given(case)
    def run(one: Any) -> None:
        check(one)

    try:
        run()
    except AssertionError:
        return True
    except Exception as error:  # a bug may also make the engine fail
        return "lowwater" in repr(type(error)) or isinstance(error, (IndexError, ValueError))
    return False


def compared(case: Any) -> None:
    with test_ranked_equals_oracle.passing_over(0):
        test_ranked_equals_oracle.check(case, AGGREGATES, PLAIN)


@pytest.mark.parametrize("plant", PLAIN_BUGS, ids=lambda plant: plant.__name__)
def test_bugs(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    windows = own.windowings(own.sessions() | own.fixed())
    assert caught(own.cases(windows, ranked=True), lambda case: compared((*case, None)))


@pytest.mark.parametrize("plant", SIGNED_BUGS, ids=lambda plant: plant.__name__)
def test_bugs_with_retractions(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert caught(signed.cases(signed.safe_windowings()), compared)


@pytest.mark.long(reason="draws all the scenarios in which a bug may show")
def test_no_bug() -> None:
    windows = own.windowings(own.sessions() | own.fixed())
    assert not caught(own.cases(windows, ranked=True), lambda case: compared((*case, None)))


def test_negative_values_have_bins_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    negative_bins_are_positive(monkeypatch)
    bins = _quantiles.log_bins(0.1, 1.0, 100.0)
    assert bins.values(bins.of(np.array([-5.0]))) != pytest.approx(
        [ranked.estimate([-5.0], 0.5, 0.1, 1.0)]
    )
