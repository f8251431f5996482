"""The oracles of joins, by small examples that one can follow."""

from __future__ import annotations

import pytest

from tests.oracles.as_of import AsOfOracle, batch_join_as_of
from tests.oracles.joins import (
    JoinElement,
    JoinKind,
    JoinOracle,
    JoinOutput,
    Unmatched,
    batch_join,
)


def row(time: int, value: str, sign: int = 1, order: int | None = None) -> JoinElement:
    return JoinElement("k", time, value, sign, order)


def out(time: int, left: str | None, right: str | None, sign: int = 1) -> JoinOutput:
    return JoinOutput("k", time, left, right, sign)


def test_a_pair_has_the_later_time_and_both_ends_of_the_interval_belong_to_it() -> None:
    #   l      |----- 0 to 5 -----|
    #   r    9 10                15 16
    oracle = JoinOracle("inner", 0, 5)
    assert oracle.take("right", [row(9, "a"), row(15, "b"), row(16, "c")]) == []
    assert oracle.take("left", [row(10, "l")]) == [out(15, "l", "b")]
    assert oracle.take("right", [row(10, "d")]) == [out(10, "l", "d")]
    assert oracle.rows == 5


@pytest.mark.parametrize(("unmatched", "due"), [("early", 0), ("on_time", 16), ("final", 19)])
def test_when_a_null_row_comes(unmatched: Unmatched, due: int) -> None:
    """J-4: its horizon is 10 + 5, its release 3 later."""
    oracle = JoinOracle("left", -1, 5, unmatched=unmatched, lateness=3)
    came = {0: oracle.take("left", [row(10, "l")])}
    for watermark in range(11, 21):
        assert oracle.rows == (watermark <= 19)
        came[watermark] = oracle.advance(watermark)
        assert oracle.output_watermark == (10 if watermark < 19 else watermark)
    assert {at: outputs for at, outputs in came.items() if outputs} == {due: [out(10, "l", None)]}


def test_a_late_match_retracts_the_null_row() -> None:
    oracle = JoinOracle("outer", 0, 5, unmatched="on_time", lateness=10)
    oracle.take("left", [row(10, "l")])
    assert oracle.advance(16) == [out(10, "l", None)]
    assert oracle.take("right", [row(12, "r")]) == [out(12, "l", "r"), out(10, "l", None, -1)]
    # A late row on its own, past its horizon, gets its null row with its bundle.
    assert oracle.take("right", [row(6, "s")]) == [out(6, None, "s")]
    assert oracle.take("right", [row(5, "t")]) == []
    assert oracle.late == [("right", row(5, "t"))]


def test_a_retraction_brings_the_null_rows_of_its_partners_back() -> None:
    oracle = JoinOracle("left", 0, 5, unmatched="early", signed=True)
    assert oracle.take("left", [row(10, "l")]) == [out(10, "l", None)]
    assert oracle.take("right", [row(12, "r")]) == [out(12, "l", "r"), out(10, "l", None, -1)]
    assert oracle.take("right", [row(12, "r", -1)]) == [out(12, "l", "r", -1), out(10, "l", None)]
    assert oracle.take("left", [row(10, "l", -1)]) == [out(10, "l", None, -1)]
    assert oracle.rows == 0


@pytest.mark.parametrize(("how", "outputs"), [("semi", [out(10, "l", None)]), ("anti", [])])
def test_a_match_decides_semi_and_anti_joins(how: JoinKind, outputs: list[JoinOutput]) -> None:
    """J-4, J-6: in unsigned output, the first match releases the hold."""
    oracle = JoinOracle(how, 0, 5)
    assert oracle.take("left", [row(10, "l")]) == []
    assert oracle.advance(12) == []
    assert oracle.output_watermark == 10
    assert oracle.take("right", [row(12, "r")]) == outputs
    assert oracle.output_watermark == 12
    assert oracle.take("right", [row(13, "s")]) == []
    assert oracle.end() == []
    assert oracle.rows == 0


def test_signed_semi_joins_retract() -> None:
    oracle = JoinOracle("semi", 0, 5, signed=True)
    oracle.take("right", [row(12, "r")])
    assert oracle.take("left", [row(10, "l")]) == [out(10, "l", None)]
    assert oracle.take("right", [row(12, "r", -1)]) == [out(10, "l", None, -1)]
    assert oracle.take("right", [row(13, "s"), row(13, "s", -1)]) == []


def test_a_retraction_below_the_lateness_is_late_though_its_row_remains() -> None:
    oracle = JoinOracle("left", 0, 5, signed=True)
    oracle.take("left", [row(10, "l")])
    oracle.advance(11)
    assert oracle.take("left", [row(10, "l", -1)]) == []
    assert oracle.late == [("left", row(10, "l", -1))]
    assert oracle.end() == [out(10, "l", None)]
    with pytest.raises(AssertionError, match="no left row"):
        JoinOracle("left", 0, 5, signed=True).take("left", [row(10, "l", -1)])


def test_batch_joins_count_equal_rows() -> None:
    lefts, rights = [row(1, "l"), row(1, "l"), row(9, "m")], [row(2, "r"), row(2, "r"), row(5, "s")]
    rights += [row(5, "s", -1)]
    assert batch_join(lefts, rights, "outer", 0, 5) == {
        ("k", 2, "l", "r"): 4,
        ("k", 9, "m", None): 1,
    }
    assert batch_join(lefts, rights, "semi", 0, 5) == {("k", 1, "l", None): 2}
    assert batch_join(rights, lefts, "right", -5, -1) == {
        ("k", 2, "r", "l"): 4,
        ("k", 9, None, "m"): 1,
    }


def test_a_fact_waits_until_the_versions_watermark_passes_its_time() -> None:
    oracle = AsOfOracle("left")
    assert oracle.take("facts", [row(10, "f")]) == []
    assert oracle.advance(5, 10) == []
    assert oracle.take("versions", [row(10, "v")]) == []
    assert oracle.advance(5, 11) == [out(10, "f", "v")]
    assert oracle.take("facts", [row(9, "g")]) == [out(9, "g", None)]
    assert (oracle.rows, oracle.output_watermark) == (1, 5)


def test_the_order_decides_at_one_time_and_then_the_arrival() -> None:
    versions = [row(5, "a", order=2), row(5, "b", order=2), row(5, "c", order=1)]
    oracle = AsOfOracle("inner")
    oracle.take("versions", versions)
    oracle.take("facts", [row(5, "f"), row(4, "g")])
    assert oracle.end() == [out(5, "f", "b")]
    facts = [row(5, "f"), row(4, "g")]
    assert batch_join_as_of(facts, versions, "inner") == {("k", 5, "f", "b"): 1}
    assert batch_join_as_of([row(9, "f")], versions, "inner", 4) == {("k", 9, "f", "b"): 1}
    assert batch_join_as_of([row(9, "f")], versions, "left", 3) == {("k", 9, "f", None): 1}


def test_a_late_version_corrects_the_facts_up_to_its_successor() -> None:
    oracle = AsOfOracle("left", late_versions="correct", keep=10)
    oracle.take("versions", [row(1, "a"), row(6, "c")])
    oracle.take("facts", [row(3, "f"), row(5, "g"), row(6, "h")])
    oracle.advance(8, 8)
    assert oracle.take("versions", [row(4, "b")]) == [out(5, "g", "a", -1), out(5, "g", "b")]
    oracle.advance(15, 15)  # what is at 5 remains, what is at 3 does not
    assert oracle.rows == 2 + 2
    assert oracle.take("versions", [row(4, "z")]) == []
    assert oracle.late == [("versions", row(4, "z"))]


def test_what_is_before_a_version_that_can_still_be_retracted_remains() -> None:
    """J-9 says "at or before W - keep"; with signed input it has to be "before"."""
    oracle = AsOfOracle("left", signed=True)
    oracle.take("versions", [row(3, "a"), row(5, "b")])
    oracle.advance(5, 5)
    assert oracle.take("versions", [row(5, "b", -1)]) == []
    oracle.take("facts", [row(5, "f")])
    assert oracle.advance(6, 6) == [out(5, "f", "a")]


def test_a_retracted_fact_retracts_what_was_emitted() -> None:
    """Also where late versions are ignored, and the history has changed since."""
    oracle = AsOfOracle("left", keep=5, signed=True)
    oracle.take("facts", [row(5, "f")])
    assert oracle.advance(6, 6) == [out(5, "f", None)]
    assert oracle.take("versions", [row(4, "v")]) == []
    assert oracle.take("facts", [row(5, "f", -1)]) == [out(5, "f", None, -1)]
