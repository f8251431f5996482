"""XXH64 over columns: the published vectors, and a plain reference at every length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from lowwater.kernels import plain_xxh64
from lowwater.state.xxh64 import hash_bytes, hash_words

MASK = (1 << 64) - 1
P1, P2, P3, P4, P5 = (
    11400714785074694791,
    14029467366897019727,
    1609587929392839161,
    9650029242287828579,
    2870177450012600261,
)


def rotated(word: int, by: int) -> int:
    return ((word << by) | (word >> (64 - by))) & MASK


def rounded(lane: int, word: int) -> int:
    return rotated((lane + word * P2) & MASK, 31) * P1 & MASK


def xxh64(data: bytes, seed: int = 0) -> int:
    """The specification, byte after byte."""

    def word(size: int) -> int:
        return int.from_bytes(data[at : at + size], "little")

    at, size = 0, len(data)
    if size >= 32:
        lanes = [(seed + P1 + P2) & MASK, (seed + P2) & MASK, seed, (seed - P1) & MASK]
        while at + 32 <= size:
            for number in range(4):
                lanes[number] = rounded(lanes[number], word(8))
                at += 8
        turned = zip(lanes, (1, 7, 12, 18), strict=True)
        found = sum(rotated(lane, by) for lane, by in turned) & MASK
        for lane in lanes:
            found = ((found ^ rounded(0, lane)) * P1 + P4) & MASK
    else:
        found = (seed + P5) & MASK
    found = (found + size) & MASK
    while at + 8 <= size:
        found = (rotated(found ^ rounded(0, word(8)), 27) * P1 + P4) & MASK
        at += 8
    if at + 4 <= size:
        found = (rotated(found ^ (word(4) * P1 & MASK), 23) * P2 + P3) & MASK
        at += 4
    while at < size:
        found = rotated(found ^ (word(1) * P5 & MASK), 11) * P1 & MASK
        at += 1
    found = (found ^ (found >> 33)) * P2 & MASK
    found = (found ^ (found >> 29)) * P3 & MASK
    return found ^ (found >> 32)


def stretches(*pieces: bytes) -> tuple[bytes, NDArray[np.int64], NDArray[np.int64]]:
    lengths = np.array([len(piece) for piece in pieces], dtype=np.int64)
    return b"".join(pieces), np.cumsum(lengths) - lengths, lengths


PUBLISHED = {
    b"": 0xEF46DB3751D8E999,
    b"a": 0xD24EC4F1A98C6E5B,
    b"abc": 0x44BC2CF5AD770999,
    b"The quick brown fox jumps over the lazy dog": 0x0B242D361FDA71BC,
}


def test_published_vectors() -> None:
    assert hash_bytes(*stretches(*PUBLISHED)).tolist() == list(PUBLISHED.values())
    assert [xxh64(data) for data in PUBLISHED] == list(PUBLISHED.values())


@pytest.mark.parametrize("seed", [0, 7, MASK])
def test_every_length_in_blocks_of_many(seed: int) -> None:
    noise = np.random.default_rng(1).bytes(200 * 100)
    pieces = [noise[at * 97 : at * 97 + at] for at in range(200)] * 50  # more than one block
    expected = [xxh64(piece, seed) for piece in pieces[:200]] * 50
    assert hash_bytes(*stretches(*pieces), seed).tolist() == expected


@given(st.lists(st.binary(max_size=80), max_size=8), st.integers(0, MASK))
def test_any_bytes(pieces: list[bytes], seed: int) -> None:
    assert hash_bytes(*stretches(*pieces), seed).tolist() == [xxh64(p, seed) for p in pieces]


def test_stretches_may_lie_anywhere_in_the_buffer() -> None:
    starts = np.array([3, 0, 4, 1], dtype=np.int64)
    lengths = np.array([5, 8, 4, 0], dtype=np.int64)
    expected = [xxh64(b"defgh"), xxh64(b"abcdefgh"), xxh64(b"efgh"), xxh64(b"")]
    assert hash_bytes(b"abcdefgh", starts, lengths).tolist() == expected


def test_nothing() -> None:
    none = np.empty(0, dtype=np.int64)
    assert hash_bytes(None, none, none).tolist() == []
    assert hash_words([np.empty(0, dtype=np.uint64)]).tolist() == []


@given(st.integers(1, 10), st.integers(0, MASK))
def test_words_are_their_little_endian_bytes(width: int, seed: int) -> None:
    rng = np.random.default_rng(width + seed % 1000)
    words = [rng.integers(0, MASK, 5, dtype=np.uint64, endpoint=True) for _ in range(width)]
    rows = zip(*(column.tolist() for column in words), strict=True)
    expected = [xxh64(b"".join(word.to_bytes(8, "little") for word in row), seed) for row in rows]
    assert hash_words(words, seed).tolist() == expected


@pytest.mark.parametrize(
    ("rows", "longest"),
    [
        *(
            (rows, longest)
            for rows in (1, 3, 12, 13, 30)
            for longest in (32 * 8 - 1, 32 * 9, 1_007)
        ),
        (3, 10_007),
        (1, 32 * (1 << 14) + 5),
    ],
)
def test_a_few_long_texts_among_others(rows: int, longest: int, monkeypatch: Any) -> None:
    """They are finished row by row, past each chunk, and equal what is done for all at once."""
    lengths = np.array([longest - 97 * row for row in range(rows)] + [0, 5, 40, 200] * 3)
    lengths = np.maximum(lengths, 0).astype(np.int64)
    starts = np.cumsum(lengths) - lengths
    data = np.random.default_rng(5).bytes(int(lengths.sum()))
    text = np.frombuffer(data, dtype=np.uint8)
    found = plain_xxh64.hash_bytes(text, starts, lengths, 11).tolist()
    some = [0, rows - 1, -1]
    pieces = [data[starts[at] : starts[at] + lengths[at]] for at in some]
    assert [found[at] for at in some] == [xxh64(piece, 11) for piece in pieces]
    if longest < 100_000:
        monkeypatch.setattr(plain_xxh64, "_FEW", 0)
        assert plain_xxh64.hash_bytes(text, starts, lengths, 11).tolist() == found
