"""Convert orders with the exchange rate of their event time, and correct them when a rate is late.

    python examples/currency_rates.py

Each order meets the newest rate at or before its time. When a rate comes late, the orders that it
concerns are retracted and emitted again, and so are the hourly totals.
"""

import lowwater as lw


def converted(orders: lw.Stream, rates: lw.Stream) -> lw.JoinedStream:
    """Join orders (``currency``, ``amount``) with rates (``currency``, ``rate``)."""
    rows = orders.join_as_of(
        rates,
        on="currency",
        how="inner",
        late_versions="correct",
        keep="2h",
        suffixes=("_ordered", "_rated"),
    )
    return rows.named("converted")


def turnover(rows: lw.JoinedStream) -> lw.Pipeline:
    """Add up the dollars of each hour, and correct the total when rows are corrected."""
    return (
        rows.with_columns(dollars=lw.col("amount") * lw.col("rate"))
        .key_by(all=lw.lit("all"))
        .window(
            lw.FixedWindows("1h"),
            trigger=lw.AfterWatermark(late=lw.Always()),
            accumulation="retracting",
        )
        .aggregate(dollars=lw.sum("dollars"))
    )


def main() -> None:
    def stream(what: str, *rows: tuple[str, str, float]) -> lw.Stream:
        items = [{"at": f"2000-01-01T{at}Z", "currency": c, what: value} for at, c, value in rows]
        return lw.from_iterable(items, time="at", watermark=lw.BoundedDisorder("1m"))

    orders = stream(
        "amount", ("12:10:00", "EUR", 100), ("12:50:00", "EUR", 200), ("13:10:00", "CHF", 50)
    )
    rates = stream(
        "rate",
        ("11:00:00", "CHF", 0.75),
        ("12:00:00", "EUR", 1.0),
        ("13:30:00", "EUR", 1.5),
        ("12:30:00", "EUR", 1.25),  # an hour late
    )
    rows = converted(orders, rates)
    for row in rows.run(bundle_size=1):
        print(row.kind, row.timestamp, row.key, row.value["amount"], row.value["rate"])
    for pane in turnover(rows).run(bundle_size=1):
        print(pane.kind, pane.timing, pane.window.start, pane.value)


if __name__ == "__main__":
    main()
