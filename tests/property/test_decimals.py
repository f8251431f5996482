"""Sums and means of decimals are exact: of 38 digits, and rounded half up (S-B1)."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw

WIDE = Context(prec=200)
PRICES = st.decimals(-(10**6), 10**6, places=2)
ANY = st.one_of(
    PRICES,
    st.decimals(-(10**9), 10**9, places=0),
    st.integers(-(10**25), 10**25).map(lambda v: Decimal(v).scaleb(-7, WIDE)),
    st.sampled_from([Decimal("0.005"), Decimal("-0.005"), Decimal(10) ** 9, Decimal("1E-15")]),
)
SPECS = {"s": lw.sum("v"), "m": lw.mean("v"), "n": lw.count("v")}


def scale_of(values: list[Decimal]) -> int:
    return max((max(0, -int(value.as_tuple().exponent)) for value in values), default=0)


def wanted(values: list[Decimal]) -> dict[str, Any]:
    total = sum(map(Fraction, values), Fraction())
    places = scale_of(values)
    return {
        "s": rounded(total, places), "m": rounded(total / len(values), places + 4),
        "n": len(values),
    }  # fmt: skip


def rounded(value: Fraction, places: int) -> Decimal:
    """Return a fraction with so many digits, halves away from 0."""
    whole, rest = divmod(abs(value) * 10**places, 1)
    whole += rest >= Fraction(1, 2)
    return Decimal(int(whole) * (-1 if value < 0 else 1)).scaleb(-places, WIDE)


def stage_of(stream: Any, specs: Any = SPECS) -> Any:
    return stream.key_by("k").window(lw.FixedWindows("1h")).aggregate(**specs)


def rows(values: list[Any]) -> list[dict[str, Any]]:
    return [{"at": at, "k": 1, "v": value} for at, value in enumerate(values)]


@given(st.one_of(st.lists(PRICES, min_size=1, max_size=9), st.lists(ANY, min_size=1, max_size=9)),
       st.integers(1, 10))  # fmt: skip
def test_a_window_is_what_fractions_come_to(values: list[Decimal], size: int) -> None:
    stream = lw.from_iterable(rows(values), time="at", unit="us")
    (pane,) = stage_of(stream).collect(bundle_size=size, progress=False).panes
    assert pane.values == wanted(values)


@given(st.lists(PRICES, min_size=1, max_size=9), st.integers(1, 10),
       st.sampled_from([pa.decimal32(9, 2), pa.decimal64(12, 2), pa.decimal128(10, 2),
                        pa.decimal128(38, 4), pa.decimal256(50, 3)]))  # fmt: skip
def test_a_column_of_arrow_is_what_its_values_are(
    values: list[Decimal], size: int, kind: pa.DataType
) -> None:
    table = pa.table(
        {"at": range(len(values)), "k": [1] * len(values), "v": pa.array(values, kind)}
    )
    stream = lw.from_arrow(table, time="at", unit="us")
    (pane,) = stage_of(stream).collect(bundle_size=size, progress=False).panes
    found = wanted(values)
    assert pane.values["s"] == found["s"]
    assert pane.values["m"] == rounded(
        sum(map(Fraction, values), Fraction()) / len(values), kind.scale + 4
    )
    emitted = stage_of(stream).collect(progress=False).to_arrow()
    assert emitted.schema.field("s").type == pa.decimal128(38, kind.scale)
    assert emitted.schema.field("m").type == pa.decimal128(38, kind.scale + 4)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.one_of(st.none(), ANY)), min_size=1, max_size=12),
    st.integers(1, 13),
)
def test_a_group_of_a_table_is_what_its_rows_come_to(
    changes: list[tuple[int, Decimal | None]], size: int
) -> None:
    given_ = [
        {"at": at, "id": one, "g": 1, "v": Decimal(0) if v is None else v, "gone": v is None}
        for at, (one, v) in enumerate(changes)
    ]
    table = lw.from_iterable(given_, time="at", unit="s").table(key="id", deleted=lw.col("gone"))
    found = table.group_by("g").aggregate(**SPECS).rows(bundle_size=size, progress=False)
    left = [value for value in dict(changes).values() if value is not None]
    if not left:
        assert found == []
        return
    (row,) = found
    assert row["n"] == len(left)
    assert row["s"] == wanted(left)["s"]
    near = Context(prec=60, rounding=ROUND_HALF_UP)
    assert abs(row["m"] - near.divide(row["s"], Decimal(len(left)))) <= Decimal("0.00005")


@pytest.mark.parametrize("size", [1, 100])
def test_what_is_no_decimal_of_38_digits_is_a_dead_letter(size: int) -> None:
    values = [Decimal("1.10"), Decimal("NaN"), Decimal("sNaN"), Decimal("Infinity"), 2, 2.5, True,
              Decimal(10) ** 38, Decimal("1E-39"), None, Decimal("2.20")]  # fmt: skip
    stream = lw.from_iterable(rows(values), time="at", unit="us")
    found = stage_of(stream).collect(bundle_size=size, on_error="dead_letter", progress=False)
    (pane,) = found.panes
    assert pane.values == {"s": Decimal("3.30"), "m": Decimal("1.650000"), "n": 2}
    assert [error.record["at"] for error in found.errors] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_sum_beyond_38_digits_is_an_error_when_it_is_emitted() -> None:
    most = Decimal("9" * 38)
    back = lw.from_iterable(rows([most, most, most.copy_negate()]), time="at", unit="us")
    (pane,) = stage_of(back, {"s": lw.sum("v")}).collect(bundle_size=1, progress=False).panes
    assert pane.values["s"] == most
    beyond = lw.from_iterable(rows([most, most]), time="at", unit="us")
    with pytest.raises(lw.DataError, match="more than 38 digits"):
        stage_of(beyond, {"s": lw.sum("v")}).collect(progress=False)


@pytest.mark.parametrize("spread", [lw.var, lw.std])
def test_a_spread_of_decimals_is_refused(spread: Any) -> None:
    stream = lw.from_iterable(rows([Decimal(1), Decimal(2)]), time="at", unit="us")
    with pytest.raises(lw.InvalidArgument, match=r"of decimals is not exact.*cast"):
        stage_of(stream, {"x": spread("v")}).collect(progress=False)


@pytest.mark.parametrize("size", [1_000, 20_000])
def test_past_every_chunk_and_through_a_restart(size: int, tmp_path: Path) -> None:
    count = 20_000
    cents = (np.arange(count) * 7919) % 100_003 - 50_000
    values = [Decimal(int(one)).scaleb(-2) for one in cents]
    table = pa.table({"at": np.arange(count), "k": np.arange(count) % 3,
                      "v": pa.array(values, pa.decimal128(12, 2))})  # fmt: skip
    pq.write_table(table, tmp_path / "in.parquet")
    stage = stage_of(lw.read_parquet(tmp_path / "in.parquet", time="at", unit="us"))
    plain = {pane.key: pane.values for pane in stage.collect(progress=False).panes}
    assert plain == {key: wanted(values[key::3]) for key in range(3)}
    stage.write_parquet(tmp_path / "out").run(
        state=tmp_path / "state", bundle_size=size, commit_every="bundle", progress=False
    )
    found = pq.read_table(tmp_path / "out").to_pylist()
    assert {row["k"]: {n: row[n] for n in SPECS} for row in found} == plain
