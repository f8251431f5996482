"""Tables as a user would write them: those of ``examples/``."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lowwater as lw
from examples.changes_of_a_database import Shop, kept
from examples.event_sourcing import COMMANDS, Balance, append_to, balances, decided, read, snapshot
from examples.timelines import EVENTS, timelines
from lowwater.io import Log
from tests.children import run_example
from tests.unit.io.postgresql import running_server


def test_the_turnover_of_a_shop_is_that_of_sql(tmp_path: Path) -> None:
    """T-5: at every commit, also where rows change their key, or have no partner."""
    random_ = random.Random(3)
    with closing(Shop()) as shop:
        for _ in range(60):
            table = random_.choice(["customers", "orders"])
            rows: dict[str, dict[str, Any]] = {
                "customers": {"city": random_.choice("ab")},
                "orders": {"customer": random_.randrange(4), "amount": random_.randrange(9)},
            }
            shop.change(
                table, random_.randrange(4), **(rows[table] if random_.random() < 0.7 else {})
            )
        assert {event["op"] for event in shop.events} == {"c", "u", "d"}
        assert kept(shop, tmp_path / "a.sqlite") == shop.answers


def test_the_file_of_the_shop_runs() -> None:
    last = run_example("changes_of_a_database")[-1]
    assert last == "equal to SQL's answer at 120 of 120 commits"


def test_timelines_have_the_posts_of_those_who_are_followed() -> None:
    """T-3: in whatever order follows and posts come, as long as those of a key stay in order."""

    def rows(events: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
        timed = [{"at": at, **event} for at, event in enumerate(events)]
        found = timelines(lw.from_iterable(timed, time="at", unit="s")).rows(bundle_size=2)
        return {(row["reader"], row["author"], row["post"], row["text"]) for row in found}

    wanted = {("ann", "dee", 2, "Rain, again."), ("cy", "bob", 3, "Anyone?")}
    by_key: dict[Any, list[dict[str, Any]]] = {}
    for event in EVENTS:
        by_key.setdefault(event.get("post", event.get("reader")), []).append(event)
    assert rows(EVENTS) == wanted
    for order in itertools.islice(itertools.permutations(by_key.values()), 0, None, 11):
        assert rows([event for events in order for event in events]) == wanted


@pytest.mark.slow(reason="runs whole programs")
def test_timelines_in_postgresql() -> None:
    """T-4: run twice, it replaces the table of the run before."""
    pytest.importorskip("psycopg", reason="needs the extra postgres")
    with running_server() as dsn:
        for _ in range(2):
            assert run_example("timelines", dsn)[-3:] == [
                "delete bob 1",
                "    ann reads dee: Rain, again.",
                "    cy reads bob: Anyone?",
            ]


def test_timelines_without_a_server_say_so() -> None:
    lines = run_example("timelines")
    assert "SQLite" in lines[0]
    assert lines[-1] == "    cy reads bob: Anyone?"


def commands() -> lw.Stream:
    rows = [
        {"at": f"2000-01-01T{at}:00Z", "account": account, "what": what, "amount": amount}
        for at, account, what, amount in COMMANDS
    ]
    return lw.from_iterable(rows, time="at", watermark=lw.BoundedDisorder("1m"))


@pytest.mark.parametrize("size", [1, 100])
def test_decisions_are_in_the_order_in_which_commands_were_sent(size: int) -> None:
    """S-K13: how commands are bundled decides nothing."""
    found = decided(commands()).collect(bundle_size=size)
    assert not found.late
    rejected = [(one.key, one.value["reason"]) for one in found.elements("rejected")]
    assert rejected == [("bob", "there is no such account"), ("ann", "the balance is 30")]
    assert sum(1 for _ in found.elements()) == len(COMMANDS) - len(rejected)


@dataclass
class Came:
    """A delivery, as far as it is used: its id and what is emitted."""

    id: str
    panes: pa.Table


def deposits(number: int, *amounts: int) -> Came:
    row = {"account": "ann", "timestamp": dt.datetime(2000, 1, number, tzinfo=dt.UTC)}
    rows = [{**row, "what": "deposit", "amount": amount} for amount in amounts]
    return Came(f"{number:03}", pa.Table.from_pylist(rows))


def test_a_delivery_that_comes_again_is_in_the_log_once(tmp_path: Path) -> None:
    with Log(tmp_path / "events") as log:
        for one in (deposits(1, 5), deposits(1, 5), deposits(2, 6, 7), deposits(2, 6, 7)):
            append_to(log, one)
        assert log.latest == {0: 3}


def test_a_snapshot_and_the_events_after_it_are_all_events(tmp_path: Path) -> None:
    path = tmp_path / "events"
    taken = []
    with Log(path) as log:
        for number, amounts in enumerate([(5, 6), (7,), (8, 9)], 1):
            append_to(log, deposits(number, *amounts))
            taken.append((log.latest[0], snapshot(balances(read(path), Balance()))))
        append_to(log, deposits(9, 1))
    assert balances(read(path), Balance()).rows() == [{"account": "ann", "balance": 36}]
    for at, saved in taken:
        table = balances(saved | read(path, at), Balance())
        assert table.rows(bundle_size=1) == [{"account": "ann", "balance": 36}]


def test_the_file_of_accounts_runs() -> None:
    assert run_example("event_sourcing")[-6:] == [
        "from the beginning: {'account': 'cy', 'balance': 300}",
        "from the beginning: {'account': 'ann', 'balance': 35}",
        "from the snapshot at offset 3: {'account': 'cy', 'balance': 300}",
        "from the snapshot at offset 3: {'account': 'ann', 'balance': 35}",
        "both versions: {'account': 'cy', 'balance_old': 300, 'balance_new': 298}",
        "both versions: {'account': 'ann', 'balance_old': 35, 'balance_new': 33}",
    ]
