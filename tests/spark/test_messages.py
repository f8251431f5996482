"""What is sent to a key group arrives as it was: values, types, order and signs."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lowwater.engine.records.batch import Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.keys import KeyDictionary
from lowwater.engine.records.pane_table import MICROS_UTC, SIGN
from lowwater.engine.records.steps import Bundle
from lowwater.errors import DataError, StateError
from lowwater.spark.messages import (
    Elements,
    Message,
    joined_tables,
    observed_records,
    observed_table,
)

NOON = dt.datetime(2000, 1, 1, 12, tzinfo=dt.UTC)
VALUES: dict[str, list[Any]] = {
    "ints": [1, 2, 3],
    "floats": [0.5, float("inf"), -0.0],
    "text": ["a", "", "é"],
    "bytes": [b"", b"\0", b"x"],
    "bools": [True, False, True],
    "decimals": [Decimal("1.50"), Decimal(2), Decimal("-0.25")],
    "dates": [dt.date(2000, 1, 1), dt.date(1900, 1, 1), dt.date(9999, 12, 31)],
    "instants": [NOON, NOON + dt.timedelta(microseconds=1), NOON],
    "nulls": [None, 1, None],
    "lists": [[1], [], [2, 3]],
    "structs": [{"x": 1}, {"x": None}, {"x": 3}],
}


def elements(*, signs: bool = False, **columns: Column) -> Elements:
    """Return elements that have each column as key, id, value and column of their records."""
    length = len(next(iter(columns.values())))
    times = np.arange(length, dtype=np.int64)
    signed = np.where(times % 2 == 0, 1, -1).astype(np.int8) if signs else None
    own = dict(columns)
    if signs:
        own[SIGN] = Column(np.where(times % 2 == 0, 1, -1))
    made = tuple(columns.values())
    return Elements(Bundle(times, made, columns, signed), made, Records(own, length))


def arrived(*sent: Elements) -> Elements:
    """Return elements as they arrive: each in a message of its own."""
    messages = [
        Message.of_bytes(Message(origin=-1, part=at, elements={(0, 0): one.to_table()}).to_bytes())
        for at, one in enumerate(sent)
    ]
    return Elements.of_tables([message.elements[0, 0] for message in messages])


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("as_objects", [False, True])
@pytest.mark.parametrize("signs", [False, True])
def test_elements_arrive_as_they_were(name: str, as_objects: bool, signs: bool) -> None:
    values = VALUES[name]
    column = Column.of_objects(values) if as_objects else Column.from_arrow(pa.array(values))
    found = arrived(elements(signs=signs, x=column))
    assert len(found) == len(values)
    assert found.bundle.times.tolist() == [0, 1, 2]
    if signs:
        assert found.bundle.signs is not None
        assert found.bundle.signs.tolist() == [1, -1, 1]
        assert found.records.columns[SIGN].to_list() == [1, -1, 1]
    else:
        assert found.bundle.signs is None
    (key,), (id_,) = found.bundle.keys, found.ids
    for one in (key, id_, found.bundle.values["x"], found.records.columns["x"]):
        assert one.to_list() == values


def test_python_values_arrive_as_they_were() -> None:
    values = [(1, "a"), frozenset({2}), None, {"x": [1.5]}]
    found = arrived(elements(x=Column.of_objects(values)))
    assert found.bundle.values["x"].to_list() == values


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_keys_of_panes_are_sent_as_the_text_or_bytes_that_they_are(kind: pa.DataType) -> None:
    """They are objects, with nulls, whose type is known: none of them needs to be encoded."""
    values = pa.array(["a", None, "", "é"]).cast(kind).to_pylist()
    keys = KeyDictionary(1)
    keys.encode((Column.from_arrow(pa.array(values, kind)),))
    (held,) = keys.decode(np.array([3, 0, 1, 2, 0]))
    sent = elements(x=held)
    assert sent.to_table().schema.field("key:0").type == kind
    found = arrived(sent, elements(x=Column.of_objects([7])))
    assert found.bundle.keys[0].to_list() == [values[at] for at in (3, 0, 1, 2, 0)] + [7]
    assert arrived(sent).bundle.keys[0].type == kind


@pytest.mark.parametrize(
    "kinds",
    [
        (pa.array([1, 2], pa.int16()), pa.array([2**40], pa.int64())),
        (pa.nulls(2), pa.array(["a"])),
        (pa.array([1, 2]), pa.array(["a"])),
        (pa.array([1, 2]), pa.array([0.5])),
    ],
)
def test_messages_may_differ_in_their_types(kinds: tuple[pa.Array, ...]) -> None:
    """Partitions infer the types of what functions return each for itself."""
    found = arrived(*(elements(x=Column.from_arrow(kind)) for kind in kinds))
    assert found.bundle.values["x"].to_list() == [v for kind in kinds for v in kind.to_pylist()]


def test_a_column_that_some_messages_lack_is_null_there() -> None:
    x = Column.from_arrow(pa.array([1]))
    found = arrived(elements(x=x), elements(x=x, y=x))
    assert found.records.columns["y"].to_list() == [None, 1]


def test_elements_of_a_group_keep_their_order() -> None:
    keys = Column.from_arrow(pa.array([f"key {n % 7}" for n in range(100)]))
    whole = elements(k=keys)
    found = dict(whole.by_group(4, by_id=False))
    assert sum(map(len, found.values())) == 100
    for part in found.values():
        assert part.bundle.times.tolist() == sorted(part.bundle.times.tolist())
    assert [*whole.take(np.zeros(0, dtype=np.int64)).by_group(4, by_id=False)] == []
    ((group, part),) = whole.by_group(1, by_id=False)
    assert (group, part.bundle.times.tolist()) == (0, whole.bundle.times.tolist())


def test_the_id_or_the_key_places_an_element() -> None:
    keys, ids = (Column.from_arrow(pa.array([f"{of} {n}" for n in range(50)])) for of in "ki")
    whole = elements(k=keys)
    whole = Elements(whole.bundle, (ids,), whole.records)
    by_key = {group: one.bundle.times.tolist() for group, one in whole.by_group(4, by_id=False)}
    by_id = {group: one.bundle.times.tolist() for group, one in whole.by_group(4, by_id=True)}
    assert by_key != by_id
    for group, part in elements(k=ids).by_group(4, by_id=False):
        assert by_id[group] == part.bundle.times.tolist()


def test_what_is_told_besides_elements_arrives() -> None:
    observed = observed_table(
        np.array([5, 7], dtype=np.int64), {"p": Column.from_arrow(pa.array(["a", "b"]))}
    )
    told = Message(
        origin=-3, part=4, sequence=2, watermark=-(1 << 63), now=1 << 60, clock=9, ended=True,
        observed=observed,
    )  # fmt: skip
    found = Message.of_bytes(told.to_bytes())
    assert found == told
    assert (found.source, found.order) == (2, (4, 2))
    assert found.observed is not None
    times, records = observed_records([found.observed, joined_tables([found.observed])])
    assert times.tolist() == [5, 7, 5, 7]
    assert records.columns["p"].to_list() == ["a", "b", "a", "b"]
    plain = Message(origin=3, part=0)
    assert Message.of_bytes(plain.to_bytes()) == plain
    assert plain.source is None


@pytest.mark.parametrize("data", [b"", b"\1\0\0\0\xc1", b"\2\0\0\0\x91\1"])
def test_a_message_of_another_version_is_refused(data: bytes) -> None:
    with pytest.raises(StateError, match="between two levels") as caught:
        Message.of_bytes(data)
    assert "same version of lowwater" in (caught.value.hint or "")


def test_a_value_that_cannot_be_sent_is_named_by_its_column() -> None:
    records = Records({"thing": Column.of_objects([object()])}, 1)
    sent = Elements(Bundle(np.zeros(1, dtype=np.int64), (), {}), (), records)
    with pytest.raises(DataError, match=r"the column 'thing' cannot be sent to another task"):
        sent.to_table()


def read_by(*, kept: bool) -> Elements:
    """Return elements that were read: their times and keys are columns of their records.

    Args:
        kept: Whether all records are valid; otherwise a copy is made of those that are.
    """
    at = Column.from_arrow(pa.array([NOON, NOON + dt.timedelta(seconds=1)], MICROS_UTC))
    columns = {"v": Column.from_arrow(pa.array([7, 8])), "at": at}
    columns["k"] = Column.from_arrow(pa.array(["a", "b"]))
    records = Records(columns, 2)
    bundle = Bundle(at.data, (columns["k"],), {"v": columns["v"]})
    if not kept:
        every = np.arange(2)
        bundle, records = bundle.take(every), records.take(every)
    return Elements(bundle, (columns["k"],), records)


def test_what_is_one_column_is_sent_once() -> None:
    ((_, whole),) = read_by(kept=True).by_group(1, by_id=False)
    for sent in (whole, whole.take(np.array([0, 1])), arrived(whole)):
        assert sent.to_table().schema.names == ["time", "key:0", "value:v"]
    assert len(read_by(kept=False).to_table().schema.names) == 7


@pytest.mark.parametrize("others", [(), (True,), (False,), (False, True)])
def test_it_arrives_as_what_it_was(others: tuple[bool, ...]) -> None:
    """Also beside messages in which the same columns are not one: some records were invalid."""
    found = arrived(read_by(kept=True), *(read_by(kept=kept) for kept in others))
    apart = arrived(read_by(kept=False), *(read_by(kept=False) for _ in others))
    assert list(found.records.columns) == ["v", "at", "k"]
    assert found.records.rows() == apart.records.rows()
    assert found.records.columns["at"].type == apart.records.columns["at"].type
    assert found.bundle.times.tolist() == apart.bundle.times.tolist()
    assert found.bundle.values["v"].to_list() == apart.bundle.values["v"].to_list()
    for one, other in ((found.bundle.keys, apart.bundle.keys), (found.ids, apart.ids)):
        assert (one[0].to_list(), one[0].type) == (other[0].to_list(), other[0].type)
