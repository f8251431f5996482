"""The kernels of sets of record ids: both kinds give what a plain reference gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from lowwater.kernels import Kernels, plain
from tests.kernels import KINDS

SEEDS = st.integers(0, 2**32 - 1)
MASK = (1 << 64) - 1


def drawn(random: np.random.Generator, size: int, kind: str) -> NDArray[np.uint64]:
    """Return hashes: spread evenly, with repetitions, all close together, or sorted."""
    if kind == "few":
        return random.integers(0, MASK, 7, dtype=np.uint64)[random.integers(0, 7, size)]
    if kind == "close":
        return random.integers(MASK - 3 * size, MASK, size, dtype=np.uint64, endpoint=True)
    hashes = random.integers(0, MASK, size, dtype=np.uint64, endpoint=True)
    return np.sort(hashes) if kind == "sorted" else hashes


HASHES = st.tuples(
    SEEDS,
    st.sampled_from([1, 2, 3, 63, 64, 65, 1000]),
    st.sampled_from(["even", "few", "close", "sorted"]),
)


@given(st.lists(st.binary(max_size=80), max_size=8), st.integers(0, MASK))
def test_hashing_bytes(pieces: list[bytes], seed: int) -> None:
    lengths = np.array([len(piece) for piece in pieces], dtype=np.int64)
    starts = np.cumsum(lengths) - lengths
    data = np.frombuffer(b"".join(pieces), dtype=np.uint8)
    one, other = (kind.hash_bytes(data, starts, lengths, seed).tolist() for kind in KINDS)
    assert one == other


@pytest.mark.parametrize("kind", KINDS, ids=["plain", "compiled"])
def test_hashing_strided_columns_and_none(kind: Kernels) -> None:
    data = np.frombuffer(b"abcdefgh" * 9, dtype=np.uint8)
    starts, lengths = np.arange(12), np.arange(30, 42)
    wanted = plain.hash_bytes(data, starts[::2].copy(), lengths[::2].copy(), 7)
    assert kind.hash_bytes(data, starts[::2], lengths[::2], 7).tolist() == wanted.tolist()
    assert kind.hash_bytes(data[:0], starts[:0], lengths[:0], 7).tolist() == []


@given(HASHES)
def test_sorting_hashes_is_stable(of: tuple[int, int, str]) -> None:
    seed, size, how = of
    hashes = drawn(np.random.default_rng(seed), size, how)
    wanted = sorted(range(size), key=hashes.tolist().__getitem__)
    for kind in KINDS:
        ordered, order = kind.sort_hashes(hashes)
        assert order.tolist() == wanted
        assert ordered.tolist() == sorted(hashes.tolist())
        assert (
            kind.sort_hashes(hashes[::2])[1].tolist() == plain.sort_hashes(hashes[::2])[1].tolist()
        )
        assert kind.sort_hashes(hashes[:0])[1].tolist() == []


def bits(hashed: int, words: int) -> tuple[int, int]:
    """Return the word of a filter that a hash has its bits in, and the bits."""
    mask = 0
    for number in range(5):
        mask |= 1 << (hashed >> 6 * number & 63)
    return (hashed >> 32) * words >> 32, mask


@given(HASHES, st.sampled_from([1, 2, 61, 4096]))
def test_filters(of: tuple[int, int, str], words: int) -> None:
    seed, size, how = of
    random = np.random.default_rng(seed)
    hashes, others = drawn(random, size, how), drawn(random, size, "even")
    wanted = [0] * words
    for hashed in hashes.tolist():
        word, mask = bits(hashed, words)
        wanted[word] |= mask
    for kind in KINDS:
        held = np.zeros(words, dtype=np.uint64)
        kind.add_to_filter(held, hashes)
        assert held.tolist() == wanted
        assert kind.may_be_in_filter(held, hashes).all()
        passed = []
        for hashed in others.tolist():
            word, mask = bits(hashed, words)
            passed.append(wanted[word] & mask == mask)
        found = kind.may_be_in_filter(held, others)
        assert found.dtype == np.bool_
        assert found.tolist() == passed
