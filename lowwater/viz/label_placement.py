"""Places labels without overlap: each takes the cheapest of a few candidate positions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import final

from lowwater.viz.shapes import Area

_FORBIDDEN = 1e6


@final
class Room:
    """A region of a picture in which labels are placed.

    Args:
        inside: Where labels may be.
    """

    def __init__(self, inside: Area) -> None:
        self._inside = inside
        self._taken = _Grid()
        self._lines = _Grid()

    def take(self, area: Area) -> None:
        """Keep labels away from an area."""
        self._taken.add(area)

    def avoid(self, area: Area) -> None:
        """Prefer to keep labels away from an area, such as that of a line."""
        self._lines.add(area)

    def is_free(self, area: Area) -> bool:
        """Return whether an area is still free."""
        return not any(area.overlap(other) for other in self._taken.near(area))

    def place(self, candidates: Iterable[tuple[float, Area]]) -> int | None:
        """Claim the cheapest free candidate and return its index; ``None`` if none is free.

        Args:
            candidates: What each place costs by itself, in square pixels of a line covered, and
                the place.
        """
        best, best_cost, best_area = None, _FORBIDDEN, None
        for number, (cost, area) in enumerate(candidates):
            if cost >= best_cost or not self._fits(area) or not self.is_free(area):
                continue
            total = cost + sum(area.overlap(line) for line in self._lines.near(area))
            if total < best_cost:
                best, best_cost, best_area = number, total, area
        if best_area is not None:
            self._taken.add(best_area)
        return best

    def _fits(self, area: Area) -> bool:
        inside = self._inside
        return (
            area.left >= inside.left
            and area.right <= inside.right
            and area.top >= inside.top
            and area.bottom <= inside.bottom
        )


_SIDE = 48.0


@final
class _Grid:
    """A grid index of areas, so that a query visits only nearby areas."""

    def __init__(self) -> None:
        self._squares: dict[tuple[int, int], list[Area]] = {}

    def add(self, area: Area) -> None:
        for square in _squares(area):
            self._squares.setdefault(square, []).append(area)

    def near(self, area: Area) -> Iterator[Area]:
        """Yield the areas that may overlap one, each once."""
        seen: set[int] = set()
        for square in _squares(area):
            for other in self._squares.get(square, ()):
                if id(other) not in seen:
                    seen.add(id(other))
                    yield other


def _squares(area: Area) -> Iterator[tuple[int, int]]:
    for column in range(int(area.left // _SIDE), int(area.right // _SIDE) + 1):
        for row in range(int(area.top // _SIDE), int(area.bottom // _SIDE) + 1):
            yield column, row
