"""Row patterns where names are odd, types do not fit, and functions do what they should not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.errors import DataError, DataWarning, InvalidArgument


def rows(**columns: list[Any]) -> list[dict[str, Any]]:
    names = ["at", "k", *columns]
    length = len(next(iter(columns.values())))
    return [
        dict(zip(names, row, strict=True))
        for row in zip(range(length), ["A"] * length, *columns.values(), strict=True)
    ]


def keyed(records: list[dict[str, Any]]) -> lw.KeyedStream:
    return lw.from_iterable(records, time="at", unit="us").key_by("k")


def in_arrow(records: list[dict[str, Any]]) -> lw.KeyedStream:
    table = pa.Table.from_pylist(records)
    at = table["at"].cast(pa.timestamp("us", "UTC"))
    return lw.from_arrow(table.set_column(0, "at", at), time="at").key_by("k")


def values(stream: lw.MatchedStream, name: str) -> list[Any]:
    return [one[name] for one in stream.collect(progress=False).values()]


NAMES = ["absent", "match", "a", "price", "of", "variable", "k", "_", "ä"]


@pytest.mark.parametrize("name", NAMES)
def test_a_variable_may_have_any_name(name: str) -> None:
    stream = keyed(rows(p=[1, 5, 1, 2, 9, 1]))
    found = stream.match(
        f"{name} other?",
        define={name: lw.col("p") == 1, "other": lw.col("p") > lw.matched(name).last("p")},
        measures={"n": lw.count(), "of": lw.sum("p", of=name), "so_far": lw.matched(name).sum("p")},
        without=lw.absent(lw.col("p") == 9, within="1us"),
    )
    # The first is followed by 5, which is more; behind the second comes 2, and behind that the 9.
    assert values(found, "n") == [2, 1]
    assert values(found, "of") == values(found, "so_far") == [1, 1]


@pytest.mark.parametrize("name", ["of p", "of a", "prev", "matched('a')", "at time", "__p", "p'q"])
def test_a_column_may_have_any_name(name: str) -> None:
    stream = keyed(rows(**{name: [1, 2, 3]}))
    found = stream.match(
        "a up+",
        define={"up": lw.col(name) > lw.prev(name)},
        measures={
            "all": lw.sum(name), "ups": lw.sum(name, of="up"),
            "big": lw.count(of="up", where=lw.col(name) > 2), "last": lw.matched("up").last(name),
        },
    )  # fmt: skip
    (one,) = found.collect(progress=False).values()
    assert [one[each] for each in ("all", "ups", "big", "last")] == [6, 5, 1, 3]


def test_a_column_called_as_a_value_of_another_row_is_refused() -> None:
    records = rows(**{"prev('p', 1)": [1], "p": [2]})
    with pytest.raises(InvalidArgument, match="stands for a value of another row"):
        in_arrow(records).match("a")


@pytest.mark.parametrize(
    "condition",
    [
        lambda: lw.prev("text") > 1,
        lambda: lw.matched("a").last("text") > 1,
        lambda: lw.prev("n"),
        lambda: lw.matched("a").count(),
        lambda: lw.prev("n") + lw.col("text") == "x",
    ],
)
def test_a_condition_of_types_that_do_not_fit_is_refused(condition: Callable[[], Any]) -> None:
    stream = in_arrow(rows(text=["q"], n=[1]))
    with pytest.raises(InvalidArgument):
        stream.match("a b", define={"b": condition()})


def test_what_cannot_be_computed_is_said() -> None:
    stream = keyed(rows(p=[1, "x", 3, 4]))
    found = stream.match("a up", define={"up": lw.col("p") > lw.prev("p")})
    with pytest.warns(DataWarning, match="for such rows it is null"):
        assert len(found.collect(progress=False).values()) == 1


def test_an_order_that_no_record_has_is_an_error() -> None:
    with pytest.raises(InvalidArgument, match="there is no column 'seq'"):
        keyed(rows(p=[1])).match("a", order="seq").collect(progress=False)


FUNCTIONS: list[tuple[Any, str]] = [
    (lambda match: "no", "neither True nor False"),
    (lambda match: iter([1]), "neither True nor False"),
    (lambda match: 1, "neither True nor False"),
    (lambda match: match.prev("prce") is None, "no column 'prce'"),
    (lambda match: match.matched().first("prce") is None, "no column 'prce'"),
    (lambda match: match.matched().first("p", -1) is None, "below zero"),
    (lambda match: match.prev("p", 9) is None, "out of reach"),
    (lambda match: match.matched("z").count() == 0, "no variable 'z'"),
    (lambda match: 1 / 0, "ZeroDivisionError"),
]


@pytest.mark.parametrize(("function", "said"), FUNCTIONS)
def test_functions_that_do_what_they_should_not(function: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        keyed(rows(p=[1, 2])).match("a", define={"a": function}).collect(progress=False)


def test_a_function_sees_the_keys_and_may_return_none() -> None:
    stream = keyed(rows(p=[1, None, 3]))
    found = stream.match("a", define={"a": lambda m: m.row["k"] == "A" and m.row["p"] > 1})
    assert len(found.collect(progress=False).values()) == 1
    every = stream.match("a", define={"a": lambda m: m.row["k"] == "A"}, rows="all")
    assert sorted(every.collect(progress=False).values()[0]) == [
        "at", "match_start", "p", "variable",
    ]  # fmt: skip
    falsy: list[Any] = [None, 0, "", []]
    for false in falsy:

        def returns(match: lw.MatchSoFar, false: Any = false) -> Any:
            return false

        found = stream.match("a", define={"a": returns})
        assert found.collect(progress=False).values() == []


def test_async_conditions_are_refused() -> None:
    class Asks:
        async def __call__(self, match: object) -> bool:
            return True

    with pytest.raises(InvalidArgument, match="async"):
        keyed(rows(p=[1])).match("a", define={"a": Asks()})  # type: ignore[dict-item]


def test_a_condition_that_is_no_truth_makes_dead_letters_that_say_so() -> None:
    result = (
        keyed(rows(p=[1, True]))
        .match("a", define={"a": lw.col("p")})
        .collect(progress=False, on_error="dead_letter")
    )
    assert [error.reason for error in result.errors] == ["wrong_type"]
    assert "define=col(p)" in str(result.errors[0].detail)


def test_a_stream_without_keys_says_what_to_do() -> None:
    stream: Any = lw.from_iterable(rows(p=[1]), time="at", unit="us")
    with pytest.raises(AttributeError, match="Group first"):
        stream.match("a")


def test_rows_with_a_column_kind_are_refused_where_matches_are_corrected() -> None:
    stream = in_arrow(rows(kind=["a"]))
    with pytest.raises(InvalidArgument, match="'kind'"):
        stream.match("a", rows="all", within="1h", allowed_lateness="1h")
    stream.match("a", rows="all")


def test_running_measures_of_long_matches() -> None:
    count = 3_000
    stream = keyed(rows(p=list(range(count))))
    found = stream.match(
        "a+", rows="all", measures={"own": lw.col("p") * 2, "n": lw.count(), "sum": lw.sum("p")}
    )
    assert values(found, "own") == [2 * one for one in range(count)]
    assert values(found, "n") == list(range(1, count + 1))
    assert values(found, "sum")[-1] == sum(range(count))


def test_long_keys_with_conditions_on_the_match() -> None:
    stream = keyed(rows(p=[one % 7 for one in range(1_000)]))
    found = stream.match(
        "a up+",
        define={"up": lw.col("p") > lw.matched().first("p")},
        measures={"first": lw.first("p"), "n": lw.count()},
    )
    # Each run of 0 to 6 is a match of its own; the next 0 is not above its first.
    assert values(found, "n") == [7] * (1_000 // 7) + [1_000 % 7]
    assert set(values(found, "first")) == {0}
