"""Keep the first record of each id with a process of your own; `.deduplicate` does it faster.

python examples/first_seen.py
"""

from typing import Any

import lowwater as lw

HOUR = lw.duration("1h")


class FirstSeen:
    """Emits the first record of each key, and forgets the key an hour later."""

    seen = lw.value_cell(False)
    forget = lw.timer()

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        if not ctx.seen.get():
            ctx.seen.set(True)
            ctx.forget.set(ctx.time + HOUR)
            ctx.emit(record)

    def on_timer(self, name: str, ctx: lw.ProcessContext) -> None:
        ctx.seen.clear()


def first_orders(orders: lw.Stream) -> lw.Processed:
    """Return the orders, by ``order``, without repetitions within an hour."""
    return orders.key_by("order").process(FirstSeen())


def main() -> None:
    orders = [
        {"at": "2000-01-01T12:00:00Z", "order": 7, "item": "tea"},
        {"at": "2000-01-01T12:01:00Z", "order": 8, "item": "milk"},
        {"at": "2000-01-01T12:00:00Z", "order": 7, "item": "tea"},  # sent again
        {"at": "2000-01-01T14:30:00Z", "order": 9, "item": "sugar"},
        {"at": "2000-01-01T14:31:00Z", "order": 7, "item": "tea"},  # the number is used again
    ]
    source = lw.from_iterable(orders, time="at", watermark=lw.BoundedDisorder("5m"))
    for element in first_orders(source).run(bundle_size=1):
        print(element.timestamp, element.key, element.value["item"])


if __name__ == "__main__":
    main()
