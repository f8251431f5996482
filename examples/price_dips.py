"""Find where a price falls and recovers, though prices arrive out of order.

    python examples/price_dips.py

A price that comes after its dip was emitted corrects it: the dip is retracted, and emitted again.
"""

import lowwater as lw


def dips(prices: lw.Stream) -> lw.MatchedStream:
    """Return where prices (``symbol``, ``price``) fall, and then rise again."""
    return prices.key_by("symbol").match(
        "top down+ up+",
        define={
            "down": lw.col("price") < lw.prev("price"),
            "up": lw.col("price") > lw.prev("price"),
        },
        measures={
            "top": lw.first("price"),
            "low": lw.min("price", of="down"),
            "recovered": lw.last("price"),
        },
        within="1h",
        allowed_lateness="10m",
    )


def main() -> None:
    minutes = [(0, 10), (1, 8), (2, 7), (4, 11), (5, 9), (7, 9), (3, 5), (8, 9)]  # 3 is late
    prices = [{"at": f"2000-01-01T12:{at:02}Z", "symbol": "A", "price": p} for at, p in minutes]
    source = lw.from_iterable(prices, time="at", watermark=lw.Ascending())
    for dip in dips(source).run(bundle_size=1):
        top, low, recovered = (dip.value[name] for name in ("top", "low", "recovered"))
        print(f"{dip.kind:8} {dip.key}: from {top} to {low}, and back to {recovered}")


if __name__ == "__main__":
    main()
