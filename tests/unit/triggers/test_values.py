"""Triggers are hashable values with a repr that evaluates back (S-R4)."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from lowwater.errors import InvalidArgument
from lowwater.triggers import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterProcessingTime,
    AfterWatermark,
    Always,
    CustomTrigger,
    Default,
    Never,
    OrFinally,
    Repeatedly,
    Trigger,
    TriggerContext,
)


@dataclass(frozen=True)
class EveryOther:
    """A custom trigger that fires on every second element."""

    name: str = field(default="every other")

    def on_element(self, context: TriggerContext, at: int) -> None:
        context.state = (context.state or 0) + 1

    def ready(self, context: TriggerContext) -> bool:
        return bool(context.state) and context.state % 2 == 0

    def on_fire(self, context: TriggerContext) -> bool:
        context.state = 0
        return False

    def on_merge(self, context: TriggerContext, states: list[Any]) -> None:
        context.state = sum(state or 0 for state in states)


ONE_OF_EACH: list[Trigger] = [
    AfterWatermark(),
    AfterWatermark(early=AfterCount(2)),
    AfterWatermark(late=AfterCount(1)),
    AfterWatermark(early=AfterProcessingTime("1m"), late=Always()),
    AfterCount(3),
    AfterProcessingTime("10m"),
    AfterProcessingTime(0, align="1h"),
    AfterAny(AfterCount(1), AfterProcessingTime("1m")),
    AfterAll(AfterCount(1), AfterWatermark(), Never()),
    AfterEach(AfterCount(1), Repeatedly(AfterCount(2))),
    Repeatedly(AfterAny(AfterCount(1), AfterProcessingTime("1m"))),
    OrFinally(Repeatedly(AfterCount(1)), AfterWatermark()),
    Never(),
    Always(),
    Default(),
    CustomTrigger(EveryOther(), finishes="at_completion"),
]


@pytest.mark.parametrize("trigger", ONE_OF_EACH, ids=repr)
def test_a_trigger_is_a_value(trigger: Trigger) -> None:
    """S-R4."""
    twin = eval(repr(trigger))
    assert twin == trigger
    assert hash(twin) == hash(trigger)
    assert copy.deepcopy(trigger) == trigger
    assert pickle.loads(pickle.dumps(trigger)) == trigger


def test_triggers_that_differ_differ() -> None:
    """S-R4."""
    assert len(set(ONE_OF_EACH)) == len(ONE_OF_EACH)
    a, b = AfterCount(1), AfterWatermark()
    assert AfterAny(a, b) != AfterAny(b, a)
    unlike: Trigger = AfterAll(a, b)
    assert unlike != AfterAny(a, b)
    assert AfterProcessingTime("60s") == AfterProcessingTime("1m")


@pytest.mark.parametrize("trigger", ONE_OF_EACH, ids=repr)
def test_a_trigger_cannot_be_changed(trigger: Trigger) -> None:
    # A frozen, slotted dataclass raises TypeError for a name that is no field.
    with pytest.raises((AttributeError, TypeError)):
        trigger.anything = 1  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("trigger", "text"),
    [
        (AfterWatermark(), "AfterWatermark()"),
        (AfterProcessingTime("90s", align="60m"), "AfterProcessingTime('1m30s', align='1h')"),
        (Default(), "Default()"),
    ],
)
def test_the_repr_reads_as_it_was_written(trigger: Trigger, text: str) -> None:
    """S-R4."""
    assert repr(trigger) == text


def test_the_default_says_what_it_stands_for() -> None:
    assert Default().expand() == AfterWatermark(late=Always())


@pytest.mark.parametrize("count", [0, -1, 1.0, True, "1", None])
def test_a_count_is_an_int_of_at_least_one(count: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"count=.*at least 1"):
        AfterCount(count)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"delay": -1}, "delay=-1"),
        ({"delay": "soon"}, "delay='soon'"),
        ({"delay": 0, "align": 0}, "align=0"),
        ({"delay": 0, "align": "-1m"}, "align='-1m'"),
    ],
)
def test_a_delay_is_not_negative_and_align_above_zero(
    arguments: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        AfterProcessingTime(**arguments)


not_a_trigger: Any = "AfterCount(1)"


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: AfterWatermark(early=not_a_trigger), "early"),
        (lambda: AfterWatermark(late=not_a_trigger), "late"),
        (lambda: Repeatedly(not_a_trigger), "trigger"),
        (lambda: OrFinally(not_a_trigger, Never()), "main"),
        (lambda: OrFinally(Never(), not_a_trigger), "until"),
        (lambda: AfterAny(Never(), not_a_trigger), r"parts\[1\]"),
        (lambda: AfterAll(not_a_trigger, Never()), r"parts\[0\]"),
        (lambda: AfterEach(Never(), Never(), not_a_trigger), r"parts\[2\]"),
    ],
)
def test_a_part_that_is_no_trigger_is_named(make: Callable[[], object], name: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"{name}='AfterCount\(1\)' \(str\) is not a trig"):
        make()


@pytest.mark.parametrize("kind", [AfterAny, AfterAll, AfterEach])
def test_a_composite_has_at_least_two_parts(kind: Callable[..., object]) -> None:
    with pytest.raises(InvalidArgument, match="at least two triggers, got 1"):
        kind(Never())


def test_custom_logic_must_have_its_methods() -> None:
    class Half:
        def on_element(self, context: TriggerContext, at: int) -> None: ...

    half: Any = Half()
    with pytest.raises(InvalidArgument, match="has no method ready"):
        CustomTrigger(half)
    finishes: Any = "sometimes"
    with pytest.raises(InvalidArgument, match="finishes='sometimes'"):
        CustomTrigger(EveryOther(), finishes=finishes)
