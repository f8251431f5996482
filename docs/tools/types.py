"""Tries what becomes of each type of value, and writes ``docs/reference/types.md``.

``python -m docs.tools.types`` runs a small pipeline for each line of the page, embedded and on
Spark, and writes what came out. ``tests/docs/test_types.py`` checks that the page is current, and
``tests/spark/test_types.py`` that it is on Spark.
"""

from __future__ import annotations

import datetime as dt
import math
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

import lowwater as lw
from lowwater.errors import UnsupportedByRunner

PAGE = Path(__file__).parents[1] / "reference" / "types.md"
Outcome: TypeAlias = tuple[str, str]
"""What comes out, and the dead letters with their reasons."""
BIG = 2**53 + 1

_HEAD = """\
# What becomes of each type

<!-- Written by `python -m docs.tools.types`: change that, not this page. -->

Each line is the outcome of a test: a small pipeline reads the values, and what comes out is on the
right, with the dead letters. The rules are in [semantics](../semantics.md) (**S-B1**). All lines
but those of written files are tried on [Spark](../spark.md) too: where the last column is empty,
the outcome is the same there. It differs where Spark must know types beforehand. A type that the
first values show is then as strict as if `types=` had said it, but for floats. And a column in
memory has one type: values of several are refused, in words that name the column.

- **Null** settles no type, and is ignored by aggregates.
- **Integers** are exact: in arithmetic, sums and means, beside fractions, and in files.
- **An overflow** is a dead letter in expressions (`out_of_range`), and an error where a sum is
  emitted. Nothing wraps.
- **A durable run** of an earlier version goes on with means and variances of integers as floats,
  as they were stored, and a new one has them exactly.
"""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the page.

    Args:
        area: Its table.
        given: What is given, as text.
        what: What is done with it, as text.
        make: Makes the pipeline, in a folder of its own; or does it and returns what is there then.
        shown: Says what a row of its output shows; ``None``: it is for an embedded run alone.
        types: The types of the output that Spark cannot know.
    """

    area: str
    given: str
    what: str
    make: Callable[[Path], Any]
    shown: Callable[[Any], str] | None = None
    types: tuple[str, ...] = ()

    @property
    def is_for_spark(self) -> bool:
        """Whether it can be tried on Spark."""
        return self.shown is not None


class _Echo:
    """Emits values as user code sees them."""

    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.emit({"v": _text(record["v"])})


def lines() -> Iterator[Line]:
    """Yield all lines of the page, in order."""
    yield from _of_files()
    yield from _of_expressions()
    yield from _of_times()
    yield from _of_aggregates()
    yield from _of_keys()
    yield from _of_outputs()


def outcome(line: Line, spark: Any = None) -> Outcome:
    """Return what comes out, and the dead letters.

    Args:
        line: The line.
        spark: The session to run it on; ``None``: it runs embedded.
    """
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", lw.LowwaterWarning)
        try:
            made = line.make(Path(folder))
            if line.shown is None:
                return made, ""
            if spark is None:
                rows, told = _embedded(made, echoes=bool(line.types))
            else:
                types = dict.fromkeys(line.types, "string")
                found = _on_spark(made, types, spark, folder)
                if found is None:
                    return "the query stops", ""
                rows, told = found
        except (lw.DataError, lw.InvalidArgument, UnsupportedByRunner) as error:
            return f"{type(error).__name__}: {error.what}".replace(f"{folder}/", ""), ""
    counts = (f"{told.count(one)} {one}" for one in dict.fromkeys(sorted(told)))
    return ", ".join(map(line.shown, rows)) or "nothing", ", ".join(counts)


def page(spark: Callable[[Line, Outcome], str]) -> str:
    """Return the page as Markdown.

    Args:
        spark: Returns the last cell of a line, given what comes out of an embedded run.
    """
    parts = [_HEAD]
    area = ""
    for line in lines():
        if line.area != area:
            area = line.area
            heads = ["given", "what", "comes out", "dead letters"] + [
                "on Spark"
            ] * line.is_for_spark
            parts.append(f"\n## {area}\n\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}\n")
        found = outcome(line)
        cells = [f"`{line.given}`", line.what, f"`{found[0]}`", found[1]]
        if line.is_for_spark:
            cells.append(spark(line, found))
        parts.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n")
    return "".join(parts)


def cell_on_spark(line: Line, found: Outcome, spark: Any) -> str:
    """Return the last cell of a line: empty if the outcome on Spark is that of an embedded run."""
    other = outcome(line, spark)
    if other == found:
        return ""
    if re.match(r"[A-Z]\w+: ", other[0]):
        return "refused"
    return f"`{other[0]}`" + (f"; {other[1]}" if other[1] else "")


def last_cells() -> dict[tuple[str, str, str], str]:
    """Return the last cells of the page as it is, by table, what is given, and what is done."""
    cells: dict[tuple[str, str, str], str] = {}
    area = ""
    for text in PAGE.read_text().splitlines():
        area = text[3:] if text.startswith("## ") else area
        parts = re.split(r"(?<!\\)\|", text)[1:-1] if text.startswith("|") else []
        if len(parts) == 5:
            given, what, _, _, last = (part.replace("\\|", "|").strip() for part in parts)
            cells[area, given.strip("`"), what] = last
    return cells


def _embedded(made: Any, *, echoes: bool) -> tuple[list[Any], list[str]]:
    letters: list[Any] = []
    result = made.collect(
        on_error="dead_letter", on_dead_letter=letters.append, bundle_size=1, progress=False
    )
    rows = result.values() if echoes else [{**p.values, "k": p.key} for p in result.panes]
    return rows, [letter.reason for letter in letters]


def _on_spark(
    made: Any, types: dict[str, str], spark: Any, folder: str
) -> tuple[list[Any], list[str]] | None:
    from pyspark.errors import PySparkException

    rows: list[Any] = []
    options: dict[str, Any] = {"outputs": "all", "on_error": "dead_letter", "key_groups": 1}
    if any(Path(folder).iterdir()):
        options["files_per_batch"] = 1  # in a micro-batch the largest file comes first
    frame = made.to_spark(spark, types=types, **options)
    if frame.isStreaming:
        query = (
            frame.writeStream.foreachBatch(lambda part, _: rows.extend(part.toArrow().to_pylist()))
            .option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
        )  # fmt: skip
        try:
            query.awaitTermination()
        except PySparkException:
            return None
    else:
        try:
            rows += frame.toArrow().to_pylist()
        except PySparkException:
            return None
    told = [row["reason"] for row in rows if row["output"] == "dead_letter"]
    return [row for row in rows if row["output"] == "pane"], told


def _text(value: Any) -> str:
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else repr(value)


def _echoed(stream: lw.Stream) -> Any:
    return stream.key_by(k=lw.lit(1)).process(_Echo())


_ECHO: dict[str, Any] = {"shown": lambda row: row["v"], "types": ("v",)}


def _csv(*texts: str, **options: Any) -> Callable[[Path], Any]:
    def run(folder: Path) -> Any:
        path = folder / "in.csv"
        path.write_text("at,v\n" + "".join(f"1,{text}\n" for text in texts))
        return _echoed(lw.read_csv(path, time="at", unit="s", **options))

    return run


def _json(*texts: str, **options: Any) -> Callable[[Path], Any]:
    def run(folder: Path) -> Any:
        path = folder / "in.jsonl"
        path.write_text("".join(f'{{"at":1,"v":{text}}}\n' for text in texts))
        return _echoed(lw.read_jsonl(path, time="at", unit="s", **options))

    return run


def _parquet(*parts: pa.Array, old: bool = False) -> Callable[[Path], Any]:
    def run(folder: Path) -> Any:
        for number, part in enumerate(parts):
            table = pa.table({"at": pa.array([1] * len(part), pa.int64()), "v": part})
            path = folder / f"{number}.parquet"  # which Spark reads by their times
            pq.write_table(table, path, use_deprecated_int96_timestamps=old)
            os.utime(path, (number, number))
        return _echoed(lw.read_parquet(folder, time="at", unit="s"))

    return run


def _of_files() -> Iterator[Line]:
    csv, json, parquet = "Values of CSV", "Values of JSON lines and of Kafka", "Columns of Parquet"
    for given, options in (
        (("1", "9007199254740993", "0.5"), {}), (("1", "18446744073709551615"), {}),
        (("1", "n.a.", *["2"] * 9), {}), (("1", "NA", "null", ""), {}), (("a", "NA", "", '""'), {}),
        (("7", "0x10"), {}), (("1", "7.0"), {"types": {"v": "int64"}}), (("09:30", "10:00:01"), {}),
        (("2024-05-01 12:00:00", "2024-05-01 12:00:00.25"), {}), (("true", "False"), {}),
        (("1.10", "2.255"), {"types": {"v": pa.decimal128(9, 2)}}),
    ):  # fmt: skip
        what = f"`types={options['types']['v']}`" if options else "read"
        yield Line(csv, "; ".join(given), what, _csv(*given, **options), **_ECHO)
    for given, options in (
        (("1", "9007199254740993", "0.5"), {}), (("1", "18446744073709551616"), {}),
        (("1", '"x"'), {}), (("null", "1"), {}), (('"2024-05-01T12:00:00+02:00"',), {}),
        (('{"a":1}', '{"b":"x"}'), {}), (("[1]", "[1.5]"), {}),
        (("1", "1.5"), {"types": {"v": "int64"}}),
        (("1.10", "2"), {"types": {"v": pa.decimal128(9, 2)}}),
    ):  # fmt: skip
        what = f"`types={options['types']['v']}`" if options else "read"
        yield Line(json, "; ".join(given), what, _json(*given, **options), **_ECHO)
    naive = pa.timestamp("us")
    for name, parts, old in (
        ("null; int64", (pa.nulls(1), pa.array([BIG])), False),
        ("list<null>; list<int64>", (pa.array([[]], pa.list_(pa.null())), pa.array([[1]])), False),
        ("int64; double", (pa.array([BIG]), pa.array([0.5])), False),
        ("uint64", (pa.array([2**64 - 1], pa.uint64()),), False),
        ("INT96 9999-12-31", (pa.array([dt.datetime(9999, 12, 31)], naive),), True),  # noqa: DTZ001
        ("decimal128(5, 2)", (pa.array([Decimal("1.10")]),), False),
        ("dictionary<string>", (pa.array(["a"]).dictionary_encode(),), False),
    ):
        yield Line(parquet, name, "read", _parquet(*parts, old=old), **_ECHO)


def _computed(kind: pa.DataType, values: list[Any], expression: Any) -> Callable[[Path], Any]:
    def run(_folder: Path) -> Any:
        table = pa.table(
            {"at": pa.array([1] * len(values), pa.int64()), "x": pa.array(values, kind)}
        )
        return _echoed(lw.from_arrow(table, time="at", unit="s").with_columns(v=expression))

    return run


def _of_expressions() -> Iterator[Line]:
    x = lw.col("x")
    most = 2**63 - 1
    for kind, values, text, expression in (
        (pa.int32(), [2**31 - 1], "x * x", x * x), (pa.uint8(), [0], "x - 1", x - 1),
        (pa.int64(), [1, most], "x + 1", x + 1), (pa.int64(), [3, most], "x ** 2", x**2),
        (pa.uint64(), [1, 2**64 - 1], "x", x), (pa.uint64(), [1, 2**64 - 1], "x + 0", x + 0),
        (pa.uint64(), [1, 2**64 - 1], "x > 1", x > 1), (pa.int64(), [7, None], "x // 2", x // 2),
        (pa.int64(), [7, 0], "x // 0", x // 0), (pa.int64(), [7, 0], "x / 0", x / 0),
        (pa.int64(), [-7], "x % 3", x % 3), (pa.int64(), [1, BIG], "x / 1e9", x / 1e9),
        (pa.float64(), [1e308], "x * 10", x * 10), (pa.int64(), [BIG], "x > 2.0**53", x > 2.0**53),
        (pa.decimal128(3, 2), [Decimal("1.10")], "x * 2", x * 2),
        (pa.decimal128(3, 2), [Decimal("1.10")], "x > 1.1", x > 1.1),
        (pa.decimal128(3, 2), [Decimal("1.10")], "x * 0.5", x * 0.5),
    ):  # fmt: skip
        given = f"{kind}: {', '.join(map(str, values))}"
        made = _computed(kind, values, expression)
        yield Line("Expressions", given, f"`{text}`", made, **_ECHO)


def _of_times() -> Iterator[Line]:
    x, most = lw.col("x"), 2**63 - 1
    far = dt.datetime(9999, 12, 31)  # noqa: DTZ001
    micros, lasts, lists = pa.timestamp("us"), pa.duration("us"), pa.list_(pa.int64())
    for kind, values, text, expression in (
        (micros, [far], 'x.dt.timestamp("ns")', x.dt.timestamp("ns")),
        (micros, [far], 'x.dt.timestamp("us")', x.dt.timestamp("us")),
        (micros, [far], "x - x", x - x), (lasts, [1, most], "x * 2", x * 2),
        (lasts, [1, most], "x.dt.total_nanoseconds()", x.dt.total_nanoseconds()),
        (lists, [[1, None], [most, 1]], "x.list.sum()", x.list.sum()),
    ):  # fmt: skip
        given = f"{kind}: {', '.join(map(_text, values))}"
        yield Line("Expressions of times and lists", given, f"`{text}`",
                   _computed(kind, values, expression), **_ECHO)  # fmt: skip


def _aggregated(values: list[Any], spec: Any) -> Callable[[Path], Any]:
    def run(_folder: Path) -> Any:
        rows = [{"at": at, "k": 1, "v": value} for at, value in enumerate(values)]
        keyed = lw.from_iterable(rows, time="at", unit="us").key_by("k")
        return keyed.window(lw.FixedWindows("1h")).aggregate(r=spec)

    return run


def _of_aggregates() -> Iterator[Line]:
    wide, cents = 2**62, [Decimal("1.10"), Decimal("0.05"), Decimal("-0.01")]
    odd = [Decimal("1.5"), Decimal("NaN"), 2.5, 2]
    noon = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
    for values, name in (
        ([1, 2, None], "sum"), ([wide, wide, -wide], "sum"), ([wide, wide], "sum"),
        ([1, 0.5], "sum"), ([True, False, True], "sum"), (cents, "sum"), (odd, "sum"),
        ([1.5, math.nan, math.inf], "sum"), (["a", 1], "sum"), ([], "sum"),
        ([BIG, 1, -(2**53)], "mean"), ([1, 2], "mean"), (cents, "mean"), ([None], "mean"),
        ([1_700_000_000_000_000_000 + 100 * at for at in range(3)], "var"), ([0.1, 0.2], "var"),
        (cents, "var"), ([1], "std"), ([BIG, 1.5], "max"), ([2**64 - 1, 1], "max"),
        (["b", "a", None], "max"), ([noon, noon + dt.timedelta(1)], "max"), (cents, "min"),
        ([[1, 2], [1, 3]], "max"), ([{"a": 1}], "max"), ([BIG, 1.5, None], "collect"),
        ([1, 1.0, True, "1"], "collect_set"), ([{"a": 1}, [2]], "last"), ([2**70, 1], "collect"),
    ):  # fmt: skip
        given = ", ".join(map(_text, values)) or "no record"
        made = _aggregated(values, getattr(lw, name)("v"))
        yield Line("Aggregates", given, f"`{name}`", made, lambda row: _text(row["r"]))
    for values, spec in (
        ([BIG, float(2**53), 1], lw.top(2, by="v")), (["b", None, "é"], lw.top(1, by="v")),
        ([1, 1.0, True, "1", None], lw.most_frequent("v")), (cents, lw.median("v")),
        ([3, 1, 2, None], lw.quantile("v", [0, 0.5, 1])), ([0.0, -8.0, 1e12], lw.approx_quantile(
            "v", [0, 0.5, 1])), (cents, lw.approx_quantile("v", 0.5)),
        ([1.0, math.nan], lw.median("v")), ([1, 1.0, "", None], lw.approx_count_distinct("v")),
        ([1, None, 3], lw.count(where=lw.col("v") > 1)), ([1, 2**62], lw.count(
            where=lw.col("v") * 4 > 1)), ([1, 2], lw.count(where=lw.col("v"))),
    ):  # fmt: skip
        given = ", ".join(map(_text, values))
        made = _aggregated(values, spec)
        yield Line("Aggregates", given, f"`{spec!r}`", made, lambda row: _text(row["r"]))


def _keyed(values: list[Any]) -> Callable[[Path], Any]:
    def run(_folder: Path) -> Any:
        rows = [{"at": at, "k": value} for at, value in enumerate(values)]
        keyed = lw.from_iterable(rows, time="at", unit="us").key_by("k")
        return keyed.window(lw.FixedWindows("1h")).aggregate(n=lw.count())

    return run


def _of_keys() -> Iterator[Line]:
    for values in (
        [1, 1.0, True, Decimal(1)], [BIG, float(2**53)], [2**64 - 1, 2**64], ["a", "A", b"a"],
        [None, math.nan, 1], [(1, "a"), (1, "a")], [[1], {"a": 1}, "a"], [dt.date(2024, 5, 1)],
    ):  # fmt: skip
        given = ", ".join(map(_text, values))
        shown: Callable[[Any], str] = lambda row: f"{_text(row['k'])}: {row['n']}"  # noqa: E731
        yield Line("Keys", given, "`key_by`", _keyed(values), shown)


class _Same:
    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.emit({"v": record["v"]})


def _written(value: Any, form: str) -> Callable[[Path], Any]:
    def run(folder: Path) -> Any:
        rows = [{"at": 1, "k": 1, "v": value}]
        stage = lw.from_iterable(rows, time="at", unit="s").key_by("k").process(_Same())
        if form == "jsonl":
            stage.write_jsonl(folder / "out.jsonl").run(progress=False)
            text = (folder / "out.jsonl").read_text()
            return text.partition('"v":')[2].partition(', "timestamp"')[0].strip()
        stage.write_parquet(folder / "out").run(progress=False)
        return str(pq.read_table(folder / "out").schema.field("v").type)

    return run


def _of_outputs() -> Iterator[Line]:
    zone = dt.timezone(dt.timedelta(hours=2))
    for value in (
        BIG, 2**64 - 1, 0.1, math.inf, math.nan, Decimal("1.10"), b"\xff",
        dt.datetime(2024, 5, 1, 12, tzinfo=zone), dt.date(2024, 5, 1), dt.timedelta(seconds=5),
        {"a": [1, None]}, {1: "x"}, (1, "a"),
    ):  # fmt: skip
        yield Line("Files that are written", _text(value), "JSON lines", _written(value, "jsonl"))
        yield Line("Files that are written", _text(value), "Parquet", _written(value, "parquet"))


if __name__ == "__main__":
    from lowwater.spark.session import local_session

    with tempfile.TemporaryDirectory() as place, local_session("types", Path(place)) as session:
        PAGE.write_text(page(lambda line, found: cell_on_spark(line, found, session)))
