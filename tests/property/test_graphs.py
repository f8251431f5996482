"""MillWheel's invariants over random graphs, sources and schedules (S-H2, S-H3, S-K3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings

from lowwater.engine.runner import LocalRun
from lowwater.pipeline.running import Outcomes
from tests.property.graphs import Drawn, drawn
from tests.property.killed import run_killed

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
        now = {f"source {at}": feed.watermark() for at, feed in enumerate(run.feeds)}
        for stage in run._stages:
            now[f"into {stage.number}"] = stage.operator.watermark
            now[f"out of {stage.number}"] = stage.output_watermark
        assert all(now[name] >= at for name, at in before.items())
        before = now


@given(
    drawn(),
    st.lists(st.integers(0, 40), min_size=1, max_size=5),
    st.sampled_from(["bundle", "bundle", 3]),
)
@EXAMPLES
def test_a_kill_between_any_two_steps_changes_nothing(
    case: Drawn, kills: list[int], commit_every: Any
) -> None:
    """Also timers fire exactly once, in order per key: what is set and what rang is the output."""
    whole = run_killed(case, [], commit_every)
    killed = run_killed(case, kills, commit_every)
    for one, other in zip(whole, killed, strict=True):
        assert other.rows == one.rows
        assert other.late == one.late
