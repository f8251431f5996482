"""Batches that a position foretells: after any position, the next batch is always the same.

What a fetch returns depends on what has arrived by then. So before a batch whose end is not fixed,
a batch without records comes, whose position fixes it: a run that resumes there reads that batch
up to the same end, whatever has arrived since.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeAlias, TypeVar, final

from lowwater.engine.graph.sources import Position
from lowwater.engine.records.batch import Records

Content = TypeVar("Content")
End = TypeVar("End")
Offsets: TypeAlias = Mapping[str, int]


def share_of(begun: Offsets, at: Offsets, ends: Mapping[str, int | None]) -> float | None:
    """Return how much was read of the partitions of a source; ``None``: an end is not known.

    Args:
        begun: The offset of each partition where the reading began.
        at: The offset that it has reached.
        ends: The offset where the partition ends.

    >>> share_of({"0": 10, "1": 0}, {"0": 15, "1": 0}, {"0": 20, "1": 0})
    0.5
    """
    read = total = 0
    for number, start in begun.items():
        end = ends.get(number)
        if end is None:
            return None
        read += min(at.get(number, start), max(end, start)) - start
        total += max(0, end - start)
    return read / total if total else None


@final
@dataclass(frozen=True, slots=True)
class Part(Generic[Content, End]):
    """What was fetched for one batch.

    Args:
        content: What the batch is made of.
        end: Where the next one begins.
    """

    content: Content
    end: End


class PartReader(Protocol[Content, End]):
    """Fetches the parts of a source in order, and makes batches of them."""

    def fetch(self, until: End | None, seconds: float | None, /) -> Sequence[Part[Content, End]]:
        """Return the next parts that are there; none if there are none yet.

        Args:
            until: Where the next part ends, if an earlier run has fixed it.
            seconds: How long to wait for the first one at most; ``None``: a batch is in hand, which
                must not wait for what a slow look finds.
        """
        ...

    def rest(self) -> float | None:
        """After a fetch without parts: for how many seconds to wait; ``None``: no more come."""
        ...

    def batch(self, part: Part[Content, End], following: End | None, /) -> tuple[Records, Position]:
        """Return the records of a part, and the position after it.

        Args:
            part: The part.
            following: Where the part after it ends, if that is fixed.
        """
        ...

    def pause(self, following: End | None, /) -> tuple[Records, Position]:
        """Return a batch without records, and the position where the last part has ended.

        Args:
            following: Where the next part ends, if that is fixed.
        """
        ...


def foretold_batches(
    reader: PartReader[Content, End], until: End | None
) -> Iterator[tuple[Records, Position]]:
    """Yield the batches of a source, each with the position after it.

    While there is nothing new, a batch without records comes, and at the end if its position is not
    that of the batch before it.

    Args:
        reader: What reads the source, standing where the first batch begins.
        until: Where the first batch ends, if an earlier run has fixed it.
    """
    ready: deque[Part[Content, End]] = deque()
    seconds = 0.0
    told: Position | None = None
    while True:
        if ready:
            part = ready.popleft()
            if not ready:  # then the position may foretell the next one too
                ready.extend(reader.fetch(None, None))
            records, told = reader.batch(part, ready[0].end if ready else None)
            yield records, told
            continue
        ready.extend(reader.fetch(until, seconds))
        seconds = 0.0
        if ready:
            # A position that had foretold the part may be one amid it, where an earlier run has
            # done some of its bundles: nothing must come before it.
            if until is None:
                yield reader.pause(ready[0].end)
            until = None
            continue
        rest = reader.rest()
        nothing, position = reader.pause(until)
        if rest is None:
            if position != told:
                yield nothing, position
            return
        if rest or until is None:
            told = position
            asked = time.monotonic()
            yield replace(nothing, rest_seconds=rest), position
            seconds = max(0.0, rest - (time.monotonic() - asked))
