"""Evaluates column expressions over a batch of records, using narwhals."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

import pyarrow as pa

from lowwater.engine.records.batch import ArrowColumns, Records
from lowwater.engine.records.integer_arithmetic import names_of, with_columns
from lowwater.errors import DataError, InvalidArgument, LowwaterError, nearest

_NOT_FOR_ARROW = (
    pa.ArrowInvalid,
    pa.ArrowTypeError,
    pa.ArrowNotImplementedError,
    OverflowError,
    UnicodeEncodeError,
)


@final
@dataclass(frozen=True, slots=True)
class Expressions:
    """Expressions passed by position, and by column name."""

    unnamed: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)


@final
@dataclass(frozen=True, slots=True)
class ExpressionFrame:
    """The columns that expressions can read.

    Args:
        batch: The columns that Arrow can hold, dictionaries decoded.
        mixed: Names of the other columns, which hold Python values of several types.
    """

    batch: pa.RecordBatch
    mixed: tuple[str, ...]


def frame_of(records: Records) -> ExpressionFrame:
    """Prepare the columns of a batch of records for expressions."""
    arrays: dict[str, pa.Array] = {}
    mixed: list[str] = []
    for name in records.names:
        try:
            array = records.columns[name].to_arrow()
        except _NOT_FOR_ARROW:
            mixed.append(name)
            continue
        decode = pa.types.is_dictionary(array.type)
        arrays[name] = array.dictionary_decode() if decode else array
    if not arrays and isinstance(records.columns, ArrowColumns):
        return ExpressionFrame(records.columns.batch, ())
    return ExpressionFrame(pa.RecordBatch.from_pydict(arrays), tuple(mixed))


def evaluate(step: str, frame: ExpressionFrame, expressions: Expressions) -> dict[str, pa.Array]:
    """Evaluate expressions; return columns by name, each as long as the batch.

    Raises:
        InvalidArgument: An expression names a column that does not exist.
        DataError: An expression failed on the values.
    """
    import narwhals as nw

    given = pa.Table.from_batches([frame.batch])
    unnamed = [nw.col(e) if isinstance(e, str) else e for e in expressions.unnamed]
    named = {n: nw.col(e) if isinstance(e, str) else e for n, e in expressions.named.items()}
    try:
        names = names_of(given, unnamed, named)
        made = with_columns(given, unnamed, named)
    except nw.exceptions.ColumnNotFoundError as error:
        raise _no_column(step, error, frame) from None
    except LowwaterError:
        raise
    except Exception as error:
        raise DataError(
            _what_failed(step, error),
            where=step,
            hint="Check the types of the columns: "
            + ", ".join(f"{f.name}: {f.type}" for f in frame.batch.schema),
        ) from error
    return {name: made[name].to_native().combine_chunks() for name in names}


def _what_failed(step: str, error: Exception) -> str:
    """Say what an expression could not compute; with Arrow's words where there are no better."""
    kernel = re.match(r"Function '(\w+)' has no kernel matching input types \((.*)\)", str(error))
    if kernel is None:
        return f"the expressions of {step} failed: {type(error).__name__}: {error}"
    function, types = kernel.groups()
    return (
        f"the expressions of {step} cannot compute {function!r} of {types.replace(', ', ' and ')}"
    )


def _no_column(step: str, error: Exception, frame: ExpressionFrame) -> InvalidArgument | DataError:
    known = frame.batch.schema.names
    listed = re.search(r"not found: \[(.*?)\]", str(error))
    missing = re.findall(r"'([^']*)'", listed.group(1)) if listed else []
    for name in missing:
        if name in frame.mixed:
            return DataError(
                f"the column {name!r} holds values of several types, so no expression can read it",
                where=step,
                hint="Use map or a Python function instead",
            )
    name = missing[0] if missing else "?"
    return InvalidArgument(f"there is no column {name!r}", where=step, hint=nearest(name, known))
