"""Probes of row patterns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import lowwater as lw
from docs.tools.probe import Probe
from docs.tools.records import ONE_FILE, begun, in_files

CONDITIONS: Mapping[str, Any] = {
    "down": lw.col("value") < lw.prev("value"),
    "up": lw.col("value") > lw.prev("value"),
}


def match_probes() -> Iterator[Probe]:
    """Yield them, in the order of the table."""
    tried: Mapping[str, Callable[[], Any]] = {
        'match("start down+ up+")': lambda: _dips(begun()),
        'match("even .. odd")': lambda: begun().key_by("key").match(
            "even .. odd",
            define={"even": lw.col("even"), "odd": ~lw.col("even")},
            measures={"n": lw.count(), "odd": lw.last("value", of="odd")},
        ),
        'match(skip="next")': lambda: _dips(begun(), skip="next"),
        'match(rows="all")': lambda: _dips(begun(), rows="all"),
        "match(without=absent(...))": lambda: _dips(
            begun(), without=lw.absent(lw.col("value") > 8, within="20s")
        ),
        "match, conditions with matched": lambda: begun().key_by("key").match(
            "low+ high",
            define={"high": lw.col("value") > 2 + lw.matched("low").max("value")},
            measures={"by": lw.col("value") - lw.matched("low").max("value")},
            within="1m",
        ),
        "match, a function as a condition": lambda: begun().key_by("key").match(
            "any any", define={"any": _is_bounded}, measures={"total": lw.sum("value")}
        ),
        "a stage behind a match": lambda: (
            _dips(begun())
            .key_by("key")
            .window(lw.FixedWindows("1m"), accumulation="retracting")
            .aggregate(n=lw.count())
        ),
    }  # fmt: skip
    for name, make in tried.items():
        yield Probe("Row patterns", name, _anywhere(make))
    for emit in ("on_time", "final", "early"):
        name = f'match(emit="{emit}"), in micro-batches'
        yield Probe("Row patterns", name, _in_batches(emit), ONE_FILE)


def _anywhere(make: Callable[[], Any]) -> Callable[[Path], Any]:
    """Return what makes a pipeline that needs no folder."""
    return lambda _: make()


def _in_batches(emit: Any) -> Callable[[Path], Any]:
    return lambda folder: _dips(in_files(folder), emit=emit, allowed_lateness="10m")


def _dips(stream: lw.Stream, **options: Any) -> lw.MatchedStream:
    return stream.key_by("key").match(
        "start down+ up+",
        define=CONDITIONS,
        measures={"low": lw.min("value", of="down"), "ups": lw.count(of="up")},
        within="2m",
        **options,
    )


def _is_bounded(match: lw.MatchSoFar) -> bool:
    return bool(match.matched().sum("value") < 12)
