"""The search for row patterns finds what the scalar oracle finds, and knows when it is decided."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray

from lowwater.engine.match.careful import Test, find_matches_carefully
from lowwater.engine.match.program import compile_pattern, is_open_ended
from lowwater.engine.match.reading import parse_pattern
from lowwater.kernels import Kernels, pattern_tables, plain, plain_patterns
from lowwater.kernels.pattern_tables import TO_NEXT, Matches, Search
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array
from tests.examples import examples
from tests.kernels import KINDS, compiled
from tests.oracles.pattern_rows import (
    DEPENDENT,
    LABELS,
    NAMES,
    Case,
    as_engine,
    cases,
    columns,
    shown,
    trees,
    written,
)
from tests.oracles.row_patterns import END, MatchSoFar, parsed
from tests.property.small_chunks import small_chunks


@contextmanager
def always_in_lockstep() -> Iterator[None]:
    """Process even a few keys in lockstep."""
    with (
        mock.patch.object(pattern_tables, "_FEW", 1),
        mock.patch.object(plain_patterns, "_FEW", 1),
    ):
        yield


def assert_same(one: Matches, other: Matches) -> None:
    assert columns(one) == columns(other)


def assert_is_decided(case: Case, found: Matches, horizon: float) -> None:
    """Compare what was found with the oracle: matches, undecided starts, reach."""
    wanted, starts = case.decided(horizon)
    assert shown(found, horizon if case.skip == "next" else END) == wanted
    begin, first, _, _ = case.arrays
    if case.skip == "next":
        is_open = (found.reach >= horizon) & (horizon < END)
        times = np.array([row.time for row in case.rows])
        assert [one for one in np.flatnonzero(is_open) if times[one] < horizon] == starts
        assert found.next_start.tolist() == begin[1:].tolist()
        return
    below = [
        start
        for start, stop in zip(found.next_start.tolist(), begin[1:].tolist(), strict=True)
        if start < stop and case.rows[start].time < horizon
    ]
    assert below == starts
    for key, start in enumerate(found.next_start.tolist()):
        assert first[key] <= start <= begin[key + 1]
        assert (found.reach[start + 1 : begin[key + 1]] == START_OF_TIME).all()
        assert start == begin[key + 1] or found.reach[start] >= horizon


@given(cases())
@examples(30, is_core=True)
def test_matches_are_those_of_the_oracle(case: Case) -> None:
    program, arrays = case.program, case.arrays
    for number, horizon in enumerate(case.horizons()):
        search = case.search(horizon)
        found = plain.find_matches(program, search, *arrays)
        assert_is_decided(case, found, horizon)
        assert_same(compiled.find_matches(program, search, *arrays), found)
        with small_chunks() if number % 2 else always_in_lockstep():
            assert_same(plain.find_matches(program, search, *arrays), found)
    if not is_open_ended(as_engine(case.tree)):
        assert_fixed_ends_depend_on_no_row_behind(case)


def assert_fixed_ends_depend_on_no_row_behind(case: Case) -> None:
    """P-11: nothing behind the last row of a match has been looked at."""
    search = case.search(END)._replace(absent_bit=-1, skip=TO_NEXT)
    found = compiled.find_matches(case.program, search, *case.arrays)
    last = np.array([row.time for row in case.rows], dtype=np.int64)[found.stop - 1]
    assert found.match_reach.tolist() == last.tolist()


def conditions_of(case: Case) -> Test:
    """Return what tests the conditions of a case on the match so far."""
    rows, (begin, _, _, _) = case.rows, case.arrays

    def test(
        label: int,
        starts: Int64Array,
        places: Int64Array,
        labels: NDArray[np.int16],
        depth: Int64Array,
    ) -> NDArray[np.bool_]:
        assert (places == starts + depth - 1).all()
        assert (labels[np.arange(len(depth)), depth - 1] == label).all()
        met = []
        for start, own, rows_taken in zip(starts, labels, depth, strict=True):
            key = int(np.searchsorted(begin, start, side="right")) - 1
            names = tuple(NAMES[one] if one >= 0 else "" for one in own[:rows_taken].tolist())
            so_far = MatchSoFar(rows[begin[key] : begin[key + 1]], int(start - begin[key]), names)
            met.append(bool(DEPENDENT[NAMES[label]](so_far)))
        return np.array(met, dtype=np.bool_)

    return test


@given(cases(depends=True, most_keys=3, size=6))
@examples(30, is_core=True)
def test_conditions_on_the_match_so_far(case: Case) -> None:
    depends = {LABELS[name] for name in case.depends}

    def found_at(horizon: float) -> Matches:
        arguments = case.program, case.search(horizon), *case.arrays
        return find_matches_carefully(*arguments, depends, conditions_of(case))

    for number, horizon in enumerate(case.horizons()[:-1]):
        with small_chunks() if number % 2 else nullcontext():
            assert_is_decided(case, found_at(horizon), horizon)
    whole = found_at(END)
    assert_is_decided(case, whole, END)
    with small_chunks():
        assert_same(found_at(END), whole)


@given(cases())
@examples(10)
def test_a_careful_search_without_such_conditions_is_the_search(case: Case) -> None:
    for horizon in case.horizons():
        arguments = (case.program, case.search(horizon), *case.arrays)
        careful = find_matches_carefully(*arguments, frozenset(), conditions_of(case))
        assert_same(careful, compiled.find_matches(*arguments))


@pytest.mark.parametrize("skip", range(4))
def test_a_careful_search_for_what_cannot_be_there_is_short(skip: int) -> None:
    """No row has the bit of the last variable, so that no parse is worth a try."""
    rows = 3_000
    labels = {"a": 0, "b": 1, "c": 2}
    program = compile_pattern(parse_pattern("(a | a b | b)* c"), labels)
    found = find_matches_carefully(
        program,
        Search(skip=skip, skip_label=0 if skip > 1 else -1),
        np.array([0, rows]),
        np.array([0]),
        np.arange(rows),
        np.full(rows, 3, dtype=np.uint64),
        {2},
        lambda *_: pytest.fail("no row is tested"),
    )
    assert not len(found.start)
    assert (found.reach == END_OF_TIME).all()


@given(trees())
@examples(20)
def test_texts_of_patterns_are_read_back(tree: object) -> None:
    try:
        text = written(tree)  # type: ignore[arg-type]
    except ValueError:
        return
    if "()" in text or text.rstrip(")").endswith(".."):
        return
    assert parse_pattern(text) == as_engine(parsed(text))


@pytest.mark.parametrize("skip", range(4))
def test_keys_of_very_different_lengths(skip: int) -> None:
    random = np.random.default_rng(skip)
    program = compile_pattern(
        parse_pattern("a (b | a b)+ (c? a){1,2}? .. d"), {"a": 0, "b": 1, "c": 2, "d": 3}
    )
    lengths = np.concatenate([random.integers(0, 9, 900), [900, 3_000], random.integers(0, 90, 60)])
    begin = np.concatenate([[0], np.cumsum(lengths)])
    times = np.concatenate(
        [np.sort(random.integers(0, 40 * length + 1, length)) for length in lengths]
    )
    bits = random.integers(0, 2**10, begin[-1], dtype=np.uint64)
    first = begin[:-1] + np.minimum(lengths, random.integers(0, 2, len(lengths)))
    for horizon in (END_OF_TIME, 300):
        search = Search(200, 9, 5, horizon, skip, 1 if skip > 1 else -1)
        wanted = compiled.find_matches(program, search, begin, first, times, bits)
        assert len(wanted.start) > 50
        assert_same(plain.find_matches(program, search, begin, first, times, bits), wanted)
        with mock.patch.object(pattern_tables, "_AT_ONCE", 500):
            assert_same(plain.find_matches(program, search, begin, first, times, bits), wanted)
        with small_chunks():
            assert_same(plain.find_matches(program, search, begin, first, times, bits), wanted)


@pytest.mark.parametrize("kind", KINDS, ids=["plain", "compiled"])
@pytest.mark.parametrize("text", ["(a | a b | b)* c", "(a+)+ c", "(a* b*)* c", "(a?){40} c"])
@pytest.mark.parametrize("skip", range(4))
def test_many_parses_that_fail_are_not_tried(kind: Kernels, text: str, skip: int) -> None:
    """Backtracking would try 2^3,000 parses of them."""
    rows = 3_000
    program = compile_pattern(parse_pattern(text), {"a": 0, "b": 1, "c": 2})
    found = kind.find_matches(
        program,
        Search(skip=skip, skip_label=0 if skip > 1 else -1),
        np.array([0, rows]),
        np.array([0]),
        np.arange(rows),
        np.full(rows, 3, dtype=np.uint64),
    )
    assert not len(found.start)
    if text != "(a?){40} c":
        assert (found.reach == END_OF_TIME).all()


@pytest.mark.parametrize("kind", KINDS, ids=["plain", "compiled"])
def test_no_keys_and_no_rows(kind: Kernels) -> None:
    program = compile_pattern(parse_pattern("a b"), {"a": 0, "b": 1})
    none, bits = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint64)
    for keys in (0, 2):
        begin = np.zeros(keys + 1, dtype=np.int64)
        found = kind.find_matches(program, Search(absent_bit=1), begin, begin[1:], none, bits)
        assert [len(values) for _, values in columns(found)] == [0, keys, 0, 0, 0, 0]
