"""Snapshots that are written by hand, and random ones."""

from __future__ import annotations

from typing import Any, get_args

from hypothesis import strategies as st

from lowwater.engine.graph.metrics import Metrics
from lowwater.live.snapshot import (
    CommitSnapshot,
    PartSnapshot,
    RunState,
    Snapshot,
    StageCounters,
    counters_of,
    source_part,
    totals_of,
)

HOSTILE = 'a"b\\c\nd\\n} 1 # ü→\u2028😀\t,x="y"'

COMMITS: CommitSnapshot = {
    "epoch": 7,
    "count": 3,
    "seconds": 0.75,
    "buckets": [(0.1, 1), (0.5, 2), (1.0, 3)],
    "last": [],
    "ago": 2.5,
    "state_bytes": 4096,
}


def part(name: str, kind: Any = "stage", **fields: Any) -> PartSnapshot:
    """Return a source or a stage."""
    made: Any = {**source_part(name, "", None), "kind": kind, **fields}
    return made


def counters(**fields: Any) -> StageCounters:
    """Return the counters of a stage: 0 where nothing else is said."""
    zero: StageCounters = {
        "arrived": 0, "admitted": 0, "dropped": 0, "dead": 0, "duplicates": 0, "superseded": 0,
        "retractions": 0, "panes": {}, "emitted": {}, "late": {},
    }  # fmt: skip
    made: Any = {**zero, **fields}
    return made


def snapshot(**fields: Any) -> Snapshot:
    """Return a snapshot of a run that has done nothing."""
    nothing = Metrics()
    empty: Snapshot = {
        "title": "clicks → counts",
        "state": "running",
        "error": None,
        "at": 1_000.5,
        "began": 900.0,
        "elapsed": 100.5,
        "totals": totals_of(nothing, 0.0),
        "parts": [],
        "late": [],
        "lateness": None,
        "dead_letters": [],
        "commits": None,
        "outputs": [],
        "workers": 0,
        "traced": False,
        "history": [],
        "counters": counters_of(nothing),
    }
    made: Any = {**empty, **fields}
    return made


def whole(name: str = "counts", source: str = "clicks") -> Snapshot:
    """Return a snapshot in which everything is known."""
    held_by = f"{source}: partition 3 silent since 12:00"
    stage = counters(
        arrived=90, admitted=80, dropped=4, duplicates=5, superseded=1, retractions=2,
        panes={"ON_TIME": 6}, emitted={"main": 11}, late={"closed": 4},
    )  # fmt: skip
    return snapshot(
        title=f"{source} → {name}",
        parts=[
            part(source, "source", behind=12.5, held_by=held_by, idle_seconds=3.0, share=0.25),
            part(name, behind=60.0, held_by=held_by, open_windows=8, waiting=7, rows=9),
        ],
        commits=COMMITS,
        outputs=[
            {"name": name, "sinks": ["a"], "deliveries": 1, "rows": 20},
            {"name": name, "sinks": ["b"], "deliveries": 1, "rows": 22},
        ],
        workers=2,
        counters={
            "events": 100,
            "bundles": 10,
            "errors": {"null_time": 6, "wrong_type": 4},
            "stages": {name: stage},
        },
    )


_COUNT = st.integers(0, 2**53)
_NAME = st.text(min_size=1, max_size=8) | st.just(HOSTILE)
_SECONDS = st.none() | st.floats(-1e9, 1e9)
_COUNTS = st.dictionaries(_NAME, _COUNT, max_size=3)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """Draw a snapshot with any names and numbers."""
    names = draw(st.lists(_NAME, max_size=5, unique=True))
    sources = draw(st.integers(0, len(names)))
    parts = [
        part(
            name, "source" if at < sources else "stage",
            behind=draw(_SECONDS), idle_seconds=draw(_SECONDS),
            share=draw(st.none() | st.floats(0, 1)), open_windows=draw(_COUNT),
            rows=draw(_COUNT), waiting=draw(_COUNT), ended=draw(st.booleans()),
            held_by=f"{draw(st.sampled_from(names))}: {draw(st.text(max_size=5))}",
        )
        for at, name in enumerate(names)
    ]  # fmt: skip
    stages = {
        name: counters(
            arrived=draw(_COUNT), panes=draw(_COUNTS), emitted=draw(_COUNTS), late=draw(_COUNTS)
        )
        for name in names[sources:]
    }
    output = st.fixed_dictionaries(
        {"name": st.sampled_from(names or ["x"]), "sinks": st.just([]), "rows": _COUNT}
    )
    return snapshot(
        title=draw(_NAME),
        state=draw(st.sampled_from(get_args(RunState))),
        parts=parts,
        commits=draw(st.none() | st.just(COMMITS)),
        outputs=draw(st.lists(output, max_size=3)),
        counters={
            "events": draw(_COUNT), "bundles": draw(_COUNT), "errors": draw(_COUNTS),
            "stages": stages,
        },
    )  # fmt: skip
