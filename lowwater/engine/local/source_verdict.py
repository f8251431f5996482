"""Judges a source by its first records: are most of them dead letters, and are its times in 1970.

The counts are those of the source's admissions, which a state directory stores. So a run that
resumes judges the same records as one that was never stopped.
"""

from __future__ import annotations

from typing import final

import numpy as np

from lowwater.engine.local.source_reader import SourceReader
from lowwater.engine.local.stage_input import StageAdmission
from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.problems import JUDGED, Tally
from lowwater.engine.records.stateless import NULL_RECORD
from lowwater.errors import DataError, DataWarning, UnitWarning, warn
from lowwater.time import DAY_US, Int64Array, format_instant

_PER_CENT = 1
_EARLY_US = 31 * DAY_US  # milliseconds of the present, taken as microseconds, are on the 20th
_YEAR_9999_US = 253_402_300_800_000_000  # nanoseconds of the present are far beyond

_UNIT = 'Name the unit of times that are numbers, as in unit="s" for seconds'
_ZONE = 'Name the time zone of times that have none, as in timezone="UTC"'
_FIXES = {
    "bad_time": "Convert the times first, to ISO-8601 text with an offset or to aware datetimes",
    "null_time": "Name the column of event times with time=, or filter such records out before",
    "time_out_of_range": _UNIT,
    "too_far_ahead": f"{_UNIT}, or raise max_ahead=",
    "null_key": "Fill the column, or filter such records out before",
    NULL_RECORD: "Return a record from map, such as {**record, 'total': 1} (is there a "
    "`return`?); to leave records out, use filter, or flat_map with an empty list",
    "null_id": "Fill the column, or filter such records out before",
    "wrong_type": "Convert the column first, as in "
    '.map(lambda row: row | {"price": float(row["price"])})',
    "nan": "Filter such records out before, as in .filter(lambda row: row[...] == row[...])",
    "bad_gap": "Give each record a gap above zero",
    "malformed_csv": 'Check the header, and name the delimiter, as in delimiter=";"',
    "malformed_json": "Check that each line holds one JSON object",
}

_NAMES = {"s": "seconds", "ms": "milliseconds", "ns": "nanoseconds"}


@final
class SourceVerdict:
    """Judges one source, once its first 1,000 records were validated or it has ended.

    More than 1 % of dead letters among them give a ``DataWarning``. If all are dead letters for one
    reason, a ``DataError`` stops the run: its output would be empty or nearly so. Each stage that
    reads the source is judged by itself.

    Args:
        reader: The reader of the source.
        name: The name of the source.
        is_judged: Whether dead letters are judged: not if the user said how to handle them.
    """

    def __init__(self, reader: SourceReader, name: str, *, is_judged: bool) -> None:
        self._reader = reader
        self._name = name
        self._open = reader.tallies() if is_judged else []
        self._times_open = reader.read.times.unit is None

    def judge(self) -> None:
        """Judge what can be judged by now; O(1) once all is.

        Raises:
            DataError: The first records are all dead letters for one reason.
        """
        if not self._open:
            return
        ended = self._reader.ended
        done = [tally for tally in self._open if ended or tally.seen >= JUDGED]
        self._open = [tally for tally in self._open if tally not in done]
        for tally in done:
            self._judge(tally)

    def look_at(self, times: Int64Array) -> None:
        """Warn if event times are plain numbers that look like another unit; once. O(n) once.

        Args:
            times: The event times of a bundle as they were understood, int64 microseconds.
        """
        if not self._times_open or not len(times):
            return
        first = times[:JUDGED]
        if not first.any():
            return  # says nothing about the unit
        self._times_open = False
        if self._reader.has_plain_times:
            warn_of_unit(first, self._reader.read.time, self._name)

    def _judge(self, tally: Tally) -> None:
        failed = tally.failed
        if not failed:
            return
        records = min(tally.seen, JUDGED)
        total = sum(count for count, _ in failed.values())
        reason = max(failed, key=lambda name: failed[name][0])
        count, example = failed[reason]
        which = "the first 1,000" if records == JUDGED else f"{records:,}"
        fix = _fix(reason, example)
        if count >= records:
            raise DataError(
                f"{_all(records)} ({reason}), so the result would be empty; the first: {example}",
                where=self._name,
                hint=f'{fix}. Or run with on_error="dead_letter" to set them aside',
            )
        if total * 100 > records * _PER_CENT:
            warn(
                DataWarning,
                f"{total:,} of {which} records are dead letters, {count:,} of them {reason}; "
                f"the first of these: {example}",
                where=self._name,
                hint=f"{fix}. Read them with on_dead_letter=",
            )


def judge_map(entry: StageAdmission, where: str) -> None:
    """Raise if ``map`` makes nothing of all records of the first batch between two stages.

    Later batches are not judged: there may be such records among others.

    Raises:
        DataError: It does; most likely the function lacks its ``return``.
    """
    tally = entry.admission.tally
    count, example = tally.failed.get(NULL_RECORD, (0, ""))
    if count and count == tally.seen:
        raise DataError(
            f"{_all(count)} ({NULL_RECORD}), so the result would be empty; the first: {example}",
            where=where,
            hint=f'{_FIXES[NULL_RECORD]}. Or run with on_error="dead_letter" to set them aside',
        )


def warn_of_unit(times: Int64Array, column: str, where: str) -> None:
    """Warn if event times that were plain numbers look like another unit.

    Args:
        times: A few of them, int64 microseconds; not empty.
        column: The column that they are from.
        where: The name of the source.
    """
    low, high = int(times.min()), int(times.max())
    if low > -_EARLY_US and high < _EARLY_US:
        unit = _seconds_or_millis(high)
    elif low > _YEAR_9999_US:
        unit = "ns"
    else:
        return
    at = int(times[int(np.argmax(times))])
    warn(
        UnitWarning,
        f"the event time{_named(column)} is {at}, which is "
        f"{format_instant(at)}: plain numbers are microseconds",
        where=where,
        hint='Write unit="us" if this is meant, or name the unit, as in unit="s" for seconds'
        if unit is None
        else f'Write unit="{unit}" if they are {_NAMES[unit]} since 1970, or unit="us" if this '
        "is meant",
    )


def _seconds_or_millis(latest: int) -> str | None:
    """Return the unit in which a number is a likely date; ``None`` between the two.

    Such a number is a year after 2286 in seconds and before 1973 in milliseconds, so it most likely
    counts microseconds from 0.
    """
    if latest < 10_000_000_000:
        return "s"
    return "ms" if latest >= 100_000_000_000 else None


def _all(records: int) -> str:
    if records == 1:
        return "the only record is a dead letter"
    count = "of the first 1,000" if records == JUDGED else f"{records:,}"
    return f"all {count} records are dead letters"


def _named(column: str) -> str:
    return "" if column.startswith(HIDDEN) else f" {column!r}"


def _fix(reason: str, example: str) -> str:
    """Return one concrete fix for the commonest reason, as far as its example tells more."""
    if reason == "bad_time" and "has no time zone" in example:
        return _ZONE
    if reason == "bad_time" and "(float) is not an instant" in example:
        return _UNIT
    if reason == "wrong_type" and "cannot be a" in example:
        return (
            'Make it a plain value first, as in .map(lambda row: row | {"key": tuple(row["key"])})'
        )
    return _FIXES.get(reason, "Fix such records, or filter them out before")
