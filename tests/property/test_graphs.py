"""MillWheel's invariants over random graphs, sources and schedules (S-H2, S-H3, S-K3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings

from lowwater.engine.runner import LocalRun
from lowwater.pipeline.running import Outcomes
from lowwater.time import START_OF_TIME
from tests.property.graphs import Drawn, drawn

EXAMPLES = settings(max_examples=max(150, settings().max_examples))


def outcomes_of(case: Drawn, **more: Any) -> Outcomes:
    stages = tuple(dict.fromkeys(end._stage for end in case.ends))
    options: Any = {"progress": False, "on_error": "raise", **case.options, **more}
    return Outcomes(stages, case.clock, options)


def moments(case: Drawn) -> Iterator[LocalRun]:
    """Run, and stop at whatever comes out and behind each turn."""
    looks: list[None] = []
    outcomes = outcomes_of(case, progress=lambda metrics: looks.append(None))
    for _ in outcomes:
        yield outcomes.local
    yield outcomes.local
    assert looks


@given(drawn())
@EXAMPLES
def test_a_low_watermark_never_goes_back(case: Drawn) -> None:
    before: dict[Any, int] = {}
    for run in moments(case):
        clock = START_OF_TIME if run._now is None else run._now
        now = {f"source {at}": feed.watermark(clock) for at, feed in enumerate(run.feeds)}
        for stage in run._stages:
            now[f"into {stage.number}"] = stage.operator.watermark
            now[f"out of {stage.number}"] = stage.output_watermark
        assert all(now[name] >= at for name, at in before.items())
        before = now
