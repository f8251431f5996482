"""Side columns as they are stored: what is read, many values at once, is what was cut."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater.errors import StateError
from lowwater.state.codec import encode
from lowwater.state.row_codec import Layouts, PackedRows
from lowwater.state.side_format import ReadSide, Side, read_sides

_OBJECTS = st.one_of(st.none(), st.text(max_size=3), st.integers(2**53, 2**70), st.binary())
_DTYPES = st.sampled_from(["<i8", "<f4", "|b1", "<M8[us]", "|O"])


@st.composite
def sides(draw: st.DrawFn) -> tuple[Side, int]:
    """Draw side columns, and of how many rows they are."""
    rows = draw(st.integers(1, 12))
    objects = {}
    for name in draw(st.sets(st.sampled_from("ab"))):
        objects[name] = boxed(draw(st.lists(_OBJECTS, min_size=rows, max_size=rows)))
    bags = {}
    for name in draw(st.sets(st.sampled_from(["x", "y", "z"]))):
        counts = draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows))
        dtype = np.dtype(draw(_DTYPES))
        numbers = np.arange(sum(counts)) % 2 if dtype.kind == "b" else np.arange(sum(counts))
        held = boxed([draw(_OBJECTS) for _ in numbers]) if dtype.kind == "O" else numbers
        bags[name] = (held.astype(dtype), np.arange(sum(counts)) * 7, begins(counts))
    nested = None
    if draw(st.booleans()):
        counts = draw(st.lists(st.integers(0, 2), min_size=rows, max_size=rows))
        nested = (packed(sum(counts)), begins(counts))
    return Side(objects, bags, nested), rows


def boxed(values: list[Any]) -> Any:
    made = np.empty(len(values), dtype=object)
    made[:] = values
    return made


def begins(counts: list[int]) -> Any:
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))


def packed(count: int) -> PackedRows:
    layouts = Layouts()
    number = layouts.number([("n", "<i8", 0)])
    return PackedRows(number, np.arange(count).astype("<i8").view(np.uint8).reshape(count, 8), None)


def cut(side: Side, bounds: list[int]) -> tuple[list[bytes], Any]:
    return side.cut(np.array(bounds)), np.diff(bounds)


def by_row(side: Side, low: int, high: int) -> list[Any]:
    """Return what each row holds, as plain values; nulls and nothing at all are one."""
    found: list[Any] = []
    for row in range(low, high):
        held: dict[str, Any] = {
            name: column[row] for name, column in side.objects.items() if column[row] is not None
        }
        for name, (values, arrivals, begin) in side.bags.items():
            span = slice(begin[row], begin[row + 1])
            if begin[row] < begin[row + 1]:
                held[name] = (values.dtype.str, values[span].tolist(), arrivals[span].tolist())
        if side.nested is not None and side.nested[1][row] < side.nested[1][row + 1]:
            held["nested"] = list(range(side.nested[1][row], side.nested[1][row + 1]))
        found.append(held)
    return found


def read_by_row(found: list[ReadSide], count: int) -> list[Any]:
    rows: list[Any] = [{} for _ in range(count)]
    for side in found:
        nested = None
        if side.nested is not None:
            layouts = Layouts()
            layouts.number([("n", "<i8", 0)])
            chunks = [layouts.read(value) for value in side.nested[1]]
            numbers = [n for chunk in chunks for n in chunk.records["n"].tolist()]
            nested = numbers, begins(side.nested[0].tolist())
        for at, row in enumerate(side.rows.tolist()):
            for name, column in side.objects.items():
                if column[at] is not None:
                    rows[row][name] = column[at]
            for name, (values, arrivals, counts) in side.bags.items():
                begin = begins(counts.tolist())
                span = slice(begin[at], begin[at + 1])
                if counts[at]:
                    kept = (values.dtype.str, values[span].tolist(), arrivals[span].tolist())
                    rows[row][name] = kept
            if nested is not None and nested[1][at] < nested[1][at + 1]:
                rows[row]["nested"] = nested[0][nested[1][at] : nested[1][at + 1]]
    return rows


@given(st.lists(sides(), min_size=1, max_size=3), st.data())
def test_what_is_read_is_what_was_cut(made: list[tuple[Side, int]], data: st.DataObject) -> None:
    """Values of several operators' headers, and values without any, in one reading."""
    values: list[bytes] = []
    counts: list[int] = []
    expected: list[Any] = []
    for side, rows in made:
        inner = data.draw(st.sets(st.integers(0, rows)))
        bounds = sorted({*inner, data.draw(st.integers(0, rows - 1)), rows})
        some, lengths = cut(side, bounds)
        values += some
        counts += lengths.tolist()
        expected += by_row(side, bounds[0], bounds[-1])
    found = read_sides(values, np.array(counts))
    assert read_by_row(found, sum(counts)) == expected
    assert all((np.diff(side.rows) > 0).all() for side in found)


@given(sides(), st.data())
def test_what_is_cut_short_or_longer_is_refused(
    made: tuple[Side, int], data: st.DataObject
) -> None:
    side, rows = made
    (value,), counts = cut(side, [0, rows])
    if not value:
        return
    for damaged in (value[: data.draw(st.integers(1, len(value) - 1))], value + b"\0"):
        with pytest.raises(StateError):
            read_sides([damaged], counts)


@given(sides(), st.data())
def test_damage_is_an_error_of_state_or_other_values(
    made: tuple[Side, int], data: st.DataObject
) -> None:
    """A checksum of the store finds it first; what gets past it must raise nothing else."""
    side, rows = made
    (value,), counts = cut(side, [0, rows])
    if not value:
        return
    at = data.draw(st.integers(0, len(value) - 1))
    damaged = value[:at] + bytes([data.draw(st.integers(0, 255))]) + value[at + 1 :]
    try:
        for found in read_sides([damaged], counts):
            assert all(len(each[0]) == int(each[2].sum()) for each in found.bags.values())
            assert all(len(each) == rows for each in found.objects.values())
    except StateError:
        pass


@pytest.mark.parametrize(
    "header", [[], 1, [1, [], False], [["a"], [], 0], [["a", "a"], [], False], [[], [["x"]], False]]
)
def test_headers_that_say_nothing_sound_are_refused(header: Any) -> None:
    encoded, one = encode(header), np.array([1])
    with pytest.raises(StateError):
        read_sides([b"\xc1" + len(encoded).to_bytes(4, "little") + encoded + bytes(8)], one)


def test_a_damaged_number_of_rows_takes_no_memory() -> None:
    """Keys of objects alone have no fixed columns that would be too few for so many rows."""
    (now,), _ = cut(Side({"a": boxed(["x"])}, {}, None), [0, 1])
    for value in (now, encode({"objects": {"a": ["x"]}})):
        tracemalloc.start()
        try:
            with pytest.raises(StateError, match="'a' is of another length"):
                read_sides([value], np.array([10_000_000]))
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert most < 1_000_000


def test_a_stretch_does_not_pay_for_the_others() -> None:
    """The journal cuts a block at a time out of all rows that changed."""
    rows = 50_000
    bag = (np.arange(rows), np.arange(rows), np.arange(rows + 1))
    side = Side({"a": boxed(["x"] * rows)}, {"v": bag}, None)
    ((value,), counts) = cut(side, [rows - 2, rows])
    (found,) = read_sides([value], counts)
    assert found.bags["v"][0].tolist() == [rows - 2, rows - 1]
    assert found.objects["a"].tolist() == ["x", "x"]
    assert len(value) < 120


def test_what_was_written_before_is_read_beside() -> None:
    """A dictionary for each value, as goldens have them; nested rows and bags of objects too."""
    former = encode(
        {
            "objects": {"a": ["x", None]},
            "bags": {
                "v": ["<i8", b"\1\0\0\0\2\0\0\0", np.arange(3).tobytes(), np.arange(3).tobytes()],
                "w": ["|O", b"\0\0\0\0\1\0\0\0", [2**70], np.arange(1).tobytes()],
            },
            "nested": [b"\1\0\0\0\0\0\0\0", packed(1).chunk(0, 1)],
        }
    )
    side = Side({"a": boxed(["y"])}, {"v": (np.array([7]), np.array([9]), begins([1]))}, None)
    (now,), _ = cut(side, [0, 1])
    found = read_sides([now, former, b""], np.array([1, 2, 3]))
    assert read_by_row(found, 6) == [
        {"a": "y", "v": ("<i8", [7], [9])},
        {"a": "x", "v": ("<i8", [0], [0]), "nested": [0]},
        {"v": ("<i8", [1, 2], [1, 2]), "w": ("|O", [2**70], [0])},
        {},
        {},
        {},
    ]


@pytest.mark.parametrize("stored", [[], 1, {"more": {}}, {"objects": {}, "more": {}}, {1: {}}])
def test_side_columns_of_before_without_known_names_are_refused(stored: Any) -> None:
    with pytest.raises(StateError, match="what it holds has no names"):
        read_sides([encode(stored)], np.array([1]))


def test_names_of_columns_may_be_long_and_many() -> None:
    bags = {f"{at} {'x' * 300}": (np.array([at]), np.array([1]), begins([1])) for at in range(400)}
    (value,), counts = cut(Side({}, bags, None), [0, 1])
    (found,) = read_sides([value], counts)
    assert [values.tolist() for values, _, _ in found.bags.values()] == [[n] for n in range(400)]
