"""How far out of order records came, and how many a watermark with some delay makes late."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

import numpy as np

from lowwater.display import html
from lowwater.display.text import counted, plain
from lowwater.errors import InvalidArgument, describe, load_extra
from lowwater.explain.lateness import candidates, rounded_duration, saturating_sub
from lowwater.io.terminal import table
from lowwater.time import (
    START_OF_TIME,
    DurationLike,
    Int64Array,
    duration,
    format_duration,
)

if TYPE_CHECKING:
    import pandas as pd

_SHARES = (0.5, 0.9, 0.99, 0.999, 1.0)
_FEW = 0.001
_MOST_GROUPS = 20
_NOTHING = "no record has a valid event time, so there is nothing to profile"


@final
@dataclass(frozen=True, slots=True)
class DelayRow:
    """The effect of one watermark delay.

    Args:
        delay: How far the watermark is behind the latest event time, microseconds.
        late: Records that would arrive with an event time below the watermark.
        share: Their share of all records, from 0 to 1.
    """

    delay: int
    late: int
    share: float


@final
@dataclass(frozen=True, slots=True)
class DisorderGroup:
    """How far out of order the records of one group are among themselves.

    Args:
        key: The group: a plain value for one column, a tuple for several.
        records: The number of its records.
        p50, p99, most: Quantiles of how far its records are behind the latest earlier one of the
            group, microseconds, and the maximum.
    """

    key: Any
    records: int
    p50: int
    p99: int
    most: int


@final
@dataclass(frozen=True, slots=True, repr=False)
class DisorderProfile:
    """How far out of order the records of a data set are; prints as a table with a suggestion.

    The lag of a record is how far its event time is behind the latest one of the bundles before it;
    zero if it is not. With ``BoundedDisorder(delay)`` a record is late (S-T3) if its lag is longer
    than the delay.

    Args:
        rows: A row for each delay, ascending.
        records: The number of valid records.
        invalid: The number of invalid records by reason, which are not counted otherwise.
        bundle_size: The most records of a bundle.
        groups: The groups, those with the largest disorder first; empty without ``by=``.
        lags: The lag of each record, microseconds, ascending, int64, shape (records,).
    """

    rows: tuple[DelayRow, ...]
    records: int
    invalid: Mapping[str, int]
    bundle_size: int
    groups: tuple[DisorderGroup, ...] = ()
    lags: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64), compare=False)

    @classmethod
    def of(
        cls,
        lags: Int64Array,
        *,
        invalid: Mapping[str, int],
        bundle_size: int = 1,
        groups: Sequence[DisorderGroup] = (),
        delays: Sequence[DurationLike] | None = None,
    ) -> DisorderProfile:
        """Return the profile of some lags. O(n log n)."""
        lags = np.sort(lags)
        tried = candidates("delays", delays, where="profile")
        if not tried:
            shares = (_at(lags, share) for share in _SHARES)
            tried = sorted({0, *(rounded_duration(lag) for lag in shares)})
        rows = []
        for delay in tried:
            late = _longer(lags, delay)
            rows.append(DelayRow(delay, late, late / len(lags) if len(lags) else 0.0))
        ranked = sorted(groups, key=lambda group: -group.most)
        return cls(tuple(rows), len(lags), dict(invalid), bundle_size, tuple(ranked), lags)

    def late(self, delay: DurationLike) -> int:
        """Return how many records ``BoundedDisorder(delay)`` would make late. O(log n)."""
        return _longer(self.lags, _delay(delay))

    def lag(self, share: float) -> int:
        """Return a quantile of the lags, microseconds: so large is the lag of this share at most.

        Args:
            share: From 0 to 1: 0.5 for the median, 1 for the longest lag.
        """
        return _at(self.lags, _share(share))

    def delay(self, late: float = _FEW) -> int:
        """Return the shortest delay that makes at most this share of the records late.

        Args:
            late: The share, from 0 to 1.

        Returns:
            Microseconds, as ``BoundedDisorder`` takes them.
        """
        allowed = int(_share(late) * self.records + 1e-9)
        return int(self.lags[self.records - 1 - allowed]) if allowed < self.records else 0

    @property
    def suggestion(self) -> DelayRow:
        """The shortest delay that makes at most 0.1 % of the records late, rounded up."""
        delay = rounded_duration(self.delay())
        late = _longer(self.lags, delay)
        return DelayRow(delay, late, late / self.records if self.records else 0.0)

    def to_frame(self) -> pd.DataFrame:
        """Convert the rows to a pandas DataFrame; delays become timedeltas."""
        load_extra("pandas", extra="pandas", purpose="to_frame")
        import pandas as pd

        frame = pd.DataFrame(
            {name: [getattr(row, name) for row in self.rows] for name in ("delay", "late", "share")}
        )
        frame["delay"] = pd.to_timedelta(frame["delay"], unit="us")
        return frame

    def _lines(self) -> Iterator[str]:
        behind = _longer(self.lags, 0)
        yield (
            f"{counted(self.records, 'record')}, {behind:,} of them ({_percent(behind, self)}) "
            "behind an earlier one"
        )
        names = ("p50", "p90", "p99", "p99.9", "max")
        lags = (
            f"{name} {format_duration(self.lag(share))}"
            for name, share in zip(names, _SHARES, strict=True)
        )
        yield f"lag: {', '.join(lags)}"
        if self.bundle_size > 1:
            yield f"the watermark advances after each bundle of {self.bundle_size:,} records"
        if self.invalid:
            reasons = ", ".join(f"{reason} {many:,}" for reason, many in self.invalid.items())
            yield f"{counted(sum(self.invalid.values()), 'invalid record')} left out: {reasons}"

    def _suggested(self) -> str:
        said = self.suggestion
        return (
            f"suggestion: watermark=BoundedDisorder({format_duration(said.delay)!r}): "
            f"{said.late:,} late ({_percent(said.late, self)})"
        )

    def _table(self) -> list[list[Any]]:
        return [
            [format_duration(row.delay), row.late, _percent(row.late, self)] for row in self.rows
        ]

    def _group_table(self) -> list[list[Any]]:
        return [
            [
                plain(group.key), group.records, format_duration(group.p50),
                format_duration(group.p99), format_duration(group.most),
            ]
            for group in self.groups[:_MOST_GROUPS]
        ]  # fmt: skip

    def __repr__(self) -> str:
        if not self.records:
            return "\n".join((_NOTHING, *list(self._lines())[2:]))
        parts = [*self._lines(), table(_HEAD, self._table())]
        if self.groups:
            parts.append(table(_GROUP_HEAD, self._group_table()))
            if (more := len(self.groups) - _MOST_GROUPS) > 0:
                parts.append(f"… and {counted(more, 'group')} more")
        return "\n".join((*parts, self._suggested()))

    def _repr_html_(self) -> str:
        name = "Disorder of records"
        if not self.records:
            return html.display(name, html.note(_NOTHING))
        shown = [*map(html.note, self._lines()), html.table(_HEAD, self._table())]
        if self.groups:
            more = html.more(len(self.groups) - _MOST_GROUPS, "group")
            shown += [html.table(_GROUP_HEAD, self._group_table()), more]
        return html.display(name, *shown, html.note(self._suggested()))


_HEAD = ("delay", "late", "share")
_GROUP_HEAD = ("group", "records", "p50", "p99", "max")


def lags_of(times: Int64Array, begins: Int64Array | None = None) -> Int64Array:
    """Return how far each record is behind the latest one of the bundles before it. O(n).

    Args:
        times: Event times in order of arrival, int64 microseconds, shape (n,).
        begins: The row at which the bundle of each record begins, int64, shape (n,); ``None``:
            each record is a bundle of its own.

    Returns:
        int64, shape (n,), at least 0; 0 in the first bundle.
    """
    count = len(times)
    latest = np.full(count + 1, START_OF_TIME, dtype=np.int64)
    latest[1:] = np.maximum.accumulate(times)
    before = latest[np.arange(count) if begins is None else begins]
    known = before > START_OF_TIME
    return np.maximum(saturating_sub(np.where(known, before, times), times), 0)


def group_of(key: Any, times: Int64Array) -> DisorderGroup:
    """Return how far out of order the records of one group are. O(n log n)."""
    lags = np.sort(lags_of(times))
    return DisorderGroup(key, len(lags), _at(lags, 0.5), _at(lags, 0.99), _at(lags, 1.0))


def _at(lags: Int64Array, share: float) -> int:
    """Return the least lag that this share of sorted lags does not exceed; 0 of none."""
    if not len(lags):
        return 0
    return int(lags[max(0, int(np.ceil(share * len(lags) - 1e-9)) - 1)])


def _longer(lags: Int64Array, delay: int) -> int:
    return int(len(lags) - np.searchsorted(lags, delay, side="right"))


def _delay(given: DurationLike) -> int:
    delay = duration(given, name="delay")
    if delay < 0:
        raise InvalidArgument(
            f"{describe('delay', given)} must not be negative", where="profile", hint='Use "0s"'
        )
    return delay


def _share(given: float) -> float:
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 <= given <= 1:
        raise InvalidArgument(
            f"{describe('share', given)} is not a number from 0 to 1",
            where="profile",
            hint="Use, say, 0.001 for one in a thousand",
        )
    return float(given)


def _percent(many: int, profile: DisorderProfile) -> str:
    share = 100 * many / max(1, profile.records)
    return f"{share:.2f} %" if many == 0 or share >= 0.01 else "< 0.01 %"
