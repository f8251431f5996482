"""Keyed computations as a user would write them."""

from __future__ import annotations

from typing import Any

import pytest

import lowwater as lw
from lowwater.time import duration
from tests.unit.process_steps import Driven

MINUTE = duration("1m")


class FirstSeen:
    """Lets the first record of each key through, and forgets the key an hour after it."""

    seen = lw.value_cell(False)
    forget = lw.timer()

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        if not ctx.seen.get():
            ctx.seen.set(True)
            ctx.forget.set(ctx.time + duration("1h"))
            ctx.emit(record)

    def on_timer(self, name: str, ctx: lw.ProcessContext) -> None:
        ctx.seen.clear()


def test_first_seen() -> None:
    driven = Driven(FirstSeen())
    a, b = {"t": 1, "k": "a"}, {"t": 2, "k": "b"}
    assert driven.take(a, b, a) == [("a", 1, a), ("b", 2, b)]
    driven.reborn()
    assert driven.take(b, {"t": 5, "k": "c"}) == [("c", 5, {"t": 5, "k": "c"})]
    assert driven.operator.state_rows == 3
    driven.watermark(duration("1h") + 3)
    assert driven.operator.state_rows == 1
    assert driven.take({"t": duration("2h"), "k": "a"}) != []


class Unclicked:
    """Joins a search with its clicks, and tells of searches without one after ten minutes.

    The timer holds the output watermark at the search: what it emits is not late downstream.
    """

    search = lw.value_cell()
    clicks = lw.list_cell()
    joined = lw.value_cell(False)
    expire = lw.timer()
    unclicked = lw.output()

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        if record["kind"] == "click":
            ctx.clicks.append((ctx.time, record["what"]))
        else:
            ctx.search.set((ctx.time, record["what"]))
        if not ctx.search.is_set or not len(ctx.clicks):
            if ctx.expire.get() is None:
                ctx.expire.set(ctx.time + 10 * MINUTE, output_time=ctx.time)
            return
        searched, query = ctx.search.get()
        for clicked, link in ctx.clicks:
            ctx.emit({"query": query, "link": link}, time=max(searched, clicked))
        ctx.clicks.clear()
        ctx.joined.set(True)
        ctx.expire.set(searched + 10 * MINUTE)  # without a hold: nothing is left to tell

    def on_timer(self, name: str, ctx: lw.ProcessContext) -> None:
        if ctx.search.is_set and not ctx.joined.get():
            ctx.emit({"query": ctx.search.get()[1]}, tag="unclicked")
        for cell in (ctx.search, ctx.clicks, ctx.joined):
            cell.clear()


def record(k: str, t: int, kind: str, what: str) -> dict[str, Any]:
    return {"t": t, "k": k, "kind": kind, "what": what}


def test_search_and_click() -> None:
    driven = Driven(Unclicked())
    assert driven.take(record("s1", MINUTE, "search", "cats")) == []
    assert driven.take(record("s2", 2 * MINUTE, "search", "dogs")) == []
    assert driven.watermark(9 * MINUTE) == []
    assert driven.operator.output_watermark == MINUTE  # "cats" may come out yet
    assert (hold := driven.operator.hold()) is not None
    assert "key 's1', timer 'expire'" in hold.what
    assert driven.take(record("s1", 3 * MINUTE, "click", "cats.org")) == [
        ("s1", 3 * MINUTE, {"query": "cats", "link": "cats.org"})
    ]
    driven.reborn()
    assert driven.operator.output_watermark == 2 * MINUTE  # "dogs" may still come out
    assert driven.watermark(12 * MINUTE) == []
    assert driven.tagged("unclicked") == [("s2", 2 * MINUTE, {"query": "dogs"})]
    assert driven.operator.output_watermark == 12 * MINUTE
    assert driven.operator.state_rows == 0


def test_a_click_may_come_before_its_search() -> None:
    driven = Driven(Unclicked())
    driven.take(record("s1", 5 * MINUTE, "click", "cats.org"))
    assert driven.take(record("s1", 4 * MINUTE, "search", "cats")) == [
        ("s1", 5 * MINUTE, {"query": "cats", "link": "cats.org"})
    ]
    driven.watermark(30 * MINUTE)
    assert driven.tagged("unclicked") == []
    assert driven.operator.state_rows == 0


class Declined:
    """Raises an alarm at the third declined payment of a card within ten minutes of event time.

    Payments come out of order, so each is looked at among those before and after it.
    """

    declined = lw.ordered_cell()
    clean = lw.timer()

    within = 10 * MINUTE

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        if record["ok"]:
            return
        ctx.declined.add(ctx.time, record["amount"])
        near = ctx.declined.range(ctx.time - self.within + 1, ctx.time + self.within)
        times = [at for at, _ in near]
        for first, last in zip(times, times[2:], strict=False):
            if last - first < self.within:
                ctx.emit({"from": first, "to": last}, time=max(last, ctx.time))
                ctx.declined.delete(first, last + 1)
                break
        if len(ctx.declined):
            # No payment before the watermark will come any more: what is older than ten minutes
            # by then can be part of no alarm.
            self._set(ctx)

    def on_timer(self, name: str, ctx: lw.ProcessContext) -> None:
        ctx.declined.delete(None, ctx.due - self.within + 1)
        if len(ctx.declined):
            self._set(ctx)

    def _set(self, ctx: lw.ProcessContext) -> None:
        first, _ = ctx.declined.first()
        ctx.clean.set(first + self.within)


def payment(t: int, ok: bool = False, k: str = "card") -> dict[str, Any]:
    return {"t": t * MINUTE, "k": k, "ok": ok, "amount": 10}


@pytest.mark.parametrize("order", [(1, 5, 9), (9, 1, 5), (5, 9, 1)])
def test_three_declined_in_ten_minutes_in_any_order(order: tuple[int, ...]) -> None:
    driven = Driven(Declined())
    for at in order[:2]:
        assert driven.take(payment(at)) == []
        driven.reborn()
    assert driven.take(payment(4, ok=True), payment(3, k="other")) == []
    ((key, _, alarm),) = driven.take(payment(order[2]))
    assert (key, alarm) == ("card", {"from": MINUTE, "to": 9 * MINUTE})
    driven.watermark(60 * MINUTE)
    assert driven.operator.state_rows == 0


def test_three_declined_in_more_than_ten_minutes() -> None:
    driven = Driven(Declined())
    assert driven.take(payment(1), payment(11), payment(6)) == []
    driven.watermark(12 * MINUTE)  # the first can be part of no alarm any more
    assert driven.take(payment(12)) == [
        ("card", 12 * MINUTE, {"from": 6 * MINUTE, "to": 12 * MINUTE})
    ]
