"""MillWheel's invariants over random graphs, sources and schedules (S-H2, S-H3, S-K3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
from hypothesis import given

import lowwater as lw
from lowwater.engine.graph.graph import Read, Stage
from lowwater.engine.join.window_join import WindowJoinOperator
from lowwater.engine.local.outcomes import Outcome
from lowwater.engine.local.runner import LocalRun
from lowwater.engine.stages.windowed import Windowed
from lowwater.pipeline.fluent import Processed
from lowwater.pipeline.outcomes import Outcomes
from lowwater.time import START_OF_TIME
from tests.examples import examples
from tests.property.graphs import BASE, PARTS, SECOND, Batches, Drawn, drawn, seconds
from tests.property.killed_runs import run_killed
from tests.property.oldest_work import Rings, Watched, beside

EXAMPLES = examples(0.8)


def outcomes_of(case: Drawn, **more: Any) -> Outcomes:
    stages = tuple(dict.fromkeys(end._stage for end in case.ends))
    own: Any = {"progress": False, "on_error": "raise", "clock": case.clock}
    options: Any = {**own, **case.options, **more}
    return Outcomes(stages, options)


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
        now = {f"source {at}": reader.watermark() for at, reader in enumerate(run.readers)}
        for stage in run._stages:
            now[f"into {stage.number}"] = stage.operator.watermark
            now[f"out of {stage.number}"] = stage.operator.output_watermark
        assert all(now[name] >= at for name, at in before.items())
        before = now


@given(drawn())
@EXAMPLES
def test_nothing_waits_between_turns_and_nothing_is_left_at_the_end(case: Drawn) -> None:
    """S-O7: so what is in memory is what the stages hold, and that goes."""

    def look(_: lw.Metrics) -> None:
        assert not any(outcomes.local._waiting)
        assert not any(stage._unread for stage in outcomes.local._stages)

    outcomes = outcomes_of(case, progress=look)
    list(outcomes)
    assert [stage.operator.state_rows for stage in outcomes.local._stages] == [0] * len(
        outcomes.local._stages
    )


def shown(outcomes: list[Outcome]) -> list[Any]:
    """Return what came out, as plain values."""
    return [
        (
            outcome.stage,
            None if outcome.panes is None else outcome.panes.to_panes(),
            None if outcome.late is None else outcome.late.to_records(),
            {tag: emitted.to_list() for tag, emitted in outcome.emitted.items()},
        )
        for outcome in outcomes
    ]


def watched(case: Drawn) -> Iterator[tuple[LocalRun, dict[int, Watched]]]:
    """Run with something kept beside each stage; stop at whatever comes out, and at the end."""
    outcomes = outcomes_of(case)
    run = outcomes.local
    found = {}
    for stage in run._stages:
        is_join = isinstance(stage.operator, WindowJoinOperator)  # its windows are watched
        host, name = (stage.operator, "windows") if is_join else (stage, "operator")
        found[stage.number] = Watched(getattr(host, name), beside(stage.stage))
        setattr(host, name, found[stage.number])
    for _ in outcomes:
        yield run, found
    yield run, found


@given(drawn(idle=False))
@EXAMPLES
def test_a_low_watermark_is_at_most_the_oldest_work_and_the_inputs(case: Drawn) -> None:
    for run, found in watched(case):
        graph = run.graph
        readers = dict(zip(graph.reads, run.readers, strict=True))
        for stage in run._stages:
            into, out = stage.operator.watermark, stage.operator.output_watermark
            assert out <= into
            assert out <= found[stage.number].model.oldest()
            for flow in stage.stage.inputs:
                origin = flow.origin
                if isinstance(origin, Read):
                    assert into <= readers[origin].watermark()
                else:
                    assert into <= run._stages[graph.stages.index(origin)].operator.output_watermark


@given(drawn())
@EXAMPLES
def test_a_timer_at_or_below_the_watermark_fires_once_in_order_per_key(case: Drawn) -> None:
    for _, found in watched(case):
        for one in found.values():
            if isinstance(one.model, Rings):
                assert one.model.rang == one.model.due


@given(drawn(idle=False))
@EXAMPLES
def test_no_pane_is_dropped_as_expired_by_the_next_stage(case: Drawn) -> None:
    """S-C7, S-H2: neither panes that waited nor late ones."""
    outcomes = outcomes_of(case)
    list(outcomes)
    for stage, found in zip(outcomes.graph.stages, outcomes.local._stages, strict=True):
        origins = [flow.origin for flow in stage.inputs]
        if all(isinstance(one, Stage) and isinstance(one.work, Windowed) for one in origins):
            assert not found.metrics.late["expired"]


@given(drawn(parts=(*PARTS, "missing"), idle=False))
@EXAMPLES
def test_a_missing_partition_freezes_the_watermark(case: Drawn) -> None:
    """Of its source and of all stages behind it, until the source ends."""
    for run in moments(case):
        for stage in run._stages:
            frozen = [
                reader
                for reader in run.readers
                if isinstance(reader.read.watermark, lw.PerPartition) and not reader.ended
                if any(stage.number == at for at, _ in run.graph.into(reader.read))
            ]
            assert all(reader.watermark() == START_OF_TIME for reader in frozen)
            if frozen:
                assert stage.operator.watermark == START_OF_TIME
                assert stage.operator.output_watermark == START_OF_TIME


@given(drawn(idle=False, heartbeats=False), seconds(1, 3))
@EXAMPLES
def test_a_source_that_has_something_whenever_it_is_asked_is_not_idle(
    case: Drawn, idle_after: int
) -> None:
    """However long the others keep the run from asking it."""
    with_it = list(outcomes_of(case))
    for read in outcomes_of(case).graph.reads:
        object.__setattr__(read, "idle_after_us", idle_after)
    assert shown(list(outcomes_of(case))) == shown(with_it)


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


def test_keys_that_were_null_and_are_numbers_again_are_restored() -> None:
    """Nulls had made objects of a part of the keys; after a restart it holds numbers alone."""
    rows = [
        [(3, 2, 3), (3, 0, 6), (0, 1, 9), (9, 1, 7)],
        [(14, 0, 4)],
        [(10, 2, 4), (14, 1, 8), (16, 0, 1)],
        [(17, 1, 7), (9, 2, 4), (25, 1, 0)],
        [(30, 0, 7), (28, 1, 9), (36, 1, 8), (29, 2, 6)],
    ]
    source = Batches(
        [[(BASE + t * SECOND, key, v, 1, "p", BASE) for t, key, v in some] for some in rows]
    )
    read = lw.from_source(source, time="at", watermark=lw.Ascending()).select("key", "v")
    left = read.filter(lw.col("v") % 7 != 3).table(key="v", ttl="9s")
    joined = left.join(read.table(key="key"), on="key", how="left")
    groups = joined.group_by("key", "v_right").aggregate(total=lw.sum("v"))
    (flow,) = groups.changes()._flows
    assert isinstance(flow.origin, Stage)
    case = Drawn((Processed(flow.origin),), lw.ManualClock(BASE), {"bundle_size": 2})
    (whole,) = run_killed(case, [], "bundle")
    (killed,) = run_killed(case, [8, 12, 12], "bundle")
    assert killed.rows == whole.rows
