"""Deliveries as bytes: what comes back is equal, and anything else is refused."""

from __future__ import annotations

import datetime as dt
import struct
import zlib
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.local import outbox
from lowwater.engine.local.delivery import Delivery
from lowwater.engine.local.outbox import decode_delivery, encode_delivery
from lowwater.engine.records.pane_table import JSON, MSGPACK, encoding_of, tag, to_values
from lowwater.errors import DataError, InvalidArgument, StateError
from lowwater.io.sinks import Callback, errors_to_table, late_to_table
from tests.unit.io.deliveries import (
    WRITER,
    Whatever,
    deliver_all,
    empty,
    of_items,
    sessions,
    with_everything,
)

FULL = with_everything(7, 3)
BYTES = encode_delivery(FULL)
SUM_AT = 48


def with_sum(data: bytes) -> bytes:
    """Return the bytes with the right checksum, as damage that it cannot see would have."""
    head, body = data[:SUM_AT], data[SUM_AT + 4 :]
    return head + struct.pack("<I", zlib.crc32(body, zlib.crc32(head))) + body


def read(data: bytes) -> Delivery | None:
    """Return the delivery, or nothing if it is refused in the one way there is."""
    try:
        return decode_delivery(data)
    except StateError:
        return None


def test_there_and_back() -> None:
    for delivery in (FULL, empty(0), Delivery(1, 0, 2, FULL.panes, None, FULL.errors)):
        back = decode_delivery(encode_delivery(delivery))
        assert back == delivery
        assert encode_delivery(back) == encode_delivery(delivery)
    assert decode_delivery(memoryview(BYTES).tobytes()).keys == ("k",)


def test_sessions_there_and_back() -> None:
    deliveries, _ = sessions(1)
    assert len(deliveries) > 5
    for delivery in deliveries:
        assert decode_delivery(encode_delivery(delivery)) == delivery


def test_bytes_depend_on_content_alone() -> None:
    parts = [FULL.panes.slice(at, 3) for at in range(0, FULL.panes.num_rows, 3)]
    same = Delivery(7, 0, 3, pa.concat_tables(parts), FULL.late, FULL.errors)
    assert encode_delivery(same) == BYTES


def test_bytes_are_the_same_however_columns_are_compressed(monkeypatch: pytest.MonkeyPatch) -> None:
    large = Delivery(7, 0, 3, pa.concat_tables([FULL.panes] * 500), FULL.late, FULL.errors)
    at_once = encode_delivery(large)
    for bytes_ in (0, 1 << 40):
        monkeypatch.setattr(outbox, "_MUCH", bytes_)
        assert encode_delivery(large) == at_once
        assert encode_delivery(FULL) == BYTES


def test_layout() -> None:
    """Version 2, fixed for ever: whoever changes it raises the version."""
    magic, version, parts, *numbers = struct.unpack_from("<4sHHQIIQQQ", BYTES)
    (epoch, output, piece), lengths = numbers[:3], numbers[3:]
    assert (magic, version, parts, epoch, output, piece) == (b"LWOB", 2, 3, 7, 0, 3)
    assert len(BYTES) == SUM_AT + 4 + sum(lengths)
    assert with_sum(BYTES) == BYTES


def test_a_slice_does_not_bring_its_table_along() -> None:
    wide = pa.concat_tables([FULL.panes] * 1_000)
    assert len(encode_delivery(Delivery(1, 0, 0, wide.slice(0, 3)))) < 10_000


def test_the_bounds_of_values_are_checked() -> None:
    """Arrow reads a stream whose texts end beyond their bytes, and would read on there."""
    ends = pa.py_buffer(np.array([0, 1, 900], dtype=np.int32))
    texts = pa.Array.from_buffers(pa.string(), 2, [None, ends, pa.py_buffer(b"ab" * 500)])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("k", pa.string())])) as stream:
        stream.write_table(pa.table({"k": texts}))
    stream_of_it = sink.getvalue().to_pybytes()
    beyond = stream_of_it.replace(struct.pack("<i", 900), struct.pack("<i", 90_000))
    assert beyond != stream_of_it
    outbox._table(memoryview(stream_of_it))
    with pytest.raises(StateError, match="damaged"):
        outbox._table(memoryview(beyond))


@given(st.binary(max_size=200))
def test_random_bytes(data: bytes) -> None:
    with pytest.raises(StateError, match="damaged"):
        decode_delivery(data)


@given(st.data())
def test_mutations(data: st.DataObject) -> None:
    """Whatever is changed, cut off, put in or swapped: it is refused, or nothing was changed."""
    changed = data.draw(mutated(BYTES))
    back = read(changed)
    assert back is None or (changed == BYTES and back == FULL)


@given(st.data())
def test_mutations_that_the_checksum_does_not_see(data: st.DataObject) -> None:
    """What comes back is sound through and through, or it is refused."""
    changed = data.draw(mutated(BYTES))
    if len(changed) < SUM_AT + 4:
        return
    back = read(with_sum(changed))
    if back is not None:
        for table in (back.panes, back.late, back.errors):
            assert table is None or table.validate(full=True) is None
        assert 0 <= back.epoch < 2**63


@st.composite
def mutated(draw: st.DrawFn, original: bytes) -> bytes:
    data = bytearray(original)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data) - 1)) if data else 0
        match draw(st.sampled_from(["flip", "set", "cut", "drop", "insert", "copy"])):
            case "flip" if data:
                data[at] ^= 1 << draw(st.integers(0, 7))
            case "set" if data:
                data[at] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
            case "cut":
                del data[at:]
            case "drop":
                del data[at : at + draw(st.integers(1, 16))]
            case "insert":
                data[at:at] = draw(st.binary(max_size=16))
            case "copy":
                size = draw(st.integers(1, 64))
                to = draw(st.integers(0, max(0, len(data) - 1)))
                data[to : to + size] = data[at : at + size]
    return bytes(data)


def test_every_byte_counts() -> None:
    for at in range(len(BYTES)):
        changed = bytearray(BYTES)
        changed[at] ^= 0x10
        with pytest.raises(StateError):
            decode_delivery(bytes(changed))


def test_cut_short_anywhere() -> None:
    for size in [*range(SUM_AT + 5), len(BYTES) - 1]:
        with pytest.raises(StateError, match="an undelivered output is damaged"):
            decode_delivery(BYTES[:size])


@pytest.mark.parametrize("parts", [0, 1, 2, 4, 7])
def test_parts_that_the_header_does_not_name(parts: int) -> None:
    """Late elements or dead letters are there, and are not passed over."""
    changed = with_sum(BYTES[:6] + struct.pack("<H", parts) + BYTES[8:])
    with pytest.raises(StateError, match="its header contradicts itself"):
        decode_delivery(changed)


def test_a_later_layout() -> None:
    later = with_sum(BYTES[:4] + struct.pack("<H", 3) + BYTES[6:])
    with pytest.raises(StateError, match=r"layout 3, and 2 is known.*Use the version"):
        decode_delivery(later)


def test_tables_that_are_not_panes() -> None:
    stream = pa.BufferOutputStream()
    table = pa.table({"a": [1]})
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    body = stream.getvalue().to_pybytes()
    head = struct.pack("<4sHHQIIQQQ", b"LWOB", 2, 0, 1, 0, 0, len(body), 0, 0)
    with pytest.raises(StateError, match="panes lack the column 'window_start'"):
        decode_delivery(with_sum(head + b"\0\0\0\0" + body))


@pytest.mark.parametrize(
    ("epoch", "output", "piece"),
    [
        (-1, 0, 0),
        (0, 0, -1),
        (10**12, 0, 0),
        (0, 0, 10**6),
        (0, -1, 0),
        (0, 1000, 0),
        (True, 0, 0),
        (1.0, 0, 0),
    ],
)
def test_numbers_out_of_range(epoch: Any, output: Any, piece: Any) -> None:
    with pytest.raises(InvalidArgument, match="must be an int from 0"):
        Delivery(epoch, output, piece, FULL.panes)


def test_not_panes() -> None:
    wrong: Any = [1]
    with pytest.raises(InvalidArgument, match="is not an Arrow table"):
        Delivery(0, 0, 0, wrong)
    with pytest.raises(InvalidArgument, match="lack the column 'kind'"):
        Delivery(0, 0, 0, FULL.panes.drop_columns(["kind"]))
    with pytest.raises(InvalidArgument, match="the same name"):
        Delivery(0, 0, 0, FULL.panes.append_column("k", FULL.panes["k"]))


def test_ids_sort_as_deliveries_come() -> None:
    numbers = [(0, 0), (0, 9), (0, 10), (9, 0), (10, 0), (10**12 - 1, 999_999)]
    ids = [Delivery(epoch, 2, piece, FULL.panes).id for epoch, piece in numbers]
    assert ids == sorted(ids)
    assert FULL.id == "000000000007-000-000003"


@dataclass
class Spread:
    """What a user's combiner may give."""

    low: int
    high: float


@pytest.mark.parametrize(
    ("given_", "back"),
    [
        ((1, "a"), [1, "a"]),
        ((Spread(1, 2.5), Spread(3, 4.0)), [{"low": 1, "high": 2.5}, {"low": 3, "high": 4.0}]),
        (([1, "a", None, 2.5], {"a": [b"x"]}), [[1, "a", None, 2.5], {"a": [b"x"]}]),
        ((np.float64(1.5), [np.arange(2)]), [1.5, [[0, 1]]]),
        ((Decimal("1.50"), "x"), ["1.50", "x"]),
        (
            (dt.datetime(2020, 1, 1, tzinfo=dt.UTC), 1),
            [dt.datetime(2020, 1, 1, tzinfo=dt.UTC), 1],
        ),
    ],
)
def test_values_that_arrow_lacks(given_: tuple[Any, ...], back: list[Any]) -> None:
    """They are msgpack in the outbox, and the field says so."""
    items = [{"t": i * 60_000_000, "k": "a", "v": i} for i in range(len(given_))]
    panes = of_items(items, {"odd": lw.combine(Whatever(*given_), "v")})
    decoded = decode_delivery(encode_delivery(Delivery(1, 0, 0, panes))).panes
    field = decoded.schema.field("odd")
    assert encoding_of(field) == MSGPACK
    assert to_values(field, decoded["odd"]) == back


@pytest.mark.parametrize("value", [object(), 1j, lambda: None, 2**70])
def test_values_that_cannot_be_written_down(value: Any) -> None:
    items = [{"t": i * 60_000_000, "k": "a", "v": i} for i in range(2)]
    says = r"the column 'odd' holds a .*that cannot be encoded.*Return or emit numbers"
    with pytest.raises(DataError, match=says):
        of_items(items, {"odd": lw.combine(Whatever("x", value), "v")})


def test_half_a_surrogate_pair() -> None:
    """Text that UTF-8 cannot hold comes out as an escape, as in a table in memory."""
    items = [{"t": 0, "k": "a", "v": 0}]
    panes = of_items(items, {"odd": lw.combine(Whatever("a\udc80"), "v")})
    assert panes["odd"].to_pylist() == ["a\\udc80"]
    late = lw.LateRecord("\udc80", lw.Instant(0), "k", None, lw.Instant(1), "unwindowed")
    assert late_to_table([late])["record"].to_pylist() == ['"\\udc80"']
    error = lw.ErrorRecord({"\udc80": 1}, "reason", "the \udc80", None)
    table = errors_to_table([error])
    assert table["detail"].to_pylist() == ["the \\udc80"]
    assert to_values(table.schema.field("record"), table["record"]) == [{"\udc80": 1}]


@pytest.mark.parametrize(
    ("encoding", "data", "says"),
    [
        (MSGPACK, b"\xc1", "not valid msgpack"),
        (MSGPACK, b"", "not valid msgpack"),
        (JSON, b"{", "not valid json"),
        (b"pickle", b"cos\nsystem\n(S'true'\ntR.", "has the unknown encoding"),
    ],
)
def test_damaged_values(encoding: bytes, data: bytes, says: str) -> None:
    field = tag(pa.field("odd", pa.binary()), encoding)
    with pytest.raises(DataError, match=says):
        to_values(field, pa.chunked_array([pa.array([data])]))


def test_nanoseconds_are_cut() -> None:
    for of in (pa.timestamp("ns", "UTC"), pa.duration("ns"), pa.time64("ns")):
        column = pa.chunked_array([pa.array([1_500], pa.int64()).cast(of), pa.array([None], of)])
        (value, null) = to_values(pa.field("n", of), column)
        assert value.microsecond == 1 if hasattr(value, "microsecond") else value.microseconds == 1
        assert null is None


def test_a_callback_is_told_the_id() -> None:
    seen: list[Delivery] = []
    deliver_all(Callback(seen.append), [FULL, FULL])
    assert [one.id for one in seen] == [FULL.id] * 2
    assert seen[0] is FULL


def test_what_a_callback_raises_comes_out() -> None:
    def refuse(delivery: Delivery) -> None:
        raise KeyError(delivery.id)

    sink = Callback(refuse)
    sink.open(WRITER)
    with pytest.raises(KeyError, match=FULL.id):
        sink.deliver(FULL)
    sink.close(complete=True)


def test_a_callback_must_be_callable() -> None:
    wrong: Any = "print"
    with pytest.raises(InvalidArgument, match="cannot be called"):
        Callback(wrong)
