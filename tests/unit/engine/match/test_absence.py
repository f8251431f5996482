"""``lw.absent``: what must not come after a match."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

import lowwater as lw

PAID = lw.col("kind") == "paid"


def test_it_is_a_value() -> None:
    value = lw.absent(PAID, within="30m")
    assert isinstance(value, lw.Absent)
    assert value.within_us == 1_800_000_000
    assert repr(value) == "absent(col(kind).__eq__(paid), within='30m')"
    assert value == lw.absent(lw.col("kind") == "paid", timedelta(minutes=30))
    assert hash(value) == hash(lw.absent(PAID, "1800s"))
    assert value != lw.absent(PAID, within="31m")
    assert value != lw.absent(lw.col("kind") == "sent", within="30m")
    assert lw.absent(lw.col("n") == 1, "1s") != lw.absent(lw.col("n") == "1", "1s")
    assert value.condition is PAID


def test_none_at_the_same_time_is_a_wait_of_zero() -> None:
    assert lw.absent(PAID, within="0s").within_us == 0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: lw.absent(None, "1m"), "condition=None .* not an expression"),  # type: ignore[arg-type]
        (lambda: lw.absent("paid", "1m"), "condition='paid' .* not an expression .* lw.absent"),  # type: ignore[arg-type]
        (lambda: lw.absent(lw.col("a", "b") > 1, "1m"), "several columns"),
        (lambda: lw.absent(lw.col("a") > lw.col("a").mean(), "1m"), "other records"),
        (lambda: lw.absent(PAID, "-1m"), "within='-1m' .* below zero .* lw.absent"),
        (lambda: lw.absent(PAID, "soon"), "within='soon'"),
        (lambda: lw.absent(PAID), "'within' is missing"),  # type: ignore[call-arg]
        (lambda: lw.absent(where=PAID, within="1m"), "Did you mean 'condition'"),  # type: ignore[call-arg]
    ],
)
def test_mistakes(make: Callable[[], object], words: str) -> None:
    with pytest.raises(lw.InvalidArgument, match=words):
        make()
