"""``ctx.late``: what a process refuses is in the late output, with what it said (S-K11)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lowwater as lw
from tests.unit.engine.process.process_steps import Driven, process, records


class OnlyOpen:
    """Refuses the clicks of searches that are gone."""

    is_open = lw.value_cell(False)

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        if record["what"] == "search":
            ctx.is_open.set(True)
        elif not ctx.is_open.get():
            ctx.late("its search is gone")
        else:
            ctx.emit(record["what"])


ROWS = [
    {"at": 1_000_000, "q": "a", "what": "search"},
    {"at": 2_000_000, "q": "b", "what": "click"},
    {"at": 3_000_000, "q": "a", "what": "click"},
]


def clicks() -> lw.Processed:
    return lw.from_iterable(ROWS, time="at").key_by("q").process(OnlyOpen())


def test_a_refused_record_is_in_the_late_output() -> None:
    result = clicks().collect()
    (late,) = result.late
    assert late == lw.LateRecord(
        ROWS[1], lw.Instant(2_000_000), "b", None, late.watermark, "refused", "its search is gone"
    )
    assert result.metrics.late == {"refused": 1}
    assert result.values() == ["click"]


def test_the_reason_is_in_the_files(tmp_path: Path) -> None:
    clicks().write_parquet(tmp_path / "out").run()
    (file,) = (tmp_path / "out").glob("late-*.jsonl")
    (late,) = map(json.loads, file.read_text().splitlines())
    assert (late["reason"], late["detail"]) == ("refused", "its search is gone")
    assert late["record"]["what"] == "click"


def test_in_windows_a_record_is_refused_in_one_of_them() -> None:
    def on_record(self: Any, record: Any, ctx: Any) -> None:
        if ctx.window.start == 5:
            ctx.late("five")
            ctx.late("and again")

    windowing = lw.Windowing(windows=lw.SlidingWindows("10us", "5us"))
    driven = Driven(process(on_record=on_record), windowing)
    driven.take(*records(("a", 12), ("a", 7)))
    late = driven.last.late
    assert late is not None
    assert late.element.tolist() == [0, 1]
    assert late.windows() == [lw.Window(lw.Instant(5), lw.Instant(15))] * 2
    assert late.details == ["five", "five"]


def test_a_timer_has_no_record_to_refuse() -> None:
    driven = Driven(
        process(
            wake=lw.timer(),
            on_record=lambda self, record, ctx: ctx.wake.set(ctx.time),
            on_timer=lambda self, name, ctx: ctx.late("too old"),
        )
    )
    driven.take(*records(("a", 5)))
    with pytest.raises(lw.InvalidArgument, match=r"no record at hand(.|\n)*on_record"):
        driven.watermark(10)


def test_the_end_of_a_key_has_no_record_to_refuse() -> None:
    driven = Driven(
        process(
            n=lw.value_cell(0),
            on_record=lambda self, record, ctx: ctx.n.set(1),
            on_end=lambda self, ctx: ctx.late("over"),
        )
    )
    driven.take(*records(("a", 5)))
    with pytest.raises(lw.InvalidArgument, match="no record at hand"):
        driven.end()


@pytest.mark.parametrize("reason", ["", None, 5])
def test_a_reason_is_text(reason: Any) -> None:
    driven = Driven(process(on_record=lambda self, record, ctx: ctx.late(reason)))
    with pytest.raises(lw.InvalidArgument, match="not a text that says why"):
        driven.take(*records(("a", 5)))


class Columns:
    wake = lw.timer()

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def on_records(self, batch: Any, ctx: Any) -> None:
        ctx.late(self.rows, "no")
        ctx.wake.set(batch.ids, batch.times)

    def on_timers(self, batch: Any, ctx: Any) -> None:
        ctx.late(batch.ids >= 0, "no")


@pytest.mark.parametrize("rows", [np.array([False, True]), [1], np.array([1, 1])])
def test_rows_of_a_batch_are_refused(rows: Any) -> None:
    driven = Driven(Columns(rows))
    driven.take(*records(("a", 5), ("b", 6)))
    assert driven.last.late is not None
    assert driven.last.late.element.tolist() == [1]
    with pytest.raises(lw.InvalidArgument, match="no record at hand"):
        driven.watermark(10)


@pytest.mark.parametrize("rows", [np.array([True]), [2], [-1], [[0]], [0.5]])
def test_rows_that_are_not_there(rows: Any) -> None:
    with pytest.raises(lw.InvalidArgument, match="no records of the batch, which has 2"):
        Driven(Columns(rows)).take(*records(("a", 5), ("b", 6)))
