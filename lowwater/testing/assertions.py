"""Assertions on panes and late records, with messages that show the differences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Any, TypeAlias, final

from lowwater.engine.records.panes import LateRecord, Pane
from lowwater.errors import InvalidArgument, nearest
from lowwater.pipeline import Result
from lowwater.pipeline.forms import Element
from lowwater.testing._moments import moment, show
from lowwater.testing.pipeline_run import PipelineRun
from lowwater.testing.scenario import ScenarioRun
from lowwater.time import Instant
from lowwater.windows import Window

PANE_FIELDS = (
    "emitted_at",
    "window",
    "value",
    "timing",
    "index",
    "on_time_index",
    "is_first",
    "is_last",
    "kind",
    "key",
    "timestamp",
    "watermark",
)
"""The fields of a pane in the order in which a tuple gives them; one may leave out the last."""
ELEMENT_FIELDS = ("timestamp", "key", "value", "kind", "output")
"""The fields of an element in the order in which a tuple gives them."""
LATE_FIELDS = ("value", "window", "reason", "time", "key", "watermark")
"""The fields of a late record in the order in which a tuple gives them."""
_TIMES = frozenset({"emitted_at", "timestamp", "watermark", "time"})

Expected: TypeAlias = Pane | LateRecord | Element | Mapping[str, Any] | Sequence[Any]


def assert_panes(
    actual: ScenarioRun | PipelineRun | Result | Iterable[Pane],
    expected: Iterable[Expected],
    *,
    fields: Sequence[str] = PANE_FIELDS,
) -> None:
    """Assert that the panes equal the expected ones, in order.

    Only the fields that an expectation gives are compared; one that gives no ``kind`` is of an
    insertion, not of a retraction.

    Args:
        actual: A run, the result of ``collect()`` or ``replay``, or panes.
        expected: Each a ``Pane``, a mapping of some fields, or a tuple of the first few of
            ``fields``. Times may be text such as ``"12:06:39"``, windows pairs of such.
        fields: What the places of a tuple mean.

    Raises:
        AssertionError: They differ; the message shows where.

    >>> assert_panes([], [("12:06:00", ("12:00", "12:02"), 5, "ON_TIME")])
    Traceback (most recent call last):
    ...
    AssertionError: the panes differ (- expected, + actual)
    - emitted_at=12:06:00  window=12:00:00..12:02:00  value=5  timing=ON_TIME
    """
    panes = actual.panes if isinstance(actual, (ScenarioRun, PipelineRun, Result)) else actual
    _assert_same("panes", list(panes), list(expected), tuple(fields), PANE_FIELDS)


def assert_elements(
    actual: PipelineRun | Result | Iterable[Element],
    expected: Iterable[Expected],
    *,
    fields: Sequence[str] = ELEMENT_FIELDS,
) -> None:
    """Assert that the records of a join, a table or a process equal the expected ones, in order.

    As :func:`assert_panes` does. Of a value that is given as a mapping, only the fields that it
    names are compared.

    Args:
        actual: A run, the result of ``collect()``, or elements.
        expected: Each a mapping of some fields, or a tuple of the first few of ``fields``.
        fields: What the places of a tuple mean.

    Raises:
        AssertionError: They differ; the message shows where.

    >>> assert_elements([], [("12:00:20", "s1", {"query": "boots"}, "insert")])
    Traceback (most recent call last):
    ...
    AssertionError: the elements differ (- expected, + actual)
    - timestamp=12:00:20  key=s1  value={'query': 'boots'}  kind=insert
    """
    if isinstance(actual, Result):
        found = actual.elements()
    else:
        found = actual.elements if isinstance(actual, PipelineRun) else list(actual)
    wanted = [_given(one, tuple(fields), ELEMENT_FIELDS) for one in expected]
    named = dict.fromkeys(
        name for one in wanted if isinstance(one.get("value"), Mapping) for name in one["value"]
    )
    for one in wanted:
        if isinstance(one.get("value"), Mapping):
            one["value"] = _Part(one["value"])
    shown = [replace(one, value=_named(one.value, named)) for one in found]
    _compare("elements", shown, wanted, tuple(fields))


def assert_late(
    actual: ScenarioRun | PipelineRun | Result | Iterable[LateRecord],
    expected: Iterable[Expected],
    *,
    fields: Sequence[str] = LATE_FIELDS,
) -> None:
    """Assert that the late records equal the expected ones, as :func:`assert_panes` does."""
    late = actual.late if isinstance(actual, (ScenarioRun, PipelineRun, Result)) else actual
    _assert_same("late records", list(late), list(expected), tuple(fields), LATE_FIELDS)


def _assert_same(
    what: str,
    actual: list[Any],
    expected: list[Expected],
    order: tuple[str, ...],
    known: tuple[str, ...],
) -> None:
    _compare(what, actual, [_given(one, order, known) for one in expected], order)


def _compare(
    what: str, actual: list[Any], wanted: list[dict[str, Any]], order: tuple[str, ...]
) -> None:
    if any(getattr(one, "kind", "insert") != "insert" for one in actual):
        wanted = [{"kind": "insert", **want} for want in wanted]
    if len(actual) == len(wanted) and not any(map(_differing, actual, wanted)):
        return
    default = tuple(dict.fromkeys(name for want in wanted for name in want)) or order
    lines = _difference(actual, wanted, default)
    raise AssertionError("\n".join([f"the {what} differ (- expected, + actual)", *lines]))


@final
class _Part:
    """Some fields of a mapping, equal to each mapping that has them.

    Args:
        fields: The fields.
    """

    __hash__ = None  # type: ignore[assignment]  # what is equal to it has other hashes

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and all(
            name in other and is_same(other[name], value) for name, value in self._fields.items()
        )

    def __str__(self) -> str:
        return str(dict(self._fields))


def _named(value: Any, names: Iterable[str]) -> Any:
    """Return some fields of a mapping, if they are named."""
    if not isinstance(value, Mapping) or not (found := [name for name in names if name in value]):
        return value
    return {name: value[name] for name in found}


def _given(one: Expected, order: tuple[str, ...], known: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields that an expectation gives, times and windows as the engine has them."""
    if isinstance(one, (Pane, LateRecord, Element)):
        return {name: getattr(one, name) for name in (*known, "values") if hasattr(one, name)}
    if isinstance(one, Mapping):
        given = dict(one)
    elif len(one) > len(order):
        raise InvalidArgument(
            f"{one!r} has {len(one)} places, but there are {len(order)} fields",
            hint="Give a mapping of field names instead",
        )
    else:
        given = dict(zip(order, one, strict=False))
    for name in given:
        if name not in (*known, "values"):
            raise InvalidArgument(f"there is no field {name!r}", hint=nearest(name, known))
    return {name: _typed(name, value) for name, value in given.items()}


def _typed(name: str, value: Any) -> Any:
    if name in _TIMES:
        return moment(value, name=name)
    if name == "window" and value is not None and not isinstance(value, Window):
        start, end = value
        return Window(moment(start), moment(end))
    return value


def _differing(actual: Any, wanted: Mapping[str, Any]) -> list[str]:
    return [name for name, value in wanted.items() if not is_same(getattr(actual, name), value)]


def is_same(one: Any, other: Any) -> bool:
    """Return whether two values are equal; a NaN is the same as a NaN, also within others."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(is_same(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)) and type(one) is type(other):
        return len(one) == len(other) and all(map(is_same, one, other))
    return bool(one == other) or (one != one and other != other)


def _difference(
    actual: list[Any], wanted: list[dict[str, Any]], default: tuple[str, ...]
) -> list[str]:
    """Return the two lists, aligned, with the differing fields of neighbours named."""
    came = [_texts(one, default) for one in actual]
    want = [{name: _text(value) for name, value in one.items()} for one in wanted]
    want = [{**dict.fromkeys(default, ""), **one} for one in want]
    matcher = SequenceMatcher(
        None, list(map(_hashable, want)), list(map(_hashable, came)), autojunk=False
    )
    names = tuple(dict.fromkeys((*default, *(name for one in want for name in one))))
    widths = {
        name: max(len(one.get(name, "")) for one in (*want, *came)) + len(name) for name in names
    }

    def line(mark: str, one: Mapping[str, str]) -> str:
        cells = [(f"{n}={one[n]}" if one.get(n) else "").ljust(widths[n] + 1) for n in names]
        return f"{mark} {'  '.join(cells)}".rstrip()

    lines: list[str] = []
    for _, low, high, start, stop in matcher.get_opcodes():
        pairs = max(high - low, stop - start)
        for at in range(pairs):
            one = want[low + at] if low + at < high else None
            other = came[start + at] if start + at < stop else None
            if one and other:
                wrong = [n for n in names if one.get(n) and one[n] != other.get(n)]
                if not wrong:
                    lines.append(line(" ", other))
                    continue
                lines += [line("-", one), line("+", other), "?   differs in " + ", ".join(wrong)]
            elif one:
                lines.append(line("-", one))
            elif other:
                lines.append(line("+", other))
    return lines


def _texts(one: Any, names: tuple[str, ...]) -> dict[str, str]:
    return {name: _text(getattr(one, name)) for name in names}


def _text(value: Any) -> str:
    if isinstance(value, Window):
        return f"{show(value.start)}..{show(value.end)}"
    return str(show(value)) if isinstance(value, Instant) else str(value)


def _hashable(one: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(one.items()))
