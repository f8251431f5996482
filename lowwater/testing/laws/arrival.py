"""Laws of arrival: order and bundling do not change the final results, which a batch gives too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from lowwater.engine.records.panes import LateRecord, Pane
from lowwater.errors import InvalidArgument, describe, user_code
from lowwater.pipeline import Pipeline
from lowwater.testing._broken import Broken, window_text
from lowwater.testing._fewest import fewest
from lowwater.testing._inputs import columns_of
from lowwater.testing._moments import moment
from lowwater.testing._probe import Probed
from lowwater.testing._settled import (
    Final,
    Settled,
    compare,
    last_windowing,
    require_nothing_closes,
    same,
    settle,
)
from lowwater.testing.orders import (
    ended,
    some_bundlings,
    some_orders,
    until_all_came,
    waiting,
)
from lowwater.testing.replay import Testable, as_pipeline
from lowwater.testing.scenario import Scenario
from lowwater.time import Instant
from lowwater.triggers import AfterWatermark, Default
from lowwater.windows import Sessions, Window

_ORDER = "check_order_insensitive"
_BUNDLES = "check_bundle_insensitive"


def check_order_insensitive(pipeline: Testable, scenario: Scenario, *others: Scenario) -> None:
    """Check that the order of arrival does not change the final result of any window (S-W7).

    As long as no element is dropped, only the elements determine which windows exist at the end and
    what each finally contains. So each scenario runs with a watermark that waits for the elements
    still to arrive (:func:`~lowwater.testing.orders.waiting`). Nothing may then be dropped, in any
    stage (S-H2).

    The law does not cover early panes, the number of panes of a window, or the order of lists; it
    covers ``first``, ``last``, ``max_by`` and ``min_by`` only if event times differ. Floats are
    compared approximately. Triggers that may finish while elements arrive are refused, and so are
    windows that end before their elements. A combiner or a merge function that depends on the order
    breaks the law; so does a stage that counts the panes of a discarding one. All of these are
    bugs.

    Args:
        pipeline: A pipeline with one source, or a function that builds one from a stream.
        scenario: What arrives when.
        *others: The same elements in other orders, such as those of
            :func:`~lowwater.testing.strategies.reorderings`; by default a few.

    Raises:
        AssertionError: The law is broken.
        InvalidArgument: It does not apply to the pipeline.
    """
    built = _applies(pipeline, _ORDER)

    def settled(scenario: Scenario) -> tuple[Scenario, Settled]:
        whole = waiting_for(built, scenario)
        came = settle(built, whole)
        require_nothing_dropped(came[0])
        return whole, came

    _compare(
        "the order of arrival changed final results (S-W7)",
        _ORDER,
        scenario,
        others or some_orders(scenario),
        settled,
        _unlike_orders,
    )


def check_bundle_insensitive(pipeline: Testable, scenario: Scenario, *others: Scenario) -> None:
    """Check that bundle boundaries change only how often early panes are emitted (S-O1).

    Final results, and what is dropped and why, must be the same however elements are bundled
    between two moves of the watermark or the clock; with ``AfterWatermark`` and no allowed
    lateness, so must be the on-time panes.

    The law does not cover early and late panes, because a trigger is evaluated once per bundle.
    Triggers that may finish while elements arrive are refused. A step whose result depends on its
    whole batch breaks the law; so does a stage that counts the panes of a discarding one. Both are
    bugs.

    Args:
        pipeline: A pipeline with one source, or a function that builds one from a stream.
        scenario: What arrives when.
        *others: The same elements in other bundles, such as those of
            :func:`~lowwater.testing.strategies.bundlings`; by default a few.

    Raises:
        AssertionError: The law is broken.
        InvalidArgument: It does not apply to the pipeline.
    """
    built = _applies(pipeline, _BUNDLES)
    comes_once = _comes_once_complete(built)

    def settled(scenario: Scenario) -> tuple[Scenario, Settled]:
        whole = ended(scenario)
        return whole, settle(built, whole)

    def unlike(one: Settled, two: Settled) -> list[str]:
        lines = list(compare(one, two, ("in the first bundles", "in the others")))
        lines += _unlike("dropped", _dropped(one[0]), _dropped(two[0]))
        if comes_once:
            lines += _unlike("on time", _on_time(one[0]), _on_time(two[0]))
        return lines

    _compare(
        "bundle boundaries changed the output (S-O1)",
        _BUNDLES,
        scenario,
        others or some_bundlings(scenario),
        settled,
        unlike,
    )


def _unlike_orders(one: Settled, two: Settled) -> list[str]:
    return list(compare(one, two, ("in the first order", "in the other")))


def _compare(
    law: str,
    name: str,
    scenario: Scenario,
    others: Iterable[Scenario],
    settled: Callable[[Scenario], tuple[Scenario, Settled]],
    unlike: Callable[[Settled, Settled], list[str]],
) -> None:
    """Raise if a scenario comes to something else than others, with the fewest elements that do.

    Args:
        law: The law, with its rule.
        name: The function that checks it.
        scenario: The scenario.
        others: The same elements otherwise.
        settled: Runs a scenario; returns how it was run, and what it came to.
        unlike: Returns the differences between what two came to.
    """

    def is_broken(pair: tuple[Scenario, Scenario]) -> bool:
        return bool(unlike(settled(pair[0])[1], settled(pair[1])[1]))

    _, one = settled(scenario)
    for other in others:
        if not unlike(one, settled(other)[1]):
            continue
        (first, came), (second, instead) = map(settled, fewest((scenario, other), is_broken))
        raise Broken(
            law,
            unlike(came, instead),
            call=f"{name}(pipeline, scenario, other)",
            scenario=first,
            other=second,
            panes=_panes(came[1]),
        )


def _applies(pipeline: Testable, law: str) -> Pipeline:
    built = as_pipeline(pipeline)
    require_nothing_closes(built, law)
    return built


def waiting_for(pipeline: Pipeline, scenario: Scenario) -> Scenario:
    """Return the scenario with a watermark that no element of it is behind, and an end."""
    windows = last_windowing(pipeline).windows
    if windows.merge_scope == "key":  # a window may merge with any other to come
        return ended(until_all_came(scenario))
    touching = isinstance(windows, Sessions) and windows.merge_touching
    return ended(waiting(scenario, by=1 if touching else 0))


def require_nothing_dropped(run: Probed) -> None:
    """Raise if an element was dropped although the watermark waits for all."""
    for taken in run.taken.values():
        if any(window.end <= taken.time for window in taken.windows):
            raise InvalidArgument(
                f"{run.windowing.windows!r} assigns elements to windows that end before them, so "
                "the order of arrival decides whether they are dropped",
                where=_ORDER,
                hint="Test windows that contain their elements",
            )
    dropped = [one for one in (*run.late, *run.late_before) if one.reason != "unwindowed"]
    if dropped:
        raise Broken(
            "an element was dropped although the watermark waited for it (S-O3, S-H2); the law "
            "does not hold if a step changes event times",
            map(_late_text, dropped),
            call=f"{_ORDER}(pipeline, scenario)",
            scenario=run.scenario,
            panes=run.panes,
        )


def _late_text(late: LateRecord) -> str:
    window = "no window" if late.window is None else window_text(late.window)
    return f"{late.key!r} {late.value!r} from {window}: {late.reason}"


def _dropped(run: Probed) -> list[str]:
    return sorted(map(_late_text, (*run.late, *run.late_before)))


def _comes_once_complete(pipeline: Pipeline) -> bool:
    windowing = last_windowing(pipeline)
    plain = isinstance(windowing.trigger, (AfterWatermark, Default))
    single = windowing.windows.merge_scope != "key" and windowing.on_time == "always"
    return plain and single and windowing.lateness_us == 0


def _on_time(run: Probed) -> list[str]:
    listed = {name for name, spec in run.aggregates.items() if spec.name.startswith("collect")}
    return sorted(
        f"{pane.key!r} {window_text(pane.window)} {_values(pane, listed)} at {pane.emitted_at}"
        for pane, held in zip(run.panes, run.held, strict=True)
        if held and pane.kind == "insert" and pane.timing == "ON_TIME"
    )


def _values(pane: Pane, listed: set[str]) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for name, value in pane.values.items():
        if isinstance(value, float):
            value = float(f"{value:.9g}")  # rounding depends on the order of adding  # noqa: PLW2901
        shown[name] = sorted(value, key=repr) if name in listed else value
    return shown


def _unlike(what: str, one: list[str], other: list[str]) -> Iterator[str]:
    left, right = list(one), list(other)
    for text in one:
        if text in right:
            right.remove(text)
            left.remove(text)
    yield from (f"{what} only in the first bundles: {text}" for text in left)
    yield from (f"{what} only in the others: {text}" for text in right)


def _panes(final: Final) -> list[Pane]:
    return [pane for pane, _ in final.values()]


BatchFunction: TypeAlias = Callable[[Sequence[Mapping[str, Any]]], Mapping[Any, Any]]
"""From all records (with ``time``, ``key``, ``value`` and more columns) to the results: for each
``(key, window)`` the value, or a mapping of values by name. A window is a ``Window`` or a pair of
instants."""

_LAW = "check_batch_equal"


def check_batch_equal(pipeline: Testable, batch: BatchFunction, scenario: Scenario) -> None:
    """Check that final results equal a plain function over all elements (S-W7, S-A3).

    The function states what the pipeline is for without windows, triggers or watermarks: an answer
    to hold the stream against. The scenario is run with a watermark that waits, so that no element
    is dropped and the function may look at all of them; in the order of arrival, but it should not
    matter.

    It does not apply where :func:`check_order_insensitive` does not. Windows that show nothing are
    in neither answer.

    Args:
        pipeline: A pipeline with one source, or a function that builds one from a stream.
        batch: The plain function.
        scenario: What arrives when.

    Raises:
        AssertionError: The answers differ.
        InvalidArgument: The law does not apply, or ``batch`` returns something else.
    """
    built = as_pipeline(pipeline)
    require_nothing_closes(built, _LAW)
    whole = waiting_for(built, scenario)
    run, final = settle(built, whole)
    require_nothing_dropped(run)
    records = [
        {"time": e.time, "key": e.key, **columns_of(e.value, e.columns)}
        for e in scenario.elements
        if isinstance(e.time, Instant)
    ]
    with user_code(f"the batch function of {_LAW}"):
        given = batch(records)
    if not isinstance(given, Mapping):
        raise InvalidArgument(
            f"{describe('batch(...)', given)} is not a mapping from (key, window) to values",
            where=_LAW,
            hint="Return {(key, (start, end)): value}",
        )
    wanted = {_place(at): value for at, value in given.items()}
    came = {at: pane.values for at, (pane, _) in final.items()}
    listed = {name for name, spec in run.aggregates.items() if spec.name.startswith("collect")}
    lines = list(_differences(came, wanted, listed))
    if lines:
        raise Broken(
            "the final panes differ from the batch result (S-W7)",
            lines,
            call=f"{_LAW}(pipeline, batch, scenario)",
            scenario=whole,
            panes=run.panes,
        )


def _differences(
    came: Mapping[tuple[Any, Window], Mapping[str, Any]],
    wanted: Mapping[tuple[Any, Window], Any],
    listed: set[str],
) -> Iterator[str]:
    for key, window in sorted(came.keys() | wanted.keys(), key=lambda at: (at[1], repr(at[0]))):
        where = f"{key!r} {window_text(window)}"
        if (key, window) not in wanted:
            yield f"{where}: emitted {dict(came[key, window])!r}, but not in the batch result"
            continue
        want = wanted[key, window]
        if (key, window) not in came:
            yield f"{where}: not emitted, but {want!r} in the batch result"
            continue
        values = came[key, window]
        if not isinstance(want, Mapping):
            want = {next(iter(values)): want} if len(values) == 1 else {"value": want}
        right = values.keys() == want.keys() and all(
            same(values[name], want[name], listed=name in listed) for name in values
        )
        if not right:
            yield f"{where}: emitted {dict(values)!r}, but {dict(want)!r} in the batch result"


def _place(at: Any) -> tuple[Any, Window]:
    try:
        key, window = at
        if not isinstance(window, Window):
            start, end = window
            window = Window(moment(start), moment(end))
    except (TypeError, ValueError):
        raise InvalidArgument(
            f"{at!r} is not (key, window)",
            where=_LAW,
            hint="Return {(key, (start, end)): value}",
        ) from None
    return key, window
