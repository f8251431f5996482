"""What a run was like from its beginning to now, in a bounded number of points."""

from __future__ import annotations

from typing import TypeAlias, final

_MOST = 600

Point: TypeAlias = "list[float | None]"


@final
class History:
    """Keeps points of the whole run: where there are too many, every second one is dropped.

    >>> history = History()
    >>> for at in range(10_000):
    ...     history.add([at])
    >>> len(history.points()) <= 601, history.points()[0], history.points()[-1]
    (True, [0], [9999])
    """

    def __init__(self) -> None:
        self._points: list[Point] = []
        self._every = 1
        self._since = 0
        self._last: Point | None = None

    def add(self, point: Point) -> None:
        """Add a point, later than those before."""
        self._last = point
        if self._since % self._every == 0:
            self._points.append(point)
        self._since += 1
        if len(self._points) > _MOST:
            del self._points[1::2]
            self._every *= 2

    def points(self) -> list[Point]:
        """Return the points that are kept, and the last one."""
        if self._last is None or self._points[-1] is self._last:
            return [*self._points]
        return [*self._points, self._last]
