"""Probes of values over the rows before each row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import lowwater as lw
from docs.tools.probe import Probe
from docs.tools.records import ONE_FILE, begun, in_files


def over_probes() -> Iterator[Probe]:
    """Yield them, in the order of the table."""
    tried: Mapping[str, Callable[[], Any]] = {
        'over("1m", mean=..., max=...)': lambda: begun().key_by("key").over(
            "1m", mean=lw.mean("value"), most=lw.max("value"), rank=lw.rank(by="value")
        ),
        "over(rows=3, ...)": lambda: begun().key_by("key").over(
            rows=3, list=lw.collect("value"), nth=lw.row_number(),
            step=lw.col("value") - lw.prev("value"),
        ),
        'over(rows=3, keep="1m")': lambda: begun().key_by("key").over(
            rows=3, keep="1m", before=lw.prev("value")
        ),
        "a stage behind over": lambda: (
            begun()
            .key_by("key")
            .over("1m", n=lw.count())
            .key_by("key")
            .window(lw.FixedWindows("1m"), accumulation="retracting")
            .aggregate(most=lw.max("n"))
        ),
    }  # fmt: skip
    for name, make in tried.items():
        yield Probe("Values over rows", name, _anywhere(make))
    yield Probe("Values over rows", "over with late records, in micro-batches", _late, ONE_FILE)


def _anywhere(make: Callable[[], Any]) -> Callable[[Path], Any]:
    """Return what makes a pipeline that needs no folder."""
    return lambda _: make()


def _late(folder: Path) -> Any:
    return (
        in_files(folder)
        .key_by("key")
        .over("1m", allowed_lateness="10m", mean=lw.mean("value"), n=lw.count())
    )
