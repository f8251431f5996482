"""The nine events of *Streaming Systems* (Akidau, Chernyak, Lax, 2018, chapter 2), drawn.

``python -m examples.nine_events FILE.svg`` draws them in windows of two minutes with early,
on-time and late panes; without a file it draws them in the terminal.
"""

from __future__ import annotations

import sys

import lowwater as lw
from lowwater.testing import Scenario
from lowwater.viz import Diagram


def nine_events() -> Scenario:
    """Return what arrived when, with a heuristic watermark that is too fast for the 9."""
    return (
        Scenario(start="12:00:00", watermark="12:00:00")
        .add((5, "12:00:26", "TeamX"), at="12:05:19")
        .add((7, "12:02:26", "TeamX"), at="12:05:39")
        .watermark("12:02:00", at="12:06:00")
        .add((3, "12:03:39", "TeamX"), at="12:06:13")
        .add((4, "12:04:19", "TeamX"), at="12:06:39")
        .add((8, "12:03:06", "TeamX"), at="12:07:06")
        .add((3, "12:06:39", "TeamX"), at="12:07:19")
        .watermark("12:04:00", at="12:07:30")
        .watermark("12:06:00", at="12:07:41")
        .add((9, "12:01:26", "TeamX"), at="12:08:19")
        .add((8, "12:07:26", "TeamX"), at="12:08:39")
        .add((1, "12:07:46", "TeamX"), at="12:09:00")
        .watermark("12:08:00", at="12:09:22")
        .end()
    )


def picture() -> Diagram:
    """Return the diagram of the book's figure with early, on-time and late panes."""
    windowing = lw.Windowing(
        windows=lw.FixedWindows("2m"),
        trigger=lw.AfterWatermark(early=lw.AfterProcessingTime("1m"), late=lw.AfterCount(1)),
        accumulation="accumulating",
        allowed_lateness="1h",
    )
    return nine_events().run_windowing(windowing, aggregate=lw.sum(), trace=True).diagram()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        picture().save(sys.argv[1])
    else:
        print(picture())
