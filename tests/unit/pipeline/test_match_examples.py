"""Row patterns as a user would write them: those of ``examples/``."""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from benchmarks.nexmark.events import AUCTION, BID, Events
from benchmarks.nexmark.measuring import streams_of
from examples.auction_patterns import QUERIES, rising, unwanted
from examples.checkout_funnel import STEPS, attempts, furthest, per_day
from examples.guessed_passwords import guessed
from examples.logout_sessions import sessions
from examples.price_dips import dips
from examples.unpaid_orders import unpaid

NOON = datetime(2000, 1, 1, 12, tzinfo=UTC)
SIZES = pytest.mark.parametrize("bundle_size", [1, 2, 100])


def stream(*rows: tuple[float, dict[str, Any]], disorder: str = "0s") -> lw.Stream:
    """Return records at minutes after noon."""
    items = [{"at": NOON + timedelta(minutes=at), **row} for at, row in rows]
    return lw.from_iterable(items, time="at", watermark=lw.BoundedDisorder(disorder))


def net(matches: lw.MatchedStream, *names: str, bundle_size: int = 100) -> Counter[Any]:
    """Return what stands in the end: the key and some values of each match."""
    found: Counter[Any] = Counter()
    for one in matches.run(bundle_size=bundle_size):
        values = tuple(one.value[name] for name in names)
        found[(one.key, *values)] += -1 if one.kind == "retract" else 1
    assert min(found.values(), default=0) >= 0
    return +found


@SIZES
def test_a_late_price_corrects_its_dip(bundle_size: int) -> None:
    """P-7: the net output is that of all prices in order."""
    arriving = [(0, 10), (1, 8), (2, 7), (4, 11), (5, 9), (7, 9), (3, 5), (8, 9)]
    rows = [(at, {"symbol": "A", "price": price}) for at, price in arriving]
    found = net(dips(stream(*rows)), "top", "low", "recovered", bundle_size=bundle_size)
    assert found == {("A", 10, 5, 11): 1}


@SIZES
def test_guessed_passwords(bundle_size: int) -> None:
    """P-4: five minutes after the first failure belong to it, and no more."""

    def tries(user: str, *at: float) -> list[tuple[float, dict[str, Any]]]:
        wrong = [(one, {"user": user, "ok": False, "address": str(one)}) for one in at[:-1]]
        return [*wrong, (at[-1], {"user": user, "ok": True, "address": "0"})]

    rows = [*tries("in time", 0, 1, 2, 5), *tries("late", 0, 1, 2, 5.01), *tries("few", 0, 1, 2)]
    found = net(guessed(stream(*rows, disorder="1h")), "failed", bundle_size=bundle_size)
    assert found == {("in time", 3): 1}


def test_what_is_too_long_from_one_start_is_found_from_the_next() -> None:
    """P-4: ``within`` bounds the search; it does not discard what was found."""
    rows = [(at, {"user": "a", "ok": at == 7, "address": "x"}) for at in range(8)]
    assert net(guessed(stream(*rows)), "failed") == {("a", 5): 1}


@SIZES
def test_an_order_that_is_paid_late_was_unpaid_for_a_while(bundle_size: int) -> None:
    """P-12: a payment after exactly thirty minutes is in time."""
    rows = [
        (0, {"order": 1, "kind": "placed", "amount": 1}),
        (1, {"order": 2, "kind": "placed", "amount": 2}),
        (30, {"order": 1, "kind": "paid", "amount": 1}),
        (40, {"order": 3, "kind": "other", "amount": 0}),
        (31, {"order": 2, "kind": "paid", "amount": 2}),
        (32, {"order": 3, "kind": "placed", "amount": 3}),
    ]
    assert net(unpaid(stream(*rows)), "amount", bundle_size=bundle_size) == {(3, 3): 1}


def test_attempts_end_at_each_step() -> None:
    """P-5: who leaves is counted once the hour is over; who looks again is one visitor."""
    steps = [("a", ["view", "view"]), ("b", ["view", "cart"]), ("c", ["view", "cart", "pay"])]
    rows = [
        (at, {"user": user, "kind": kind})
        for user, kinds in steps
        for at, kind in enumerate([*kinds, "other"])
    ]
    source = stream(*rows, disorder="1h")
    assert net(attempts(source), "steps") == {("a", 1): 2, ("b", 2): 1, ("c", 3): 1}
    (day,) = per_day(furthest(attempts(source))).collect().panes
    assert dict(day.values) == {"view": 3, "cart": 2, "pay": 1}


def funnel_of(events: list[tuple[int, str, str]]) -> dict[int, dict[str, int]]:
    """Return the visitors of each day that came to each step, of minutes, users and kinds."""
    best: dict[tuple[int, str], int] = {}
    for start, user, kind in events:
        if kind != "view":
            continue
        steps, last = 1, start
        for at, other, next_kind in sorted(events):
            if other == user and last < at <= start + 60 and next_kind == STEPS[steps % 3]:
                steps, last = steps + 1, at
                if steps == len(STEPS):
                    break
        key = (last + 720) // 1440, user
        best[key] = max(steps, best.get(key, 0))
    return {
        day: {
            step: sum(one[0] == day and steps > n for one, steps in best.items())
            for n, step in enumerate(STEPS)
        }
        for day, _ in best
    }


@SIZES
@given(st.data())
def test_a_funnel_of_any_events_in_any_order(bundle_size: int, data: st.DataObject) -> None:
    """P-7: late events correct attempts, those the best of a visitor, and these the counts."""
    kinds = st.sampled_from([*STEPS, *STEPS, "other"])
    minutes = st.lists(st.integers(0, 250) | st.integers(700, 800), max_size=25, unique=True)
    events = [
        (at, data.draw(st.sampled_from("abc")), data.draw(kinds)) for at in data.draw(minutes)
    ]
    rows = [(at, {"user": user, "kind": kind}) for at, user, kind in events]
    if not rows:
        return
    found = per_day(furthest(attempts(stream(*rows), allowed_lateness="20h")))
    shown = {
        pane.window.start: dict(pane.values)
        for pane in found.collect(bundle_size=bundle_size).final()
        if any(pane.values.values())
    }
    expected = {
        lw.instant(NOON - timedelta(hours=12) + timedelta(days=day)): counts
        for day, counts in funnel_of(events).items()
    }
    assert shown == expected


def test_a_funnel_of_many_visitors() -> None:
    random_ = random.Random(3)
    events = [
        (at, f"user {random_.randrange(2_000)}", random_.choice([*STEPS, "other"]))
        for at in range(20_000)
    ]
    arriving = sorted(events, key=lambda event: event[0] + random_.randrange(500))
    source = stream(
        *((at, {"user": user, "kind": kind}) for at, user, kind in arriving), disorder="9h"
    )
    panes = per_day(furthest(attempts(source))).collect().final()
    by_user: dict[str, list[tuple[int, str, str]]] = defaultdict(list)
    for event in events:
        by_user[event[1]].append(event)
    expected: dict[int, Counter[str]] = defaultdict(Counter)
    for some in by_user.values():
        for day, counts in funnel_of(some).items():
            expected[day].update(counts)
    assert [Counter(pane.values) for pane in panes] == [expected[day] for day in sorted(expected)]


@SIZES
def test_a_session_ends_at_a_logout_or_a_gap(bundle_size: int) -> None:
    """P-3: ``prev`` also reads the row before the match."""
    rows = [
        (at, {"user": "a", "what": what})
        for at, what in [(0, "in"), (29, "x"), (30, "logout"), (31, "x"), (61, "y"), (62, "z")]
    ]
    found = net(sessions(stream(*rows)), "records", "ended", bundle_size=bundle_size)
    assert found == {("a", 3, True): 1, ("a", 1, False): 1, ("a", 2, False): 1}


HOUSE = Events(3_000, per_second=10, out_of_order="5s")


def found_in_order_and_out_of_order(query: Callable[..., lw.MatchedStream]) -> list[Any]:
    """Return what a query finds; the order in which events arrive must not matter."""
    table = HOUSE.table()
    some = [
        Counter(
            (one.key, str(one.timestamp), *map(str, one.value.values()))
            for one in query(streams_of(HOUSE, each, "")).run(bundle_size=500)
        )
        for each in (table, table.sort_by("event"))
    ]
    assert some[0] == some[1]
    return sorted(one.key for one in query(streams_of(HOUSE, table, "")).run())


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.__name__)
def test_patterns_of_auctions_do_not_depend_on_arrival(query: Any) -> None:
    """P-1: rows are in order of event time."""
    found_in_order_and_out_of_order(query)


def test_rising_bids_are_those_that_a_loop_finds() -> None:
    bids: dict[int, list[tuple[datetime, int]]] = defaultdict(list)
    for row in HOUSE.table().sort_by("event").to_pylist():
        if row["event_type"] == BID:
            bids[row["bid"]["auction"]].append((row["date_time"], row["bid"]["price"]))
    wanted = []
    for auction, of_auction in bids.items():
        at = 0
        while at + 3 < len(of_auction):
            times, prices = zip(*of_auction[at : at + 4], strict=True)
            doubled = all(after >= 2 * price for price, after in itertools.pairwise(prices))
            is_match = doubled and times[-1] - times[0] <= timedelta(minutes=1)
            wanted += [auction] * is_match
            at += 4 if is_match else 1
    assert wanted
    assert found_in_order_and_out_of_order(rising) == sorted(wanted)


def test_unwanted_auctions_are_those_that_a_loop_finds() -> None:
    """P-12: whatever comes up to half a minute later, its end included."""
    events = HOUSE.table().sort_by("event").to_pylist()
    bids = [(row["bid"]["auction"], row["date_time"]) for row in events if row["event_type"] == BID]
    opened = [
        (row["auction"]["id"], row["date_time"]) for row in events if row["event_type"] == AUCTION
    ]
    wanted = [
        auction
        for auction, time in opened
        if not any(
            one == auction and time <= at <= time + timedelta(seconds=30) for one, at in bids
        )
    ]
    assert wanted
    assert found_in_order_and_out_of_order(unwanted) == sorted(wanted)
