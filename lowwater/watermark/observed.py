"""What an estimator is shown of a bundle: event times, the elements' columns, and the clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, final, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from lowwater.errors import InvalidArgument, nearest
from lowwater.time import Int64Array

PARTITION = "__lw_partition"
"""The hidden column in which a partitioned source says which partition an element is from."""
ORIGIN = "__lw_origin"
"""The hidden column with the file an element is from."""
_HIDDEN = "__lw_"
"""Prefix of columns that users never see (``lowwater.engine.records.batch.HIDDEN``)."""

Mask = NDArray[np.bool_]


class ColumnLike(Protocol):
    """A column of values with their validity."""

    @property
    def data(self) -> NDArray[Any]:
        """The values, shape (n,); where they are null, anything."""
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
    """A column that knows its own unit of time, and so can say its values as instants."""

    def instants(self) -> tuple[Int64Array, Mask]:
        """Return int64 microseconds, shape (n,), and which rows have one."""
        ...


@runtime_checkable
class EncodableColumn(Protocol):
    """A column that can say its values as numbers of a few distinct ones."""

    def encoded(self) -> tuple[Int64Array, list[Any]] | None:
        """Return codes, int64, shape (n,), and the value of each code, ``None`` for null.

        ``None`` says that the column is plain numbers, which ``data`` has as they are.
        """
        ...


@final
@dataclass(frozen=True, slots=True)
class Observed:
    """A bundle as an estimator sees it: only elements that were admitted.

    Args:
        times: Event times, int64 microseconds, shape (n,), in the order of arrival.
        columns: The elements' columns by name, each of length n, the hidden ones too.
        clock: The clock when they came, int microseconds.
    """

    times: Int64Array
    columns: Mapping[str, ColumnLike]
    clock: int

    def column(self, name: str, where: str) -> ColumnLike:
        """Return a column.

        Args:
            name: Its name.
            where: Who asks, for the message.

        Raises:
            InvalidArgument: There is none of that name.
        """
        column = self.columns.get(name)
        if column is not None:
            return column
        if name == PARTITION:
            raise InvalidArgument(
                "neither the source nor a step after it says which partition a record is from",
                where=where,
                hint='Name a column that does, as in PerPartition(..., by="sensor")',
            )
        if name == ORIGIN:
            raise InvalidArgument(
                "the source does not say which file a record is from",
                where=where,
                hint='Name a column that does, as in FinishedFiles(..., by="file")',
            )
        raise InvalidArgument(
            f"there is no column {name!r}",
            where=where,
            hint=f"{nearest(name, self.names())}; a step before may have left it out",
        )

    def names(self) -> tuple[str, ...]:
        """Return the names of the columns that users see."""
        return tuple(name for name in self.columns if not name.startswith(_HIDDEN))
