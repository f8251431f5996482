"""Probes of windows of a number of records, and of windows without records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lowwater as lw
from docs.tools.probe import Probe
from docs.tools.records import ONE_FILE, begun, in_files


def counted_probes() -> Iterator[Probe]:
    """Yield them, in the order of the table."""
    yield Probe("Windows of a number of records", "CountWindows(2)", _apart)
    yield Probe("Windows of a number of records", "CountWindows(3, every=1)", _moving)
    yield Probe("Windows of a number of records", "a stage behind CountWindows", _behind)
    yield Probe("Windows without records", 'fill="2 windows"', _filled)
    yield Probe("Windows without records", 'fill=until_idle("1h")', _until_idle)
    yield Probe("Windows without records", "fill, in micro-batches", _late, ONE_FILE)


def _apart(_: Path) -> Any:
    windowed = begun().key_by("key").window(lw.CountWindows(2))
    return windowed.aggregate(n=lw.count(), values=lw.collect("value"))


def _moving(_: Path) -> Any:
    windowed = begun().key_by("key").window(lw.CountWindows(3, every=1))
    return windowed.aggregate(total=lw.sum("value"), last=lw.last("value"))


def _filled(_: Path) -> Any:
    windowed = begun().key_by("key").window(lw.FixedWindows("20s"), fill="2 windows")
    return windowed.aggregate(n=lw.count(), most=lw.max("value"))


def _until_idle(_: Path) -> Any:
    windowed = (
        begun().key_by("key").window(lw.SlidingWindows("40s", "20s"), fill=lw.until_idle("1h"))
    )
    return windowed.aggregate(n=lw.count())


def _late(folder: Path) -> Any:
    windowed = in_files(folder).key_by("key").window(
        lw.FixedWindows("20s"), fill="3 windows", allowed_lateness="10m",
        accumulation="retracting",
    )  # fmt: skip
    return windowed.aggregate(n=lw.count(), total=lw.sum("value"))


def _behind(_: Path) -> Any:
    pairs = begun().key_by("key").window(lw.CountWindows(2)).aggregate(total=lw.sum("value"))
    return pairs.key_by("key").window(lw.FixedWindows("1m")).aggregate(most=lw.max("total"))
