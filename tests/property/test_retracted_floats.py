"""T-5, S-C4: a finite value that was taken back leaves no trace, however large or small it was."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from tests.examples import sampled

MOST = 1.7976931348623157e308
ODD = st.sampled_from([MOST, -MOST, 1e200, -1e200, 1e20, -1e20, 5e-324, 1e-300, 2.0**53, 0.1, 0.0])
FLOATS = st.one_of(ODD, st.floats(-1e6, 1e6), st.floats(allow_nan=False, allow_infinity=False))
SIZES_AND_COPIES = [(1, 5), (1, 1), (1, 2), (2, 1), (2, 2), (100, 2), (2, 5), (100, 1), (100, 5)]
AGGREGATES = {"s": lw.sum("v"), "m": lw.mean("v"), "v": lw.var("v", ddof=0), "n": lw.count("v")}


def of_table(changes: Sequence[tuple[int, float | None]], size: int) -> list[dict[str, Any]]:
    rows = [
        {"at": at, "id": one, "g": 1, "v": 0.0 if value is None else value, "gone": value is None}
        for at, (one, value) in enumerate(changes)
    ]
    table = lw.from_iterable(rows, time="at", unit="s").table(key="id", deleted=lw.col("gone"))
    found = table.group_by("g").aggregate(**AGGREGATES).rows(bundle_size=size, progress=False)
    return [{name: row[name] for name in AGGREGATES} for row in found]


def exact(values: list[float]) -> tuple[Fraction, Fraction]:
    whole = [Fraction(value) for value in values]
    total = sum(whole, Fraction())
    mean = total / len(whole)
    return total, sum(((one - mean) ** 2 for one in whole), Fraction()) / len(whole)


def is_near(found: float, wanted: Fraction, size: Fraction) -> bool:
    """Whether a float is a value to within a unit, or more than floats can be."""
    if abs(wanted) >= Fraction(2) ** 1024 - Fraction(2) ** 970:
        return math.isinf(found) or abs(Fraction(found) - wanted) <= abs(wanted) / 2**52
    room = abs(wanted) / 2**51 + size / 2**95 + Fraction(5e-324)
    return not math.isnan(found) and not math.isinf(found) and abs(Fraction(found) - wanted) <= room


@given(
    st.lists(st.tuples(st.integers(0, 3), st.one_of(st.none(), FLOATS)), min_size=1, max_size=14),
    st.integers(1, 15),
)
def test_a_group_is_what_its_rows_come_to(
    changes: list[tuple[int, float | None]], size: int
) -> None:
    left = [value for value in dict(changes).values() if value is not None]
    found = of_table(changes, size)
    if not left:
        assert found == []
        return
    (row,) = found
    total, _ = exact(left)
    largest = Fraction(max(map(abs, left)))
    assert row["n"] == len(left)
    assert is_near(row["s"], total, largest)
    assert is_near(row["m"], total / len(left), largest) or math.isinf(row["s"])


@pytest.mark.parametrize("odd", [MOST, -MOST, 1e200, 1e20, 9.99e37, 5e-324, 1e-310])
@pytest.mark.parametrize(
    ("size", "copies"), sampled([pytest.param(*one) for one in SIZES_AND_COPIES], every=5)
)
def test_a_fill_value_that_is_corrected_leaves_no_trace(odd: float, size: int, copies: int) -> None:
    values = [1.5, 2.25, -0.1, 1e3]
    sound = list(enumerate(values))
    fills = [(10 + at, odd) for at in range(copies)]
    corrected = [(10 + at, 0.5) for at in range(copies)]
    gone = [(10 + at, None) for at in range(copies)]
    plain = of_table([*sound, *corrected], 100)
    assert of_table([*sound, *fills, *corrected], size) == plain
    assert of_table([*fills, *sound, *corrected], size) == plain
    assert of_table([*sound, *fills, *gone], size) == of_table(sound, 100)
    (row,) = plain
    wanted = values + [0.5] * copies
    total, variance = exact(wanted)
    assert row["s"] == pytest.approx(float(total), rel=1e-15)
    assert row["v"] == pytest.approx(float(variance), rel=1e-14)


@given(st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=12), st.integers(1, 13))
def test_tables_and_windows_agree(values: list[float], size: int) -> None:
    rows = [{"at": at, "k": 1, "v": value} for at, value in enumerate(values)]
    stage = (
        lw.from_iterable(rows, time="at", unit="us").key_by("k").window(lw.FixedWindows("1h"))
        .aggregate(**AGGREGATES)
    )  # fmt: skip
    (pane,) = stage.collect(bundle_size=size, progress=False).panes
    (row,) = of_table(list(enumerate(values)), size)
    scale = max(map(abs, values))
    assert row["s"] == pytest.approx(pane.values["s"], rel=1e-13, abs=scale * 1e-13)
    assert row["m"] == pytest.approx(pane.values["m"], rel=1e-13, abs=scale * 1e-13)
    assert row["v"] == pytest.approx(pane.values["v"], rel=1e-9, abs=scale * scale * 1e-14)
