"""Side columns as lowwater wrote them before they had a header: one dictionary for each value.

They are read as long as what was stored then is: nothing writes them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowwater.state.arrays import object_array
from lowwater.state.codec import decode
from lowwater.state.formats import damaged
from lowwater.time import Int64Array

_WHAT = "a stored row"
_COUNT = np.dtype("<u4")
_SECTIONS = {"objects", "bags", "nested"}

FormerSide = tuple[
    dict[str, NDArray[Any]],
    dict[str, tuple[NDArray[Any], Int64Array, Int64Array]],
    tuple[Int64Array, list[bytes]] | None,
]
"""Objects by column; (values, arrivals, how many each row has) by bag; nested rows likewise."""


def read_former(data: bytes, count: int) -> FormerSide:
    """Read the side columns of a value of so many rows.

    Raises:
        StateError: They are damaged.
    """
    parts = decode(data)
    if not isinstance(parts, dict) or not parts.keys() <= _SECTIONS:
        raise damaged(_WHAT, "what it holds has no names")
    objects = _named(parts.get("objects", {}))
    for name, values in objects.items():
        if not isinstance(values, list) or len(values) != count:
            raise damaged(_WHAT, f"{name!r} is of another length")
    bags = {name: _bag(held, count) for name, held in _named(parts.get("bags", {})).items()}
    nested = None
    if "nested" in parts:
        counts, chunk = parts["nested"]
        if not isinstance(chunk, bytes):
            raise damaged(_WHAT, "its panes are no bytes")
        nested = (_counts(counts, count), [chunk])
    return {name: object_array(values) for name, values in objects.items()}, bags, nested


def _named(parts: Any) -> dict[str, Any]:
    if not isinstance(parts, dict) or not all(isinstance(name, str) for name in parts):
        raise damaged(_WHAT, "its values have no names")
    return parts


def _bag(held: Any, count: int) -> tuple[NDArray[Any], Int64Array, Int64Array]:
    kind, counts, values, arrivals = held
    of_each = _counts(counts, count)
    if not isinstance(arrivals, bytes) or len(arrivals) % 8:
        raise damaged(_WHAT, "its values have no arrivals")
    when = np.frombuffer(arrivals, dtype=np.int64)
    dtype = np.dtype(kind)
    if dtype.kind == "O":
        if not isinstance(values, list):
            raise damaged(_WHAT, "its values are no list")
        stretch: NDArray[Any] = object_array(values)
    elif dtype.kind in "biufmM":
        stretch = np.frombuffer(values, dtype=dtype)
    else:
        raise damaged(_WHAT, f"its values cannot be of type {dtype}")
    if not len(stretch) == len(when) == int(of_each.sum()):
        raise damaged(_WHAT, f"it has {len(stretch)} values and {len(when)} arrivals")
    return stretch, when, of_each


def _counts(data: Any, count: int) -> Int64Array:
    if not isinstance(data, bytes) or len(data) != count * _COUNT.itemsize:
        raise damaged(_WHAT, "how many values it has is of another length")
    return np.frombuffer(data, dtype=_COUNT).astype(np.int64)
