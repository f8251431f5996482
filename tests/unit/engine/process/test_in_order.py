"""Processes whose records come in event-time order (S-K13), in pipelines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.process import record_execution
from lowwater.engine.process.outputs import Order
from lowwater.engine.window.windowing import Windowing
from lowwater.pipeline.state_tools import verify_state
from tests.unit.engine.local.durable_runs import output, run, stopped, write_files
from tests.unit.engine.process.process_steps import Driven, process


class Priced:
    """Emits each order with the newest price before it."""

    price = lw.value_cell()

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        if record["price"] is not None:
            ctx.price.set(record["price"])
        elif ctx.price.is_set:
            ctx.emit({"order": record["order"], "price": ctx.price.get()})
        else:
            ctx.late("there is no price yet")


ROWS = st.lists(st.tuples(st.integers(0, 30), st.sampled_from("ab"), st.integers(0, 9)))


def priced(
    prices: list[tuple[int, str, int]], orders: list[tuple[int, str, int]], **options: Any
) -> lw.Processed:
    sources = [
        lw.from_iterable(
            [
                {"at": at, "k": key, "price": n if is_price else None, "order": n}
                for at, key, n in rows
            ],
            time="at",
            unit="us",
            watermark=lw.BoundedDisorder("30us"),
        )
        for is_price, rows in ((True, prices), (False, orders))
    ]
    return sources[0].union(sources[1]).key_by("k").process(Priced(), **options)


@given(prices=ROWS, orders=ROWS, size=st.integers(1, 7))
def test_two_sources_come_by_time_whatever_the_bundles(
    prices: list[tuple[int, str, int]],
    orders: list[tuple[int, str, int]],
    size: int,
) -> None:
    result = priced(prices, orders, order="event_time").collect(bundle_size=size)
    wanted, late = [], []
    newest: dict[str, int] = {}
    every = [(at, 0, n, key, value) for n, (at, key, value) in enumerate(prices)]
    every += [(at, 1, n, key, value) for n, (at, key, value) in enumerate(orders)]
    for at, nth, _, key, value in sorted(every):
        if nth == 0:
            newest[key] = value
        elif key in newest:
            wanted.append((key, at, {"order": value, "price": newest[key]}))
        else:
            late.append((key, at, value))
    assert [(one.key, one.timestamp, one.value) for one in result.elements()] == wanted
    assert [(one.key, one.time, one.value["order"]) for one in result.late] == late
    assert {(one.reason, one.detail) for one in result.late} <= {
        ("refused", "there is no price yet")
    }


def test_in_order_of_arrival_the_bundles_make_a_difference() -> None:
    prices = [(at, "a", at) for at in (1, 5, 9)]
    orders = [(at, "a", at) for at in (2, 6, 8)]
    found = {str(priced(prices, orders).collect(bundle_size=size).values()) for size in (1, 4, 100)}
    assert len(found) > 1


def test_a_late_record_goes_to_the_late_output() -> None:
    driven = Driven(process(on_record=lambda self, record, ctx: ctx.emit(1)), order="event_time")
    driven.watermark(10)
    assert driven.take({"t": 9, "k": "a"}, {"t": 10, "k": "b"}) == []
    assert driven.last.late is not None
    assert driven.last.late.element.tolist() == [0]
    assert driven.last.late.windows() == [None]
    assert driven.operator.state_rows == 1
    assert driven.watermark(10) == []
    assert driven.watermark(11) == [("b", 10, 1)]


def test_too_late_has_its_reason() -> None:
    rows = [{"at": at, "k": "a"} for at in (5_000_000, 1_000_000)]
    stream = lw.from_iterable(rows, time="at", watermark=lw.Ascending())
    made = stream.key_by("k").process(
        process(on_record=lambda self, record, ctx: ctx.emit(1)), order="event_time"
    )
    result = made.collect(bundle_size=1, trace=True)
    assert [(late.reason, late.value) for late in result.late] == [("too_late", rows[1])]
    assert "too_late" in str(result.why({"at": 1_000_000}))


def test_waiting_records_keep_their_types_across_runs() -> None:
    def on_record(self: Any, record: Any, ctx: Any) -> None:
        ctx.emit(record)

    driven = Driven(process(on_record=on_record), order="event_time")
    first = [{"t": 2, "k": "a", "v": 1, "w": [1, {"x": None}]}, {"t": 1, "k": ("b", 1), "v": None}]
    second = [{"t": 1, "k": "a", "v": "text", "more": 2.5}]
    driven.take(*first)
    driven.reborn()
    driven.take(*second)
    driven.reborn()
    given = driven.watermark(10)
    assert [(key, at) for key, at, _ in given] == [(("b", 1), 1), ("a", 1), ("a", 2)]
    assert [value["v"] for _, _, value in given] == [None, "text", 1]
    assert given[2][2]["w"] == [1, {"x": None}]
    assert given[1][2]["more"] == 2.5
    driven.reborn()
    assert driven.end() == []
    assert driven.operator.state_rows == 0


def test_the_end_of_input_shows_once_all_records_have_come() -> None:
    told = []

    def on_record(self: Any, record: Any, ctx: Any) -> None:
        told.append((ctx.time, ctx.watermark, ctx.ended))
        ctx.wake.set(ctx.time + 5)

    def on_timer(self: Any, name: str, ctx: Any) -> None:
        told.append((ctx.due, ctx.due if ctx.ended else ctx.watermark, ctx.ended))

    members = {"wake": lw.timer(), "on_record": on_record, "on_timer": on_timer}
    driven = Driven(process(**members), order="event_time")
    driven.take({"t": 20, "k": "a"}, {"t": 10, "k": "a"})
    driven.end()
    assert told == [
        (10, 10, False), (15, 15, False), (20, 20, False), (25, 25, True),
    ]  # fmt: skip


class Remembers:
    """Emits how long the record before is ago, and what timers came between."""

    before = lw.value_cell()
    wake = lw.timer()

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        ago = None if not ctx.before.is_set else ctx.time - ctx.before.get()
        ctx.before.set(ctx.time)
        at = ctx.time + 10_000_000
        ctx.wake.set(at if ctx.window is None else min(at, ctx.window.end))
        ctx.emit({"value": record["value"], "ago": ago})

    def on_timer(self, name: str, ctx: lw.ProcessContext) -> None:
        ctx.emit({"value": None, "ago": ctx.watermark - ctx.due})


@pytest.mark.parametrize("windowed", [False, True])
def test_a_durable_run_emits_what_one_run_does(tmp_path: Path, windowed: bool) -> None:
    files = write_files(tmp_path / "in", 3)

    def made() -> Any:
        read = lw.read_parquet(
            files, time="at", clock=lw.ManualClock(0), watermark=lw.BoundedDisorder("70s")
        )
        keyed: Any = read.key_by("key")
        keyed = keyed.window(lw.FixedWindows("1h")) if windowed else keyed
        return keyed.process(Remembers(), order="event_time")

    for commits in (1, 6, 13):
        stopped(made(), tmp_path, commits)
        assert verify_state(tmp_path / "state") > 0
    run(made(), tmp_path)
    assert verify_state(tmp_path / "state") > 0
    found = output(tmp_path)["part"]
    plain = [
        (one.key, one.value["value"], one.value["ago"])
        for one in made().collect(bundle_size=10).elements()
    ]
    assert sorted(map(str, plain)) == sorted(
        str((row["key"], row["value"], row["ago"])) for row in found
    )
    assert len(plain) > 300
    keyed = lw.read_parquet(files, time="at", clock=lw.ManualClock(0)).key_by("key")
    arrival: Any = keyed.process(Remembers())
    with pytest.raises(lw.StateError, match="order was 'event_time'"):
        run(arrival, tmp_path)


def test_stored_state_of_another_order_is_refused() -> None:
    mine = process(on_record=lambda self, record, ctx: None)
    both: list[tuple[Order, Order]] = [("arrival", "event_time"), ("event_time", "arrival")]
    for orders in both:
        driven = Driven(mine, order=orders[0])
        driven.take({"t": 5, "k": "a"})
        driven.save()
        other = Driven(mine, order=orders[1])
        with pytest.raises(lw.StateError, match=f"of order='{orders[0]}'.*order='{orders[1]}'"):
            other.operator.restore(driven.store)


def test_what_does_not_go_with_an_order() -> None:
    keyed = lw.from_iterable([{"at": 1, "k": 1}], time="at").key_by("k")
    mine = process(on_record=lambda self, record, ctx: None)
    with pytest.raises(lw.InvalidArgument, match=r"'time'.*is not known"):
        keyed.process(mine, order="time")  # type: ignore[arg-type]
    late = keyed.window(lw.FixedWindows("1m"), allowed_lateness="1m", accumulation="discarding")
    with pytest.raises(lw.InvalidArgument, match="has no meaning in event-time order"):
        late.process(mine, order="event_time")


def test_an_inherited_lateness_ends_here() -> None:
    keyed = lw.from_iterable([{"at": 1, "k": 1}], time="at").key_by("k")
    late = keyed.window(lw.FixedWindows("1m"), allowed_lateness="1m", accumulation="discarding")
    counts = late.aggregate(n=lw.count()).key_by("k")
    mine = process(on_record=lambda self, record, ctx: None)
    assert counts.process(mine)._stage.lateness_us == 60_000_000
    assert counts.process(mine, order="event_time")._stage.lateness_us == 0
    windowed = counts.window(lw.FixedWindows("1h"), accumulation="discarding")
    assert windowed.process(mine, order="event_time")._stage.windowing is not None
    assert windowed.process(mine, order="event_time")._stage.lateness_us == 0


def test_it_is_described() -> None:
    made = priced([], [], order="event_time")
    assert "process(Priced, order='event_time')" in repr(made)
    assert "in event-time order" in made.explain()


def test_many_waiting_records_come_out_in_order() -> None:
    class Whole:
        def on_records(self, batch: Any, ctx: Any) -> None:
            ctx.emit({"v": batch["v"]}, ids=batch.ids, times=batch.times)

    driven = Driven(Whole(), order="event_time")
    number = 10_000
    driven.take(*({"t": number - n, "k": n % 3, "v": n} for n in range(number)))
    assert driven.operator.state_rows == number
    given = driven.watermark(number + 1)
    assert [at for _, at, _ in given] == list(range(1, number + 1))
    assert [value["v"] for _, _, value in given] == list(range(number))[::-1]
    assert driven.operator.state_rows == 0


class Answers:
    """Emits to two outputs, refuses some records, and sets a timer for some."""

    wake = lw.timer()
    before = lw.value_cell(default=-1)
    odd = lw.output()

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        n = record["n"]
        if n % 11 == 5:
            ctx.late(f"{n} is refused")
        elif n % 2:
            ctx.emit({"n": n}, tag="odd")
        else:
            ctx.emit({"n": n, "before": ctx.before.get()})
        ctx.before.set(n)
        if n % 7 == 0 and ctx.window is None:
            ctx.wake.set(ctx.time + 3)

    def on_timer(self, name: str, ctx: lw.ProcessContext) -> None:
        ctx.emit({"n": -ctx.due, "before": ctx.before.get()})


AT_ONCE = [
    (3, 3), (3, 4), (3, 100), (None, 4_097),
    *(pytest.param(None, n, marks=pytest.mark.long(reason="as with 3")) for n in (4_096, 10_000)),
]  # fmt: skip
"""How many waiting records become Python values at a time, and how many one advance passes."""


@pytest.mark.parametrize("kind", ["plain", "windowed", "sliding", "columns differ"])
@pytest.mark.parametrize(("at_once", "number"), AT_ONCE)
@pytest.mark.parametrize("by", ["advance", "end"])
def test_an_advance_passes_any_number_of_records(
    monkeypatch: pytest.MonkeyPatch, kind: str, at_once: int | None, number: int, by: str
) -> None:
    if at_once is not None:
        monkeypatch.setattr(record_execution, "_ROWS_AT_ONCE", at_once)
    windows: Any = {"windowed": lw.FixedWindows("50us"), "sliding": lw.SlidingWindows("4us", "6us")}
    windowing = None if kind not in windows else Windowing(windows=windows[kind])
    driven = Driven(Answers(), windowing, order="event_time")
    rows: list[dict[str, Any]] = [{"t": n // 2, "k": n % 3, "n": n} for n in range(number)]
    if kind == "columns differ":
        driven.take(*[{**row, "w": row["n"]} for row in rows[::2]])
        driven.take(*rows[1::2])
    else:
        driven.take(*rows)
    given = driven.end() if by == "end" else driven.watermark(number)
    times = range(number) if kind != "sliding" else [n for n in range(number) if n // 2 % 6 < 4]
    refused = [n for n in times if n % 11 == 5]
    outside = set(range(number)) - set(times)
    assert [row["n"] for _, _, row in given if row["n"] >= 0 and row["n"] % 2 == 0] == [
        n for n in times if n % 11 != 5 and n % 2 == 0
    ]
    assert [row["n"] for _, _, row in driven.tagged("odd")] == [
        n for n in times if n % 11 != 5 and n % 2
    ]
    late = driven.last.late
    if late is None:
        assert not refused
        assert not outside
    else:
        of = driven.last.late_of
        assert of is not None
        assert sorted(of.values["n"].to_list()) == sorted({*refused, *outside})
        details = late.details or [None] * len(late)
        said = dict(zip(of.values["n"].to_list(), details, strict=True))
        assert said == {n: f"{n} is refused" for n in refused} | dict.fromkeys(outside)
    if by == "end":
        assert driven.operator.state_rows == 0
    elif windowing is None:
        assert driven.operator.state_rows == 3, "no record waits, and each key has a cell"
