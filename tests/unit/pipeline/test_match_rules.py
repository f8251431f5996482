"""Rules of row patterns that other tests do not pin down by themselves."""

from __future__ import annotations

from typing import Any

import pytest

import lowwater as lw
from lowwater.engine.match.operator import MatchOperator
from lowwater.engine.stages.searched import Searched


def rows(text: str, *, every: int = 1) -> lw.Stream:
    """Return a record for each letter, some seconds apart."""
    items = [{"at": at * every, "key": "k", "v": v} for at, v in enumerate(text)]
    return lw.from_iterable(items, time="at", unit="s", watermark=lw.Ascending())


def letters(*names: str) -> dict[str, Any]:
    return {name: lw.col("v") == name for name in names}


def found(text: str, pattern: str, **options: Any) -> list[tuple[int, int]]:
    """Return where matches start and how many rows they have."""
    options.setdefault("define", letters(*(name for name in "abc" if name in pattern)))
    matches = rows(text).key_by("key").match(pattern, measures={"n": lw.count()}, **options)
    return [(int(one["match_start"].timestamp()), one["n"]) for one in matches.collect().values()]


def test_a_shorter_match_is_found_where_the_longest_does_not_fit() -> None:
    """P-4."""
    assert found("aaab", "a+ (b | a)") == [(0, 4)]
    assert found("aaab", "a+ (b | a)", within="2s") == [(0, 3)]
    assert found("aaab", "a+ b", within="2s") == [(1, 3)]


@pytest.mark.parametrize("bundle_size", [1, 3, 100])
def test_what_can_change_nothing_is_released(bundle_size: int) -> None:
    """P-8: rows before the first undecided start, and everything at the end."""
    most = []
    matches = rows("ab" * 100).key_by("key").match("a b", define=letters("a", "b"))
    result = matches.run(
        bundle_size=bundle_size, progress=lambda metrics: most.append(metrics.open_windows)
    )
    assert len(list(result)) == 100
    assert max(most) <= bundle_size + 2
    assert most[-1] == 0


@pytest.mark.parametrize("pattern", ["^ a", "a $"])
def test_what_nothing_decides_is_refused(pattern: str) -> None:
    """P-14."""
    with pytest.raises(lw.InvalidArgument, match=r"is not supported.*P-14"):
        rows("a").key_by("key").match(pattern)


def test_repeats_without_bound_are_warned_of() -> None:
    """P-14: ``lw.check`` says what ``within`` would bound."""
    open_, bounded = (
        rows("a").key_by("key").match("a b+", within=within) for within in (None, "1h")
    )
    assert "repeats without bound" in str(lw.check(open_))
    assert not lw.check(bounded)


@pytest.mark.parametrize(
    ("skip", "wanted"),
    [
        (("last", "a"), [(0, 3), (1, 2), (2, 1)]),
        (("first", "b"), [(0, 3), (1, 2), (2, 1)]),
        (("last", "c"), [(0, 3), (1, 2), (2, 1)]),
    ],
)
def test_a_search_that_would_not_move_on_resumes_at_the_next_row(
    skip: Any, wanted: list[tuple[int, int]]
) -> None:
    """P-15: the variable has no row, or it is the first one."""
    assert found("aab", "(a* b | c)", skip=skip)[:1] == wanted[:1]
    assert found("aab", "a* (b | c)", skip=("last", "c")) == wanted


def test_a_skip_to_what_always_begins_a_match_is_refused() -> None:
    """P-15."""
    with pytest.raises(lw.InvalidArgument, match="would not move on"):
        found("ab", "a b", skip=("first", "a"))


def test_a_condition_on_other_rows_that_is_null_or_fails_is_false() -> None:
    """P-3."""
    define = {"a": lw.prev("v") == "a", "b": lambda match: match.prev("v") + 1 > 0}
    assert found("aab", "a", define={"a": define["a"]}) == [(1, 1), (2, 1)]
    with pytest.raises(lw.DataError, match="the condition of 'b' failed"):
        found("aab", "b", define={"b": define["b"]})
    assert found("aab", "b", define={"b": lambda match: match.prev("v") < "b"}) == [(1, 1), (2, 1)]


def test_values_of_rows_may_be_null_but_aggregates_ignore_nulls() -> None:
    """P-3."""
    items = [{"at": at, "key": "k", "v": v} for at, v in enumerate([None, 1, None])]
    source = lw.from_iterable(items, time="at", unit="s")
    measures = {
        "first": lw.first("v"),
        "row": lw.matched().first("v"),
        "last": lw.last("v"),
        "last_row": lw.matched("a").last("v"),
    }
    (one,) = source.key_by("key").match("a{3}", measures=measures).collect().values()
    assert {name: one[name] for name in measures} == {
        "first": 1, "row": None, "last": 1, "last_row": None,
    }  # fmt: skip


def test_stages_build_their_operators() -> None:
    """P-13: what only inserts is not signed."""
    stage = rows("a").key_by("key").match("a")._stage
    assert isinstance(stage.work, Searched)
    assert isinstance(stage.work.operator(stage), MatchOperator)
    assert not stage.work.retracts
