"""J-8 and J-9: the oracle of joins with a history agrees with batch joins of what came so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from lowwater.time import END_OF_TIME, START_OF_TIME
from tests.examples import examples
from tests.oracles.as_of import AsOfOracle, batch_join_as_of
from tests.oracles.join_scenarios import (
    AsOfCase,
    Schedule,
    as_of_cases,
    drive,
    interleaved,
    rebundled,
)
from tests.oracles.joins import Answer, JoinElement, JoinOutput, net, remaining

EXAMPLES = examples(4)
END = ("watermark", END_OF_TIME, END_OF_TIME)


@dataclass
class Inputs:
    """What has come, judged by ourselves."""

    watermark: int = START_OF_TIME
    versions_watermark: int = START_OF_TIME
    accepted: dict[str, list[JoinElement]] = field(
        default_factory=lambda: {"facts": [], "versions": []}
    )
    dropped: list[tuple[str, JoinElement]] = field(default_factory=list)
    has_late_versions: bool = False
    outputs: list[JoinOutput] = field(default_factory=list)  # of the step
    output_watermark: int = START_OF_TIME  # before the step


def inputs(case: AsOfCase, oracle: AsOfOracle) -> Iterator[Inputs]:
    now = Inputs()
    for step in [*case.schedule, END]:
        now.output_watermark = oracle.output_watermark
        if step[0] == "watermark":
            now.watermark = max(now.watermark, step[1])
            now.versions_watermark = max(now.versions_watermark, step[2])
        else:
            for element in step[1]:
                if element.time < now.watermark - case.keep:
                    now.dropped.append((step[0], element))
                    continue
                now.accepted[step[0]].append(element)
                late = step[0] == "versions" and element.time < now.versions_watermark
                now.has_late_versions |= late
        now.outputs = oracle.end() if step is END else drive(oracle, step)
        yield now


def standing(case: AsOfCase, now: Inputs) -> Answer:
    """Return the batch join of the facts that the versions' watermark has passed."""
    facts = [fact for fact in now.accepted["facts"] if fact.time < now.versions_watermark]
    return batch_join_as_of(facts, now.accepted["versions"], case.how, case.tolerance)


@given(as_of_cases())
@EXAMPLES
def test_what_stands_is_the_batch_join_at_every_moment(case: AsOfCase) -> None:
    """As long as no version is late, or if late ones correct."""
    oracle, emitted = case.oracle(), []
    for now in inputs(case, oracle):
        emitted += now.outputs
        if case.late_versions == "correct" or not now.has_late_versions:
            assert net(emitted) == standing(case, now)
        assert oracle.late == now.dropped
        assert oracle.signed_output or all(one.sign == 1 for one in now.outputs)
    assert oracle.rows == 0
    assert oracle.output_watermark == END_OF_TIME


@given(as_of_cases(late_versions=["ignore"], signed=False))
@EXAMPLES
def test_a_late_version_changes_only_facts_after_it(case: AsOfCase) -> None:
    """J-9: each fact meets the versions that came before it was emitted, and is emitted once."""
    oracle = case.oracle()
    waiting: list[JoinElement] = []
    seen = 0
    for now in inputs(case, oracle):
        facts = now.accepted["facts"]
        waiting += facts[seen:]
        seen = len(facts)
        due = [fact for fact in waiting if fact.time < now.versions_watermark]
        waiting = [fact for fact in waiting if fact.time >= now.versions_watermark]
        wanted = batch_join_as_of(due, now.accepted["versions"], case.how, case.tolerance)
        assert net(now.outputs) == wanted
        assert all(one.sign == 1 for one in now.outputs)


@given(as_of_cases())
@EXAMPLES
def test_output_is_late_by_at_most_keep(case: AsOfCase) -> None:
    """J-9: and facts that waited are in time."""
    oracle = case.oracle()
    watermark = START_OF_TIME  # the input's, before the step
    for now in inputs(case, oracle):
        for one in now.outputs:
            assert one.time >= now.output_watermark - case.keep
        if now.watermark > watermark:
            assert all(one.time >= now.output_watermark for one in now.outputs)
        watermark = now.watermark
        assert oracle.output_watermark == watermark  # J-8: no fact holds it longer


@given(as_of_cases())
@EXAMPLES
def test_no_more_remains_than_may_be_needed(case: AsOfCase) -> None:
    """J-9: per key, one version from before ``keep``; and no fact."""
    oracle = case.oracle()
    for now in inputs(case, oracle):
        since = now.watermark - case.keep
        kept = {side: remaining(elements) for side, elements in now.accepted.items()}
        versions = sum(one.time >= since for one in kept["versions"])
        keys = {one.key for one in kept["versions"] if one.time < since}
        facts = [one.time for one in kept["facts"] if one.time >= since]
        if not oracle.signed_output:
            facts = [at for at in facts if at >= now.versions_watermark]
        if now.watermark < END_OF_TIME:
            assert oracle.rows == versions + len(keys) + len(facts)


@given(as_of_cases(), st.integers(0, 1 << 30))
@EXAMPLES
def test_bundling_changes_nothing(case: AsOfCase, seed: int) -> None:
    """Nor does the order of the two sides, unless late versions are ignored."""
    random = Random(seed)
    wanted = between_watermarks(case.oracle(), case.schedule)
    rebundling = rebundled(case.schedule, random)
    assert between_watermarks(case.oracle(), rebundling) == wanted
    *_, last = inputs(case, case.oracle())
    if case.late_versions == "correct" or not last.has_late_versions:
        shuffled = interleaved(rebundling, random)
        assert between_watermarks(case.oracle(), shuffled) == wanted


def between_watermarks(oracle: AsOfOracle, schedule: Schedule) -> list[tuple[Answer, int, int]]:
    """Return the net output up to each watermark, and that of the watermark."""
    found = []
    outputs: list[JoinOutput] = []
    for step in [*schedule, END]:
        if step[0] == "watermark":
            found.append((net(outputs), oracle.rows, len(oracle.late)))
            found.append((net(drive(oracle, step)), oracle.rows, oracle.output_watermark))
            outputs = []
        else:
            outputs += drive(oracle, step)
    return found


@given(as_of_cases())
@EXAMPLES
def test_schedules_are_what_they_say(case: AsOfCase) -> None:
    """A retraction comes after an insertion that was not dropped, and is not dropped itself."""
    *_, last = inputs(case, case.oracle())
    rows: Counter[tuple[str, JoinElement]] = Counter()
    for side, elements in last.accepted.items():
        rows.update((side, one) for one in remaining(elements))
    assert all(count > 0 for count in rows.values())
    assert all(one.sign > 0 for _, one in last.dropped)
