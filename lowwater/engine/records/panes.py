"""The outputs of a run as Python values: panes, late records and dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias, final

from lowwater.errors import UnknownName
from lowwater.time import END_OF_TIME, Instant
from lowwater.windows import Window

Timing: TypeAlias = Literal["EARLY", "ON_TIME", "LATE"]
Kind: TypeAlias = Literal["insert", "retract"]
LateReason: TypeAlias = Literal["expired", "closed", "unwindowed", "too_late", "refused"]


@final
@dataclass(frozen=True, slots=True)
class Pane:
    """One firing of one window (S-P1).

    Args:
        key: The key: a plain value for one key column, a tuple for several.
        window: The window.
        values: The aggregates by name.
        timing: EARLY until the watermark passes the end of the window, then ON_TIME once, then
            LATE.
        index: 0, 1, … per window.
        on_time_index: -1 for EARLY panes, then 0, 1, ….
        is_first: Whether this is the first pane of the window.
        is_last: Whether the window can emit no more panes.
        kind: ``insert``, or ``retract`` for the retraction of an earlier pane.
        timestamp: Event time of the pane (S-H1).
        emitted_at: The clock at emission.
        watermark: The input watermark at emission.
    """

    key: Any
    window: Window
    values: Mapping[str, Any]
    timing: Timing
    index: int
    on_time_index: int
    is_first: bool
    is_last: bool
    kind: Kind
    timestamp: Instant
    emitted_at: Instant
    watermark: Instant

    @property
    def is_drained(self) -> bool:
        """Whether it was emitted because the input ended, which closes windows early.

        ``run(until="available")`` never drains windows.
        """
        return self.watermark == END_OF_TIME

    @property
    def value(self) -> Any:
        """The aggregate if there is only one; otherwise the mapping of all of them."""
        if len(self.values) == 1:
            return next(iter(self.values.values()))
        return self.values

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            hint = None
            if name in ("start", "end"):
                hint = f"Write pane.window.{name}"
            elif not name.startswith("_") and name not in Pane.__slots__ and name in self.values:
                hint = f"Aggregates are in .values: pane.values[{name!r}]"
            raise UnknownName(f"a pane has no {name!r}", hint=hint)


@final
@dataclass(frozen=True, slots=True)
class LateRecord:
    """An element dropped from one of its windows (S-O3, S-O4, S-W2), or by a stage without any.

    Args:
        value: The element: a plain value, or a mapping of its columns.
        time: Its event time.
        key: Its key.
        window: The window it was dropped from (its proto-window where windows merge); ``None`` if
            it was dropped from none.
        watermark: The input watermark when it was dropped.
        reason: ``expired``, ``closed``, ``unwindowed``, ``too_late`` (further below the watermark
            than a stage without windows allows) or ``refused`` (by a process: ``ctx.late``).
        detail: What the process said that refused it; ``None`` with the other reasons.
    """

    value: Any
    time: Instant
    key: Any
    window: Window | None
    watermark: Instant
    reason: LateReason
    detail: str | None = None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            hint = "In lowwater it is .value" if name in ("element", "record") else None
            raise UnknownName(f"a late record has no {name!r}", hint=hint)


@final
@dataclass(frozen=True, slots=True)
class ErrorRecord:
    """A dead letter: an element that failed validation (S-B1).

    Args:
        record: The element as it arrived.
        reason: The rule it broke, e.g. ``null_time``; metrics count dead letters by reason.
        detail: What was wrong, in words.
        where: The file and row, or the step, if known.
    """

    record: Any
    reason: str
    detail: str
    where: str | None = None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            of = {"element": "record", "error": "detail", "message": "detail", "value": "record"}
            meant = of.get(name)
            hint = None if meant is None else f"In lowwater it is .{meant}"
            raise UnknownName(f"a dead letter has no {name!r}", hint=hint)
