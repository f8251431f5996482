"""Sources over DataFrames of any library that narwhals knows, eager or lazy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, final

import pyarrow as pa

from lowwater.engine.graph.sources import read_rows
from lowwater.engine.records.batch import Records, readable, require_open_names
from lowwater.errors import InvalidArgument, user_code
from lowwater.io.in_memory import (
    ArrowSource,
    ColumnsSource,
    arrow_source,
    pandas_source,
    sliced_records,
)

if TYPE_CHECKING:
    import narwhals as nw

_HINTS = {
    list: "Use from_iterable for records in a list",
    dict: "Make a frame of it, such as pandas.DataFrame(...), or use from_iterable",
    str: "Use read_parquet, read_csv or read_jsonl for files",
}

FrameSource: TypeAlias = "ArrowSource | ColumnsSource | LazySource"


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LazySource:
    """A lazy frame, which each run collects again: in batches if its library can.

    polars (1.34 and later) and DuckDB can, and need memory for a batch at a time; other lazy frames
    are collected as a whole.

    Args:
        frame: The frame.
        schema: The columns it has.
    """

    frame: nw.LazyFrame[Any]
    schema: pa.Schema

    def __repr__(self) -> str:
        return f"LazySource({self.frame.implementation.value})"

    @property
    def endless(self) -> bool:
        return False

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Records]:
        rows = read_rows(size)
        parts = self._parts(rows)
        while True:
            with user_code("collecting the lazy frame"):
                part = next(parts, None)
            if part is None:
                return
            yield from sliced_records(part.cast(self.schema).to_batches(), rows)

    def _parts(self, rows: int) -> Iterator[pa.Table]:
        native = self.frame.to_native()
        if hasattr(native, "collect_batches"):
            for part in native.collect_batches(chunk_size=rows, maintain_order=True):
                yield part.to_arrow()
        elif hasattr(native, "__arrow_c_stream__"):
            for batch in pa.RecordBatchReader.from_stream(native):
                yield pa.Table.from_batches([batch])
        else:
            yield _as_table(self.frame)


def frame_source(frame: Any, time: str) -> FrameSource:
    """Return a source over a frame of any library that narwhals knows, or over Arrow data.

    Args:
        frame: The frame.
        time: The column of event times that it must have.

    Raises:
        InvalidArgument: The value is neither.
    """
    if isinstance(frame, type):
        raise InvalidArgument(
            f"frame={frame.__name__} is a class", where="from_frame", hint="Give a frame of it"
        )
    import narwhals as nw
    from narwhals.dependencies import is_pandas_dataframe

    native = nw.to_native(frame, pass_through=True)
    if is_pandas_dataframe(native):  # as it is: its index and its missing values have a meaning
        return pandas_source(native, time, "from_frame")
    known: Any = nw.from_native(native, pass_through=True)
    if isinstance(known, nw.DataFrame):
        if known.implementation.is_pandas_like():
            return pandas_source(known.to_pandas(), time, "from_frame")
        return arrow_source(_in_arrow(known), "from_frame")
    if isinstance(known, nw.LazyFrame):
        return _lazy_source(known)
    if hasattr(native, "__arrow_c_stream__") or isinstance(native, pa.RecordBatch):
        return arrow_source(native, "from_frame")
    hints = [hint for kind, hint in _HINTS.items() if isinstance(frame, kind)]
    raise InvalidArgument(
        f"frame= is a {type(frame).__name__}, not a DataFrame",
        where="from_frame",
        hint=hints[0]
        if hints
        else "Give a frame of pandas, polars, pyarrow, DuckDB or another library that narwhals "
        "knows, or an object with __arrow_c_stream__",
    )


def _in_arrow(frame: nw.DataFrame[Any]) -> pa.Table:
    """Return a frame as a table.

    Raises:
        InvalidArgument: Arrow has no type for a column, as for integers of 128 bits.
    """
    try:
        table: pa.Table = frame.to_arrow()
        table.schema.names  # noqa: B018  # types that Arrow lacks are only found out here
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        kinds = ", ".join(f"{name!r} is {kind}" for name, kind in frame.schema.items())
        raise InvalidArgument(
            f"a column is of a type that Arrow does not have ({error}): {kinds}",
            where="from_frame",
            hint="Cast it before, as integers of 128 bits to Decimal or to text",
        ) from None
    return table


def _lazy_source(frame: nw.LazyFrame[Any]) -> LazySource:
    if frame.implementation.is_pyspark() or frame.implementation.is_pyspark_connect():
        raise InvalidArgument(
            "frame= is a Spark DataFrame, which the embedded engine would have to collect",
            where="from_frame",
            hint="Use from_spark(...) and run the pipeline with to_spark(spark), or give "
            "frame.toArrow()",
        )
    with user_code("collecting the lazy frame"):
        found = _as_table(frame.head(0)).schema
    require_open_names(found.names, "from_frame")
    return LazySource(frame, readable(found, "from_frame"))


def _as_table(frame: nw.LazyFrame[Any]) -> pa.Table:
    return frame.collect(backend="pyarrow").to_native()
