"""The progress line: on a terminal, silent when piped, a callback for programs."""

from __future__ import annotations

import io
from collections import Counter

import pytest

import lowwater as lw
from lowwater.engine.graph.metrics import Metrics
from lowwater.engine.local.progress import ProgressLine, observer_for, progress_text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Stopwatch:
    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


METRICS = Metrics(events=2_000_000, late=Counter(expired=3), open_windows=12, elapsed=2.0)


def test_the_line_says_all_that_matters() -> None:
    text = progress_text(METRICS)
    assert text == ("2,000,000 events  1,000,000/s  watermark -inf  12 open  3 late  0 errors")


def test_silent_when_piped() -> None:
    assert observer_for(None, io.StringIO()) is None
    assert observer_for(False, Terminal()) is None


def test_a_line_on_a_terminal_or_when_asked_for() -> None:
    assert isinstance(observer_for(None, Terminal()), ProgressLine)
    assert isinstance(observer_for(True, io.StringIO()), ProgressLine)


def test_nothing_in_the_first_second_and_then_not_too_often() -> None:
    stream, stopwatch = Terminal(), Stopwatch()
    line = ProgressLine(stream, stopwatch)
    line(METRICS)
    assert stream.getvalue() == ""
    for at in (1.0, 1.1, 1.15):
        stopwatch.at = at
        line(METRICS)
    assert stream.getvalue().count("events") == 1
    stopwatch.at = 1.3
    line(METRICS)
    assert stream.getvalue().count("events") == 2


def test_the_line_is_wiped_at_the_end() -> None:
    stream, stopwatch = Terminal(), Stopwatch()
    line = ProgressLine(stream, stopwatch)
    stopwatch.at = 2.0
    line(METRICS)
    line.close()
    assert stream.getvalue().endswith("\r" + " " * len(progress_text(METRICS)) + "\r")


def test_a_callback_sees_every_bundle_and_the_end() -> None:
    seen: list[int] = []
    items = [{"t": t, "k": "a"} for t in range(5)]
    pipeline = lw.from_iterable(items, time="t", key="k").window(lw.GlobalWindow()).group()
    pipeline.collect(bundle_size=2, progress=lambda metrics: seen.append(metrics.events))
    assert seen == [2, 4, 5, 5]


def test_anything_else_is_refused() -> None:
    with pytest.raises(lw.InvalidArgument, match="progress="):
        observer_for("yes")  # type: ignore[arg-type]
