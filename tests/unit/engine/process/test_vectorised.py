"""Processes that take columns, and what they are told when they may not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lowwater as lw
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import Bundle
from lowwater.state.key_layout import END
from lowwater.time import END_OF_TIME, START_OF_TIME
from tests.unit.engine.process.process_steps import Driven, records


class Columns:
    total = lw.value_cell(dtype="int64")
    most = lw.value_cell(float("nan"), dtype="float64")
    flag = lw.value_cell(dtype="bool")
    other = lw.output()

    def on_records(self, batch: Any, ctx: Any) -> None:
        ctx.total.add(batch.ids, batch["v"])
        ctx.most[batch.ids] = np.fmax(ctx.most[batch.ids], batch["v"].astype(float))
        ctx.flag[batch.ids[batch["v"] > 5]] = True
        columns = {
            "total": ctx.total[batch.ids], "most": ctx.most[batch.ids],
            "flag": ctx.flag[batch.ids], "text": np.array(["x"] * len(batch)),
            "key": ctx.keys(batch.ids)[0],
        }  # fmt: skip
        ctx.emit(columns, ids=batch.ids, times=batch.times)
        big = batch["v"] > 5
        ctx.emit({}, ids=batch.ids[big], times=batch.times[big], tag="other")


def test_columns() -> None:
    """S-K9."""
    driven = Driven(Columns())
    given = driven.take(*({"t": n, "k": k, "v": n} for n, k in ((1, "a"), (2, "b"), (7, "a"))))
    assert [value["total"] for _, _, value in given] == [8, 2, 8]
    assert [value["key"] for _, _, value in given] == ["a", "b", "a"]
    assert len(driven.last.outputs["other"]) == 1
    driven.reborn()
    ((_, _, told),) = driven.take({"t": 9, "k": "a", "v": 1})
    assert told == {"total": 9, "most": 7.0, "flag": True, "text": "x", "key": "a"}


def test_columns_let_go_of_keys_that_hold_the_default() -> None:
    class Sums:
        total = lw.value_cell(dtype="int64")

        def on_records(self, batch: Any, ctx: Any) -> None:
            ctx.total.add(batch.ids, batch["v"])

    driven = Driven(Sums())
    driven.take({"t": 1, "k": "a", "v": 5}, {"t": 1, "k": "b", "v": 5})
    driven.save()
    driven.take({"t": 1, "k": "a", "v": -5})
    assert driven.operator.state_rows == 1
    driven.reborn()
    driven.take({"t": 1, "k": "b", "v": -5})
    driven.save()
    assert driven.operator.state_rows == 0
    assert len(list(driven.store.scan(b"", END))) == 1


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("one", [3, [3], np.int64(3)])
def test_one_value_for_all_ids(one: Any) -> None:
    class Same:
        total = lw.value_cell(dtype="int64")
        most = lw.value_cell(dtype="int64")
        least = lw.value_cell(dtype="int64")

        def on_records(self, batch: Any, ctx: Any) -> None:
            ctx.total.add(batch.ids, one)
            ctx.most.maximum(batch.ids, one)
            ctx.least.minimum(batch.ids, np.negative(one))
            cells = (ctx.total, ctx.most, ctx.least)
            columns = {cell.name: cell[batch.ids] for cell in cells}
            ctx.emit(columns, ids=batch.ids, times=batch.times)

    driven = Driven(Same())
    given = driven.take(*({"t": 1, "k": k} for k in "aba"))
    assert [tuple(value.values()) for _, _, value in given] == [(6, 3, -3), (3, 3, -3), (6, 3, -3)]


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("does", ["add", "minimum", "maximum"])
@pytest.mark.parametrize("count", [2, 4])
def test_values_of_another_number_are_an_error(does: str, count: int) -> None:
    class Short:
        total = lw.value_cell(dtype="int64")

        def on_records(self, batch: Any, ctx: Any) -> None:
            getattr(ctx.total, does)(batch.ids, np.ones(count, dtype=np.int64))

    with pytest.raises(lw.LowwaterError, match="broadcast"):
        Driven(Short()).take(*({"t": 1, "k": k} for k in "abc"))


def test_a_sum_beyond_64_bits_is_an_error() -> None:
    driven = Driven(Columns())
    driven.take({"t": 1, "k": "a", "v": 2**62})
    ((_, _, told),) = driven.take({"t": 1, "k": "a", "v": 2**62 - 1})
    assert told["total"] == 2**63 - 1
    with pytest.raises(lw.DataError, match="does not fit 64 bits"):
        driven.take({"t": 1, "k": "a", "v": 1})


@pytest.mark.parametrize(
    ("does", "message"),
    [
        (lambda b, c: c.total.__getitem__([99]), "not ids of keys"),
        (
            lambda b, c: c.total.add(b.ids, [0.5] * len(b)),
            "float64 cannot go into the cell 'total'",
        ),
        (lambda b, c: c.flag.add(b.ids, True), "add cannot go into the cell 'flag'"),
        (lambda b, c: c.emit({"x": [1, 2]}, ids=b.ids, times=5), "2 values for 1 ids"),
        (lambda b, c: c.emit({"x": [1]}, ids=b.ids, times=4), "earlier than"),
        (lambda b, c: c.emit({"x": [1]}, ids=b.ids, times=5, tag="y"), "no output"),
        (lambda b, c: c.emit({"x": [1]}, ids=b.ids, times=[5.0]), "not int64 microseconds"),
        (lambda b, c: c.emit({"x": [[1]]}, ids=b.ids, times=5), "the shape"),
        (lambda b, c: c.emit({}, ids=b.ids, times=END_OF_TIME), "beyond all event times"),
        (lambda b, c: [c.emit({n: [1]}, ids=b.ids, times=5) for n in "xz"], "differ from those"),
        (lambda b, c: b["w"], "no column 'w'"),
        (lambda b, c: c.tick.set(b.ids, START_OF_TIME), "start of time"),
        (lambda b, c: c.tick.set(b.ids, 9, output_times=4), "output_times has"),
    ],
)
def test_what_columns_refuse(does: Any, message: str) -> None:
    class Wrong:
        total = lw.value_cell(dtype="int64")
        flag = lw.value_cell(dtype="bool")
        tick = lw.timer()

        def on_records(self, batch: Any, ctx: Any) -> None:
            does(batch, ctx)

        def on_timers(self, batch: Any, ctx: Any) -> None: ...

    driven = Driven(Wrong())
    driven.watermark(5)
    with pytest.raises(lw.InvalidArgument, match=message):
        driven.take({"t": 5, "k": "a", "v": 1})


def test_many_keys_come_and_go() -> None:
    """Key ids are used again: nothing is kept of the keys that have gone."""

    class Brief:
        seen = lw.value_cell(False)
        forget = lw.timer()

        def on_record(self, record: Any, ctx: Any) -> None:
            assert not ctx.seen.get()
            ctx.seen.set(True)
            ctx.forget.set(ctx.time + 1)

        def on_timer(self, name: str, ctx: Any) -> None:
            ctx.seen.clear()
            ctx.emit(ctx.key)

    driven = Driven(Brief())
    for turn in range(20):
        keys = [f"{turn} {n}" for n in range(100)]
        driven.take(*records(*((key, turn * 10 + 1) for key in keys)))
        if turn % 3 == 0:
            driven.reborn()
        assert [key for key, _, _ in driven.watermark(turn * 10 + 5)] == keys
        keys_held = driven.operator._engine._state_keys.keys  # type: ignore[union-attr]
        assert keys_held is None or len(keys_held) <= 300
    driven.save()
    assert len(list(driven.store.scan(b"", END))) == 2  # the facts, and those of the one part


def test_a_batch_of_nothing_changes_nothing() -> None:
    driven = Driven(Columns())
    empty = Bundle(np.empty(0, dtype=np.int64), (Column.of_objects([]),), {})
    assert driven.operator.step(empty).outputs == {}
    driven.save()
    assert len(list(driven.store.scan(b"", END))) == 1
