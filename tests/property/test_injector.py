"""The injector, against a network that loses, delays, repeats and reorders, and against zombies.

A chain of stages is simulated whole. Elements lie with the part of a stage; a worker takes one and
sends what it makes of it to a part of the next stage, in one commit. Workers know injected
watermarks of the stage before as old as the schedule likes. What is true is computed from the
elements, which nothing but the simulation can see.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.state.codec import decode, encode
from lowwater.time import END_OF_TIME, START_OF_TIME
from lowwater.watermark import Injector, Report
from tests.examples import examples

STAGES, PARTS = ["a", "b", "c"], 2
ACTIONS = ("arrive", "advance", "pass", "report", "deliver", "hear", "take", "zombie")


@dataclass
class World:
    """The truth, and the reports on their way."""

    injector: Injector
    source: int = 0
    work: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    sequencer: dict[tuple[str, int], int] = field(default_factory=dict)
    number: int = 0
    heard: dict[str, list[int]] = field(default_factory=dict)
    sent: list[Report] = field(default_factory=list)
    zombies: list[tuple[str, int, int, list[int]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for stage in STAGES:
            self.heard[stage] = [START_OF_TIME]
            for part in range(PARTS):
                self.work[stage, part] = []
                self.sequencer[stage, part] = 0

    def true(self, stage: str) -> int:
        """Return the low watermark as it is: of this stage's work and all before it."""
        before = STAGES[: STAGES.index(stage) + 1]
        work = [at for one in before for part in range(PARTS) for at in self.work[one, part]]
        return min([self.source, *work])

    def report(self, stage: str, part: int, inputs: int, sequencer: int, work: list[int]) -> None:
        self.number += 1
        oldest = min(work, default=END_OF_TIME)
        self.sent.append(
            Report(
                worker=f"w{sequencer}",
                sequencer=sequencer,
                number=self.number,
                stage=stage,
                part=part,
                oldest_work=oldest,
                watermark=min(oldest, inputs),
            )
        )

    def known(self, stage: str, data: st.DataObject) -> int:
        """Return what a worker may know of the watermark of the stage before."""
        place = STAGES.index(stage)
        return data.draw(st.sampled_from(self.heard[STAGES[place - 1]])) if place else self.source

    def step(self, data: st.DataObject) -> None:
        stage, part = data.draw(st.sampled_from(sorted(self.work)))
        place = STAGES.index(stage)
        action = data.draw(st.sampled_from(ACTIONS))
        if action == "arrive":  # on time: at or above the source's own watermark
            self.work["a", part].append(self.source + data.draw(st.integers(0, 5)))
        elif action == "advance":
            self.source += data.draw(st.integers(0, 5))
        elif action == "pass" and self.work[stage, part]:
            index = data.draw(st.integers(0, len(self.work[stage, part]) - 1))
            at = self.work[stage, part].pop(index)
            if place + 1 < len(STAGES):
                to = data.draw(st.integers(0, PARTS - 1))
                self.work[STAGES[place + 1], to].append(at + data.draw(st.integers(0, 3)))
        elif action == "report":
            # What it knows of the stage before is as old as the schedule likes.
            sequencer, work = self.sequencer[stage, part], self.work[stage, part]
            self.report(stage, part, self.known(stage, data), sequencer, work)
        elif action == "zombie" and self.zombies:  # it hears, but knows of no work that came since
            stage, part, sequencer, work = data.draw(st.sampled_from(self.zombies))
            self.report(stage, part, self.known(stage, data), sequencer, work)
        elif action == "take":  # another worker takes the part; the old one becomes a zombie
            old = self.sequencer[stage, part]
            self.sequencer[stage, part] = old + 1
            self.zombies.append((stage, part, old, list(self.work[stage, part])))
            self.injector.grant(stage, part, old + 1)
        elif action == "hear":
            self.heard[stage].append(int(self.injector.watermark(stage)))
        elif action == "deliver" and self.sent:
            index = data.draw(st.integers(0, len(self.sent) - 1))
            report = self.sent[index]
            if data.draw(st.integers(0, 3)):  # else it comes once more, another time
                self.sent.pop(index)
            if data.draw(st.integers(0, 5)):  # else it is lost
                self.injector.take(report)


@examples(3.75)
@given(st.data())
def test_no_schedule_takes_it_beyond_the_truth(data: st.DataObject) -> None:
    """At most the true minimum, and it never goes back."""
    world = World(Injector({stage: range(PARTS) for stage in STAGES}))
    seen = dict.fromkeys(STAGES, START_OF_TIME)
    for _ in range(data.draw(st.integers(1, 60))):
        world.step(data)
        if not data.draw(st.integers(0, 9)):  # it is stopped, and another one takes its place
            known = decode(encode(world.injector.remember()))
            world.injector = Injector({stage: range(PARTS) for stage in STAGES})
            world.injector.resume(known)
        for stage in STAGES:
            now = int(world.injector.watermark(stage))
            assert seen[stage] <= now <= world.true(stage)
            seen[stage] = now


@given(st.permutations(range(8)), st.data())
def test_when_all_has_come_it_is_the_minimum(order: list[int], data: st.DataObject) -> None:
    """So it is not right for being useless: the order and repeats cost nothing in the end."""
    reports = [report(part=n % PARTS, number=n, watermark=10 * n) for n in range(8)]
    injector = Injector({"a": range(PARTS)})
    for at in order:
        injector.take(reports[at])
        if data.draw(st.booleans()):
            assert injector.take(reports[at]) == "repeated"
    assert injector.watermark("a") == 60


def report(*, part: int = 0, sequencer: int = 0, number: int = 0, watermark: int = 0) -> Report:
    return Report(
        worker=f"w{sequencer}", sequencer=sequencer, number=number, stage="a", part=part,
        oldest_work=watermark, watermark=watermark,
    )  # fmt: skip


@given(st.integers(0, 5), st.integers(1, 5), st.booleans(), st.integers(0, 99))
def test_a_stale_sequencer_is_refused(old: int, more: int, granted: bool, number: int) -> None:
    injector = Injector({"a": range(1)})
    assert injector.take(report(sequencer=old, watermark=5)) == "taken"
    if granted:
        injector.grant("a", 0, old + more)
    else:
        assert injector.take(report(sequencer=old + more, watermark=6)) == "taken"
    before = injector.remember()
    assert injector.take(report(sequencer=old, number=number, watermark=50)) == "stale"
    assert injector.remember() == before
    assert injector.take(report(sequencer=old + more, number=1, watermark=7)) == "taken"
    assert injector.watermark("a") == 7


@given(st.integers(1, 5), st.data())
def test_a_missing_part_freezes_it(parts: int, data: st.DataObject) -> None:
    missing = data.draw(st.integers(0, parts - 1))
    injector = Injector({"a": range(parts)})
    for part in range(parts):
        if part != missing:
            injector.take(report(part=part, watermark=9))
    assert injector.watermark("a") == START_OF_TIME
    assert injector.holder("a") == f"part {missing} has not been reported"
    injector.take(report(part=missing, watermark=4))
    assert injector.watermark("a") == 4
    assert injector.holder("a").startswith(f"part {missing}, as w0 reported it at 1970") or (
        parts == 1
    )
    injector.expect("a", range(parts + 1))
    injector.take(report(part=missing, number=1, watermark=99))
    assert injector.watermark("a") == 4
    injector.take(report(part=parts, watermark=9))
    assert injector.watermark("a") == 9


def test_what_cannot_be_is_refused() -> None:
    injector = Injector({"a": range(1)})
    with pytest.raises(lw.InvalidArgument, match="no part 7"):
        injector.take(report(part=7))
    with pytest.raises(lw.InvalidArgument, match="no stage 'b'"):
        injector.watermark("b")
    with pytest.raises(lw.InvalidArgument, match="no parts"):
        Injector({"a": ()})
    with pytest.raises(lw.InvalidArgument, match="beyond"):
        Report(worker="w", sequencer=0, number=0, stage="a", part=0, oldest_work=3, watermark=4)
