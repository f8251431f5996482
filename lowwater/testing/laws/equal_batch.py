"""The law of row patterns and of values over rows: what stands at the end is that of a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

from lowwater.engine.graph.graph import Stage
from lowwater.errors import InvalidArgument
from lowwater.testing._arrivals import Add, ScenarioElement, WatermarkMove
from lowwater.testing._broken import Broken
from lowwater.testing._fewest import fewest
from lowwater.testing._inputs import Build, built_on, inputs_of
from lowwater.testing.orders import _sortable, ended, some_bundlings, some_orders
from lowwater.testing.scenario import Scenario, of_one_input
from lowwater.watermark import External


@final
@dataclass(frozen=True, slots=True)
class _Law:
    """What differs between the two.

    Args:
        name: Its function.
        kind: What the stage is stored as.
        method: The method that builds the stage.
        results: What comes out of it.
        rule: The rule.
        reads: What it does with the elements.
    """

    name: str
    kind: str
    method: str
    results: str
    rule: str
    reads: str


_MATCHES = _Law(
    "check_match_equal_batch", "match", "match", "the matches", "P-7", "what it searches"
)
_OVER = _Law("check_over_equal_batch", "over", "over", "the results", "O-5", "the rows it reads")


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
    _check(_MATCHES, build, scenario, others)


def check_over_equal_batch(build: Build, scenario: Scenario, *others: Scenario) -> None:
    """Check that what stands of the results of ``over`` at the end are those of a batch (O-5).

    As for :func:`check_match_equal_batch`: whatever the order of arrival, the bundles and the
    advances of the watermark were, inserts minus retractions are the results over all elements that
    were not too late. With ``rows=``, elements of one event time are in order of arrival, unless
    ``order=`` tells them apart.

    >>> import lowwater as lw
    >>> def moving(stream):
    ...     return stream.key_by("key").over("5m", mean=lw.mean("value"), allowed_lateness="1m")
    >>> scenario = Scenario().add((1, "12:00", "A"), (3, "12:02", "A")).watermark("12:02:30")
    >>> check_over_equal_batch(moving, scenario.add((2, "12:01:40", "A")))

    Args:
        build: Builds what ``.over(...)`` returns on a stream.
        scenario: What arrives when.
        *others: Further scenarios, such as those of
            :func:`~lowwater.testing.strategies.reorderings`; by default the elements in a few
            other orders and bundles.

    Raises:
        AssertionError: The law is broken.
        InvalidArgument: What is built is no ``over`` on the elements of a scenario.
    """
    _check(_OVER, build, scenario, others)


def _check(law: _Law, build: Build, scenario: Scenario, others: Sequence[Scenario]) -> None:
    scenario = of_one_input(scenario)
    lateness = _lateness(law, build, scenario)
    for each in (scenario, *(others or _some(scenario))):
        whole = ended(each)
        if not _unlike(build, whole, lateness):
            continue
        found, _ = fewest((whole, whole), lambda pair: bool(_unlike(build, pair[0], lateness)))
        raise Broken(
            f"what stands at the end differs from {law.results} of a batch ({law.rule})",
            _unlike(build, found, lateness),
            call=f"{law.name}(build, scenario)",
            scenario=found,
        )


def _lateness(law: _Law, build: Build, scenario: Scenario) -> int:
    """Return the allowed lateness of the stage that is built, in microseconds."""
    inputs = inputs_of(scenario, build)
    stage = built_on(build, inputs, [External() for _ in inputs]).stage
    if stage.work.stored_as != law.kind:
        raise InvalidArgument(
            f"the function did not build a stage of {law.method}: {stage.work.noun}",
            where=law.name,
            hint=f'Return stream.key_by("key").{law.method}(...), without a stage over it',
        )
    if len(inputs) > 1 or any(isinstance(flow.origin, Stage) for flow in stage.inputs):
        raise InvalidArgument(
            "the stage reads another stage or several inputs, so the elements of the scenario are "
            f"not {law.reads}",
            where=law.name,
            hint="Test it alone, over records like those of the stage in front of it",
        )
    lateness: int = stage.work.rules.lateness_us  # type: ignore[attr-defined]  # both kinds do
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
    """Yield the elements that are not too late (P-2, O-5)."""
    watermark = int(scenario.watermark_at_start)
    for step in scenario.steps:
        if isinstance(step, WatermarkMove):
            watermark = max(watermark, int(step.to))
        elif isinstance(step, Add):
            for one in step.elements:
                if _sortable(one) >= watermark - lateness:
                    yield one
