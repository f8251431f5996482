"""The trigger algebra: frozen values that say when a window fires (the table of S-R).

A trigger has no behaviour of its own: :mod:`lowwater.triggers._machine` compiles a tree of these
values to columns. :func:`outlook` judges a tree without running it: when it may fire and finish,
and how often, which says whether it could lose data (S-R3).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol, TypeAlias, assert_never, final

from lowwater.errors import InvalidArgument, UnknownName, constructor, describe
from lowwater.time import DurationLike, as_micros, duration, format_duration, meant
from lowwater.windows import Window


@final
class _InBeam:
    """Stands where Beam's trigger has a method, to say what to write instead."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise UnknownName(
            f"{owner.__name__} has no {self._name!r}",
            hint="It is the trigger itself: lw.AfterWatermark(early=..., late=lw.AfterCount(1))",
        )


@constructor(early_firings="early", late_firings="late", before="early", after="late")
@final
@dataclass(frozen=True, slots=True, repr=False)
class AfterWatermark:
    """Fires when the watermark passes the end of the window; before that ``early``, then ``late``.

    ``early`` and ``late`` repeat by themselves (S-R1). Without ``late`` the window closes at its
    on-time pane.

    >>> AfterWatermark(early=AfterProcessingTime("1m"), late=AfterCount(1))
    AfterWatermark(early=AfterProcessingTime('1m'), late=AfterCount(1))
    """

    early: Trigger | None = None
    late: Trigger | None = None

    if not TYPE_CHECKING:
        past_end_of_window = _InBeam()
        pastEndOfWindow = _InBeam()  # noqa: N815  # as Beam spells it in Java

    def __post_init__(self) -> None:
        for name, part in (("early", self.early), ("late", self.late)):
            if part is not None:
                _require_trigger(name, part)

    def __repr__(self) -> str:
        parts = [f"{n}={t!r}" for n, t in (("early", self.early), ("late", self.late)) if t]
        return f"AfterWatermark({', '.join(parts)})"


@constructor(n="count", elements="count", size="count")
@final
@dataclass(frozen=True, slots=True, repr=False)
class AfterCount:
    """Fires once ``count`` or more elements have arrived since the pane began.

    >>> AfterCount(100)
    AfterCount(100)
    """

    count: int

    def __post_init__(self) -> None:
        if isinstance(self.count, bool) or not isinstance(self.count, int) or self.count < 1:
            raise InvalidArgument(
                f"{describe('count', self.count)} must be an int of at least 1",
                hint="Use, say, AfterCount(100)",
            )

    def __repr__(self) -> str:
        return f"AfterCount({self.count})"


@constructor(after="delay", every="delay", period="delay", interval="delay")
@final
@dataclass(frozen=True, slots=True, repr=False)
class AfterProcessingTime:
    """Fires when the clock reaches the first element of the pane plus ``delay``.

    Args:
        delay: How long after the first element; zero or more.
        align: Round the moment up to a multiple of this, counted from 1970-01-01T00:00:00Z.

    >>> AfterProcessingTime("10m", align="1h")
    AfterProcessingTime('10m', align='1h')
    """

    delay: DurationLike
    align: DurationLike | None = None

    def __post_init__(self) -> None:
        delay = duration(self.delay, name="delay")
        if delay < 0:
            raise InvalidArgument(
                f"{describe('delay', self.delay)} must not be negative", hint='Use, say, "1m"'
            )
        object.__setattr__(self, "delay", meant(delay))
        if self.align is not None:
            align = duration(self.align, name="align")
            if align <= 0:
                raise InvalidArgument(
                    f"{describe('align', self.align)} must be above zero", hint='Use, say, "1m"'
                )
            object.__setattr__(self, "align", meant(align))

    @property
    def delay_us(self) -> int:
        """The delay in microseconds."""
        return as_micros(self.delay)

    @property
    def align_us(self) -> int | None:
        """What the moment is rounded up to a multiple of, in microseconds."""
        return None if self.align is None else as_micros(self.align)

    def __repr__(self) -> str:
        align = "" if self.align_us is None else f", align={format_duration(self.align_us)!r}"
        return f"AfterProcessingTime({format_duration(self.delay_us)!r}{align})"


@final
@dataclass(frozen=True, slots=True, repr=False, init=False)
class AfterAny:
    """Fires, and finishes, when any part is ready.

    >>> AfterAny(AfterCount(10), AfterProcessingTime("1m"))
    AfterAny(AfterCount(10), AfterProcessingTime('1m'))
    """

    parts: tuple[Trigger, ...]

    def __init__(self, *parts: Trigger) -> None:
        object.__setattr__(self, "parts", _require_parts("AfterAny", parts))

    def __repr__(self) -> str:
        return f"AfterAny({', '.join(map(repr, self.parts))})"


@final
@dataclass(frozen=True, slots=True, repr=False, init=False)
class AfterAll:
    """Fires, and finishes, when all parts are ready.

    >>> AfterAll(AfterCount(10), AfterWatermark())
    AfterAll(AfterCount(10), AfterWatermark())
    """

    parts: tuple[Trigger, ...]

    def __init__(self, *parts: Trigger) -> None:
        object.__setattr__(self, "parts", _require_parts("AfterAll", parts))

    def __repr__(self) -> str:
        return f"AfterAll({', '.join(map(repr, self.parts))})"


@final
@dataclass(frozen=True, slots=True, repr=False, init=False)
class AfterEach:
    """Fires as its first unfinished part does; finishes when the last part finishes.

    >>> AfterEach(AfterCount(10), Repeatedly(AfterCount(100)))
    AfterEach(AfterCount(10), Repeatedly(AfterCount(100)))
    """

    parts: tuple[Trigger, ...]

    def __init__(self, *parts: Trigger) -> None:
        object.__setattr__(self, "parts", _require_parts("AfterEach", parts))

    def __repr__(self) -> str:
        return f"AfterEach({', '.join(map(repr, self.parts))})"


@final
@dataclass(frozen=True, slots=True, repr=False)
class Repeatedly:
    """Fires whenever ``trigger`` does, which is then reset; never finishes.

    >>> Repeatedly(AfterCount(10))
    Repeatedly(AfterCount(10))
    """

    trigger: Trigger

    def __post_init__(self) -> None:
        _require_trigger("trigger", self.trigger)

    def __repr__(self) -> str:
        return f"Repeatedly({self.trigger!r})"


@final
@dataclass(frozen=True, slots=True, repr=False)
class OrFinally:
    """Fires as ``main`` does, until ``until`` fires or ``main`` finishes.

    ``until`` keeps its own state across the firings of ``main`` (S-R1).

    >>> OrFinally(Repeatedly(AfterCount(10)), AfterWatermark())
    OrFinally(Repeatedly(AfterCount(10)), AfterWatermark())
    """

    main: Trigger
    until: Trigger

    def __post_init__(self) -> None:
        _require_trigger("main", self.main)
        _require_trigger("until", self.until)

    def __repr__(self) -> str:
        return f"OrFinally({self.main!r}, {self.until!r})"


@final
@dataclass(frozen=True, slots=True)
class Never:
    """Never fires. Admitted data is still emitted once, when the window expires (S-O6)."""


@final
@dataclass(frozen=True, slots=True)
class Always:
    """Fires after every bundle that touched the window; never finishes."""


@final
@dataclass(frozen=True, slots=True)
class Default:
    """Short for ``AfterWatermark(late=Always())``: when complete, then after every late bundle."""

    def expand(self) -> AfterWatermark:
        """Return the trigger it is short for."""
        return AfterWatermark(late=Always())


class TriggerContext(Protocol):
    """What a custom trigger sees of one window, and how it keeps state and asks to be woken.

    ``state`` is the trigger's own value for this window: any msgpack-able value, ``None`` to begin
    with; assign it to keep it. Instants are int microseconds.
    """

    state: Any
    window: Window
    watermark: int
    clock: int

    def wake_at_clock(self, at: int) -> None:
        """Request a call of ``ready`` when the clock reaches ``at``; the earliest request wins."""
        ...

    def wake_at_watermark(self, at: int) -> None:
        """Request a call of ``ready`` when the watermark reaches ``at``."""
        ...


class TriggerLogic(Protocol):
    """The user's own trigger logic: Python per element and per judged window.

    An implementation should be hashable and compare by value, as triggers do.
    """

    def on_element(self, context: TriggerContext, at: int, /) -> None:
        """Process one element with event time ``at`` (int microseconds)."""
        ...

    def ready(self, context: TriggerContext, /) -> bool:
        """Return whether to fire now; changes nothing."""
        ...

    def on_fire(self, context: TriggerContext, /) -> bool:
        """Reset after a firing; return whether the trigger has finished."""
        ...

    def on_merge(self, context: TriggerContext, states: list[Any], /) -> None:
        """Set ``context.state`` from the states of the windows that merged into this one."""
        ...


Finishing: TypeAlias = Literal["never", "at_completion", "anytime"]


@final
@dataclass(frozen=True, slots=True)
class CustomTrigger:
    """A trigger with your own logic.

    Args:
        logic: The four functions of :class:`TriggerLogic`; ``on_merge`` may be missing where
            windows do not merge.
        finishes: When ``on_fire`` may return true: ``"never"`` (returning true is then an error),
            ``"at_completion"`` (once the watermark has passed the end of the window) or
            ``"anytime"``.
    """

    logic: TriggerLogic
    finishes: Finishing = "never"

    def __post_init__(self) -> None:
        if isinstance(self.logic, type):
            raise InvalidArgument(
                f"logic={self.logic.__name__} is a class, not an object of it",
                where="CustomTrigger",
                hint=f"Make one: CustomTrigger({self.logic.__name__}())",
            )
        for name in ("on_element", "ready", "on_fire"):
            if not callable(getattr(self.logic, name, None)):
                raise InvalidArgument(
                    f"{describe('logic', self.logic)} has no method {name}",
                    where="CustomTrigger",
                    hint="It needs on_element(context, at), ready(context) and on_fire(context): "
                    "see lowwater.triggers.TriggerLogic",
                )
        if self.finishes not in ("never", "at_completion", "anytime"):
            raise InvalidArgument(
                describe("finishes", self.finishes) + " is not known",
                hint='Use "never", "at_completion" or "anytime"',
            )


Trigger: TypeAlias = (
    AfterWatermark
    | AfterCount
    | AfterProcessingTime
    | AfterAny
    | AfterAll
    | AfterEach
    | Repeatedly
    | OrFinally
    | Never
    | Always
    | Default
    | CustomTrigger
)


class Moment(IntEnum):
    """The earliest moment in the life of a window at which something may happen."""

    NEVER = 0
    AT_COMPLETION = 1
    ANYTIME = 2


@final
@dataclass(frozen=True, slots=True)
class Outlook:
    """When a trigger may first fire and finish, and how many times it may fire (2: or more)."""

    fires: Moment
    finishes: Moment
    times: int


_FINISHING = {
    "never": Moment.NEVER,
    "at_completion": Moment.AT_COMPLETION,
    "anytime": Moment.ANYTIME,
}


def outlook(trigger: Trigger, *, late_possible: bool) -> Outlook:
    """Return what a trigger may do.

    Args:
        trigger: The trigger.
        late_possible: Whether a window takes elements after its completion (the allowed lateness
            is above zero), without which ``late`` never fires.
    """
    match trigger:
        case AfterCount() | AfterProcessingTime():
            return Outlook(Moment.ANYTIME, Moment.ANYTIME, 1)
        case Never():
            return Outlook(Moment.NEVER, Moment.NEVER, 0)
        case Always():
            return Outlook(Moment.ANYTIME, Moment.NEVER, 2)
        case Default():
            return outlook(trigger.expand(), late_possible=late_possible)
        case CustomTrigger():
            return Outlook(Moment.ANYTIME, _FINISHING[trigger.finishes], 2)
        case AfterWatermark():
            early = _part(trigger.early, late_possible)
            late = _part(trigger.late if late_possible else None, late_possible)
            return Outlook(
                max(early.fires, Moment.AT_COMPLETION),
                Moment.AT_COMPLETION if trigger.late is None else Moment.NEVER,
                1 if early.times == late.times == 0 else 2,
            )
        case Repeatedly():
            part = _part(trigger.trigger, late_possible)
            again = 2 if part.finishes is not Moment.AT_COMPLETION or late_possible else 1
            return Outlook(part.fires, Moment.NEVER, min(2, part.times * again))
        case OrFinally():
            main, until = _part(trigger.main, late_possible), _part(trigger.until, late_possible)
            return Outlook(
                max(main.fires, until.fires),
                max(main.finishes, until.fires),
                min(2, main.times + min(until.times, 1)),
            )
        case AfterAny():
            parts = [_part(part, late_possible) for part in trigger.parts]
            fires = max(part.fires for part in parts)
            return Outlook(fires, fires, 0 if fires is Moment.NEVER else 1)
        case AfterAll():
            parts = [_part(part, late_possible) for part in trigger.parts]
            fires = min(part.fires for part in parts)
            return Outlook(fires, fires, 0 if fires is Moment.NEVER else 1)
        case AfterEach():
            parts = [_part(part, late_possible) for part in trigger.parts]
            times = 0
            for part in parts:
                times += part.times
                if part.finishes is Moment.NEVER:
                    break
            return Outlook(parts[0].fires, min(part.finishes for part in parts), min(2, times))
        case _:
            assert_never(trigger)


def _part(trigger: Trigger | None, late_possible: bool) -> Outlook:
    return outlook(trigger or Never(), late_possible=late_possible)


def looks_at_watermark(trigger: Trigger) -> bool:
    """Whether a trigger can become ready when the watermark passes the end of a window."""
    match trigger:
        case AfterWatermark() | Default() | CustomTrigger():
            return True
        case Repeatedly():
            return looks_at_watermark(trigger.trigger)
        case OrFinally():
            return looks_at_watermark(trigger.main) or looks_at_watermark(trigger.until)
        case AfterAny():
            return any(looks_at_watermark(part) for part in trigger.parts)
        case AfterAll() | AfterEach():
            return any(looks_at_watermark(part) for part in trigger.parts)
        case AfterCount() | AfterProcessingTime() | Never() | Always():
            return False
        case _:
            assert_never(trigger)


def _require_trigger(name: str, value: object) -> None:
    if not isinstance(value, Trigger):
        hint = "Use one of lowwater's triggers, or wrap your own logic in CustomTrigger"
        if isinstance(value, type) and issubclass(value, Trigger):
            hint = f"Make one: {value.__name__}(...)"
        elif callable(getattr(value, "on_element", None)):
            hint = "Wrap your logic: CustomTrigger(logic)"
        elif isinstance(value, int) and not isinstance(value, bool) and value > 0:
            hint = f"After so many elements: AfterCount({value})"
        elif _is_duration(value):
            hint = f"So long after the first element: AfterProcessingTime({value!r})"
        raise InvalidArgument(f"{describe(name, value)} is not a trigger", hint=hint)


def _is_duration(value: Any) -> bool:
    try:
        return isinstance(value, (str, timedelta)) and duration(value) >= 0
    except InvalidArgument:
        return False


def _require_parts(name: str, parts: tuple[Trigger, ...]) -> tuple[Trigger, ...]:
    if len(parts) < 2:
        raise InvalidArgument(
            f"{name} takes at least two triggers, got {len(parts)}",
            hint=f"Write {name}(a, b)",
        )
    for index, part in enumerate(parts):
        _require_trigger(f"parts[{index}]", part)
    return parts
