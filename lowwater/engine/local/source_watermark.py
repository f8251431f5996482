"""The watermark of one source: its estimator, and for how long the source has been silent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

from lowwater.engine.graph.graph import Read
from lowwater.time import END_OF_TIME, START_OF_TIME, format_instant
from lowwater.watermark import (
    Observed,
    announce_partitions,
    count_silence,
    excuse_silence,
    holder_of,
)


@final
class SourceWatermark:
    """Estimates the watermark of one source, as its elements and its silence are reported.

    Args:
        read: The source.
    """

    def __init__(self, read: Read) -> None:
        self.read = read
        self.ended = False
        # What the source itself has said, besides what its elements tell.
        self.carried = START_OF_TIME
        # The clock at the last element, or at the first poll before any.
        self.heard_at: int | None = None
        self._estimator = None if read.watermark is None else read.watermark.start()
        self._silent_at: int | None = None
        self._asked_at = START_OF_TIME
        self._away = False
        # The clock at the last element of an earlier run, until there is one in this run.
        self._heard_before: int | None = None

    def announce(self, partitions: Sequence[Any]) -> None:
        """Report the partitions from which elements may come."""
        if self._estimator is not None:
            announce_partitions(self._estimator, partitions)

    def observe(self, observed: Observed) -> None:
        """Report elements; the clock at their arrival is that of ``observed``."""
        self.heard_at = self._asked_at = observed.clock
        self._silent_at = self._heard_before = None
        if self._estimator is not None:
            self._estimator.observe(observed)

    def carry(self, watermark: int, clock: int) -> None:
        """Report a watermark that the source itself says: a sign of life, even without elements."""
        self.carried = max(self.carried, watermark)
        self.heard_at = self._asked_at = clock
        self._silent_at = self._heard_before = None

    def rest(self, clock: int) -> None:
        """Report that a poll returned nothing. Silence counts from the first poll of this run."""
        self._asked_at = max(self._asked_at, clock)
        if clock > START_OF_TIME:
            self._silent_at = clock
            if self.heard_at is None:
                self.heard_at = clock

    def reach(self, clock: int) -> None:
        """Report that all that was there has been read, in a run that reads no further.

        Only now is silence known: what had no element in this run has had none since an earlier
        one, however long ago that was. Before, its elements might have been still to be read.
        """
        self._asked_at = max(self._asked_at, clock)
        if clock <= START_OF_TIME:
            return
        if self._heard_before is not None:
            self.heard_at = self._heard_before
        elif self.heard_at is None:
            self.heard_at = clock
        self._silent_at = clock
        if self._estimator is not None and not self._away:
            count_silence(self._estimator)
        self._away = False

    def current(self) -> int:
        """Return the watermark, int microseconds.

        Evaluated at the clock when the source was last polled, not now: while the run reads other
        sources nobody polls this one, and that is not silence on its part.
        """
        if self.ended:
            return END_OF_TIME
        if self._estimator is None:
            return self.carried
        if self._away and self._asked_at > START_OF_TIME:
            self._away = False
            excuse_silence(self._estimator, self._asked_at)
        return max(self.carried, self._estimator.current(self._asked_at))

    def is_idle(self) -> bool:
        """Whether the source has been silent for ``idle_after``, so other sources stop waiting.

        Silence is measured only between polls that returned nothing: time spent reading other
        sources does not count.
        """
        after = self.read.idle_after_us
        if after is None or self.ended or self.heard_at is None or self._silent_at is None:
            return False
        return self._silent_at - self.heard_at >= after

    def holder(self, clock: int) -> str:
        """Describe what holds the watermark."""
        if self._estimator is None and self.carried == START_OF_TIME:
            return "it has no watermark until it ends"
        since = self.heard_at
        silent = ""
        if since is not None and since < clock:
            silent = f"silent since {format_instant(since)}"
            if self.is_idle():
                silent = f"idle since {format_instant(since)}, and so are the others"
        if self._estimator is None:
            return silent or "the watermark that its records carry"
        return holder_of(self._estimator) or silent or "its latest elements"

    def silent_seconds(self) -> float | None:
        """Return for how long polls have returned nothing, in seconds; ``None``: they have not."""
        if self.ended or self.heard_at is None or self._silent_at is None:
            return None
        return (self._silent_at - self.heard_at) / 1e6

    def remember(self) -> dict[str, Any]:
        """Return the state to store, as plain values."""
        return {
            "estimator": None if self._estimator is None else self._estimator.remember(),
            "ended": self.ended,
            "heard": [
                self.heard_at if self._heard_before is None else self._heard_before,
                self._silent_at,
            ],
        }

    def resume(self, known: Mapping[str, Any], *, was_away: bool = False) -> None:
        """Resume from what an earlier run stored.

        Args:
            known: What :meth:`remember` returned.
            was_away: Whether the clock went on while nothing ran, so that stored instants would
                look like silence.
        """
        if self._estimator is not None and known["estimator"] is not None:
            self._estimator.resume(known["estimator"])
            self._away = was_away
        heard_at, silent_at = known.get("heard", (None, None))
        if was_away:
            self._heard_before = heard_at
        else:
            self.heard_at, self._silent_at = heard_at, silent_at
        self.ended = known["ended"]


def followed(at: SourceWatermark, every: Sequence[SourceWatermark]) -> int:
    """Return a source's watermark; one that is idle follows the active ones among ``every``."""
    own = at.current()
    if len(every) == 1 or not at.is_idle():
        return own
    others = [one for one in every if not (one.ended or one.is_idle())]
    return max(own, min((one.current() for one in others), default=own))
