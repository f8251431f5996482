"""Computes the final result of each window, after all panes and retractions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from lowwater.engine.graph.graph import Stage
from lowwater.engine.records.panes import Pane
from lowwater.engine.stages.windowed import Windowed
from lowwater.engine.window.windowing import Windowing
from lowwater.errors import InvalidArgument
from lowwater.pipeline import Pipeline
from lowwater.testing._broken import window_text
from lowwater.testing._probe import Probed, probe, windowed_stages
from lowwater.testing.scenario import Scenario
from lowwater.triggers import Moment, outlook
from lowwater.windows import Window

Final: TypeAlias = dict[tuple[Any, Window], tuple[Pane, tuple[int, ...]]]
"""The last pane of each (key, window), with the numbers of its elements."""


Settled: TypeAlias = tuple[Probed, Final]
"""A run of a scenario, and what it came to."""


def settle(pipeline: Pipeline, scenario: Scenario) -> Settled:
    """Run a scenario; return the final result of each window.

    A discarding stage, and one whose windows merge, runs as a retracting one: the final contents of
    a window do not depend on the mode, and retractions show which windows have merged into others.
    """
    windowing = last_windowing(pipeline)
    own = windowing.mode == "accumulating" and windowing.merging is None
    run = probe(
        pipeline,
        scenario,
        accumulation=None if own else "retracting",
        numbered=not pipeline._stage.signed,
    )
    return run, standing(run)


def standing(run: Probed) -> Final:
    """Return the panes in effect at the end of an accumulating or retracting run.

    A pane without elements, because all were retracted, does not count.
    """
    final: Final = {}
    for pane, numbers, held in zip(run.panes, run.numbers, run.held, strict=True):
        if pane.kind == "retract" or not held:
            final.pop((pane.key, pane.window), None)
        else:
            final[pane.key, pane.window] = pane, numbers
    return final


def last_windowing(pipeline: Pipeline) -> Windowing:
    """Return the windowing of the last stage; a pipeline that ends in panes has one."""
    work = pipeline._stage.work
    assert isinstance(work, Windowed)
    return work.windowing


def require_nothing_closes(pipeline: Pipeline, law: str) -> None:
    """Raise unless no trigger may finish while elements are admitted (S-R3).

    Which elements are dropped as ``closed`` depends on their order and bundles.
    """
    for stage in windowed_stages(pipeline):
        windowing = _windowing(stage)
        late = windowing.lateness_us > 0
        finishes = outlook(windowing.trigger, late_possible=late).finishes
        if finishes is Moment.ANYTIME or (finishes is Moment.AT_COMPLETION and late):
            raise InvalidArgument(
                f"{windowing.trigger!r} may finish while elements are still admitted, and which "
                "elements it drops then depends on their order and bundles",
                where=law,
                hint=f"Test it with Repeatedly({windowing.trigger!r}), or use check_no_loss, which "
                "holds for it",
            )


def compare(one: Settled, other: Settled, names: tuple[str, str]) -> Iterator[str]:
    """Yield a line for each window whose final results differ between two runs."""
    (first, left), (second, right) = one, other
    for key, window in sorted(left.keys() | right.keys(), key=_place):
        where = f"{key!r} {window_text(window)}"
        if (key, window) not in left or (key, window) not in right:
            has, lacks = names if (key, window) in left else names[::-1]
            pane = (left.get((key, window)) or right[key, window])[0]
            yield f"{where} exists {has} ({_texts(pane.values)}), but not {lacks}"
            continue
        (a, a_numbers), (b, b_numbers) = left[key, window], right[key, window]
        tied = has_ties(first, a_numbers) or has_ties(second, b_numbers)
        for name, spec in first.aggregates.items():
            if tied and spec.name in ("first", "last", "max_by", "min_by"):
                continue  # of equal event times, the order of arrival decides
            listed = spec.name in ("collect", "collect_set")
            if not same(a.values[name], b.values[name], listed=listed):
                yield (
                    f"{where} {name}={a.values[name]!r} {names[0]}, "
                    f"but {b.values[name]!r} {names[1]}"
                )


def has_ties(run: Probed, numbers: Sequence[int]) -> bool:
    """Whether two of these elements share an event time."""
    times = [run.taken[number].time for number in numbers]
    return len(set(times)) < len(times)


def same(one: Any, other: Any, *, listed: bool = False) -> bool:
    """Whether two results are equal: floats nearly, as rounding depends on the order of adding.

    Args:
        one: A result.
        other: Another.
        listed: Whether they are lists whose order is that of arrival, which does not matter.
    """
    if listed and isinstance(one, Sequence) and isinstance(other, Sequence):
        one, other = sorted(one, key=repr), sorted(other, key=repr)
    if isinstance(one, float) or isinstance(other, float):
        try:
            near = math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
        except TypeError:
            return False
        return near or (one != one and other != other)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def _windowing(stage: Stage) -> Windowing:
    assert stage.windowing is not None
    return stage.windowing


def _place(at: tuple[Any, Window]) -> tuple[int, int, str]:
    key, window = at
    return int(window.end), int(window.start), repr(key)


def _texts(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in values.items())
