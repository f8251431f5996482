"""One value for the whole of *where, when and how*: windows, trigger, accumulation and the rest."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, final, get_args

from lowwater.display.text import shown
from lowwater.errors import InvalidArgument, UnsafeTrigger, describe, nearest
from lowwater.time import DurationLike, as_micros, duration, format_duration, meant
from lowwater.triggers import CustomTrigger, Default, Moment, Trigger, outlook
from lowwater.triggers._machine import compile_trigger, walk
from lowwater.triggers._values import _require_trigger
from lowwater.windows import MergeScope, MergingWindowFunction, WindowFunction

if TYPE_CHECKING:
    from lowwater.engine.window.fill import Fill

Accumulation: TypeAlias = Literal["discarding", "accumulating", "retracting"]
Closing: TypeAlias = Literal["if_new", "always"]
OnTime: TypeAlias = Literal["always", "if_new"]
TimestampRule: TypeAlias = Literal["end", "earliest", "latest"]


@final
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Windowing:
    """Windows, trigger, accumulation and lateness: what defines a window operator, but aggregates.

    Args:
        windows: Where in event time elements are grouped.
        trigger: When a window's results are emitted.
        accumulation: How panes of one window relate: ``"discarding"`` (S-A1), ``"accumulating"``
            (S-A2) or ``"retracting"`` (S-A3). Required if the trigger may fire more than
            once; otherwise ``None`` stands for ``"discarding"``.
        allowed_lateness: How long after its end a window still accepts late elements.
        closing: Whether an expiring window emits a final pane with nothing new (S-O6).
        on_time: Whether the on-time pane is emitted even with nothing new (S-P3).
        timestamps: The event time of a pane (S-H1).
        allow_data_loss: Why it is acceptable that the trigger may finish while elements are still
            admitted; without a reason that is an error (S-R3).
        fill: How long windows without elements emit panes for a key that had some (S-F1): so many
            windows behind the last with elements, ``"2 windows"``, or ``until_idle("1h")``.

    Raises:
        InvalidArgument: A value is of the wrong kind, or ``accumulation`` is required.
        UnsafeTrigger: The trigger could lose admitted data (S-R3).
    """

    windows: WindowFunction
    trigger: Trigger = Default()
    accumulation: Accumulation | None = None
    allowed_lateness: DurationLike = 0
    closing: Closing = "if_new"
    on_time: OnTime = "always"
    timestamps: TimestampRule = "end"
    allow_data_loss: str | None = None
    fill: Fill | None = None

    def __post_init__(self) -> None:
        # A class has the methods of its instances, so isinstance alone lets FixedWindows through.
        if isinstance(self.windows, type) or not isinstance(self.windows, WindowFunction):
            raise InvalidArgument(
                f"{describe('windows', self.windows)} is not a window function",
                hint=_windows_hint(self.windows),
            )
        _require_choice("merge_scope", self.windows.merge_scope, get_args(MergeScope))
        if self.merging is not None and not isinstance(self.windows, MergingWindowFunction):
            raise InvalidArgument(
                f"{describe('windows', self.windows)} has no method merge, but a merge_scope of "
                f"{self.windows.merge_scope!r}",
                hint="See lowwater.windows.MergingWindowFunction",
            )
        _require_trigger("trigger", self.trigger)
        lateness = duration(self.allowed_lateness, name="allowed_lateness")
        if lateness < 0:
            raise InvalidArgument(
                f"{describe('allowed_lateness', self.allowed_lateness)} must not be negative",
                hint='Use "0s" or more',
            )
        object.__setattr__(self, "allowed_lateness", meant(lateness))
        _require_choice("closing", self.closing, get_args(Closing))
        _require_choice("on_time", self.on_time, get_args(OnTime))
        _require_choice("timestamps", self.timestamps, get_args(TimestampRule))
        if self.allow_data_loss is not None and not (
            isinstance(self.allow_data_loss, str) and self.allow_data_loss.strip()
        ):
            raise InvalidArgument(
                f"{describe('allow_data_loss', self.allow_data_loss)} must be a reason in words",
                hint='Write, say, allow_data_loss="only the first 100 matter"',
            )
        if self.fill is not None:
            from lowwater.engine.window.fill import checked_fill

            fill = checked_fill(self.fill, self.windows, self.trigger, self.on_time)
            object.__setattr__(self, "fill", fill)
        self._check_safe()
        self._check_mergeable()
        if self.accumulation is None:
            self._check_fires_once()
            object.__setattr__(self, "accumulation", "discarding")
        _require_choice("accumulation", self.accumulation, get_args(Accumulation))

    def __repr__(self) -> str:
        """Return the call that makes it, without what is left at its default.

        >>> from lowwater.windows import FixedWindows
        >>> Windowing(windows=FixedWindows("1m"), accumulation="discarding", closing="if_new")
        Windowing(windows=FixedWindows('1m'))
        """
        parts = [f"windows={self.windows!r}"]
        for each in fields(self)[1:]:
            value = getattr(self, each.name)
            if each.name == "allowed_lateness":
                value = format_duration(self.lateness_us) if self.lateness_us else 0
            elif (
                each.name == "accumulation"
                and value == "discarding"
                and self._times_it_fires() <= 1
            ):
                value = None
            if value != each.default:
                parts.append(f"{each.name}={value!r}")
        return f"Windowing({', '.join(parts)})"

    @property
    def lateness_us(self) -> int:
        """The allowed lateness in microseconds."""
        return as_micros(self.allowed_lateness)

    @property
    def mode(self) -> Accumulation:
        """The accumulation mode, never ``None``."""
        return cast(Accumulation, self.accumulation)

    @property
    def shows_differences(self) -> bool:
        """Whether a pane may hold what changed since the last one, not the whole window."""
        return self.mode == "discarding" and self._times_it_fires() > 1

    @property
    def merging(self) -> MergingWindowFunction | None:
        """The window function, if its windows merge."""
        if self.windows.merge_scope == "none":
            return None
        return cast(MergingWindowFunction, self.windows)

    def with_(self, **changes: Any) -> Windowing:
        """Return the same windowing with some fields changed; it is checked again."""
        return replace(self, **changes)

    def _check_safe(self) -> None:
        if self.allow_data_loss is not None:
            return
        late_possible = self.lateness_us > 0
        finishes = outlook(self.trigger, late_possible=late_possible).finishes
        if finishes is Moment.ANYTIME:
            raise UnsafeTrigger(
                f"{shown(self.trigger)} may finish while its window still accepts elements; those "
                "that arrive after it would be dropped as 'closed'",
                where="window(trigger=)",
                hint=f"Wrap it: Repeatedly({shown(self.trigger)}), or accept the loss with "
                'allow_data_loss="why"',
            )
        if finishes is Moment.AT_COMPLETION and late_possible:
            raise UnsafeTrigger(
                f"{shown(self.trigger)} finishes when its window is complete, but elements are "
                f"allowed {format_duration(self.lateness_us)} of lateness; those would be "
                "dropped as 'closed'",
                where="window(trigger=)",
                hint="Say what happens to late elements, as in AfterWatermark(late=AfterCount(1)), "
                'set allowed_lateness="0s", or accept the loss with allow_data_loss="why"',
            )

    def _check_mergeable(self) -> None:
        if self.windows.merge_scope == "none":
            return
        for part in _custom_parts(self.trigger):
            if not callable(getattr(part.logic, "on_merge", None)):
                raise InvalidArgument(
                    f"{describe('logic', part.logic)} has no on_merge, but the windows of "
                    f"{shown(self.windows)} merge",
                    where="window(trigger=)",
                    hint="Give it on_merge, or use windows that do not merge",
                )

    def _check_fires_once(self) -> None:
        if self._times_it_fires() > 1:
            raise InvalidArgument(
                f"{shown(self.trigger)} may fire more than once, so accumulation= is required",
                where="window(accumulation=)",
                hint='Use "discarding" (each pane holds what is new), "accumulating" (all so far) '
                'or "retracting" (all so far, and the previous pane is retracted)',
            )

    def _times_it_fires(self) -> int:
        """Return how many panes a window may have, counted up to 2; the one at its expiry too."""
        late_possible = self.lateness_us > 0
        found = outlook(self.trigger, late_possible=late_possible)
        goes_on = found.finishes is Moment.NEVER
        if found.times == 1 and goes_on and (late_possible or found.fires is Moment.ANYTIME):
            return 2  # what comes after the firing is emitted when the window expires (S-O6)
        return found.times


def _custom_parts(trigger: Trigger) -> list[CustomTrigger]:
    nodes = walk(compile_trigger(trigger, ""))
    return [node.trigger for node in nodes if isinstance(node.trigger, CustomTrigger)]


def _require_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidArgument(
            f"{describe(name, value)} is not known",
            hint=nearest(str(value), choices),
        )


def _windows_hint(given: object) -> str:
    if isinstance(given, type):
        return f"Make one: {given.__name__}(...)"
    length = given if isinstance(given, str) else "1m"
    return f"Use, say, FixedWindows({length!r})"
