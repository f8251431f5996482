"""What ``CountWindows`` accept, what they say where they do not, and how they are shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import lowwater as lw

TABLE = pa.table(
    {
        "at": pa.array([0, 1, 2, 3, 4], pa.timestamp("us", "UTC")),
        "k": ["a", "a", "b", "a", None],
        "v": [1, 2, 3, 2**53 + 1, 5],
        "f": [1.0, float("inf"), None, 2.0, 3.0],
    }
)


def keyed() -> lw.KeyedStream:
    return lw.from_arrow(TABLE, time="at").key_by("k")


def windowed() -> lw.WindowedStream:
    return keyed().window(lw.CountWindows(2))


def signed() -> lw.KeyedStream:
    """Panes that are retracted."""
    panes = keyed().window(lw.FixedWindows("1m"), accumulation="retracting", allowed_lateness="1h")
    return panes.aggregate(n=lw.count()).to_stream().key_by("k")


def again() -> lw.KeyedStream:
    """Panes that contain what earlier ones contained."""
    panes = keyed().window(
        lw.FixedWindows("1m"), trigger=lw.Repeatedly(lw.AfterCount(1)), accumulation="accumulating"
    )
    return panes.aggregate(n=lw.count()).to_stream().key_by("k")


REFUSED: dict[str, tuple[str, Callable[[], Any]]] = {
    "none": ("not an int from 1", lambda: lw.CountWindows(0)),
    "true": ("not an int from 1", lambda: lw.CountWindows(True)),
    "text": ("not an int from 1", lambda: lw.CountWindows("2")),  # type: ignore[arg-type]
    "a float": ("not an int from 1", lambda: lw.CountWindows(2.0)),  # type: ignore[arg-type]
    "every none": ("every=0", lambda: lw.CountWindows(2, every=0)),
    "gaps": ("every=3 is above count=2", lambda: lw.CountWindows(2, every=3)),
    "too many": ("10_001 windows", lambda: lw.CountWindows(10_001, every=1)),
    "a trigger": ("trigger= is for windows of event time", lambda: keyed().window(
        lw.CountWindows(2), trigger=lw.Always())),
    "lateness": ("allowed_lateness= is for", lambda: keyed().window(
        lw.CountWindows(2), allowed_lateness="1m")),
    "a process": ("has no windows of a number", lambda: windowed().process(Nothing())),
    "a signed input": ("may retract", lambda: signed().window(lw.CountWindows(2)).aggregate(
        n=lw.count())),
    "counted twice": ("more than once", lambda: again().window(lw.CountWindows(2)).aggregate(
        n=lw.count())),
    "a table": ("changes of a table", lambda: lw.from_arrow(TABLE, time="at").table(
        key="v").changes().key_by("k").window(lw.CountWindows(2)).aggregate(n=lw.count())),
    "no column": ("'w'", lambda: windowed().aggregate(n=lw.sum("w"))),
    "a key's name": ("that is a key", lambda: windowed().aggregate(k=lw.count())),
    "a pane's name": ("panes have that", lambda: windowed().aggregate(index=lw.count())),
    "a table of panes": ("no row for a key and window", lambda: windowed().aggregate(
        n=lw.count()).table()),
}  # fmt: skip


class Nothing:
    def on_record(self, ctx: Any, record: Any) -> None:
        """Do nothing."""


@pytest.mark.parametrize("name", REFUSED)
def test_it_refuses(name: str) -> None:
    what, make = REFUSED[name]
    with pytest.raises(lw.InvalidArgument, match=what) as caught:
        make()
    assert caught.value.hint


def test_windows_are_values() -> None:
    windows = [lw.CountWindows(100), lw.CountWindows(100, every=20), lw.CountWindows(3, 3)]
    for one in windows:
        assert eval(repr(one), {"CountWindows": lw.CountWindows}) == one
        assert hash(one) == hash(eval(repr(one), {"CountWindows": lw.CountWindows}))
    assert [one.step for one in windows] == [100, 20, 3]
    assert [one.overlap for one in windows] == [1, 5, 1]


def test_other_names_are_told() -> None:
    with pytest.raises(lw.InvalidArgument, match="count"):
        lw.CountWindows(size=3)  # type: ignore[call-arg]
    with pytest.raises(AttributeError, match="CountWindows"):
        lw.countWindow(3)  # type: ignore[attr-defined]


def test_a_null_key_is_a_dead_letter_and_does_not_count() -> None:
    result = (
        windowed().aggregate(total=lw.sum("v"), most=lw.max("f")).collect(on_error="dead_letter")
    )
    assert [(pane.key, pane.values["total"]) for pane in result.panes] == [
        ("a", 3), ("b", 3), ("a", 2**53 + 1),
    ]  # fmt: skip
    assert [error.reason for error in result.errors] == ["null_key"]
    assert result.metrics.late.total() == 0
    assert len(result.final()) == 3
    assert result.final().to_arrow().num_rows == 3


def test_nothing_comes_of_nothing() -> None:
    nothing = lw.from_arrow(TABLE.slice(0, 0), time="at").key_by("k").window(lw.CountWindows(2))
    result = nothing.aggregate(n=lw.count()).collect()
    assert result.panes == []
    assert {"k", "window_start", "window_end", "n"} <= set(result.to_arrow().column_names)


def test_it_is_shown() -> None:
    windows = windowed()
    assert "window(CountWindows(2))" in repr(windows)
    grouped = windows.group("v")
    assert "window(CountWindows(2))" in repr(grouped)
    assert any("CountWindows(2), by arrival" in line for line in str(grouped.explain()).split("\n"))
    (found,) = [one for one in lw.check(grouped) if "waits for its last record" in one.what]
    assert found.severity == "note"


def test_a_trace_says_which_windows_have_a_record() -> None:
    rows = [{"at": second * 1_000_000, "k": "a", "v": second} for second in range(4)]
    stream = lw.from_iterable(rows, time="at").key_by("k")
    result = stream.window(lw.CountWindows(3, every=2)).aggregate(n=lw.count()).collect(trace=True)
    told = str(result.why(rows[2]))
    assert "it is record 3 of its key, by arrival" in told
    assert "pane of the window of records 1 to 3 contains it" in told
    assert "window of records 3 to 5 was not full as the input ended" in told
    with pytest.raises(lw.InvalidArgument, match="of a number of records"):
        result.explain("a", "1970-01-01T00:00:01Z")
    assert "CountWindows(3, every=2)" in result.diagram().to_text()
