"""Conditions on the records of a log, which compaction and erasure are given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import pyarrow as pa

from lowwater.engine.records.batch import Records
from lowwater.engine.records.columns import Mask
from lowwater.engine.records.elementwise import check_within_row
from lowwater.engine.records.expressions import Expressions, evaluate, frame_of
from lowwater.errors import InvalidArgument, describe

_RESULT = "__lw_condition"


@final
@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """A boolean expression over one record, or the name of a boolean column.

    Args:
        given: The expression, or the name.
        method: The method of the log that it is for, as ``compact``.
        option: The name of the argument.
        example: One that would do, for hints.

    Raises:
        InvalidArgument: It is neither, or it reads other records.
    """

    given: Any
    method: str
    option: str
    example: str

    def __post_init__(self) -> None:
        if isinstance(self.given, str):
            return
        import narwhals as nw  # a log without a condition never loads it

        if not isinstance(self.given, nw.Expr):
            raise self._refused(describe(self.option, self.given))
        check_within_row(self.given, self._step)

    def check(self, schema: pa.Schema, where: str) -> None:
        """Check the condition against the columns of the records.

        Raises:
            InvalidArgument: There is no such column, or the condition is not boolean.
        """
        self.which(pa.RecordBatch.from_pylist([], schema=schema), where)

    def which(self, records: pa.RecordBatch, where: str) -> Mask:
        """Return for which records it is true, bool; null counts as false.

        Raises:
            InvalidArgument: There is no such column, or the condition is not boolean.
            DataError: The values cannot be read.
        """
        frame = frame_of(Records.from_arrow(records, where))
        found = evaluate(self._step, frame, Expressions(named={_RESULT: self.given}))[_RESULT]
        if not pa.types.is_boolean(found.type):
            raise self._refused(f"{self.option}= is of type {found.type}, which")
        which: Mask = found.fill_null(False).to_numpy(zero_copy_only=False)
        return which

    @property
    def _step(self) -> str:
        return f"{self.method}({self.option}=)"

    def _refused(self, what: str) -> InvalidArgument:
        return InvalidArgument(
            f"{what} is not a condition",
            where=self._step,
            hint=f"Write one over columns, such as {self.option}={self.example}, or give the name "
            "of a boolean column",
        )
