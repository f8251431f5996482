"""Reading damaged bytes raises a documented error or returns a value, and does nothing else.

``make fuzz`` runs these with many more examples, and with atheris.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater.engine.local.outbox import decode_delivery, encode_delivery
from lowwater.errors import StateError
from lowwater.state.codec import decode, encode
from tests.examples import examples
from tests.property.decoders import MAKERS, REFUSALS, Decoder, decoder_named, mutated

EXAMPLES = examples(0.4)
_SECONDS = 20


@contextmanager
def in_time() -> Iterator[None]:
    """Raise if something hangs."""

    def stop(*_: object) -> None:
        raise AssertionError(f"it took more than {_SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def refuse_or_return(decoder: Decoder, sample: int, data: bytes) -> None:
    with in_time():
        try:
            decoder.check(sample, data)
        except REFUSALS:
            pass


@pytest.fixture(params=MAKERS)
def decoder(request: pytest.FixtureRequest) -> Decoder:
    return decoder_named(request.param)


def test_samples_are_read(decoder: Decoder) -> None:
    least = 2 if decoder.one_store else len(decoder.samples)  # a key and a value
    for sample, data in enumerate(decoder.samples[:least]):
        decoder.check(sample, data)


@pytest.mark.parametrize("name", MAKERS)
@EXAMPLES
@given(data=st.data())
def test_mutated_bytes(name: str, data: st.DataObject) -> None:
    decoder = decoder_named(name)
    sample = data.draw(st.integers(0, len(decoder.samples) - 1))
    seed = data.draw(st.integers(0, 2**64 - 1))
    changed = mutated(decoder.samples[sample], np.random.default_rng(seed))
    refuse_or_return(decoder, sample, changed)


@pytest.mark.parametrize("name", MAKERS)
@EXAMPLES
@given(data=st.data())
def test_random_bytes(name: str, data: st.DataObject) -> None:
    decoder = decoder_named(name)
    sample = data.draw(st.integers(0, len(decoder.samples) - 1))
    changed = data.draw(st.binary(max_size=200))
    refuse_or_return(decoder, sample, changed)


@pytest.mark.parametrize("kind", ["list", "tuple", "dict"])
def test_what_can_be_written_can_be_read(kind: str) -> None:
    """However deep a value is: else it would be lost at the next start."""
    value: Any = 10**5_000
    for depth in range(1, 1_500):
        value = [value] if kind == "list" else (value,) if kind == "tuple" else {"a": value}
        if depth % 20 and depth not in range(95, 105):
            continue
        try:
            written = encode(value)
        except StateError as error:
            assert "deep" in str(error)  # noqa: PT017
            assert depth > 100
        else:
            assert decode(written) == value
            assert depth <= 100


def test_values_that_no_writer_makes() -> None:
    """Each extension around values of all kinds."""
    held: list[Any] = [
        None, True, 1, 2**63, 1.5, float("nan"), float("inf"), "x", "9" * 6_000, "1e99999999999",
        "sNaN", b"a", [], [1], [[1, 2]], [None] * 8, {"a": 1}, [1, 2, 3], [10**9, 0, 0], [["a"]],
    ]  # fmt: skip
    for code in range(-1, 20):
        for value in held:
            extension = msgspec.msgpack.Ext(code, msgspec.msgpack.encode(value))
            try:
                decode(msgspec.msgpack.encode(extension))
            except StateError:
                pass


@given(st.integers(0, 2**64 - 1))
def test_a_delivery_that_was_changed_is_never_taken_for_another(seed: int) -> None:
    """Its checksum sees to that."""
    (sample, *_) = decoder_named("deliveries").samples
    try:
        found = decode_delivery(mutated(sample, np.random.default_rng(seed)))
    except StateError:
        return
    assert encode_delivery(found) == sample
