"""Explains, from a trace, what matched a pattern and what did not, and what became of a row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, assert_never, final

from lowwater.display.text import counted, shown
from lowwater.engine.graph.trace import StageTrace, TracedElement
from lowwater.engine.match.attempts import Attempt, Progress
from lowwater.engine.match.replay import Change, FoundMatch
from lowwater.engine.match.rules import Matching
from lowwater.engine.records.followed import Event
from lowwater.errors import InvalidArgument, describe
from lowwater.explain.match_history import KeyHistory, MatchHistories
from lowwater.explain.text import Explanation, Times, element_text, sample_lines, values_text
from lowwater.time import (
    END_OF_TIME,
    InstantLike,
    format_duration,
    instant,
    saturating_add,
)
from lowwater.windows import Window

MatchTimes: TypeAlias = Window | InstantLike | tuple[InstantLike, InstantLike]

_MOST = 20
_FEW = 5
_GAP = ".."
_RESUMED = (
    "the run resumed an earlier one: rows that came before are not in the trace, and matches with "
    "such rows are not found again"
)


def explain_matches(stage: StageTrace, key: Any, window: MatchTimes) -> Explanation:
    """Explain what matched among the rows of a key, or how far the attempts came.

    Args:
        stage: The trace of the stage.
        key: The key.
        window: An instant, for the matches around it and the attempts that reached it; or the first
            row to look at and the end (exclusive), for what begins there.
    """
    if stage.sample is not None:
        return Explanation((_of_sample(stage), *sample_lines([stage])))
    history = KeyHistory(stage, key)
    low, high = _bounds(window)
    told = _Told(stage, history, Times.of(low))
    lines = list(told.head(key))
    if not history.attempts and not history.changes:
        lines += told.no_rows(key)
        return Explanation(tuple(lines))
    matches = told.matches_in(low, high)
    rows: dict[int, None] = {}
    for match in matches[:_FEW]:
        lines += told.of_match(match)
        rows |= dict.fromkeys(match.rows)
    if len(matches) > _FEW:
        lines.append(f"  … and {len(matches) - _FEW:,} more matches")
    if not matches or low != high:
        attempts = told.attempts_in(low, high)
        for attempt in attempts[:_FEW]:
            lines += told.of_attempt(attempt)
            rows[attempt.row] = None
        if len(attempts) > _FEW:
            lines.append(f"  … and {counted(len(attempts) - _FEW, 'start')} more")
        if not matches and not attempts:
            lines += told.nothing_there()
    elements = tuple(history.element(row) for row in rows)
    return Explanation(tuple(lines), elements)


def row_lines(
    stage: StageTrace, histories: MatchHistories, element: TracedElement, times: Times
) -> Iterator[str]:
    """Yield what became of a row: of which matches it is a part, or how it failed.

    Args:
        stage: The trace of the stage.
        histories: The searches of its keys.
        element: The row, one of its elements.
        times: Formats times.
    """
    if element.reason is not None:
        return
    if stage.sample is not None:
        yield f"  {_of_sample(stage)}"
        return
    history = histories.of(element.key)
    row = history.row_of(element)
    if row is None:
        return
    told = _Told(stage, history, times)
    if stage.is_resumed:
        yield f"  {_RESUMED}"
    if element.retract:
        yield from told.came_with(row)
        return
    yield from told.of_row(row)


def _of_sample(stage: StageTrace) -> str:
    return (
        f"the trace has only a sample of the elements of stage `{stage.name}`, so what they "
        "matched cannot be found again"
    )


def _bounds(window: MatchTimes) -> tuple[int, int]:
    """Return the instants between which to look; twice the same for one instant."""
    if isinstance(window, Window):
        return window.start, window.end
    if isinstance(window, (tuple, list)):
        if len(window) != 2:
            raise InvalidArgument(
                f"{describe('window', window)} is not (start, end)",
                where="explain",
                hint='Write ("2000-01-01T12:00:00Z", "2000-01-01T12:02:00Z"), or an instant',
            )
        return instant(window[0], name="start"), instant(window[1], name="end")
    at = instant(window, name="window")
    return at, at


@final
class _Told:
    """Describes the matches and attempts of one key."""

    def __init__(self, stage: StageTrace, history: KeyHistory, times: Times) -> None:
        assert stage.matching is not None
        self._stage, self._history, self._times = stage, history, times
        self._rules: Matching = stage.matching

    def head(self, key: Any) -> Iterator[str]:
        """Yield the key and the pattern."""
        rules = self._rules
        yield (
            f"key {shown(key)}, pattern {shown(rules.text)} on {self._times.day}, "
            f"stage `{self._stage.name}`"
        )
        for name, text in rules.texts.items():
            yield f"  {name}: {text}"
        parts = [] if rules.within_us is None else [f"within {format_duration(rules.within_us)}"]
        if rules.absence is not None:
            for_us = format_duration(rules.absence.within_us)
            parts.append(f"without {rules.absence.text} for {for_us} after the last row")
        skip = rules.skip if isinstance(rules.skip, str) else " ".join(rules.skip)
        parts += [f"skip {skip}", f"emit {rules.emit}"]
        parts.append(f"allowed lateness {format_duration(rules.lateness_us)}")
        yield f"  {', '.join(parts)}"
        if self._stage.is_resumed:
            yield f"  {_RESUMED}"

    def no_rows(self, key: Any) -> Iterator[str]:
        """Yield that a key has no rows, and which keys there are."""
        keys = list(dict.fromkeys(values_text(each.key) for each in self._stage.elements))
        texts = ", ".join(keys[:_FEW]) or "none"
        more = f" and {len(keys) - _FEW:,} more" if len(keys) > _FEW else ""
        what = (
            "no element of this key was admitted"
            if values_text(key) in keys
            else ("no element has this key")
        )
        yield f"  {what}; the keys are {texts}{more}"

    # -- matches -------------------------------------------------------------------------------

    def matches_in(self, low: int, high: int) -> list[FoundMatch]:
        """Return the matches that cover an instant, or begin between two; each start once."""
        every = [one for change in self._history.changes for one in _of_change(change)]
        every += self._history.standing
        last = {one.rows[0]: one for one in every}  # the last that began with a row
        found = (
            one
            for one in last.values()
            if (one.start <= low <= one.end if low == high else low <= one.start < high)
        )
        return sorted(found, key=lambda one: (one.start, one.rows[0]))

    def of_match(self, match: FoundMatch) -> Iterator[str]:
        """Yield the rows of a match, what happened to it, and what may still happen."""
        times = self._times
        is_there = match in self._history.standing
        what = "match" if is_there else "retracted match"
        yield f"  {what} from {times.at(match.start)} to {times.at(match.end)}"
        yield from self._rows(match)
        yield from self._story(match.rows[0])
        yield f"    {self._state(match, is_there=is_there)}"

    def _rows(self, match: FoundMatch) -> Iterator[str]:
        parts = match.parts
        gap = 0
        for at, (row, variable) in enumerate(parts):
            if variable is None and at + 1 < len(parts):
                gap += 1
                continue
            if gap:
                yield f"      {_GAP}: {counted(gap, 'row')} between"
                gap = 0
            if at < _MOST - 1 or at + 1 == len(parts):
                yield f"      {variable or _GAP}: {self._element(row)}"
            elif at == _MOST - 1:
                yield f"      … {counted(len(parts) - _MOST, 'row')} more"

    def _story(self, first: int) -> Iterator[str]:
        """Yield what was emitted and retracted of the matches that begin with a row, in order."""
        for change in self._history.changes:
            when = self._times.clock(change.event.clock)
            yield from (f"    {when}  {line}" for line in self._changed(change, first))

    def _changed(self, change: Change, first: int) -> Iterator[str]:
        event = change.event
        for one in change.retracted:
            if one.rows[0] == first:
                yield f"retracted{self._measures(one)}: {self._cause(event)}"
                yield from self._now_in(one, change)
        for before, now in change.regrouped:
            if now.rows[0] == first:
                yield (
                    f"{self._cause(event)}: its rows changed ({self._difference(before, now)}), "
                    "what is emitted of it did not"
                )
        for one in change.emitted:
            if one.rows[0] == first:
                yield f"emitted{self._measures(one)}: {self._decided(one, event)}"

    def _now_in(self, gone: FoundMatch, change: Change) -> Iterator[str]:
        """Yield which match has the rows of a retracted one now."""
        for one in change.emitted:
            common = set(one.rows) & set(gone.rows)
            if common and one.rows[0] != gone.rows[0]:
                yield (
                    f"{counted(len(common), 'row')} of it {'is' if len(common) == 1 else 'are'} in "
                    f"the match from {self._times.at(one.start)} now"
                )
            elif common:
                yield f"changed: {self._difference(gone, one)}"

    def _difference(self, before: FoundMatch, now: FoundMatch) -> str:
        """Return which rows a match has gained and lost, or as which variable it has others."""
        old, new = dict(before.parts), dict(now.parts)
        parts = [f"with {self._name(row)} as {new[row] or _GAP}" for row in new if row not in old]
        parts += [f"without {self._name(row)}" for row in old if row not in new]
        parts += [
            f"{self._name(row)} is {new[row] or _GAP}, no longer {old[row] or _GAP}"
            for row in new
            if row in old and new[row] != old[row]
        ]
        if len(parts) > _FEW:
            parts = [*parts[:_FEW], f"and {len(parts) - _FEW:,} more"]
        return ", ".join(parts) or "other measures"

    def _decided(self, match: FoundMatch, event: Event) -> str:
        rules, times = self._rules, self._times
        if rules.emit == "early":
            return "this bundle made it" if event.rows else self._cause(event)
        if event.rows:
            return self._cause(event)
        if event.watermark == END_OF_TIME:
            return "the input ended"
        last = saturating_add(match.decided_at, -1)
        which = f"the watermark reached {times.at(event.watermark)}"
        return f"{which}; what it depends on ends at {times.at(last)}"

    def _cause(self, event: Event) -> str:
        """Return what happened in an event."""
        if not event.rows:
            if event.watermark == END_OF_TIME:
                return "the input ended"
            return f"the watermark reached {self._times.at(event.watermark)}"
        names = [self._came(row) for row in event.rows[:_FEW]]
        if len(event.rows) > _FEW:
            names.append(f"{len(event.rows) - _FEW:,} more")
        return f"{' and '.join(names)} arrived"

    def _came(self, row: int) -> str:
        element = self._history.element(row)
        what = f"{'the retraction of ' if element.retract else ''}{self._name(row)}"
        return f"{what} (below the watermark)" if element.time < element.watermark else what

    def _state(self, match: FoundMatch, *, is_there: bool) -> str:
        if not is_there:
            return "it does not stand"
        if self._history.is_final(match):
            return "it stands, and nothing can change it any more"
        rules = self._rules
        if rules.emit == "early" and not rules.lateness_us:
            return "it stands; rows above the watermark may change it"
        return f"it stands; a row up to {format_duration(rules.lateness_us)} late may change it"

    def _measures(self, match: FoundMatch) -> str:
        return f" {_values(match.measures)}" if match.measures else ""

    # -- starts --------------------------------------------------------------------------------

    def attempts_in(self, low: int, high: int) -> list[Attempt]:
        """Return the starts whose attempt reached an instant, or that are between two."""
        tried = [one for one in self._history.attempts if one.fate != "matched"]
        if low != high:
            inside = {row for match in self._history.standing for row in match.rows}
            rows = (one for one in tried if low <= self._time(one.row) < high)
            return [one for one in rows if one.fate != "skipped" or one.row not in inside]
        at_it = [one for one in tried if self._time(one.row) == low]
        return at_it or [one for one in tried if self._time(one.row) <= low <= one.reach]

    def nothing_there(self) -> Iterator[str]:
        """Yield which rows the key has, where no match and no attempt is."""
        rows = [self._time(one.row) for one in self._history.attempts]
        yield (
            f"  no attempt depends on a row there; the key has {counted(len(rows), 'row')}, from "
            f"{self._times.at(min(rows))} to {self._times.at(max(rows))}"
            if rows
            else "  all rows of the key were retracted"
        )

    def of_attempt(self, attempt: Attempt) -> Iterator[str]:
        """Yield what became of a start."""
        yield f"  no match begins with {self._element(attempt.row)}"
        yield from (f"    {line}" for line in self._failed(attempt))

    def _failed(self, attempt: Attempt) -> Iterator[str]:
        times, rules = self._times, self._rules
        fate = attempt.fate
        if fate in ("skipped", "behind"):
            assert attempt.by is not None
            before = times.at(self._time(attempt.by))
            yield (
                f"it was not tried: the match from {before} has taken it, or goes on behind it"
                if fate == "skipped"
                else f"it is not tried yet: it is behind the start at {before}, which is undecided"
            )
            return
        progress = self._history.search.progress(attempt.row)
        yield from self._progress(progress, is_open=fate == "undecided")
        if fate == "undecided":
            after = ", and allowed_lateness= more" if rules.emit == "final" else ""
            if attempt.reach >= END_OF_TIME - 1:
                yield "it waits for a row that ends it, or for the end of the input"
            else:
                yield f"it waits for the watermark to pass {times.at(attempt.reach)}{after}"
        elif not attempt.is_final:
            yield "a row that is still to come may change that"

    def _progress(self, progress: Progress, *, is_open: bool) -> Iterator[str]:
        """Yield how far an attempt came."""
        rules = self._rules
        taken = _runs(progress.variables)
        wanted = _either(progress.wanted) or "any row"
        so_far = f"it got as far as {taken}" if taken else "it took no row"
        row = progress.row
        match progress.why:
            case "condition":
                assert row is not None
                neither = "is not" if len(progress.wanted) == 1 else "is none of"
                yield f"{so_far}; {self._element(row)} {neither} {wanted}"
            case "within":
                assert rules.within_us is not None
                assert row is not None
                yield (
                    f"{so_far}; {wanted} did not come within {format_duration(rules.within_us)} "
                    f"of its first row: the next row is {self._element(row)}"
                )
            case "absent":
                assert row is not None
                yield f"it matched {taken}, but {self._element(row)} came, which must be absent"
            case "empty":
                yield "the parse that is preferred takes no row"
            case "too many":
                yield f"{so_far}; there are too many ways on to follow them here"
            case "end" if not progress.wanted:
                what = "what must be absent may still come" if rules.absence else "it ends there"
                yield f"it matches {taken} so far; {what}"
            case "end":
                still = "has not come yet" if is_open else "did not come"
                yield f"{so_far}; {wanted} {still}"
            case _:
                assert_never(progress.why)

    # -- rows ----------------------------------------------------------------------------------

    def of_row(self, row: int) -> Iterator[str]:
        """Yield of which matches a row is a part, or what became of it as a start."""
        times, history = self._times, self._history
        standing = [one for one in history.standing if row in one.rows]
        for match in standing[:_FEW]:
            yield f"  it is {self._as(match, row)}"
        if len(standing) > _FEW:
            yield f"  … and {len(standing) - _FEW:,} more matches"
        for change in history.changes:
            for match in change.retracted:
                if row in match.rows and match not in standing:
                    when = times.clock(change.event.clock)
                    yield f"  {when}  it was {self._as(match, row)}, which was retracted"
        attempt = history.attempt(row)
        if attempt is None:
            yield "  it was taken back"
            return
        if standing:
            return
        yield "  it is part of no match"
        if attempt.fate == "skipped":
            yield "  a match before it goes on behind it, so no attempt began with it"
            return
        yield from (f"  as the first row: {line}" for line in self._failed(attempt))

    def came_with(self, row: int) -> Iterator[str]:
        """Yield what the arrival of a retraction changed."""
        changes = [change for change in self._history.changes if row in change.event.rows]
        for change in changes:
            for match in change.retracted[:_FEW]:
                yield f"  it retracted the match from {self._times.at(match.start)}"
        if not changes:
            yield "  it changed no match"

    def _as(self, match: FoundMatch, row: int) -> str:
        variable = match.variables[match.rows.index(row)]
        what = f"`{variable}`" if variable is not None else f"a row of `{_GAP}`"
        measures = self._measures(match)
        times = self._times
        return (
            f"{what} of the match from {times.at(match.start)} to {times.at(match.end)}{measures}"
        )

    def _time(self, row: int) -> int:
        return self._history.element(row).time

    def _element(self, row: int) -> str:
        return f"{self._name(row)} at {self._times.at(self._time(row))}"

    def _name(self, row: int) -> str:
        """Return a name for a row: by its columns that are neither keys nor its time."""
        element = self._history.element(row)
        values = {
            name: one
            for name, one in element.values.items()
            if name not in self._stage.key_names and not _is_time(one, element.time)
        }
        return element_text(values)


def _of_change(change: Change) -> Sequence[FoundMatch]:
    return (*change.retracted, *(now for _, now in change.regrouped), *change.emitted)


def _is_time(value: Any, time: int) -> bool:
    """Whether a value is the event time of its row."""
    if isinstance(value, bool) or not (isinstance(value, int) or hasattr(value, "isoformat")):
        return False
    try:
        return instant(value) == time
    except InvalidArgument:
        return False


def _values(measures: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={shown(value)}" for name, value in measures.items())


def _either(names: Sequence[str]) -> str:
    """Return names as a choice."""
    some = [f"`{name}`" for name in names]
    return some[0] if len(some) == 1 else f"{', '.join(some[:-1])} or {some[-1]}" if some else ""


def _runs(variables: Sequence[str | None]) -> str:
    text = runs_text(variables)
    return f"`{text}`" if text else ""


def runs_text(variables: Sequence[str | None]) -> str:
    """Return the variables of rows in the form of a pattern.

    >>> runs_text(["start", "down", "down", None, "up"])
    'start down{2} .. up'
    """
    parts: list[tuple[str, int]] = []
    for one in variables:
        name = one or _GAP
        if parts and parts[-1][0] == name:
            parts[-1] = (name, parts[-1][1] + 1)
        else:
            parts.append((name, 1))
    texts = (name if many == 1 or name == _GAP else f"{name}{{{many}}}" for name, many in parts)
    return " ".join(texts)
