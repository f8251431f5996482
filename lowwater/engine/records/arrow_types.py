"""Arrow types as bytes."""

from __future__ import annotations

import pyarrow as pa

from lowwater.errors import StateError


def type_to_bytes(kind: pa.DataType) -> bytes:
    """Return a type in Arrow's own encoding of schemas."""
    data: bytes = pa.schema([pa.field("values", kind)]).serialize().to_pybytes()
    return data


def type_from_bytes(data: bytes) -> pa.DataType:
    """Return the type that :func:`type_to_bytes` was given.

    Raises:
        StateError: The bytes are something else.
    """
    try:
        return pa.ipc.read_schema(pa.py_buffer(data)).field(0).type
    except (pa.ArrowException, OSError, IndexError, KeyError) as error:
        raise StateError(
            f"a stored column type cannot be read: {error}",
            hint="The state is damaged: restore a copy, or reset it",
        ) from None
