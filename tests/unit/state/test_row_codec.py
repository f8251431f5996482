"""Rows in their stored form: what is filled from it is what was packed, in whatever pieces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lowwater.errors import StateError
from lowwater.state.bag import Bag
from lowwater.state.codec import encode
from lowwater.state.row_codec import PackedRows, RowCodec
from lowwater.state.table import Field, RowTable


def made(number: str = "<i8") -> tuple[RowTable, Bag, RowCodec]:
    table = RowTable(
        [
            Field("number", number, -1),
            Field("flag", np.bool_, False),
            Field("object", object, None),
            Field("again", np.int64, 7),
        ]
    )
    bag = Bag(np.int64)
    codec = RowCodec(
        table,
        left_out=frozenset({"again"}),
        derived={"twice": lambda rows: 2 * rows},
        bags=lambda: {"values": bag},
    )
    return table, bag, codec


def filled(count: int, number: str = "<i8") -> tuple[RowTable, Bag, RowCodec]:
    table, bag, codec = made(number)
    rows = table.allocate(count)
    table["number"][rows] = rows * 10
    table["flag"][rows] = rows % 2 == 0
    table["again"][rows] = 8
    for row in rows.tolist():
        table["object"][row] = None if row % 3 else ("x", row)
    owner = np.repeat(rows, rows % 4)
    bag.append(owner, np.arange(len(owner)), np.arange(len(owner)) + 100)
    return table, bag, codec


def content(table: RowTable, bag: Bag, rows: Any) -> list[Any]:
    values, arrivals, counts = bag.gather_with_arrivals(rows)
    bounds = np.cumsum(counts)[:-1]
    return [
        *(table[name][rows].tolist() for name in ("number", "flag", "object", "again")),
        [part.tolist() for part in np.split(values, bounds)],
        [part.tolist() for part in np.split(arrivals, bounds)],
    ]


def test_chunks_of_any_size_are_filled_as_they_were() -> None:
    table, bag, codec = filled(11)
    rows = table.live()
    packed = codec.pack(rows)
    for size in (1, 3, 11):
        other, other_bag, other_codec = made()
        other_codec.layouts.expect(codec.layouts.known)
        into = other.allocate(11)
        for low in range(0, 11, size):
            high = min(11, low + size)
            chunk = other_codec.layouts.read(packed.chunk(low, high))
            at = np.arange(high - low)
            other_codec.fill(into[low:high], chunk, at)
            other_codec.side.put(into[low:high], [chunk.side], np.array([len(chunk)]), at)
            assert chunk.records["twice"].tolist() == (2 * rows[low:high]).tolist()
        expected = content(table, bag, rows)
        expected[3] = [7] * 11  # it is left out
        assert content(other, other_bag, into) == expected


def test_some_rows_of_a_chunk() -> None:
    table, bag, codec = filled(9)
    rows = table.live()
    chunk = codec.layouts.read(codec.pack(rows).chunk(0, 9))
    other, other_bag, other_codec = made()
    other_codec.layouts.expect(codec.layouts.known)
    at = np.array([2, 3, 7])
    into = other.allocate(3)
    other_codec.fill(into, chunk, at)
    other_codec.side.put(into, [chunk.side], np.array([len(chunk)]), at)
    table["again"][rows] = 7
    assert content(other, other_bag, into) == content(table, bag, rows[at])


def test_single_rows_are_read_together() -> None:
    table, _, codec = filled(5)
    rows = table.live()
    values = codec.pack(rows).cut(np.arange(len(rows)), len(rows))
    ((places, _, chunk, sides),) = codec.layouts.read_many(values)
    assert places.tolist() == [0, 1, 2, 3, 4]
    assert chunk.records["number"].tolist() == [0, 10, 20, 30, 40]
    assert [bool(side) for side in sides] == [True, True, True, True, False]


@pytest.mark.parametrize("wider", ["<f8", object])
def test_a_column_that_has_widened_since(wider: Any) -> None:
    """Rows that held the former fill hold the new one, unless objects came to be."""
    table, _, codec = filled(3)
    table["number"][1] = -1
    packed: PackedRows = codec.pack(table.live())
    fill = None if wider is object else np.nan
    table.retype("number", wider, fill)
    chunk = codec.layouts.read(packed.chunk(0, 3))
    rows = table.allocate(3)
    codec.fill(rows, chunk, np.arange(3))
    assert [str(each) for each in table["number"][rows]] == [
        str(each) for each in table["number"][:3]
    ]


def test_rows_are_packed_in_the_layout_of_their_time() -> None:
    """A layout is made once, until a column is widened or added; what is stored says so too."""
    table, _, codec = filled(3)
    rows = table.live()
    numbers = [codec.pack(rows).layout, codec.pack(rows).layout]
    table.retype("number", "<f8", np.nan)
    numbers += [codec.pack(rows).layout, codec.pack(rows).layout]
    table.add_field(Field("late", np.int32, 5))
    last = codec.pack(rows)
    assert [*numbers, last.layout] == [0, 0, 1, 1, 2]
    assert encode(codec.layouts.stored) == encode(codec.layouts.known)
    codec.layouts.expect(codec.layouts.known)
    assert encode(codec.layouts.stored) == encode(codec.layouts.known)
    assert codec.layouts.read(last.chunk(0, 3)).records["late"].tolist() == [5, 5, 5]


def test_a_column_that_the_pipeline_does_not_have_is_refused() -> None:
    table, _, codec = filled(2)
    chunk = codec.layouts.read(codec.pack(table.live()).chunk(0, 2))
    other = RowCodec(RowTable([Field("number", np.int64)]))
    other.layouts.expect(codec.layouts.known)
    with pytest.raises(StateError, match="a column 'flag' that the pipeline does not"):
        other.fill(np.arange(2), chunk, np.arange(2))


def test_no_rows() -> None:
    _, _, codec = made()
    chunk = codec.layouts.read(codec.pack(np.empty(0, dtype=np.int64)).chunk(0, 0))
    assert len(chunk) == 0
