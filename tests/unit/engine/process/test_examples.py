"""Keyed computations as a user would write them: those of ``examples/``, and a join by hand."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from examples.declined_payments import Declined, alarms
from examples.first_seen import FirstSeen, first_orders
from examples.tuple_trees import Acker
from lowwater.time import duration
from tests.children import run_example
from tests.unit.engine.process.joined_by_hand import Joined, joined, unclicked_per_hour
from tests.unit.engine.process.process_steps import Driven

SECOND = duration("1s")
MINUTE = duration("1m")


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


def record(k: str, t: int, kind: str, what: str) -> dict[str, Any]:
    return {"t": t, "k": k, "kind": kind, "what": what}


def test_search_and_click() -> None:
    driven = Driven(Joined())
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
    driven = Driven(Joined())
    driven.take(record("s1", 5 * MINUTE, "click", "cats.org"))
    assert driven.take(record("s1", 4 * MINUTE, "search", "cats")) == [
        ("s1", 5 * MINUTE, {"query": "cats", "link": "cats.org"})
    ]
    driven.watermark(30 * MINUTE)
    assert driven.tagged("unclicked") == []
    assert driven.operator.state_rows == 0


@given(st.data())
def test_an_acker_of_any_trees_in_any_order(data: st.DataObject) -> None:
    """It acknowledges the trees of which nothing is missing, each once, and forgets them all."""
    ids = random.Random(data.draw(st.integers(0, 9)))
    messages: list[dict[str, Any]] = []
    whole: set[str] = set()
    for number in range(data.draw(st.integers(1, 5))):
        key = f"tree {number}"
        root = {"t": SECOND, "k": key}
        sent = [ids.getrandbits(62)]
        told = [{**root, "begins": True, "ids": sent[0]}]
        for each in sent:  # grows meanwhile: a tuple is acknowledged with those that it led to
            combined = each
            for _ in range(data.draw(st.integers(0, 2)) if len(sent) < 12 else 0):
                sent.append(ids.getrandbits(62))
                combined ^= sent[-1]
            told.append({**root, "begins": False, "ids": combined})
        lost = data.draw(st.none() | st.integers(0, len(told) - 1))
        if lost is None:
            whole.add(key)
        else:
            del told[lost]
        messages += told
    driven = Driven(Acker())
    acknowledged: list[str] = []
    for message in data.draw(st.permutations(messages)):
        acknowledged += [key for key, _, value in driven.take(message) if value["outcome"] == "ack"]
        driven.reborn()
    assert sorted(acknowledged) == sorted(whole)
    late = driven.watermark(60 * SECOND)
    begun = {one["k"] for one in messages if one["begins"]}
    assert all(value == {"outcome": "fail"} for _, _, value in late)
    assert {key for key, _, _ in late} == begun - whole
    assert driven.operator.state_rows == 0


def test_the_page_shows_what_the_example_of_the_acker_prints() -> None:
    lines = run_example("tuple_trees")
    assert "\n".join(lines) in (ROOT / "docs/howto/from-storm.md").read_text(encoding="utf-8")


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


# ----------------------------------------------------------------------- the same through pipelines

ROOT = Path(__file__).parents[4]


CLOCK = lw.ManualClock(0)


def stream(*items: dict[str, Any], disorder: str = "10m") -> lw.Stream:
    return lw.from_iterable(items, time="at", watermark=lw.BoundedDisorder(disorder), clock=CLOCK)


def test_first_orders() -> None:
    orders = [
        {"at": at * MINUTE, "order": n} for at, n in [(0, 7), (1, 8), (0, 7), (149, 9), (150, 7)]
    ]
    found = first_orders(stream(*orders)).collect(bundle_size=1)
    assert [(e.key, e.timestamp // MINUTE) for e in found.elements()] == [
        (7, 0),
        (8, 1),
        (9, 149),
        (7, 150),
    ]


@pytest.mark.parametrize("bundle_size", [1, 2, 100])
def test_searches_and_clicks_of_two_sources_to_three_ends(bundle_size: int, tmp_path: Path) -> None:
    searches = stream(
        {"at": 1 * MINUTE, "session": "s1", "what": "cats"},
        {"at": 2 * MINUTE, "session": "s2", "what": "dogs"},
        {"at": 58 * MINUTE, "session": "s3", "what": "owls"},
        {"at": 90 * MINUTE, "session": "s5", "what": "bats"},
    )
    clicks = stream(
        {"at": 3 * MINUTE, "session": "s1", "what": "cats.org"},
        {"at": 91 * MINUTE, "session": "s5", "what": "bats.org"},
        {"at": 89 * MINUTE, "session": "s4", "what": "home"},
    )
    pairs = joined(searches, clicks)
    assert pairs.outputs == ("main", "unclicked")
    metrics = lw.run(
        pairs.write_jsonl(tmp_path / "clicked.jsonl"),
        pairs.output("unclicked").write_jsonl(tmp_path / "unclicked.jsonl"),
        unclicked_per_hour(pairs).write_jsonl(tmp_path / "hours.jsonl"),
        bundle_size=bundle_size,
        progress=False,
    )
    assert metrics.events == 7
    assert not metrics.late

    def written(name: str, *columns: str) -> list[Any]:
        lines = (tmp_path / f"{name}.jsonl").read_text().splitlines()
        return [tuple(json.loads(line)[column] for column in columns) for line in lines]

    assert written("clicked", "session", "query", "link") == [
        ("s1", "cats", "cats.org"),
        ("s5", "bats", "bats.org"),
    ]
    assert written("unclicked", "session", "query") == [("s2", "dogs"), ("s3", "owls")]
    # The timer of s3 fires after the hour, and held its watermark until then.
    assert written("hours", "window_start", "searches", "timing") == [
        ("1970-01-01T00:00:00Z", 2, "ON_TIME")
    ]


def test_alarms_do_not_depend_on_the_order_of_payments() -> None:
    minutes = [1, 5, 9, 30]
    for order in itertools.permutations(minutes):
        payments = [
            {"at": at * MINUTE, "card": "red", "ok": False, "amount": 10, "n": at} for at in order
        ]
        found = alarms(stream(*payments, disorder="30m")).collect(bundle_size=1)
        assert [(e.key, e.value) for e in found.elements()] == [
            ("red", {"from": MINUTE, "to": 9 * MINUTE})
        ]


@pytest.mark.parametrize(
    ("name", "last"),
    [
        ("first_seen", "2000-01-01T14:31:00Z 7 tea"),
        ("declined_payments", "2000-01-01T12:09:00Z  the card red was declined three times"),
        ("session_leaders", "1970-01-01T00:23:00Z  user 16 with 2, user 0 with 1, user 3 with 1"),
    ],
)
def test_the_files_run(name: str, last: str) -> None:
    assert run_example(name)[-1] == last
