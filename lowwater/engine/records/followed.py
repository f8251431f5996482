"""What a stage followed, for whoever repeats its steps from a trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True)
class Event:
    """Something that a stage followed: rows of the key came, or the watermark advanced.

    Args:
        order: Its position in the order of events.
        clock: The clock.
        watermark: The input watermark.
        rows: The numbers of the rows that came; none if the watermark advanced.
    """

    order: int
    clock: int
    watermark: int
    rows: tuple[int, ...] = ()
