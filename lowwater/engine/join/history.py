"""The versions of each key: which a fact meets, and how long they are kept (J-8 to J-12)."""

from __future__ import annotations

from typing import final

import numpy as np

from lowwater.engine.join.joining import AsOf
from lowwater.engine.join.two_sided import before
from lowwater.engine.keyed.ranks import ranks
from lowwater.engine.keyed.records import KeyedRecords
from lowwater.state.arrays import distinct, run_starts
from lowwater.state.deadlines import Deadlines
from lowwater.time import (
    END_OF_TIME,
    LAST_EVENT_TIME,
    START_OF_TIME,
    Int64Array,
    saturating_add_array,
)

ALONE = -1
"""The version of a fact that meets none."""


@final
class History:
    """Finds versions by key and time.

    Args:
        as_of: The rules of the join.
        versions: The versions.

    ``expiries`` has an entry for each version that is the newest before ``W - keep``, where such a
    version is released by time.
    """

    def __init__(self, as_of: AsOf, versions: KeyedRecords) -> None:
        self._as_of = as_of
        self._versions = versions
        self._strictly = 0 if as_of.allow_equal else 1
        self.expiries = Deadlines()

    def met(self, keys: Int64Array, times: Int64Array, until: Int64Array | None) -> Int64Array:
        """Return the version that a fact of each key and time meets, ``ALONE`` for none.

        Args:
            keys: Their keys.
            times: Their times.
            until: What :meth:`settled` returns for them, or a fact's own time if that is later;
                ``None`` where facts look back.
        """
        if until is None:
            return self._before(keys, times)
        # What settles a fact is a version at that very instant, or there is none ahead to be met.
        met = self.newest(keys, until)
        is_ahead = (met >= 0) & (self._versions.table["start"][met] == until)
        if self._strictly:
            is_ahead &= until > times
        others = np.flatnonzero(~is_ahead)
        met[others] = ALONE
        if self._as_of.direction == "nearest" and others.size:
            met[others] = self._before(keys[others], times[others])
        return met

    def _before(self, keys: Int64Array, times: Int64Array) -> Int64Array:
        """Return the newest version that is not too old for a fact, ``ALONE`` for none."""
        met = self.newest(keys, times - self._strictly if self._strictly else times)
        if self._as_of.tolerance_us is not None:
            oldest = saturating_add_array(times, -self._as_of.tolerance_us)
            found = met >= 0
            met[found & (self._versions.table["start"][met] < oldest)] = ALONE
        return met

    def newest(self, keys: Int64Array, at: Int64Array) -> Int64Array:
        """Return each key's newest version at or before an instant, ``ALONE`` for none."""
        versions = self._versions
        met = versions.segments.latest(keys, at)
        name = self._as_of.order
        found = np.flatnonzero(met >= 0)
        if name is None or not found.size:
            return met
        # Of those of one time the greatest in order counts.
        times = versions.table["start"][met[found]]
        rows, which = versions.find(keys[found], times, times)
        if len(rows) > len(found):
            (column,) = versions.kept.take(rows, [name]).values()
            order = np.lexsort(
                (versions.table["born"][rows], ranks((column,), name, "join_as_of")[0], which)
            )
            last = np.append(which[order][1:] != which[order][:-1], True)
            met[found] = rows[order[last]]
        return met

    def settled(self, keys: Int64Array, times: Int64Array) -> Int64Array:
        """Return the instant that settles which version a fact of each key and time meets.

        Once the watermark of the versions has passed it, no version that comes is met instead of
        the present one. For joins that look ahead.
        """
        as_of, segments = self._as_of, self._versions.segments
        last = np.minimum(saturating_add_array(times, as_of.ahead_us), LAST_EVENT_TIME)
        until = np.minimum(segments.next_start(keys, times + (self._strictly - 1)), last)
        if as_of.direction == "forward":
            return until
        rows = segments.latest(keys, times - self._strictly)
        back = self._versions.table["start"][rows]
        has_back = (rows >= 0) & (back >= saturating_add_array(times, -as_of.ahead_us))
        some = np.flatnonzero(has_back)
        # Of two at one distance the earlier is met, so one that comes as far ahead changes nothing;
        # and nothing is in between if versions of the fact's own time are not met.
        wait = times[some] - back[some] - 1
        wait[wait < self._strictly] = -self._strictly
        until[some] = np.minimum(until[some], saturating_add_array(times[some], wait))
        return until

    def reach(
        self, keys: Int64Array, first: Int64Array, last: Int64Array
    ) -> tuple[Int64Array, Int64Array]:
        """Return between which times facts may meet another version than before, both included.

        Args:
            keys: Keys whose versions have changed, distinct.
            first: When the first of them was.
            last: When the last was.
        """
        as_of, segments = self._as_of, self._versions.segments
        if not as_of.looks_ahead:
            # Up to the version that follows the last of them; that one's facts are its own.
            return first, segments.next_start(keys, last)
        rows = segments.latest(keys, first - 1)
        low = np.where(rows >= 0, self._versions.table["start"][rows], START_OF_TIME)
        low = np.maximum(low, saturating_add_array(first, -as_of.ahead_us))
        if as_of.direction == "forward":
            return low, last
        high = saturating_add_array(last, as_of.ahead_us)
        return low, np.minimum(high, segments.next_start(keys, last))

    # -- how long versions are kept (J-9, J-12) -------------------------------------------------

    @property
    def longest_us(self) -> int | None:
        """How long after its time a version is gone, in microseconds of the watermark.

        ``None``: the newest of a key stays.
        """
        if not self._as_of.looks_ahead:
            return None
        return self._as_of.keep_us + self._behind_us + 1

    @property
    def _behind_us(self) -> int:
        """How long a version that is the newest may matter, in microseconds.

        A fact may be later by the tolerance, and wait as long for one that is as far ahead of it.
        """
        return 2 * self._as_of.ahead_us if self._as_of.direction == "nearest" else 0

    def gone_at(self, rows: Int64Array, watermark: int) -> Int64Array:
        """Return the watermark at which versions are released next, given all of some keys."""
        as_of, table = self._as_of, self._versions.table
        times = table["start"][rows]
        passed = saturating_add_array(times, as_of.keep_us)
        gone = saturating_add_array(passed, 1)
        if as_of.direction == "forward":
            return gone
        # The first version of a key only goes when the next one is as old, or by its own time.
        order = np.lexsort((table["born"][rows], times, table["key"][rows]))
        first = order[run_starts(table["key"][rows][order])]
        if not as_of.looks_ahead:
            gone[first] = END_OF_TIME
            return gone
        expires = saturating_add_array(passed, min(self._behind_us, END_OF_TIME))
        expires = saturating_add_array(expires, 1)
        gone[first] = expires[first]
        return np.where(gone <= watermark, expires, gone)

    def forget(self, watermark: int) -> None:
        """Remove the versions that no fact can meet any more, now that the watermark is there."""
        as_of, versions = self._as_of, self._versions
        over = before(watermark, as_of.keep_us)
        if watermark == END_OF_TIME:
            versions.take_all_due(versions.by_time, over)
            versions.remove(versions.table.live())
            return
        if as_of.direction == "forward":
            versions.remove(versions.take_due(versions.by_time, over))
            return
        rows = versions.take_all_due(versions.by_time, over)
        expired = START_OF_TIME
        if as_of.looks_ahead:
            expired = before(watermark, as_of.keep_us + self._behind_us)
            versions.remove(versions.take_due(self.expiries, expired))
        if not rows.size:
            return
        if as_of.looks_ahead or as_of.order is not None:
            self._forget_superseded(rows, over, expired)
            return
        keys = distinct(versions.table["key"][rows])
        versions.remove_but_last(keys, np.full(len(keys), over, dtype=np.int64))

    def _forget_superseded(self, rows: Int64Array, over: int, expired: int) -> None:
        """Remove versions up to an instant, but for the newest of each key.

        Args:
            rows: The versions that are that old since now.
            over: The instant.
            expired: Up to here, joins that look ahead keep none.
        """
        versions = self._versions
        keys = distinct(versions.table["key"][rows])
        start = np.full(len(keys), START_OF_TIME, dtype=np.int64)
        upto = np.full(len(keys), over, dtype=np.int64)
        old, which = versions.find(keys, start, upto)
        newest = self.newest(keys, upto)
        stays = old == newest[which]
        if self._as_of.looks_ahead:
            times = versions.table["start"]
            if self._strictly:
                # A fact of the newest one's time does not meet that, but the one before.
                at = np.where(newest >= 0, times[newest] - 1, START_OF_TIME)
                stays |= old == self.newest(keys, at)[which]
            stays &= times[old] > expired
            kept = old[stays & versions.among(old, rows)]
            self.expiries.push(times[kept], kept)
        versions.remove(old[~stays])
