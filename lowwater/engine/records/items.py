"""Python values as columns: mappings, dataclasses and named tuples by field, others whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.columns import Column
from lowwater.errors import DataError


def columns_of(items: Sequence[Any]) -> dict[str, Column]:
    """Return the columns of some elements; a field that one lacks is null there.

    Anything but a mapping, a dataclass or a named tuple is a column ``value``.
    """
    rows = [item if type(item) is dict else fields_of(item) for item in items]
    names = dict.fromkeys(name for row in rows for name in row)
    for name in names:
        if not isinstance(name, str) or name.startswith(HIDDEN):
            raise DataError(
                f"{name!r} cannot be the name of a column",
                hint="Use plain text as the names of fields",
            )
    return {name: Column.of_objects([row.get(name) for row in rows]) for name in names}


def fields_of(item: Any) -> Mapping[str, Any]:
    """Return an element's fields by name."""
    if isinstance(item, Mapping):
        return item
    if is_dataclass(item) and not isinstance(item, type):
        return {field.name: getattr(item, field.name) for field in fields(item)}
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return dict(zip(item._fields, item, strict=True))
    return {"value": item}
