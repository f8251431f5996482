"""Chain three stages: sessions per user, how many end per minute, and which user had the most.

    python examples/session_leaders.py

Sessions are emitted early and retracted as they grow and merge. The counts over them, and the
leaders, are corrected each time. The final result is that of a batch over all records.
"""

import random
from bisect import insort
from collections.abc import Iterable
from typing import Literal

import lowwater as lw

GAP = "20s"
TIES = 1_000_000  # of users with equally many sessions, lower numbers come first


class Top:
    """Keeps the largest values: a combiner for ``lw.combine``.

    Args:
        count: How many.
    """

    def __init__(self, count: int) -> None:
        self._count = count

    def create_accumulator(self) -> list[int]:
        return []

    def add_input(self, accumulator: list[int], value: int) -> list[int]:
        insort(accumulator, value)
        return accumulator[-self._count :]

    def merge_accumulators(self, accumulators: Iterable[list[int]]) -> list[int]:
        return sorted(value for each in accumulators for value in each)[-self._count :]

    def extract_output(self, accumulator: list[int]) -> list[list[int]]:
        """Return [sessions, user] of each, the first one first."""
        return [[-(-value // TIES), -value % TIES] for value in reversed(accumulator)]


def sessions(visits: lw.Stream, *, retracting: bool = True) -> lw.Pipeline:
    """Group each user's visits into retracting sessions, which fire with every third visit."""
    if not retracting:
        return visits.key_by("user").window(lw.Sessions(GAP)).aggregate(visits=lw.count())
    return (
        visits.key_by("user")
        .window(
            lw.Sessions(GAP),
            trigger=lw.AfterWatermark(early=lw.AfterCount(3), late=lw.AfterCount(1)),
            accumulation="retracting",
            allowed_lateness="30s",
        )
        .aggregate(visits=lw.count())
    )


def leaders(visits: lw.Stream, *, retracting: bool = True, count: int = 10) -> lw.Pipeline:
    """Return who had the most sessions that ended in each minute, by ``user`` of ``visits``."""
    mode: Literal["retracting"] | None = "retracting" if retracting else None
    shown = sessions(visits, retracting=retracting).named("sessions")
    per_minute = (
        shown.key_by("user")
        .window(lw.FixedWindows("1m"), accumulation=mode)
        .aggregate(sessions=lw.count())
        .named("sessions per minute")
    )
    score = lw.col("sessions") * TIES - lw.col("user")
    return (
        per_minute.filter(lw.col("sessions") > 0)
        .with_columns(score=score)
        .key_by(all=lw.lit("all"))
        .window(lw.FixedWindows("1m"), accumulation=mode)
        .aggregate(leaders=lw.combine(Top(count), "score"))
        .named("leaders")
    )


def main() -> None:
    chance = random.Random(1)
    visits = [
        {"at": 1_000 + n + chance.randrange(-5, 6), "user": chance.randrange(30)}
        for n in range(400)
    ]
    disorder = lw.BoundedDisorder("10s")
    source = lw.from_iterable(visits, time="at", unit="s", watermark=disorder)
    last: dict[lw.Window, lw.Pane] = {}
    for pane in leaders(source, count=3).run(bundle_size=20):
        if pane.kind == "insert":
            last[pane.window] = pane
    for window, pane in sorted(last.items()):
        told = ", ".join(f"user {user} with {number}" for number, user in pane.value)
        print(f"{window.start}  {told}")


if __name__ == "__main__":
    main()
