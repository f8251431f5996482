"""Count orders by shop and hour, as long as the machine runs: a pipeline to start as a service.

python examples/service/orders.py FOLDER [ADDRESS]

At the address, such as 127.0.0.1:8790, the run can be watched, and Prometheus reads metrics. The
folder holds ``in`` (files of JSON lines, moved there when they are complete), ``state`` and
``orders.sqlite``. SIGTERM ends it with all that was read committed; the next start goes on there.
"""

from __future__ import annotations

import sys
from pathlib import Path

import lowwater as lw
from lowwater.io.sinks import SqliteTable


def orders_by_hour(folder: Path) -> lw.Pipeline:
    """Return the count and the sum of orders by shop and hour, corrected while they come late."""
    orders = lw.read_jsonl(
        str(folder / "in"),
        time="at",
        follow=True,
        watermark=lw.BoundedDisorder("5m"),
        idle_after="1m",
    )
    return (
        orders.key_by("shop")
        .window(
            lw.FixedWindows("1h"),
            trigger=lw.AfterWatermark(early=lw.AfterProcessingTime("10s"), late=lw.AfterCount(1)),
            accumulation="accumulating",
            allowed_lateness="1d",
        )
        .aggregate(orders=lw.count(), amount=lw.sum("amount"))
    )


def main() -> None:
    folder, *served = Path(sys.argv[1]), *sys.argv[2:3]
    table = SqliteTable(str(folder / "orders.sqlite"), "orders")
    orders_by_hour(folder).write_to(table).run(
        state=folder / "state",
        commit_every="1s",
        progress=False,
        serve=served[0] if served else False,
    )


if __name__ == "__main__":
    main()
