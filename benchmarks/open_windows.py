"""Steps per second and memory with many windows open. Each measurement has a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

import lowwater as lw
from benchmarks.machine import resident_bytes
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import Bundle, WatermarkAdvance
from lowwater.engine.window.operator import WindowOperator
from lowwater.engine.window.windowing import Windowing
from lowwater.kernels import count_records
from lowwater.time import Int64Array
from lowwater.windows import WindowFunction

_HOUR = 3_600_000_000
_START = 1_699_999_200_000_000 // _HOUR * _HOUR
_KEYS = 10_000
_FILL = 50_000


def steps_per_second(windows: str, open_windows: int, steps: int) -> float:
    """Return how many (bundle of one, watermark advance) pairs a second takes."""
    return float(_in_process("steps", windows, open_windows, steps)["steps_per_second"])


def bytes_per_window(windows: str, open_windows: int) -> float:
    """Return how much the process grew per open (key, window) with one sum."""
    return float(_in_process("memory", windows, open_windows, 0)["bytes_per_window"])


def main() -> None:
    """Measure what the command line asks for and print it as JSON."""
    what, windows, open_windows, steps = (
        sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]),
    )  # fmt: skip
    count_records(0)  # as a stage does: LOWWATER_KERNELS is heeded, though there is no stage here
    before = resident_bytes()
    operator = _filled(WINDOWS[windows], open_windows, per_key=what == "memory")
    if operator.open_windows != open_windows:
        raise SystemExit(f"{operator.open_windows} windows are open, not {open_windows}")
    if what == "memory":
        grown = resident_bytes() - before
        print(json.dumps({"bytes_per_window": grown / open_windows}))
        return
    keys = np.random.default_rng(1).integers(0, open_windows, steps)
    one = Column(np.ones(1, dtype=np.int64))
    bundles = [
        Bundle(np.array([_START + 1_000 + at]), (Column(keys[at : at + 1]),), {"value": one})
        for at in range(steps)
    ]
    began = time.perf_counter()
    for at, bundle in enumerate(bundles):
        operator.step(bundle)
        operator.step(WatermarkAdvance(_START + at - 2_000))
    print(json.dumps({"steps_per_second": steps / (time.perf_counter() - began)}))


def _filled(windows: WindowFunction, count: int, *, per_key: bool) -> WindowOperator:
    """Return an operator with so many open windows; see :func:`fill_steps`."""
    operator = WindowOperator(windowing_of(windows), {"total": lw.sum("value")})
    for bundle in fill_steps(count, per_key=per_key):
        operator.step(bundle)
    return operator


def windowing_of(windows: WindowFunction) -> Windowing:
    """Return windows with early and late panes, accumulating."""
    trigger = lw.AfterWatermark(early=lw.AfterCount(1000), late=lw.AfterCount(1))
    return Windowing(
        windows=windows, trigger=trigger, accumulation="accumulating", allowed_lateness="1h"
    )


def fill_steps(count: int, *, per_key: bool, numbers: Int64Array | None = None) -> Iterator[Bundle]:
    """Yield bundles with one element for each of so many windows.

    Args:
        count: How many.
        per_key: Whether 10 000 string keys have many windows each; else each int key has one.
        numbers: Numbers of the windows, int64, instead of those from 0.
    """
    names = pa.array([f"key-{number:05d}" for number in range(_KEYS)])
    for first in range(0, count, _FILL):
        number = np.arange(first, min(first + _FILL, count), dtype=np.int64)
        if numbers is not None:
            number = numbers[number]
        key = Column(number)
        times = _START + number % 3_000_000_000
        if per_key:
            key = Column.from_arrow(names.take(pa.array(number % _KEYS)))
            times = _START + number // _KEYS * _HOUR
        value = Column(np.ones(len(number), dtype=np.int64))
        yield Bundle(times, (key,), {"value": value})


WINDOWS: dict[str, WindowFunction] = {
    "fixed": lw.FixedWindows("1h"),
    "sessions": lw.Sessions("30m"),
}


def _in_process(what: str, windows: str, open_windows: int, steps: int) -> dict[str, float]:
    command = [sys.executable, "-m", __name__, what, windows, str(open_windows), str(steps)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


if __name__ == "__main__":
    main()
