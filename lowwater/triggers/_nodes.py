"""Trigger trees compiled for the machine: each node with the column of its state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, assert_never, final

import numpy as np

from lowwater.time import END_OF_TIME
from lowwater.triggers._values import (
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
)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A trigger and the column of its state: a tree like the trigger's own."""

    trigger: Trigger
    column: str
    dtype: Any
    fill: Any
    parts: tuple[Node, ...]

    @property
    def fed(self) -> bool:
        """Whether it counts or times elements itself."""
        match self.trigger:
            case AfterCount() | AfterProcessingTime() | CustomTrigger():
                return True
            case (
                AfterWatermark() | AfterAny() | AfterAll() | AfterEach() | Repeatedly()
                | OrFinally() | Never() | Always() | Default()
            ):  # fmt: skip
                return False
            case _:
                assert_never(self.trigger)

    @property
    def any_fed(self) -> bool:
        return self.fed or any(part.any_fed for part in self.parts)

    @property
    def never(self) -> bool:
        return isinstance(self.trigger, Never)

    @property
    def waits_for_completion(self) -> bool:
        """Whether it can only have finished at the completion of its window."""
        match self.trigger:
            case AfterWatermark():
                return True
            case AfterEach() | AfterAll():
                return any(part.waits_for_completion for part in self.parts)
            case AfterAny() | OrFinally():
                return all(part.waits_for_completion for part in self.parts)
            case (
                AfterCount() | AfterProcessingTime() | Repeatedly() | Never() | Always()
                | Default() | CustomTrigger()
            ):  # fmt: skip
                return False
            case _:
                assert_never(self.trigger)


def compile_trigger(trigger: Trigger, name: str) -> Node:
    match trigger:
        case Default():
            return compile_trigger(trigger.expand(), name)
        case AfterCount():
            return Node(trigger, f"{name}:count", np.int64, 0, ())
        case AfterProcessingTime():
            return Node(trigger, f"{name}:deadline", np.int64, END_OF_TIME, ())
        case CustomTrigger():
            return Node(trigger, f"{name}:custom", object, None, ())
        case AfterWatermark():
            parts = (
                compile_trigger(trigger.early or Never(), f"{name}.early"),
                compile_trigger(trigger.late or Never(), f"{name}.late"),
            )
            return Node(trigger, f"{name}:past_end", np.bool_, False, parts)
        case AfterEach():
            return Node(trigger, f"{name}:part", np.int16, 0, _compile_all(trigger.parts, name))
        case AfterAny() | AfterAll():
            return Node(trigger, "", None, None, _compile_all(trigger.parts, name))
        case OrFinally():
            both = (trigger.main, trigger.until)
            return Node(trigger, "", None, None, _compile_all(both, name))
        case Repeatedly():
            return Node(trigger, "", None, None, _compile_all((trigger.trigger,), name))
        case Never() | Always():
            return Node(trigger, "", None, None, ())
        case _:
            assert_never(trigger)


def _compile_all(triggers: tuple[Trigger, ...], name: str) -> tuple[Node, ...]:
    return tuple(compile_trigger(part, f"{name}.{at}") for at, part in enumerate(triggers))


def walk(node: Node) -> Iterator[Node]:
    yield node
    for part in node.parts:
        yield from walk(part)
