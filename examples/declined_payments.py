"""Detect fraud: three declined payments of a card within ten minutes, out of order.

python examples/declined_payments.py
"""

from typing import Any

import lowwater as lw

MINUTE = lw.duration("1m")


class Declined:
    """Raises an alarm at the third declined payment of a card within ten minutes of event time.

    Payments arrive out of order, so each is compared with those before and after it.
    """

    declined = lw.ordered_cell()
    clean = lw.timer()

    within = 10 * MINUTE

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        if record["ok"]:
            return
        ctx.declined.add(ctx.time, record["amount"])
        near = ctx.declined.range(ctx.time - self.within + 1, ctx.time + self.within)
        times = [at for at, _ in near]
        for first, last in zip(times, times[2:], strict=False):
            if last - first < self.within:
                ctx.emit({"from": first, "to": last}, time=max(last, ctx.time))
                ctx.declined.delete(first, last + 1)
                break
        if len(ctx.declined):
            # No payment below the watermark is expected any more, so payments ten minutes
            # or more below it can no longer be part of an alarm.
            self._set(ctx)

    def on_timer(self, name: str, ctx: lw.ProcessContext) -> None:
        ctx.declined.delete(None, ctx.due - self.within + 1)
        if len(ctx.declined):
            self._set(ctx)

    def _set(self, ctx: lw.ProcessContext) -> None:
        first, _ = ctx.declined.first()
        ctx.clean.set(first + self.within)


def alarms(payments: lw.Stream) -> lw.Processed:
    """Return the alarms over payments: ``card``, ``ok``, ``amount``."""
    return payments.key_by("card").process(Declined())


def main() -> None:
    payments = [
        {"at": f"2000-01-01T12:{minute:02}:00Z", "card": card, "ok": ok, "amount": 10}
        for minute, card, ok in [
            (1, "red", False), (4, "red", True), (9, "red", False), (2, "blue", False),
            (5, "red", False), (14, "blue", False), (20, "blue", False),
        ]
    ]  # fmt: skip
    source = lw.from_iterable(payments, time="at", watermark=lw.BoundedDisorder("10m"))
    for element in alarms(source).run():
        print(f"{element.timestamp}  the card {element.key} was declined three times")


if __name__ == "__main__":
    main()
