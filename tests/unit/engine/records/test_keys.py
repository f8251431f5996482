"""Keys as ids: equal keys share one, other keys have others, and ids give the keys back."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.records.columns import Column
from lowwater.engine.records.keys import KeyDictionary
from lowwater.time import Int64Array

DAY = dt.date(2000, 2, 29)
NOON = dt.datetime(2000, 1, 1, 12)  # noqa: DTZ001 (a key is what it is)

ARRAYS = [
    pa.array([3, -1, 3, 0], pa.int64()),
    pa.array([3, -1, 3, 0], pa.int8()),
    pa.array([3, 1, 3, 2**32 - 1], pa.uint32()),
    pa.array([3, 1, 3, 0], pa.uint64()),
    pa.array([3, 2**64 - 1, 3, 2**63], pa.uint64()),
    pa.array([2**63 - 1, -(2**63), 0, 0], pa.int64()),
    pa.array([1.5, -2.0, 1.5, float("inf")], pa.float64()),
    pa.array([1.5, -2.0, 1.5, 0.0], pa.float32()),
    pa.array([1.5, -2.0, 1.5, 0.0], pa.float16()),
    pa.array([True, False, True, True]),
    pa.array(["b", "", "b", "ä\0"]),
    pa.array(["b", "", "b", "ä"], pa.large_string()),
    pa.array([b"b", b"", b"b", b"\xff\0"]),
    pa.array([b"ab", b"cd", b"ab", b"\0\0"], pa.binary(2)),
    pa.array([DAY, dt.date(1, 1, 1), DAY, dt.date(9999, 12, 31)]),
    pa.array([DAY, DAY, dt.date(1969, 12, 31), DAY], pa.date64()),
    pa.array([NOON, NOON.replace(year=1900), NOON, NOON], pa.timestamp("s")),
    pa.array([NOON, NOON.replace(microsecond=7), NOON, NOON], pa.timestamp("us")),
    pa.array([0, 1, 0, -1], pa.timestamp("ns")),
    pa.array([0, 1, 0, -1], pa.timestamp("us", "Europe/Berlin")),
    pa.array([dt.time(1), dt.time(2), dt.time(1), dt.time(0)], pa.time32("ms")),
    pa.array([dt.time(1), dt.time(2, microsecond=3), dt.time(1), dt.time(0)]),
    pa.array([dt.timedelta(1), dt.timedelta(-1), dt.timedelta(1), dt.timedelta(0)]),
    pa.array([Decimal("1.10"), Decimal("-2"), Decimal("1.1"), Decimal(0)]),
]


def arrow(values: Any, type: pa.DataType | None = None) -> Column:
    return Column.from_arrow(values if isinstance(values, pa.Array) else pa.array(values, type))


def objects(*values: Any) -> Column:
    return Column.of_objects(values)


def encode(keys: KeyDictionary, column: Column) -> list[int]:
    """Encode a column; what comes back must decode to what went in."""
    ids = keys.encode((column,))
    assert keys.decode(ids)[0].to_list() == column.to_list()
    assert (ids < keys.capacity).all()
    return ids.tolist()


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: str(a.type))
def test_every_type_comes_back(array: pa.Array) -> None:
    keys = KeyDictionary(1)
    values = array.to_pylist()
    ids = encode(keys, arrow(array))
    assert [values.index(value) for value in values] == [ids.index(one) for one in ids]
    assert len(keys) == len(set(values))
    assert encode(keys, arrow(array)) == ids
    assert encode(keys, arrow(array.slice(1, 2))) == ids[1:3]
    back = keys.decode(np.array(ids[::-1]))[0].to_arrow()
    assert back.type == array.type
    assert back.equals(array[::-1])


CODED = [array for array in ARRAYS if array.type != pa.float16()]  # Arrow has no such dictionaries


@pytest.mark.parametrize("array", CODED, ids=lambda a: str(a.type))
def test_every_type_as_a_dictionary(array: pa.Array) -> None:
    coded = array.dictionary_encode()
    keys = KeyDictionary(1)
    ids = encode(keys, arrow(coded))
    assert encode(keys, arrow(coded.slice(2))) == ids[2:]
    assert encode(keys, arrow(array)) == ids
    assert keys.decode(np.array(ids))[0].to_arrow().type == array.type
    assert len(keys) == len(set(array.to_pylist()))


def test_both_zeros_are_one_key() -> None:
    keys = KeyDictionary(1)
    assert encode(keys, arrow([0.0, -0.0, 1.0])) == [0, 0, 1]
    assert encode(keys, arrow([-0.0])) == [0]


def test_any_hashable() -> None:
    keys = KeyDictionary(1)
    values = [(1, "a"), frozenset({2}), "a", (1, "a"), Decimal(3), b"a", NOON, DAY]
    ids = encode(keys, objects(*values))
    assert ids == [0, 1, 2, 0, 3, 4, 5, 6]
    assert encode(keys, objects(DAY, ("new",), frozenset({2}))) == [6, 7, 1]


def test_python_numbers() -> None:
    keys = KeyDictionary(1)
    five, six = encode(keys, Column(np.array([5, 6])))
    assert encode(keys, Column(np.array([6.0, 6.5]))) == [six, 2]
    assert encode(keys, objects(2**70, 5, "x")) == [3, five, 4]


# ---------------------------------------------------------------------- dictionaries of Arrow


def test_a_dictionary_that_many_bundles_share_is_read_once() -> None:
    keys = KeyDictionary(1)
    whole = pa.array(["c", "a", "b", "a", "c"]).dictionary_encode()
    assert encode(keys, arrow(whole.slice(0, 1))) == [0]
    assert len(keys) == 1  # only what occurs gets an id
    assert encode(keys, arrow(whole.slice(3, 2))) == [1, 0]
    assert encode(keys, arrow(whole)) == [0, 1, 2, 1, 0]


def test_several_dictionaries_with_other_orders() -> None:
    keys = KeyDictionary(1)
    for turn in range(8):  # more than are remembered
        letters = [chr(97 + (turn + at) % 9) for at in range(5)]
        ids = encode(keys, arrow(pa.array(letters).dictionary_encode()))
        assert ids == [(turn + at) % 9 for at in range(5)]


@pytest.mark.parametrize("index", [pa.int8(), pa.uint8(), pa.int64()])
def test_indices_of_any_width(index: pa.DataType) -> None:
    coded = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1], index), pa.array(["a", "b"]))
    first, second, third = encode(KeyDictionary(1), arrow(coded))
    assert first == third != second


def test_a_dictionary_with_an_entry_twice() -> None:
    coded = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), pa.array(["a", "b", "a"]))
    ids = encode(KeyDictionary(1), arrow(coded))
    assert ids[0] == ids[2] != ids[1]


def test_dictionaries_that_share_bytes_but_not_where_words_begin() -> None:
    """Arrow may lay two dictionaries over one buffer; they are two all the same."""
    keys = KeyDictionary(1)
    letters = pa.py_buffer(b"abc")
    for offsets, words in (([0, 2, 3], ["ab", "c"]), ([0, 1, 3], ["a", "bc"])):
        bounds = pa.py_buffer(np.array(offsets, dtype=np.int32))
        dictionary = pa.StringArray.from_buffers(2, bounds, letters)
        coded = pa.DictionaryArray.from_arrays(pa.array([0, 1]), dictionary)
        assert keys.decode(keys.encode((arrow(coded),)))[0].to_list() == words


def test_dictionaries_that_share_bytes_but_not_their_type() -> None:
    keys = KeyDictionary(1)
    text = pa.array(["a", "b"]).dictionary_encode()
    raw = pa.DictionaryArray.from_arrays(text.indices, text.dictionary.cast(pa.binary()))
    number = pa.array([1, 2]).dictionary_encode()
    time = pa.DictionaryArray.from_arrays(
        number.indices, number.dictionary.view(pa.timestamp("us"))
    )
    assert [each.address for each in text.dictionary.buffers() if each] == [
        each.address for each in raw.dictionary.buffers() if each
    ]
    ids = [id for array in (text, raw, number, time) for id in encode(keys, arrow(array))]
    assert len({*ids}) == 8


def test_slices_of_one_dictionary() -> None:
    keys = KeyDictionary(1)
    words = pa.array(["a", "b", "c", "d"])
    for at in range(3):
        coded = pa.DictionaryArray.from_arrays(pa.array([0, 1]), words.slice(at, 2))
        assert encode(keys, arrow(coded)) == [at, at + 1]


# ------------------------------------------------------------------------------ changing types


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (arrow([1, 2]), arrow([2, 3], pa.int32())),
        (arrow([1, 2]), arrow([2.0, 2.5])),
        (arrow([1.0, 2.5]), arrow([1, 2])),
        (arrow([1, 2]), arrow(["1", "2"])),
        (arrow(["1", "2"]), arrow([1, 2])),
        (arrow(["1", "2"]), arrow([b"1", b"2"])),
        (arrow(["1", "2"]), arrow(["2", "3"], pa.large_string())),
        (arrow(["1", "2"]), objects("2", "3")),
        (objects("1", "2"), arrow(["2", "3"])),
        (arrow([1, 2]), objects("2", 2)),
        (arrow([DAY, dt.date(1, 1, 1)]), arrow([NOON])),
        (arrow([NOON], pa.timestamp("us")), arrow([NOON], pa.timestamp("ms"))),
        (arrow([1, 2], pa.uint64()), arrow([2, 2**64 - 1], pa.uint64())),
        (arrow([2**64 - 1, 2], pa.uint64()), arrow([2, 3], pa.uint64())),
    ],
)
def test_types_that_change_mid_stream(before: Column, after: Column) -> None:
    """What was known keeps its id, what equals it gets the same, and all of it comes back."""
    keys = KeyDictionary(1)
    ids: dict[Any, int] = {}
    for column in (before, after, before):
        ids_now = encode(keys, column)
        for value, one in zip(column.to_list(), ids_now, strict=True):
            assert ids.setdefault(value, one) == one
        assert len(set(ids.values())) == len(ids) == len(keys)
    if {type(v) for v in after.to_list()} != {int, str}:  # a column that Arrow has a type for
        back = keys.decode(keys.encode((after,)))[0]
        assert back.to_arrow().to_pylist() == after.to_list()


def test_a_type_that_stays_is_kept_though_values_outgrow_numbers() -> None:
    keys = KeyDictionary(1)
    keys.encode((arrow([1], pa.uint64()),))
    (back,) = keys.decode(keys.encode((arrow([2**64 - 1], pa.uint64()),)))
    assert back.to_arrow().type == pa.uint64()


# ----------------------------------------------------------------------------- several columns


def test_several_columns() -> None:
    keys = KeyDictionary(3)
    columns = (arrow(["a", "b", "a", "a"]), arrow([1, 1, 1, 2]), arrow([DAY] * 4))
    ids = keys.encode(columns)
    assert ids[0] == ids[2]
    assert len(set(ids.tolist())) == 3
    decoded = keys.decode(ids[::-1].copy())
    assert [c.to_list() for c in decoded] == [["a", "a", "b", "a"], [2, 1, 1, 1], [DAY] * 4]
    assert [c.to_arrow().type for c in decoded] == [pa.string(), pa.int64(), pa.date32()]
    assert len(keys) == 3


def test_no_column_is_mistaken_for_another() -> None:
    keys = KeyDictionary(2)
    ids = keys.encode((arrow(["a", "b", "a"]), arrow(["b", "a", "a"])))
    assert len(set(ids.tolist())) == 3


def test_five_columns() -> None:
    keys = KeyDictionary(5)
    columns = tuple(arrow([(row >> at) & 1 for row in range(32)]) for at in range(5))
    ids = keys.encode(columns)
    assert sorted(ids.tolist()) == list(range(32))
    assert [c.to_list() for c in keys.decode(ids)] == [c.to_list() for c in columns]


def test_a_column_of_several_that_changes_its_type() -> None:
    keys = KeyDictionary(2)
    before = keys.encode((arrow([1, 2]), arrow(["x", "x"]))).tolist()
    ids = keys.encode((arrow(["1", "2"]), arrow(["x", "x"])))
    assert len({*before, *ids.tolist()}) == 4
    assert keys.encode((arrow([2]), arrow(["x"]))).tolist() == before[1:]
    assert [c.to_list() for c in keys.decode(ids)] == [["1", "2"], ["x", "x"]]


def test_nothing_yet() -> None:
    for count in (1, 2):
        keys = KeyDictionary(count)
        assert len(keys) == 0
        keys.retain(np.zeros(0, dtype=np.bool_))
        columns = tuple(arrow(pa.array([], pa.string())) for _ in range(count))
        assert keys.encode(columns).tolist() == []
        keys.retain(np.zeros(0, dtype=np.bool_))
        assert len(keys) == 0


# ----------------------------------------------------------------------------- views of strings


@pytest.mark.parametrize("coded", [False, True])
def test_string_views_as_polars_hands_them_over(coded: bool) -> None:
    """Arrow can take no rows of views, so lowwater reads them as plain strings."""
    words = pa.array(["a", "longer than twelve bytes", "a", "b"], pa.string_view())
    if coded:
        entries = pa.array(["a", "b", "longer than twelve bytes"], pa.string_view())
        words = pa.DictionaryArray.from_arrays(pa.array([0, 2, 0, 1], pa.uint32()), entries)
    table = pa.table(
        {"t": [0, 1, 2, None], "k": words, "raw": pa.array([b"x"] * 4).cast("binary_view")}
    )
    for data in (table, table.to_reader(), table.to_batches()[0]):
        windowed = lw.from_arrow(data, time="t").key_by("k").window(lw.GlobalWindow())
        result = windowed.aggregate(n=lw.count(), top=lw.max("k"), raw=lw.collect("raw")).collect()
        assert [(p.key, p.values["n"], p.values["top"], p.values["raw"]) for p in result.panes] == [
            ("a", 2, "a", [b"x", b"x"]),
            ("longer than twelve bytes", 1, "longer than twelve bytes", [b"x"]),
        ]
        assert [error.record["k"] for error in result.errors] == ["b"]


# ------------------------------------------------------------------------------------ forgetting


def live(keys: KeyDictionary, *ids: int) -> Any:
    mask = np.zeros(keys.capacity, dtype=np.bool_)
    mask[list(ids)] = True
    return mask


@pytest.mark.parametrize(
    "make",
    [
        lambda *n: arrow(list(n)),
        lambda *n: arrow(list(map(str, n))),
        lambda *n: arrow(pa.array(list(map(str, n))).dictionary_encode()),
        lambda *n: objects(*((at,) for at in n)),
        lambda *n: arrow([at / 2 for at in n]),
    ],
    ids=["ints", "strings", "dictionary", "tuples", "floats"],
)
def test_ids_of_forgotten_keys_are_used_again(make: Any) -> None:
    keys = KeyDictionary(1)
    assert encode(keys, make(0, 1, 2, 3)) == [0, 1, 2, 3]
    keys.retain(live(keys, 1, 3))
    assert len(keys) == 2
    assert encode(keys, make(3, 1)) == [3, 1]
    assert sorted(encode(keys, make(4, 0))) == [0, 2]
    assert encode(keys, make(5)) == [4]
    assert encode(keys, make(1, 3, 5)) == [1, 3, 4]


def test_ids_beyond_the_mask_are_forgotten() -> None:
    for column in (arrow([1, 2, 3]), arrow(["a", "b", "c"])):
        keys = KeyDictionary(1)
        keys.encode((column,))
        keys.retain(np.array([False, True]))
        assert len(keys) == 1
        assert keys.encode((column,))[1] == 1


def test_a_shared_dictionary_after_forgetting() -> None:
    """What is remembered of an Arrow dictionary must not bring dead ids back."""
    keys = KeyDictionary(1)
    whole = pa.array(["a", "b", "c"]).dictionary_encode()
    encode(keys, arrow(whole))
    keys.retain(live(keys, 1))
    assert encode(keys, arrow(["other"])) != [1]
    ids = encode(keys, arrow(whole))
    assert ids[1] == 1
    assert len(set(ids)) == 3


def test_equal_dictionaries_after_forgetting() -> None:
    """Equal dictionaries share what is remembered, also of keys that are forgotten."""
    keys = KeyDictionary(1)
    arrays = [pa.array(["a", "b", "c"]).dictionary_encode() for _ in range(3)]
    ids = [encode(keys, arrow(array)) for array in arrays]
    assert ids[0] == ids[1] == ids[2]
    live = np.zeros(3, dtype=np.bool_)
    live[ids[0][1]] = True
    keys.retain(live)
    assert encode(keys, objects("x", "y", "b"))[2] == ids[0][1]  # the ids of a and c, used again
    again = [encode(keys, arrow(array)) for array in arrays]
    assert again[0] == again[1] == again[2]
    assert len(keys) == 5


def test_forgetting_where_a_dictionary_came_without_rows() -> None:
    keys = KeyDictionary(1)
    coded = pa.array(["a", "b"]).dictionary_encode()
    assert encode(keys, arrow(coded.slice(0, 0))) == []
    keys.retain(np.zeros(0, dtype=np.bool_))
    assert len({*encode(keys, arrow(coded))}) == 2


def test_forgetting_tuples_forgets_their_parts() -> None:
    keys = KeyDictionary(2)
    for turn in range(50):
        columns = (arrow([f"{turn}-{at}" for at in range(20)]), arrow([turn] * 20))
        ids = keys.encode(columns)
        assert [c.to_list() for c in keys.decode(ids)] == [c.to_list() for c in columns]
        keys.retain(live(keys, int(ids[7])))
        assert len(keys) == 1
    assert keys.capacity <= 64
    assert all(part is not None and part.capacity <= 64 for part in keys._parts)


# ----------------------------------------------------------------------------------------- nulls


@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: str(a.type))
def test_a_null_of_every_type_is_a_key_of_its_own(array: pa.Array, coded: bool) -> None:
    """T-3: equal to nulls, to nothing else, whatever the type of the column that it comes from."""
    values = array.to_pylist()
    some = pa.array([None, *values[:3], None], array.type)
    if coded and array in CODED:
        some = some.dictionary_encode()
    keys = KeyDictionary(1)
    (null,) = encode(keys, arrow([None]))  # before any value says of which type the others are
    ids = encode(keys, arrow(some))
    assert ids[0] == ids[-1] == null
    assert null not in ids[1:-1]
    nulls = keys.with_nulls(np.array(ids))
    assert nulls is not None
    assert nulls.tolist() == [True, False, False, False, True]
    assert keys.with_nulls(np.array(ids[1:-1])) is None
    assert encode(keys, objects(None, *values[:3])) == ids[:-1]
    assert encode(keys, arrow([None, None], array.type)) == [null, null]
    keys.retain(live(keys, ids[1]))
    assert keys.with_nulls(np.array([ids[1]])) is None
    assert len(keys) == 1
    assert sorted({*encode(keys, arrow(some)), ids[1]}) == sorted({*ids})


def test_a_dictionary_with_nulls_among_values_and_indices() -> None:
    keys = KeyDictionary(1)
    coded = pa.DictionaryArray.from_arrays(pa.array([1, None, 0, 1]), pa.array(["a", None]))
    null, other, letter, again = encode(keys, arrow(coded))
    assert null == other == again != letter


@given(
    st.lists(
        st.one_of(
            st.lists(
                st.tuples(st.none() | st.integers(0, 9), st.none() | st.sampled_from("abc")),
                max_size=12,
            ),
            st.sets(st.integers(0, 30)),
        ),
        max_size=15,
    ),
    st.booleans(),
)
def test_like_a_dictionary(steps: list[Any], coded: bool) -> None:
    keys = KeyDictionary(2)
    model: dict[tuple[int | None, str | None], int] = {}
    for step in steps:
        if isinstance(step, set):
            keys.retain(live(keys, *(one for one in step if one < keys.capacity)))
            model = {key: one for key, one in model.items() if one in step}
        else:
            letters = pa.array([letter for _, letter in step], pa.string())
            columns = (
                arrow([number for number, _ in step], pa.int64()),
                arrow(letters.dictionary_encode() if coded else letters),
            )
            ids: Int64Array = keys.encode(columns)
            for key, one in zip(step, ids.tolist(), strict=True):
                assert model.setdefault(key, one) == one
            assert len(set(model.values())) == len(model)
            nulls = keys.with_nulls(ids)
            assert [None in key for key in step] == (
                [False] * len(step) if nulls is None else nulls.tolist()
            )
            decoded = keys.decode(ids)
            assert list(zip(*(c.to_list() for c in decoded), strict=True)) == step
        assert len(keys) == len(model)


@given(
    st.lists(
        st.one_of(
            st.lists(st.sampled_from("abcdefgh") | st.none() | st.integers(0, 4), max_size=12),
            st.sets(st.integers(0, 20)),
        ),
        max_size=15,
    )
)
def test_new_keys_get_ids_in_order_of_first_place(steps: list[Any]) -> None:
    """Those that were freed last first, so that a run gives the same ids each time."""
    keys = KeyDictionary(1)
    model: dict[Any, int] = {"first": 0}
    free: list[int] = []
    top = 1
    assert encode(keys, objects("first")) == [0]
    for step in steps:
        if isinstance(step, set):
            free += [one for one in model.values() if one not in step]
            keys.retain(live(keys, *(one for one in step if one < keys.capacity)))
            model = {key: one for key, one in model.items() if one in step}
            continue
        for key in step:
            if key not in model:
                model[key] = free.pop() if free else top
                top = max(top, model[key] + 1)
        assert encode(keys, objects(*step)) == [model[key] for key in step]
        assert len(keys) == len(model)
        assert keys.capacity == top


def test_a_key_that_cannot_be_hashed_leaves_the_others_as_they_were() -> None:
    keys = KeyDictionary(1)
    assert encode(keys, objects("a", "b")) == [0, 1]
    with pytest.raises(TypeError, match="unhashable"):
        keys.encode((objects("c", "a", "d", []),))
    assert len(keys) == 2
    assert encode(keys, objects("e", "c", "a", "e")) == [2, 3, 0, 2]
