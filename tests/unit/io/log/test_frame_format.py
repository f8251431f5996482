"""Frames of a log: what was written comes back, and nothing else is ever taken for it."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater.io.log.frame_format import (
    HEADER_BYTES,
    LONGEST_PAYLOAD,
    Damaged,
    Header,
    Kind,
    decode_header,
    decode_records,
    decode_schema,
    encode_header,
    encode_payload,
    is_sound,
)
from lowwater.io.log.segment_files import Frame, SegmentReader

BATCH = pa.record_batch({"k": ["a", None, "ccc"], "v": [1, 2, None], "l": [[1], [], None]})


def frame(batch: pa.RecordBatch = BATCH, offset: int = 7, time: int = -5) -> bytes:
    payload = encode_payload(batch)
    header = encode_header(Kind.RECORDS, offset, time, batch.num_rows, payload)
    return header + payload.to_pybytes()


def test_the_layout_of_a_header_is_fixed() -> None:
    payload = bytes(range(8))
    header = encode_header(Kind.RECORDS, 0x0102, -2, 3, payload)
    assert len(header) == HEADER_BYTES
    assert header[:32].hex() == (
        "4c574c47"  # magic
        "0100"  # layout
        "0100"  # records
        "0201000000000000"  # offset
        "feffffffffffffff"  # time
        "03000000"  # count
        "08000000"  # length
    )
    assert struct.unpack("<II", header[32:]) == (
        zlib.crc32(header[:32]),
        zlib.crc32(header[:36] + payload),
    )


@given(st.integers(0, 2**62), st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**32 - 1))
def test_a_header_comes_back(offset: int, time: int, count: int) -> None:
    data = encode_header(Kind.RECORDS, offset, time, count, bytes(16))
    header = decode_header(data)
    assert header == Header(Kind.RECORDS, offset, time, count, 16, header.checksum if header else 0)
    assert header.next_offset == offset + count
    assert is_sound(header, data + bytes(16))
    assert not is_sound(header, data + bytes(15) + b"x")


@given(st.data())
def test_a_flipped_bit_is_found(data: st.DataObject) -> None:
    whole = bytearray(frame())
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= 1 << data.draw(st.integers(0, 7))
    header = decode_header(bytes(whole[:HEADER_BYTES]))
    assert header is None or not is_sound(header, bytes(whole))
    assert (header is None) == (at < 36)  # the header's own checksum covers the rest of it


@given(st.binary(min_size=HEADER_BYTES, max_size=200))
def test_random_bytes_are_no_frame(data: bytes) -> None:
    assert decode_header(data) is None


@given(
    st.binary(min_size=4, max_size=4) | st.just(b"LWLG"),
    st.integers(0, 3),
    st.integers(0, 3),
    st.sampled_from([0, 1, 2**63 - 1, 2**63, 2**64 - 1]),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0, 1, 8, LONGEST_PAYLOAD, 2**32 - 1]),
    st.binary(max_size=64),
)
def test_headers_with_a_right_checksum_and_wrong_content(
    tmp_path_factory: pytest.TempPathFactory,
    magic: bytes,
    layout: int,
    kind: int,
    offset: int,
    count: int,
    length: int,
    payload: bytes,
) -> None:
    plain = struct.pack("<4sHHQqII", magic, layout, kind, offset, 0, count, length)
    plain += struct.pack("<I", zlib.crc32(plain))
    data = plain + struct.pack("<I", zlib.crc32(plain + payload)) + payload
    header = decode_header(data)
    if header is not None:
        assert (magic, layout) == (b"LWLG", 1)
        assert header.next_offset < 2**63
    path = tmp_path_factory.getbasetemp() / "random.segment"
    path.write_bytes(data)
    found = read_all(path)  # a length of 4 GiB takes no memory
    assert all(one.header.length <= len(payload) for one in found)


@given(st.binary(max_size=2000))
def test_random_files_give_no_frames(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "random.segment"
    path.write_bytes(data)
    assert read_all(path) == []


@given(st.binary(max_size=400))
def test_random_payloads_are_refused(data: bytes) -> None:
    with pytest.raises(Damaged):
        decode_records(data, BATCH.schema, 3)
    with pytest.raises(Damaged):
        decode_schema(data)


@given(st.data())
def test_damaged_payloads_whose_checksum_was_made_right(data: st.DataObject) -> None:
    """No crash and no read outside of the payload, whatever it says of itself."""
    payload = bytearray(encode_payload(BATCH).to_pybytes())
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        batch = decode_records(bytes(payload), BATCH.schema, 3)
    except Damaged:
        return
    assert batch.num_rows == len(batch.to_pylist()) == 3
    assert batch.schema == BATCH.schema


@given(st.data())
def test_damaged_schemas_whose_checksum_was_made_right(data: st.DataObject) -> None:
    payload = bytearray(encode_payload(BATCH.schema).to_pybytes())
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        schema = decode_schema(bytes(payload))
    except Damaged:
        return
    assert isinstance(str(schema.names), str)


def test_a_count_that_is_not_the_records() -> None:
    with pytest.raises(Damaged, match="3 records instead of 4"):
        decode_records(encode_payload(BATCH), BATCH.schema, 4)


def read_all(path: Path) -> list[Frame]:
    reader = SegmentReader(path)
    try:
        found: list[Frame] = []
        while isinstance(one := reader.next(), Frame):
            found.append(one)
        reader.more_behind(one)
        reader.position = 0
        list(reader.headers())
        return found
    finally:
        reader.close()
