"""What a process may declare and do, and what it is told when it may not."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import lowwater as lw
from lowwater.engine.process import ProcessOperator, timers
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import Bundle, EndOfInput, WatermarkAdvance
from lowwater.state.key_layout import END
from lowwater.time import END_OF_TIME, START_OF_TIME
from tests.unit.engine.process.process_steps import FIXED, SESSIONS, Driven, process, records

# Declarations


def test_declarations_are_values() -> None:
    assert lw.value_cell(3) == lw.value_cell(3) != lw.value_cell()
    assert lw.timer() != lw.timer(domain="processing")
    assert hash(lw.map_cell()) == hash(lw.map_cell())
    assert lw.value_cell(dtype="float64").default == 0.0
    assert lw.combining_cell(lw.sum()) == lw.combining_cell(lw.sum())


def test_what_declarations_refuse() -> None:
    for wrong, message in (
        (lambda: lw.value_cell([]), "changed in place"),
        (lambda: lw.value_cell(dtype="int32"), "dtype='int32' .* is not known"),  # type: ignore[arg-type]
        (lambda: lw.value_cell(1.5, dtype="int64"), "default=1.5 .* does not fit"),
        (lambda: lw.value_cell(2**63, dtype="int64"), "does not fit"),
        (lambda: lw.value_cell(merge=3), "not a function"),  # type: ignore[arg-type]
        (lambda: lw.timer(domain="wall"), "domain='wall'"),  # type: ignore[arg-type]
        (lambda: lw.combining_cell(sum), "not a combiner"),  # type: ignore[arg-type]
        (lambda: lw.combining_cell(lw.sum("delay")), "cannot add up"),
        (lambda: lw.combining_cell(lw.collect()), "cannot add up"),
        (lambda: lw.combining_cell(lw.sum(where=lw.col("value") > 1)), "cannot add up"),
    ):
        with pytest.raises(lw.InvalidArgument, match=message):
            wrong()


@pytest.mark.parametrize(
    ("members", "windowing", "message"),
    [
        ({"time": lw.value_cell()}, None, "'time' cannot be the name"),
        ({"main": lw.output()}, None, "'main' cannot be the name"),
        ({"due_at": lw.timer()}, None, "no method on_timer"),
        ({"on_window_expired": print}, None, "but no windows"),
        ({"on_end": print}, FIXED, "all of which expire"),
        ({"on_timers": print}, None, "on_timers would never be called"),
        ({"on_records": print}, None, "both on_record and on_records"),
        ({"on_record": None}, None, "no method on_record"),
        ({"total": lw.value_cell()}, SESSIONS, "nothing says how two of the cell 'total'"),
        ({"names": lw.map_cell()}, SESSIONS, r"names = lw.map_cell\(merge="),
        ({}, FIXED.with_(trigger=lw.AfterWatermark()), "no meaning for a process"),
        ({"on_record": None, "on_records": print, "x": lw.list_cell()}, None, "is no column"),
        ({"on_record": None, "on_records": print, "x": lw.value_cell()}, None, "is no column"),
        ({"on_record": None, "on_records": print}, SESSIONS, "no way to merge"),
    ],
)
def test_what_building_refuses(members: Any, windowing: Any, message: str) -> None:
    with pytest.raises(lw.InvalidArgument, match=message):
        ProcessOperator(process(**members), windowing=windowing)


def test_a_class_is_no_process() -> None:
    with pytest.raises(lw.InvalidArgument, match=r"Use Mine\(\)"):
        ProcessOperator(type(process()))


def test_declarations_are_inherited() -> None:
    class Base:
        n = lw.value_cell(0)

    class Mine(Base):
        def on_record(self, record: Any, ctx: Any) -> None:
            ctx.n.set(ctx.n.get() + 1)
            ctx.emit(ctx.n.get())

    assert Driven(Mine()).take(*records(("a", 1), ("a", 1))) == [("a", 1, 1), ("a", 1, 2)]


# Cells


def test_cells_hold_what_they_were_given_over_a_restart() -> None:
    """S-K2."""
    held = [None, 2**70, 1.5, "x", b"x", (1, [2]), {"a": {1, 2}}, dt.date(2024, 1, 1), Decimal(1)]

    told: dict[str, Any] = {}

    class Holds:
        value = lw.value_cell("none")
        items = lw.list_cell()
        by = lw.map_cell()
        some = lw.set_cell()
        mean = lw.combining_cell(lw.mean())
        most = lw.combining_cell(lw.max())
        count = lw.combining_cell(lw.count())
        at = lw.ordered_cell()

        def on_record(self, record: Any, ctx: Any) -> None:
            if record["t"] < 100:
                ctx.value.set(held[record["t"]])
                ctx.items.extend([held[record["t"]]])
                ctx.by[record["t"]] = held[record["t"]]
                ctx.some.add(record["t"] % 2)
                for cell in (ctx.mean, ctx.most, ctx.count):
                    cell.add(record["t"])
                ctx.at.add(-record["t"], held[record["t"]])
                ctx.at.add(-record["t"], "second")
            told.update(
                {
                    "value": ctx.value.get(), "items": list(ctx.items), "by": ctx.by.items(),
                    "some": ctx.some.get(), "mean": ctx.mean.get(), "most": ctx.most.get(),
                    "count": ctx.count.get(), "at": ctx.at.range(), "first": ctx.at.first(),
                    "last": ctx.at.last(), "lens": [len(c) for c in (ctx.items, ctx.by, ctx.at)],
                }
            )  # fmt: skip

    driven = Driven(Holds())
    driven.take(*records(*(("a", at) for at in range(len(held)))))
    driven.reborn()
    driven.take(*records(("a", 100)))
    n = len(held)
    assert told["value"] == held[-1]
    assert told["items"] == held
    assert told["by"] == list(enumerate(held))
    assert told["some"] == {0, 1}
    assert (told["mean"], told["most"], told["count"]) == ((n - 1) / 2, n - 1, n)
    assert told["at"] == [
        each for at in range(n)[::-1] for each in ((-at, held[at]), (-at, "second"))
    ]
    assert (told["first"], told["last"]) == ((1 - n, held[-1]), (0, "second"))
    assert told["lens"] == [n, n, 2 * n]
    driven.take(*records(("b", 100)))
    assert told == {
        "value": "none", "items": [], "by": [], "some": set(), "mean": None, "most": None,
        "count": 0, "at": [], "first": None, "last": None, "lens": [0, 0, 0],
    }  # fmt: skip
    assert driven.operator.state_rows == 1  # reading holds nothing


def test_taking_out_of_cells() -> None:
    class Takes:
        by = lw.map_cell()
        some = lw.set_cell()
        at = lw.ordered_cell()

        def on_record(self, record: Any, ctx: Any) -> None:
            if record["t"] == 1:
                ctx.by["x"], ctx.by["y"] = 1, 2
                assert ctx.some.add("x")
                assert not ctx.some.add("x")
                for at in range(10):
                    ctx.at.add(at, str(at))
                return
            assert "x" in ctx.by
            assert (ctx.by["x"], ctx.by.get("z", 5)) == (1, 5)
            assert [ctx.by.pop("x"), ctx.by.pop("x", 7)] == [1, 7]
            assert list(ctx.by) == ["y"]
            del ctx.by["y"]
            with pytest.raises(KeyError):
                ctx.by["y"]
            ctx.some.discard("nothing")
            assert "x" in ctx.some
            assert list(ctx.some) == ["x"]
            ctx.some.discard("x")
            assert [at for at, _ in ctx.at.range(3, 5)] == [3, 4]
            assert (ctx.at.count(3, 5), ctx.at.count(5, 3), ctx.at.count(stop=5)) == (2, 0, 5)
            assert ctx.at.delete(3, 5) == 2
            assert ctx.at.delete(5, 3) == 0
            assert ctx.at.delete() == 8
            assert ctx.at.delete() == 0

    driven = Driven(Takes())
    driven.take(*records(("a", 1)))
    driven.reborn()
    driven.take(*records(("a", 2)))
    assert driven.operator.state_rows == 0
    driven.save()
    assert len(list(driven.store.scan(b"", END))) == 2  # the facts, and those of the one part


def test_a_dtype_is_kept_to() -> None:
    class Typed:
        n = lw.value_cell(dtype="int64")
        f = lw.value_cell(dtype="float64")

        def on_record(self, record: Any, ctx: Any) -> None:
            ctx.f.set(np.float32(1))
            ctx.n.set(ctx.n.get() + record["v"])
            ctx.emit([ctx.n.get(), ctx.f.get()])

    driven = Driven(Typed())
    assert driven.take({"t": 1, "k": 1, "v": 5}) == [(1, 1, [5, 1.0])]
    with pytest.raises(lw.InvalidArgument, match=r"value=5.5 .* cell 'n'"):
        driven.take({"t": 1, "k": 1, "v": 0.5})


def test_what_is_changed_in_place_is_saved_and_what_was_emitted_is_not_changed() -> None:
    """S-K5."""

    class Changes:
        value = lw.value_cell()

        def on_record(self, record: Any, ctx: Any) -> None:
            if not ctx.value.is_set:
                ctx.value.set({"list": []})
            ctx.value.get()["list"].append(record["t"])
            ctx.emit(ctx.value.get())

    driven = Driven(Changes())
    given = driven.take(*records(("a", 1), ("a", 2)))
    driven.reborn()
    given += driven.take(*records(("a", 3)))
    driven.reborn()
    given += driven.take(*records(("a", 4)))
    assert [value["list"] for _, _, value in given] == [[1], [1, 2], [1, 2, 3], [1, 2, 3, 4]]


def test_what_was_changed_in_place_and_cannot_be_stored_is_told_with_cell_and_key() -> None:
    class Wrong:
        value = lw.value_cell()

        def on_record(self, record: Any, ctx: Any) -> None:
            ctx.value.set([])
            ctx.value.get().append(object())

    driven = Driven(Wrong())
    driven.take(*records(("a", 1)))
    with pytest.raises(lw.StateError, match=r"cell 'value' of key='a' \(str\) cannot be stored"):
        driven.save()


def test_only_what_changed_is_written() -> None:
    class Adds:
        a = lw.value_cell(0)
        b = lw.value_cell(0)

        def on_record(self, record: Any, ctx: Any) -> None:
            if record["t"] == 1:
                ctx.b.set(1)
            ctx.a.set(ctx.a.get() + 1)

    driven = Driven(Adds())
    driven.take(*records(*((f"key {n}", 1) for n in range(1000))))
    driven.save()
    driven.take(*records(("key 5", 2)))
    changed = [change for change in driven.save().changes() if hasattr(change, "values")]
    assert [len(change.values) for change in changed] == [1, 1]  # one cell, and the facts


# Timers and outputs


def test_timers_of_one_name_by_tag() -> None:
    """S-K3."""

    class Tagged:
        due_at = lw.timer()

        def on_record(self, record: Any, ctx: Any) -> None:
            ctx.due_at.set(30, tag="c")
            ctx.due_at.set(10, tag="a")
            ctx.due_at.set(20, tag=("b", 1))
            ctx.due_at.set(10)
            ctx.due_at.set(15, tag="a")
            assert (ctx.due_at.get(), ctx.due_at.get(tag="a"), ctx.due_at.get(tag=9)) == (
                10, 15, None,
            )  # fmt: skip
            ctx.due_at.clear(tag="c")

        def on_timer(self, name: str, ctx: Any) -> None:
            ctx.emit((name, ctx.tag, ctx.due))

    driven = Driven(Tagged())
    driven.take(*records(("k", 1)))
    driven.reborn()
    assert [value[1:] for _, _, value in driven.watermark(40)] == [
        (None, 10), ("a", 15), (("b", 1), 20),
    ]  # fmt: skip
    assert driven.operator.state_rows == 0


def test_the_clock_stands_at_a_timers_own_time() -> None:
    """S-K3, S-O8."""

    class Clocked:
        tick = lw.timer(domain="processing")

        def on_record(self, record: Any, ctx: Any) -> None:
            ctx.tick.set(ctx.clock + 10, output_time=ctx.time)

        def on_timer(self, name: str, ctx: Any) -> None:
            ctx.emit(ctx.clock)
            if ctx.clock < 30:
                ctx.tick.set(ctx.clock + 10, output_time=ctx.time)

    driven = Driven(Clocked())
    driven.clock(1)
    driven.take(*records(("k", 5)))
    assert driven.operator.next_deadline == 11
    driven.watermark(100)
    assert driven.operator.output_watermark == 5
    assert driven.clock(100) == [("k", 5, 11), ("k", 5, 21), ("k", 5, 31)]
    assert driven.operator.output_watermark == 100
    assert driven.operator.next_deadline == END_OF_TIME


def test_an_unknown_output_is_told_with_the_nearest() -> None:
    class Emits:
        unclicked = lw.output()

        def on_record(self, record: Any, ctx: Any) -> None:
            ctx.emit(1, tag="unclcked")

    with pytest.raises(lw.InvalidArgument, match="Did you mean 'unclicked'"):
        Driven(Emits()).take(*records(("k", 1)))


def test_nothing_is_emitted_below_the_output_watermark() -> None:
    """S-K6: but what a late record itself gives, at its own time."""

    class Emits:
        def on_record(self, record: Any, ctx: Any) -> None:
            ctx.emit(record["v"], time=record["at"])

    driven = Driven(Emits())
    driven.watermark(100)
    late, early = {"t": 50, "k": 1, "at": 50, "v": 1}, {"t": 150, "k": 1, "at": 100, "v": 2}
    assert driven.take(late, early) == [(1, 50, 1), (1, 100, 2)]
    for wrong in ({**late, "at": 49}, {**early, "at": 99}):
        with pytest.raises(lw.InvalidArgument, match="the output watermark may have passed"):
            driven.take(wrong)
    with pytest.raises(lw.InvalidArgument, match="beyond the last event time"):
        driven.take({**late, "at": END_OF_TIME})


def test_a_hold_cannot_be_below_the_output_watermark() -> None:
    class Sets:
        due_at = lw.timer()

        def on_record(self, record: Any, ctx: Any) -> None:
            ctx.due_at.set(200, output_time=ctx.time - 1)

        def on_timer(self, name: str, ctx: Any) -> None: ...

    driven = Driven(Sets())
    driven.watermark(100)
    driven.take(*records(("k", 101)))
    assert driven.operator.output_watermark == 100
    with pytest.raises(lw.InvalidArgument, match=r"output_time=.* is earlier than .*'due_at'"):
        driven.take(*records(("k", 100)))


def test_a_timer_of_processing_time_before_any_watermark_has_no_event_time() -> None:
    class Clocked:
        tick = lw.timer(domain="processing")

        def on_record(self, record: Any, ctx: Any) -> None:
            ctx.tick.set(10)

        def on_timer(self, name: str, ctx: Any) -> None:
            ctx.emit(1)

    driven = Driven(Clocked())
    assert driven.operator.output_watermark == START_OF_TIME
    driven.clock(10)
    with pytest.raises(lw.InvalidArgument, match="no event time for this record yet"):
        driven.take(*records(("k", 1)))


@pytest.mark.parametrize("tagged", [False, True])
def test_timers_that_set_each_other_at_one_instant(tagged: bool) -> None:
    """S-K4."""

    class Endless:
        due_at = lw.timer()

        def on_record(self, record: Any, ctx: Any) -> None:
            for tag in range(3000):  # many at one instant are fine
                ctx.due_at.set(5, tag=tag)
            ctx.due_at.set(5, tag="again")

        def on_timer(self, name: str, ctx: Any) -> None:
            if ctx.tag == "again":
                ctx.due_at.set(ctx.due, tag="again")

    class Columns:
        due_at = lw.timer()

        def on_records(self, batch: Any, ctx: Any) -> None:
            ctx.due_at.set(batch.ids, 5)

        def on_timers(self, batch: Any, ctx: Any) -> None:
            ctx.due_at.set(batch.ids, batch.due)

    driven = Driven(Endless() if tagged else Columns())
    driven.take(*records(("k", 1)))
    with pytest.raises(lw.DataError, match="set each other 1,000 times"):
        driven.watermark(5)


def test_timers_that_never_stop_are_told_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """S-K4: and so far as the watermark goes, they may go on."""

    class Ticks:
        tick = lw.timer()

        def __init__(self, stops: bool) -> None:
            self.stops = stops

        def on_record(self, record: Any, ctx: Any) -> None:
            ctx.tick.set(0)

        def on_timer(self, name: str, ctx: Any) -> None:
            if not (self.stops and ctx.ended):
                ctx.tick.set(ctx.due + 1)

    assert timers.AFTER_THE_END == 100_000
    monkeypatch.setattr(timers, "AFTER_THE_END", 1_000)
    driven = Driven(Ticks(stops=False))
    driven.take(*records(("k", 1)))
    driven.watermark(1_500)
    with pytest.raises(lw.DataError, match="the input has ended"):
        driven.end()
    driven = Driven(Ticks(stops=True))
    driven.take(*records(("k", 1)))
    driven.end()
    assert driven.operator.state_rows == 0


def test_what_a_hook_raises_is_told_with_the_key() -> None:
    def fails(self: Any, record: Any, ctx: Any) -> None:
        raise KeyError("x")

    with pytest.raises(lw.DataError, match=r"on_record failed for key='k' .* KeyError: 'x'"):
        Driven(process(on_record=fails)).take(*records(("k", 1)))


def test_an_end_comes_for_each_key_with_state() -> None:
    """S-K7."""

    class Ends:
        n = lw.value_cell(0)
        tick = lw.timer(domain="processing")

        def on_record(self, record: Any, ctx: Any) -> None:
            ctx.n.set(ctx.n.get() + 1)
            ctx.tick.set(10_000)
            if record["k"] == "gone":
                ctx.n.clear()
                ctx.tick.clear()

        def on_timer(self, name: str, ctx: Any) -> None:
            raise AssertionError("the clock never comes there")

        def on_end(self, ctx: Any) -> None:
            ctx.emit(ctx.n.get())

    driven = Driven(Ends())
    driven.take(*records(("b", 1), ("gone", 1), ("a", 1), ("b", 2)))
    driven.watermark(50)
    driven.reborn()
    assert driven.end() == [("b", 50, 2), ("a", 50, 1)]
    assert driven.operator.state_rows == 0
    assert driven.operator.output_watermark == END_OF_TIME


# Keys of several columns, and combiners


def test_keys_of_several_columns() -> None:
    @dataclass
    class Told:
        key: Any

    class Tells:
        n = lw.value_cell(0)

        def on_record(self, record: Any, ctx: Any) -> None:
            ctx.n.set(1)
            ctx.emit(Told(ctx.key))

    operator = ProcessOperator(Tells())
    keys = (Column.of_objects(["a", "b"]), Column(np.array([1, 2])))
    output = operator.step(Bundle(np.array([1, 2]), keys, {}))
    emitted = output.emitted["main"]
    assert [column.to_list() for column in emitted.keys] == [["a", "b"], [1, 2]]
    assert emitted.columns()["key"].to_list() == [("a", 1), ("b", 2)]
    assert operator.step(WatermarkAdvance(5)).outputs == {}
    assert operator.step(EndOfInput()).late is None


def test_a_combiner_of_ones_own() -> None:
    class Joined:
        def create_accumulator(self) -> list[Any]:
            return []

        def add_input(self, accumulator: list[Any], value: Any) -> list[Any]:
            accumulator.append(value)
            return accumulator

        def merge_accumulators(self, accumulators: Iterable[list[Any]]) -> list[Any]:
            return [value for each in accumulators for value in each]

        def extract_output(self, accumulator: list[Any]) -> str:
            return "+".join(map(str, accumulator))

    class Joins:
        all = lw.combining_cell(Joined())

        def on_record(self, record: Any, ctx: Any) -> None:
            ctx.all.add(record["t"])
            ctx.emit(ctx.all.get())

    driven = Driven(Joins(), SESSIONS)
    driven.take(*records(("k", 1), ("k", 12)))
    driven.reborn()
    assert driven.take(*records(("k", 6))) == [("k", 6, "1+12+6")]
