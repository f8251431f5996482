"""Hands the snapshots of a run from its thread to those of readers."""

from __future__ import annotations

import json
import threading
import time
from typing import NamedTuple, final

from lowwater.live.snapshot import Snapshot

_WATCHED_S = 10.0


class Shown(NamedTuple):
    """A snapshot, its number, and its text as one line of JSON."""

    number: int
    snapshot: Snapshot
    text: bytes


@final
class Feed:
    """The latest snapshot of a run. Readers may wait for the next one; none is kept for them.

    A reader that is slow gets fewer snapshots, and costs the run nothing.

    ``seen_at`` is when the run last finished a bundle or a poll, by ``time.monotonic``.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._number = 0
        self._snapshot: Snapshot | None = None
        self._shown: Shown | None = None
        self._looked_at = float("-inf")
        self._is_over = False
        self.is_wanted = False
        self.seen_at = time.monotonic()

    def put(self, snapshot: Snapshot, *, last: bool = False) -> None:
        """Show a snapshot; after the last one there is no other."""
        with self._changed:
            self._number += 1
            self._snapshot = snapshot
            self._is_over = last
            self.is_wanted = False
            self._changed.notify_all()

    @property
    def is_over(self) -> bool:
        """Whether the last snapshot is shown."""
        return self._is_over

    @property
    def is_watched(self) -> bool:
        """Whether anybody has looked in the last seconds."""
        return time.monotonic() - self._looked_at < _WATCHED_S

    def latest(self) -> Shown | None:
        """Return what is shown; ``None`` before the first snapshot."""
        self._looked_at = time.monotonic()
        with self._changed:
            return self._now()

    def wait(self, after: int, seconds: float) -> Shown | None:
        """Return a snapshot with a greater number; ``None`` if none comes in time.

        Args:
            after: The number of the last one that the reader has.
            seconds: How long to wait at most.
        """
        self._looked_at = time.monotonic()
        self.is_wanted = True  # the run makes one sooner than if nobody looked
        with self._changed:
            self._changed.wait_for(lambda: self._number > after, seconds)
            self._looked_at = time.monotonic()
            return self._now() if self._number > after else None

    def _now(self) -> Shown | None:
        """Return what is shown, as text that is made once for all readers."""
        if self._snapshot is None:
            return None
        if self._shown is None or self._shown.number != self._number:
            text = json.dumps(self._snapshot, separators=(",", ":"), allow_nan=False)
            self._shown = Shown(self._number, self._snapshot, text.encode())
        return self._shown
