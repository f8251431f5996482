"""The names that the code of a mistake finds, as if its user had just defined them."""

from __future__ import annotations

from typing import Any

import lowwater as lw

ORDERS = [
    {"at": "2024-05-01T12:00:10Z", "shop": "a", "price": 5},
    {"at": "2024-05-01T12:00:40Z", "shop": "b", "price": 7},
    {"at": "2024-05-01T12:01:20Z", "shop": "a", "price": 2},
]


def in_scope() -> dict[str, Any]:
    """Return the names, made for one mistake alone.

    ``orders`` are three records, ``stream`` reads them, ``keyed`` has them by shop, ``windowed`` in
    windows of a minute, and ``pipeline`` sums their prices.
    """
    stream = lw.from_iterable(ORDERS, time="at")
    keyed = stream.key_by("shop")
    windowed = keyed.window(lw.FixedWindows("1m"))
    return {
        "lw": lw,
        "orders": [dict(order) for order in ORDERS],
        "stream": stream,
        "keyed": keyed,
        "windowed": windowed,
        "pipeline": windowed.aggregate(total=lw.sum("price")),
    }
