"""The oracle of row patterns keeps the laws of the rules, and finds what Python's ``re`` finds."""

from __future__ import annotations

import re
from collections import Counter
from itertools import count
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import assume, given

from tests.examples import examples
from tests.oracles.pattern_runs import Given, PatternRun, Shown
from tests.oracles.row_patterns import (
    END,
    Absent,
    Choice,
    Concatenation,
    Condition,
    MatchSoFar,
    Node,
    Pattern,
    Repeat,
    Row,
    Skip,
    decided,
    parsed,
)

NAMES = "abc"


def is_of(letters: str) -> Condition:
    return lambda match: match.row["v"] in letters


PLAIN: dict[str, Condition] = {"a": is_of("x"), "b": is_of("xy"), "c": is_of("z")}
CLASSES = {"a": "[x]", "b": "[xy]", "c": "[z]"}
REPEATS = ["", "*", "+", "?", "{2}", "{1,2}", "{2,}", "{,2}", "*?", "+?", "??", "{1,3}?"]


@st.composite
def texts(draw: st.DrawFn, depth: int = 2) -> str:
    """Patterns of few nodes."""
    if depth == 0:
        return draw(st.sampled_from(NAMES)) + draw(st.sampled_from(REPEATS))
    parts = draw(st.lists(texts(depth - 1), min_size=1, max_size=2))
    joined = draw(st.sampled_from([" ", " | ", " "])).join(parts)
    return f"({joined}){draw(st.sampled_from(REPEATS))}"


def in_re(text: str) -> re.Pattern[str]:
    """Return the pattern for a text of one letter a row."""
    return re.compile(re.sub(r"[abc]", lambda name: CLASSES[name[0]], text.replace(" ", "")))


def may_be_empty(node: Node) -> bool:
    match node:
        case Concatenation(parts):
            return all(map(may_be_empty, parts))
        case Choice(branches):
            return any(map(may_be_empty, branches))
        case Repeat():
            return node.least == 0 or may_be_empty(node.part)
    return False


def repeats_nothing(node: Node) -> bool:
    """Whether an iteration of a repeat may take no row: ``re`` ends the repeat with it."""
    match node:
        case Concatenation(parts) | Choice(parts):
            return any(map(repeats_nothing, parts))
        case Repeat():
            return may_be_empty(node.part) or repeats_nothing(node.part)
    return False


@given(texts(), st.text("xyz", max_size=7))
@examples(10)
def test_parses_are_those_of_regular_expressions(text: str, letters: str) -> None:
    """Row by row, a variable is a class of letters: the preferred parse has the same length."""
    tree = parsed(text)
    assume(not repeats_nothing(tree))
    rows = [Row(at, {"v": letter}, arrival=at) for at, letter in enumerate(letters)]
    for start in range(len(rows)):
        found, _ = decided(Pattern(tree, PLAIN, skip="next"), rows, END)
        wanted = in_re(text).match(letters, start)
        lengths = {match.start: len(match.labels) for match in found}
        assert lengths.get(start, 0) == (len(wanted[0]) if wanted else 0)


@pytest.mark.parametrize(
    ("text", "letters", "labels"),
    [
        ("a b*", "xxy", "abb"), ("a b*?", "xxy", "a"), ("b* a", "xyx", "bba"),
        ("b*? a", "xyx", "a"),
        ("(a | b) b?", "xy", "ab"), ("(b | a) b?", "xy", "bb"), ("(a*)*", "xxz", "aa"),
        ("(a* | b)* c", "xyz", "abc"), ("a .. c", "xyxz", "a  c"), ("(a? b?){2} c", "yz", "bc"),
    ],
)  # fmt: skip
def test_preferred_parses(text: str, letters: str, labels: str) -> None:
    rows = [Row(at, {"v": letter}, arrival=at) for at, letter in enumerate(letters)]
    (match, *_), _ = decided(Pattern(parsed(text), PLAIN), rows, END)
    assert "".join(label or " " for label in match.labels) == labels


def higher(match: MatchSoFar) -> Any:
    return match.row["n"] > match.prev("n")


def above_mean(match: MatchSoFar) -> Any:
    present = match.present("a", "n")
    return match.row["n"] > sum(present) / len(present) if present else None


CONDITIONS: list[Condition] = [
    is_of("x"), is_of("xy"), higher, above_mean, lambda match: match.row["n"] is not None,
]  # fmt: skip
SKIPS: list[Skip] = ["past_last", "next"]
STREAMED = ["a b", "a b*", "a b* c", "a b+?", "a .. c", "(a | a b) c?", "a{2} b?", "(a | b)+ c"]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Pattern, int, list[Any]]:
    """A pattern, a lateness, and steps: bundles and watermarks, and what is taken back."""
    define = {name: draw(st.sampled_from(CONDITIONS)) for name in NAMES if draw(st.booleans())}
    without = None
    if draw(st.integers(0, 3)) == 0:
        without = Absent(lambda values: values["v"] == "z", draw(st.integers(0, 4)))
    text = draw(st.sampled_from(STREAMED))
    within = draw(st.none() | st.integers(0, 6))
    pattern = Pattern(parsed(text), define, within, draw(st.sampled_from(SKIPS)), without)
    steps: list[Any] = []
    there: list[Given] = []
    for _ in range(draw(st.integers(1, 6))):
        if draw(st.integers(0, 2)) == 0:
            steps.append(draw(st.integers(0, 12)))
            continue
        bundle = []
        for _ in range(draw(st.integers(1, 4))):
            if there and draw(st.integers(0, 5)) == 0:
                one = there.pop(draw(st.integers(0, len(there) - 1)))
                bundle.append(Given(one.key, one.row, -1))
                continue
            values = {
                "v": draw(st.sampled_from("xyz")), "n": draw(st.none() | st.integers(0, 3))
            }  # fmt: skip
            order = draw(st.none() | st.integers(0, 1))
            one = Given(draw(st.integers(0, 1)), Row(draw(st.integers(0, 12)), values, order))
            bundle.append(one)
            there.append(one)
        steps.append(bundle)
    return pattern, draw(st.sampled_from([0, 2, 20])), steps


def ran(run: PatternRun, steps: list[Any]) -> list[list[Shown]]:
    """Return what each step changes; retractions of rows that were dropped are left out."""
    changes = []
    for step in [*steps, END]:
        if not isinstance(step, list):
            changes.append(run.advance(step))
            continue
        for one in step:
            dropped = [(late.key, late.row) for late in run.late if late.sign > 0]
            if one.sign > 0 or (one.key, one.row) not in dropped:
                changes.append(run.add([one]))
    return changes


MEASURES = [lambda match: "".join(match.labels), lambda match: match.count("b")]


@given(cases(), st.sampled_from(["on_time", "final", "early"]))
@examples(10)
def test_what_is_out_at_the_end_is_the_batch_answer(case: Any, emit: Any) -> None:
    pattern, lateness, steps = case
    run = PatternRun(pattern, MEASURES, lateness=lateness, emit=emit)
    net: Counter[Shown] = Counter()
    for changes in ran(run, steps):
        for one in changes:
            plain = Shown(one.key, one.start, one.end, one.time, one.values)
            net[plain] += one.sign
            assert net[plain] >= 0
    wanted = Counter[Shown]()
    for key, rows in run.rows.items():
        ordered = sorted(rows, key=lambda row: row.place)
        for match in decided(pattern, ordered, END)[0]:
            wanted[run._shown(key, ordered, match)] += 1
    assert +net == wanted
    assert run.held() == END


@given(cases())
@examples(10)
def test_final_output_is_never_retracted(case: Any) -> None:
    pattern, lateness, steps = case
    inserted = [
        [one for one in step if one.sign > 0] if isinstance(step, list) else step for step in steps
    ]
    run = PatternRun(pattern, MEASURES, lateness=lateness, emit="final")
    assert [one for changes in ran(run, inserted) for one in changes if one.sign < 0] == []


@given(cases())
@examples(10)
def test_rows_in_time_retract_nothing_and_are_above_the_output_watermark(case: Any) -> None:
    """P-10: the first undecided start holds the output watermark."""
    pattern, _, steps = case
    run = PatternRun(pattern, MEASURES)
    for step in [*steps, END]:
        before = min(run.held(), run.watermark)
        if isinstance(step, list):
            in_time = [one for one in step if one.sign > 0 and one.row.time >= run.watermark]
            changes = run.add(in_time)
        else:
            changes = run.advance(step)
        assert [one for one in changes if one.sign < 0] == []
        assert all(one.time >= before for one in changes)


@given(cases(), st.integers(0, 2**32))
@examples(5)
def test_the_order_of_arrival_matters_only_among_equal_rows(case: Any, seed: int) -> None:
    import random

    pattern, _, steps = case
    rows = [one for step in steps if isinstance(step, list) for one in step if one.sign > 0]
    place = count()
    apart = [Given(one.key, Row(one.row.time, one.row.values, next(place))) for one in rows]
    runs = []
    for order in (apart, random.Random(seed).sample(apart, len(apart))):
        run = PatternRun(pattern, MEASURES)
        run.add(order)
        run.advance(END)
        runs.append(sorted(map(repr, run.out)))
    assert runs[0] == runs[1]
