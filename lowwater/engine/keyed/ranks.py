"""The order of values in a column, as numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lowwater.engine.records.columns import Column
from lowwater.errors import DataError
from lowwater.time import Int64Array


def ranks(columns: Sequence[Column], name: str, where: str) -> list[Int64Array]:
    """Return the rank of each value among those of all columns; nulls have rank -1.

    Args:
        columns: Columns that are ordered together.
        name: What they are called, for messages.
        where: The method that orders them, for messages.

    Raises:
        DataError: Values cannot be compared.
    """
    whole = Column.concat(columns)
    data, valid = whole.data, whole.valid
    found = np.full(len(data), -1, dtype=np.int64)
    some = np.arange(len(data)) if valid is None else np.flatnonzero(valid)
    try:
        found[some] = np.unique(data[some], return_inverse=True)[1]
    except TypeError as error:
        raise DataError(
            f"values of the column {name!r} cannot be compared: {error}",
            where=f"{where}(order=)",
            hint="Use a column of numbers, times or text",
        ) from None
    return np.split(found, np.cumsum([len(column) for column in columns])[:-1])
