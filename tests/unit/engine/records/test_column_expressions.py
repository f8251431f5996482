"""The library's own expressions: ``lw.when`` and ``lw.col(...).str.extract``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import narwhals as nw
import pytest

import lowwater as lw
from lowwater.engine.records.column_expressions import TextOperations
from lowwater.engine.records.elementwise import check_within_row, reading_of


def results(records: list[dict[str, Any]], expression: nw.Expr) -> list[Any]:
    stream = lw.from_iterable([{"at": 0, **one} for one in records], time="at")
    return [one.value["x"] for one in stream.with_columns(x=expression).run()]


def test_a_null_condition_is_false() -> None:
    records = [{"c": one} for one in (True, None, False)]
    assert results(records, lw.when(lw.col("c"), 1, 2)) == [1, 2, 2]
    assert results(records, lw.when(lw.col("c"), 1)) == [1, None, None]


def test_plain_values_stand_for_themselves() -> None:
    records = [{"c": True, "a": "of a"}, {"c": False, "a": "of a"}]
    assert results(records, lw.when(lw.col("c"), "a", lw.col("a"))) == ["a", "of a"]
    assert results(records, lw.when(lw.col("c"), None, "a")) == [None, "a"]


def test_when_is_an_expression_of_this_library_whatever_it_is_made_of() -> None:
    for made in (lw.when(lw.col("c"), 1), lw.when(nw.col("c"), nw.col("a"), 0)):
        assert type(made) is lw.Expr
        assert type(made + 1) is lw.Expr
    nested = lw.when(lw.col("c"), lw.when(lw.col("d"), 1, 2), 3)
    records = [{"c": c, "d": d} for c in (True, False) for d in (True, False)]
    assert results(records, nested) == [1, 2, 3, 3]


def test_the_value_that_is_not_chosen_may_leave_64_bits() -> None:
    records = [{"n": 2**62}, {"n": 3}]
    doubled = lw.when(lw.col("n") < 2**61, lw.col("n") * 4, -1)
    assert results(records, doubled) == [-1, 12]
    seen: list[lw.ErrorRecord] = []
    stream = lw.from_iterable([{"at": 0, **one} for one in records], time="at")
    made = stream.with_columns(x=lw.when(lw.col("n") > 0, lw.col("n") * 4)).run(
        on_dead_letter=seen.append
    )
    assert [one.value["x"] for one in made] == [12]
    assert [(one.reason, one.record["n"]) for one in seen] == [("out_of_range", 2**62)]


@pytest.mark.parametrize("condition", ["c", True, None, lambda record: True])
def test_a_condition_that_is_no_expression_is_refused(condition: Any) -> None:
    with pytest.raises(lw.InvalidArgument, match=r"condition=.* is not an expression.*lw\.when\("):
        lw.when(condition, 1)


def test_the_columns_that_are_read_are_known() -> None:
    made = lw.when(lw.col("c"), lw.col("a"), lw.col("b").str.extract("(x)|y"))
    check_within_row(made, "with_columns")
    assert reading_of([made]).columns == frozenset("abc")
    with pytest.raises(lw.InvalidArgument, match="looks at other records"):
        check_within_row(lw.when(lw.col("c"), lw.col("a").max()), "with_columns")


def test_the_operations_on_text_are_those_of_narwhals_and_one_more() -> None:
    text = lw.col("s").str
    assert isinstance(text, TextOperations)
    own = {name for name in dir(text) if not name.startswith("_")}
    assert own - {name for name in dir(nw.col("s").str) if not name.startswith("_")} == {"extract"}
    assert type(text.to_uppercase()) is lw.Expr
    assert results([{"s": " a"}], text.strip_chars().str.to_uppercase()) == ["A"]


EXTRACTED: dict[str, tuple[Callable[[], nw.Expr], list[Any]]] = {
    "a group": (lambda: lw.col("s").str.extract("/([a-z]+)"), ["b", None, "x", None, None]),
    "the whole": (lambda: lw.col("s").str.extract("/[a-z]", 0), ["/b", None, "/x", None, None]),
    "by name": (
        lambda: lw.col("s").str.extract("(?P<first>.)(?P<then>.)", "then"),
        ["/", None, "x", None, "b"],
    ),
    "without a part": (
        lambda: lw.col("s").str.extract(r"^.(?:/(.*))?"),
        ["b/c", None, None, None, None],
    ),
    "as an argument": (
        lambda: lw.when(lw.col("s").str.extract("(b)") == "b", 1, 0),
        [1, 0, 0, 0, 1],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", EXTRACTED)
def test_a_text_is_extracted(case: str) -> None:
    make, wanted = EXTRACTED[case]
    assert results([{"s": one} for one in ("a/b/c", "", "\n\n/x", None, "éb")], make()) == wanted


def test_what_is_extracted_is_named_after_its_column() -> None:
    stream = lw.from_iterable([{"at": 0, "s": "ab"}], time="at")
    (one,) = stream.select(lw.col("s").str.extract("(b)")).run()
    assert one.value["s"] == "b"


def test_a_value_that_is_no_text_is_a_dead_letter_alone() -> None:
    seen: list[lw.ErrorRecord] = []
    rows = [{"at": 0, "s": one} for one in ("ab", 7, None, "\ud800b", "b")]
    stream = lw.from_iterable(rows, time="at").with_columns(x=lw.col("s").str.extract("(b)"))
    made = [one.value["x"] for one in stream.run(on_dead_letter=seen.append)]
    assert made == ["b", None, "b"]
    assert [one.reason for one in seen] == ["bad_expression", "bad_expression"]
