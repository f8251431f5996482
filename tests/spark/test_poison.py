"""S-B1 on Spark: a value that a later part cannot hold costs its own record, and no query stops.

The columns that Spark reads have types, so the poison enters where Python makes values: at steps,
at keys, at aggregates and in processes.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.spark.messages import record_text
from tests.spark.test_to_spark import SECOND, START

pytestmark = [
    pytest.mark.long(reason="proves again on Spark"),
    pytest.mark.filterwarnings("ignore::lowwater.errors.LowwaterWarning"),
]
SOUND = 24
POISON = 1000
"""The number of the first poison record."""
VALUES: list[Any] = [
    10**30,
    "\ud800",
    Fraction(1, 3),
    ipaddress.IPv4Address("10.0.0.1"),
    {"a": 10**30},
    "n/a",
    math.nan,
    [1, "x"],
]
UNSTORABLE = 5
"""How many of them, from the first on, nothing can hold."""
Build = Callable[[Any], Any]


def records(poison: int) -> list[dict[str, Any]]:
    """Return sound records and, amid them, one for each of some values, with a key of its own."""
    sound = [{"k": f"k{n % 3}", "n": n} for n in range(SOUND)]
    odd = [{"k": f"odd {at}", "n": POISON + at} for at in range(poison)]
    together = [*sound[:7], *odd, *sound[7:]]
    return [{"at": START + at * SECOND, **record} for at, record in enumerate(together)]


def value_of(number: int) -> Any:
    return VALUES[number - POISON] if number >= POISON else number


def valued(record: Any) -> Any:
    return {**record, "v": value_of(record["n"])}


def value_as_key(record: Any) -> Any:
    value = value_of(record["n"])
    return f"k{value % 3}" if record["n"] < POISON else value


def is_small(record: Any) -> bool:
    return bool(value_of(record["n"]) < 100)


class Holds:
    """Emits the value of each record that comes to it."""

    seen = lw.value_cell(0)

    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.seen.set(ctx.seen.get() + 1)
        ctx.emit({"m": record["n"], "x": record["v"], "seen": ctx.seen.get()})


class Makes:
    """Emits a value that was not in the record."""

    seen = lw.value_cell(0)

    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.seen.set(ctx.seen.get() + 1)
        ctx.emit({"m": record["n"], "x": value_of(record["n"]), "seen": ctx.seen.get()})


def windows(keyed: Any) -> Any:
    return keyed.window(lw.FixedWindows("1h"))


EMITTED = {"k": "string", "m": "bigint", "x": "bigint", "seen": "bigint"}
PLACES: dict[str, tuple[Build, dict[str, str]]] = {
    "expression": (
        lambda s: windows(s.map(valued).with_columns(w=lw.col("v") * 2 - 1).key_by("k")).aggregate(
            c=lw.count(), total=lw.sum("w")
        ),
        {"k": "string", "c": "bigint", "total": "bigint"},
    ),
    "filter": (
        lambda s: windows(s.filter(is_small).key_by("k")).aggregate(c=lw.count()),
        {"k": "string", "c": "bigint"},
    ),
    "key": (
        lambda s: windows(s.key_by(value_as_key)).aggregate(c=lw.count()),
        {"key": "string", "c": "bigint"},
    ),
    "aggregate": (
        lambda s: windows(s.map(valued).key_by("k")).aggregate(
            c=lw.count(), total=lw.sum("v"), most=lw.max("v")
        ),
        {"k": "string", "c": "bigint", "total": "bigint", "most": "bigint"},
    ),
    "staged": (
        lambda s: windows(s.key_by("k").process(Makes()).key_by("m")).aggregate(
            c=lw.count(), most=lw.max("x")
        ),
        {"m": "bigint", "c": "bigint", "most": "bigint"},
    ),
    "held": (
        lambda s: s.map(valued).key_by("k").process(Holds()),
        EMITTED,
    ),
    "emitted": (
        lambda s: s.key_by("k").process(Makes()),
        EMITTED,
    ),
}


LETTERS = {
    "expression": 8,
    "filter": 5,
    "key": 7,
    "aggregate": 8,
    "staged": 5,
    "held": 5,
    "emitted": 5,
}


def embedded(build: Build, poison: int) -> tuple[list[str], list[tuple[str, str, str]]]:
    """Return what comes out of the embedded run and its dead letters, in order of their text."""
    data = pa.Table.from_pylist(records(poison))
    result = build(lw.from_arrow(data, time="at")).collect(on_error="dead_letter")
    (key,) = result._stage.key_names
    if result._stage.work.emits_panes:
        out = [{key: pane.key, **pane.values} for pane in result.panes]
    else:
        out = [{"k": one.key, **one.value} for one in result.elements()]
    letters = [(e.reason, e.detail, record_text(e.record)) for e in result.errors]
    return sorted(map(repr, out)), sorted(letters)


@pytest.mark.parametrize("name", PLACES)
def test_a_poison_record_costs_itself_alone(spark: Any, name: str) -> None:
    """Values, emitted records and dead letters are those of the embedded run."""
    build, types = PLACES[name]
    # A column of Spark's has one type, so what is emitted at the end is of one or unstorable.
    poison = UNSTORABLE if name in {"staged", "held", "emitted"} else len(VALUES)
    wanted, letters = embedded(build, poison)
    assert len(letters) == LETTERS[name]
    assert not set(embedded(build, 0)[0]) - set(wanted)
    data = spark.createDataFrame(pa.Table.from_pylist(records(poison)))
    made = build(lw.from_spark(data, time="at"))
    rows = made.to_spark(spark, outputs="all", on_error="dead_letter", types=types)
    got = rows.toArrow().to_pylist()
    fields = list(types)
    assert (
        sorted(repr({one: row[one] for one in fields}) for row in got if row["output"] == "pane")
        == wanted
    )
    assert (
        sorted(
            (row["reason"], row["detail"], row["record"])
            for row in got
            if row["output"] == "dead_letter"
        )
        == letters
    )
    if name == "emitted":
        with pytest.raises(Exception, match=r"a record is invalid \(unstorable\): x=1000"):
            made.to_spark(spark, on_error="raise", types=types).toArrow()


class Mixes:
    """Emits an integer, or for some records what is none."""

    others: ClassVar[dict[int, Any]] = {3: "text", 4: 2.5, 5: None, 6: [1], 7: 2**53 + 1}

    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.emit({"m": record["n"], "x": self.others.get(record["n"], record["n"])})


def test_an_emitted_value_of_another_type_than_declared_costs_itself_alone(spark: Any) -> None:
    at = [n * 1_000_000 for n in range(20)]
    table = pa.table(
        {
            "at": pa.array(at).cast(pa.timestamp("us", "UTC")),
            "k": [str(n % 3) for n in range(20)],
            "n": range(20),
        }
    )
    made = lw.from_spark(spark.createDataFrame(table), time="at").key_by("k").process(Mixes())
    types = {"k": "string", "m": "bigint", "x": "bigint"}
    got = made.to_spark(spark, outputs="all", on_error="dead_letter", types=types).toArrow()
    rows = got.to_pylist()
    held = {row["m"]: row["x"] for row in rows if row["output"] == "pane"}
    assert held == {n: Mixes.others.get(n, n) for n in range(20) if n not in (3, 4, 6)}
    letters = sorted((row["reason"], row["detail"]) for row in rows if row["reason"])
    assert [reason for reason, _ in letters] == ["wrong_type"] * 3
    assert [detail.partition(" is not ")[0] for _, detail in letters] == [
        "x='text' (str)", "x=2.5 (float)", "x=[1] (list)",
    ]  # fmt: skip
    with pytest.raises(Exception, match="does not fit: x="):
        made.to_spark(spark, on_error="raise", types=types).toArrow()
