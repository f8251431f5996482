"""Records for which a step fails: each is one dead letter, and changes nothing for the others."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import narwhals as nw
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lowwater as lw
from lowwater.io.sinks import SqliteTable
from tests.unit.engine.local.durable_runs import Stopped, stopping

V = lw.col("v")


class Emit:
    """Emits each record as it is."""

    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.emit(dict(record))


def stream(values: list[Any], **options: Any) -> Any:
    rows = [{"at": n, "k": n % 2, "n": n, "v": value} for n, value in enumerate(values)]
    return lw.from_iterable(rows, time="at", unit="s", clock=lw.ManualClock(0), **options)


def parsed(record: Any) -> Any:
    text = record["v"]
    return {**record, "v": int(text) if isinstance(text, str) and text.isdigit() else text}


EXPRESSIONS: dict[str, tuple[list[Any], Callable[[Any], Any], set[int]]] = {
    "a type behind a map": (["1", "n/a", "3", "4"], lambda s: s.map(parsed).filter(V >= 0), {1}),
    "mixed types": ([1, 2.5, "x", None, 2**53 + 1], lambda s: s.with_columns(x=V * 2), {2}),
    "a cast": (["1", "", "2", None], lambda s: s.with_columns(x=V.cast(nw.Int64)), {1}),
    "a date": (
        ["2000-01-31", "31.1.", "2000-02-01"],
        lambda s: s.select("at", "k", "n", x=V.str.to_datetime("%Y-%m-%d")),
        {1},
    ),
    "a power": ([1.0, 2, 0.5, 3], lambda s: s.with_columns(x=V**-1), {1, 3}),
    "a large integer": ([1, 2**53 + 1, 3], lambda s: s.with_columns(x=V.clip(0.5, 1e30)), {1}),
    "beyond 64 bits": ([2**63, -1, 2**70], lambda s: s.filter(V >= 0), {2}),
    "half a surrogate": (["a", "\ud800"], lambda s: s.filter(V.str.len_chars() > 0), {1}),
    "a lookup": (["a", "b", "c"], lambda s: s.with_columns(x=V.replace_strict(["a"], [1])), {1, 2}),
    "a key": (["1", "x", "3"], lambda s: s.with_columns(k=V.cast(nw.Int64) % 2), {1}),
    "two steps": (
        ["1", "x", "-3", "y", "5"],
        lambda s: s.with_columns(x=V.cast(nw.Int64)).filter(2 ** nw.col("x") > 0),
        {1, 2, 3},
    ),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_a_record_for_which_an_expression_fails_is_a_dead_letter_alone(name: str) -> None:
    values, steps, bad = EXPRESSIONS[name]
    seen = []
    for size in (1, 2, 100):
        found = (
            steps(stream(values))
            .key_by("k")
            .process(Emit())
            .collect(bundle_size=size, on_error="dead_letter")
        )
        letters = [(error.record["n"], error.reason) for error in found.errors]
        assert letters == [(n, "bad_expression") for n in sorted(bad)], size
        assert all("col(" in error.detail for error in found.errors)
        assert found.metrics.errors == {"bad_expression": len(bad)}
        seen.append(sorted(map(repr, found.values())))
    assert seen[0] == seen[1] == seen[2]


def test_the_first_of_several_is_named_when_errors_are_raised(tmp_path: Path) -> None:
    pq.write_table(pa.table({"at": range(4), "v": ["1", "x", "y", "4"]}), tmp_path / "a.parquet")
    counts = (
        lw.read_parquet(tmp_path / "a.parquet", time="at", unit="s")
        .with_columns(x=V.cast(nw.Int64) + 1)
        .key_by("v")
        .window(lw.FixedWindows("1m"))
        .aggregate(n=lw.count())
    )
    with pytest.raises(lw.DataError) as stopped_by:
        counts.collect(on_error="raise")
    error = stopped_by.value
    assert "bad_expression" in error.what
    assert "col(v).cast(dtype=Int64).__add__(1)" in error.what
    assert "'x'" in error.what
    assert error.where is not None
    assert "a.parquet" in error.where
    assert "row 1" in error.where
    letters = counts.collect(on_error="dead_letter").errors
    assert [letter.where and letter.where[-5:] for letter in letters] == ["row 1", "row 2"]


def test_a_run_of_which_nothing_is_admitted_stops_with_the_expression() -> None:
    counts = stream(["a", "b"]).filter(V > 0).key_by("k").process(Emit())
    with pytest.raises(lw.DataError, match=r"bad_expression.*col\(v\).__gt__\(0\) failed"):
        counts.collect()
    table = pa.table({"at": [1], "v": ["a"]})
    told = "cannot compute 'add' of string and int64"
    with pytest.raises(lw.DataError, match=told):  # the types are known: when it is built
        lw.from_arrow(table, time="at").with_columns(x=V + 1)
    with pytest.raises(lw.InvalidArgument, match="no column 'w'"):
        stream([1]).filter(lw.col("w") > 0).key_by("k").process(Emit()).collect(bundle_size=1)


def test_a_field_that_some_records_lack_is_null() -> None:
    rows = [{"at": n, "k": 0, **({"v": n} if n % 3 == 2 else {})} for n in range(7)]
    for size in (1, 2, 100):
        source = lw.from_iterable(rows, time="at", unit="s")
        found = source.filter(V >= 0).key_by("k").process(Emit()).collect(bundle_size=size)
        assert [record["v"] for record in found.values()] == [2, 5]
        upper = source.with_columns(x=V.cast(nw.String).str.to_uppercase())
        found = upper.key_by("k").process(Emit()).collect(bundle_size=size)
        assert [record["x"] for record in found.values()] == [
            None,
            None,
            "2",
            None,
            None,
            "5",
            None,
        ]


ADVANCES: dict[str, Callable[[Any], Any]] = {
    "with_columns": lambda s: s.with_columns(x=V + 1),
    "select": lambda s: s.select("at", "k", "n", x=V + 1),
    "filter": lambda s: s.filter(V >= 0),
    "two": lambda s: s.with_columns(x=V + 1).filter(V >= 0),
    "function": lambda s: s.filter(lambda record: record["v"] + 1 > 0),
    "flat_map": lambda s: s.flat_map(lambda record: [record] * (record["v"] > 0)),
    "explode": lambda s: s.with_columns(x=nw.list(V + 1)).explode("x"),
}


@pytest.mark.parametrize("name", ADVANCES)
@pytest.mark.parametrize("several", [False, True])
def test_a_rejected_record_advances_the_watermark_if_its_time_can_be_read(
    name: str, several: bool
) -> None:
    rows = [(1, 1), (50, "x"), (5, 2), ("never", "y"), (60, 3)]
    for size in (1, 2, 3):
        source = lw.from_iterable(
            [{"at": at, "k": 0, "n": n, "v": v} for n, (at, v) in enumerate(rows)],
            time="at", unit="s", watermark=lw.Ascending(), clock=lw.ManualClock(0),
        )  # fmt: skip
        steps = ADVANCES[name](source)
        counts = steps.key_by("k").window(lw.FixedWindows("10s")).aggregate(n=lw.count())
        if several:
            other = steps.key_by("k").window(lw.FixedWindows("20s")).aggregate(n=lw.count())
            counts = (counts.to_stream() | other.to_stream()).key_by("k").process(Emit())
        found = counts.collect(bundle_size=size, on_error="dead_letter")
        late = [record.value["n"] for record in found.late]
        # The record at 50 s closes the window of the one at 5 s, unless they come together.
        assert late == ([] if size == 3 else [2] * (1 + several)), (name, size)
        dead = [error.record["n"] for error in found.errors]
        assert dead == [1, 3], (name, size)


def test_a_step_that_makes_the_event_time_and_fails_does_not_advance_the_watermark() -> None:
    rows = [{"at": at, "k": 0, "v": v} for at, v in ((1, 0), (50, "x"), (5, 0))]
    source = lw.from_iterable(rows, time="at", unit="s", watermark=lw.Ascending())
    made = source.with_columns(at=nw.col("at") + V)
    counts = made.key_by("k").window(lw.FixedWindows("10s")).aggregate(n=lw.count())
    found = counts.collect(bundle_size=1, on_error="dead_letter")
    assert not found.late
    assert [pane.value for pane in found.panes] == [2]


def test_dead_letters_of_several_steps_come_in_the_order_of_the_records() -> None:
    values = ["x", 1, None, "y", 4, "z", 6]

    def fails(record: Any) -> Any:
        if record["n"] in (1, 5):
            raise ValueError(record["n"])
        return [{**record, "part": part} for part in range(2)]

    def key(record: Any) -> Any:
        return None if record["v"] is None else record["n"] // (record["part"] + record["n"] - 6)

    pipeline = (
        stream(values)
        .filter(lambda record: record["v"] != "x" or 1 // 0)
        .flat_map(fails)
        .with_columns(x=V.fill_null(0) + nw.col("part"))
        .key_by(key)
        .process(Emit())
    )
    for size in (1, 3, 100):
        found = pipeline.collect(bundle_size=size, on_error="dead_letter")
        dead = [(e.record["n"], e.record.get("part"), e.reason) for e in found.errors]
        assert dead == [
            (0, None, "function_failed"),
            (1, None, "function_failed"),
            (2, 0, "null_key"),
            (2, 1, "null_key"),
            (3, 0, "bad_expression"),
            (3, 1, "bad_expression"),
            (5, None, "function_failed"),
            (6, 0, "function_failed"),
        ]


# --- functions that raise ----------------------------------------------------------------------


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Shy:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def broken(record: Any) -> Any:
    if record["n"] % 5 == 3:
        raise Mute
    if record["n"] % 5 == 1:
        raise KeyError("lost")
    return record


def halfway(record: Any) -> Iterator[Any]:
    yield record
    if record["n"] % 5 in (1, 3):
        raise ValueError("half way")
    yield record


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "map": lambda s: s.map(broken),
    "flat_map": lambda s: s.flat_map(halfway),
    "flat_map of no iterable": lambda s: s.flat_map(lambda r: 7 if r["n"] % 5 in (1, 3) else [r]),
    "filter": lambda s: s.filter(lambda record: broken(record) is not None),
    "truth": lambda s: s.filter(lambda r: pa.scalar(1) if broken(r) is None else True),
    "names": lambda s: s.map(lambda r: {**r, 7: 8} if r["n"] % 5 == 1 else broken(r)),
    "names of several": lambda s: (
        s.flat_map(lambda r: [r, {"__lw_": 1} if broken(r) else r])
        if False
        else s.flat_map(lambda r: [r, {"__lw_x": 1}] if r["n"] % 5 in (1, 3) else [r])
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_record_for_which_a_function_raises_is_a_dead_letter_if_they_are_set_aside(
    name: str,
) -> None:
    for size in (1, 4, 100):
        keyed = FUNCTIONS[name](stream(list(range(11)))).key_by("k").process(Emit())
        found = keyed.collect(bundle_size=size, on_error="dead_letter")
        dead = [(error.record["n"], error.reason) for error in found.errors]
        assert dead == [(n, "function_failed") for n in (1, 3, 6, 8)]
        assert {record["n"] for record in found.values()} == {0, 2, 4, 5, 7, 9, 10}
        assert all(set(error.record) == {"at", "k", "n", "v"} for error in found.errors)
        with pytest.raises(
            lw.DataError, match=r'on_error="dead_letter"|cannot be the name|iterable'
        ):
            keyed.collect(bundle_size=size)
        with pytest.raises(lw.DataError):
            keyed.collect(bundle_size=size, on_error="raise")


def test_a_key_function_that_raises_is_treated_alike() -> None:
    keyed = stream(list(range(6))).key_by(lambda record: 6 // (record["n"] % 3))
    found = keyed.process(Emit()).collect(on_error="dead_letter")
    assert [error.record["n"] for error in found.errors] == [0, 3]
    assert found.errors[0].detail == "the function of key_by failed: ZeroDivisionError: " + str(
        _text(lambda: 6 // 0)
    )
    with pytest.raises(lw.DataError, match="key_by failed"):
        keyed.process(Emit()).collect()


def _text(function: Callable[[], Any]) -> str:
    with pytest.raises(ZeroDivisionError) as caught:
        function()
    return str(caught.value)


def test_the_error_that_stops_a_run_has_the_exception_and_the_option() -> None:
    with pytest.raises(lw.DataError) as stopped_by:
        stream([0, 1]).map(broken).key_by("k").process(Emit()).collect()
    assert isinstance(stopped_by.value.__cause__, KeyError)
    assert 'on_error="dead_letter"' in (stopped_by.value.hint or "")
    assert "'n': 1" in stopped_by.value.what


def test_exceptions_and_records_without_a_text_are_dead_letters() -> None:
    def fails(record: Any) -> Any:
        raise Mute

    pipeline = stream([Shy(), 1]).map(fails).key_by("k").process(Emit())
    found = pipeline.collect(on_error="dead_letter")
    assert [error.record["n"] for error in found.errors] == [0, 1]
    assert all("whose text raises RuntimeError" in error.detail for error in found.errors)
    with pytest.raises(lw.DataError, match=r"whose repr raises|Mute"):
        pipeline.collect()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, MemoryError, GeneratorExit])
@pytest.mark.parametrize("step", ["map", "flat_map", "filter", "key_by"])
def test_what_ends_a_program_is_never_a_dead_letter(step: str, kind: type[BaseException]) -> None:
    def ends(record: Any) -> Any:
        raise kind

    made = getattr(stream([0, 1]), step)(ends)
    keyed = made if step == "key_by" else made.key_by("k")
    with pytest.raises(kind):
        keyed.process(Emit()).collect(on_error="dead_letter")


@pytest.mark.parametrize("what", ["map_batches", "process"])
def test_what_may_be_half_done_stops_the_run_whatever_is_set_aside(what: str) -> None:
    class Fails:
        def on_record(self, record: Any, ctx: Any) -> None:
            raise ValueError("no")

    def fails(_: Any) -> Any:
        raise ValueError("no")

    source = stream([0, 1])
    if what == "map_batches":
        run: Any = source.map_batches(fails).key_by("k").process(Emit())
    else:
        run = source.key_by("k").process(Fails())
    with pytest.raises((lw.DataError, ValueError), match="no"):
        run.collect(on_error="dead_letter")


# --- tables, panes and durable runs ------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_a_table_is_as_if_the_rows_for_which_its_expressions_fail_were_not_there(size: int) -> None:
    upserts = [(0, "1"), (1, "x"), (0, "y"), (2, "4"), (1, "5"), (2, "z"), (0, "7"), (2, None)]
    rows = [{"at": n, "id": key, "v": v} for n, (key, v) in enumerate(upserts)]
    table = lw.from_iterable(rows, time="at", unit="s").table(key="id")
    for made in (
        table.with_columns(x=V.cast(nw.Int64)),
        table.filter(V.cast(nw.Int64).fill_null(1) > 0).with_columns(x=V.cast(nw.Int64)),
    ):
        stand = {row["id"]: row["x"] for row in made.rows(bundle_size=size, on_error="dead_letter")}
        assert stand == {0: 7, 1: 5, 2: None}
        sums = made.group_by("id").aggregate(total=lw.sum("x"), n=lw.count())
        found = sums.rows(bundle_size=size, on_error="dead_letter")
        assert {row["id"]: (row["total"], row["n"]) for row in found} == {
            0: (7, 1), 1: (5, 1), 2: (0, 1),
        }  # fmt: skip
        changes = made.changes().key_by("id").process(Emit())
        run = changes.collect(bundle_size=size, on_error="dead_letter")
        dead = [error.record["v"] for error in run.errors]
        assert dead == sorted(set(dead), key=["x", "y", "z"].index)  # once, not when they go
        signs: dict[Any, int] = {}
        for row in run.values():
            signs[row["id"], row["x"]] = signs.get((row["id"], row["x"]), 0) + (
                1 if row["kind"] == "insert" else -1
            )
        assert {key: sign for key, sign in signs.items() if sign} == {
            (0, 7): 1, (1, 5): 1, (2, None): 1,
        }  # fmt: skip


def test_rows_that_the_last_step_of_a_table_rejects_are_counted_written_and_raised(
    tmp_path: Path,
) -> None:
    rows = [{"at": n, "id": n, "v": str(n) if n % 3 else "x"} for n in range(9)]
    table = lw.from_iterable(rows, time="at", unit="s").table(key="id")
    made = table.with_columns(x=V.cast(nw.Int64))
    dead: list[Any] = []
    metrics = made.write_to(SqliteTable(str(tmp_path / "t.sqlite"), "t")).run(
        on_dead_letter=dead.append, progress=False
    )
    assert metrics.errors == {"bad_expression": 3}
    assert [error.record["id"] for error in dead] == [0, 3, 6]
    with closing(sqlite3.connect(tmp_path / "t.sqlite")) as database:
        assert list(database.execute("SELECT id, x FROM t ORDER BY id")) == [
            (n, n) for n in range(9) if n % 3
        ]
    with pytest.raises(lw.DataError, match="bad_expression"):
        made.rows(on_error="raise")


def test_a_step_that_stages_share_makes_one_dead_letter() -> None:
    steps = stream(["1", "x", None, "4"]).map(dict).filter(V.cast(nw.Int64).fill_null(0) >= 0)
    both = steps.key_by("k").process(Emit()).to_stream() | steps.key_by("v").process(Emit())
    again = both.with_columns(y=2 ** (lw.col("n") - 3))
    one = again.key_by("k").window(lw.FixedWindows("1m")).aggregate(n=lw.count())
    other = again.filter(lw.col("n") >= 0).key_by("k").process(Emit())
    found = (
        (one.to_stream() | other.to_stream())
        .key_by("k")
        .process(Emit())
        .collect(on_error="dead_letter")
    )
    dead = [(error.record["n"], error.reason) for error in found.errors]
    # The record without a v is no key of one of both; of the others, those below 3 have no power.
    assert sorted(dead) == [
        (0, "bad_expression"), (0, "bad_expression"), (1, "bad_expression"),
        (2, "bad_expression"), (2, "null_key"),
    ]  # fmt: skip


def test_panes_for_which_an_expression_fails_are_dead_letters() -> None:
    sums = (
        stream([1, 2, -3, 3, 5, 7])
        .key_by("k")
        .window(lw.FixedWindows("2s"))
        .aggregate(n=lw.sum("v"))
    )
    again = sums.with_columns(x=2 ** nw.col("n")).key_by("k").process(Emit())
    found = again.collect(on_error="dead_letter")
    assert [(error.record["n"], error.reason) for error in found.errors] == [(-3, "bad_expression")]
    assert sorted(record["x"] for record in found.values()) == [2, 4, 8, 32, 128]


def test_each_dead_letter_of_a_durable_run_is_delivered_once_whatever_stops_it(
    tmp_path: Path,
) -> None:
    values = ["x" if n % 3 == 1 else str(n) for n in range(30)]
    source = tmp_path / "in"
    source.mkdir()
    for part in range(3):
        some = range(part * 10, part * 10 + 10)
        table = pa.table(
            {"at": list(some), "k": [n % 2 for n in some], "v": [values[n] for n in some]}
        )
        pq.write_table(table, source / f"{part}.parquet")

    def fails(record: Any) -> Any:
        if record["at"] % 7 == 5:
            raise ValueError(record["at"])
        return record

    def once(folder: Path, **options: Any) -> Any:
        read = lw.read_parquet(source, time="at", unit="s", clock=lw.ManualClock(0))
        steps = read.map(fails).with_columns(x=V.cast(nw.Int64))
        counts = steps.key_by("k").window(lw.FixedWindows("5s")).aggregate(n=lw.sum("x"))
        return counts.write_jsonl(folder / "out").run(
            state=folder / "state", bundle_size=4, commit_every="bundle", progress=False,
            on_error="dead_letter", **options,
        )  # fmt: skip

    def written(folder: Path) -> tuple[list[Any], list[Any]]:
        lines: dict[str, list[Any]] = {"part": [], "errors": []}
        for kind in lines:
            for path in sorted((folder / "out").glob(f"{kind}-*.jsonl")):
                lines[kind] += map(json.loads, path.read_text().splitlines())
        dead = [(e["record"]["at"], e["reason"]) for e in lines["errors"]]
        return sorted(dead), sorted((p["k"], p["window_start"], p["n"]) for p in lines["part"])

    once(tmp_path / "whole")
    wanted = written(tmp_path / "whole")
    assert wanted[0] == sorted(
        [(n, "function_failed") for n in range(30) if n % 7 == 5]
        + [(n, "bad_expression") for n in range(30) if n % 3 == 1 and n % 7 != 5]
    )
    folder = tmp_path / "stopped"
    stops = 0
    for _ in range(40):
        try:
            with stopping("before forgetting", 2):
                once(folder)
        except Stopped:
            stops += 1
        else:
            break
    assert stops > 3
    assert written(folder) == wanted


class _Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize("argument", ["time", "key"])
@pytest.mark.parametrize("error", [KeyError("x"), ValueError("\ud800"), _Unprintable()])
@pytest.mark.parametrize("size", [1, 100])
def test_a_time_or_key_whose_function_fails_says_so(
    argument: str, error: Exception, size: int
) -> None:
    """S-B1: as a time or key that cannot be read."""

    def function(record: dict[str, Any]) -> Any:
        if record["n"] == 1:
            raise error
        return record["n"]

    options: dict[str, Any] = {"time": "n", "key": "n", argument: function}
    counts = (
        lw.from_iterable([{"n": n} for n in range(3)], unit="s", **options)
        .window(lw.FixedWindows("1m"))
        .aggregate(total=lw.count())
    )
    found = counts.collect(bundle_size=size)
    assert sum(pane.value for pane in found.panes) == 2
    (letter,) = found.errors
    assert letter.reason == {"time": "bad_time", "key": "wrong_type"}[argument]
    assert f"the function {argument}= failed: {type(error).__name__}" in letter.detail
    assert letter.record == {"n": 1}
    with pytest.raises(lw.DataError, match=f"the function {argument}= failed"):
        counts.collect(on_error="raise")


@pytest.mark.parametrize("argument", ["time", "key"])
def test_memory_that_ends_in_a_function_is_no_dead_letter(argument: str) -> None:
    def function(record: dict[str, Any]) -> Any:
        raise MemoryError

    options: dict[str, Any] = {"time": "n", "key": "n", argument: function}
    stream = lw.from_iterable([{"n": 1}], unit="s", **options)
    with pytest.raises(MemoryError):
        stream.window(lw.FixedWindows("1m")).aggregate(total=lw.count()).collect(
            on_error="dead_letter"
        )


@pytest.mark.parametrize("size", [1, 2, 100])
@pytest.mark.parametrize("other", [5, {"k": 1}, {"at": 2}, {}, "text", [1], (1, 2)])
def test_a_record_of_another_shape_ends_no_run(other: Any, size: int) -> None:
    """S-B1: not even if it is alone in its bundle."""
    records = [{"at": at, "k": 1} for at in range(4)]
    counts = (
        lw.from_iterable(records, time="at", unit="s")
        .map(lambda record: other if record["at"] == 2 else record)
        .key_by("k")
        .window(lw.FixedWindows("1m"))
        .aggregate(total=lw.count())
    )
    found = counts.collect(bundle_size=size)
    assert [pane.value for pane in found.panes if pane.is_last] == [3]
    assert [error.reason in ("null_time", "null_key") for error in found.errors] == [True]
