"""Visits all states of a model, breadth first, and tells the shortest story that breaks it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar, final

StateT = TypeVar("StateT", bound=Hashable)


@final
@dataclass(frozen=True)
class Visited(Generic[StateT]):
    """What a search has found.

    Args:
        states: How many states there are.
        broken: What is wrong in the first state that is; ``None`` if none is.
        story: The steps that lead there, in words.
        last: That state.
    """

    states: int
    broken: str | None = None
    story: tuple[str, ...] = ()
    last: StateT | None = None

    def __str__(self) -> str:
        if self.broken is None:
            return f"{self.states:,} states, each as it has to be"
        steps = "\n".join(f"  {number}. {step}" for number, step in enumerate(self.story, 1))
        return f"{self.broken}:\n{steps}\n{self.last}"


class Model(ABC, Generic[StateT]):
    """What can happen next, and what must never be.

    Args:
        without: The name of a rule that is left out: a mutant, which the search has to find.
    """

    def __init__(self, without: str = "") -> None:
        self._without = without

    def holds(self, rule: str) -> bool:
        """Return whether a rule is in force; each is named where it is needed."""
        return rule != self._without

    @abstractmethod
    def first(self) -> StateT:
        """Return the state before anything has happened."""

    @abstractmethod
    def steps(self, state: StateT) -> Iterator[tuple[str, StateT]]:
        """Yield what can happen next, in words, and what is afterwards."""

    @abstractmethod
    def wrong(self, state: StateT) -> str | None:
        """Return what is wrong with a state, if anything is."""


def visit(model: Model[StateT], most: int = 5_000_000) -> Visited[StateT]:
    """Visit all states that can be reached, those with the fewest steps first.

    Args:
        model: The model.
        most: The most states to visit; more are an error.
    """
    first = model.first()
    came: dict[StateT, tuple[StateT, str] | None] = {first: None}
    ahead = deque([first])
    while ahead:
        state = ahead.popleft()
        if (broken := model.wrong(state)) is not None:
            return Visited(len(came), broken, _story(came, state), state)
        for told, after in model.steps(state):
            if after not in came:
                came[after] = (state, told)
                ahead.append(after)
        if len(came) > most:
            raise AssertionError(f"more than {most:,} states: bound the model")
    return Visited(len(came))


def _story(came: dict[StateT, tuple[StateT, str] | None], state: StateT) -> tuple[str, ...]:
    told: list[str] = []
    while (before := came[state]) is not None:
        state, step = before
        told.append(step)
    return tuple(reversed(told))
