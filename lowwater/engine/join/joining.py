"""What a join of two streams by time is: which pairs, which rows without a partner, and when."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias, final

from lowwater.engine.keyed.sides import LEFT, RIGHT, Side
from lowwater.engine.records.admit_bounds import PartnerBounds
from lowwater.errors import InvalidArgument, describe
from lowwater.time import (
    END_OF_TIME,
    START_OF_TIME,
    DurationLike,
    as_micros,
    duration,
    format_duration,
    meant,
    saturating_add,
)

How: TypeAlias = Literal["inner", "left", "right", "outer", "semi", "anti"]
Unmatched: TypeAlias = Literal["final", "on_time", "early"]
AsOfHow: TypeAlias = Literal["inner", "left"]
LateVersions: TypeAlias = Literal["ignore", "correct"]
Direction: TypeAlias = Literal["backward", "forward", "nearest"]

HOWS: tuple[How, ...] = ("inner", "left", "right", "outer", "semi", "anti")
UNMATCHED: tuple[Unmatched, ...] = ("final", "on_time", "early")
AS_OF_HOWS: tuple[AsOfHow, ...] = ("inner", "left")
LATE_VERSIONS: tuple[LateVersions, ...] = ("ignore", "correct")
DIRECTIONS: tuple[Direction, ...] = ("backward", "forward", "nearest")


@final
@dataclass(frozen=True, slots=True, repr=False)
class Between:
    """An interval of time differences: ``low <= right.time - left.time <= high`` (J-1).

    With ``longest``, ends may be instants in columns of the left record: ``low <= right.time <=
    high`` (J-14).

    Args:
        low, high: Durations such as ``"-5m"`` and ``"1h"``; both ends belong to the interval. With
            ``longest``, text that is no duration is the name of a column.
        longest: How far from the left record an instant in a column may be; ``None`` if both ends
            are durations.

    Raises:
        InvalidArgument: One is no duration, or ``low`` is above ``high``.
    """

    low: DurationLike
    high: DurationLike
    longest: DurationLike | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.longest is None:
            for name in ("low", "high"):
                object.__setattr__(self, name, meant(_difference(getattr(self, name), name)))
        else:
            longest = duration(self.longest, name="longest")
            if longest <= 0:
                raise InvalidArgument(
                    f"{describe('longest', self.longest)} must be longer than zero",
                    where="between",
                    hint='Use, say, "30d"',
                )
            object.__setattr__(self, "longest", meant(longest))
            for name in ("low", "high"):
                if not _is_column(end := getattr(self, name)):
                    object.__setattr__(self, name, meant(duration(end, name=name)))
            if not self.columns:
                raise InvalidArgument(
                    f"longest={format_duration(longest)!r} is for columns of instants, and both "
                    "ends are durations",
                    where="between",
                    hint="Leave it out, or name a column of the left side",
                )
        if self.low_us > self.high_us:
            raise InvalidArgument(
                f"{self!r} is empty: the first is above the second",
                where="between",
                hint="Give the lower difference, right.time - left.time, first",
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the left side that are ends."""
        if self.longest is None:
            return ()
        return tuple(end for end in (self.low, self.high) if _is_column(end))  # type: ignore[misc]  # columns are text

    @property
    def bounds(self) -> PartnerBounds | None:
        """What bounds the partners of a left record, if columns do."""
        if self.longest is None or not self.columns:
            return None
        low, high = (
            str(end) if _is_column(end) else as_micros(end) for end in (self.low, self.high)
        )
        return PartnerBounds(low, high, as_micros(self.longest))

    @property
    def low_us(self) -> int:
        """The lowest difference in microseconds."""
        if self.longest is not None and _is_column(self.low):
            return -as_micros(self.longest)
        return as_micros(self.low)

    @property
    def high_us(self) -> int:
        """The highest difference in microseconds."""
        if self.longest is not None and _is_column(self.high):
            return as_micros(self.longest)
        return as_micros(self.high)

    def __repr__(self) -> str:
        low, high = (
            end if self.longest is not None and _is_column(end) else format_duration(as_micros(end))
            for end in (self.low, self.high)
        )
        if self.longest is None:
            return f"between({low!r}, {high!r})"
        return f"between({low!r}, {high!r}, longest={format_duration(as_micros(self.longest))!r})"


def between(
    low: DurationLike, high: DurationLike, *, longest: DurationLike | None = None
) -> Between:
    """Return the interval ``low <= right.time - left.time <= high`` for ``join(within=...)``.

    >>> between("-5m", "1h")
    between('-5m', '1h')

    With ``longest``, an end may be the name of a column of the left side, with an instant: then it
    is ``low <= right.time <= high`` (J-14). Text that is a duration stays one.

    >>> between("opened", "expires", longest="30d")
    between('opened', 'expires', longest='30d')

    Args:
        low: How long after the left record the right one is at least; below zero for before it.
        high: How long after it at most; both ends belong to the interval.
        longest: How far from the event time of the left record an instant in a column may be:
            records are kept for so long.

    Raises:
        InvalidArgument: One is no duration, ``low`` is above ``high``, or no end is a column.
    """
    return Between(low, high, longest=longest)


def _is_column(end: DurationLike) -> bool:
    """Whether an end is the name of a column: text that is no duration."""
    if not isinstance(end, str) or not end:
        return False
    try:
        duration(end, name="end")
    except InvalidArgument:
        return True
    return False


def _difference(end: DurationLike, name: str) -> int:
    try:
        return duration(end, name=name)
    except InvalidArgument as error:
        hint = error.hint
        if isinstance(end, str):
            hint = f'{hint}; if it is a column of the left side, declare longest=, as in "30d"'
        raise InvalidArgument(error.what, where=error.where or "between", hint=hint) from None


def interval_of(within: object) -> Between:
    """Return the interval that a join was given: ``"1h"`` is from 0 to an hour (J-1).

    Raises:
        InvalidArgument: It is neither a duration, not below zero, nor an interval.
    """
    if isinstance(within, Between):
        return within
    try:
        high = duration(within, name="within")  # type: ignore[arg-type]  # checked by it
    except InvalidArgument as error:
        raise InvalidArgument(
            error.what,
            where="join(within=)",
            hint='Write, say, within="1h", or within=lw.between("-5m", "1h"); or a window '
            'function, such as within=lw.FixedWindows("10m")',
        ) from None
    if high < 0:
        raise InvalidArgument(
            f"{describe('within', within)} is below zero",
            where="join(within=)",
            hint=f'Write within=lw.between({format_duration(high)!r}, "0s")',
        )
    return Between(0, meant(high))


@final
@dataclass(frozen=True, slots=True)
class Joining:
    """The rules of a join by time (J-1 to J-6), or of two tables (T-3).

    Args:
        within: Which differences of time make a pair; ``None`` for tables, whose rows meet whatever
            their times, and are kept until they are retracted.
        how: Which rows come out.
        unmatched: When rows without a partner come out.
        lateness_us: How far below the watermark a record may be, in microseconds.
    """

    within: Between | None
    how: How = "inner"
    unmatched: Unmatched = "final"
    lateness_us: int = 0

    @property
    def low_us(self) -> int:
        """The lowest difference, right minus left."""
        return START_OF_TIME if self.within is None else self.within.low_us

    @property
    def high_us(self) -> int:
        """The highest difference, right minus left."""
        return END_OF_TIME if self.within is None else self.within.high_us

    def horizon_us(self, side: Side) -> int:
        """How long after its time a row may still meet a timely partner, or be retracted (J-3)."""
        return max(self.high_us, 0) if side == LEFT else max(-self.low_us, 0)

    def is_alone(self, side: Side) -> bool:
        """Whether rows of a side come out if they have no partner."""
        if side == LEFT:
            return self.how in ("left", "outer", "anti")
        return self.how in ("right", "outer")

    @property
    def holds(self) -> bool:
        """Whether records that may come out by themselves hold the output watermark (J-4, T-2)."""
        return self.within is not None

    @property
    def emits_late_us(self) -> int:
        """How far below its output watermark it may emit, in microseconds."""
        return self.lateness_us if self.holds else 0

    def waits(self, side: Side) -> bool:
        """Whether rows of a side may come out later than with their first partner (J-4, J-6)."""
        return self.is_alone(side) or (self.how == "semi" and side == LEFT)

    @property
    def emits_pairs(self) -> bool:
        """Whether pairs come out, rather than rows of the left side."""
        return self.how not in ("semi", "anti")

    @property
    def retracts(self) -> bool:
        """Whether it retracts even if its inputs never do (J-5)."""
        return self.unmatched != "final" and (self.is_alone(LEFT) or self.is_alone(RIGHT))


@final
@dataclass(frozen=True, slots=True)
class AsOf:
    """The rules of a join with a history (J-8 to J-12).

    Args:
        how: Whether facts without a version come out.
        order: The column that tells which of several versions of one time is the newest; by default
            the last to arrive.
        tolerance_us: How far from the fact its version may be, in microseconds, included; ``None``:
            any distance, for ``backward`` alone.
        late_versions: Whether a late version corrects what was emitted.
        keep_us: How far back versions and facts are remembered, in microseconds.
        direction: Whether a fact meets the newest version before it, the oldest after it, or the
            nearest.
        allow_equal: Whether it may meet a version of its own time.
    """

    how: AsOfHow = "left"
    order: str | None = None
    tolerance_us: int | None = None
    late_versions: LateVersions = "ignore"
    keep_us: int = 0
    direction: Direction = "backward"
    allow_equal: bool = True

    emits_pairs: ClassVar[bool] = True

    @property
    def text(self) -> str:
        """What it does, in words: a part of lines about it."""
        if self.direction == "backward":
            return "as of event time"
        return f"with the {'next' if self.direction == 'forward' else 'nearest'} version"

    @property
    def looks_ahead(self) -> bool:
        """Whether a fact may meet a version that is later than it."""
        return self.direction != "backward"

    @property
    def ahead_us(self) -> int:
        """How much later than the fact its version may be, in microseconds."""
        return (self.tolerance_us or 0) if self.looks_ahead else 0

    @property
    def lateness_us(self) -> int:
        """How far below the watermark a record may be, in microseconds."""
        return self.keep_us

    @property
    def emits_late_us(self) -> int:
        """How far below its output watermark it may emit, in microseconds (J-9, J-12)."""
        # A version that is late by `keep` corrects facts that are older by up to the tolerance.
        return saturating_add(self.keep_us, self.ahead_us if self.retracts else 0)

    @property
    def retracts(self) -> bool:
        """Whether it retracts what it emitted."""
        return self.late_versions == "correct"


TABLES_LATENESS = END_OF_TIME
"""The lateness of a join of tables: changes are never late."""


def of_tables(how: How) -> Joining:
    """Return the rules of a join of two tables (T-3): what is alone comes out at once."""
    return Joining(None, how, "early", TABLES_LATENESS)
