"""Windows by two columns of a record (S-W9)."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.errors import DataError, InvalidArgument
from lowwater.testing import check_window_function
from lowwater.time import END_OF_TIME, START_OF_TIME
from lowwater.windows import ColumnWindows

WINDOWS = ColumnWindows("opened", "closes", longest="1h")
SECOND = 1_000_000
BASE = dt.datetime(2026, 5, 4, 12, tzinfo=dt.UTC)


def at(seconds: float) -> dt.datetime:
    return BASE + dt.timedelta(seconds=seconds)


def test_a_record_is_in_its_window_if_its_time_is() -> None:
    """S-W9, S-T2: the start belongs to it, and the end does not."""
    #    0      5      10
    #    [------*------)      0, 5 and 9
    #    *                *   10 and -1: unwindowed
    times = np.array([0, 5, 9, 10, -1])
    given = WINDOWS.assign(times, {"opened": np.zeros(5, int), "closes": np.full(5, 10)})
    assert given.start.tolist() == [0, 0, 0]
    assert given.end.tolist() == [10, 10, 10]
    assert given.element is not None
    assert given.element.tolist() == [0, 1, 2]
    assert given.unwindowed is not None
    assert given.unwindowed.tolist() == [3, 4]


def test_an_end_that_is_not_after_the_start_holds_nothing() -> None:
    """S-W9."""
    times = np.array([5, 5])
    given = WINDOWS.assign(times, {"opened": np.array([5, 9]), "closes": np.array([5, 1])})
    assert not len(given.start)
    assert given.unwindowed is not None
    assert given.unwindowed.tolist() == [0, 1]


def test_it_is_a_window_function() -> None:
    times = [0, 5, 5, 7, -3]
    columns = {"opened": [0, 1, 9, 7, -9], "closes": [9, 6, 12, 8, 0]}
    check_window_function(WINDOWS, times=times, columns=columns)
    assert eval(repr(WINDOWS)) == WINDOWS


@pytest.mark.parametrize(
    ("low", "high"), [(0, 3_600 * SECOND + 1), (START_OF_TIME, END_OF_TIME), (-5, END_OF_TIME)]
)
def test_assign_refuses_a_window_that_is_too_long(low: int, high: int) -> None:
    """S-W9: admission makes dead letters of such records before."""
    with pytest.raises(DataError, match="is longer than longest='1h'"):
        WINDOWS.assign(np.array([0]), {"opened": np.array([low]), "closes": np.array([high])})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"start": "a", "end": "a", "longest": "1h"}, "are one column"),
        ({"start": 5, "end": "a", "longest": "1h"}, "start=5 .* not the name of a column"),
        ({"start": "a", "end": "", "longest": "1h"}, "end='' .* not the name of a column"),
        ({"start": "a", "end": "b", "longest": "0s"}, "longer than zero"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        ColumnWindows(**arguments)


def rows(opened: Any, closes: Any) -> list[dict[str, Any]]:
    return [
        {"time": at(30), "k": "a", "opened": o, "closes": c, "v": 1}
        for o, c in zip(opened, closes, strict=True)
    ]


def run(source: Any, **options: Any) -> tuple[list[Any], list[tuple[str, str]]]:
    """Return the bounds and values of panes, and the dead letters."""
    bad: list[tuple[str, str]] = []
    stream = (
        lw.from_arrow(source, time="time", **options)
        if isinstance(source, pa.Table)
        else lw.from_iterable(source, time="time", **options)
    )
    found = stream.key_by("k").window(WINDOWS).aggregate(n=lw.count(), v=lw.sum("v"))
    given = [
        (pane.window.start, pane.window.end, pane.values["n"])
        for pane in found.run(on_dead_letter=lambda one: bad.append((one.reason, one.detail)))
    ]
    return given, bad


def test_bad_bounds_are_dead_letters() -> None:
    """S-W9, S-B1."""
    source = rows(
        [at(0), at(0), None, "soon", at(0), float("nan")],
        [at(60), at(7_200), at(60), at(60), None, at(60)],
    )
    panes, bad = run(source)
    assert [count for *_, count in panes] == [1]
    assert [reason for reason, _ in bad] == ["bad_window"] * 5
    assert "from 'opened' 2026-05-04T12:00:00Z to 'closes' 2026-05-04T14:00:00Z" in bad[0][1]
    assert "'opened' is null; it bounds the window of the record" in bad[1][1]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_bounds_of_any_arrow_unit(unit: str) -> None:
    """S-W9: written as event times are, whatever their unit; also past internal chunks."""
    count = 20_000
    table = pa.table(
        {
            "time": pa.array([at(n % 90) for n in range(count)], pa.timestamp("us", "UTC")),
            "k": pa.array(["a"] * count),
            "opened": pa.array([at(0)] * count, pa.timestamp(unit, "Europe/Berlin")),
            "closes": pa.array(
                [at(60) if n % 3 else None for n in range(count)], pa.timestamp(unit, "UTC")
            ),
            "v": pa.array(range(count)),
        }
    )
    panes, bad = run(table)
    inside = sum(1 for n in range(count) if n % 3 and n % 90 < 60)
    assert [(start, end - start, n) for start, end, n in panes] == [
        (int(BASE.timestamp()) * SECOND, 60 * SECOND, inside)
    ]
    assert len(bad) == sum(1 for n in range(count) if not n % 3)


def test_numbers_are_in_the_unit_of_event_times() -> None:
    """S-W9."""
    source = [{"time": 30, "k": "a", "opened": 0, "closes": 60, "v": 1}]
    panes, _ = run(source, unit="s")
    assert panes == [(0, 60 * SECOND, 1)]


@pytest.mark.parametrize("spec", [lw.max("closes"), lw.collect("opened"), lw.count("closes")])
def test_an_aggregate_of_a_bound_is_refused(spec: Any) -> None:
    """S-W9."""
    windowed = lw.from_iterable(rows([at(0)], [at(60)]), time="time").key_by("k").window(WINDOWS)
    with pytest.raises(InvalidArgument, match="which is a bound of the windows") as caught:
        windowed.aggregate(x=spec)
    assert "window_" in str(caught.value)
    condition = lw.count(where=lw.col("closes") > lw.col("opened"))
    assert [pane.value for pane in windowed.aggregate(n=condition).run()] == [1]
    (pane,) = windowed.group().run()
    assert pane.value == rows([at(0)], [at(60)])


def test_a_column_that_is_not_there_is_named() -> None:
    stream = lw.from_iterable(rows([at(0)], [at(60)]), time="time")
    windows = ColumnWindows("open", "closes", longest="1h")
    with pytest.raises(InvalidArgument, match="no column 'open'"):
        stream.key_by("k").window(windows).aggregate(n=lw.count()).collect()


class Reads:
    """Emits what it gets of the bounds."""

    def on_record(self, record: Any, context: Any) -> None:
        context.emit({"closes": record["closes"], "v": record["v"]})


def test_a_process_gets_bounds_as_instants() -> None:
    """S-W9."""
    for closes in (at(60), at(60).isoformat()):
        stream = lw.from_iterable(rows([at(0)], [closes]), time="time").key_by("k")
        (found,) = stream.window(WINDOWS).process(Reads()).collect().values()
        assert found == {"closes": at(60), "v": 1}


def test_panes_again_in_their_own_windows() -> None:
    """S-W9, S-C7: a second stage over the windows of the first, whatever these are."""
    hits = [{"time": at(s), "k": k, "site": "x"} for s, k in ((0, "a"), (5, "b"), (40, "a"))]
    first = (
        lw.from_iterable(hits, time="time")
        .key_by("k", "site")
        .window(lw.Sessions("10s"))
        .aggregate(n=lw.count())
    )
    again = (
        first.key_by("site")
        .window(lw.ColumnWindows("window_start", "window_end", longest="1h"))
        .aggregate(users=lw.count(), n=lw.sum("n"))
    )
    found = [(p.window.end - p.window.start, p.values) for p in again.run()]
    assert found == [(10 * SECOND, {"users": 1, "n": 1})] * 3


def test_a_join_within_the_windows_of_both_sides() -> None:
    """S-W9, J-7: records meet whose bounds are the same."""
    left = rows([at(0), at(0), at(10)], [at(60), at(60), at(60)])
    right = [one | {"w": n} for n, one in enumerate(rows([at(0), at(10)], [at(60), at(90)]))]
    joined = lw.from_iterable(left, time="time").join(
        lw.from_iterable(right, time="time").select("time", "k", "opened", "closes", "w"),
        on="k", within=WINDOWS, how="left",
    )  # fmt: skip
    found = sorted((row["opened"], row["w"]) for row in joined.collect().values() if row)
    assert [w for _, w in found if w is not None] == [0, 0]
    assert len(found) == 3
