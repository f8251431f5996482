"""Count how far the visitors of a shop come within an hour: view, cart, payment.

    python examples/checkout_funnel.py

Each step after the first is optional, so those who leave are matches, too. They are emitted when
their hour is over. A visitor who looks at several things may begin at any of them, so each view is
a start, and of the day that one counts that came furthest.
"""

import lowwater as lw

STEPS = ("view", "cart", "pay")


def attempts(events: lw.Stream, allowed_lateness: str | None = None) -> lw.MatchedStream:
    """Return how many ``steps`` follow within an hour of each view.

    Args:
        events: Have ``user`` and ``kind``.
        allowed_lateness: How far below the watermark an event may come; it corrects attempts.
    """
    return events.key_by("user").match(
        "view (.. cart (.. pay)?)?",
        define={step: lw.col("kind") == step for step in STEPS},
        measures={"steps": 1 + lw.matched("cart").count() + lw.matched("pay").count()},
        within="1h",
        skip="next",
        allowed_lateness=allowed_lateness,
    )


def furthest(attempts: lw.MatchedStream) -> lw.Pipeline:
    """Return how many ``steps`` each visitor came in each day at best."""
    days = attempts.key_by("user").window(lw.FixedWindows("1d"), accumulation="retracting")
    return days.aggregate(steps=lw.max("steps"))


def per_day(furthest: lw.Pipeline) -> lw.Pipeline:
    """Count the visitors of each day that came to each step."""
    days = furthest.key_by(all=lw.lit("all"))
    came = {step: lw.count(where=lw.col("steps") > n) for n, step in enumerate(STEPS)}
    return days.window(lw.FixedWindows("1d"), accumulation="retracting").aggregate(**came)


def main() -> None:
    events = [
        {"at": f"2000-01-01T{at}Z", "user": user, "kind": kind}
        for at, user, kind in [
            ("12:00", "ann", "view"), ("12:01", "ann", "view"), ("12:04", "ann", "cart"),
            ("12:02", "bob", "view"), ("12:10", "ann", "pay"), ("12:03", "cy", "view"),
            ("12:20", "cy", "cart"), ("13:30", "cy", "pay"), ("15:00", "cy", "view"),
            ("12:30", "bob", "cart"), ("17:00", "dan", "view"),
        ]
    ]  # fmt: skip
    source = lw.from_iterable(events, time="at", watermark=lw.BoundedDisorder("10m"))
    found = attempts(source, allowed_lateness="4h")
    for visitor in furthest(found).collect().final():
        print(f"{visitor.key} came to {STEPS[visitor.value - 1]}")
    for pane in per_day(furthest(found)).collect(bundle_size=1).final():
        print(pane.window.start, dict(pane.values))


if __name__ == "__main__":
    main()
