"""Each point of an exploration is a run with its settings; its numbers equal a plain count."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.graph.trace import StageTrace
from lowwater.exploration.exploration import _Runs
from lowwater.exploration.grid import Grid
from lowwater.exploration.point import Frame, limits_of
from lowwater.viz.compose import compose
from tests.examples import examples

SECOND = 1_000_000
WINDOWS: dict[str, Any] = {
    "fixed": lw.FixedWindows("10s"),
    "sliding": lw.SlidingWindows("10s", "5s"),
    "sessions": lw.Sessions("4s"),
    "all": lw.GlobalWindow(),
}
TRIGGERS: dict[str, lw.Trigger] = {
    "late": lw.AfterWatermark(late=lw.AfterCount(1)),
    "early": lw.AfterWatermark(early=lw.Repeatedly(lw.AfterCount(2)), late=lw.AfterCount(2)),
}
ROWS = st.lists(st.tuples(st.integers(0, 60), st.sampled_from("abc")), min_size=1, max_size=40)


def pipeline_of(rows: list[tuple[int, str]], accumulation: Any) -> lw.Pipeline:
    at = [second * SECOND for second, _ in rows]
    data = pa.table({"at": at, "key": [key for _, key in rows], "value": list(range(len(rows)))})
    return (
        lw.from_arrow(data, time="at", watermark=lw.BoundedDisorder("2s"))
        .key_by("key")
        .window(lw.FixedWindows("10s"), accumulation=accumulation)
        .aggregate(values=lw.collect("value"))
    )


@given(
    ROWS,
    st.sampled_from(["discarding", "accumulating", "retracting"]),
    st.sampled_from(list(WINDOWS)),
    st.integers(1, 7),
)
@examples(0.3)
def test_points_are_runs(
    rows: list[tuple[int, str]], accumulation: str, windows: str, size: int
) -> None:
    pipeline = pipeline_of(rows, accumulation)
    delays, latenesses = ["0s", "5s"], ["0s", "10s"]
    grid = Grid.of(
        pipeline, delay=delays, lateness=latenesses, trigger=TRIGGERS,
        windows={"fixed": WINDOWS["fixed"], windows: WINDOWS[windows]},
    )  # fmt: skip
    runs = _Runs(grid, size)
    frames = list(runs.frames(None, None))
    assert [frame.point.settings for frame in frames] == list(grid.settings())
    for frame in frames:
        settings = frame.point.settings
        result = (
            lw.from_arrow(
                pipeline._graph().reads[0].source.data,  # type: ignore[attr-defined]
                time="at",
                watermark=lw.BoundedDisorder(settings.delay or 0),
            )
            .key_by("key")
            .window(
                grid.windows[settings.windows], trigger=TRIGGERS[settings.trigger],
                accumulation=accumulation, allowed_lateness=settings.lateness,  # type: ignore[arg-type]
            )
            .aggregate(values=lw.collect("value"))
            .collect(bundle_size=size, clock=lw.ManualClock(0), trace=lw.Tracing(limit=None))
        )  # fmt: skip
        stage = result.trace.stage()
        assert frame.scene == compose(
            stage, keys=[frame.scene.panels[0].name], axes=runs.axes, limits=limits_of(len(frames))
        )
        point = frame.point
        inserted = [pane for pane in result.panes if pane.kind == "insert"]
        assert point.early + point.on_time + point.late == len(inserted)
        assert point.retractions == len(result.panes) - len(inserted)
        assert point.records == len(rows)
        assert point.dropped == sum(bool(element.dropped) for element in stage.elements)
        assert point.expected == sum(
            len(element.windows) + len(element.dropped) for element in stage.elements
        )
        check_completeness(frame, stage)


def check_completeness(frame: Frame, stage: StageTrace) -> None:
    """Each element is emitted with the first pane after it whose window has it."""
    shown: set[tuple[int, lw.Window]] = set()
    added = []
    for pane, order in zip(stage.panes, stage.pane_orders, strict=True):
        if pane.kind == "retract":
            continue
        fresh = {
            (at, window)
            for at, element in enumerate(stage.elements)
            for window in element.windows
            if element.key == pane.key
            and element.order <= order
            and pane.window.start <= window.start
            and window.end <= pane.window.end
            and (bool(stage.merges) or window == pane.window)
        } - shown
        shown |= fresh
        added.append(len(fresh))
    assert frame.added.tolist() == added
    assert frame.point.emitted == len(shown) <= frame.point.expected
    if not frame.point.dropped and frame.point.settings.trigger == "late":
        assert frame.point.complete == 1
