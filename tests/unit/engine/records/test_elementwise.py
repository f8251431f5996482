"""Expressions that look beyond their row are refused; all others are what each row gives alone.

Every method of narwhals' expressions is listed here, so that a new one has to be judged.
"""

# ruff: noqa: PLW0108 - a case makes its expression when it runs, after warnings are filtered

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from typing import Any

import narwhals as nw
import narwhals.selectors as ncs
import numpy as np
import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.engine.records.batch import Records
from lowwater.engine.records.elementwise import check_within_row
from lowwater.engine.records.evaluation import evaluated
from lowwater.engine.records.expressions import Expressions

Case = Callable[[], nw.Expr]


def i() -> Any:
    return lw.col("i")


def f() -> Any:
    return nw.col("f")  # an expression may also be one of narwhals itself


def s() -> Any:
    return lw.col("s")


def t() -> Any:
    return lw.col("t")


def ls() -> Any:
    return lw.col("ls")


WITHIN: dict[str, list[Case]] = {
    "abs": [lambda: i().abs()],
    "alias": [lambda: i().alias("other")],
    "cast": [lambda: f().cast(nw.Int64), lambda: s().cast(nw.Float64), lambda: i().cast(nw.String)],
    "ceil": [lambda: f().ceil()],
    "clip": [lambda: i().clip(0, 5), lambda: f().clip(i(), None)],
    "cos": [lambda: f().cos()],
    "exp": [lambda: f().exp()],
    "fill_nan": [lambda: f().fill_nan(0.5)],
    "fill_null": [lambda: i().fill_null(7), lambda: i().fill_null(nw.col("n"))],
    "floor": [lambda: f().floor()],
    "is_between": [lambda: i().is_between(0, 5), lambda: f().is_between(i(), 9)],
    "is_close": [lambda: f().is_close(1.5), lambda: f().is_close(i())],
    "is_finite": [lambda: f().is_finite()],
    "is_in": [lambda: i().is_in([1, 2]), lambda: s().is_in(["a", "7"])],
    "is_nan": [lambda: f().is_nan()],
    "is_null": [lambda: i().is_null()],
    "log": [lambda: f().log()],
    "pipe": [lambda: i().pipe(lambda one: one + 1)],
    "replace_strict": [lambda: i().replace_strict([1, 2], [10, 20])],
    "round": [lambda: f().round(1)],
    "sin": [lambda: f().sin()],
    "sqrt": [lambda: f().sqrt()],
    "str.contains": [lambda: s().str.contains("a")],
    "str.ends_with": [lambda: s().str.ends_with("a")],
    "str.extract": [
        lambda: s().str.extract("a|(b)"), lambda: s().str.extract("(?:-(.*))?"),
    ],
    "str.head": [lambda: s().str.head(2)],
    "str.len_chars": [lambda: s().str.len_chars()],
    "str.pad_end": [lambda: s().str.pad_end(9)],
    "str.pad_start": [lambda: s().str.pad_start(9)],
    "str.replace": [lambda: s().str.replace("a", "b")],
    "str.replace_all": [lambda: s().str.replace_all("a", "b")],
    "str.slice": [lambda: s().str.slice(1, 2)],
    "str.split": [lambda: s().str.split("-")],
    "str.starts_with": [lambda: s().str.starts_with("2")],
    "str.strip_chars": [lambda: s().str.strip_chars()],
    "str.strip_chars_end": [lambda: s().str.strip_chars_end()],
    "str.strip_chars_start": [lambda: s().str.strip_chars_start()],
    "str.tail": [lambda: s().str.tail(2)],
    "str.to_date": [lambda: s().str.to_date("%Y-%m-%d"), lambda: s().str.to_date()],
    "str.to_datetime": [lambda: s().str.to_datetime("%Y-%m-%d"), lambda: s().str.to_datetime()],
    "str.to_lowercase": [lambda: s().str.to_lowercase()],
    "str.to_time": [lambda: s().str.to_time("%H:%M:%S")],
    "str.to_titlecase": [lambda: s().str.to_titlecase()],
    "str.to_uppercase": [lambda: s().str.to_uppercase()],
    "str.zfill": [lambda: s().str.zfill(9)],
    "dt.convert_time_zone": [lambda: nw.col("z").dt.convert_time_zone("Asia/Tokyo")],
    "dt.offset_by": [lambda: t().dt.offset_by("1mo")],
    "dt.replace_time_zone": [lambda: t().dt.replace_time_zone("Europe/Amsterdam")],
    "dt.timestamp": [lambda: t().dt.timestamp("ms")],
    "dt.to_string": [lambda: t().dt.to_string("%Y/%m/%d")],
    "dt.truncate": [lambda: t().dt.truncate("1h")],
    **{
        f"dt.{name}": [lambda name=name: getattr(t().dt, name)()]  # type: ignore[misc]
        for name in (
            "date", "day", "hour", "microsecond", "millisecond", "minute", "month", "nanosecond",
            "ordinal_day", "second", "weekday", "year",
        )
    },
    **{
        f"dt.total_{name}": [lambda name=name: getattr(lw.col("d").dt, f"total_{name}")()]  # type: ignore[misc]
        for name in ("microseconds", "milliseconds", "minutes", "nanoseconds", "seconds")
    },
    "list.contains": [lambda: ls().list.contains(2)],
    "list.get": [lambda: ls().list.get(0)],
    **{
        f"list.{name}": [lambda name=name: getattr(ls().list, name)()]  # type: ignore[misc]
        for name in ("len", "max", "mean", "median", "min", "sort", "sum", "unique")
    },
    "map.get": [lambda: lw.col("m").map.get("a")],
    "name.keep": [lambda: i().name.keep()],
    "name.map": [lambda: i().name.map(str.upper)],
    "name.prefix": [lambda: i().name.prefix("x")],
    "name.suffix": [lambda: i().name.suffix("x")],
    "name.to_lowercase": [lambda: i().name.to_lowercase()],
    "name.to_uppercase": [lambda: i().name.to_uppercase()],
    "struct.field": [lambda: lw.col("st").struct.field("a")],
    "all": [lambda: nw.all().is_null()],
    "all_horizontal": [lambda: nw.all_horizontal(i() > 1, f() > 0, ignore_nulls=False)],
    "any_horizontal": [lambda: nw.any_horizontal(i() > 1, f() > 0, ignore_nulls=True)],
    "coalesce": [lambda: nw.coalesce(i(), nw.col("n"))],
    "concat_str": [lambda: nw.concat_str(s(), nw.lit("x"), separator="-")],
    "exclude": [lambda: nw.exclude("f", "i", "t", "z", "d", "ls", "m", "st").is_null()],
    "format": [lambda: nw.format("{}!", s())],
    "list": [lambda: nw.list(i(), nw.col("n"))],
    "lit": [lambda: lw.lit(7), lambda: nw.lit("x")],
    "max_horizontal": [lambda: nw.max_horizontal(i(), nw.col("n"))],
    "mean_horizontal": [lambda: nw.mean_horizontal(i(), f())],
    "min_horizontal": [lambda: nw.min_horizontal(i(), f())],
    "nth": [lambda: nw.nth(0) + 1],
    "selectors": [lambda: ncs.numeric() * 2],
    "struct": [lambda: nw.struct(i(), s())],
    "sum_horizontal": [lambda: nw.sum_horizontal(i(), f())],
    "when": [
        lambda: nw.when(i() > 1).then(f()).otherwise(0.5), lambda: nw.when(i() > 1).then(2),
        lambda: lw.when(i() > 1, f(), 0.5), lambda: lw.when(s() == "a", "b"),
    ],
    "+": [lambda: i() + f(), lambda: 1 + i(), lambda: i() - f(), lambda: 1 - i()],
    "*": [lambda: i() * 2, lambda: i() / 3, lambda: 3 / i(), lambda: i() / 1e9, lambda: f() / i()],
    "//": [lambda: i() // 3, lambda: 7 // i(), lambda: i() % 3, lambda: f() // i()],
    "**": [lambda: i() ** 2, lambda: i() ** -1, lambda: 2 ** i(), lambda: f() ** 0.5],
    "<": [lambda: i() < f(), lambda: i() >= 2, lambda: s() == "a", lambda: i() != nw.col("n")],
    "&": [lambda: (i() > 1) & (f() > 0), lambda: ~(i() > 1) | (f() > 0), lambda: -f()],
}  # fmt: skip

BEYOND: dict[str, list[Case]] = {
    **{
        name: [lambda name=name: getattr(i(), name)()]  # type: ignore[misc]
        for name in (
            "all", "any", "any_value", "count", "cum_count", "cum_max", "cum_min", "cum_prod",
            "cum_sum", "diff", "drop_nulls", "first", "is_duplicated", "is_first_distinct",
            "is_last_distinct", "is_unique", "kurtosis", "last", "len", "max", "mean", "median",
            "min", "mode", "n_unique", "null_count", "rank", "skew", "std", "sum", "unique", "var",
        )
    },
    **{
        name: [lambda name=name: getattr(f(), name)(3)]  # type: ignore[misc]
        for name in ("rolling_mean", "rolling_std", "rolling_sum", "rolling_var")
    },
    "ewm_mean": [lambda: f().ewm_mean(span=2)],
    "filter": [lambda: i().filter(i() > 1)],
    "fill_null": [lambda: i().fill_null(strategy="forward"), lambda: i().fill_null(i().max())],
    "map_batches": [lambda: i().map_batches(lambda one: one)],
    "over": [lambda: i().sum().over("s"), lambda: i().cum_sum().over(order_by="i")],
    "quantile": [lambda: i().quantile(0.5, interpolation="nearest")],
    "shift": [lambda: i().shift(1)],
    "cat.get_categories": [lambda: s().cat.get_categories()],
    "functions": [
        lambda: nw.len(), lambda: nw.sum("i"), lambda: nw.mean("i"), lambda: nw.min("i"),
        lambda: nw.max("i"), lambda: nw.median("i"), lambda: nw.corr("i", "f"),
        lambda: nw.cov("i", "f"),
    ],
    "inside": [
        lambda: i() - i().mean(),
        lambda: nw.when(i() > i().max()).then(1),
        lambda: nw.when(i() > 1).then(1).otherwise(f().sum()),
        lambda: i().clip(f().min(), 3),
        lambda: i().is_between(0, i().max()),
        lambda: nw.coalesce(i(), i().shift(1)),
        lambda: nw.max_horizontal(i(), nw.col("n").cum_sum()),
        lambda: nw.concat_str(s(), s().shift(1)),
        lambda: (i() + 1).is_in([1]) & i().is_unique(),
        lambda: nw.all().sum(),
        lambda: i() + nw.from_native(pa.chunked_array([[1, 2]]), series_only=True),
        lambda: s().str.strip_chars().str.to_datetime(),
    ],
}  # fmt: skip

NAMESPACES = ("cat", "dt", "list", "map", "name", "str", "struct")
NOT_EXPRESSIONS = {
    "col", "concat", "dependencies", "dtypes", "exceptions", "from_arrow", "from_dict",
    "from_dicts", "from_native", "from_numpy", "generate_temporary_column_name",
    "get_native_namespace", "is_ordered_categorical", "maybe_align_index", "maybe_convert_dtypes",
    "maybe_get_index", "maybe_reset_index", "maybe_set_index", "narwhalify", "new_series",
    "read_csv", "read_parquet", "scan_csv", "scan_parquet", "show_versions", "to_native",
    "to_py_scalar", "corr", "cov",
}  # fmt: skip


def rows() -> list[dict[str, Any]]:
    numbers = [0, 1, 2, 5, -7, None, 2**53 + 1, -(2**62), 2**31]
    floats = [0.0, 1.5, -2.25, None, math.nan, math.inf, 1e300, 7.0, 0.1]
    texts = [
        "a",
        "7",
        "-3.5",
        None,
        "2000-01-31",
        "2000-02-01",
        "01-02-2000",
        "12:30:00",
        "é b",
        "",
    ]
    zone = dt.UTC
    plain = [dt.datetime(2000, 3, 26, 2, 30, tzinfo=zone), dt.datetime(1969, 12, 31, tzinfo=zone)]
    times = [*(time.replace(tzinfo=None) for time in plain), None]
    return [
        {
            "i": numbers[n % 9],
            "n": numbers[n % 5],
            "f": floats[n % 9 - n // 9],
            "s": texts[n % 10],
            "t": times[n % 3],
            "z": None if n % 7 == 3 else dt.datetime(2000, 1, 1 + n % 28, tzinfo=zone),
            "d": None if n % 5 == 3 else dt.timedelta(seconds=n * 1001, microseconds=n),
            "ls": [[1, 2, 2], [], None, [3, None]][n % 4],
            "m": [("a", n)] if n % 3 else [],
            "st": None if n % 6 == 5 else {"a": n},
        }
        for n in range(len(texts))  # each value of each list
    ]


TYPES = pa.schema(
    [
        ("i", pa.int64()), ("n", pa.int64()), ("f", pa.float64()), ("s", pa.string()),
        ("t", pa.timestamp("us")), ("z", pa.timestamp("us", "UTC")), ("d", pa.duration("us")),
        ("ls", pa.list_(pa.int64())), ("m", pa.map_(pa.string(), pa.int64())),
        ("st", pa.struct([("a", pa.int64())])),
    ]
)  # fmt: skip
BATCH = pa.RecordBatch.from_pylist(rows(), schema=TYPES)


def outcome(batch: pa.RecordBatch, expression: Any) -> dict[int, Any]:
    """Return the values of an expression by row; ``None`` where it fails."""
    done = evaluated("select", Records.from_arrow(batch), Expressions((expression,)))
    left = np.arange(len(batch)) if done.rows is None else done.rows
    columns = {name: column.to_list(exact=True) for name, column in done.columns.items()}
    found: dict[int, Any] = dict.fromkeys(range(len(batch)))
    for at, row in enumerate(left.tolist()):
        found[row] = {name: repr(values[at]) for name, values in columns.items()}
    return found


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", WITHIN)
def test_an_accepted_expression_has_the_value_that_each_row_gives_alone(name: str) -> None:
    for case in WITHIN[name]:
        expression = case()
        check_within_row(expression, "select")
        alone: dict[int, Any] = {}
        for row in range(len(BATCH)):
            (alone[row],) = outcome(BATCH.slice(row, 1), expression).values()
        assert outcome(BATCH, expression) == alone, expression


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", BEYOND)
def test_an_expression_that_looks_beyond_its_row_is_refused_when_built(name: str) -> None:
    stream = lw.from_arrow(pa.table({"t": [1], "i": [1], "f": [1.0], "s": ["a"]}), time="t")
    table = stream.table(key="s")
    for case in BEYOND[name]:
        expression = case()
        for build in (
            lambda one: stream.with_columns(x=one),
            lambda one: stream.with_columns(one),
            lambda one: stream.select(one),
            lambda one: stream.filter(one),
            lambda one: stream.key_by(x=one),
            lambda one: stream.table(key="s", deleted=one),
            lambda one: table.filter(one),
            lambda one: table.with_columns(x=one),
            lambda one: table.select("s", x=one),
        ):
            with pytest.raises(lw.InvalidArgument, match=r"other records|a Series"):
                build(expression)


def test_every_method_of_narwhals_is_judged() -> None:
    known = {*WITHIN, *BEYOND}
    methods = {name for name in dir(nw.Expr) if not name.startswith("_")} - set(NAMESPACES)
    for space in NAMESPACES:
        kind = type(getattr(nw.col("i"), space))
        methods |= {f"{space}.{name}" for name in dir(kind) if not name.startswith("_")}
    assert methods - known == set()
    functions = {name for name in nw.__all__ if name[0].islower()} - NOT_EXPRESSIONS
    assert functions - known == set()


@pytest.mark.parametrize(
    ("expression", "way"),
    [
        (lambda: i() - i().mean(), "window"),
        (lambda: i().cum_sum(), "process"),
        (lambda: i().shift(1), "process"),
        (lambda: i().rolling_mean(3), "process"),
        (lambda: i().is_duplicated(), "deduplicate"),
        (lambda: nw.len(), "aggregate"),
        (lambda: i().map_batches(lambda one: one), "map"),
        (lambda: s().str.strip_chars().str.to_datetime(), "%Y"),
    ],
)
def test_a_refusal_names_the_way_to_do_it(expression: Case, way: str) -> None:
    stream = lw.from_iterable([{"t": 1, "i": 1, "s": "a"}], time="t")
    with pytest.raises(lw.InvalidArgument) as refused:
        stream.with_columns(x=expression())
    assert way in (refused.value.hint or "")


def test_narwhals_without_a_list_of_operations_is_judged_by_its_own_word() -> None:
    """Narwhals 2.0 to 2.9 say of a whole expression whether it is elementwise."""

    class Metadata:
        def __init__(self, is_elementwise: bool) -> None:
            self.is_elementwise = is_elementwise

    class Older:
        def __init__(self, is_elementwise: bool) -> None:
            self._metadata = Metadata(is_elementwise)

    check_within_row(Older(True), "filter")
    for unknown in (Older(False), object()):
        with pytest.raises(lw.InvalidArgument, match="other records"):
            check_within_row(unknown, "filter")
