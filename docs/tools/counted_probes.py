"""Probes of windows of a number of records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lowwater as lw
from docs.tools.probe import Probe
from docs.tools.records import begun


def counted_probes() -> Iterator[Probe]:
    """Yield them, in the order of the table."""
    yield Probe("Windows of a number of records", "CountWindows(2)", _apart)
    yield Probe("Windows of a number of records", "CountWindows(3, every=1)", _moving)
    yield Probe("Windows of a number of records", "a stage behind CountWindows", _behind)


def _apart(_: Path) -> Any:
    windowed = begun().key_by("key").window(lw.CountWindows(2))
    return windowed.aggregate(n=lw.count(), values=lw.collect("value"))


def _moving(_: Path) -> Any:
    windowed = begun().key_by("key").window(lw.CountWindows(3, every=1))
    return windowed.aggregate(total=lw.sum("value"), last=lw.last("value"))


def _behind(_: Path) -> Any:
    pairs = begun().key_by("key").window(lw.CountWindows(2)).aggregate(total=lw.sum("value"))
    return pairs.key_by("key").window(lw.FixedWindows("1m")).aggregate(most=lw.max("total"))
