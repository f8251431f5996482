"""Join and aggregate two tables of a database by their changes, and compare with SQL's answer.

    python examples/changes_of_a_database.py

A shop has customers and orders in SQLite. Each statement gives an event in Debezium's envelope, as
Debezium reads it from the log of a database. From these events alone, lowwater keeps the turnover
of each city up to date. After every commit, its rows are compared with the answer of a query.
"""

import random
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias

import lowwater as lw
from lowwater.io.sinks import Callback, Delivery, SqliteTable

Rows: TypeAlias = list[tuple[Any, ...]]

QUERY = """
    SELECT city, count(*), sum(amount) FROM orders JOIN customers ON orders.customer = customers.id
    GROUP BY city ORDER BY city
"""


def turnover(events: lw.Stream) -> lw.Table[lw.Stream]:
    """Return the orders and their amount per city, from the changes of both tables."""
    table = lw.col("source").struct.field("table")
    customers = lw.debezium(events.filter(table == "customers"), key="id")
    orders = lw.debezium(events.filter(table == "orders"), key="id")
    sold = orders.select("id", "customer", "amount").join(
        customers.select("id", "city"), left_on="customer", right_on="id"
    )
    return sold.group_by("city").aggregate(orders=lw.count(), amount=lw.sum("amount"))


class Shop:
    """The database, the events of its changes, and the answer of the query after each."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.answers: list[Rows] = []
        self._database = sqlite3.connect(":memory:")
        self._database.row_factory = sqlite3.Row
        self._database.executescript(
            "CREATE TABLE customers (id INTEGER PRIMARY KEY, city TEXT);"
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, amount INTEGER);"
        )

    def change(self, table: str, id: int, **row: Any) -> None:
        """Insert or update the row with an id, or without a row delete it."""
        before = self._row(table, id)
        if row:
            columns, marks = ", ".join(row), ", ".join("?" * len(row))
            self._database.execute(
                f"INSERT OR REPLACE INTO {table} (id, {columns}) VALUES (?, {marks})",
                (id, *row.values()),
            )
        else:
            self._database.execute(f"DELETE FROM {table} WHERE id = ?", (id,))
        after = self._row(table, id)
        if before == after:
            return
        op = "c" if before is None else "d" if after is None else "u"
        at = 1_714_564_800_000 + 1_000 * len(self.events)
        event = {"op": op, "before": before, "after": after, "ts_ms": at}
        self.events.append({**event, "source": {"table": table}})
        self.answers.append([tuple(row) for row in self._database.execute(QUERY)])

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def _row(self, table: str, id: int) -> dict[str, Any] | None:
        found = self._database.execute(f"SELECT * FROM {table} WHERE id = ?", (id,)).fetchone()
        return None if found is None else dict(found)


def kept(shop: Shop, path: Path) -> list[Rows]:
    """Keep the turnover in a file, one event per commit; return what it holds after each."""
    found: dict[int, Rows] = {}

    def look(delivery: Delivery) -> None:
        with closing(sqlite3.connect(path)) as database:
            rows = database.execute("SELECT city, orders, amount FROM turnover ORDER BY city")
            found[delivery.epoch] = rows.fetchall()

    events = lw.from_iterable(shop.events, time="ts_ms", unit="ms")
    view = turnover(events).write_to(SqliteTable(str(path), "turnover"), Callback(look))
    view.run(bundle_size=1, commit_every="bundle", progress=False)
    held: list[Rows] = []
    for number in range(1, len(shop.events) + 1):  # without a delivery, nothing has changed
        held.append(found.get(number, held[-1] if held else []))
    return held


def main() -> None:
    with closing(Shop()) as shop, tempfile.TemporaryDirectory() as folder:
        shop.change("orders", 10, customer=1, amount=30)  # before its customer is there
        shop.change("customers", 1, city="Ulm")
        shop.change("customers", 2, city="Bonn")
        shop.change("orders", 11, customer=2, amount=50)
        shop.change("orders", 10, customer=1, amount=35)
        shop.change("customers", 2, city="Ulm")  # moves, and the orders with it
        shop.change("orders", 10)  # is deleted
        random_ = random.Random(1)
        for _ in range(40):
            customer, order = random_.randrange(8), random_.randrange(30)
            shop.change("customers", customer, city=random_.choice(["Ulm", "Bonn", "Kiel"]))
            shop.change("orders", order, customer=customer, amount=random_.randrange(100))
            shop.change(*random_.choice([("customers", customer), ("orders", order)]))
        held = kept(shop, Path(folder) / "turnover.sqlite")
        for event, rows in zip(shop.events[:7], held, strict=False):
            print(event["source"]["table"], event["op"], event["after"], "->", rows)
        equal = sum(rows == answer for rows, answer in zip(held, shop.answers, strict=True))
        print(f"equal to SQL's answer at {equal} of {len(held)} commits")


if __name__ == "__main__":
    main()
