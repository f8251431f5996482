"""Find orders that are not paid within thirty minutes.

    python examples/unpaid_orders.py

A payment that arrives late, but was made in time, retracts the warning.
"""

import lowwater as lw


def unpaid(events: lw.Stream) -> lw.MatchedStream:
    """Return the orders of which no payment follows; events have ``order`` and ``kind``."""
    return events.key_by("order").match(
        "placed",
        define={"placed": lw.col("kind") == "placed"},
        measures={"amount": lw.col("amount")},
        without=lw.absent(lw.col("kind") == "paid", within="30m"),
        allowed_lateness="1h",
    )


def main() -> None:
    events = [
        {"at": f"2000-01-01T{at}Z", "order": order, "kind": kind, "amount": 20}
        for at, order, kind in [
            ("12:00", 1, "placed"), ("12:05", 2, "placed"), ("12:10", 1, "paid"),
            ("12:50", 3, "placed"), ("12:30", 2, "paid"), ("13:00", 4, "placed"),
        ]
    ]  # fmt: skip
    source = lw.from_iterable(events, time="at", watermark=lw.Ascending())
    for order in unpaid(source).run(bundle_size=1):
        print(f"{order.kind:8} order {order.key} of {order.value['amount']}, at {order.timestamp}")


if __name__ == "__main__":
    main()
