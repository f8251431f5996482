"""Explains, from a trace, what was computed over the rows before a row, and what corrected it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np

from lowwater.display.text import counted, shown
from lowwater.engine.graph.trace import StageTrace, TracedElement
from lowwater.engine.keyed.operator import record_hashes
from lowwater.engine.over.operator import OverOperator
from lowwater.engine.over.rules import Over
from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.columns import Column
from lowwater.engine.records.followed import Event
from lowwater.engine.records.stage_output import MAIN, Emitted, StageOutput
from lowwater.engine.records.steps import Bundle, EndOfInput, WatermarkAdvance
from lowwater.errors import InvalidArgument, describe
from lowwater.explain.text import Explanation, Times, element_text, sample_lines, values_text
from lowwater.explain.traced_rows import TracedRows
from lowwater.time import END_OF_TIME, InstantLike, format_duration, instant
from lowwater.windows import Window

RangeTimes: TypeAlias = Window | InstantLike | tuple[InstantLike, InstantLike]

_FEW = 5
_NUMBER = "the number of the row"  # a column beside those of the records
_RESUMED = (
    "the run resumed an earlier one: rows that came before are not in the trace, and results over "
    "them are not computed again"
)


@final
@dataclass(frozen=True, slots=True)
class RangeChange:
    """A result that was emitted or retracted.

    Args:
        event: What the stage followed then.
        row: The number of the row.
        results: The results by name.
        sign: 1, or -1 for a retraction.
    """

    event: Event
    row: int
    results: Mapping[str, Any]
    sign: int


@final
class RangeHistory:
    """What was computed over the rows of one key, and when. O(elements of the stage).

    Args:
        stage: The trace of the stage, of all elements.
        key: The key.
    """

    def __init__(self, stage: StageTrace, key: Any) -> None:
        assert stage.ranging is not None
        self.rows = TracedRows(stage, key)
        self.changes: list[RangeChange] = []
        """What was emitted and retracted, in order."""
        self.watermark = stage.moves[-1].input_watermark if stage.moves else None
        bundle = self.rows.bundle
        if bundle is None:
            return
        self._numbers = _numbers(bundle)
        known = self._numbers >= 0  # others came before the trace began
        columns = {**bundle.values, _NUMBER: Column(self._numbers)}
        bundle = Bundle(bundle.times, bundle.keys, columns, bundle.signs)
        operator = OverOperator(stage.ranging, {}, signed=bundle.signs is not None)
        for event in self.rows.events:
            at = event.watermark
            if at > operator.watermark:
                to = EndOfInput() if at == END_OF_TIME else WatermarkAdvance(at)
                self._note(event, stage.ranging, operator.step(to))
            rows = np.array(event.rows, dtype=np.int64)
            rows = rows[known[rows]]
            if rows.size:
                some = bundle.take(rows)
                self._note(event, stage.ranging, operator.step(some))

    def _note(self, event: Event, rules: Over, output: StageOutput) -> None:
        for name, emitted in output.outputs.items():
            assert name == MAIN
            assert isinstance(emitted, Emitted)
            columns = emitted.columns()
            results = {name: columns[name].to_list() for name in rules.names}
            signs = [1] * len(emitted) if emitted.signs is None else emitted.signs.tolist()
            for at, (row, sign) in enumerate(zip(columns[_NUMBER].to_list(), signs, strict=True)):
                values = {name: values[at] for name, values in results.items()}
                self.changes.append(RangeChange(event, row, values, sign))

    def of_row(self, row: int) -> Iterator[RangeChange]:
        """Yield what was emitted and retracted of a row."""
        return (change for change in self.changes if change.row == row)

    def retracted(self, row: int) -> int:
        """Return the row that a retraction takes back, -1 if unknown; another row is its own."""
        return int(self._numbers[row])


def _numbers(bundle: Bundle) -> Any:
    """Return the number of each row; of a retraction that of the row it takes back (O-6).

    It is -1 where that row is not in the trace.
    """
    numbers = np.arange(len(bundle), dtype=np.int64)
    if bundle.signs is None:
        return numbers
    seen = {name: column for name, column in bundle.values.items() if not name.startswith(HIDDEN)}
    hashes = record_hashes(Bundle(bundle.times, (), seen)).tolist()
    there: dict[tuple[int, int], list[int]] = {}
    for row, (time, same, sign) in enumerate(
        zip(bundle.times.tolist(), hashes, bundle.signs.tolist(), strict=True)
    ):
        equal = there.setdefault((time, same), [])
        if sign > 0:
            equal.append(row)
        else:
            numbers[row] = equal.pop() if equal else -1
    return numbers


def explain_ranges(stage: StageTrace, key: Any, window: RangeTimes) -> Explanation:
    """Explain the results of the rows of a key at an instant, or between two.

    Args:
        stage: The trace of the stage.
        key: The key.
        window: An instant; or the first one and the end (exclusive).
    """
    if stage.sample is not None:
        return Explanation((_of_sample(stage), *sample_lines([stage])))
    low, high = _bounds(window)
    history, times = RangeHistory(stage, key), Times.of(low)
    lines = [f"key {shown(key)}, on {times.day}, stage `{stage.name}`"]
    if stage.is_resumed:
        lines.append(f"  {_RESUMED}")
    elements = [history.rows.element(row) for row in range(len(history.rows))]
    rows = [row for row, element in enumerate(elements) if low <= element.time < high]
    rows = [row for row in rows if not elements[row].retract]
    if not rows:
        lines.append(f"  no row of this key came there; it has {counted(len(elements), 'row')}")
    for row in rows[:_FEW]:
        lines.append(f"  {element_text(elements[row].values)} at {times.at(elements[row].time)}")
        lines += [f"  {line}" for line in _lines(stage.ranging, history, row, times)]
    if len(rows) > _FEW:
        lines.append(f"  … and {counted(len(rows) - _FEW, 'row')} more")
    return Explanation(tuple(lines), tuple(elements[row] for row in rows))


def range_lines(stage: StageTrace, element: TracedElement, times: Times) -> Iterator[str]:
    """Yield what was computed of a row, and what it corrected.

    Args:
        stage: The trace of the stage.
        element: The row, one of its elements.
        times: Formats times.
    """
    if element.reason is not None:
        return
    if stage.sample is not None:
        yield f"  {_of_sample(stage)}"
        return
    history = RangeHistory(stage, element.key)
    row = history.rows.row_of(element)
    if row is None:
        return
    if stage.is_resumed:
        yield f"  {_RESUMED}"
    if not element.retract:
        yield from _lines(stage.ranging, history, row, times)
    corrected = {
        change.row
        for change in history.changes
        if row in change.event.rows and change.sign < 0 and change.row != row
    }
    if element.retract:
        corrected.discard(history.retracted(row))
        yield "  the result of the row that it retracts was retracted"
    if corrected:
        yield f"  its bundle corrected the results of {counted(len(corrected), 'other row')}"


def _lines(rules: Over | None, history: RangeHistory, row: int, times: Times) -> Iterator[str]:
    assert rules is not None
    element = history.rows.element(row)
    yield f"  its range: {_range_text(rules, element, times)}"
    changes = list(history.of_row(row))
    for nth, change in enumerate(changes):
        clock = times.clock(change.event.clock)
        if change.sign < 0:
            if not any(later.sign > 0 for later in changes[nth + 1 :]):
                yield f"  {clock}  it was retracted"
            continue
        why = _cause(history, change, row, times, is_first=nth == 0)
        yield f"  {clock}  {why}: {values_text(dict(change.results))}"
    if not changes:
        yield f"  it comes out once the watermark has passed {times.at(element.time)}"


def _cause(
    history: RangeHistory, change: RangeChange, row: int, times: Times, *, is_first: bool
) -> str:
    event = change.event
    if is_first:
        return "it came out late" if row in event.rows else "the watermark passed it"
    came: Sequence[int] = event.rows
    own = [history.rows.element(other) for other in came if other != row]
    if len(own) == 1:
        what = "the retraction of a row" if own[0].retract else "a late row"
        return f"corrected by {what} of {times.at(own[0].time)}"
    return f"corrected by {counted(len(own), 'row')} that came late"


def _range_text(rules: Over, element: TracedElement, times: Times) -> str:
    if rules.length_us is not None:
        low = times.at(max(element.time - rules.length_us, -(2**63)))
        return f"rows after {low} up to {times.at(element.time)}"
    text = f"the last {counted(rules.rows or 1, 'row')} of its key, itself included"
    if rules.keep_us is not None:
        text += f", less than {format_duration(rules.keep_us)} older"
    return text


def _bounds(window: RangeTimes) -> tuple[int, int]:
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
    return at, at + 1


def _of_sample(stage: StageTrace) -> str:
    return (
        f"the trace has only a sample of the elements of stage `{stage.name}`, so results over "
        "them cannot be computed again"
    )
