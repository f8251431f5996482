"""from_frame: frames of several libraries, eager and lazy, through the sources there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import narwhals as nw
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.errors import DataError, InvalidArgument
from lowwater.io.frames import LazySource, frame_source
from lowwater.io.in_memory import ArrowSource, ColumnsSource

TABLE = pa.table(
    {
        "at": pa.array([0, 10, 20, 70], pa.int64()).cast(pa.timestamp("s", "UTC")),
        "k": ["a", "b", "a", None],
        "v": pa.array([1, None, 3, 4], pa.int64()),
    }
)
POLARS = pl.DataFrame(TABLE)
PANDAS = TABLE.to_pandas(types_mapper=pd.ArrowDtype)
FRAMES = {
    "pyarrow": TABLE,
    "pyarrow batch": TABLE.to_batches()[0],
    "polars": POLARS,
    "polars lazy": POLARS.lazy(),
    "polars lazy, with work": POLARS.lazy().with_columns(pl.col("v") + 0),
    "pandas": PANDAS,
    "pandas index": PANDAS.set_index("k"),
    "narwhals": nw.from_native(POLARS),
    "narwhals lazy": nw.from_native(POLARS.lazy()),
    "narwhals pandas": nw.from_native(PANDAS),
}


def sums(frame: Any, **options: Any) -> tuple[list[Any], list[str]]:
    result = (
        lw.from_frame(frame, time="at")
        .key_by("k")
        .window(lw.FixedWindows("1m"))
        .aggregate(total=lw.sum("v"), n=lw.count("v"))
        .collect(**options)
    )
    found = [(pane.key, *pane.values.values()) for pane in result.panes]
    return found, [error.reason for error in result.errors]


@pytest.mark.parametrize("size", [1, 3, 50_000])
@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_all_frames_give_the_same_panes(frame: Any, size: int) -> None:
    assert sums(frame, bundle_size=size) == ([("a", 4, 2), ("b", 0, 0)], ["null_key"])


def test_there_is_one_source_for_each_kind() -> None:
    assert isinstance(frame_source(TABLE, "at"), ArrowSource)
    assert isinstance(frame_source(POLARS, "at"), ArrowSource)
    assert isinstance(frame_source(PANDAS, "at"), ColumnsSource)
    lazy = frame_source(POLARS.lazy(), "at")
    assert isinstance(lazy, LazySource)
    assert repr(lazy) == "LazySource(polars)"
    assert lazy.schema.names == ["at", "k", "v"]


def test_a_lazy_frame_is_collected_in_batches_and_by_each_run() -> None:
    collected: list[int] = []

    def counting(frame: pl.DataFrame) -> pl.DataFrame:
        collected.append(len(frame))
        return frame

    frame = POLARS.lazy().map_batches(counting, schema=POLARS.schema)
    built = lw.from_frame(frame, time="at").key_by("k").window(lw.FixedWindows("1m"))
    pipeline = built.aggregate(n=lw.count())
    collected.clear()
    assert len(pipeline.collect().panes) == len(pipeline.collect().panes) == 2
    assert len(collected) == 2


def test_a_lazy_frame_that_streams_arrow() -> None:
    """As DuckDB's relations do: one batch at a time."""
    taken: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for at in range(4):
            taken.append(at)
            yield TABLE.slice(at, 1).to_batches()[0]

    class Native:
        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            reader = pa.RecordBatchReader.from_batches(TABLE.schema, batches())
            return reader.__arrow_c_stream__(requested_schema)

    class Lazy:
        def to_native(self) -> Native:
            return Native()

    stub: Any = Lazy()
    found = LazySource(stub, TABLE.schema).batches(1, ())
    assert next(found).length == 1
    assert len(taken) < 4
    assert [part.length for part in found] == [1, 1, 1]


def test_a_lazy_frame_that_fails_on_the_way() -> None:
    def failing(frame: pl.DataFrame) -> pl.DataFrame:
        raise ValueError("no such luck")

    frame = POLARS.lazy().map_batches(failing, schema=POLARS.schema)
    source = LazySource(nw.from_native(frame), TABLE.schema)
    with pytest.raises(DataError, match=r"collecting the lazy frame failed(.|\n)*no such luck"):
        list(source.batches(10, ()))


def test_a_result_is_a_frame() -> None:
    panes = (
        lw.from_frame(TABLE, time="at")
        .key_by("v")
        .window(lw.FixedWindows("1m"))
        .aggregate(n=lw.count())
        .collect()
    )
    for frame in (panes, panes.final()):
        again = lw.from_frame(frame, time="timestamp").key_by(all=lw.lit(0))
        (pane,) = again.window(lw.FixedWindows("1h")).aggregate(n=lw.sum("n")).collect().panes
        assert pane.value == 3


@pytest.mark.parametrize("frame", [5, None, object(), POLARS["v"], pd.Series([1])])
def test_what_is_no_frame(frame: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"from_frame.*Give"):
        lw.from_frame(frame, time="at")


@pytest.mark.parametrize("kind", ["eager", "lazy", "pandas"])
def test_names_that_the_library_keeps_for_itself(kind: str) -> None:
    frame = POLARS.rename({"v": "__lw_v"})
    frames = {"eager": frame, "lazy": frame.lazy(), "pandas": frame.to_pandas()}
    with pytest.raises(DataError, match=r"__lw_v.*from_frame"):
        lw.from_frame(frames[kind], time="at")
