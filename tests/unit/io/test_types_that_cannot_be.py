"""Types that nothing here can hold or compare are refused in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lowwater as lw

BASE = {"at": [1, 2, 3], "k": [1, 1, 1]}
SIZES = ["low", "mid", "high"]


def most(frame: Any, pick: Any = lw.max) -> Any:
    stream = lw.from_frame(frame, time="at", unit="s").key_by("k").window(lw.FixedWindows("1h"))
    return stream.aggregate(m=pick("v")).collect(progress=False).panes[0].values["m"]


ORDERED = [
    pl.DataFrame({**BASE, "v": SIZES}).with_columns(pl.col("v").cast(pl.Enum(SIZES))),
    pd.DataFrame({**BASE, "v": pd.Categorical(SIZES, SIZES, ordered=True)}),
    pa.table({**BASE, "v": pa.DictionaryArray.from_arrays([0, 1, 2], SIZES, ordered=True)}),
]


@pytest.mark.parametrize("frame", ORDERED, ids=["polars", "pandas", "pyarrow"])
@pytest.mark.parametrize("pick", [lw.max, lw.min, lambda v: lw.last("k", by=v)])
def test_ordered_categories_are_not_compared_as_text(frame: Any, pick: Any) -> None:
    with pytest.raises(lw.InvalidArgument, match=r"ordered categories.*max_by"):
        most(frame, pick)
    assert most(frame, lw.collect) == SIZES
    assert most(frame, lw.last) == "high"


def test_categories_without_an_order_are_text() -> None:
    assert most(pl.DataFrame({**BASE, "v": SIZES}).cast({"v": pl.Categorical})) == "mid"


SPARSE = pa.UnionArray.from_sparse(
    pa.array([0, 1, 0], pa.int8()), [pa.array([1, 2, 3]), pa.array(["a", "b", "c"])]
)
DENSE = pa.UnionArray.from_dense(
    pa.array([0, 1, 0], pa.int8()), pa.array([0, 0, 1], pa.int32()), [pa.array([1, 3]), SPARSE[:1]]
)
UNIONS = [SPARSE, DENSE, pa.StructArray.from_arrays([SPARSE], ["x"]),
          pa.ListArray.from_arrays([0, 1, 2, 3], SPARSE)]  # fmt: skip


@pytest.mark.parametrize("values", UNIONS, ids=lambda values: str(values.type)[:12])
def test_unions_are_refused_by_name(values: pa.Array) -> None:
    with pytest.raises(lw.DataError, match=r"the column 'v' is .*union.* cannot be held"):
        most(pa.table({**BASE, "v": values}), lw.collect)


def test_integers_of_128_bits_are_refused_by_name() -> None:
    frame = pl.DataFrame(BASE).with_columns(v=pl.lit(2**100, dtype=pl.Int128))
    with pytest.raises(lw.InvalidArgument, match=r"'v' is Int128.*Cast it before"):
        most(frame)


@pytest.mark.parametrize("kind", ["string_view", "binary_view", "null", pa.list_(pa.int64())])
def test_types_that_no_field_of_csv_has_are_refused(kind: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("at,v\n1,2\n")
    with pytest.raises(lw.InvalidArgument, match="types= cannot say that 'v' is"):
        lw.read_csv(tmp_path, time="at", types={"v": kind})


@pytest.mark.parametrize("wide", [2**53 + 1, -(2**63), 2**63 - 1])
def test_a_frame_of_pandas_rounds_no_integer_beside_nulls(wide: int) -> None:
    rows = [{"at": at, "k": at, "v": value} for at, value in enumerate([wide, None, 3])]
    stream = lw.from_iterable(rows, time="at", unit="s").key_by("k").window(lw.FixedWindows("1s"))
    frame = stream.aggregate(m=lw.max("v")).collect(progress=False).to_pandas()
    assert [None if pd.isna(one) else int(one) for one in frame.m] == [wide, None, 3]
    small = stream.aggregate(m=lw.count("v")).collect(progress=False).to_pandas()
    assert small.m.dtype == "int64"
