"""Hypothesis strategies: windowings of every kind, and scenarios full of disorder.

Times are a few whole units (seconds by default) near one instant, so that they collide: windows
share ends, deadlines fall on watermarks, sessions touch. All strategies shrink towards few, small
elements that arrive in order. Importing this module also registers strategies for
:func:`hypothesis.strategies.from_type`: for scenarios, windowings, windows, triggers and instants.

The file is long because it is what users read of the strategies: their options, and how
they shrink.

Needs the ``testing`` extra.

>>> from hypothesis import given, settings
>>> import lowwater as lw
>>> from lowwater.testing import check_no_loss, strategies as lws
>>> def sums(stream):
...     return stream.key_by("key").window(lw.Sessions("5s")).aggregate(lw.sum("value"))
>>> @settings(deadline=None)
... @given(lws.scenarios(disorder="30s", late=True))
... def test_sums(scenario):
...     check_no_loss(sums, scenario)
>>> test_sums()
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar, final

from lowwater.engine.match.pattern import takes_no_row
from lowwater.engine.match.reading import parse_pattern
from lowwater.engine.window.fill import Fill, UntilIdle, is_fillable
from lowwater.engine.window.windowing import Windowing
from lowwater.errors import InvalidArgument, UnsafeTrigger, describe, load_extra
from lowwater.testing._moments import MomentLike, moment
from lowwater.testing.orders import rebundled, reordered
from lowwater.testing.scenario import Scenario, of_one_input
from lowwater.time import START_OF_TIME, DurationLike, Instant, duration
from lowwater.triggers import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterProcessingTime,
    AfterWatermark,
    Always,
    CustomTrigger,
    Default,
    Never,
    OrFinally,
    Repeatedly,
    Trigger,
    TriggerContext,
)
from lowwater.windows import (
    CalendarWindows,
    ColumnWindows,
    CumulativeWindows,
    FixedWindows,
    GlobalWindow,
    Sessions,
    SlidingWindows,
    Window,
    WindowFunction,
)
from lowwater.windows._base import positive_duration

try:
    import hypothesis.strategies as st
except ImportError:
    load_extra("hypothesis", extra="testing", purpose="lowwater.testing.strategies")
    raise  # it is there, and lacks something

_SPAN = 40
_P = ParamSpec("_P")
_R = TypeVar("_R")
_REASON = "drawn by lowwater.testing"


def _kept(make: Callable[_P, _R]) -> Callable[_P, _R]:
    """Cache the strategies that a function returns, because Hypothesis validates each new one.

    Not for arguments that cannot be hashed.
    """
    made: dict[Hashable, _R] = {}

    @wraps(make)
    def kept(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        wanted = (args, tuple(sorted(kwargs.items())))
        try:
            found = made.get(wanted)
        except TypeError:
            return make(*args, **kwargs)
        if found is None:
            found = made[wanted] = make(*args, **kwargs)
        return found

    return kept


@_kept
def durations(
    *, least: int = 1, most: int = 15, unit: DurationLike = "1s"
) -> st.SearchStrategy[int]:
    """Return durations of ``least`` to ``most`` whole units, both included, in microseconds.

    Raises:
        InvalidArgument: There is no whole number from ``least`` to ``most``.
    """
    micros = positive_duration(unit, "unit")
    _check_whole("least", least)
    _check_whole("most", most, least=least)
    return st.integers(least, most).map(lambda number: number * micros)


@_kept
def timestamps(
    *, start: MomentLike = "00:00:00", units: int = _SPAN, unit: DurationLike = "1s"
) -> st.SearchStrategy[Instant]:
    """Return instants of whole units, from ``start`` up to ``units`` of them later, both included.

    They shrink towards ``start``.

    Raises:
        InvalidArgument: ``units`` is not a whole number of zero or more.
    """
    _check_whole("units", units, least=0)
    base, micros = int(moment(start, name="start")), positive_duration(unit, "unit")
    return st.integers(0, units).map(lambda number: Instant(base + number * micros))


@_kept
def windows(
    *,
    merging: bool | None = None,
    gap_column: str | None = None,
    unit: DurationLike = "1s",
) -> st.SearchStrategy[WindowFunction]:
    """Return window functions: fixed, sliding (some with gaps), cumulative, global, sessions.

    Args:
        merging: Whether windows merge; by default some do.
        gap_column: A column of gaps, for sessions with a gap per element; not used by default.
        unit: The unit of sizes, periods, offsets and gaps.

    Raises:
        InvalidArgument: ``gap_column`` is not the name of a column, or is given with
            ``merging=False``.
    """
    if merging is False and gap_column is not None:
        raise InvalidArgument(
            f"{describe('gap_column', gap_column)} is for sessions, which merge",
            where="windows",
            hint="Leave out merging=False, or gap_column",
        )
    plain = st.one_of(
        fixed_windows(unit=unit),
        sliding_windows(unit=unit),
        cumulative_windows(unit=unit),
        st.just(GlobalWindow()),
    )
    joined = sessions(gap_column=gap_column, unit=unit)
    if merging is None:
        return plain | joined
    return joined if merging else plain


@_kept
def fixed_windows(*, unit: DurationLike = "1s") -> st.SearchStrategy[WindowFunction]:
    """Return fixed windows of a few units, with any offset."""
    offset = st.just(0) | durations(least=-5, most=5, unit=unit)
    return st.builds(FixedWindows, durations(unit=unit), offset)


@_kept
def sliding_windows(*, unit: DurationLike = "1s") -> st.SearchStrategy[WindowFunction]:
    """Return sliding windows; some with gaps between them."""
    size, period = durations(most=12, unit=unit), durations(least=2, unit=unit)
    return st.builds(
        SlidingWindows, size, period, st.just(0) | durations(least=0, most=5, unit=unit)
    )


@_kept
def cumulative_windows(*, unit: DurationLike = "1s") -> st.SearchStrategy[WindowFunction]:
    """Return cumulative windows; of some the step does not divide the size."""
    return st.builds(
        lambda parts, rest, step, offset: CumulativeWindows(
            parts * step + min(rest, step), step, offset=offset
        ),
        st.integers(1, 5),
        st.just(0) | durations(most=3, unit=unit),
        durations(most=5, unit=unit),
        st.just(0) | durations(least=0, most=5, unit=unit),
    )


@_kept
def column_windows(
    start: str, end: str, *, longest: DurationLike = "1000d"
) -> st.SearchStrategy[WindowFunction]:
    """Return windows by two columns, which elements must have: instants."""
    return st.just(ColumnWindows(start, end, longest=longest))


@_kept
def sessions(
    *, gap_column: str | None = None, unit: DurationLike = "1s"
) -> st.SearchStrategy[WindowFunction]:
    """Return sessions, merging when they touch or not."""
    touching = st.booleans()
    one_gap = st.builds(Sessions, durations(most=10, unit=unit), merge_touching=touching)
    if gap_column is None:
        return one_gap
    if not isinstance(gap_column, str) or not gap_column:
        raise InvalidArgument(
            f"{describe('gap_column', gap_column)} is not the name of a column",
            where="sessions",
            hint='Name one, as in gap_column="gap"',
        )
    return one_gap | st.builds(Sessions, gap_column=st.just(gap_column), merge_touching=touching)


@_kept
def triggers(
    *,
    depth: int = 2,
    leaves: st.SearchStrategy[Trigger] | None = None,
    unit: DurationLike = "1s",
) -> st.SearchStrategy[Trigger]:
    """Return triggers of every built-in kind, nested up to ``depth``.

    Args:
        depth: The depth of nesting; 1 for triggers without parts.
        leaves: More triggers without parts, such as your ``CustomTrigger``.
        unit: The unit of delays and alignments.

    Raises:
        InvalidArgument: ``depth`` is not a whole number above zero, or ``leaves`` not a strategy.
    """
    _check_whole("depth", depth, least=1)
    _check_drawable("leaves", leaves)
    single = st.one_of(
        st.sampled_from([Default(), AfterWatermark(), Always(), Never()]),
        *_single(unit).values(),
        *([] if leaves is None else [leaves]),
    )
    if depth <= 1:
        return single
    part = st.deferred(lambda: triggers(depth=depth - 1, leaves=leaves, unit=unit))
    return st.one_of(single, *_composite(part).values())


@_kept
def windowings(
    *,
    windows: st.SearchStrategy[WindowFunction] | None = None,
    triggers: st.SearchStrategy[Trigger] | None = None,
    safe: bool = True,
    unit: DurationLike = "1s",
    fills: bool = False,
    **fields: Any,
) -> st.SearchStrategy[Windowing]:
    """Return windowings of every kind.

    Args:
        windows: The window functions; :func:`windows` by default.
        triggers: The triggers; :func:`triggers` by default.
        safe: Whether to wrap triggers that could lose data (S-R3) in ``Repeatedly``.
        unit: The unit of sizes, delays and lateness.
        fills: Whether some fill windows without elements, where windows and trigger allow it.
        **fields: Fields of :class:`Windowing` to fix, as in ``accumulation="retracting"``.

    Raises:
        InvalidArgument: There is no such field, or its value is refused for all windows; or
            ``windows`` or ``triggers`` is not a strategy.
    """
    _check_drawable("windows", windows)
    _check_drawable("triggers", triggers)
    for name, value in fields.items():
        if name not in Windowing.__dataclass_fields__ or name in ("windows", "trigger"):
            raise InvalidArgument(
                f"windowings() has no {name}=",
                hint="Fix fields of Windowing; for windows and triggers give strategies",
            )
        Windowing(**{"windows": FixedWindows("1s"), "accumulation": "discarding", name: value})
    drawn: dict[str, st.SearchStrategy[Any]] = {
        "windows": _windows(unit) if windows is None else windows,
        "trigger": _triggers(unit) if triggers is None else triggers,
        "accumulation": st.sampled_from(["discarding", "accumulating", "retracting"]),
        "allowed_lateness": st.just(0) | durations(most=20, unit=unit),
        "closing": st.sampled_from(["if_new", "always"]),
        "on_time": st.sampled_from(["always", "if_new"]),
        "timestamps": st.sampled_from(["end", "earliest", "latest"]),
        "allow_data_loss": st.none() if safe else st.just(_REASON),
        "fill": _fills(unit) if fills else st.none(),
    }
    return st.fixed_dictionaries(drawn | {n: st.just(v) for n, v in fields.items()}).map(_windowing)


def patterns(
    *, variables: Sequence[str] = ("a", "b", "c"), gaps: bool = True, depth: int = 2
) -> st.SearchStrategy[str]:
    """Return row patterns as text, for ``match``; they shrink towards one variable.

    Each names at least one variable, and none prefers to take no row, which ``match`` refuses.

    >>> from hypothesis import find
    >>> find(patterns(variables=["start", "up"]), lambda text: "up" in text)
    'up'

    Args:
        variables: The names of variables.
        gaps: Whether there may be ``..`` in them.
        depth: How deep groups may be in one another.

    Raises:
        InvalidArgument: There are no variables, or ``depth`` is not a whole number.
    """
    _check_whole("depth", depth, least=0)
    if isinstance(variables, str) or not variables:
        raise InvalidArgument(
            f"{describe('variables', variables)} are not names",
            where="patterns",
            hint='Write, say, patterns(("a", "b"))',
        )
    one = st.sampled_from([*variables])
    part: st.SearchStrategy[str] = st.tuples(one, st.sampled_from(_REPEATS)).map("".join)
    if gaps:
        part |= st.tuples(one, one).map(" .. ".join)
    for _ in range(depth):
        whole = st.lists(part, min_size=1, max_size=3)
        group = st.tuples(whole.map(" ".join), st.sampled_from(_REPEATS)).map(
            "({0[0]}){0[1]}".format
        )
        choice = st.tuples(part, part).map("({0[0]} | {0[1]})".format)
        part = part | whole.map(" ".join) | group | choice
    return part.filter(lambda text: not takes_no_row(parse_pattern(text)))


_REPEATS = ["", "?", "*", "+", "{2}", "{1,2}", "{2,}", "??", "*?", "+?"]


@_kept
def scenarios(
    *,
    disorder: DurationLike = "20s",
    late: bool = True,
    keys: Sequence[Any] = ("A", "B", "C"),
    values: st.SearchStrategy[Any] | None = None,
    columns: Mapping[str, st.SearchStrategy[Any]] | None = None,
    start: MomentLike | None = None,
    unit: DurationLike = "1s",
    max_steps: int = 14,
    ends: bool = True,
    inputs: Sequence[str] = (),
) -> st.SearchStrategy[Scenario]:
    """Return scenarios: bundles of elements between advances of the clock and the watermark.

    They shrink towards one bundle of one element, elements in order of event time, no advances.

    Args:
        disorder: Roughly how far behind the latest event time an element may be.
        late: Whether elements may arrive below the watermark, and whether steps may set a lower
            watermark (which has no effect, S-T3).
        keys: The keys.
        values: The values; by default each element's number in order of arrival, which identifies
            the elements of a pane.
        columns: More columns, such as ``{"gap": durations(most=9)}``. A mapping drawn from
            ``values`` makes a column per field, too.
        start: Where event time begins; by default midnight or a little before 1970.
        unit: The unit of all times; choose it so that a few units make a window.
        max_steps: How many steps there may be before the end.
        ends: Whether the input ends.
        inputs: The names of the inputs, for joins, tables and unions. Each advances by itself or
            with the others, and late elements are late for the slowest of them. They shrink
            towards the first input.

    Raises:
        InvalidArgument: There are no keys, ``max_steps`` is not a whole number above zero,
            ``disorder`` or ``unit`` is too short, ``values`` or a column is no strategy, or
            ``inputs`` are not different names.
    """
    _check_keys(keys)
    _check_whole("max_steps", max_steps, least=1)
    _check_drawable("values", values)
    for name, column in _checked_columns(columns).items():
        _check_drawable(f"columns[{name!r}]", column)
    micros = positive_duration(unit, "unit")
    behind = _of_units(disorder, micros)
    begin = [int(moment("00:00:00")), -20 * micros] if start is None else [int(moment(start))]
    if isinstance(inputs, str):
        raise InvalidArgument(
            f"{describe('inputs', inputs)} is one text, not several names",
            where="scenarios",
            hint='Write inputs=("left", "right")',
        )
    Scenario(*inputs)  # raises unless they are different names
    return _scenarios(
        begin, micros, behind, late, tuple(keys), values, dict(columns or {}), max_steps, ends,
        tuple(inputs),
    )  # fmt: skip


def reorderings(scenario: Scenario) -> st.SearchStrategy[Scenario]:
    """Return the scenario with its elements in any order; it shrinks towards the given one.

    Raises:
        InvalidArgument: It is not a scenario.
    """
    scenario = of_one_input(scenario)
    numbers = list(range(len(scenario.elements)))
    return st.permutations(numbers).map(lambda order: reordered(scenario, order))


def bundlings(scenario: Scenario) -> st.SearchStrategy[Scenario]:
    """Return the scenario with its elements in other bundles; it shrinks towards bundles of one.

    Raises:
        InvalidArgument: It is not a scenario.
    """
    scenario = of_one_input(scenario)
    most = max(1, min(6, len(scenario.elements)))
    sizes = st.lists(st.integers(1, most), min_size=1, max_size=6)
    return sizes.map(lambda some: rebundled(scenario, some))


@st.composite
def _scenarios(
    draw: st.DrawFn,
    begin: list[int],
    micros: int,
    disorder: int,
    late: bool,
    keys: tuple[Any, ...],
    values: st.SearchStrategy[Any] | None,
    columns: Mapping[str, st.SearchStrategy[Any]],
    max_steps: int,
    ends: bool,
    inputs: tuple[str, ...],
) -> Scenario:
    base = draw(st.sampled_from(begin))
    clock = latest = arrived = 0
    several = len(inputs) > 1
    watermarks: dict[str | None, int] = dict.fromkeys(inputs if several else (None,), 0)
    first_mark = draw(st.sampled_from([START_OF_TIME, base])) if late else START_OF_TIME
    scenario = Scenario(*inputs, start=Instant(base), watermark=Instant(first_mark))
    for _ in range(draw(st.integers(1, max_steps))):
        at = None
        if draw(st.booleans()):
            clock += draw(st.integers(0, 8))
            at = Instant(base + clock * micros)
        kind = draw(st.sampled_from(["add", "add", "add", "watermark", "clock"]))
        if kind == "add":
            of = draw(st.sampled_from(inputs)) if several else None
            bundle = []
            for _ in range(draw(st.integers(1, 4))):
                latest += draw(st.integers(0, 6))
                second = latest - draw(st.integers(0, disorder))
                if not late:
                    second = max(second, watermarks[of])
                else:  # where things collide: about the watermark
                    near = draw(st.sampled_from([None, None, 0, -8]))
                    if near is not None:
                        second = min(watermarks.values()) + near + draw(st.integers(0, 8))
                latest = max(latest, second)
                time = Instant(base + second * micros)
                value = arrived if values is None else draw(values)
                more = {name: draw(column) for name, column in columns.items()}
                bundle.append((value, time, draw(st.sampled_from(keys)), more))
                arrived += 1
            scenario = scenario.add(*bundle, at=at, to=of)
        elif kind == "watermark":
            moved = draw(st.sampled_from([None, *inputs])) if several else None
            to = draw(st.integers(-3 if late else 0, 12))
            to += min(watermarks.values()) if moved is None else watermarks[moved]
            for one in watermarks if moved is None else (moved,):
                watermarks[one] = max(watermarks[one], to) if several else to
            latest = max(latest, to)
            scenario = scenario.watermark(Instant(base + to * micros), at=at, of=moved)
        elif at is not None:
            scenario = scenario.clock(at)
    return scenario.end() if ends else scenario


def _check_whole(name: str, number: object, *, least: int | None = None) -> None:
    whole = isinstance(number, int) and not isinstance(number, bool)
    if not whole or (least is not None and number < least):  # type: ignore[operator]  # an int
        from_least = "" if least is None else f" of {least} or more"
        raise InvalidArgument(
            f"{describe(name, number)} is not a whole number{from_least}",
            where="lowwater.testing.strategies",
            hint=f"Give one, as in {name}={1 if least is None else max(least, 1)}",
        )


def _check_drawable(name: str, strategy: object) -> None:
    """Raise if something is neither ``None`` nor a strategy that something can be drawn from."""
    if strategy is None:
        return
    if not isinstance(strategy, st.SearchStrategy):
        raise InvalidArgument(
            f"{describe(name, strategy)} is not a strategy",
            where="lowwater.testing.strategies",
            hint=f"Give one, such as hypothesis.strategies.just({strategy!r})",
        )
    if strategy is st.nothing():
        raise InvalidArgument(
            f"{name} is nothing(): there is nothing to draw from it",
            where="lowwater.testing.strategies",
            hint="Give a strategy of at least one value, or leave it out",
        )


def _check_keys(keys: object) -> None:
    if not isinstance(keys, Collection) or not len(keys):
        raise InvalidArgument(
            f"{describe('keys', keys)} is not a sequence of at least one key",
            where="scenarios",
            hint='Name some, as in keys=("A", "B"); one alone is keys=("A",)',
        )


def _checked_columns(columns: object) -> Mapping[str, Any]:
    if columns is not None and not isinstance(columns, Mapping):
        raise InvalidArgument(
            f"{describe('columns', columns)} is not a mapping of strategies",
            where="scenarios",
            hint='Write columns={"gap": durations(most=9)}',
        )
    return columns or {}


def _fills(unit: DurationLike) -> st.SearchStrategy[Fill | None]:
    few = st.sampled_from(["1 window", "2 windows", "5 windows"])
    return st.none() | few | st.builds(UntilIdle, durations(most=60, unit=unit))


def _windowing(fields: dict[str, Any]) -> Windowing:
    if fields["fill"] is not None and not is_fillable(
        fields["windows"], fields["trigger"], fields["on_time"]
    ):
        fields = {**fields, "fill": None}
    try:
        return Windowing(**fields)
    except UnsafeTrigger:
        return Windowing(**(fields | {"trigger": Repeatedly(fields["trigger"])}))


def _single(unit: DurationLike) -> dict[type[Any], st.SearchStrategy[Any]]:
    return {
        AfterCount: st.builds(AfterCount, st.integers(1, 4)),
        AfterProcessingTime: st.builds(
            AfterProcessingTime,
            durations(least=0, most=10, unit=unit),
            st.none() | durations(most=7, unit=unit),
        ),
    }


def _composite(
    part: st.SearchStrategy[Trigger],
) -> dict[type[Any], st.SearchStrategy[Any]]:
    several = st.lists(part, min_size=2, max_size=3)
    return {
        AfterWatermark: st.builds(AfterWatermark, st.none() | part, st.none() | part),
        Repeatedly: st.builds(Repeatedly, part),
        AfterAny: several.map(lambda parts: AfterAny(*parts)),
        AfterAll: several.map(lambda parts: AfterAll(*parts)),
        AfterEach: several.map(lambda parts: AfterEach(*parts)),
        OrFinally: st.builds(OrFinally, part, part),
    }


def _windows(unit: DurationLike) -> st.SearchStrategy[WindowFunction]:
    return windows(unit=unit)


def _triggers(unit: DurationLike) -> st.SearchStrategy[Trigger]:
    return triggers(unit=unit)


def _of_units(length: DurationLike, micros: int) -> int:
    behind = duration(length, name="disorder")
    return (positive_duration(length, "disorder") if behind else 0) // micros


def _window(start: Instant, size: int) -> Window:
    return Window(start, Instant(start + size))


@final
@dataclass(frozen=True, slots=True)
class _EveryNth:
    """A trigger's logic such as a user may write: ready once so many elements came."""

    number: int

    def on_element(self, context: TriggerContext, at: int) -> None:
        context.state = (context.state or 0) + 1

    def ready(self, context: TriggerContext) -> bool:
        return (context.state or 0) >= self.number

    def on_fire(self, context: TriggerContext) -> bool:
        context.state = 0
        return False

    def on_merge(self, context: TriggerContext, states: list[Any]) -> None:
        context.state = sum(state or 0 for state in states)


def _register() -> None:
    """Register the values of the model with ``from_type``."""
    made: dict[type[Any], st.SearchStrategy[Any]] = {
        Instant: timestamps(),
        Window: st.builds(_window, timestamps(), durations()),
        FixedWindows: fixed_windows(),
        SlidingWindows: sliding_windows(),
        CumulativeWindows: cumulative_windows(),
        ColumnWindows: column_windows("start", "end"),
        Sessions: sessions(),
        CalendarWindows: st.sampled_from(
            [CalendarWindows(days=1), CalendarWindows(weeks=1), CalendarWindows(months=1)]
        ),
        WindowFunction: windows(),
        Windowing: windowings(),
        Scenario: scenarios(),
    }
    made |= {**_single("1s"), **_composite(triggers(depth=1))}
    made[CustomTrigger] = st.builds(CustomTrigger, st.builds(_EveryNth, st.integers(1, 4)))
    for kind, strategy in made.items():
        st.register_type_strategy(kind, strategy)


_register()
