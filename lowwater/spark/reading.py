"""A pipeline's source as a Spark DataFrame."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, TypeAlias, final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as every user of Spark calls it
from pyspark.sql.types import IntegralType, StringType, StructField, StructType

from lowwater.engine.graph.sources import Source
from lowwater.engine.local.health.unit_check import warn_of_unit
from lowwater.engine.records.batch import Records
from lowwater.engine.records.columns import Column
from lowwater.errors import (
    DataError,
    DataWarning,
    InvalidArgument,
    UnsupportedByRunner,
    describe,
    warn,
)
from lowwater.io.csv import CsvSource
from lowwater.io.frames import LazySource
from lowwater.io.in_memory import ArrowSource, ColumnsSource, IterableSource
from lowwater.io.jsonl import JsonLinesSource
from lowwater.io.parquet import ParquetSource
from lowwater.io.partitions import Partitions
from lowwater.io.paths import is_remote
from lowwater.spark.instants import in_utc
from lowwater.spark.text_files import CORRUPT, TEXT, CsvText, FileText, JsonText
from lowwater.spark.types import arrow_schema, quoted, spark_like, spark_schema
from lowwater.watermark import FinishedFiles, PerPartition
from lowwater.watermark.observed import ORIGIN, PARTITION

FileSource: TypeAlias = ParquetSource | CsvSource | JsonLinesSource

_ROWS = 1 << 17
_LINE = "value"
_FORMATS: dict[type[FileSource], str] = {
    ParquetSource: "parquet",
    CsvSource: "csv",
    JsonLinesSource: "text",
}
_SUFFIXES = {
    "parquet": "*.{parquet,pq}",
    "csv": "*.{csv,csv.gz}",
    "text": "*.{jsonl,ndjson,jsonl.gz,ndjson.gz}",
}
# Spark's parser reads an unquoted empty field as this, which is null; a quoted one stays "".
_NO_TEXT = "\0null"
# A first row of these takes one task, which reads little. Others may compute everything for it.
_CHEAP = {"LocalRelation", "LogicalRDD", "LogicalRelation", "Project", "Range"}


@final
@dataclass(frozen=True, slots=True)
class SourceFrame:
    """What Spark reads of a source.

    Args:
        frame: What Spark reads.
        schema: The columns of the records.
        text: Makes records of it; ``None``: they are its rows.
    """

    frame: DataFrame
    schema: pa.Schema
    text: FileText | None = None

    @classmethod
    def of(cls, frame: DataFrame) -> SourceFrame:
        """Return a DataFrame whose rows are the records."""
        return cls(frame, arrow_schema(frame.schema))


def frame_of_source(
    spark: SparkSession, source: Source, keys: tuple[str, ...], files_per_batch: int | None
) -> SourceFrame:
    """Return the DataFrame that reads what a source reads.

    A folder of files becomes a stream that also reads files added later; data in memory becomes a
    static DataFrame.

    Args:
        spark: The session.
        source: The source.
        keys: The key columns.
        files_per_batch: The most files of one micro-batch; ``None``: Spark's default.

    Raises:
        InvalidArgument: ``files_per_batch`` is given, and the source reads no files.
        UnsupportedByRunner: Spark cannot read it.
    """
    if isinstance(source, FileSource):
        return _files(spark, source, files_per_batch)
    if files_per_batch is not None:
        raise InvalidArgument(
            f"{source!r} reads no files that micro-batches could have some of",
            where="to_spark(files_per_batch=)",
            hint='Leave it out; a DataFrame is read with its own option("maxFilesPerTrigger", ...)',
        )
    if isinstance(source, SparkSource):
        return SourceFrame.of(source.frame)
    if isinstance(source, (IterableSource, ArrowSource, ColumnsSource, LazySource)):
        return SourceFrame.of(_in_memory(spark, source, keys))
    raise UnsupportedByRunner(
        f"{source!r} cannot be read by Spark",
        where="to_spark",
        hint="Read a folder of Parquet, CSV or JSON lines, or begin with from_spark",
    )


def with_places(frame: DataFrame, source: Source, watermark: object) -> DataFrame:
    """Add the hidden columns that a watermark estimator reads: of the file, or the partition.

    Args:
        frame: What reads the source.
        source: The source.
        watermark: The estimator.
    """
    if isinstance(watermark, FinishedFiles) and watermark.by is None:
        if not isinstance(source, FileSource):
            return frame  # the estimator says what is missing
        return frame.withColumn(ORIGIN, F.col("_metadata.file_path"))
    is_kafka = {"topic", "partition", "offset"} <= set(frame.columns)
    if isinstance(watermark, PerPartition) and watermark.by is None and is_kafka:
        return frame.withColumn(PARTITION, F.concat_ws("-", "topic", "partition"))
    return frame


# What changes no set of rows, and so leaves none of a micro-batch out.
_KEEPING = {"Project", "SubqueryAlias", "View", "EventTimeWatermark"}


def may_be_pruned(source: Source, frame: DataFrame) -> bool:
    """Whether Spark may run no task for a micro-batch that has something to read.

    It runs none for files of no bytes, nor where a filter leaves nothing of a partitioned table.
    """
    if isinstance(source, FileSource):
        return not isinstance(source, ParquetSource)
    made = getattr(frame, "_jdf", None)
    if made is None:
        return True  # Spark Connect does not say
    plan = made.queryExecution().analyzed()
    while plan.getClass().getSimpleName() in _KEEPING:
        plan = plan.children().apply(0)
    return not plan.children().isEmpty()


def names_of_files(source: Source) -> tuple[tuple[str, str], ...]:
    """Return the folder or file that each path of a source begins with: whole, and as written."""
    if not isinstance(source, FileSource):
        return ()
    begins = [_without_glob(path) for path in source.paths if not is_remote(path)]
    return tuple((str(begin.absolute()), str(begin)) for begin in begins)


def _without_glob(path: str) -> Path:
    """Return what is before the first pattern in a path.

    >>> _without_glob("data/2024-*/part.csv").as_posix()
    'data'
    """
    if Path(path).exists() or not glob.has_magic(path):
        return Path(path)
    return Path(*takewhile(lambda part: not glob.has_magic(part), Path(path).parts))


def _files(spark: SparkSession, source: FileSource, files_per_batch: int | None) -> SourceFrame:
    kind, paths = _FORMATS[type(source)], source.paths
    for path in filter(is_remote, paths):
        raise UnsupportedByRunner(
            f"{path!r} is in a store for which Spark has a reader and credentials of its own",
            where="to_spark",
            hint=f'Begin with lw.from_spark(spark.readStream.schema(...).format("{kind}").load(...)'
            ", time=...)",
        )
    schema = source.schema
    if schema is None:
        raise UnsupportedByRunner(
            "there is no file yet to take the schema from, and Spark must know it beforehand",
            where="to_spark",
            hint="Begin with from_spark(spark.readStream.schema(...))",
        )
    if kind == "parquet":
        _require_readable(schema)
    files = source.files.find(_endings(kind), maybe_none=True)
    in_paths = list(Partitions(paths, source.columns).types(file.name for file in files))
    _warn_of_order(paths, kind)
    reader = spark.readStream
    made = spark_schema(schema)
    if isinstance(source, JsonLinesSource):
        made = StructType([StructField(_LINE, StringType()), *(made[name] for name in in_paths)])
        reader = reader.option("lineSep", "\n")
    if isinstance(source, CsvSource):
        # Spark compares all names with those of the header, whichever are read.
        whole = schema if source.columns is None else replace(source, columns=None).schema
        texts = [
            made[name] if name in in_paths else StructField(name, StringType())
            for name in (whole or schema).names
            if name not in in_paths or name in schema.names
        ]
        made = StructType([*texts, StructField(CORRUPT, StringType())])
        reader = reader.option("columnNameOfCorruptRecord", CORRUPT).option("mode", "PERMISSIVE")
        reader = reader.option("header", True).option("sep", source.delimiter)
        # Otherwise Spark assigns columns by position and ignores the header of each file.
        reader = reader.option("enforceSchema", False).option("nullValue", _NO_TEXT)
        # In a quoted field quotes are doubled, a backslash is a plain character, and line breaks
        # are part of the value.
        reader = reader.option("escape", '"').option("multiLine", True)
    if files_per_batch is not None:
        reader = reader.option("maxFilesPerTrigger", files_per_batch)
    if all(Path(path).is_dir() for path in paths):  # a folder means all such files below it
        reader = reader.option("pathGlobFilter", _SUFFIXES[kind])
        if not in_paths:  # otherwise Spark looks for the columns, and for folders, itself
            reader = reader.option("recursiveFileLookup", True)
    elif in_paths:
        raise UnsupportedByRunner(
            f"the column {in_paths[0]!r} is in the names of folders, which Spark reads only of "
            "whole folders",
            where="to_spark",
            hint="Give the folder that they are in, not a glob",
        )
    return _read(source, schema, in_paths, reader.format(kind).schema(made).load(_as_one(paths)))


def _read(
    source: FileSource, schema: pa.Schema, in_paths: Sequence[str], frame: DataFrame
) -> SourceFrame:
    """Return what Spark reads of files, and what is to be read in its tasks."""
    known = arrow_schema(spark_schema(schema))
    if isinstance(source, ParquetSource):
        return SourceFrame(frame, known)
    in_files = pa.schema([field for field in known if field.name not in in_paths])
    types, given = tuple(zip(in_files.names, in_files.types, strict=True)), tuple(source.types)
    if isinstance(source, JsonLinesSource):
        text = JsonText(types, given, source.time, source.fractions, source.columns)
        lines = F.col(_LINE).cast("binary").alias(TEXT)
        return SourceFrame(frame.select(lines, *map(quoted, in_paths)), known, text)
    fields = [quoted(name).cast("binary").alias(name) for name in in_files.names]
    others = [*map(quoted, in_paths), F.col(CORRUPT)]
    return SourceFrame(frame.select(*fields, *others), known, CsvText(types, given))


def _endings(kind: str) -> tuple[str, ...]:
    return tuple(f".{one}" for one in _SUFFIXES[kind][3:-1].split(","))


def _warn_of_order(paths: Sequence[str], kind: str) -> None:
    """Warn if files of local folders were changed in another order than that of their names.

    Spark reads files by the time of their last change, and the embedded runner by name. A copy
    without ``cp -p`` changes all of them at once, in any order.
    """
    endings = _endings(kind)
    for path in paths:
        folder = Path(path)
        if not folder.is_dir():
            continue
        files = sorted(one for one in folder.rglob("*") if one.name.endswith(endings))
        changed = [(one.stat().st_mtime_ns, one) for one in files]
        for (before, first), (after, second) in pairwise(changed):
            if after < before:
                warn(
                    DataWarning,
                    f"Spark reads files in the order in which they were last changed: "
                    f"{second.name!r} before {first.name!r}, against the order of their names, so "
                    "that elements may come late",
                    where="to_spark",
                    hint="Copy files with cp -p, or touch them in their order; if their names say "
                    "nothing of time, ignore this",
                )
                return


def _require_readable(schema: pa.Schema) -> None:
    for field in schema:
        kind = field.type
        nanos = pa.types.is_timestamp(kind) and kind.unit == "ns"
        if nanos or pa.types.is_uint64(kind):
            raise UnsupportedByRunner(
                f"the column {field.name!r} is {kind}, which Spark cannot read from Parquet",
                where="to_spark",
                hint="Leave it out with read_parquet(columns=...), or write it as "
                + ("microseconds" if nanos else "int64"),
            )


def _as_one(paths: Sequence[str]) -> str:
    """Return several paths as one folder or glob, which is what a stream of files accepts.

    A single file becomes a glob that only this file matches.
    """
    whole = [str(Path(path).absolute()) for path in paths]
    if len(whole) == 1:
        place = Path(whole[0])
        if not place.is_file():
            return whole[0]
        return str(place.with_name(f"[{place.name[0]}]{place.name[1:]}"))
    if any(set(path) & set("{},") for path in whole):
        raise UnsupportedByRunner(
            "several paths with braces or commas cannot be one stream of files",
            where="to_spark",
            hint="Read one folder or one glob",
        )
    top = os.path.commonpath([str(Path(path).parent) for path in whole])
    return f"{top}/{{{','.join(os.path.relpath(path, top) for path in whole)}}}"


def _in_memory(spark: SparkSession, source: Source, keys: tuple[str, ...]) -> DataFrame:
    batches = [_typed(records) for records in source.batches(_ROWS, keys)]
    tables = [pa.Table.from_batches([batch]) for batch in batches if batch.num_rows]
    if not tables:
        if source.schema is None:
            raise UnsupportedByRunner(
                "of a source without elements Spark cannot know the columns",
                where="to_spark",
                hint="Begin with from_arrow of an empty table, or with from_spark",
            )
        tables = [source.schema.empty_table()]
    whole = pa.concat_tables(tables, promote_options="permissive")
    plain = pa.schema([field.with_type(spark_like(field.type)) for field in whole.schema])
    columns = [_as(whole.column(field.name), field) for field in plain]
    whole = pa.Table.from_arrays(columns, schema=plain)
    return spark.createDataFrame(whole, schema=spark_schema(plain))


def _typed(records: Records) -> pa.RecordBatch:
    """Return records in memory as columns, each of one type."""
    arrays = {}
    for name, column in records.columns.items():
        try:
            _require_one_type(column)
            arrays[name] = column.to_arrow()
        except (pa.ArrowException, OverflowError, TypeError) as error:
            raise DataError(
                f"the column {name!r} has values that are not of one type: {error}",
                where="to_spark",
                hint="Give it values of one type, or leave it out: Spark must know the type",
            ) from error
    return pa.RecordBatch.from_pydict(arrays)


def _require_one_type(column: Column) -> None:
    """Raise if Arrow would make one type of values of several, as bytes of text."""
    if column.type is None and column.arrow is None and column.data.dtype == object:
        kinds = {type(value) for value in column.to_list() if value is not None}
        if len(kinds) > 1 and not kinds <= {int, float}:
            raise TypeError(" and ".join(sorted(kind.__name__ for kind in kinds)))


def _as(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """Return a column as a type that Spark accepts; instants are truncated to microseconds."""
    try:
        return column.cast(field.type, safe=not pa.types.is_temporal(field.type))
    except pa.ArrowInvalid as error:
        raise DataError(
            f"the column {field.name!r} has values that are no {field.type}: {error}",
            where="to_spark",
            hint="Convert it before, or leave it out",
        ) from error


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SparkSource:
    """A streaming or static DataFrame as a source.

    Args:
        frame: The DataFrame.
    """

    frame: Any

    def __repr__(self) -> str:
        kind = "streaming" if self.frame.isStreaming else "static"
        return f"from_spark({kind} DataFrame: {', '.join(self.frame.columns)})"

    @property
    def endless(self) -> bool:
        """Whether it never ends by itself."""
        return bool(self.frame.isStreaming)

    @property
    def schema(self) -> pa.Schema | None:
        return arrow_schema(self.frame.schema)

    def refuse_embedded(self) -> None:
        """Raise if only Spark can read it.

        Raises:
            UnsupportedByRunner: It is a streaming DataFrame.
        """
        if self.frame.isStreaming:
            raise UnsupportedByRunner(
                "the embedded runner cannot read a streaming DataFrame",
                where="from_spark",
                hint="Call to_spark(spark) instead of run",
            )

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Records]:
        self.refuse_embedded()
        return (Records.from_arrow(in_utc(one)) for one in self.frame.toArrow().to_batches(size))


def spark_source(frame: Any) -> SparkSource:
    """Wrap a DataFrame as a source.

    Raises:
        InvalidArgument: The value is not a Spark DataFrame.
    """
    from pyspark.sql import DataFrame

    if not isinstance(frame, DataFrame):
        raise InvalidArgument(
            f"{describe('df', frame)} is not a Spark DataFrame",
            hint="Give what spark.read or spark.readStream returns",
        )
    return SparkSource(frame)


def warn_of_first_time(frame: DataFrame, column: str, where: str) -> None:
    """Warn if the first event time looks like another unit; O(1) rows, in one small job.

    Nothing is read of a stream, over Spark Connect (which does not say how it would compute a
    row), or if a first row may cost much: after a filter, a join, a sort or an aggregation.

    Args:
        frame: The DataFrame, whose event times have no unit.
        column: The column of event times.
        where: The name of the source.
    """
    if not isinstance(frame.schema[column].dataType, IntegralType) or frame.isStreaming:
        return
    times = frame.select(quoted(column))
    made = getattr(times, "_jdf", None)
    if made is None or not _is_cheap(made.queryExecution().optimizedPlan()):
        return
    first = times.head()
    if first is not None and first[0]:  # 0 says nothing about the unit
        warn_of_unit(np.array([first[0]], dtype=np.int64), column, where)


def _is_cheap(plan: Any) -> bool:
    if plan.getClass().getSimpleName() not in _CHEAP:
        return False
    children = plan.children()
    return all(_is_cheap(children.apply(at)) for at in range(children.size()))
