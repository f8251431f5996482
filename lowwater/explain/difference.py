"""Which final panes differ between two runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, final, runtime_checkable

from lowwater.engine.panes import Pane
from lowwater.engine.trace import Trace
from lowwater.errors import InvalidArgument, describe
from lowwater.io.terminal import table
from lowwater.windows import Window

What: TypeAlias = Literal["only in a", "only in b", "differs"]

_MOST = 50


@runtime_checkable
class _Shown(Protocol):
    """Something with panes: a result, a scenario's run, the trace of a stage."""

    @property
    def panes(self) -> Iterable[Pane]: ...


Run: TypeAlias = "_Shown | Trace | Iterable[Pane]"


@final
@dataclass(frozen=True, slots=True)
class PaneDifference:
    """One window that two runs do not agree on.

    Args:
        what: ``only in a``, ``only in b`` or ``differs``.
        key: The key.
        window: The window.
        a: The values of its final pane in the first run; ``None`` if there is none.
        b: The same of the second.
    """

    what: What
    key: Any
    window: Window
    a: Mapping[str, Any] | None
    b: Mapping[str, Any] | None


@final
@dataclass(frozen=True, slots=True, repr=False)
class Difference:
    """Where the final panes of two runs differ. It is true where they do.

    Args:
        rows: The windows, by window and then in the order of the first run.
        same: How many windows have the same final pane in both.
    """

    rows: tuple[PaneDifference, ...]
    same: int

    def __bool__(self) -> bool:
        return bool(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        if not self.rows:
            return f"no difference: {self.same:,} windows with the same final panes"
        count = dict.fromkeys(("only in a", "only in b", "differs"), 0)
        for row in self.rows:
            count[row.what] += 1
        head = ", ".join(f"{number:,} {what}" for what, number in count.items() if number)
        lines = [
            [row.what, str(row.key), str(row.window), _text(row.a), _text(row.b)]
            for row in self.rows[:_MOST]
        ]
        more = len(self.rows) - _MOST
        tail = f"\n… and {more:,} more" if more > 0 else ""
        shown = table(["what", "key", "window", "a", "b"], lines)
        return f"{head}; {self.same:,} the same\n{shown}{tail}"


def diff(a: Run, b: Run) -> Difference:
    """Return which final panes differ between two runs, by key and window.

    The final pane of a window is the last one that was shown and not taken back. Where panes are
    discarding it has the last part alone: compare runs that accumulate.

    Args:
        a: What ``collect()`` or ``Scenario.run`` returned, a trace (its last stage), or panes.
        b: The same of the other run.

    Raises:
        InvalidArgument: One of them has no panes to compare.
    """
    left, right = _final("a", a), _final("b", b)
    rows: list[PaneDifference] = []
    same = 0
    for place in dict.fromkeys((*left, *right)):
        one, other = left.get(place), right.get(place)
        pane = one or other
        if pane is None:
            continue
        if one is not None and other is not None and _equal(one.values, other.values):
            same += 1
            continue
        what: What = "only in a" if other is None else "only in b" if one is None else "differs"
        rows.append(
            PaneDifference(
                what,
                pane.key,
                pane.window,
                None if one is None else one.values,
                None if other is None else other.values,
            )
        )
    rows.sort(key=lambda row: row.window)
    return Difference(tuple(rows), same)


def _final(name: str, run: Run) -> dict[tuple[Any, Window], Pane]:
    panes: Any = run
    if isinstance(run, Trace):
        panes = run.stages[-1].panes
    elif isinstance(run, _Shown):
        panes = run.panes
    found: dict[tuple[Any, Window], Pane] = {}
    try:
        for pane in panes:
            place = (pane.key, pane.window)
            if pane.kind == "insert":
                found[place] = pane
            elif place in found and found[place].index == pane.index:
                del found[place]
    except (TypeError, AttributeError):
        raise InvalidArgument(
            f"{describe(name, run)} has no panes",
            where="diff",
            mend="Give what collect() returned, or a list of panes",
        ) from None
    return found


def _equal(one: Any, other: Any) -> bool:
    """Return whether values are equal; NaN equals itself."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_equal(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return bool(one == other)


def _text(values: Mapping[str, Any] | None) -> str | None:
    if values is None:
        return None
    if len(values) == 1:
        return str(next(iter(values.values())))
    return ", ".join(f"{name}={value}" for name, value in values.items())
