"""What goes wrong silently in a process of the user's own, elsewhere: here it is an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lowwater as lw
from lowwater.errors import DataError, InvalidArgument

SECOND = 1_000_000
ROWS = [{"at": i * SECOND, "k": "ab"[i % 2], "v": i} for i in range(6)]


def source(**more: Any) -> Any:
    return lw.from_iterable(ROWS, time="at", **more)


def process_of(hook: Callable[..., Any], **more: Any) -> Any:
    cells: dict[str, Any] = {
        "seen": lw.value_cell(False),
        "total": lw.combining_cell(lw.sum()),
        "on_record": hook,
    }
    return type("Mistaken", (), cells | more)()


def collected(hook: Callable[..., Any], **more: Any) -> Any:
    return source().key_by("k").process(process_of(hook, **more)).collect()


@pytest.mark.parametrize("name", ["seen", "total"])
def test_a_cell_is_not_assigned_to(name: str) -> None:
    with pytest.raises(DataError, match=r"write ctx\.name\.set"):
        collected(lambda self, record, ctx: setattr(ctx, name, True))


def test_nor_is_one_of_columns() -> None:
    class Columns:
        total = lw.value_cell(dtype="int64")

        def on_records(self, batch: Any, ctx: Any) -> None:
            ctx.total = batch["v"]

    with pytest.raises(DataError, match=r"write ctx\.name\.set"):
        source().key_by("k").process(Columns()).collect()


@pytest.mark.parametrize("name", ["seen", "total"])
def test_a_cell_is_no_condition(name: str) -> None:
    def on_record(self: Any, record: Any, ctx: Any) -> None:
        if not getattr(ctx, name):
            ctx.emit(1)

    with pytest.raises(InvalidArgument, match=rf"ctx\.{name}\.get\(\)"):
        collected(on_record)


def test_a_hook_is_no_generator() -> None:
    def yields(self: Any, record: Any, ctx: Any) -> Any:
        yield record

    async def waits(self: Any, record: Any, ctx: Any) -> None: ...

    for hook in (yields, waits):
        with pytest.raises(InvalidArgument, match="on_record is a generator or a coroutine"):
            source().key_by("k").process(process_of(hook))
    with pytest.raises(InvalidArgument, match="on_end is a generator"):
        source().key_by("k").process(process_of(lambda *_: None, on_end=yields))


def test_a_hook_returns_nothing() -> None:
    with pytest.raises(InvalidArgument, match=r"on_record returned value=\[1\]"):
        collected(lambda self, record, ctx: [1])
    with pytest.raises(InvalidArgument, match="on_end returned"):
        collected(lambda self, record, ctx: ctx.seen.set(True), on_end=lambda self, ctx: 7)

    class Columns:
        def on_records(self, batch: Any, ctx: Any) -> Any:
            return batch["v"]

    with pytest.raises(InvalidArgument, match="on_records returned"):
        source().key_by("k").process(Columns()).collect()


def test_the_end_without_a_watermark_says_what_to_pass() -> None:
    with pytest.raises(InvalidArgument, match="keep the time of the key's last record in a cell"):
        collected(
            lambda self, record, ctx: ctx.seen.set(True), on_end=lambda self, ctx: ctx.emit(1)
        )


class Kinds:
    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.emit(record["kind"])


def counted(mode: Any) -> Any:
    windowed = source(watermark=lw.Ascending()).key_by("k")
    return windowed.window(
        lw.FixedWindows("10s"),
        trigger=lw.AfterWatermark(early=lw.AfterCount(1)),
        accumulation=mode,
    ).aggregate(n=lw.sum("v"))


def test_every_record_has_a_kind_where_some_are_taken_back() -> None:
    both = counted("retracting") | counted("discarding")
    kinds = both.key_by("k").process(Kinds()).collect(bundle_size=1).values()
    panes = len(counted("retracting").collect(bundle_size=1).panes)
    panes += len(counted("discarding").collect(bundle_size=1).panes)
    assert len(kinds) == panes
    assert set(kinds) == {"insert", "retract"}


def test_a_column_is_not_called_kind_there() -> None:
    stream = counted("retracting").with_columns(kind=lw.lit("mine"))
    with pytest.raises(InvalidArgument, match="a column is named 'kind'"):
        stream.key_by("k").process(Kinds())
    hidden = counted("retracting").map(lambda record: {**record, "kind": "mine"})
    with pytest.raises(InvalidArgument, match="a column is named 'kind'"):
        hidden.key_by("k").process(Kinds()).collect()


class Passes:
    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.emit(record["v"])


def test_nothing_about_panes_is_demanded_of_a_process() -> None:
    """Neither where lateness is given nor where it is inherited: a process has no panes."""
    keyed = source(watermark=lw.Ascending()).key_by("k")
    windowed = keyed.window(lw.FixedWindows("10s"), allowed_lateness="5s")
    late = windowed.process(Passes())
    assert len(late.collect().values()) == len(keyed.process(Passes()).collect().values())
    inherited = late.map(lambda v: {"k": 1, "v": v}).key_by("k").window(lw.Sessions("10s"))
    assert inherited.process(Passes()).collect().values()
    for aggregated in (windowed, inherited):  # what has panes still has to say how they relate
        with pytest.raises(InvalidArgument, match="accumulation= is required"):
            aggregated.aggregate(n=lw.count())
        with pytest.raises(InvalidArgument, match="accumulation= is required"):
            aggregated.group()
    assert keyed.window(lw.FixedWindows("10s")).aggregate(n=lw.count()).collect().panes


@pytest.mark.parametrize(
    "option",
    [
        {"accumulation": "retracting"},
        {"accumulation": "accumulating", "allowed_lateness": "5s"},
        {"closing": "always"},
        {"on_time": "if_new"},
        {"timestamps": "latest"},
        {"allow_data_loss": "none is lost"},
    ],
)
def test_what_is_about_panes_is_refused_before_a_process(option: Any) -> None:
    """It would have no effect, silently."""
    keyed = source(watermark=lw.Ascending()).key_by("k")
    name = next(iter(option))
    with pytest.raises(InvalidArgument, match=rf"{name}=.*a process has none.*Leave {name}= out"):
        keyed.window(lw.FixedWindows("10s"), **option).process(Passes())
