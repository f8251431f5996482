"""Visits all states of a model, breadth first, and tells the shortest story that breaks it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
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


def visit(
    first: StateT,
    steps: Callable[[StateT], Iterable[tuple[str, StateT]]],
    wrong: Callable[[StateT], str | None],
    most: int = 5_000_000,
) -> Visited[StateT]:
    """Visit all states that can be reached, those with the fewest steps first.

    Args:
        first: Where it begins.
        steps: Returns what can happen next: in words, and the state afterwards.
        wrong: Returns what is wrong with a state, if anything is.
        most: The most states to visit; more are an error.
    """
    came: dict[StateT, tuple[StateT, str] | None] = {first: None}
    ahead = deque([first])
    while ahead:
        state = ahead.popleft()
        if (broken := wrong(state)) is not None:
            return Visited(len(came), broken, _story(came, state), state)
        for told, after in steps(state):
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
