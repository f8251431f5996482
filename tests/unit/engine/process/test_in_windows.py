"""Processes in windows: state that merges, and is dropped when a window expires."""

from __future__ import annotations

from typing import Any

import pytest

import lowwater as lw
from lowwater.engine.process import ProcessOperator
from lowwater.state.key_layout import StoredPlace
from tests.unit.engine.process.process_steps import FIXED, SESSIONS, Driven, records


class Counts:
    n = lw.combining_cell(lw.count())
    first = lw.value_cell(merge=min)
    seen = lw.list_cell()
    by = lw.map_cell(merge=lambda a, b: a + b)
    at = lw.ordered_cell()
    nudge = lw.timer()

    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.n.add(1)
        ctx.first.set(min(ctx.time, ctx.first.get() or ctx.time))
        ctx.seen.append(ctx.time)
        ctx.by[ctx.time % 2] = ctx.by.get(ctx.time % 2, 0) + 1
        ctx.at.add(ctx.time, None)
        ctx.nudge.set(ctx.time + 5)

    def on_timer(self, name: str, ctx: Any) -> None:
        ctx.emit(("nudge", ctx.due, ctx.n.get()))

    def on_window_expired(self, ctx: Any) -> None:
        window = (int(ctx.window.start), int(ctx.window.end))
        told = (ctx.n.get(), ctx.first.get(), list(ctx.seen), dict(ctx.by.items()), len(ctx.at))
        ctx.emit((*window, *told))


def test_sessions_merge_with_their_cells_and_timers() -> None:
    """S-K8.

    ::

        0    5    10   15   20   25   30
        |---------)                        1
                  |---------)              11, apart: [11, 21)
             |---------)                   6 joins the two
    """
    driven = Driven(Counts(), SESSIONS)
    driven.take(*records(("k", 1), ("k", 12), ("other", 50)))
    assert driven.operator.open_windows == 3
    driven.reborn()
    driven.take(*records(("k", 7)))
    assert driven.operator.open_windows == 2
    driven.reborn()
    # Timers move along; of one name the one set last stays: at 7 + 5.
    assert driven.watermark(20) == [("k", 12, ("nudge", 12, 3))]
    assert driven.watermark(30) == [
        ("k", 21, (1, 22, 3, 1, [1, 12, 7], {1: 2, 0: 1}, 3)),
    ]  # fmt: skip
    driven.end()
    assert driven.operator.state_rows == 0


def test_a_bundle_merges_before_its_records_are_given() -> None:
    """S-K8, S-O2."""

    class Tells:
        def on_record(self, record: Any, ctx: Any) -> None:
            ctx.emit(int(ctx.window.start))

    driven = Driven(Tells(), SESSIONS)
    given = driven.take(*records(("k", 5), ("k", 1), ("j", 2)))
    assert [value for _, _, value in given] == [1, 1, 2]


def test_windows_expire_and_drop_what_is_late() -> None:
    """S-K7, S-O3."""
    windowing = FIXED.with_(allowed_lateness=5, accumulation="discarding")
    driven = Driven(Counts(), windowing)
    driven.take(*records(("k", 1), ("k", 2)))
    driven.watermark(14)
    driven.reborn()
    assert driven.take(*records(("k", 3))) == [("k", 8, ("nudge", 8, 3))]
    assert [value[:3] for _, _, value in driven.watermark(15)] == [(0, 10, 3)]
    driven.take(*records(("k", 4), ("k", 15)))
    late = driven.last.late
    assert late is not None
    assert late.element.tolist() == [0]
    assert driven.operator.state_rows == 1


def test_a_timer_after_the_expiry_of_its_window_is_refused() -> None:
    """S-K4."""

    class Sets:
        due_at = lw.timer()

        def on_record(self, record: Any, ctx: Any) -> None:
            ctx.due_at.set(ctx.time + 100)

        def on_timer(self, name: str, ctx: Any) -> None: ...

    class Columns:
        due_at = lw.timer()

        def on_records(self, batch: Any, ctx: Any) -> None:
            ctx.due_at.set(batch.ids, batch.times + 100)

        def on_timers(self, batch: Any, ctx: Any) -> None: ...

    for made in (Sets(), Columns()):
        with pytest.raises(lw.InvalidArgument, match="expiry of its window"):
            Driven(made, FIXED).take(*records(("k", 1)))


def test_a_longer_lateness_does_not_bring_back_what_is_gone() -> None:
    driven = Driven(Counts(), FIXED)
    driven.take(*records(("k", 1)))
    driven.watermark(10)
    driven.save()
    again = ProcessOperator(
        Counts(), windowing=FIXED.with_(allowed_lateness=50, accumulation="discarding")
    )
    again.keep_in_store(StoredPlace("stage 1", 0, 4))
    assert again.restore(driven.store)
    driven.operator = again
    driven.take(*records(("k", 2), ("k", 12)))
    assert driven.last.late is not None
    assert driven.last.late.element.tolist() == [0]
