"""Count how far the visitors of a shop come within an hour: view, cart, payment.

    python examples/checkout_funnel.py

Each step after the first is optional, so those who leave are matches, too. They are emitted when
their hour is over.
"""

import lowwater as lw

STEPS = ("view", "cart", "pay")


def visits(events: lw.Stream) -> lw.MatchedStream:
    """Return how many ``steps`` each visit came; events have ``user`` and ``kind``."""
    return events.key_by("user").match(
        "view (.. cart (.. pay)?)?",
        define={step: lw.col("kind") == step for step in STEPS},
        measures={"steps": 1 + lw.matched("cart").count() + lw.matched("pay").count()},
        within="1h",
    )


def per_day(visits: lw.MatchedStream) -> lw.Pipeline:
    """Count the visits of each day that came to each step."""
    days = visits.key_by(all=lw.lit("all")).window(lw.FixedWindows("1d"))
    came = {step: lw.count(where=lw.col("steps") > n) for n, step in enumerate(STEPS)}
    return days.aggregate(**came)


def main() -> None:
    events = [
        {"at": f"2000-01-01T{at}Z", "user": user, "kind": kind}
        for at, user, kind in [
            ("12:00", "ann", "view"), ("12:01", "ann", "help"), ("12:04", "ann", "cart"),
            ("12:02", "bob", "view"), ("12:10", "ann", "pay"), ("12:03", "cy", "view"),
            ("12:20", "cy", "cart"), ("13:30", "cy", "pay"),
        ]
    ]  # fmt: skip
    source = lw.from_iterable(events, time="at", watermark=lw.BoundedDisorder("10m"))
    for visit in visits(source).run():
        print(f"{visit.key} came to {STEPS[visit.value['steps'] - 1]}")
    for pane in per_day(visits(source)).run():
        print(pane.window.start, dict(pane.values))


if __name__ == "__main__":
    main()
