"""Texts of patterns: what they mean, and errors that point at the place."""

from __future__ import annotations

import pytest

from lowwater.engine.match.pattern import AnyRow, Choice, Concatenation, Node, Repeat, Variable
from lowwater.engine.match.reading import parse_pattern
from lowwater.errors import InvalidArgument

A, B, C = map(Variable, "abc")
GAP = Repeat(AnyRow(), 0, None, greedy=False)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a", A), ("(a)", A), ("a b", Concatenation((A, B))), ("a\n\tb ", Concatenation((A, B))),
        ("a | b c", Choice((A, Concatenation((B, C))))),
        ("a*", Repeat(A, 0, None, True)), ("a+?", Repeat(A, 1, None, False)),
        ("a ?", Repeat(A, 0, 1, True)), ("a??", Repeat(A, 0, 1, False)),
        ("a{2}", Repeat(A, 2, 2, True)), ("a{2,}?", Repeat(A, 2, None, False)),
        ("a{ ,3 }", Repeat(A, 0, 3, True)), ("a{1,3}", Repeat(A, 1, 3, True)),
        ("a .. b", Concatenation((A, GAP, B))), ("a..b", Concatenation((A, GAP, B))),
        ("(a b)+", Repeat(Concatenation((A, B)), 1, None, True)),
        ("(a+)+", Repeat(Repeat(A, 1, None, True), 1, None, True)),
        ("Größe_2", Variable("Größe_2")), ("permute", Variable("permute")),
    ],
)  # fmt: skip
def test_trees(text: str, tree: Node) -> None:
    assert parse_pattern(text) == tree


@pytest.mark.parametrize(
    ("text", "place", "what", "hint"),
    [
        ("a (b", 2, "this group is not closed", "Close it"),
        ("((", 1, "this group is not closed", "Close it"),
        ("a b)", 3, "')' closes no group", "Open the group"),
        (")", 0, "')' closes no group", "Open the group"),
        ("a ()", 2, "this group is empty", "Name a variable"),
        ("a |", 2, "a branch of '|' is empty", "make a group optional"),
        ("| a", 0, "a branch of '|' is empty", "make a group optional"),
        ("a (b |)", 5, "a branch of '|' is empty", "make a group optional"),
        ("* a", 0, "'*' repeats nothing", "before it"),
        ("a{3,1}", 1, "bounds in the wrong order", "Write {1,3}"),
        ("a b{0}", 3, "'{0}' takes no row", "Leave the part out"),
        ("a{}", 1, "no number of iterations", "{n,m}"),
        ("a{1 2}", 1, "no number of iterations", "{n,m}"),
        ("a{x}", 1, "'{' begins no number", "{n,m}"),
        ("a{1001}", 1, "more than 1,000 iterations", "within="),
        ("a{99999999999999999999}", 1, "more than 1,000 iterations", "within="),
        ("a**", 2, "'*' repeats a repeat", "a group"),
        ("a+??", 3, "'?' repeats a repeat", "a group"),
        ("a*+ b", 2, "possessive repeat '*+'", "Leave the '+' out"),
        ("a ..* b", 4, "'..' cannot be repeated", "any number of rows"),
        ("a ... b", 2, "'...' has no meaning", "two dots"),
        ("a . b", 2, "'.' has no meaning", "without a definition"),
        ("^ a", 0, "'^' is not supported", "Leave it out"),
        ("a $", 2, "'$' is not supported", "lw.absent"),
        ("{- a -} b", 0, "'{- -}' are not supported", "filter rows"),
        ("x PERMUTE (a, b)", 2, "PERMUTE is not supported", "(a b | b a)"),
        ("a (?=b)", 2, "'(?' has no meaning", "lw.prev"),
        ("a -> b", 2, "'->' has no meaning", "spaces"),
        ("a, b", 1, "',' has no meaning", "spaces"),
        ("a !b", 2, "'!' has no meaning", "opposite condition"),
        ("2a", 0, "'2' begins no name", "letter"),
        ("a - b", 2, "'-' has no meaning", "Use names"),
    ],
)  # fmt: skip
def test_errors_show_the_place(text: str, place: int, what: str, hint: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_pattern(text)
    error = caught.value
    assert error.where == "match(pattern)"
    assert what in error.what
    assert hint in str(error.hint)
    _, shown, caret, rest = error.what.split("\n")
    assert (shown, caret, rest) == (f"    {text}", f"    {' ' * place}^", "")


def test_the_place_in_a_long_text() -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_pattern("abc " * 60 + "?? \x07" + " def" * 60)
    _, shown, caret, _ = caught.value.what.split("\n")
    assert shown[caret.index("^")] == "\u0020"
    assert shown.strip().startswith("…")
    assert shown.endswith("…")


@pytest.mark.parametrize("text", ["", " \n", 5, None, "(" * 60 + "a" + ")" * 60])
def test_no_patterns(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"is empty|is not text|groups are open"):
        parse_pattern(text)
