"""The law of no loss: each element is in panes, late records or dead letters, exactly once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator

from lowwater.errors import InvalidArgument
from lowwater.pipeline import Pipeline
from lowwater.testing._broken import Broken, window_text
from lowwater.testing._probe import Probed, ProbedElement, probe, windowed_stages
from lowwater.testing._settled import standing
from lowwater.testing.orders import ended
from lowwater.testing.replay import Testable, as_pipeline
from lowwater.testing.scenario import Scenario
from lowwater.time import saturating_add
from lowwater.triggers import Moment, outlook
from lowwater.windows import Window

_LAW = "check_no_loss"


def check_no_loss(pipeline: Testable, scenario: Scenario) -> None:
    """Check that every element is in a pane, or dropped for a valid reason (S-A1, S-O3, S-O6).

    For each stage that groups by window:

    - Discarding panes and late records partition the input of the stage: each element is, for each
      of its windows, in one pane or in one late record. A stage in another mode runs again as a
      discarding one for this.
    - In its own mode, the last pane of a window contains everything that the window admitted.
    - An element is ``expired`` exactly if its window's end plus the allowed lateness is at or below
      the watermark (checked exactly in the stage that reads the source), ``closed`` only if the
      trigger may finish while elements arrive, and ``unwindowed`` exactly if it is in no window.
    - An invalid element is one dead letter. As many duplicates are dropped as are counted.

    The law holds for every trigger, safe or not, and for late elements. It does not apply
    downstream of a stage that retracts panes, where elements may rightly disappear.

    Args:
        pipeline: A pipeline with one source, or a function that builds one from a stream.
        scenario: What arrives when.

    Raises:
        AssertionError: The law is broken.
        InvalidArgument: No stage of the pipeline is one that it applies to.
    """
    built = as_pipeline(pipeline)
    stages = [stage for stage in windowed_stages(built) if not stage.signed]
    if built._stage.signed:
        raise InvalidArgument(
            "an upstream stage retracts panes, so elements of the last stage may rightly disappear",
            where=_LAW,
            hint="Use check_order_insensitive or check_batch_equal for the whole pipeline, and "
            "check_no_loss for the upstream stages",
        )
    whole = ended(scenario)
    for stage in stages:
        part = Pipeline(stage)
        run = probe(part, whole)
        _require(run, _reasons(run), "an element was dropped for a reason that does not hold")
        _require(
            run, _dead_letters(run), "the dead letters are not exactly the invalid elements (S-B1)"
        )
        if run.windowing.mode == "discarding":
            parts = run
        else:
            _require(run, _held(run), "the last panes lack admitted elements (S-A2, S-O6)")
            parts = probe(part, whole, accumulation="discarding")
        law = "discarding panes and late records do not partition the elements (S-A1, S-O3, S-O6)"
        _require(parts, _partition(parts), law)


def _require(run: Probed, lines: Iterator[str], law: str) -> None:
    found = list(lines)
    if found:
        raise Broken(
            f"{run.name}: {law}",
            found,
            call=f"{_LAW}(pipeline, scenario)",
            scenario=run.scenario,
            panes=run.panes,
        )


def _partition(run: Probed) -> Iterator[str]:
    """Each (element, window) once; where windows merge, each element as often as assigned."""
    merging = run.windowing.merging is not None
    wanted: Counter[tuple[int, Hashable]] = Counter()
    for taken in run.taken.values():
        for assigned in taken.windows or (None,):
            wanted[taken.number, None if merging else assigned] += 1
    came: Counter[tuple[int, Hashable]] = Counter()
    for pane, numbers in run.shown():
        came.update((number, None if merging else pane.window) for number in numbers)
    for late, number in zip(run.late, run.late_numbers, strict=True):
        came[number, None if merging else late.window] += 1
    missing = wanted - came
    if run.duplicates and len({number for number, _ in missing}) == run.duplicates:
        missing = Counter()
    for (number, window), times in missing.items():
        yield f"{_element(run, number)}{_in(window)}: missing" + _often(times)
    for (number, window), times in (came - wanted).items():
        yield f"{_element(run, number)}{_in(window)}: too often" + _often(times)


def _held(run: Probed) -> Iterator[str]:
    """Whatever was not dropped is in the last pane of its window (or, merged, in some pane)."""
    dropped = {(n, late.window) for late, n in zip(run.late, run.late_numbers, strict=True)}
    merging = run.windowing.merging is not None
    final = standing(run)
    by_window = {(n, at[1]) for at, (_, numbers) in final.items() for n in numbers}
    shown = {number for number, _ in by_window}
    if merging and run.windowing.mode == "accumulating":  # a window merged away may still stand
        shown = {number for numbers in run.numbers for number in numbers}
    lacking: list[ProbedElement] = []
    for taken in run.taken.values():
        for window in taken.windows:
            if (taken.number, window) in dropped:
                continue
            there = taken.number in shown if merging else (taken.number, window) in by_window
            if not there:
                lacking.append(taken)
    if run.duplicates and len({taken.number for taken in lacking}) == run.duplicates:
        return
    yield from (f"{_element(run, taken.number)}: in no last pane" for taken in lacking)


def _reasons(run: Probed) -> Iterator[str]:
    windowing = run.windowing
    late_possible = windowing.lateness_us > 0
    finishes = outlook(windowing.trigger, late_possible=late_possible).finishes
    may_close = finishes is Moment.ANYTIME or (
        finishes is Moment.AT_COMPLETION and (late_possible or windowing.merging is not None)
    )
    expired: set[tuple[int, Window | None]] = set()
    for late, number in zip(run.late, run.late_numbers, strict=True):
        text = f"{_element(run, number)}{_in(late.window)}: {late.reason}"
        taken = run.taken.get(number)
        if taken is None:
            yield f"{text}, but it is a dead letter"
        elif late.reason == "unwindowed":
            if taken.windows:
                yield f"{text}, but it is in {window_text(taken.windows[0])}"
        elif late.window not in taken.windows:
            yield f"{text}, but it was never assigned to that window"
        elif late.reason == "closed":
            if not may_close:
                yield f"{text}, but {windowing.trigger!r} does not finish before it expires"
        else:
            expired.add((number, late.window))
            if _expiry(run, late.window) > late.watermark:
                yield f"{text}, but the watermark was at {late.watermark}, before its expiry"
    for taken in run.taken.values():
        for window in taken.windows if taken.watermark is not None and not run.duplicates else ():
            gone = _expiry(run, window) <= (taken.watermark or 0)
            if gone and (taken.number, window) not in expired:
                yield f"{_element(run, taken.number)}{_in(window)}: not dropped as expired"


def _dead_letters(run: Probed) -> Iterator[str]:
    for number in sorted(run.unusable | set(run.dead_letters)):
        times = run.dead_letters[number]
        if times != (1 if number in run.unusable else 0):
            yield f"element {number} is a dead letter {times} times"


def _expiry(run: Probed, window: Window | None) -> int:
    return 0 if window is None else saturating_add(window.end, run.windowing.lateness_us)


def _element(run: Probed, number: int) -> str:
    taken = run.taken.get(number)
    if taken is None:
        return f"element {number}"
    record = {name: value for name, value in taken.record.items() if name != "#"}
    return f"element {number} {record!r}"


def _in(window: Hashable) -> str:
    return f" in {window_text(window)}" if isinstance(window, Window) else ""


def _often(times: int) -> str:
    return "" if times == 1 else f" ({times} times)"
