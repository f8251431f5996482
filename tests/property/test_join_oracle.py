"""J-1 to J-6: at every moment, the oracle of joins agrees with batch joins of what came so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from lowwater.time import END_OF_TIME, START_OF_TIME
from tests.examples import examples
from tests.oracles.join_scenarios import (
    JoinCase,
    Schedule,
    drive,
    interleaved,
    join_cases,
    rebundled,
)
from tests.oracles.joins import (
    Answer,
    JoinElement,
    JoinOracle,
    JoinOutput,
    batch_join,
    net,
)

EXAMPLES = examples(2)


@dataclass
class Moment:
    """What a step brought, and what the oracle made of it."""

    step: tuple[object, ...]
    outputs: list[JoinOutput]
    output_watermark: int  # before the step
    accepted: dict[str, list[JoinElement]]  # until now
    dropped: list[tuple[str, JoinElement]]  # until now
    watermark: int


def moments(case: JoinCase, oracle: JoinOracle) -> Iterator[Moment]:
    """Run a case to its end, and judge by ourselves what is late."""
    accepted: dict[str, list[JoinElement]] = {"left": [], "right": []}
    dropped: list[tuple[str, JoinElement]] = []
    watermark = START_OF_TIME
    for step in [*case.schedule, ("watermark", END_OF_TIME)]:
        before = oracle.output_watermark
        if step[0] == "watermark":
            watermark = max(watermark, step[1])
        else:
            for element in step[1]:
                if element.time < watermark - case.lateness:
                    dropped.append((step[0], element))
                else:
                    accepted[step[0]].append(element)
        outputs = oracle.end() if watermark == END_OF_TIME else drive(oracle, step)
        yield Moment(step, outputs, before, accepted, dropped, watermark)


def standing(case: JoinCase, now: Moment) -> Answer:
    """Return the rows that should stand: the batch join, less the null rows not yet due."""
    rows = batch_join(now.accepted["left"], now.accepted["right"], case.how, case.low, case.high)
    if case.how in ("inner", "semi") or case.unmatched == "early":
        return rows
    slack = case.lateness if case.unmatched == "final" else 0

    def is_there(row: tuple[object, int, object, object]) -> bool:
        _, time, left, right = row
        if left is not None and right is not None:
            return True
        horizon = max(case.high, 0) if right is None else max(-case.low, 0)
        return now.watermark == END_OF_TIME or now.watermark > time + horizon + slack

    return Counter({row: count for row, count in rows.items() if is_there(row)})


@given(join_cases())
@EXAMPLES
def test_what_stands_is_the_batch_join_at_every_moment(case: JoinCase) -> None:
    """J-2 to J-6."""
    oracle, emitted = case.oracle(), []
    for now in moments(case, oracle):
        emitted += now.outputs
        assert net(emitted) == standing(case, now), now.step
        assert oracle.late == now.dropped
    assert oracle.rows == 0


@given(join_cases(signed=False))
@EXAMPLES
def test_only_signed_output_has_retractions(case: JoinCase) -> None:
    """J-5: and pairs are emitted once, however the null rows come."""
    oracle = case.oracle()
    for now in moments(case, oracle):
        for one in now.outputs:
            by_itself = one.left is None or one.right is None
            assert one.sign == 1 or (oracle.signed_output and by_itself)
    plain = case.how in ("inner", "semi") or case.unmatched == "final"
    assert oracle.signed_output == (not plain)


@given(join_cases())
@EXAMPLES
def test_output_is_late_by_at_most_the_lateness(case: JoinCase) -> None:
    """J-4: and what came of timely rows alone is never late."""
    oracle = case.oracle()
    watermark = START_OF_TIME  # the input's, before the step
    timely: set[tuple[object, ...]] = set()  # rows that came in time and remain since
    rows: Counter[tuple[object, ...]] = Counter()
    for now in moments(case, oracle):
        assert now.output_watermark <= oracle.output_watermark <= now.watermark
        only_timely = True  # whether the bundle has no late element
        if now.step[0] != "watermark":
            for one in now.step[1]:  # type: ignore[attr-defined]  # elements
                only_timely &= one.time >= watermark
                if one.time < watermark - case.lateness:
                    continue
                row = (now.step[0], one.key, one.time, one.value)
                rows[row] += one.sign
                if rows[row] == 0:
                    timely.discard(row)
                elif rows[row] == one.sign == 1 and one.time >= watermark:
                    timely.add(row)
                elif one.time < watermark and not oracle.signed_output:
                    timely.discard(row)  # an equal row may have been matched: it holds no longer
        for out in now.outputs:
            assert out.time >= now.output_watermark - case.lateness
            if out.left is not None and out.right is not None:
                assert out.time >= now.output_watermark or not only_timely
            side, value = ("left", out.left) if out.right is None else ("right", out.right)
            if (side, out.key, out.time, value) in timely and None in (out.left, out.right):
                assert out.time >= now.output_watermark
        watermark = now.watermark
    assert oracle.output_watermark == END_OF_TIME


@given(join_cases())
@EXAMPLES
def test_nothing_is_held_or_remains_longer_than_needed(case: JoinCase) -> None:
    """J-3 and J-4: holds are at the times of rows, and all horizons pass."""
    oracle = case.oracle()
    for now in moments(case, oracle):
        times = [one.time for side in now.accepted.values() for one in side]
        if case.how == "inner":
            assert oracle.output_watermark == now.watermark
        longest = max(case.high, 0, -case.low) + case.lateness
        recent = sum(now.watermark - at <= longest for at in times)
        assert oracle.rows <= recent
        if not recent:
            assert oracle.output_watermark == now.watermark


@given(join_cases(), st.integers(0, 1 << 30))
@EXAMPLES
def test_bundling_changes_nothing(case: JoinCase, seed: int) -> None:
    """Nor does the order of the two sides: the net output between two watermarks stays."""
    random = Random(seed)
    wanted = list(between_watermarks(case.oracle(), case.schedule))
    for schedule in (
        rebundled(case.schedule, random),
        interleaved(rebundled(case.schedule, random), random),
    ):
        assert list(between_watermarks(case.oracle(), schedule)) == wanted


def between_watermarks(oracle: JoinOracle, schedule: Schedule) -> Iterator[tuple[Answer, int, int]]:
    """Yield the net output up to each watermark, and that of the watermark."""
    outputs: list[JoinOutput] = []
    for step in [*schedule, ("watermark", END_OF_TIME)]:
        if step[0] == "watermark":
            yield net(outputs), oracle.rows, len(oracle.late)
            due = drive(oracle, step)
            yield net(due), oracle.rows, len(oracle.late)
            outputs = []
        else:
            outputs += drive(oracle, step)
