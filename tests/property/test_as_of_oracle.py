"""J-8 to J-12: the oracle of joins with a history agrees with batch joins of what came so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

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

EXAMPLES = examples(2)
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
    moved: bool = False  # whether the step is one of the watermark


def inputs(case: AsOfCase, oracle: AsOfOracle) -> Iterator[Inputs]:
    now = Inputs()
    for step in [*case.schedule, END]:
        now.output_watermark = oracle.output_watermark
        now.moved = step[0] == "watermark"
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


def joined(case: AsOfCase, facts: Sequence[JoinElement], versions: list[JoinElement]) -> Answer:
    """Return the batch join of a case."""
    return batch_join_as_of(
        facts, versions, case.how, case.tolerance, case.direction, case.allow_equal
    )


def passed(case: AsOfCase, now: Inputs) -> list[JoinElement]:
    """Return the facts that the versions' watermark has passed, whatever versions there are."""
    reach = 0 if case.direction == "backward" else case.tolerance or 0
    if case.direction == "backward" and not case.allow_equal:
        reach = -1  # a version of its own time matters no more
    ended = now.versions_watermark == END_OF_TIME
    every = now.accepted["facts"]
    return [one for one in every if ended or one.time + reach < now.versions_watermark]


def may_change(case: AsOfCase, fact: JoinElement, now: Inputs, since: int) -> bool:
    """Whether any version at or after an instant would be met by a fact: each is tried."""
    if since == END_OF_TIME:
        return False
    versions = remaining(now.accepted["versions"])
    wide = 30 if case.tolerance is None else case.tolerance
    last = [one.order or 0 for one in versions]
    for time in range(max(since, fact.time - wide), fact.time + wide + 1):
        new = JoinElement(fact.key, time, "new", order=max([len(versions), *last]) + 1)
        if any(row[3] == "new" for row in joined(case, [fact], [*versions, new])):
            return True
    return False


@given(as_of_cases())
@EXAMPLES
def test_what_stands_is_the_batch_join_at_every_moment(case: AsOfCase) -> None:
    """As long as no version is late, or if late ones correct.

    Of facts that look ahead, those stand that the versions' watermark has passed, and more.
    """
    oracle, emitted = case.oracle(), []
    for now in inputs(case, oracle):
        emitted += now.outputs
        if case.late_versions == "correct" or not now.has_late_versions:
            least = joined(case, passed(case, now), now.accepted["versions"])
            if case.direction == "backward":
                assert net(emitted) == least
            assert least <= net(emitted)
            assert net(emitted) <= joined(case, now.accepted["facts"], now.accepted["versions"])
        assert oracle.late == now.dropped
        assert oracle.signed_output or all(one.sign == 1 for one in now.outputs)
    assert oracle.rows == 0
    assert oracle.output_watermark == END_OF_TIME


@given(as_of_cases(signed=False))
@EXAMPLES
def test_a_fact_waits_for_what_can_change_its_version_and_no_longer(case: AsOfCase) -> None:
    """J-8, J-11: each version that may still come is tried. Nothing is emitted twice."""
    oracle = replace(case, how="left").oracle()
    emitted: list[JoinOutput] = []
    for now in inputs(case, oracle):
        emitted += now.outputs
        if now.has_late_versions or now.dropped:
            return
        if now.moved:
            wanted = Counter(
                (fact.key, fact.time, fact.value)
                for fact in now.accepted["facts"]
                if not may_change(case, fact, now, now.versions_watermark)
            )
            assert Counter((one.key, one.time, one.left) for one in emitted) == wanted
            assert all(one.sign == 1 for one in emitted)


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
        if case.direction != "backward":
            assert net(now.outputs) <= joined(case, waiting, now.accepted["versions"])
            for one in now.outputs:
                waiting.remove(
                    next(
                        fact
                        for fact in waiting
                        if (fact.key, fact.time, fact.value) == (one.key, one.time, one.left)
                    )
                )
            continue
        due = [fact for fact in waiting if fact in passed(case, now)]
        waiting = [fact for fact in waiting if fact not in due]
        assert net(now.outputs) == joined(case, due, now.accepted["versions"])
        assert all(one.sign == 1 for one in now.outputs)


@given(as_of_cases())
@EXAMPLES
def test_output_is_late_by_at_most_keep(case: AsOfCase) -> None:
    """J-9: and facts that waited are in time. J-12: corrections ahead are late by more."""
    oracle = case.oracle()
    watermark = START_OF_TIME  # the input's, before the step
    looks_ahead = case.direction != "backward"
    late = case.keep
    if looks_ahead and case.late_versions == "correct":
        late += case.tolerance or 0
    came_late: set[tuple[Any, int, Any]] = set()  # facts
    seen = 0
    for now in inputs(case, oracle):
        for one in now.outputs:
            assert one.time >= now.output_watermark - late
        new, seen = now.accepted["facts"][seen:], len(now.accepted["facts"])
        came_late |= {
            (one.key, one.time, one.value) for one in new if one.time < now.output_watermark
        }
        if now.watermark > watermark:
            for one in now.outputs:
                assert (
                    one.time >= now.output_watermark or (one.key, one.time, one.left) in came_late
                )
        watermark = now.watermark
        if looks_ahead:
            assert oracle.output_watermark <= watermark
        else:
            assert oracle.output_watermark == watermark  # J-8: no fact holds it longer


@given(as_of_cases())
@EXAMPLES
def test_no_more_remains_than_may_be_needed(case: AsOfCase) -> None:
    """J-9, J-12: per key, few versions from before ``keep``; and facts that may still change."""
    oracle = case.oracle()
    for now in inputs(case, oracle):
        if now.watermark == END_OF_TIME or (case.direction != "backward" and not now.moved):
            continue  # a fact that a late version settles waits for an advance
        since = now.watermark - case.keep
        kept = {side: remaining(elements) for side, elements in now.accepted.items()}
        versions = sum(one.time >= since for one in kept["versions"])
        old = {(one.key, one.time) for one in kept["versions"] if one.time < since}
        keys = {key for key, _ in old}
        times = {key: sorted(at for of, at in old if of == key) for key in keys}
        if case.direction == "backward":
            versions += len(keys)
        elif case.direction == "nearest":
            least, count = since - 2 * (case.tolerance or 0), 1 if case.allow_equal else 2
            versions += sum(at >= least for each in times.values() for at in each[-count:])
        facts = [
            fact
            for fact in kept["facts"]
            if may_change(case, fact, now, now.versions_watermark)
            or (oracle.signed_output and (fact.time >= since or may_change(case, fact, now, since)))
        ]
        assert oracle.rows == versions + len(facts)


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
