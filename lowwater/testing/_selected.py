"""What a test is to repeat: the panes, elements and late records of a key in some windows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

from lowwater.display.text import shown
from lowwater.engine.records.panes import LateRecord, Pane
from lowwater.errors import InvalidArgument, describe
from lowwater.explain.literals import Literals
from lowwater.explain.text import Times
from lowwater.pipeline.forms import Element
from lowwater.testing._moments import moment
from lowwater.testing.assertions import is_same
from lowwater.time import Instant, InstantLike
from lowwater.windows import Window

WindowLike: TypeAlias = "Window | InstantLike | tuple[InstantLike, InstantLike]"


@final
@dataclass(frozen=True, slots=True)
class Selected:
    """What a run gave of a selection.

    Args:
        outputs: The panes or elements.
        late: The late records.
    """

    outputs: tuple[Any, ...]
    late: tuple[LateRecord, ...]

    @property
    def essence(self) -> Any:
        """What a smaller scenario must give too: all but clocks, watermarks and whole records."""
        return (
            [_essence(one) for one in self.outputs],
            [(one.time, one.window, one.reason) for one in self.late],
        )


@final
@dataclass(frozen=True, slots=True)
class Selection:
    """A key, and which of its windows.

    Args:
        key: The key.
        windows: The windows; ``None`` for all.
        span: Of outputs without windows, the event times; ``None`` for all.
    """

    key: Any
    windows: tuple[Window, ...] | None
    span: Window | None

    @classmethod
    def of(
        cls, key: Any, window: WindowLike | None, outputs: Sequence[Any], late: Sequence[LateRecord]
    ) -> Selection:
        """Return what is meant by a key and a window in a run.

        Args:
            key: The key.
            window: The window, its bounds, or an instant in it; of a stage without windows the
                event time of what it emitted, or the bounds of some.
            outputs: What the run emitted.
            late: What it dropped.
        """
        key = tuple(key) if isinstance(key, list) else key
        if window is None:
            return cls(key, None, None)
        span = _span(window)
        if outputs and not isinstance(outputs[0], Pane):
            return cls(key, None, span)
        if isinstance(window, Window) or _is_pair(window):
            return cls(key, (span,), span)
        windows = [
            one.window
            for one in (*outputs, *late)
            if one.window is not None and is_same(one.key, key) and span.start in one.window
        ]
        return cls(key, tuple(sorted(set(windows))), span)

    def take(self, outputs: Iterable[Any], late: Iterable[LateRecord]) -> Selected:
        """Return what is selected."""
        return Selected(
            tuple(one for one in outputs if self._has(one)),
            tuple(one for one in late if self._has_late(one)),
        )

    def _has(self, one: Pane | Element) -> bool:
        if not is_same(one.key, self.key):
            return False
        if isinstance(one, Pane):
            return self.windows is None or one.window in self.windows
        return self.span is None or one.timestamp in self.span

    def _has_late(self, one: LateRecord) -> bool:
        if not is_same(one.key, self.key):
            return False
        if one.window is not None and self.windows is not None:
            return one.window in self.windows
        return self.span is None or one.time in self.span

    def filter(self, name: str, literals: Literals, *, time: str = "timestamp") -> str:
        """Return the code of a list of what is selected.

        Args:
            name: The code of the list to select from.
            literals: Writes values.
            time: What its items call their event time.
        """
        conditions = [f"one.key == {literals.value(self.key)}"]
        if self.windows is not None and len(self.windows) == 1:
            conditions.append(f"one.window == {literals.value(self.windows[0])}")
        elif self.windows is not None:
            conditions.append(f"one.window in {literals.value(self.windows)}")
        elif self.span is not None:
            is_instant = self.span.end - self.span.start == 1
            literal = literals.value(self.span.start if is_instant else self.span)
            conditions.append(f"one.{time} {'==' if is_instant else 'in'} {literal}")
        return f"[one for one in {name} if {' and '.join(conditions)}]"

    def __str__(self) -> str:
        if self.span is None:
            return f"key {shown(self.key)}"
        times = Times.of(self.span.start)
        if not self.windows and self.span.end - self.span.start == 1:
            return f"key {shown(self.key)}, at {times.at(self.span.start)} on {times.day}"
        spans = self.windows or (self.span,)
        texts = " and ".join(times.window(one) for one in spans)
        return f"key {shown(self.key)}, {texts} on {times.day}"


def _is_pair(window: object) -> bool:
    return isinstance(window, (tuple, list))


def _span(window: WindowLike) -> Window:
    if isinstance(window, Window):
        return window
    if isinstance(window, (tuple, list)):
        if len(window) != 2:
            raise InvalidArgument(
                f"{describe('window', window)} is not (start, end)",
                where="scenario",
                hint='Write ("2000-01-01T12:00:00Z", "2000-01-01T12:02:00Z"), or an instant inside',
            )
        return Window(moment(window[0], name="start"), moment(window[1], name="end"))
    at = moment(window, name="window")
    return Window(at, Instant(at + 1))


def _essence(one: Pane | Element) -> Any:
    if isinstance(one, Pane):
        return one.window, one.kind, one.timing, one.index, plain(one.values)
    return one.timestamp, one.kind, one.output, plain(one.value)


def plain(value: Any) -> Any:
    """Return what can be compared: a NaN is equal to itself, and 1 is not equal to 1.0 or True."""
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [plain(one) for one in value]
    if isinstance(value, (set, frozenset)):
        return value
    return type(value).__name__, repr(value)
