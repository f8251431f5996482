"""Where an element went: its windows and panes, or where and why it was left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from lowwater.engine.panes import Pane
from lowwater.engine.trace import StageTrace, Trace, TracedElement
from lowwater.errors import InvalidArgument
from lowwater.explain.lineage import Lineage
from lowwater.explain.text import Explanation, Times, counted, element_text, rounded_up, shown
from lowwater.time import format_duration, saturating_add

Predicate: TypeAlias = Callable[[Any], Any]

_MOST = 10


def why(trace: Trace, element: Any, *, stage: str | None = None) -> Explanation:
    """Return where an element went: windows and panes, or why it is in none.

    Args:
        trace: The trace of the run.
        element: A record of a source, as it was read: the value of a plain one; a mapping matches
            every record that has its fields; a function, every record that it is true for. Or a
            :class:`TracedElement`. What another stage made is looked for too.
        stage: Look at this stage alone.

    Raises:
        InvalidArgument: There is no such stage, or the function raises for every record.
    """
    stages = trace.stages if stage is None else (trace.stage(stage),)
    lineages = [Lineage(of) for of in stages]
    if isinstance(element, TracedElement):
        found = [(each, element) for each in lineages if element in each.stage.elements]
        return _explained([_Story.of(trace, each, one) for each, one in found], [])
    matches = _Matches(element if callable(element) else _matcher(element))
    stories: list[_Story] = []
    lost: list[str] = []
    for name, records in trace.read.items():
        for at, record in enumerate(records):
            if not matches.says(record):
                continue
            own = [
                (each, one)
                for each in lineages
                for one in each.stage.elements
                if (name, at) in one.origins
            ]
            stories += [_Story.of(trace, each, one) for each, one in own]
            lost += [] if own else _lost(trace, name, at, record)
    stories += [
        _Story.of(trace, each, one)
        for each in lineages
        for one in each.stage.elements
        if not one.origins and matches.says(one.record)
    ]
    known = [record for records in trace.read.values() for record in records]
    lost += [
        f"{error.record!r} became a dead letter, {error.reason}: {error.detail}"
        for error in trace.errors
        if error.record not in known and matches.says(error.record)
    ]
    matches.check()
    return _explained(stories, lost)


class _Matches:
    """Says which records are meant; a function need not know every kind of record."""

    def __init__(self, function: Predicate) -> None:
        self._function = function
        self._knows_any = False
        self._raised: Exception | None = None

    def says(self, record: Any) -> bool:
        """Return whether a record is meant."""
        try:
            said = bool(self._function(record))
        except Exception as error:
            self._raised = self._raised or error
            return False
        self._knows_any = True
        return said

    def check(self) -> None:
        """Raise if the function raised for every record there is."""
        if self._raised is None or self._knows_any:
            return
        error = self._raised
        raise InvalidArgument(
            f"the function raised {type(error).__name__} for every record: {error}",
            where="why",
            mend="Give one that takes a record, as in lambda record: record['id'] == 7",
        ) from error


class _Story:
    """What became of one element in one stage."""

    def __init__(self, lines: list[str], element: TracedElement, panes: list[Pane]) -> None:
        self.lines = lines
        self.element = element
        self.panes = panes

    @classmethod
    def of(cls, trace: Trace, lineage: Lineage, element: TracedElement) -> _Story:
        panes = lineage.showing(element)
        lines = list(_lines(lineage, element, panes))
        name = lineage.stage.name
        if (next_ones := [f"`{one.name}`" for one in trace.stages if name in one.inputs]) and panes:
            lines.append(f"  its panes went on to {' and '.join(next_ones)}")
        return cls(lines, element, panes)


def _lines(lineage: Lineage, element: TracedElement, panes: list[Pane]) -> Iterator[str]:
    stage, times = lineage.stage, Times.of(element.time)
    what = "taken back: " if element.retract else ""
    yield (
        f"{what}{element_text(element.values)} at {times.at(element.time)} on {times.day}, "
        f"key {element.key!r}"
    )
    yield (
        f"  {times.at(element.clock)}  it came to stage `{stage.name}`, where the watermark was "
        f"{times.at(element.watermark)}"
    )
    if element.fate == "duplicate":
        yield "  dropped as a duplicate: its id was seen before"
        return
    if element.reason is not None:
        yield f"  {_dropped(stage, element, times)}"
    for window in element.windows:
        now = lineage.became(element.key, window, element.order)
        then = "" if now == window else f", which merged into {times.window(now)}"
        yield f"  it went into window {times.window(window)}{then}"
    for pane in panes:
        yield (
            f"  {times.at(pane.emitted_at)}  {pane.timing} #{pane.index} of "
            f"{times.window(pane.window)} shows it: {shown(dict(pane.values))}"
        )
    if element.windows and not panes and stage.aggregates:
        yield "  no pane has shown it yet: ask explain(key, window)"
    if stage.windowing is None:
        yield "  it went to the process, whose state is its own"


def _dropped(stage: StageTrace, element: TracedElement, times: Times) -> str:
    windows = ", ".join(times.window(window) for window in element.dropped)
    if element.reason == "unwindowed":
        return "dropped, unwindowed: it falls between the windows"
    if element.reason == "closed":
        return f"dropped from {windows}, closed: the trigger had finished"
    lateness = 0 if stage.windowing is None else stage.windowing.lateness_us
    last = max(window.end for window in element.dropped)
    return (
        f"dropped from {windows}, expired: kept until "
        f"{times.at(saturating_add(last, lateness))} with allowed_lateness="
        f"{format_duration(lateness)!r}; {rounded_up(element.watermark - last + 1)!r} would have "
        "taken it"
    )


def _lost(trace: Trace, source: str, at: int, record: Any) -> list[str]:
    """Return what became of a record that no stage got."""
    letters = [error for error in trace.errors if _same(error.record, record)]
    if letters:
        error = letters[0]
        return [f"{record!r} became a dead letter, {error.reason}: {error.detail}"]
    return [f"{record!r} came from source `{source}` (record {at}), and no step kept it"]


def _explained(stories: list[_Story], lost: list[str]) -> Explanation:
    lines = [line for story in stories[:_MOST] for line in story.lines]
    lines += lost[:_MOST]
    if (more := max(0, len(stories) - _MOST) + max(0, len(lost) - _MOST)) > 0:
        lines.append(f"… and {counted(more, 'element')} more")
    if not lines:
        lines = ["no source gave such an element, and no stage got one"]
    panes = [pane for story in stories for pane in story.panes]
    return Explanation(tuple(lines), tuple(story.element for story in stories), tuple(panes))


def _matcher(element: Any) -> Predicate:
    if isinstance(element, Mapping):
        wanted = dict(element)
        return lambda record: (
            isinstance(record, Mapping)
            and all(name in record and _same(record[name], value) for name, value in wanted.items())
        )
    return lambda record: _same(record, element)


def _same(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except (TypeError, ValueError):  # arrays say so element by element
        return False
