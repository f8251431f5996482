"""The errors of approximate aggregates, and what their results depend on."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.aggregates._hyperloglog import coupons, estimates
from lowwater.engine.aggregates._quantiles import log_bins
from lowwater.errors import InvalidArgument
from tests.examples import examples


def one(values: Any, spec: Any, bundle: int = 50_000) -> Any:
    """What one window shows of a column."""
    times = pa.array(np.zeros(len(values), dtype=np.int64), pa.timestamp("us", "UTC"))
    table = pa.table({"at": times, "v": values})
    stream = lw.from_arrow(table, time="at").key_by(k=lw.lit(1)).window(lw.GlobalWindow())
    (pane,) = stream.aggregate(x=spec).run(bundle_size=bundle, on_error="raise")
    return pane.values["x"]


# --- approx_quantile ----------------------------------------------------------------------------


@given(
    st.lists(
        st.floats(1e-9, 1e9) | st.floats(-1e9, -1e-9) | st.just(0.0) | st.integers(-1000, 1000),
        min_size=1,
    ),
    st.fractions(0, 1, max_denominator=1000),
    st.sampled_from([0.001, 0.01, 0.1, 0.5]),
)
@examples(10)
def test_never_beyond_the_error(values: list[float], q: Fraction, error: float) -> None:
    """Also where values lie on a bound between two bins."""
    plain = [float(value) for value in values]
    exact = sorted(plain)[max(math.ceil(q * len(plain)), 1) - 1]
    bins = log_bins(error, 1e-9, 1e9)
    (about,) = bins.values(bins.of(np.array([exact]))).tolist()
    assert abs(about - exact) <= error * (1 + 1e-9) * abs(exact)
    fraction = float(q)
    picked = sorted(plain)[max(math.ceil(Fraction(repr(fraction)) * len(plain)), 1) - 1]
    found = one(plain, lw.approx_quantile("v", fraction, error=error))
    assert abs(found - picked) <= error * (1 + 1e-9) * abs(picked)


@pytest.mark.parametrize("error", [0.001, 0.01, 0.3])
def test_on_and_beside_every_bound(error: float) -> None:
    bins = log_bins(error, 1e-3, 1e6)
    edges = np.concatenate(
        [np.nextafter(bins.bounds, 0), bins.bounds, np.nextafter(bins.bounds, np.inf)]
    )
    inside = edges[(edges >= 1e-3) & (edges <= bins.bounds[-1])]
    for values in (inside, -inside):
        about = bins.values(bins.of(values))
        assert (np.abs(about - values) <= error * (1 + 1e-9) * np.abs(values)).all()


def test_values_out_of_range_count_at_its_ends() -> None:
    spec = lw.approx_quantile("v", [0, 0.5, 1], between=(1.0, 1000.0))
    assert one([1e-300, 5.0, math.inf], spec) == pytest.approx([1.0, 5.0, 1000.0], rel=0.011)
    assert one([-math.inf, 0.0, -1e-300], spec) == pytest.approx([-1000.0, -1.0, 0.0], rel=0.011)


def test_too_many_bins() -> None:
    with pytest.raises(InvalidArgument, match=r"takes more than 65,536 bins .* larger error"):
        lw.approx_quantile("v", 0.5, error=1e-9)


@pytest.mark.parametrize("error", [0, 1, 0.0, 1.0, -0.1, math.nan, "1 %", None])
def test_errors_that_are_none(error: Any) -> None:
    with pytest.raises(InvalidArgument, match="above 0 and below 1"):
        lw.approx_quantile("v", 0.5, error=error)


@pytest.mark.parametrize("between", [(0, 1), (2, 1), (1, math.inf), (1,), 3, None, ("a", "b")])
def test_ranges_that_are_none(between: Any) -> None:
    with pytest.raises(InvalidArgument, match="smallest < largest"):
        lw.approx_quantile("v", 0.5, between=between)


def test_decimals_are_refused() -> None:
    times = pa.array([0], pa.timestamp("us", "UTC"))
    table = pa.table({"at": times, "v": pa.array([None], pa.decimal128(5, 2))})
    stream = lw.from_arrow(table, time="at").key_by(k=lw.lit(1)).window(lw.GlobalWindow())
    with pytest.raises(InvalidArgument, match="approx_quantile of decimals"):
        stream.aggregate(lw.approx_quantile("v", 0.5))


# --- approx_count_distinct ----------------------------------------------------------------------


def registers(values: Any, precision: int = 11) -> np.ndarray[Any, Any]:
    found = coupons(np.asarray(values), precision)
    made = np.zeros(1 << precision, dtype=np.uint8)
    np.maximum.at(made, found >> 6, (found & 63).astype(np.uint8))
    return made


def test_registers_are_pinned() -> None:
    """A stored format, equal to that of DataSketches: see tests/spark/test_sketches.py."""
    texts = np.array([f"user-{n}" for n in range(100)] + ["", "é" * 20], dtype=object)
    assert coupons(np.array([0, 1, -1, 2**62]), 11).tolist() == INTEGERS
    assert coupons(np.array([0.5, -0.0, 1e300]), 11).tolist() == FLOATS
    assert coupons(texts, 11)[[0, 1, 99, 100, 101]].tolist() == TEXTS


INTEGERS = [127681, 35521, 79426, 74625]
FLOATS = [72902, 127681, 69378]
TEXTS = [53954, 40321, 68995, 60994, 76161]


def test_equal_values_are_one_value() -> None:
    """J-1: whatever column a number stands in."""
    ints = coupons(np.array([0, 1, 5, 2**53]), 14)
    for values in ([0.0, 1.0, 5.0, 2.0**53], [-0.0, True, 5, 2**53]):
        assert coupons(np.array(values, dtype=object), 14).tolist() == ints.tolist()
    assert coupons(np.array([0.0, 1.0, 5.0, 2.0**53]), 14).tolist() == ints.tolist()
    floats = [0.5, 1e300, 2.0**80, math.nan, math.inf]
    assert (
        coupons(np.array(floats, dtype=object), 14).tolist()
        == coupons(np.array(floats), 14).tolist()
    )
    large: list[Any] = [2**80, 2.0**80]
    assert len(set(coupons(np.array(large, dtype=object), 14).tolist())) == 1


def test_long_texts_are_hashed_as_short_ones_beside_them() -> None:
    """Few long texts are finished one by one, many in one pass over their blocks."""
    for length in (15, 16, 17, 31, 32, 33, 200):
        many = np.array([f"{n:03}{'x' * length}" for n in range(100)], dtype=object)
        alone = [coupons(many[at : at + 1], 21)[0] for at in range(100)]
        assert coupons(many, 21).tolist() == alone


def test_values_of_every_kind_that_can_be_a_key() -> None:
    import datetime as dt
    import uuid
    from decimal import Decimal

    values: list[Any] = [
        1, "1", b"1", Decimal("1.5"), dt.date(2000, 1, 1), dt.timedelta(1), (1, "a"),
        uuid.UUID(int=1), 2**80, 2**80 + 1, "\ud800", frozenset({1}),
        dt.datetime(2000, 1, 1, tzinfo=dt.UTC),
    ]  # fmt: skip
    given = np.empty(len(values), dtype=object)
    given[:] = values
    assert len(set(coupons(given, 21).tolist())) == len(values)


@pytest.mark.parametrize("count", [0, 1, 10, 100, 256, 257, 1000, 10_000])
@pytest.mark.parametrize("bundle", [97, 50_000])
def test_the_estimate_depends_on_the_set_alone(count: int, bundle: int) -> None:
    """Through coupons, registers and both: 256 slots are the most that are kept as coupons."""
    values = np.random.default_rng(count).integers(0, 2**60, count)
    twice = np.random.default_rng(1).permutation(np.concatenate((values, values)))
    wanted = int(estimates(np.bincount(registers(values), minlength=64)[None, :], 2048)[0])
    if count:
        assert one(twice, lw.approx_count_distinct("v"), bundle) == wanted
        texts = [str(value) for value in twice]
        assert one(texts, lw.approx_count_distinct("v"), bundle) == pytest.approx(count, rel=0.1)
    else:
        assert wanted == 0


def errors_of(count: int, trials: int, precision: int = 11) -> float:
    """The root mean square of the relative error over sets of distinct values."""
    found = []
    for trial in range(trials):
        values = np.arange(count, dtype=np.int64) + (trial << 40)
        ranks = np.bincount(registers(values, precision), minlength=64)[None, :]
        found.append(int(estimates(ranks, 1 << precision)[0]) / count - 1)
    return float(np.sqrt(np.mean(np.square(found))))


@pytest.mark.parametrize(
    ("count", "trials"), [(10, 200), (100, 200), (1_000, 100), (10_000, 60), (100_000, 12)]
)
def test_the_error_at_precision_11(count: int, trials: int) -> None:
    """At most 2.5 %, with some room for the number of trials: 1.04 / sqrt(2048) is 2.3 %."""
    assert errors_of(count, trials) <= 0.025 * (1 + 1 / math.sqrt(2 * trials))


@pytest.mark.long(reason="estimates over millions of values")
@pytest.mark.parametrize(("count", "trials"), [(10, 2000), (1_000, 2000), (1_000_000, 60)])
def test_the_error_at_precision_11_over_many_sets(count: int, trials: int) -> None:
    assert errors_of(count, trials) <= 0.025 * (1 + 1 / math.sqrt(2 * trials))


@pytest.mark.parametrize("precision", [8, 12, 16, 21])
def test_other_precisions(precision: int) -> None:
    error = 1.04 / math.sqrt(2**precision)
    trials = 40 if precision < 16 else 8
    assert errors_of(5000, trials, precision) <= error * (1 + 2 / math.sqrt(trials))


@pytest.mark.parametrize("precision", [3, 22, 11.0, True, "11"])
def test_precisions_that_are_none(precision: Any) -> None:
    with pytest.raises(InvalidArgument, match="precision="):
        lw.approx_count_distinct("v", precision=precision)


def test_sessions_that_merge_keep_no_coupons_beside_registers() -> None:
    """300 sessions of 60 records that one with registers takes in, one after the other."""
    from lowwater.engine.aggregates._hyperloglog import ApproxDistinct

    rows = [{"at": 0, "v": n} for n in range(1000)]
    for session in range(1, 300):
        rows += [{"at": 10 * session, "v": 1000 * session + n} for n in range(60)]
        rows.append({"at": 10 * session - 5, "v": 0})
    stream = lw.from_iterable(rows, time="at", unit="s").key_by(k=lw.lit(1))
    pipeline = stream.window(lw.Sessions("6s")).aggregate(x=lw.approx_count_distinct("v"))
    held: list[int] = []
    result = ApproxDistinct.result

    def seen(self: Any, state: Any, window_rows: Any) -> Any:
        held.append(len(state["coupons"]))
        return result(self, state, window_rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ApproxDistinct, "result", seen)
        (pane,) = pipeline.run(bundle_size=61)
    assert max(held) <= 1000
    assert pane.values["x"] == pytest.approx(1000 + 299 * 60, rel=0.1)


def test_windows_that_merge_join_their_registers() -> None:
    """Two sessions with registers, one with coupons, and the record that merges all three."""
    numbers = [*range(2000), *range(1000, 3000), *range(5000, 5100)]
    times = [0] * 2000 + [20] * 2000 + [10] * 100
    order = np.argsort(np.random.default_rng(3).random(len(times)))
    table = pa.table({
        "at": pa.array([times[at] * 1_000_000 for at in order], pa.timestamp("us", "UTC")),
        "v": [numbers[at] for at in order],
    })  # fmt: skip
    bridge = pa.table({"at": pa.array([5_000_000, 15_000_000], table["at"].type), "v": [1, 2]})
    stream = lw.from_arrow(pa.concat_tables([table, bridge]), time="at").key_by(k=lw.lit(1))
    pipeline = stream.window(lw.Sessions("6s")).aggregate(x=lw.approx_count_distinct("v"))
    wanted = one(sorted({*numbers, 1, 2}), lw.approx_count_distinct("v"))
    for bundle in (100, 5000):
        (pane,) = pipeline.run(bundle_size=bundle)
        assert pane.values["x"] == wanted
