"""The law of retractions: each retracts an emitted pane, so that sums over panes are correct."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from lowwater.engine.records.panes import Pane
from lowwater.errors import InvalidArgument
from lowwater.testing._broken import Broken, pane_text, window_text
from lowwater.testing._probe import Probed, probe
from lowwater.testing._settled import last_windowing, same
from lowwater.testing.orders import ended
from lowwater.testing.replay import Testable, as_pipeline
from lowwater.testing.scenario import Scenario
from lowwater.windows import Window

_LAW = "check_retractions_telescope"


def check_retractions_telescope(pipeline: Testable, scenario: Scenario) -> None:
    """Check that each retraction matches a pane in effect, and that the rest adds up (S-A3).

    - A retraction repeats all values and labels of the pane in effect in its window. A window never
      has two panes in effect.
    - After each firing, inserts minus retractions over all windows of a key contain exactly the
      elements emitted so far, which are those that the same stage emits as a discarding one.

    The law is about the last stage, which must be retracting. Downstream of another stage that
    retracts panes, the second point is not checked.

    Args:
        pipeline: A pipeline with one source, or a function that builds one from a stream; its last
            stage with ``accumulation="retracting"``.
        scenario: What arrives when.

    Raises:
        AssertionError: The law is broken.
        InvalidArgument: The last stage is not retracting.
    """
    built = as_pipeline(pipeline)
    mode = last_windowing(built).mode
    if mode != "retracting":
        raise InvalidArgument(
            f"the last stage is {mode}, so it emits no retractions",
            where=_LAW,
            hint='Use .window(..., accumulation="retracting")',
        )
    whole = ended(scenario)
    numbered = not built._stage.signed
    run = probe(built, whole, numbered=numbered)
    lines = list(_stands(run))
    if numbered:
        lines += _adds_up(run, probe(built, whole, accumulation="discarding"))
    if lines:
        raise Broken(
            "inserts minus retractions differ from the elements emitted (S-A3)",
            lines,
            call=f"{_LAW}(pipeline, scenario)",
            scenario=run.scenario,
            panes=run.panes,
        )


def _stands(run: Probed) -> Iterator[str]:
    standing: dict[tuple[Any, Window], Pane] = {}
    for pane in run.panes:
        at = pane.key, pane.window
        if pane.kind == "insert":
            if at in standing:
                yield f"{pane_text(pane)}: the previous pane was not retracted"
            standing[at] = pane
            continue
        shown = standing.pop(at, None)
        if shown is None:
            yield f"{pane_text(pane)}: no such pane is in effect"
        elif not same(shown.values, pane.values):
            yield f"{pane_text(pane)}: but the pane in effect is {pane_text(shown)}"
        else:
            labels = ("timing", "index", "on_time_index", "is_first", "timestamp")
            for name in labels:
                if getattr(shown, name) != getattr(pane, name):
                    yield f"{pane_text(pane)}: {name} differs from that of the pane it retracts"


def _adds_up(run: Probed, discarding: Probed) -> Iterator[str]:
    firings = iter(list(discarding.shown()))
    net: dict[Any, Counter[int]] = defaultdict(Counter)
    so_far: dict[Any, Counter[int]] = defaultdict(Counter)
    for pane, numbers in run.shown():
        if pane.kind == "retract":
            net[pane.key].subtract(numbers)
            continue
        net[pane.key].update(numbers)
        firing, new = next(firings, (None, ()))
        if firing is None or (firing.key, firing.window) != (pane.key, pane.window):
            yield f"{pane_text(pane)}: with accumulation='discarding' the stage does not fire here"
            return
        so_far[pane.key].update(new)
        off = Counter({n: net[pane.key][n] - so_far[pane.key][n] for n in net[pane.key]})
        wrong = sorted(number for number, by in off.items() if by)
        if wrong or not set(so_far[pane.key]) <= set(net[pane.key]):
            yield (
                f"{pane_text(pane)}: after it, the panes in effect of key {pane.key!r} differ from "
                f"the elements emitted so far by {wrong}, last in {window_text(pane.window)}"
            )
            return
    if next(firings, None) is not None:
        yield "with accumulation='discarding' the stage fires more often"
