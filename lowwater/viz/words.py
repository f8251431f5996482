"""Formats values, keys, panes and elements for labels and titles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lowwater.display.text import number
from lowwater.engine.graph.trace import (
    NOT_KEPT,
    StageTrace,
    TracedElement,
    TracedMerge,
    TracedMove,
    TracedPair,
)
from lowwater.engine.records.panes import Pane
from lowwater.time import DAY_US, END_OF_TIME, START_OF_TIME, format_instant
from lowwater.windows import Window

MINUS = "\u2212"
"""The prefix of retracted values."""
LONGEST_VALUE = 12
LONGEST_TITLE = 200
_REASONS = {
    "expired": "its window had expired",
    "closed": "its window's trigger had finished",
    "unwindowed": "no window contains its event time",
    "too_late": "it was later than the stage allows",
    "refused": "the process refused it",
}


def value_text(value: Any, longest: int = LONGEST_VALUE) -> str:
    """Return a value in few signs; control characters are left out.

    >>> value_text(14), value_text(0.1 + 0.2), value_text(None), value_text("a long, long text", 8)
    ('14', '0.3', 'null', 'a long,…')
    """
    if value is None:
        text = "null"
    elif isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, float):
        text = number(value).removesuffix(".0")
    elif isinstance(value, Mapping):
        inner = ", ".join(f"{name}: {value_text(item)}" for name, item in value.items())
        text = f"{{{inner}}}"
    elif isinstance(value, (list, tuple, set, frozenset)):
        items = sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value
        text = f"[{', '.join(value_text(item) for item in items)}]"
    else:
        text = str(value)
    text = "".join(sign if sign.isprintable() else " " for sign in text)
    return text if len(text) <= longest else text[: longest - 1] + "…"


def key_text(key: Any) -> str:
    """Format a key for the heading of a panel."""
    if isinstance(key, tuple):
        return ", ".join(map(_part_text, key))
    return _part_text(key, 40)


def _part_text(part: Any, longest: int = 30) -> str:
    text = value_text(part, longest)
    return text if text.strip() else f"'{text}'"  # quote blank keys, to make them visible


def window_text(window: Window) -> str:
    """Format a window for a title."""
    return "all time" if endless(window.start) and endless(window.end) else str(window)


def endless(at: int) -> bool:
    """Return whether an instant is at an end of time, or beyond the range of calendars."""
    # The global window ends a day before the end of time (S-W4).
    return at >= END_OF_TIME - 2 * DAY_US or at <= START_OF_TIME + 2 * DAY_US


def element_title(element: TracedElement, column: str | None) -> str:
    """Describe an element, a line per fact."""
    values = _values(element.values, column)
    lines = [
        f"{'retraction of ' if element.retract else ''}{values}",
        f"event time {format_instant(element.time)}",
        f"arrived at {format_instant(element.clock)}",
        f"watermark on arrival {watermark_text(element.watermark)}",
    ]
    if reason := reason_text(element):
        lines.append(reason)
    return "\n".join(lines)


def reason_text(element: TracedElement) -> str:
    """Return why an element was dropped; empty if it was not."""
    if element.outcome == "kept":
        return ""
    reason = _REASONS.get(element.reason or "", element.reason or "")
    return f"{outcome_text(element.outcome)}{f': {reason}' if reason else ''}"


def outcome_text(outcome: str) -> str:
    """Return the text for an element's outcome in the legend."""
    return {
        "kept": "element",
        "late": "late, dropped",
        "duplicate": "duplicate, dropped",
        "partly late": "late for some of its windows",
    }.get(outcome, outcome)


def pane_title(pane: Pane) -> str:
    """Describe a pane, a line per fact."""
    verb = "retracts" if pane.kind == "retract" else "emits"
    lines = [
        f"{window_text(pane.window)} {verb} {_values(pane.values, None)}",
        f"{pane.timing.replace('_', ' ')} #{pane.index}{' (last)' if pane.is_last else ''}",
        f"emitted at {format_instant(pane.emitted_at)}",
        f"watermark at emission {watermark_text(pane.watermark)}",
    ]
    return "\n".join(lines)


def merge_title(merge: TracedMerge) -> str:
    """Describe a merge of windows."""
    into, at = window_text(merge.into), format_instant(merge.clock)
    return f"{len(merge.of)} windows merged into {into} at {at}"


def pair_title(trace: StageTrace, pair: TracedPair) -> str:
    """Describe what a join emitted: its records, its event time, and when."""
    lines = [
        f"{side}: {_record_text(trace, at)}"
        for side, at in (("left", pair.left), ("right", pair.right))
    ]
    lines += [
        f"event time {format_instant(pair.time)}",
        f"emitted at {format_instant(pair.clock)}",
        f"watermark at emission {watermark_text(pair.watermark)}",
    ]
    return "\n".join(lines)


def _record_text(trace: StageTrace, at: int | None) -> str:
    if at is None:
        return "none"
    return "not in the sample" if at == NOT_KEPT else _values(trace.elements[at].values, None)


def move_title(move: TracedMove, *, has_clock: bool = True) -> str:
    """Describe a watermark: its value, since when by the clock, and what holds it."""
    lines = [f"watermark {watermark_text(move.input_watermark)}"]
    if has_clock:
        lines.append(f"since {format_instant(move.clock)}")
    if move.held_by is not None:
        lines.append(f"held by {move.held_by}")
    return "\n".join(lines)


def watermark_text(watermark: int) -> str:
    """Format a watermark, with words for the ends of time."""
    ends = {START_OF_TIME: "not known yet", END_OF_TIME: "at the end: all input has arrived"}
    return ends.get(watermark) or format_instant(watermark)


def _values(values: Mapping[str, Any], column: str | None) -> str:
    names: Iterable[str] = values if column is None or column not in values else [column]
    shown = [f"{name} = {value_text(values[name], 60)}" for name in names]
    shown += [f"{name} = {value_text(values[name], 60)}" for name in values if name not in names]
    text = ", ".join(shown)
    return text if len(text) <= LONGEST_TITLE else text[: LONGEST_TITLE - 1] + "…"
