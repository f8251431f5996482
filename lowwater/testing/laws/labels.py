"""The law of labels: timing and indices are correct, and each pane has something new."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from lowwater.engine.records.panes import Pane
from lowwater.testing._broken import Broken, pane_text
from lowwater.testing._probe import Probed, probe
from lowwater.testing.orders import ended
from lowwater.testing.replay import Testable, as_pipeline
from lowwater.testing.scenario import Scenario
from lowwater.windows import CustomWindows, Window

_LAW = "check_pane_labels"
_PHASES = ("EARLY", "ON_TIME", "LATE")


def check_pane_labels(pipeline: Testable, scenario: Scenario) -> None:
    """Check that the panes of the last stage are labelled correctly (S-P1 to S-P3, S-T3).

    - Watermark and clock at emission never go back. A pane is EARLY exactly if its watermark is
      below the end of its window.
    - The indices of a window count from 0, ``is_first`` marks the first pane, and no pane follows
      one with ``is_last``. If windows do not merge, the panes are EARLY, then ON_TIME at most once,
      then LATE, and ``on_time_index`` counts those that are not EARLY.
    - The first pane that is not EARLY is ON_TIME if it is the first to contain an element that
      arrived before completion. A window whose elements all arrived later has no on-time pane.
      (Checked in the stage that reads the source, if windows do not merge.)
    - A pane contains something new, unless it is the on-time pane (with ``on_time="always"``) or
      the last one (with ``closing="always"``).
    - A pane's timestamp lies in its window, for windows that contain their elements.

    The law holds for every pipeline that ends in panes. Downstream of a stage that retracts panes
    the third and fourth point are not checked; nor is the fourth for custom windows that merge.

    Args:
        pipeline: A pipeline with one source, or a function that builds one from a stream.
        scenario: What arrives when.

    Raises:
        AssertionError: The law is broken.
    """
    built = as_pipeline(pipeline)
    run = probe(built, ended(scenario), numbered=not built._stage.signed)
    lines = [*_in_time(run), *_counted(run)]
    if not built._stage.signed:
        lines += [*_new(run), *_punctual(run)]
    if lines:
        raise Broken(
            "panes are labelled wrongly (S-P1, S-P2, S-P3)",
            lines,
            call=f"{_LAW}(pipeline, scenario)",
            scenario=run.scenario,
            panes=run.panes,
        )


def _in_time(run: Probed) -> Iterator[str]:
    before: Pane | None = None
    contain = not isinstance(run.windowing.windows, CustomWindows)
    for pane in run.panes:
        if before is not None:
            if pane.watermark < before.watermark:
                yield f"{pane_text(pane)}: the watermark went back from {before.watermark}"
            if pane.emitted_at < before.emitted_at:
                yield f"{pane_text(pane)}: the clock went back from {before.emitted_at}"
        before = pane
        if pane.kind == "insert" and (pane.watermark < pane.window.end) != (pane.timing == "EARLY"):
            yield f"{pane_text(pane)}: the watermark was at {pane.watermark}"
        if contain and pane.timestamp not in pane.window:
            yield f"{pane_text(pane)}: its timestamp {pane.timestamp} is not in the window"


def _counted(run: Probed) -> Iterator[str]:
    merging = run.windowing.merging is not None
    by_window: dict[tuple[Any, Window], list[Pane]] = defaultdict(list)
    for pane in run.panes:
        if pane.kind == "insert":
            by_window[pane.key, pane.window].append(pane)
    for panes in by_window.values():
        index = later = 0
        phase = 0
        for pane in panes:
            if merging and pane.index == 0 and not (index and panes[index - 1].is_last):
                index = 0  # it was merged away meanwhile, and came again (S-P4)
            if pane.index != index or pane.is_first != (index == 0):
                yield f"{pane_text(pane)}: is pane {index} of its window, first={pane.is_first}"
            index = pane.index + 1
            if merging:
                continue
            if pane is not panes[-1] and pane.is_last:
                yield f"{pane_text(pane)}: is_last is true, but another pane follows"
            now = _PHASES.index(pane.timing)
            if now < phase or (now == phase == 1 and later):
                yield f"{pane_text(pane)}: follows a pane that was {_PHASES[phase]}"
            phase = now
            if pane.on_time_index != (later if now else -1):
                yield f"{pane_text(pane)}: on_time_index={pane.on_time_index}, not {later}"
            later += now > 0


def _new(run: Probed) -> Iterator[str]:
    windowing = run.windowing
    merges = windowing.merging is not None
    if merges and isinstance(windowing.windows, CustomWindows):
        return
    shown: dict[Any, set[int]] = defaultdict(set)
    for pane, numbers in run.shown():
        if pane.kind == "retract":
            continue
        so_far = shown[pane.key if merges else (pane.key, pane.window)]
        marks_time = pane.timing == "ON_TIME" and windowing.on_time == "always"
        marks_end = pane.is_last and windowing.closing == "always"
        if set(numbers) <= so_far and not marks_time and not marks_end:
            yield f"{pane_text(pane)}: has no new elements"
        so_far |= set(numbers)


def _punctual(run: Probed) -> Iterator[str]:
    if run.windowing.merging is not None:
        return
    shown: dict[tuple[Any, Window], set[int]] = defaultdict(set)
    later: set[tuple[Any, Window]] = set()
    for pane, numbers in run.shown():
        if pane.kind == "retract":
            continue
        at = pane.key, pane.window
        new = set(numbers) - shown[at]
        shown[at] |= new
        came = {number: run.taken[number].watermark for number in shown[at]}
        if None in came.values():
            return
        timely = {n for n, mark in came.items() if mark is not None and mark < pane.window.end}
        if pane.timing == "ON_TIME" and not timely:
            yield f"{pane_text(pane)}: all its elements arrived after its window was complete"
        if pane.timing == "LATE" and at not in later and new & timely:
            yield f"{pane_text(pane)}: is the first with elements that arrived before completion"
        if pane.timing != "EARLY":
            later.add(at)
