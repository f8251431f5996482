"""What a watermark estimator observes of a bundle: event times, columns and the clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, final, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from lowwater.errors import InvalidArgument, nearest
from lowwater.time import Int64Array

PARTITION = "__lw_partition"
"""Hidden column: the partition that an element comes from, set by partitioned sources."""
ORIGIN = "__lw_origin"
"""Hidden column: the file that an element comes from."""
_HIDDEN = "__lw_"
"""Prefix of columns that users never see (``lowwater.engine.records.batch.HIDDEN``)."""

Mask = NDArray[np.bool_]


class ColumnLike(Protocol):
    """A column of values with their validity."""

    @property
    def data(self) -> NDArray[Any]:
        """The values, shape (n,); arbitrary where they are null."""
        ...

    @property
    def valid(self) -> Mask | None:
        """Which are not null, shape (n,); ``None`` for all."""
        ...

    def to_list(self) -> list[Any]:
        """Return Python values, ``None`` for nulls."""
        ...


@runtime_checkable
class TimeColumn(Protocol):
    """A column that knows its unit of time and can convert its values to instants."""

    def instants(self) -> tuple[Int64Array, Mask]:
        """Return int64 microseconds, shape (n,), and which rows have one."""
        ...


@runtime_checkable
class EncodableColumn(Protocol):
    """A column that can return its values as dictionary codes."""

    def encoded(self) -> tuple[Int64Array, list[Any]] | None:
        """Return codes, int64, shape (n,), and the value of each code, ``None`` for null.

        ``None`` means plain numbers: use ``data`` directly.
        """
        ...


@final
@dataclass(frozen=True, slots=True)
class Observed:
    """A bundle as an estimator observes it: admitted elements only.

    Args:
        times: Event times, int64 microseconds, shape (n,), in order of arrival.
        columns: The elements' columns by name, each of length n, hidden ones included.
        clock: The clock at arrival, int microseconds.
    """

    times: Int64Array
    columns: Mapping[str, ColumnLike]
    clock: int

    def column(self, name: str, where: str) -> ColumnLike:
        """Return a column.

        Args:
            name: Its name.
            where: The option that needs the column, for the error message.

        Raises:
            InvalidArgument: There is no such column.
        """
        column = self.columns.get(name)
        if column is not None:
            return column
        if name == PARTITION:
            raise InvalidArgument(
                "neither the source nor a step after it gives the partition of a record",
                where=where,
                hint='Name a column that has it, as in PerPartition(..., by="sensor")',
            )
        if name == ORIGIN:
            raise InvalidArgument(
                "the source does not give the file of a record",
                where=where,
                hint='Name a column that has it, as in FinishedFiles(..., by="file")',
            )
        raise InvalidArgument(
            f"there is no column {name!r}",
            where=where,
            hint=f"An earlier step may have dropped it. {nearest(name, self.names())}",
        )

    def names(self) -> tuple[str, ...]:
        """Return the names of the columns that users see."""
        return tuple(name for name in self.columns if not name.startswith(_HIDDEN))
