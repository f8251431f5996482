"""The pinned hash of keys: golden values, and equal keys hash equal whatever holds them."""

from __future__ import annotations

import datetime as dt
import struct
import subprocess
import sys
from collections.abc import Sequence
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.records.columns import Column
from lowwater.engine.records.key_hash import hash_keys, key_groups
from lowwater.engine.records.keys import KeyDictionary
from lowwater.errors import StateError
from lowwater.state.xxh64 import hash_bytes

DAY = dt.date(2000, 2, 29)
NOON = dt.datetime(2000, 2, 29, 12, 0, 0, 7)  # noqa: DTZ001 (a key is what it is)
UTC_NOON = NOON.replace(tzinfo=dt.UTC)
EAST = dt.timezone(dt.timedelta(hours=5, minutes=30))
LONG = "lowwater " * 9
SURROGATE = "a\ud800"
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
ID = UUID("12345678-1234-5678-1234-567812345678")


def arrow(values: Any, type: Any = None) -> Column:
    return Column.from_arrow(pa.array(values, type))


def objects(*values: Any) -> Column:
    return Column.of_objects(values)


def hashes(*columns: Column) -> list[str]:
    return [f"{value:016x}" for value in hash_keys(columns).tolist()]


INTS = [0, 1, -1, 5, 100]
WIDE = [2**31, -(2**31), 2**61 - 1, 2**63 - 1, -(2**63)]
FLOATS = [0.0, -0.0, 1.5, float("inf"), float("-inf")]
FORMS: dict[str, list[Column]] = {
    "ints": [
        *(arrow(INTS, kind) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
        *(arrow(INTS, kind) for kind in (pa.float16(), pa.float32(), pa.float64())),
        Column(np.array(INTS, dtype=np.int64)),
        objects(*INTS),
        objects(*map(float, INTS)),
        objects(*map(Decimal, INTS)),
        objects(*map(Fraction, INTS)),
        objects(*np.array(INTS)),
        objects(0, True, -1.0, Decimal("5.00"), np.float32(100)),
        arrow(INTS, pa.decimal128(10, 2)),
        arrow(INTS, pa.dictionary(pa.int8(), pa.int64())),
    ],
    "wide ints": [
        arrow(WIDE, pa.int64()),
        objects(*WIDE),
        objects(*map(Decimal, WIDE)),
        arrow(WIDE, pa.decimal256(40, 0)),
    ],
    "unsigned": [
        *(arrow([0, 255], kind) for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())),
        objects(0, 255),
    ],
    "unsigned beyond int64": [
        arrow([2**63, 2**64 - 1], pa.uint64()),
        objects(2**63, 2**64 - 1),
        Column(np.array([2**63, 2**64 - 1], dtype=object), type=pa.uint64()),
    ],
    "beyond 64 bits": [objects(2**64, -(10**30)), objects(Decimal(2**64), Decimal("-1e30"))],
    "bools": [
        arrow([False, True]),
        objects(False, True),
        objects(np.False_, np.True_),
        arrow([0, 1]),
        Column(np.array([False, True])),
    ],
    "floats": [
        arrow(FLOATS),
        arrow(FLOATS, pa.float32()),
        arrow(FLOATS, pa.float16()),
        objects(*FLOATS),
        objects(*map(Decimal, FLOATS)),
    ],
    "small floats": [arrow([0.1, 5e-324, -1e300]), objects(0.1, Fraction(5e-324), -1e300)],
    "half a thousand": [arrow([0.5, 1000.0], pa.float16()), objects(Fraction(1, 2), 10**3)],
    "decimals": [
        arrow([Decimal("1.10"), Decimal("-0.01")]),
        objects(Decimal("1.1"), Decimal("-0.010")),
        objects(Fraction(11, 10), Fraction(-1, 100)),
    ],
    "text": [
        *(
            arrow(["", "a", "日本", LONG, "ab"], kind)
            for kind in (
                pa.string(),
                pa.large_string(),
                pa.string_view(),
                pa.dictionary(pa.int32(), pa.string()),
                pa.dictionary(pa.uint8(), pa.large_string()),
            )
        ),
        objects("", "a", "日本", LONG, "ab"),
        objects(*np.array(["", "a", "日本", LONG, "ab"])),
        Column.from_arrow(pa.array(["x", "", "a", "日本", LONG, "ab", "y"]).slice(1, 5)),
        Column.from_arrow(pa.chunked_array([["", "a"], ["日本"], [LONG, "ab"]])),
        Column(np.array(["", "a", "日本", LONG, "ab"], dtype=object), type=pa.string()),
    ],
    "lone surrogates": [objects(SURROGATE, "\udfff"), objects(np.str_(SURROGATE), "\udfff")],
    "bytes": [
        arrow([b"", b"ab", b"\xff\x00"]),
        arrow([b"", b"ab", b"\xff\x00"], pa.large_binary()),
        arrow([b"", b"ab", b"\xff\x00"], pa.binary_view()),
        objects(b"", b"ab", b"\xff\x00"),
    ],
    "fixed bytes": [
        arrow([b"ab", b"cd"], pa.binary(2)),
        Column.from_arrow(pa.array([b"xx", b"ab", b"cd"], pa.binary(2)).slice(1)),
        objects(b"ab", b"cd"),
    ],
    "dates": [
        arrow([DAY, dt.date(1, 1, 1), dt.date(1969, 12, 31)], pa.date32()),
        arrow([DAY, dt.date(1, 1, 1), dt.date(1969, 12, 31)], pa.date64()),
        objects(DAY, dt.date(1, 1, 1), dt.date(1969, 12, 31)),
    ],
    "local seconds": [
        *(
            arrow([NOON.replace(microsecond=0)], pa.timestamp(unit))
            for unit in ("s", "ms", "us", "ns")
        ),
        objects(NOON.replace(microsecond=0)),
    ],
    "local times": [
        *(arrow([NOON, NOON.replace(year=1904)], pa.timestamp(unit)) for unit in ("us", "ns")),
        objects(NOON, NOON.replace(year=1904)),
        objects(pd.Timestamp(NOON), pd.Timestamp(NOON.replace(year=1904))),
        objects(np.datetime64(NOON), np.datetime64(NOON.replace(year=1904))),
    ],
    "local nanoseconds": [
        arrow([1, -1], pa.timestamp("ns")),
        objects(pd.Timestamp(1), pd.Timestamp(-1)),
        objects(np.datetime64(1, "ns"), np.datetime64(-1, "ns")),
    ],
    "instants": [
        arrow([UTC_NOON], pa.timestamp("us", "UTC")),
        arrow([UTC_NOON], pa.timestamp("ns", "Europe/Paris")),
        arrow([UTC_NOON], pa.timestamp("us", "+05:30")),
        objects(UTC_NOON),
        objects(UTC_NOON.astimezone(EAST)),
        objects(UTC_NOON.astimezone(ZoneInfo("Europe/Paris"))),
        objects(pd.Timestamp(UTC_NOON)),
    ],
    "times of day": [
        arrow([dt.time(1, 2, 3), dt.time(0)], pa.time32("s")),
        arrow([dt.time(1, 2, 3), dt.time(0)], pa.time32("ms")),
        arrow([dt.time(1, 2, 3), dt.time(0)], pa.time64("us")),
        arrow([dt.time(1, 2, 3), dt.time(0)], pa.time64("ns")),
        objects(dt.time(1, 2, 3), dt.time(0)),
    ],
    "times of day with an offset": [
        objects(dt.time(1, 2, tzinfo=dt.UTC), dt.time(0, tzinfo=EAST)),
        objects(dt.time(6, 32, tzinfo=EAST), dt.time(0, tzinfo=EAST)),
    ],
    "durations": [
        *(arrow([dt.timedelta(3), dt.timedelta(-1)], pa.duration(u)) for u in ("s", "ms", "us")),
        arrow([dt.timedelta(3), dt.timedelta(-1)], pa.duration("ns")),
        objects(dt.timedelta(3), dt.timedelta(-1)),
        objects(pd.Timedelta(days=3), pd.Timedelta(days=-1)),
        objects(np.timedelta64(3, "D"), np.timedelta64(-1, "D")),
    ],
    "nanoseconds": [arrow([1, -1], pa.duration("ns")), objects(pd.Timedelta(1), pd.Timedelta(-1))],
    "UUIDs": [objects(ID, UUID(int=0)), arrow([ID.bytes, bytes(16)], pa.uuid())],
    "tuples": [objects((1, "a"), (), ("x", (None,))), objects((1.0, "a"), (), ("x", (None,)))],
    "sets": [
        objects(frozenset({1, "a"}), frozenset()),
        objects(frozenset({"a", True}), frozenset()),
    ],
    "nulls": [objects(None, "a"), arrow([None, "a"]), arrow([None, "a"]).take(np.array([0, 1]))],
    "NaN": [arrow([float("nan"), 1.0]), objects(float("nan"), 1), objects(np.float32("nan"), 1)],
}
GOLDEN: dict[str, list[str]] = {
    "ints": [
        "91df0c78c3e912c9",
        "b425aca027158691",
        "676756c1df4f939a",
        "2214188dba96e83c",
        "04bc683ed8a889f3",
    ],
    "wide ints": [
        "7218e57de8ab7e34",
        "b3c96dc5d035b714",
        "91df0c78c3e912c9",
        "bcbffcb57497eb03",
        "6712984dba9a58f9",
    ],
    "unsigned": ["91df0c78c3e912c9", "826348efe817689e"],
    "unsigned beyond int64": ["e6626dab256da390", "eff81508d70d8ca5"],
    "beyond 64 bits": ["15a7e906d1cd6270", "a76d3f2a2f176fd8"],
    "bools": ["91df0c78c3e912c9", "b425aca027158691"],
    "floats": [
        "91df0c78c3e912c9",
        "91df0c78c3e912c9",
        "27af40744aebb310",
        "fe28426fd8fe1f06",
        "319dfbbfd1b59e96",
    ],
    "small floats": ["2f94f2a54d12c960", "090907f3b6ac7abc", "da2df37de3ec4100"],
    "half a thousand": ["95ddfd0f9b71fafc", "086fbcaf8df669a7"],
    "decimals": ["49d621072e171f04", "0c972761799c7a0e"],
    "text": [
        "ef46db3751d8e999",
        "d24ec4f1a98c6e5b",
        "80c2e40b8486afab",
        "d261a85d814c2cd1",
        "65f708ca92d04a61",
    ],
    "lone surrogates": ["6b37221ea788e960", "121ad0af0eef914d"],
    "bytes": ["d5afba1336a3be4b", "15d0b33c2a848c6f", "97b7590e24fbed19"],
    "fixed bytes": ["15d0b33c2a848c6f", "ea58b4bf7b062c2f"],
    "dates": ["9a4e7cefe993c533", "3a8a1a6fa00c6c56", "0661d8919ef7edb8"],
    "local seconds": ["3799821749648687"],
    "local times": ["74b8b8b909b8a9d2", "060a47f26e530b87"],
    "local nanoseconds": ["21e94449e506dc48", "8ad86327e705d583"],
    "instants": ["97315bab8545dcee"],
    "times of day": ["1e8def9b52fa3f8f", "b03b68124b3747dc"],
    "times of day with an offset": ["47176701b594b273", "a5e62a430411b406"],
    "durations": ["8c67b7a960111257", "ee4f46061e0ae157"],
    "nanoseconds": ["30c1a15940d65450", "cec6024e642fc809"],
    "UUIDs": ["08cd33555c97c552", "078eaaa7c13b7c3a"],
    "tuples": ["0f91de779736ef45", "95f0626f6f0a4409", "e31c1de901fc0a07"],
    "sets": ["86fd07244cf192a3", "a9bd756bac813797"],
    "nulls": ["19b29850548dc830", "d24ec4f1a98c6e5b"],
    "NaN": ["5fe1db7b1a8a6570", "b425aca027158691"],
}


@pytest.mark.parametrize("name", FORMS)
def test_golden_values(name: str) -> None:
    """State, checkpoints and logs are laid out by these: they must never change."""
    for form in FORMS[name]:
        assert hashes(form) == GOLDEN[name]


def test_golden_composites() -> None:
    columns = arrow([5, 5]), arrow(["a", "b"]), arrow([DAY, DAY])
    assert hashes(*columns[:2]) == ["f659ad8df7b475eb", "338049c4c0038de1"]
    assert hashes(*columns) == ["3cb756c03e29e77c", "6beb4e58a2fc24fb"]
    assert hashes(*columns[:2]) == hashes(objects((5, "a"), (5.0, "b")))
    assert hashes(*columns, *columns) == ["56a91815fcf8112e", "a0aea81b7a666124"]


def test_golden_groups() -> None:
    assert key_groups([arrow([0, 1, 2, 3])], 128).tolist() == [73, 17, 109, 3]
    assert key_groups([arrow(["a", "b"])], 1 << 16).tolist() == [28251, 40859]
    assert key_groups([arrow(["a", "b"])], 1).tolist() == [0, 0]
    assert key_groups([arrow([0])], 128).dtype == np.uint16


@pytest.mark.parametrize("groups", [0, -1, 65_537])
def test_number_of_groups(groups: int) -> None:
    with pytest.raises(lw.InvalidArgument, match="must be 1 to 65536"):
        key_groups([arrow([0])], groups)


def test_the_bytes_are_as_documented() -> None:
    """Each kind's bytes, written out by hand."""

    def of(kind: int, data: bytes) -> str:
        place = np.zeros(1, dtype=np.int64)
        size = np.array([len(data)], dtype=np.int64)
        return f"{hash_bytes(data, place, size, kind)[0]:016x}"

    five = of(2, struct.pack("<q", 5))
    half = pow(2, -1, 2**61 - 1)
    seconds = int(UTC_NOON.replace(microsecond=0).timestamp())
    assert hashes(objects("日本")) == [of(0, "日本".encode())]
    assert hashes(objects(SURROGATE)) == [of(0, b"a\xed\xa0\x80")]
    assert hashes(objects(b"ab")) == [of(1, b"ab")]
    assert hashes(arrow([5, -3, -1, 2**61 + 6])) == [
        five, of(2, struct.pack("<q", -3)), of(2, struct.pack("<q", -2)),
        of(2, struct.pack("<q", 7)),
    ]  # fmt: skip
    assert hashes(arrow([-0.5, float("inf")])) == [
        of(2, struct.pack("<q", -half)), of(2, struct.pack("<q", 314159)),
    ]  # fmt: skip
    assert hashes(arrow([NOON])) == [of(3, struct.pack("<qq", seconds, 7000))]
    assert hashes(arrow([DAY])) == [of(3, struct.pack("<qq", seconds - 43_200, 0))]
    assert hashes(arrow([UTC_NOON])) == [of(4, struct.pack("<qq", seconds, 7000))]
    assert hashes(arrow([dt.time(0, 0, 1)])) == [of(5, struct.pack("<q", 10**6))]
    assert hashes(arrow([dt.timedelta(microseconds=-1)])) == [
        of(6, struct.pack("<qq", -1, 999_999_000))
    ]
    assert hashes(objects((5, 5))) == [of(7, bytes.fromhex(five)[::-1] * 2)]
    items = sorted([five, of(0, b"a")])
    packed = b"".join(bytes.fromhex(item)[::-1] for item in items)
    assert hashes(objects(frozenset({5, "a"}))) == [of(8, packed)]
    assert hashes(objects(ID)) == [of(9, ID.bytes)]
    assert hashes(arrow([None, 1])) == [of(10, b""), of(2, struct.pack("<q", 1))]
    assert hashes(arrow([float("nan")])) == [of(11, b"")]


def test_hashes_do_not_depend_on_the_process() -> None:
    code = (
        "from lowwater.engine.records.key_hash import hash_keys\n"
        "from lowwater.engine.records.columns import Column\n"
        "values = ['a', b'a', 5, (1, 'x'), frozenset({'a', 'b', 'c', 1}), None]\n"
        "print(hash_keys([Column.of_objects(values)]).tolist())"
    )
    values = ["a", b"a", 5, (1, "x"), frozenset({"a", "b", "c", 1}), None]
    expected = hash_keys([objects(*values)]).tolist()
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONHASHSEED": "7", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(expected)


def test_values_that_cannot_be_stored_have_no_hash() -> None:
    class Colour(Enum):
        RED = 1

    with pytest.raises(StateError, match=r"a key of type .*Colour cannot be stored"):
        hash_keys([objects(Colour.RED)])


def test_a_dictionary_may_hold_more_than_the_rows_use() -> None:
    plain = pa.array([f"k{at}" for at in range(100)])
    coded = plain.dictionary_encode()
    for rows in (slice(3, 5), slice(0, 100), slice(7, 7)):
        part = Column.from_arrow(coded[rows])
        assert hashes(part) == hashes(Column.from_arrow(plain[rows]))
    repeated = pa.DictionaryArray.from_arrays(pa.array([1, None, 0, 2]), pa.array(["b", "a", None]))
    assert hashes(Column.from_arrow(repeated)) == hashes(arrow(["a", None, "b", None]))


@pytest.mark.parametrize("distinct", [10, 100_000])
def test_many_rows_hash_as_each_alone(distinct: int) -> None:
    """Whether values come again decides how they are hashed, not to what."""
    rows = [f"user-{at % distinct}" for at in range(20_000)]
    rows[17] = None  # type: ignore[call-overload]  # a null
    whole = hashes(arrow(rows))
    for at in (0, 1, 17, 9_999, 19_999):
        assert whole[at : at + 1] == hashes(arrow(rows[at : at + 1], pa.string()))
    assert len(set(whole)) == min(distinct, 20_000) + 1 - (distinct > 20_000)


SPREAD: dict[str, pa.Array] = {
    "sequential ints": pa.array(range(50_000)),
    "ints a page apart": pa.array(range(0, 50_000 * 4096, 4096)),
    "numbers as text": pa.array([str(at) for at in range(50_000)]),
    "short strings": pa.array([a + b + c for a in LETTERS for b in LETTERS for c in LETTERS]),
    "dates": pa.array(range(20_000), pa.int32()).cast(pa.date32()),
    "minutes": pa.array(range(0, 50_000 * 60, 60), pa.timestamp("s")),
    "halves": pa.array([at / 2 for at in range(50_000)]),
}


@pytest.mark.parametrize("groups", [2, 7, 128, 1024])
@pytest.mark.parametrize("name", SPREAD)
def test_keys_spread_evenly(name: str, groups: int) -> None:
    """Pearson's chi-square lies within six standard deviations of what chance would give."""
    column = Column.from_arrow(SPREAD[name])
    counts = np.bincount(key_groups([column], groups), minlength=groups)
    expected = len(column) / groups
    statistic = float(((counts - expected) ** 2 / expected).sum())
    freedom = groups - 1
    assert abs(statistic - freedom) < 6 * (2 * freedom) ** 0.5


def atoms() -> st.SearchStrategy[Any]:
    """Values of many types, among which equal ones of different types are common."""
    small = st.integers(-3, 3)
    times = st.datetimes(dt.datetime(1969, 12, 30), dt.datetime(1970, 1, 3))  # noqa: DTZ001
    midnights = st.dates(dt.date(1969, 12, 30), dt.date(1970, 1, 3))
    numbers = small.flatmap(
        lambda n: st.sampled_from(
            [n, float(n), Decimal(n), Fraction(n), np.int8(n), np.float32(n), complex(n), n == 1]
        )
    )
    text = st.text("ab\ud800é", max_size=2)
    scalars = st.one_of(
        numbers,
        st.integers(),
        st.floats(allow_nan=False),
        st.floats(allow_nan=False).map(Decimal),
        text,
        text.map(np.str_),
        st.binary(max_size=2),
        midnights,
        times,
        times.map(pd.Timestamp),
        times.map(lambda at: at.replace(tzinfo=dt.UTC).astimezone(EAST)),
        times.map(lambda at: at.replace(tzinfo=dt.UTC)),
        midnights.map(lambda day: np.datetime64(day, "s")),
        st.times(),
        st.timedeltas(dt.timedelta(-2), dt.timedelta(2)),
        st.timedeltas(dt.timedelta(-2), dt.timedelta(2)).map(np.timedelta64),
        st.uuids(),
    )
    return st.recursive(
        scalars,
        lambda inner: st.one_of(
            st.lists(inner, max_size=2).map(tuple), st.frozensets(inner, max_size=2)
        ),
        max_leaves=4,
    )


TYPES = [
    pa.int8(), pa.int32(), pa.int64(), pa.uint64(), pa.float32(), pa.float64(), pa.bool_(),
    pa.string(), pa.large_string(), pa.dictionary(pa.int16(), pa.string()), pa.binary(),
    pa.binary_view(), pa.date32(), pa.date64(), pa.timestamp("s"), pa.timestamp("us"),
    pa.timestamp("ns"), pa.timestamp("us", "UTC"), pa.timestamp("us", "+05:30"), pa.time64("us"),
    pa.duration("us"), pa.duration("ns"), pa.decimal128(38, 2),
]  # fmt: skip


@st.composite
def columns(draw: st.DrawFn) -> Column:
    """A column of keys: of Python objects, or of an Arrow type where one takes them."""
    if draw(st.booleans()):
        return objects(*draw(st.lists(atoms(), max_size=6)))
    kind = draw(st.sampled_from(TYPES))
    values = draw(st.lists(st.one_of(st.integers(-3, 3), st.integers()), max_size=6))
    return Column.from_arrow(as_type(values, kind))


def as_type(values: Sequence[int], kind: pa.DataType) -> pa.Array:
    """Make something of a type out of numbers, small ones more often than not."""
    few = [value % 7 - 3 for value in values]
    days = [value * 86_400 for value in few]
    types = pa.types
    if types.is_dictionary(kind) or types.is_string(kind) or types.is_large_string(kind):
        return pa.array(["ab"[: value % 3] for value in few]).cast(kind)
    if types.is_binary(kind) or types.is_binary_view(kind):
        return pa.array([b"ab"[: value % 3] for value in few], kind)
    if types.is_boolean(kind):
        return pa.array([value > 0 for value in few])
    if types.is_uint64(kind):
        return pa.array([value % 2**64 for value in values], kind)
    if types.is_int64(kind):
        return pa.array([(value + 2**63) % 2**64 - 2**63 for value in values], kind)
    if types.is_timestamp(kind):
        return pa.array(days, pa.timestamp("s", kind.tz)).cast(kind)
    if types.is_duration(kind):
        return pa.array(days, pa.duration("s")).cast(kind)
    if types.is_time(kind):
        return pa.array([abs(value) for value in few], kind)
    if types.is_date64(kind):
        return pa.array(few, pa.int32()).cast(pa.date32()).cast(kind)
    if types.is_date32(kind):
        return pa.array(few, pa.int32()).cast(kind)
    return pa.array(few, pa.int64()).cast(kind)


@given(st.lists(columns(), min_size=1, max_size=5))
def test_one_key_id_one_hash(sequence: list[Column]) -> None:
    """Keys that the dictionary takes for one hash equal, whatever columns they come in."""
    keys = KeyDictionary(1)
    of_id: dict[int, int] = {}
    for column in sequence:
        ids = keys.encode((column,))
        found = hash_keys([column]).tolist()
        for key, value in zip(ids.tolist(), found, strict=True):
            assert of_id.setdefault(key, value) == value
        again = hash_keys(keys.decode(ids)).tolist()
        assert again == found


def test_kinds_are_told_apart() -> None:
    values: list[Any] = [
        "",
        b"",
        (),
        frozenset(),
        None,
        0,
        dt.date(1970, 1, 1),
        dt.time(0),
        dt.timedelta(0),
    ]
    values += ["0", b"0", (0,), frozenset({0}), ("",), (None,), UUID(int=0), bytes(16), bytes(8)]
    values += [dt.datetime(1970, 1, 1, tzinfo=dt.UTC), float("nan"), ((),), ((0,),), (0, 0)]
    assert len(set(hashes(objects(*values)))) == len(values)


@given(st.lists(st.tuples(atoms(), atoms()), min_size=1, max_size=5))
def test_keys_of_several_columns_hash_as_tuples(rows: list[tuple[Any, Any]]) -> None:
    first, second = zip(*rows, strict=True)
    assert hashes(objects(*first), objects(*second)) == hashes(objects(*rows))
