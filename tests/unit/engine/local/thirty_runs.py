"""Thirty runs up to what is there, some of them killed, beside one run that follows.

Both read the same source and write the same, byte for byte.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import lowwater as lw
from lowwater.engine.local import durable
from tests.unit.engine.local.durable_runs import Stopped

SECOND = 1_000_000
ROUNDS = 30
Rows = list[dict[str, Any]]
NOW: dict[str, Any] = {"until": "available", "progress": False, "commit_every": "bundle"}
POINTS = ("before the write", "after the write", "before publishing", "before forgetting")
_PATIENCE_S = 120


def rows_of(number: int) -> Rows:
    """Return the rows of a round: every fifth also brings some that are too late."""
    at = [number * 10 + n for n in range(10)]
    at += [number * 10 - 40 + n for n in range(3)] if number % 5 == 4 else []
    return [{"t": t * SECOND, "k": "ab"[n % 2], "v": number * 100 + n} for n, t in enumerate(at)]


def windows(stream: Any, lateness: str = "5s") -> Any:
    """Return windows that emit late panes, too."""
    return (
        stream.key_by("k")
        .window(
            lw.FixedWindows("20s"),
            trigger=lw.AfterWatermark(late=lw.AfterCount(1)),
            accumulation="accumulating",
            allowed_lateness=lateness,
        )
        .aggregate(n=lw.count(), total=lw.sum("v"), values=lw.collect("v"))
    )


def output(folder: Path) -> dict[str, list[str]]:
    """Return the lines that were written into a folder, in order."""
    return {
        name: [
            line
            for path in sorted(folder.glob(f"{name}-*.jsonl"))
            for line in path.read_text().splitlines()
        ]
        for name in ("part", "late", "errors")
    }


@contextmanager
def _killing(point: str, count: int) -> Iterator[None]:
    """Stop the run of this thread when it passes a point for that time."""
    mine, left = threading.get_ident(), count

    def on_point(passed: str) -> None:
        nonlocal left
        if threading.get_ident() == mine and passed == point:
            left -= 1
            if not left:
                raise Stopped(point)

    with mock.patch.object(durable, "on_point", on_point):
        yield


def side_by_side(
    folder: Path,
    written: Callable[[str, Path], Any],
    add: Callable[[int], int],
    rounds: int = ROUNDS,
    bundle_size: int = 7,
    wake: Callable[[], Any] = lambda: None,
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return what one run that follows has written, and what many runs have.

    Args:
        folder: An empty folder.
        written: Returns the pipeline, written to a folder; its first argument says which of the two
            reads: ``one``, which follows, or ``many``.
        add: Adds the records of a round; returns how many there are.
        rounds: How many rounds there are.
        bundle_size: That of both.
        wake: Ends the wait of the run that follows.
    """
    arrived = threading.Condition()
    seen = wanted = killed = 0

    def look(metrics: lw.Metrics) -> None:
        nonlocal seen
        with arrived:
            seen = metrics.events
            arrived.notify_all()

    options: dict[str, Any] = {"bundle_size": bundle_size, "commit_every": "bundle"}
    one = written("one", folder / "one").start(state=folder / "one state", progress=look, **options)
    try:
        for number in range(rounds):
            wanted += add(number)
            with _killing(POINTS[number % len(POINTS)], 1 + number % 3):
                for _ in range(2):
                    many = written("many", folder / "many")
                    try:
                        many.run(state=folder / "many state", bundle_size=bundle_size, **NOW)
                    except Stopped:
                        killed += 1
                        continue
                    break
            with arrived:
                while seen < wanted and one.is_running:
                    # Not a time: what a hanging run is given until the test fails.
                    assert arrived.wait(_PATIENCE_S)
    finally:
        one.stop()
        wake()
        one.wait()
    assert seen == wanted
    assert killed > rounds // 2
    return output(folder / "one"), output(folder / "many")
