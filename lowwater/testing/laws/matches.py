"""The law of row patterns: what stands at the end are the matches of a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from lowwater.engine.graph.graph import Stage
from lowwater.errors import InvalidArgument
from lowwater.testing._arrivals import Add, ScenarioElement, WatermarkMove
from lowwater.testing._broken import Broken
from lowwater.testing._fewest import fewest
from lowwater.testing._inputs import Build, built_on, inputs_of
from lowwater.testing.orders import _sortable, ended, some_bundlings, some_orders
from lowwater.testing.scenario import Scenario, check_scenario
from lowwater.watermark import External

_LAW = "check_match_equal_batch"


def check_match_equal_batch(build: Build, scenario: Scenario, *others: Scenario) -> None:
    """Check that what stands of matches at the end are the matches of a batch (P-7).

    A batch has all elements that were not too late (P-2), in order of event time, in one bundle.
    Whatever the order of arrival, the bundles and the advances of the watermark were: inserts minus
    retractions are its matches. A condition that depends on more than its arguments breaks the law,
    and so does a step in front of the match that depends on its whole batch. Both are bugs.

    Elements of one event time are in order of arrival, unless ``order=`` tells them apart (P-1); so
    each order of arrival has a batch of its own. The law does not hold if a step changes event
    times.

    >>> import lowwater as lw
    >>> def rises(stream):
    ...     return stream.key_by("key").match(
    ...         "low up+",
    ...         define={"up": lw.col("value") > lw.prev("value")},
    ...         within="5m",
    ...         allowed_lateness="1m",
    ...     )
    >>> scenario = Scenario().add((1, "12:00", "A"), (3, "12:02", "A")).watermark("12:02:30")
    >>> check_match_equal_batch(rises, scenario.add((2, "12:01:40", "A")))

    Args:
        build: Builds what ``.match(...)`` returns on a stream.
        scenario: What arrives when.
        *others: Further scenarios, such as those of
            :func:`~lowwater.testing.strategies.reorderings`; by default the elements in a few
            other orders and bundles.

    Raises:
        AssertionError: The law is broken.
        InvalidArgument: What is built is no match over the elements of a scenario.
    """
    check_scenario(scenario)
    lateness = _lateness(build, scenario)
    for one in (scenario, *(others or _some(scenario))):
        whole = ended(one)
        if not _unlike(build, whole, lateness):
            continue
        found, _ = fewest((whole, whole), lambda pair: bool(_unlike(build, pair[0], lateness)))
        raise Broken(
            "what stands at the end differs from the matches of a batch (P-7)",
            _unlike(build, found, lateness),
            call=f"{_LAW}(build, scenario)",
            scenario=found,
        )


def _lateness(build: Build, scenario: Scenario) -> int:
    """Return the allowed lateness of the match that is built, in microseconds."""
    inputs = inputs_of(scenario)
    stage = built_on(build, inputs, [External() for _ in inputs]).stage
    if stage.work.stored_as != "match":
        raise InvalidArgument(
            f"the function built no match: {stage.work.noun}",
            where=_LAW,
            hint='Return stream.key_by("key").match(...), without a stage over it',
        )
    if len(inputs) > 1 or any(isinstance(flow.origin, Stage) for flow in stage.inputs):
        raise InvalidArgument(
            "the match reads another stage or several inputs, so the elements of the scenario are "
            "not what it searches",
            where=_LAW,
            hint="Test the match alone, over records like those of the stage in front of it",
        )
    lateness: int = stage.work.rules.lateness_us  # type: ignore[attr-defined]  # a match has them
    return lateness


def _some(scenario: Scenario) -> Iterator[Scenario]:
    yield from some_orders(scenario)
    yield from some_bundlings(scenario)


def _unlike(build: Build, scenario: Scenario, lateness: int) -> list[str]:
    """Return how what stands differs from what a batch gives."""
    elements = sorted(_admitted(scenario, lateness), key=_sortable)
    batch = Scenario(start=scenario.start)
    if elements:
        batch = batch._with(Add(tuple(elements)))
    wanted = _rows(build, batch.end())
    found = _rows(build, scenario)
    lines = [f"{row}: is not in the batch" for row in (found - wanted).elements()]
    return lines + [f"{row}: is in the batch only" for row in (wanted - found).elements()]


def _rows(build: Build, scenario: Scenario) -> Counter[str]:
    rows: list[dict[str, Any]] = scenario.run_pipeline(build).rows
    return Counter(map(repr, rows))


def _admitted(scenario: Scenario, lateness: int) -> Iterator[ScenarioElement]:
    """Yield the elements that are not too late (P-2)."""
    watermark = int(scenario.watermark_at_start)
    for step in scenario.steps:
        if isinstance(step, WatermarkMove):
            watermark = max(watermark, int(step.to))
        elif isinstance(step, Add):
            for one in step.elements:
                if _sortable(one) >= watermark - lateness:
                    yield one
