"""An operator and its oracle that take the same steps, however state is kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import hypothesis.strategies as st

from lowwater.time import END_OF_TIME
from tests.oracles.row_patterns import END
from tests.property.driven_joins import Driven

RESTART = "restart"


@final
@dataclass(frozen=True)
class Run:
    """What an operator and its oracle are given.

    Args:
        make: Returns a new operator.
        steps: What ``compare`` takes; at a ``RESTART`` the state is taken up from its store.
        compare: Makes a step in both and compares what they emit; ``END`` ends the input.
    """

    make: Callable[[], Any]
    steps: Sequence[Any]
    compare: Callable[[Driven, Any], None]


def check(run: Run, groups: int = 0, *, spills: bool = False, memory: int = 0) -> None:
    """Make all steps, and see that nothing is left at the end; arguments as of ``Driven``."""
    library = Driven(run.make, groups, spills=spills, memory=memory)
    for step in [*run.steps, END]:
        if step != RESTART:
            run.compare(library, step)
            library.operator._check()
        elif library.is_stored:
            library.restart()
    assert library.operator.output_watermark == END_OF_TIME
    assert library.operator.state_rows == 0
    if library.is_stored:
        library.save()
        assert library.operator.open_windows == 0


def one_of_each(*choices: Sequence[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    """Draw a value of each, all by one number, as each draw takes its time."""

    def picked(number: int) -> tuple[Any, ...]:
        found = []
        for some in choices:
            number, at = divmod(number, len(some))
            found.append(some[at])
        return tuple(found)

    return st.integers(0, math.prod(map(len, choices)) - 1).map(picked)
