"""Sources over data in memory: iterables, Arrow and pandas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count, cycle, islice, repeat
from operator import length_hint
from typing import Any, ClassVar, final

import pyarrow as pa

from lowwater.engine.graph.sources import read_rows
from lowwater.engine.records.batch import (
    Records,
    columns_of,
    fields_of,
    is_name,
    readable,
    require_open_names,
)
from lowwater.engine.records.calls import said, unfit_record
from lowwater.engine.records.columns import Column
from lowwater.engine.records.panes import ErrorRecord
from lowwater.engine.records.problems import FailedCall, is_nan
from lowwater.engine.records.storable import (
    MOST_NESTED,
    endless_rows,
    too_deep_rows,
    writable,
)
from lowwater.errors import InvalidArgument
from lowwater.io.valid_text import checked_records

_PATIENCE = 1000
"""A column that is missing from this many elements is an error, not a null."""


@final
class _Once:
    """Ensures that data which can be read only once is not read again."""

    def __init__(self) -> None:
        self._read = False

    def begin(self, what: str) -> None:
        if self._read:
            raise InvalidArgument(
                f"the {what} was read by an earlier run, and it gives its elements only once",
                hint="Build the pipeline over a list or a table, or build it for each run",
            )
        self._read = True


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IterableSource:
    """Python elements of any kind, consumed lazily as the run proceeds.

    Args:
        items: The elements.
        computed: Hidden columns by name, each a function of an element.
    """

    items: Iterable[Any]
    computed: Mapping[str, Callable[[Any], Any]]
    _once: _Once = field(default_factory=_Once)

    schema: ClassVar[pa.Schema | None] = None

    def __repr__(self) -> str:
        return f"IterableSource({_extent(self.items)})"

    @property
    def endless(self) -> bool | None:
        """Whether the elements never end; ``None`` if that is not known in advance."""
        if hasattr(self.items, "__len__") or length_hint(self.items, -1) >= 0:
            return False
        return True if isinstance(self.items, (count, cycle, repeat)) else None

    def looked_at(self) -> dict[str, pa.DataType | None] | None:
        """Return the columns, with their types if their values have one in common. O(n).

        ``None`` if the elements cannot be looked at twice.
        """
        if not isinstance(self.items, (list, tuple)):
            return None
        rows = [item if type(item) is dict else fields_of(item) for item in self.items]
        names = dict.fromkeys(name for row in rows for name in row if is_name(name))
        types = {name: _type_of([row.get(name) for row in rows]) for name in names}
        return {**types, **dict.fromkeys(self.computed)}

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Records]:
        iterator = iter(self.items)
        if iterator is self.items:
            self._once.begin(type(iterator).__name__)
        known: dict[str, None] = {}
        seen, length = 0, _length(self.items)
        while True:
            chunk = list(islice(iterator, size))
            if not chunk and not seen:
                return
            seen += len(chunk)
            ended = len(chunk) < size
            patient = seen < _PATIENCE and not ended
            chunk, columns, letters = _usable(chunk)
            for name, function in self.computed.items():
                columns[name] = Column.of_objects([_attempt(function, item) for item in chunk])
            known.update(dict.fromkeys(columns))
            sparse = SparseColumns(columns, known, len(chunk), patient)
            share = min(1.0, seen / length) if length else None
            yield Records(sparse, len(chunk), unreadable=letters, share=share)
            if ended:
                return


@final
class SparseColumns(Mapping[str, Column]):
    """Columns that may be missing from a batch because none of its elements has them.

    ``knows_names`` says that a column that is not here was in none of the elements so far.
    """

    __slots__ = ("_columns", "_known", "_length", "_patient")

    knows_names = True

    def __init__(
        self, columns: dict[str, Column], known: Iterable[str], length: int, patient: bool
    ) -> None:
        missing = [name for name in known if name not in columns]
        nulls = Column.of_objects([None] * length) if missing or patient else None
        self._columns = columns | {name: nulls for name in missing if nulls is not None}
        self._patient = nulls if patient else None

    def __getitem__(self, name: str) -> Column:
        column = self._columns.get(name, self._patient)
        if column is None:
            raise KeyError(name)
        return column

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ArrowSource:
    """An Arrow table or batch, or a reader whose batches can be read once."""

    data: pa.Table | pa.RecordBatchReader
    _once: _Once = field(default_factory=_Once)

    def __repr__(self) -> str:
        return f"ArrowSource({_extent(self.data)})"

    @property
    def endless(self) -> bool | None:
        """Whether the batches never end; ``None`` if that is not known in advance."""
        return False if isinstance(self.data, pa.Table) else None

    @property
    def schema(self) -> pa.Schema:
        return self.data.schema

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Records]:
        rows = read_rows(size)
        table = isinstance(self.data, pa.Table)
        if not table:
            self._once.begin("RecordBatchReader")
        parts = self.data.to_batches(max_chunksize=rows) if table else self.data
        yield from sliced_records(parts, rows, self.data.num_rows if table else None)


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ColumnsSource:
    """Columns held in memory, some of them of Python values.

    Args:
        columns: The columns by name.
        length: How many rows they have.
        letters: Dead letters for rows that the columns do not have.
    """

    columns: Mapping[str, Column]
    length: int
    letters: tuple[ErrorRecord, ...] = ()

    def __repr__(self) -> str:
        return f"ColumnsSource({self.length} rows)"

    @property
    def schema(self) -> pa.Schema | None:
        if any(column.arrow is None for column in self.columns.values()):
            return None
        return pa.schema([(name, column.type) for name, column in self.columns.items()])

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Records]:
        whole = Records(self.columns, self.length)
        if self.letters:
            yield Records({}, 0, unreadable=self.letters)
        for start in range(0, self.length, read_rows(size)):
            stop = min(start + read_rows(size), self.length)
            yield replace(whole.slice(start, stop), share=stop / self.length)


def sliced_records(
    batches: Iterable[pa.RecordBatch], rows: int, length: int | None = None
) -> Iterator[Records]:
    """Yield Arrow batches as checked records, at most ``rows`` at a time.

    Args:
        batches: The batches.
        rows: How many rows at most.
        length: How many rows there are; ``None`` if that is not known.
    """
    read = 0
    for batch in batches:
        for start in range(0, batch.num_rows, rows):
            records = checked_records(batch.slice(start, rows))
            read += min(rows, batch.num_rows - start)
            yield replace(records, share=read / length) if length else records


def arrow_source(data: Any, where: str = "from_arrow") -> ArrowSource:
    """Return a source over Arrow data, or any object that exports itself as Arrow data.

    Args:
        data: The data.
        where: The reader, as errors name it.

    Raises:
        InvalidArgument: The value is neither.
    """
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    elif not isinstance(data, (pa.Table, pa.RecordBatchReader)) and hasattr(
        data, "__arrow_c_stream__"
    ):
        try:
            data = pa.table(data)
        except pa.ArrowInvalid as error:
            raise InvalidArgument(
                f"a {type(data).__name__} has no columns with names: {error}",
                where=where,
                hint="Give the DataFrame that it is a column of, or series.to_frame()",
            ) from error
    if isinstance(data, (pa.Table, pa.RecordBatchReader)):
        require_open_names(data.schema.names, where)
        schema = readable(data.schema, where)
        return ArrowSource(data if schema == data.schema else data.cast(schema))
    raise InvalidArgument(
        f"data= is a {type(data).__name__}, not Arrow data",
        where=where,
        hint="Give a pyarrow Table, RecordBatch or RecordBatchReader; from_frame takes DataFrames",
    )


def pandas_source(frame: Any, time: str, where: str = "from_pandas") -> ColumnsSource:
    """Return a source over a pandas DataFrame; missing values become nulls.

    Named levels of the index are columns too.

    Args:
        frame: The DataFrame.
        time: The column of event times that it must have.
        where: The reader, as errors name it.

    Raises:
        InvalidArgument: The value is not a DataFrame, or two columns have the same name.
    """
    if not hasattr(frame, "columns") or not hasattr(frame, "reset_index"):
        library = type(frame).__module__.partition(".")[0].replace("builtins", "")
        raise InvalidArgument(
            f"frame= is a {f'{library} {type(frame).__name__}'.strip()}, not a pandas DataFrame",
            where=where,
            hint="Use from_frame for other DataFrames, from_iterable for a list of records",
        )
    levels = [name for name in frame.index.names if name is not None]
    names = [str(name) for name in (*levels, *frame.columns)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidArgument(
            f"two columns of the DataFrame have one name: {', '.join(map(repr, twice))}",
            where=where,
            hint="Rename one with frame.rename(columns=...); named levels of the index are columns",
        )
    if time not in names and not levels and type(frame.index).__name__ != "RangeIndex":
        raise InvalidArgument(
            f"there is no column {time!r}, and an index without a name is not read",
            where="time=",
            hint=f"If the index has the times, name it: frame.rename_axis({time!r})",
        )
    if levels:
        frame = frame.reset_index()
        names = [str(name) for name in frame.columns]
    require_open_names(names, where)
    deep = _deep_rows(frame)
    letters = tuple(
        ErrorRecord(
            writable(dict(zip(names, frame.iloc[row].tolist(), strict=True))),
            "wrong_type",
            f"{names[column]} is nested more than {MOST_NESTED} deep",
            f"row {row}",
        )
        for row, column in deep.items()
    )
    if deep:
        frame = frame.iloc[[row for row in range(len(frame)) if row not in deep]]
    columns = {name: _from_series(frame.iloc[:, at]) for at, name in enumerate(names)}
    return ColumnsSource(columns, len(frame), letters)


def _deep_rows(frame: Any) -> dict[int, int]:
    """Return the rows with a value nested too deep, and in which column.

    Arrow would overflow the stack with the deepest of them, and end the process.
    """
    deep: dict[int, int] = {}
    for at in range(frame.shape[1]):
        series = frame.iloc[:, at]
        if series.dtype != object:
            continue
        values = series.tolist()
        deep.update(dict.fromkeys(too_deep_rows(values), at))
    return dict(sorted(deep.items()))


def _from_series(series: Any) -> Column:
    endless = series.dtype == object and endless_rows(series.tolist())
    try:
        array = None if endless else pa.Array.from_pandas(series)
    except MemoryError:
        raise
    except Exception:  # of several types, or of a class of the user that raises
        array = None
    if array is not None and not isinstance(array.type, pa.BaseExtensionType):
        return Column.from_arrow(array)
    values = series.tolist()  # of several types, periods, intervals
    try:
        missing = series.isna().tolist()
    except Exception:  # a signalling NaN cannot be compared; nor what a class of the user forbids
        missing = list(map(is_nan, values))
    return Column.of_objects(
        [None if gone else value for gone, value in zip(missing, values, strict=True)]
    )


def _usable(items: list[Any]) -> tuple[list[Any], dict[str, Column], list[ErrorRecord]]:
    """Return the elements that can be records, their columns, and dead letters for the others."""
    try:
        columns = columns_of(items)
    except MemoryError:
        raise
    except Exception:  # some name cannot be a column's, or a class of the user raises
        problems = {at: unfit_record(item) for at, item in enumerate(items)}
        if not any(problems.values()):
            raise
    else:
        problems = {}
        for name, column in columns.items():
            values: list[Any] = column.data.tolist()
            detail = f"{name} is nested more than {MOST_NESTED} deep"
            problems.update(dict.fromkeys(too_deep_rows(values), detail))
        if not problems:
            return items, columns, []
    letters = [
        ErrorRecord(writable(items[at]), "wrong_type", detail, None)
        for at, detail in sorted(problems.items())
        if detail is not None
    ]
    usable = [item for at, item in enumerate(items) if problems.get(at) is None]
    more, columns, deep = _usable(usable)
    return more, columns, letters + deep


def _type_of(values: list[Any]) -> pa.DataType | None:
    """Return the type that Arrow finds in values; ``None`` if they have none in common."""
    if endless_rows(values):
        return None
    try:
        return pa.array(values).type  # infer_type does not mind what it cannot convert
    except (pa.ArrowException, OverflowError, TypeError, UnicodeError):
        return None


def _length(items: Iterable[Any]) -> int | None:
    """Return how many elements there are; ``None`` if that is not known before."""
    try:
        return length_hint(items, 0) or None
    except Exception:  # of a class of the user: then it is not known
        return None


def _extent(data: Any) -> str:
    name = type(data).__name__
    try:
        return f"{name} of {len(data)}" if hasattr(data, "__len__") else name
    except Exception:  # of a class of the user: how many there are is not known
        return name


def _attempt(function: Callable[[Any], Any], item: Any) -> Any:
    try:
        return function(item)
    except MemoryError:
        raise
    except Exception as error:  # S-B1: an unreadable event time or key is a dead letter
        return FailedCall(said(error))
