"""What ``over`` accepts, what it says where it does not, and what comes out at real sizes."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import inf
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lowwater as lw
from tests.examples import sampled

TABLE = pa.table(
    {
        "at": pa.array([0, 1, 2], pa.timestamp("us", "UTC")),
        "k": ["a", "a", "b"],
        "v": [1, 2, 3],
        "name": ["x", "y", None],
    }
)


def keyed() -> lw.KeyedStream:
    return lw.from_arrow(TABLE, time="at").key_by("k")


def signed() -> lw.KeyedStream:
    """Panes that are retracted."""
    panes = keyed().window(lw.FixedWindows("1m"), accumulation="retracting", allowed_lateness="1h")
    return panes.aggregate(n=lw.count()).to_stream().key_by("k")


N: Any = lw.count()
REFUSED: dict[str, tuple[str, Callable[[], Any]]] = {
    "neither": ("neither is given", lambda: keyed().over(n=N)),
    "a result called rows": ("how many rows a range has", lambda: keyed().over("5m", rows=N)),
    "both": ("both are given", lambda: keyed().over("5m", rows=3, n=N)),
    "nothing": ("nothing is computed", lambda: keyed().over("5m")),
    "no length": ("not above zero", lambda: keyed().over("0s", n=N)),
    "an aggregate": ("without a name", lambda: keyed().over(lw.mean("v"), n=N)),  # type: ignore[arg-type]
    "no rows": ("not an int from 1", lambda: keyed().over(rows=0, n=N)),
    "true rows": ("not an int from 1", lambda: keyed().over(rows=True, n=N)),
    "late": ("late='ignore'", lambda: keyed().over("5m", late="ignore", n=N)),  # type: ignore[arg-type]
    "order": ("taken as they arrived", lambda: keyed().over("5m", order="v", n=N)),
    "no column": ("'w'", lambda: keyed().over(rows=2, order="w", n=N)),
    "no such value": ("'w'", lambda: keyed().over("5m", n=lw.sum("w"))),
    "no such rank": ("'w'", lambda: keyed().over("5m", n=lw.rank(by="w"))),
    "no such prev": ("'w'", lambda: keyed().over(rows=2, n=lw.prev("w"))),
    "keep of a time": ("as long as", lambda: keyed().over("5m", keep="1h", n=N)),
    "keep": ("not above zero", lambda: keyed().over(rows=2, keep="0s", n=N)),
    "numbers": ("row numbers count all", lambda: keyed().over(
        rows=2, keep="1h", n=lw.row_number())),
    "a number of time": ("depends on the order", lambda: keyed().over("5m", n=lw.row_number())),
    "prev of time": ("depends on the order", lambda: keyed().over("5m", n=lw.prev("v"))),
    "matched": ("of a match", lambda: keyed().over(rows=2, n=lw.matched("a").last("v"))),
    "of": (r"which only the measures", lambda: keyed().over("5m", n=lw.count(of="a"))),
    "a function": (r"Call it: lw.count", lambda: keyed().over("5m", n=lw.count)),  # type: ignore[arg-type]
    "text": ("not an expression", lambda: keyed().over("5m", n="v")),  # type: ignore[arg-type]
    "taken": ("column 'v' already", lambda: keyed().over("5m", v=N)),
    "the key": ("cannot be called 'k'", lambda: keyed().over("5m", k=N)),
    "the sign": ("cannot be called 'kind'", lambda: keyed().over("5m", kind=N)),
    "types": ("over cannot compute 'subtract' of int64 and string", lambda: keyed().over(
        rows=2, n=lw.col("v") - lw.prev("name"))),
    "negative": ("below zero", lambda: keyed().over("5m", allowed_lateness="-1s", n=N)),
    "both late": ("none is allowed", lambda: keyed().over(
        "5m", late="drop", allowed_lateness="1m", n=N)),
    "short": ("shorter than the lateness", lambda: signed().over(
        "5m", allowed_lateness="1m", m=N)),
    "drops retractions": ("would be dropped", lambda: signed().over("5m", late="drop", m=N)),
    "a table": ("changes of a table", lambda: lw.from_arrow(TABLE, time="at").table(
        key="k").changes().key_by("k").over("5m", n=N)),
    "by of rank": ("not the name of a column", lambda: lw.rank(by=3)),  # type: ignore[arg-type]
    "descending": ("neither True nor False", lambda: lw.rank("v", descending="yes")),  # type: ignore[arg-type]
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    text, build = REFUSED[name]
    with pytest.raises(lw.InvalidArgument, match=text) as caught:
        build()
    assert caught.value.hint


def test_a_result_called_as_an_unknown_column_is_refused_when_it_comes() -> None:
    stream = lw.from_iterable(iter([{"at": 0, "k": 1, "v": 2}]), time="at").map(dict).key_by("k")
    with pytest.raises(lw.InvalidArgument, match="column 'v' already"):
        stream.over("5m", v=N).collect()


def test_findings() -> None:
    endless = lw.check(keyed().over(rows=3, n=N))
    assert any("kept as long as the run lasts" in each.what for each in endless)
    assert not any(
        "kept as long" in each.what for each in lw.check(keyed().over(rows=3, keep="1d", n=N))
    )
    assert not any("kept as long" in each.what for each in lw.check(keyed().over("3m", n=N)))


def test_the_outline_names_all_options() -> None:
    stream = keyed().over(rows=3, order="v", keep="1d", allowed_lateness="1h", n=lw.rank(by="v"))
    text = repr(stream)
    for part in ("rows=3", "order='v'", "keep='1d'", "allowed_lateness='1h'", "rank(by='v')"):
        assert part in text


@pytest.mark.parametrize("bundle_size", sampled([100_000, 1_000], every=2))
def test_many_rows_of_one_key_and_of_many(bundle_size: int) -> None:
    """Past every chunk: against running totals of Python's own integers and fractions."""
    random = np.random.default_rng(5)
    count = 70_000
    times = np.sort(random.integers(0, 2_000_000, count))
    values = random.integers(-(2**62), 2**62, count)
    floats = random.choice([0.1, 1e16, -1e16, 1e-9, 3.5], count)
    keys = np.where(random.random(count) < 0.7, 0, random.integers(1, 3_000, count))
    table = pa.table(
        {"at": pa.array(times, pa.timestamp("us", "UTC")), "k": keys, "v": values, "f": floats}
    )
    stream = lw.from_arrow(table, time="at", watermark=lw.Ascending()).key_by("k")
    found = stream.over("300us", n=lw.count(), mean=lw.mean("v"), s=lw.sum("f"), top=lw.max("v"))
    rows = found.to_arrow(bundle_size=bundle_size).to_pylist()
    assert len(rows) == count
    wanted = {}
    by_key: dict[int, list[tuple[int, int, float]]] = {}
    for at, key, value, fraction in zip(
        times.tolist(), keys.tolist(), values.tolist(), floats.tolist(), strict=True
    ):
        by_key.setdefault(key, []).append((at, value, fraction))
    for key, some in by_key.items():
        low = high = total = 0
        exact = Fraction(0)
        for at, _, _ in some:
            while high < len(some) and some[high][0] <= at:
                total, exact = total + some[high][1], exact + Fraction(some[high][2])
                high += 1
            while some[low][0] <= at - 300:
                total, exact = total - some[low][1], exact - Fraction(some[low][2])
                low += 1
            most = max(value for _, value, _ in some[low:high])
            wanted[key, at] = (high - low, total / (high - low), float(exact), most)
    for row in rows:
        at = int(lw.Instant(row["at"]))
        assert (row["n"], row["mean"], row["s"], row["top"]) == wanted[row["k"], at]


def over_rows(values: list[Any], **options: Any) -> list[Any]:
    rows = [{"at": at, "k": "a", "v": value} for at, value in enumerate(values)]
    stream = lw.from_iterable(rows, time="at").key_by("k")
    return [row["x"] for row in stream.over(**options).collect().values()]


@pytest.mark.parametrize(
    ("values", "aggregate", "wanted"),
    [
        ([inf, 1.0, -inf, 2.0, 3.0], lw.sum("v"), [inf, inf, -inf, -inf, 5.0]),
        ([1e308, 1e308, -1e308, 1.0], lw.sum("v"), [1e308, inf, 0.0, -1e308]),
        ([2**53 + 1, 1, None, 2**53 + 1], lw.sum("v"), [2**53 + 1, 2**53 + 2, 1, 2**53 + 1]),
        ([2**53 + 1, 0.5, 1], lw.max("v"), [2**53 + 1, 2**53 + 1, 1]),
        ([None, None, 3], lw.min("v"), [None, None, 3]),
        ([True, False, True], lw.all("v"), [True, False, False]),
        ([[1], [2], [1]], lw.collect("v"), [[[1]], [[1], [2]], [[2], [1]]]),
        (["b", "a", None], lw.first("v"), ["b", "b", "a"]),
    ],
)
def test_odd_values(values: list[Any], aggregate: Any, wanted: list[Any]) -> None:
    found = over_rows(values, rows=2, x=aggregate)
    assert found == wanted


def test_the_ends_of_time() -> None:
    low = -(2**63) + 1
    rows = [{"at": at, "k": "a"} for at in (low, low + 5, 2**62, 2**62 + 1)]
    found = lw.from_iterable(rows, time="at").key_by("k").over("4us", n=lw.count()).collect()
    assert [row["n"] for row in found.values()] == [1, 1, 1, 2]


def test_a_record_beside_a_broken_one() -> None:
    rows = [
        {"at": 0, "k": "a", "v": 1},
        {"at": 1, "k": "a", "v": "one"},
        {"at": 2, "k": "a", "v": 3},
        {"at": "never", "k": "a", "v": 4},
        {"at": 3, "k": None, "v": 5},
    ]
    stream = lw.from_iterable(rows, time="at").key_by("k")
    found = stream.over("1s", x=lw.sum("v")).collect()
    assert [row["x"] for row in found.values()] == [1, 4]
    assert len(found.errors) == 3


def test_values_of_several_kinds_that_have_no_order_are_dead_letters() -> None:
    assert over_rows([1, "one", 0], rows=3, x=lw.rank(by="v")) == [1, 1]


def test_no_input() -> None:
    empty = TABLE.slice(0, 0)
    found = lw.from_arrow(empty, time="at").key_by("k").over("1s", n=N).to_arrow()
    assert found.num_rows == 0


def test_a_retraction_equals_what_was_emitted_beside_other_kinds_of_numbers() -> None:
    """Late rows bring integers and fractions into one step that came apart before."""
    rows = [("12:01", 2**53 + 1), ("12:03", 0.5), ("12:05", 1), ("12:00", 7), ("12:06", None)]
    records = [{"at": f"2024-01-01T{at}Z", "k": "a", "v": v} for at, v in rows]
    stream = lw.from_iterable(records, time="at", watermark=lw.Ascending()).key_by("k")
    sums = stream.over(
        "5m", allowed_lateness="10m", s=lw.sum("v"), mean=lw.mean("v"), var=lw.var("v", ddof=0)
    )
    elements = sums.collect(bundle_size=1).elements()
    emitted = [repr(each.value) for each in elements if each.kind == "insert"]
    retracted = [repr(each.value) for each in elements if each.kind == "retract"]
    assert retracted
    assert set(retracted) <= set(emitted)
    again = sums.key_by("k").over("5m", n=lw.count()).collect(bundle_size=1)
    assert sum(1 if each.kind == "insert" else -1 for each in again.elements()) == 5


def test_a_late_row_touches_the_rows_right_behind_it_alone() -> None:
    """Else each late row would cost all rows up to the watermark."""
    rows = [{"at": at, "k": "a", "v": at} for at in range(0, 300, 2)]
    rows += [{"at": 101, "k": "a", "v": 101}, {"at": 5_000, "k": "a", "v": 0}]
    stream = lw.from_iterable(rows, time="at", watermark=lw.Ascending()).key_by("k")
    for options in ({"rows": 3}, {"rows": 1, "before": lw.prev("v", 2)}, {"length": "5us"}):
        late = stream.over(allowed_lateness="1s", s=lw.sum("v"), **options)
        elements = late.collect(bundle_size=1).elements()
        retracted = [each.value["v"] for each in elements if each.kind == "retract"]
        assert retracted == [102, 104]
