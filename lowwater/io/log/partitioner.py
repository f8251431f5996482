"""Which partition a key belongs to: the same in every process, on every machine, for ever."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lowwater.errors import InvalidArgument, nearest
from lowwater.time import Int64Array

_NULL = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)


def partitions_of(batch: pa.RecordBatch, key: Sequence[str], partitions: int) -> Int64Array:
    """Return the partition of each record, int64: a hash of its key's bytes modulo their number.

    Text and bytes go by the CRC-32 of their bytes, once per distinct value; integers, booleans,
    dates and times by their own number; floats by their bits, with one zero and one NaN. What
    comes of it is mixed by the finaliser of splitmix64 (Steele, Lea and Flood 2014). Nulls are
    one key.

    Raises:
        InvalidArgument: There is no such column, or it is of another type.
    """
    total: NDArray[np.uint64] | None = None
    for name in key:
        if name not in batch.schema.names:
            raise InvalidArgument(
                f"there is no column {name!r} for key=", hint=nearest(name, batch.schema.names)
            )
        hashes = _mixed(_numbers(batch.column(batch.schema.get_field_index(name)), name))
        total = hashes if total is None else _mixed(total + _NULL + hashes)
    if total is None:
        raise InvalidArgument("key= names no column", hint='Write, say, key="user"')
    return (total % np.uint64(partitions)).astype(np.int64)


def split_by_key(
    batch: pa.RecordBatch, key: Sequence[str], partitions: int
) -> dict[int, pa.RecordBatch]:
    """Return the records that go to each partition, in the order they came in.

    Raises:
        InvalidArgument: A key column is not there, or is no key.
    """
    numbers = partitions_of(batch, key, partitions)
    order = np.argsort(numbers, kind="stable")
    found, starts = np.unique(numbers[order], return_index=True)
    if len(found) <= 1:
        return {int(number): batch for number in found}
    stops = [*starts.tolist()[1:], len(order)]
    rows = batch.take(pa.array(order))
    return {
        number: rows.slice(start, stop - start)
        for number, start, stop in zip(found.tolist(), starts.tolist(), stops, strict=True)
    }


def _numbers(array: pa.Array, name: str) -> NDArray[np.uint64]:
    kind = array.type
    numbers: NDArray[np.uint64]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        array = array.cast(pa.large_binary())
        kind = array.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        coded = array.dictionary_encode()
        crcs = [zlib.crc32(value) for value in coded.dictionary.to_pylist()]
        codes = coded.indices.fill_null(0).to_numpy(zero_copy_only=False)
        numbers = np.array(crcs or [0], np.uint64)[codes]
    elif pa.types.is_floating(kind):
        values = pc.fill_null(array.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False) + 0.0
        values[np.isnan(values)] = np.nan
        numbers = values.view(np.uint64)
    elif pa.types.is_uint64(kind):
        numbers = array.fill_null(0).to_numpy(zero_copy_only=False)
    elif pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        numbers = _unsigned(array.cast(pa.int64()))
    elif pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        width = pa.int32() if kind.bit_width == 32 else pa.int64()
        numbers = _unsigned(array.view(width).cast(pa.int64()))
    else:
        raise InvalidArgument(
            f"column {name!r} is {kind}, which is no key",
            hint="Use text, bytes, numbers, dates or times",
        )
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        numbers = np.where(valid, numbers, _NULL)
    return numbers


def _unsigned(array: pa.Array) -> NDArray[np.uint64]:
    filled: Int64Array = array.fill_null(0).to_numpy(zero_copy_only=False)
    return filled.view(np.uint64)


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    mixed = (numbers ^ (numbers >> np.uint64(30))) * _MULTIPLIER_1
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MULTIPLIER_2
    result: NDArray[np.uint64] = mixed ^ (mixed >> np.uint64(31))
    return result
