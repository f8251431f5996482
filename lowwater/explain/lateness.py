"""Evaluates other watermark delays and allowed latenesses on the elements of a trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from lowwater.display import html
from lowwater.engine.graph.graph import Read
from lowwater.engine.graph.trace import StageTrace, Trace
from lowwater.errors import InvalidArgument, describe, load_extra
from lowwater.io.terminal import table
from lowwater.time import (
    DAY_US,
    END_OF_TIME,
    START_OF_TIME,
    DurationLike,
    Int64Array,
    as_micros,
    duration,
    format_duration,
    rounded_up,
    saturating_add_array,
)
from lowwater.watermark import Ascending, BoundedDisorder

if TYPE_CHECKING:
    import pandas as pd

WaitBy: TypeAlias = Literal["clock", "event time"]

_QUANTILES = (0.0, 0.5, 0.9, 0.99, 1.0)
_FEW = 0.01
_NOTHING = "the stage received no elements, so there is nothing to evaluate"


@final
@dataclass(frozen=True, slots=True)
class LatenessRow:
    """The effect of one combination of watermark delay and allowed lateness.

    Args:
        delay: How far the watermark is behind the latest element, microseconds.
        lateness: The allowed lateness, microseconds.
        late: Elements that would have arrived after one of their windows was complete, and been
            emitted in a late pane.
        dropped: Elements that would have been dropped from a window.
        median_wait: How much later than without a delay half of the windows emit their on-time
            pane, at most, microseconds; ``None`` if no window was complete before the input ended.
        p99_wait: The same for 99 % of the windows.
    """

    delay: int
    lateness: int
    late: int
    dropped: int
    median_wait: int | None
    p99_wait: int | None


@final
@dataclass(frozen=True, slots=True, repr=False)
class LatenessProfile:
    """The effects of candidate delays and latenesses; prints as a table with a suggestion.

    Args:
        rows: A row for each candidate, by delay and then lateness.
        elements: The number of elements.
        disorder: The most that an element was behind the latest one before it, microseconds.
        wait_by: How waits are measured: by the clock; or by event time, if the data was read much
            faster than it was produced.
        present: The choice that the run was made with; ``None`` if its watermark has no delay.
        around: The choices that share one of the two with the present one, and are no candidates.
        arrived: How many elements arrived, if the trace has a sample of them and so ``elements`` is
            less; else ``None``.
    """

    rows: tuple[LatenessRow, ...]
    elements: int
    disorder: int
    wait_by: WaitBy
    present: LatenessRow | None = None
    around: tuple[LatenessRow, ...] = ()
    arrived: int | None = None

    @property
    def suggestion(self) -> LatenessRow:
        """The candidate with the shortest delay at which at most 1 % are late and none dropped.

        If there is none, the candidate that drops the fewest elements.
        """
        enough = [row for row in self.rows if row.dropped == 0]
        most = _FEW * self.elements
        few = [row for row in enough if row.late <= most]
        if few:
            return min(few, key=lambda row: (row.delay, row.lateness))
        return min(enough or self.rows, key=lambda row: (row.dropped, row.late, row.delay))

    def to_frame(self) -> pd.DataFrame:
        """Convert the rows to a pandas DataFrame; durations become timedeltas."""
        load_extra("pandas", extra="pandas", purpose="to_frame")
        import pandas as pd

        names = LatenessRow.__dataclass_fields__
        frame = pd.DataFrame({n: [getattr(row, n) for row in self.rows] for n in names})
        for name in ("delay", "lateness", "median_wait", "p99_wait"):
            frame[name] = pd.to_timedelta(frame[name], unit="us")
        return frame

    def _repr_html_(self) -> str:
        name = "Watermark delay and allowed lateness"
        if not self.elements:
            return html.display(name, html.note(_NOTHING))
        now = () if self.present is None else (self.present,)
        known = {(row.delay, row.lateness): row for row in (*now, *self.around, *self.rows)}
        delays, latenesses = (sorted({place[at] for place in known}) for at in (0, 1))
        over = (html.TableCell(f"lateness {format_duration(at)}", "lw-over") for at in latenesses)
        head = ["delay", *over, "median wait"]
        waits = {row.delay: _span(row.median_wait) for row in known.values()}
        lines = (
            [
                format_duration(delay),
                *(_heat(known.get((delay, lateness)), self) for lateness in latenesses),
                waits[delay],
            ]
            for delay in delays
        )  # fmt: skip
        of = f"Of {self._total()}; the stronger the colour, the more are dropped."
        return html.display(
            name, html.table(head, lines), html.note(of), *map(html.note, self._said())
        )

    def _total(self) -> str:
        sample = "" if self.arrived is None else f" (a sample of {self.arrived:,})"
        return f"{self.elements:,} elements{sample}"

    def _said(self) -> tuple[str, str]:
        said = self.suggestion
        what = f"{said.late:,} late, {said.dropped:,} dropped of {self._total()}"
        by = "the clock" if self.wait_by == "clock" else "event time"
        disorder = format_duration(self.disorder)
        choice = (
            f"watermark=BoundedDisorder({format_duration(said.delay)!r}), "
            f"allowed_lateness={format_duration(said.lateness)!r}"
        )
        return (
            f"waits are measured by {by}; elements are up to {disorder} out of order",
            f"suggestion: {choice}: {what}",
        )

    def __repr__(self) -> str:
        if not self.elements:
            return _NOTHING
        head = ["delay", "lateness", "late", "dropped", "median wait", "p99 wait"]
        lines = [
            [
                format_duration(row.delay), format_duration(row.lateness), row.late, row.dropped,
                _span(row.median_wait), _span(row.p99_wait),
            ]
            for row in self.rows
        ]  # fmt: skip
        return "\n".join((table(head, lines), *self._said()))


def _heat(row: LatenessRow | None, profile: LatenessProfile) -> html.TableCell:
    """Return the cell of a choice: the hotter, the more elements would be dropped."""
    if row is None:
        return html.TableCell("")
    said, present = profile.suggestion, row == profile.present
    parts: list[Any] = [f"{row.dropped:,} dropped", f"{row.late:,} late"]
    if present:
        parts.append(html.badge("now", "quiet"))
    if row == said:
        parts.append(html.badge("suggested", "mark"))
    title = (
        f"watermark delay {format_duration(row.delay)}, allowed lateness "
        f"{format_duration(row.lateness)}"
    )
    most = max((each.dropped for each in (*profile.rows, *profile.around)), default=0)
    return html.heat(
        html.stacked(*parts), row.dropped / most if most else 0.0, marked=present, title=title
    )


def lateness_profile(
    trace: Trace,
    *,
    delays: Sequence[DurationLike] | None = None,
    lateness: Sequence[DurationLike] | None = None,
    stage: str | None = None,
) -> LatenessProfile:
    """Evaluate candidate watermark delays and allowed latenesses on a trace.

    Each element is judged individually, in order of arrival at the stage and before windows merge
    (S-O3), against a watermark that trails the latest earlier element by ``delay``
    (:class:`lowwater.BoundedDisorder`). Duplicates are left out. Of a trace that is a sample, the
    elements that were drawn by chance are counted, each against all that arrived before it.

    Args:
        trace: The trace of the run.
        delays: The watermark delays to try; by default quantiles of the disorder in the trace.
        lateness: The allowed latenesses to try; by default zero, and the least at which the
            shortest delay drops nothing.
        stage: The name of the stage; by default the last one with windows that reads a source.

    Raises:
        InvalidArgument: The stage has no windows, or a candidate is negative or not a duration.

    O(elements log elements) for each candidate.
    """
    of = _stage_of(trace, stage)
    columns = _Columns.of(of)
    tried = candidates("delays", delays) or columns.delays()
    allowed = candidates("lateness", lateness) or columns.latenesses(min(tried))
    wait_by = columns.wait_by()
    now = _present(trace, of)
    rows = []
    for delay in sorted({*tried, *now[:1]}):
        waits = columns.waits(delay, wait_by)
        median, p99 = (
            (None, None)
            if not waits.size
            else (
                int(np.quantile(waits, 0.5)),
                int(np.quantile(waits, 0.99, method="higher")),
            )
        )
        for each in sorted({*allowed, *now[1:]}):
            late, dropped = columns.judged(delay, each)
            rows.append(LatenessRow(delay, each, late, dropped, median, p99))
    chosen = [row for row in rows if row.delay in tried and row.lateness in allowed]
    around = [row for row in rows if row not in chosen]
    return LatenessProfile(
        tuple(chosen),
        len(columns.times),
        int(columns.behind.max(initial=0)),
        wait_by,
        next((row for row in rows if (row.delay, row.lateness) == now), None),
        tuple(around),
        None if of.sample is None else of.arrived,
    )


def _present(trace: Trace, stage: StageTrace) -> tuple[int, int] | tuple[()]:
    """Return the delay and lateness that the stage ran with, if its sources agree on a delay."""
    delays = {_delay(trace.reads[name]) for name in stage.inputs if name in trace.reads}
    (delay,) = delays if len(delays) == 1 else (None,)
    if delay is None or stage.windowing is None:
        return ()
    return delay, stage.windowing.lateness_us


def _delay(read: Read) -> int | None:
    if isinstance(read.watermark, BoundedDisorder):
        return as_micros(read.watermark.delay)
    return 0 if isinstance(read.watermark, Ascending) else None


@final
@dataclass(frozen=True, slots=True)
class _Columns:
    """The elements of a stage in order of arrival, and the windows of each."""

    times: Int64Array
    clocks: Int64Array
    latest: Int64Array  # the latest event time before each element
    element: Int64Array
    ends: Int64Array
    window: Int64Array  # number of the (key, window)
    last: Int64Array  # the end of each such

    @classmethod
    def of(cls, stage: StageTrace) -> _Columns:
        sample = stage.sample
        rows = [
            at
            for at, e in enumerate(stage.elements)
            if e.outcome != "duplicate" and not e.retract and (sample is None or sample.drawn[at])
        ]
        came = [stage.elements[at] for at in rows]
        times = np.array([e.time for e in came], dtype=np.int64)
        if sample is None:
            latest = np.full(len(came), START_OF_TIME, dtype=np.int64)
            latest[1:] = np.maximum.accumulate(times)[:-1] if came else ()
        else:
            latest = sample.latest[rows]
        element: list[int] = []
        window: list[int] = []
        ends: list[int] = []
        numbers: dict[tuple[str, int, int], int] = {}
        for at, each in enumerate(came):
            for one in (*each.windows, *each.dropped):
                place = (repr(each.key), int(one.start), int(one.end))
                element.append(at)
                ends.append(one.end)
                window.append(numbers.setdefault(place, len(numbers)))
        return cls(
            times,
            np.array([e.clock for e in came], dtype=np.int64),
            latest,
            np.array(element, dtype=np.int64),
            np.array(ends, dtype=np.int64),
            np.array(window, dtype=np.int64),
            np.array([end for _, _, end in numbers], dtype=np.int64),
        )

    @property
    def behind(self) -> Int64Array:
        """How far each element is behind the latest earlier one, at least 0."""
        known = self.latest > START_OF_TIME
        gap = saturating_sub(np.where(known, self.latest, self.times), self.times)
        return np.maximum(gap, 0)

    def delays(self) -> list[int]:
        """Return delays to try: quantiles of the disorder, rounded up to readable values."""
        if not len(self.times):
            return [0]
        exact = np.quantile(self.behind, _QUANTILES).tolist()
        return sorted({rounded_duration(min(int(value), END_OF_TIME)) for value in exact})

    def latenesses(self, delay: int) -> list[int]:
        """Return latenesses to try: zero, and the least at which a delay drops nothing."""
        return sorted(
            {
                0,
                rounded_duration(
                    min(int(self._overdue(delay).max(initial=-1)), END_OF_TIME - 1) + 1
                ),
            }
        )

    def judged(self, delay: int, lateness: int) -> tuple[int, int]:
        """Return how many elements would be late, and how many dropped from a window."""
        overdue = self._overdue(delay)
        dropped = np.zeros(len(self.times), dtype=np.bool_)
        dropped[self.element[overdue >= lateness]] = True
        late = np.zeros(len(self.times), dtype=np.bool_)
        late[self.element[overdue >= 0]] = True
        return int((late & ~dropped).sum()), int(dropped.sum())

    def wait_by(self) -> WaitBy:
        """Return how to measure waits: by the clock, unless the data was read much faster."""
        if len(self.times) < 2 or int(self.clocks.min()) == START_OF_TIME:
            return "event time"
        event = int(self.times.max()) - int(self.times.min())
        clock = int(self.clocks.max()) - int(self.clocks.min())
        return "clock" if clock * 100 >= event else "event time"

    def waits(self, delay: int, by: WaitBy) -> Int64Array:
        """Return how much later each window is complete with a delay than without one.

        Only for windows that are complete, with the delay, before the input ends.
        """
        if not len(self.times):
            return np.zeros(0, dtype=np.int64)
        latest = np.maximum.accumulate(self.times)
        moments = self.clocks if by == "clock" else latest
        without = np.searchsorted(latest, self.last)
        delayed = np.searchsorted(latest, saturating_add_array(self.last, delay))
        done = delayed < len(latest)
        return saturating_sub(moments[delayed[done]], moments[without[done]])

    def _overdue(self, delay: int) -> Int64Array:
        """Return how far the watermark is past each window's end when its element comes."""
        watermark = saturating_add_array(self.latest[self.element], -delay)
        known: NDArray[np.bool_] = watermark > START_OF_TIME
        gap = saturating_sub(np.where(known, watermark, 0), np.where(known, self.ends, 0))
        return np.where(known, gap, -1)


def _stage_of(trace: Trace, name: str | None) -> StageTrace:
    if name is not None:
        found = trace.stage(name)
        if found.windowing is None:
            raise InvalidArgument(
                f"stage {name!r} has no windows",
                where="lateness_profile",
                hint="Name a stage with windows: stage=",
            )
        return found
    windowed = [stage for stage in trace.stages if stage.windowing is not None]
    if not windowed:
        raise InvalidArgument(
            "no stage of the run has windows", where="lateness_profile", hint="Add window(...)"
        )
    names = {stage.name for stage in trace.stages}
    first = [stage for stage in windowed if not names & set(stage.inputs)]
    return (first or windowed)[-1]


def candidates(
    name: str, given: Sequence[DurationLike] | None, *, where: str = "lateness_profile"
) -> list[int]:
    """Return candidate durations, ascending; none if none were given.

    Raises:
        InvalidArgument: They are no list of durations, or one is negative.
    """
    if given is None:
        return []
    if isinstance(given, (str, int)) or not given:
        raise InvalidArgument(
            f"{name}={given!r} is not a list of durations",
            where=where,
            hint=f'Write {name}=["0s", "10s", "1m"]',
        )
    found = sorted({duration(value, name=name) for value in given})
    if found[0] < 0:
        raise InvalidArgument(
            f"{describe(name, given)} has a negative duration",
            where=where,
            hint='Use "0s" or more',
        )
    return found


def rounded_duration(micros: int) -> int:
    """Round a duration up to whole units, so that it is easy to read."""
    if micros > END_OF_TIME - DAY_US:  # rounded up it would be no duration any more (S-T1)
        return END_OF_TIME
    return 0 if micros <= 0 else duration(rounded_up(micros))


def saturating_sub(one: Int64Array, other: Int64Array) -> Int64Array:
    """Return ``one - other`` elementwise, kept within int64 (S-T1)."""
    with np.errstate(over="ignore"):
        gap: Int64Array = one - other
    gap[(other < 0) & (gap < one)] = END_OF_TIME
    gap[(other > 0) & (gap > one)] = START_OF_TIME
    return gap


def _span(micros: int | None) -> str | None:
    return None if micros is None else format_duration(micros)
