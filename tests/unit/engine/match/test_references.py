"""``lw.prev`` and ``lw.matched``: expressions over virtual columns, which can be read back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import narwhals as nw
import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.engine.match.references import (
    check_expression,
    plain_columns,
    references_in,
)
from lowwater.engine.records.batch import Records
from lowwater.engine.records.evaluation import evaluated
from lowwater.engine.records.expressions import Expressions
from lowwater.engine.records.other_rows import MatchedValue, Prev

STEP = "match(define=)"
CELL = {"at": 0, "v": 1, "k": "a"}


def price(*more: Any) -> Any:
    return lw.prev("price", *more)


@pytest.mark.parametrize(
    ("expression", "reference"),
    [
        (price(), Prev("price", 1)),
        (price(3), Prev("price", 3)),
        (lw.matched("a").first("v"), MatchedValue("a", "first", "v", 0)),
        (lw.matched("a").first("v", 2), MatchedValue("a", "first", "v", 2)),
        (lw.matched().last("v", k=1), MatchedValue(None, "last", "v", 1)),
        (lw.matched("a").min("v"), MatchedValue("a", "min", "v")),
        (lw.matched("a").max("v"), MatchedValue("a", "max", "v")),
        (lw.matched("a").sum("v"), MatchedValue("a", "sum", "v")),
        (lw.matched("a").mean("v"), MatchedValue("a", "mean", "v")),
        (lw.matched("a").count("v"), MatchedValue("a", "count", "v")),
        (lw.matched("it's").count(), MatchedValue("it's", "count", None)),
    ],
)
def test_each_is_an_expression_that_tells_what_it_refers_to(
    expression: lw.Expr, reference: Prev | MatchedValue
) -> None:
    assert isinstance(expression, lw.Expr)
    assert references_in(expression) == {reference}
    assert plain_columns(expression) == frozenset()


def test_references_are_found_in_all_parts_of_an_expression() -> None:
    down = lw.matched("down")
    chosen = lw.when(price() > 1, down.min("price"), lw.col("low"))
    both = (lw.col("price") < chosen) & nw.max_horizontal("top", price(2)).is_between(
        1, down.first("at")
    )
    check_expression("down", both, STEP)
    assert references_in(both) == {
        Prev("price", 1),
        Prev("price", 2),
        MatchedValue("down", "min", "price"),
        MatchedValue("down", "first", "at"),
    }
    assert plain_columns(both) == frozenset({"price", "low", "top"})


def test_a_literal_of_such_a_text_refers_to_nothing() -> None:
    text = Prev("price", 1).name
    expression = (lw.col("kind") == text) | lw.col("kind").is_in([text]) | (lw.lit(text) == "a")
    assert references_in(expression) == set()
    lw.from_iterable([CELL], time="at").filter(expression)


def test_the_evaluator_computes_them_once_the_values_are_columns() -> None:
    expression = (lw.col("v") - lw.prev("v")).alias("change")
    batch = pa.table({"v": [5, 7, 4], Prev("v", 1).name: [None, 5, 7]}).to_batches()[0]
    done = evaluated(STEP, Records.from_arrow(batch), Expressions((expression,)))
    assert done.columns["change"].to_list(exact=True) == [None, 2, -3]


def test_values_can_be_compared_and_written() -> None:
    assert lw.matched("a") == lw.matched("a") != lw.matched()
    assert len({lw.matched(), lw.matched(None)}) == 1
    assert (repr(lw.matched("a")), repr(lw.matched())) == ("matched('a')", "matched()")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: lw.prev(""), "column='' .* name of a column .* Write, say"),
        (lambda: lw.prev(3), "column=3 .*at lw.prev"),  # type: ignore[arg-type]
        (lambda: lw.prev(lw.col("price")), r"Write lw.prev\('price'\)"),  # type: ignore[arg-type]
        (lambda: lw.prev(lw.col("v") * 2), "Compute with what it returns"),  # type: ignore[arg-type]
        (lambda: lw.prev("v", 0), "k=0 .* int of at least 1 .* the row itself"),
        (lambda: lw.prev("v", -1), "k=-1"),
        (lambda: lw.prev("v", True), "k=True"),
        (lambda: lw.prev("v", 1.0), "k=1.0"),  # type: ignore[arg-type]
        (lambda: lw.prev("v", n=2), "Did you mean 'k'"),  # type: ignore[call-arg]
        (lambda: lw.matched(""), "variable='' .* a variable of the pattern"),
        (lambda: lw.matched(1), "variable=1"),  # type: ignore[arg-type]
        (lambda: lw.matched("a").first("v", -1), r"k=-1 .* at least 0 .*lw.matched\(...\).first"),
        (lambda: lw.matched("a").last("v", False), "k=False"),
        (lambda: lw.matched("a").min(""), r"column='' .*lw.matched\(...\).min"),
        (lambda: lw.matched("a").count(""), "column=''"),
        (lambda: lw.matched("a").sum(lw.col("v")), r"Write lw.matched\(...\).sum\('v'\)"),  # type: ignore[arg-type]
        (lambda: lw.matched("a").max("v", 1), "by position"),  # type: ignore[call-arg]
    ],
)
def test_mistakes(make: Callable[[], object], words: str) -> None:
    with pytest.raises(lw.InvalidArgument, match=words):
        make()


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("price", "'price' .* not an expression"),
        (lw.prev("v").shift(1) > 1, "looks at other records"),
        (lw.col("v", "w") > lw.prev("v"), "several columns"),
        (nw.nth(0) > lw.prev("v"), "does not name the columns"),
        (lw.prev("v") > nw.nth(0), "does not name the columns"),
    ],
)
def test_what_a_condition_of_a_pattern_cannot_be(expression: object, words: str) -> None:
    with pytest.raises(lw.InvalidArgument, match=words):
        check_expression("down", expression, STEP)


def elsewhere(make: Callable[[lw.Stream, lw.Expr], object]) -> Callable[[lw.Expr], object]:
    return lambda refers: make(lw.from_iterable([CELL], time="at"), refers)


ELSEWHERE = {
    "filter": elsewhere(lambda stream, refers: stream.filter(refers > 1)),
    "with_columns": elsewhere(lambda stream, refers: stream.with_columns(x=refers)),
    "select": elsewhere(lambda stream, refers: stream.select("at", refers.alias("x"))),
    "key_by": elsewhere(lambda stream, refers: stream.key_by(x=refers)),
    "within when": elsewhere(
        lambda stream, refers: stream.with_columns(x=lw.when(refers > 1, 1, refers))
    ),
    "a part of it": elsewhere(
        lambda stream, refers: stream.select(nw.sum_horizontal("v", lw.col("v") + refers))
    ),
    "by its name": elsewhere(
        lambda stream, _: stream.select(nw.sum_horizontal("v", Prev("v", 1).name))
    ),
    "where": elsewhere(lambda _, refers: lw.count(where=refers > 1)),
    "filter of a table": elsewhere(lambda stream, refers: stream.table(key="k").filter(refers > 1)),
    "with_columns of a table": elsewhere(
        lambda stream, refers: stream.table(key="k").with_columns(x=refers)
    ),
    "select of a table": elsewhere(
        lambda stream, refers: stream.table(key="k").select("k", x=refers)
    ),
    "deleted": elsewhere(lambda stream, refers: stream.table(key="k", deleted=refers > 1)),
    "absent": elsewhere(lambda _, refers: lw.absent(refers > 1, within="1m")),
}


@pytest.mark.parametrize("place", ELSEWHERE)
@pytest.mark.parametrize("refers", [lw.prev("v"), lw.matched("a").last("v")], ids=["prev", "of"])
def test_they_are_refused_where_there_is_no_match(place: str, refers: lw.Expr) -> None:
    words = r"lw\.(prev|matched)\(...\) refers to .*only .* \.match\(...\) can"
    with pytest.raises(lw.InvalidArgument, match=words) as raised:
        ELSEWHERE[place](refers)
    assert raised.value.where is not None
    assert ".match(...)" in str(raised.value.hint)
