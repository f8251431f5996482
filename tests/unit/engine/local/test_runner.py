"""The local runner: bundles, clocks, watermarks, late elements, dead letters, metrics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.engine.graph.clocks import Cut, Cutter
from lowwater.engine.records.batch import Records

MINUTE = 60_000_000
ITEMS: list[dict[str, Any]] = [
    {"t": 5 * MINUTE, "k": "a", "v": 1, "note": "first"},
    {"t": 65 * MINUTE, "k": "a", "v": 2, "note": "moves the watermark"},
    {"t": 6 * MINUTE, "k": "a", "v": 3, "note": "late"},
    {"t": None, "k": "a", "v": 4, "note": "no time"},
]


def pipeline(**options: Any) -> lw.Pipeline:
    return (
        lw.from_iterable(ITEMS, time="t", key="k", watermark=lw.Ascending())
        .window(lw.FixedWindows("1h"), **options)
        .aggregate(lw.sum("v"))
    )


def test_late_elements_keep_their_whole_record() -> None:
    """S-O3."""
    (late,) = pipeline().collect(bundle_size=1).late
    assert late.value == ITEMS[2]
    assert (late.time, late.key, late.reason) == (6 * MINUTE, "a", "expired")
    assert late.window == lw.Window(lw.Instant(0), lw.Instant(60 * MINUTE))
    assert late.watermark == 65 * MINUTE


def test_within_a_bundle_nothing_is_late() -> None:
    """S-O1: the watermark moves after the bundle."""
    result = pipeline().collect(bundle_size=10)
    assert result.late == []
    assert [pane.value for pane in result.panes] == [4, 2]


def test_callbacks_see_late_elements_and_dead_letters() -> None:
    late: list[lw.LateRecord] = []
    letters: list[lw.ErrorRecord] = []
    options: dict[str, Any] = {"on_late": late.append, "on_dead_letter": letters.append}
    panes = list(pipeline().run(bundle_size=1, **options))
    assert [pane.value for pane in panes] == [1, 2]
    assert [record.value["note"] for record in late] == ["late"]
    assert [error.record["note"] for error in letters] == ["no time"]


def test_metrics() -> None:
    run = pipeline(
        trigger=lw.AfterWatermark(early=lw.AfterCount(1)), accumulation="retracting"
    ).run(bundle_size=1)
    list(run)
    metrics = run.metrics
    assert metrics.events == 4
    assert metrics.panes == {"EARLY": 2, "ON_TIME": 2}
    assert metrics.retractions == 2
    assert metrics.late == {"expired": 1}
    assert metrics.errors == {"null_time": 1}
    assert metrics.watermark == lw.END_OF_TIME
    assert metrics.open_windows == 0
    assert metrics.bundles == 3
    assert metrics.elapsed > 0


def test_raise_stops_at_the_first_unusable_record() -> None:
    """S-B1."""
    with pytest.raises(lw.DataError, match=r"record 3 .*null_time.*no time"):
        pipeline().collect(on_error="raise")


def test_no_watermark_until_the_end_of_the_input() -> None:
    stream = lw.from_iterable(ITEMS[:3], time="t", key="k")
    result = stream.window(lw.FixedWindows("1h")).aggregate(lw.sum("v")).collect(bundle_size=1)
    assert [(pane.value, pane.timing) for pane in result.panes] == [(4, "ON_TIME"), (2, "ON_TIME")]


def test_a_watermark_driven_by_hand() -> None:
    watermark = lw.ManualWatermark()
    stream = lw.from_iterable(ITEMS[:3], time="t", key="k", watermark=watermark)
    panes = stream.window(lw.FixedWindows("1h"), trigger=lw.Always(), accumulation="discarding")
    seen = []
    for pane in panes.aggregate(lw.sum("v")).run(bundle_size=1):
        seen.append((pane.value, pane.timing))
        watermark.advance_to(60 * MINUTE)
    assert seen[:2] == [(1, "EARLY"), (2, "EARLY")]


def test_the_clock_moves_before_the_bundle() -> None:
    """S-O8."""
    clock = lw.ManualClock()
    times = iter(range(10, 100, 10))

    class Ticking:
        def now(self) -> int:
            clock.advance_to(next(times))
            return clock.now()

    keyed = lw.from_iterable(ITEMS[:2], time="t", key="k", clock=Ticking())
    windowed = keyed.window(lw.FixedWindows("1h"), trigger=lw.Always(), accumulation="discarding")
    panes = list(windowed.aggregate(lw.sum("v")).run(bundle_size=1))
    assert [pane.emitted_at for pane in panes] == [10, 20]


def test_early_panes_by_the_clock_of_arrival() -> None:
    """S-R1, S-O8: replay fires processing-time triggers as they would have fired."""
    table = pa.table({
        "t": [MINUTE, 2 * MINUTE, 3 * MINUTE, 4 * MINUTE],
        "k": ["a"] * 4,
        "landed": [10 * MINUTE, 11 * MINUTE, 31 * MINUTE, 95 * MINUTE],
    })  # fmt: skip
    pipeline = (
        lw.from_arrow(table, time="t", clock=lw.ArrivalClock("landed", tick="5m"))
        .key_by("k")
        .window(
            lw.FixedWindows("1h"),
            trigger=lw.AfterWatermark(early=lw.AfterProcessingTime("20m")),
            accumulation="accumulating",
        )
        .aggregate(lw.count())
    )
    panes = pipeline.collect().panes
    assert [(pane.value, pane.timing, pane.emitted_at // MINUTE) for pane in panes] == [
        (2, "EARLY", 35),
        (3, "EARLY", 55),
        (4, "ON_TIME", 100),
    ]


def cuts(clock: lw.ArrivalClock, size: int, *arrivals: list[int | None]) -> list[list[Cut]]:
    cutter = Cutter(clock, size)
    found = []
    for values in arrivals:
        batch = Records.from_arrow(pa.RecordBatch.from_pydict({"at": pa.array(values, pa.int64())}))
        found.append(list(cutter.cuts(batch, None)))
    return found


def test_bundles_are_cut_where_the_tick_changes_and_by_size() -> None:
    (found,) = cuts(lw.ArrivalClock("at", tick=10), 2, [1, 2, 9, 10, 11, 35])
    assert found == [Cut(0, 2, 10), Cut(2, 3, 10), Cut(3, 5, 20), Cut(5, 6, 40)]


def test_the_clock_of_arrival_never_goes_back() -> None:
    found = cuts(lw.ArrivalClock("at", tick=10), 9, [None, 25, 3, None], [4, 31])
    assert found == [[Cut(0, 1, lw.START_OF_TIME), Cut(1, 4, 30)], [Cut(0, 1, 30), Cut(1, 2, 40)]]


def test_dead_letters_do_not_shift_the_cuts() -> None:
    cutter = Cutter(lw.ArrivalClock("at", tick=10), 9)
    batch = Records.from_arrow(pa.RecordBatch.from_pydict({"at": [1, 11, 21]}))
    assert list(cutter.cuts(batch, np.array([0, 2]))) == [Cut(0, 1, 10), Cut(1, 2, 30)]


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "10"])
def test_a_bundle_size_that_makes_no_sense(size: Any) -> None:
    with pytest.raises(lw.InvalidArgument, match="bundle_size="):
        pipeline().run(bundle_size=size)


def test_unknown_options_and_clocks_are_refused() -> None:
    with pytest.raises(lw.InvalidArgument, match="no option 'bundlesize'"):
        pipeline().run(bundlesize=1)  # type: ignore[call-arg]
    with pytest.raises(lw.InvalidArgument, match="not a clock"):
        pipeline().run(clock=3)  # type: ignore[arg-type]
    with pytest.raises(lw.InvalidArgument, match="on_error="):
        pipeline().run(on_error="ignore")  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_final_panes_do_not_depend_on_bundles(size: int) -> None:
    """S-W7: whole batches are read, checked and cut; the content stays the same."""
    rng = np.random.default_rng(7)
    times = rng.integers(0, 600_000_000, 500)
    keys = [f"key{n}" for n in rng.integers(0, 20, 500)]
    table = pa.table({"t": times, "k": keys, "v": rng.integers(0, 100, 500)})
    found = (
        lw.from_arrow(table, time="t")
        .key_by("k")
        .window(lw.FixedWindows("1m"))
        .aggregate(lw.sum("v"))
        .to_pandas(bundle_size=size)
    )
    minute = table.to_pandas().assign(m=times // MINUTE).groupby(["k", "m"])["v"].sum()
    seen = found.set_index(["k", "window_start"])["sum"].sort_index()
    assert seen.tolist() == minute.tolist()
