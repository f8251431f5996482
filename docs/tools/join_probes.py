"""Probes of joins: by time and with a history."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

import lowwater as lw
from docs.tools.probe import Probe
from docs.tools.records import ONE_FILE, begun, in_files

HOWS: tuple[Literal["inner", "left", "right", "outer", "semi", "anti"], ...] = (
    "inner", "left", "right", "outer", "semi", "anti",
)  # fmt: skip
WITHIN = lw.between("-15s", "30s")


def join_probes() -> Iterator[Probe]:
    """Yield them, in the order of the table."""
    for how in HOWS:
        yield Probe("Joins", f'join(how="{how}")', _anywhere(partial(_joined, how)))
    graphs: Mapping[str, Callable[[], Any]] = {
        'join(within=Sessions(...), how="outer")': lambda: _even().join(
            _odd(), on="key", within=lw.Sessions("20s"), how="outer"
        ),
        'join(within=SlidingWindows(...), how="anti")': lambda: _even().join(
            _odd(), on="key", within=lw.SlidingWindows("1m", "30s"), how="anti"
        ),
        'join(within=between("at", ..., longest=...))': lambda: (
            _even()
            .with_columns(until=lw.col("at").dt.offset_by("40s"))
            .join(_odd(), on="key", within=lw.between("at", "until", longest="1m"), how="left")
        ),
        "join_as_of": lambda: _even().join_as_of(_odd(), on="key"),
        "join_as_of(order, tolerance)": lambda: _even().join_as_of(
            _odd(), on="key", order="value", tolerance="30s", how="inner"
        ),
        'join_as_of(late_versions="correct")': lambda: _even().join_as_of(
            _odd(), on="key", late_versions="correct"
        ),
        'join_as_of(direction="forward", allow_equal=False)': lambda: _even().join_as_of(
            _odd(), on="key", direction="forward", allow_equal=False, tolerance="30s"
        ),
        'join_as_of(direction="nearest", late_versions="correct")': lambda: _even().join_as_of(
            _odd(), on="key", direction="nearest", tolerance="30s", late_versions="correct"
        ),
        "search": lambda: _searched("all"),
        'search(match="any", late_versions="correct")': lambda: _searched("any", late="correct"),
        "a stage behind a search": lambda: (
            _searched("any")
            .key_by("key")
            .window(lw.FixedWindows("1m"), accumulation="discarding")
            .aggregate(n=lw.count())
        ),
        "a join of panes": lambda: _counts().join(_odd(), on="key", within="2m", how="left"),
        "deduplicate before a join": lambda: (
            _even()
            .deduplicate(id="value", within="1m")
            .join(_odd(), on="key", within=WITHIN, how="left")
        ),
        "a stage behind a join": lambda: (
            _joined("left").key_by("key").window(lw.FixedWindows("1m")).aggregate(n=lw.count())
        ),
    }
    for name, make in graphs.items():
        yield Probe("Joins", name, _anywhere(make))
    yield Probe("Joins", "join, in micro-batches", _in_batches, ONE_FILE)
    yield Probe("Joins", "join within windows, in micro-batches", _windows_in_batches, ONE_FILE)
    yield Probe("Joins", "join_as_of, in micro-batches", _as_of_in_batches, ONE_FILE)
    ahead = 'join_as_of(direction="nearest"), in micro-batches'
    yield Probe("Joins", ahead, _nearest_in_batches, ONE_FILE)


def _anywhere(make: Callable[[], Any]) -> Callable[[Path], Any]:
    """Return what makes a pipeline that needs no folder."""
    return lambda _: make()


def _even() -> lw.Stream:
    return begun().filter(lw.col("even")).select("key", "value")


def _odd() -> lw.Stream:
    return begun().filter(~lw.col("even") & (lw.col("value") > 2)).select("key", "value")


def _joined(how: Any) -> lw.JoinedStream:
    return _even().join(_odd(), on="key", within=WITHIN, how=how)


def _counts() -> lw.Stream:
    counted = begun().key_by("key").window(lw.FixedWindows("1m")).aggregate(n=lw.count())
    return counted.select("key", "n")


def _in_batches(folder: Path) -> lw.JoinedStream:
    left, right = _sides(folder)
    return left.join(right, on="key", within=WITHIN, how="left", allowed_lateness="10m")


def _windows_in_batches(folder: Path) -> lw.JoinedStream:
    left, right = _sides(folder)
    return left.join(
        right,
        on="key",
        within=lw.Sessions("20s"),
        how="left",
        accumulation="retracting",
        allowed_lateness="10m",
    )


def _as_of_in_batches(folder: Path) -> lw.JoinedStream:
    left, right = _sides(folder)
    return left.join_as_of(right, on="key")


def _nearest_in_batches(folder: Path) -> lw.JoinedStream:
    left, right = _sides(folder)
    return left.join_as_of(right, on="key", direction="nearest", tolerance="30s")


def _sides(folder: Path) -> tuple[lw.Stream, lw.Stream]:
    right = in_files(folder / "right").filter(~lw.col("even"))
    return in_files(folder / "left"), right.select("key", "value")


def _searched(match: Literal["all", "any"], late: Literal["ignore", "correct"] = "ignore") -> Any:
    """Return a search for the letters of keys."""
    documents, queries = (
        side.with_columns(words=lw.col("key").str.split("-")) for side in (_even(), _odd())
    )
    return documents.select("key", "value", "words").search(
        queries.select("words", query=lw.col("value")),
        on="words", key="query", match=match, late_versions=late,
    )  # fmt: skip
