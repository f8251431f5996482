"""What is known of a pattern without looking at rows."""

from __future__ import annotations

import pytest

from lowwater.engine.match.pattern import (
    first_variables,
    is_unbounded,
    longest,
    may_be_empty,
    optional_variables,
    shortest,
    takes_no_row,
    variables,
)
from lowwater.engine.match.program import MOST_STATES, compile_pattern, is_open_ended
from lowwater.engine.match.reading import parse_pattern
from lowwater.errors import InvalidArgument

INFINITY = float("inf")


def test_variables_are_in_order_of_appearance() -> None:
    assert variables(parse_pattern("c (a | b)+ .. a c")) == ("c", "a", "b")


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [("a", 1, 1), ("a .. b", 2, INFINITY), ("a{2,4} b?", 2, 5), ("a | b c", 1, 2),
     ("(a?)*", 0, INFINITY), ("(a b){3}", 6, 6)],
)  # fmt: skip
def test_lengths(text: str, least: int, most: float) -> None:
    tree = parse_pattern(text)
    assert (shortest(tree), longest(tree)) == (least, most)
    assert may_be_empty(tree) == (least == 0)
    assert is_unbounded(tree) == (most == INFINITY)


@pytest.mark.parametrize(
    ("text", "none"),
    [("a*?", True), ("a??", True), ("a?", False), ("a*", False), ("a?? b??", True),
     ("(a?? | b)", True), ("(b | a??)", False), ("(a??){2}", True), ("(a??){2,3}", False),
     ("(a??){2,3}?", True), ("a{,2}? b?", False)],
)  # fmt: skip
def test_patterns_that_take_no_row(text: str, none: bool) -> None:
    assert takes_no_row(parse_pattern(text)) == none


@pytest.mark.parametrize(
    ("text", "optional", "first"),
    [("a b", "", "a"), ("a? b", "a", "ab"), ("(a | b) c", "ab", "ab"), ("(a b | a) c?", "bc", "a"),
     (".. a", "", "a"), ("a{2} b{,2}", "b", "a"), ("(a* b*)+ c", "ab", "abc")],
)  # fmt: skip
def test_variables_that_may_be_absent_or_first(text: str, optional: str, first: str) -> None:
    tree = parse_pattern(text)
    assert optional_variables(tree) == set(optional)
    assert first_variables(tree) == set(first)


@pytest.mark.parametrize(
    ("text", "is_open"),
    [("a b", False), ("a", False), ("a .. b .. c", False), ("a{3} b", False), ("a b+?", False),
     ("a b*? c", False), ("(a | b) c", False), ("(a b | c d) .. a", False), ("a | a b", False),
     ("a b*", True), ("a+", True), ("a b?", True), ("a b | a", True), ("start down+ up+", True),
     ("a b*? c*? d", True)],
)  # fmt: skip
def test_open_ends(text: str, is_open: bool) -> None:
    assert is_open_ended(parse_pattern(text)) == is_open


def test_a_program_has_splits_behind_their_targets() -> None:
    labels = {"a": 0, "b": 1, "c": 2}
    program = compile_pattern(parse_pattern("((a* | b?)+ c{,3}?)* .. a"), labels, {"b": 7})
    first = program.variables + 1
    for state in range(first, len(program.x)):
        assert 0 <= program.x[state] < state
        assert 0 <= program.y[state] < state
    assert set(program.label[1:first].tolist()) == {-1, 0, 1, 2}
    assert (program.bit == [7 if label == 1 else -1 for label in program.label.tolist()]).all()
    columns = (program.label, program.bit, program.x, program.y)
    assert {column.dtype.str for column in columns} == {"<i8"}


@pytest.mark.parametrize(
    "text", ["((a{20}){20}){20}", "a{1000} b{1000}", "(" * 15 + "a?" + ")+?" * 15]
)
def test_programs_that_are_too_large(text: str) -> None:
    with pytest.raises(InvalidArgument, match=f"more than {MOST_STATES:,} states"):
        compile_pattern(parse_pattern(text), {"a": 0, "b": 1})


def test_loops_inside_loops_stay_small() -> None:
    program = compile_pattern(parse_pattern("(" * 20 + "a?" + ")+" * 20), {"a": 0})
    assert len(program.x) < 50
