"""Compares the final panes of two runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, final, runtime_checkable

from lowwater.display import html
from lowwater.display.text import counted, plain
from lowwater.engine.graph.trace import StageTrace, Trace
from lowwater.engine.records.panes import Pane
from lowwater.errors import InvalidArgument, describe, load_extra
from lowwater.explain.frame import instants_to_frame
from lowwater.explain.lineage import Lineage
from lowwater.io.terminal import span, table
from lowwater.windows import Window

if TYPE_CHECKING:
    import pandas as pd

What: TypeAlias = Literal["only in a", "only in b", "differs"]

_MOST = 50
_KINDS: dict[What, html.Kind] = {"only in a": "ontime", "only in b": "mark", "differs": "late"}


@runtime_checkable
class _Shown(Protocol):
    """Anything with panes: a result, a scenario's run, the trace of a stage."""

    @property
    def panes(self) -> Iterable[Pane]: ...


Run: TypeAlias = "_Shown | Trace | Iterable[Pane]"


@final
@dataclass(frozen=True, slots=True)
class PaneDifference:
    """One window whose final pane differs between two runs.

    Args:
        what: ``only in a``, ``only in b`` or ``differs``.
        key: The key.
        window: The window.
        a: The values of its final pane in the first run; ``None`` if there is none.
        b: The same for the second run.
    """

    what: What
    key: Any
    window: Window
    a: Mapping[str, Any] | None
    b: Mapping[str, Any] | None


@final
@dataclass(frozen=True, slots=True, repr=False)
class Difference:
    """The differences between the final panes of two runs; true if there are any.

    Args:
        rows: The windows that differ, sorted by window and then in the order of the first run.
        same: The number of windows with the same final pane in both.
    """

    rows: tuple[PaneDifference, ...]
    same: int

    def __bool__(self) -> bool:
        return bool(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def to_frame(self) -> pd.DataFrame:
        """Return the windows that differ as a pandas DataFrame.

        Its columns: ``what``, ``key``, ``window_start`` and ``window_end`` (UTC timestamps), and
        each aggregate as ``a_total`` and ``b_total``, missing where there is no final pane.
        """
        load_extra("pandas", extra="pandas", purpose="to_frame")
        import pandas as pd

        columns: dict[str, Any] = {
            "what": pd.Series([row.what for row in self.rows], dtype=object),
            "key": pd.Series([row.key for row in self.rows], dtype=object),
            "window_start": instants_to_frame([row.window.start for row in self.rows]),
            "window_end": instants_to_frame([row.window.end for row in self.rows]),
        }
        for side, runs in (("a", [r.a for r in self.rows]), ("b", [r.b for r in self.rows])):
            names = dict.fromkeys(name for values in runs for name in values or ())
            for name in names:
                columns[f"{side}_{name}"] = [
                    None if values is None else values.get(name) for values in runs
                ]
        return pd.DataFrame(columns)

    def _head(self) -> str:
        if not self.rows:
            return f"no differences: {counted(self.same, 'window')} with the same final panes"
        count = Counter(row.what for row in self.rows)
        texts: dict[What, str] = {
            "only in a": "only in a", "only in b": "only in b", "differs": "different",
        }  # fmt: skip
        head = ", ".join(f"{count[what]:,} {text}" for what, text in texts.items() if count[what])
        return f"{head}; {self.same:,} equal"

    def _repr_html_(self) -> str:
        if not self.rows:
            return html.display(self._head())
        rows = (
            [
                html.badge(row.what, _KINDS[row.what]), row.key,
                span(row.window.start, row.window.end), _text(row.a), _text(row.b),
            ]
            for row in self.rows[:_MOST]
        )  # fmt: skip
        shown = html.table(["what", "key", "window", "a", "b"], rows)
        return html.display(self._head(), shown, html.more(len(self.rows) - _MOST, "window"))

    def __repr__(self) -> str:
        if not self.rows:
            return self._head()
        lines = [
            [
                row.what, plain(row.key), span(row.window.start, row.window.end), _text(row.a),
                _text(row.b),
            ]
            for row in self.rows[:_MOST]
        ]  # fmt: skip
        more = len(self.rows) - _MOST
        tail = f"\n… and {more:,} more" if more > 0 else ""
        shown = table(["what", "key", "window", "a", "b"], lines)
        return f"{self._head()}\n{shown}{tail}"


def diff(a: Run, b: Run) -> Difference:
    """Compare the final panes of two runs, by key and window.

    The final pane of a window is the last one that was emitted and not retracted. A discarding
    pane contains only the last part of its window, so compare accumulating or retracting runs. In a
    traced run, a window that merged into another has no final pane; without a trace its last pane
    counts unless it was retracted.

    Args:
        a: The result of ``collect()`` or ``Scenario.run``, a trace (its last stage), or panes.
        b: The same for the other run.

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
            hint="Pass the result of collect(), or a list of panes",
        ) from None
    stage = _traced(run)
    if stage is None or not stage.merges:
        return found
    lineage = Lineage(stage)
    return {
        (key, window): pane
        for (key, window), pane in found.items()
        if lineage.became(key, window, 0) == window
    }


def _traced(run: Any) -> StageTrace | None:
    """Return the trace of the stage that emitted the panes, if there is one."""
    if isinstance(run, StageTrace):
        return run
    try:
        trace = run if isinstance(run, Trace) else run.trace
    except (AttributeError, InvalidArgument):  # a list of panes; a run that was not traced
        return None
    return trace.stages[-1] if isinstance(trace, Trace) else None


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
    return ", ".join(f"{name}={plain(value)}" for name, value in values.items())
