"""Which elements of the stages are made of a record of a source, or of a pane of another stage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import final

from lowwater.engine.graph.trace import StageTrace, TracedElement


@final
class Origins:
    """The elements of some stages by what they are made of. Built in O(elements).

    Args:
        stages: The traces of the stages.
    """

    def __init__(self, stages: Iterable[StageTrace]) -> None:
        self._of: defaultdict[tuple[str, int], list[tuple[str, TracedElement]]] = defaultdict(list)
        for stage in stages:
            for element in stage.elements:
                for origin in element.origins:
                    self._of[origin].append((stage.name, element))
                if element.pane is not None:
                    self._of[element.pane].append((stage.name, element))

    def made_of(self, origin: str, number: int) -> list[tuple[str, TracedElement]]:
        """Return the elements, each with the name of its stage, in the order of the stages. O(1).

        Args:
            origin: The name of the source, or of the stage.
            number: Which of its records, or of its panes.
        """
        return self._of.get((origin, number), [])
