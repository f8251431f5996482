"""The law of batch equality: final results equal those of a plain function over all elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from lowwater.errors import InvalidArgument, describe, user_code
from lowwater.testing._broken import Broken, window_text
from lowwater.testing._moments import moment
from lowwater.testing._settled import require_nothing_closes, same, settle
from lowwater.testing.laws.arrival import require_nothing_dropped, waiting_for
from lowwater.testing.replay import Testable, as_pipeline, columns_of
from lowwater.testing.scenario import Scenario
from lowwater.time import Instant
from lowwater.windows import Window

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
