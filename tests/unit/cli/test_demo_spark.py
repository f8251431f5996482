"""The demo on Spark tells equal final panes from others; Spark itself is not here."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lowwater as lw
from lowwater.cli import demo_spark

MINUTE = 60_000_000
DATA = pa.table(
    {"at": [0, 1, MINUTE, 2, MINUTE + 1], "key": list("aabab"), "value": [1, 2, 3, 4, 5]}
)


def panes() -> lw.Pipeline:
    return (
        lw.from_arrow(DATA, time="at")
        .key_by("key")
        .window(
            lw.FixedWindows("1m"),
            trigger=lw.AfterWatermark(early=lw.AfterCount(1)),
            accumulation="accumulating",
        )
        .aggregate(total=lw.sum("value"))
    )


def compared(monkeypatch: pytest.MonkeyPatch, on_spark: pa.Table) -> Any:
    monkeypatch.setattr(demo_spark, "_streamed", lambda *_: (on_spark, 3))
    none: Any = None
    return demo_spark._compared(none, Path("folder"), "panes", lambda _: panes())


def test_how_panes_came_about_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other early panes, another order, another clock: only the last pane's values are held."""
    every = panes().to_arrow(bundle_size=1)
    assert len(every) > len(panes().to_arrow())
    row = compared(monkeypatch, every.take(list(reversed(range(len(every))))))
    assert row[1:6] == (3, str(len(every)), "2", "2", "equal")


@pytest.mark.parametrize("fault", ["value", "missing", "another", "stale"])
def test_what_differs_is_seen(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    every = panes().to_arrow(bundle_size=1)
    if fault == "value":
        wrong = every.set_column(
            every.column_names.index("total"), "total", pc.add(every["total"], 1)
        )
    elif fault == "missing":
        wrong = every.filter(pc.not_equal(every["key"], "b"))
    elif fault == "another":
        wrong = every.set_column(0, "key", pc.replace_substring(every["key"], "b", "c"))
    else:
        wrong = every.filter(pc.equal(every["index"], 0))
    assert compared(monkeypatch, wrong)[5] == "DIFFERENT"


def test_it_fails_where_panes_differ(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(demo_spark, "load_flights", lambda: DATA)
    monkeypatch.setattr(demo_spark, "_write_files", lambda *_: 1)
    outcomes = iter(["equal", "DIFFERENT"])
    monkeypatch.setattr(
        demo_spark, "_compared", lambda *_: ("panes", 1, "1", "1", "1", next(outcomes), "0", "0")
    )
    out = io.StringIO()
    session: Any = object()
    assert not demo_spark.demo_spark(out, session)
    assert "The final panes are DIFFERENT." in out.getvalue()
