"""The records that hooks send to the late output: ``ctx.late`` (S-K11)."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lowwater.engine.window.placement import DroppedElements
from lowwater.errors import InvalidArgument, describe
from lowwater.time import Int64Array


@final
class Refusals:
    """What the running hook may refuse, and what it has refused.

    Between :meth:`begin` and :meth:`finish` a bundle is processed. Each of its records can be
    refused once; what is said of it later changes nothing. ``at`` is the number of the record that
    a per-record process has at hand, ``None`` while a timer fires.

    Args:
        place: The process, in words.
    """

    __slots__ = ("_element", "_end", "_fresh", "_late", "_place", "_start", "at")

    def __init__(self, place: str) -> None:
        self._place = place
        self.at: int | None = None
        self._late: DroppedElements | None = None
        self._element: Int64Array | None = None
        self._start: Int64Array | None = None
        self._end: Int64Array | None = None
        self._fresh: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)

    def begin(
        self,
        late: DroppedElements,
        number: int,
        element: Int64Array | None,
        start: Int64Array | None,
        end: Int64Array | None,
    ) -> None:
        """Begin a bundle.

        Args:
            late: Takes the records that are refused.
            number: How many there are, of each window one.
            element: Which elements of the bundle they are, int64; ``None`` for all in order.
            start: Where their windows start, int64; ``None`` without windows.
            end: Where their windows end, int64; ``None`` without windows.
        """
        self._late = late
        self._element, self._start, self._end = element, start, end
        self._fresh = np.ones(number, dtype=np.bool_)

    @property
    def accepted(self) -> NDArray[np.bool_]:
        """Which records of the bundle no hook has refused."""
        return self._fresh

    def finish(self) -> None:
        """End a bundle."""
        self._late = self.at = None

    def refuse_one(self, reason: object) -> None:
        """Send the record at hand to the late output; see :meth:`refuse`."""
        if self.at is None:
            raise self._nothing_at_hand()
        self.refuse([self.at], reason)

    def refuse(self, chosen: ArrayLike, reason: object) -> None:
        """Send records of the bundle to the late output.

        Args:
            chosen: Their numbers, or a mask of all of them.
            reason: Why, for the user's eyes.

        Raises:
            InvalidArgument: There is no record at hand, or no such one, or the reason is no text.
        """
        if self._late is None:
            raise self._nothing_at_hand()
        if not isinstance(reason, str) or not reason:
            raise InvalidArgument(
                f"{describe('reason', reason)} is not a text that says why",
                where=f"late of {self._place}",
                hint='Write, say, ctx.late("its search is gone")',
            )
        number = len(self._fresh)
        rows = _rows(chosen, number)
        if rows is None:
            raise InvalidArgument(
                f"{describe('rows', chosen)} are no records of the batch, which has {number}",
                where=f"late of {self._place}",
                hint="Give a mask of len(batch), or numbers from 0 on",
            )
        rows = np.unique(rows[self._fresh[rows]])
        self._fresh[rows] = False
        if not rows.size:
            return
        nothing = np.zeros(len(rows), dtype=np.int64)
        self._late.refuse(
            rows if self._element is None else self._element[rows],
            nothing if self._start is None else self._start[rows],
            nothing if self._end is None else self._end[rows],
            [reason] * len(rows),
        )

    def _nothing_at_hand(self) -> InvalidArgument:
        return InvalidArgument(
            "there is no record at hand that could go to the late output",
            where=f"late of {self._place}",
            hint="Call ctx.late in on_record or on_records; elsewhere emit to another output",
        )


def _rows(chosen: Any, number: int) -> Int64Array | None:
    """Return the numbers that a mask or an array of numbers stands for; ``None`` if it is wrong."""
    given = np.asarray(chosen)
    if given.dtype == np.bool_:
        return np.flatnonzero(given) if given.shape == (number,) else None
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        return None
    rows = given.astype(np.int64)
    return rows if ((rows >= 0) & (rows < number)).all() else None
