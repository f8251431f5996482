"""Traces an element through a run: its windows and panes, or where and why it was dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeAlias, TypeVar, final

from lowwater.display.text import counted, shown
from lowwater.engine.graph.trace import Trace, TracedElement
from lowwater.engine.graph.traced_parts import TracedRecords, numbered
from lowwater.engine.records.panes import ErrorRecord, Pane
from lowwater.errors import InvalidArgument
from lowwater.explain.journeys import MOST, Journeys
from lowwater.explain.text import Explanation, sample_lines

Predicate: TypeAlias = Callable[[Any], Any]

_NOT_FOUND = "no source read such an element, and no stage received one"


def why(trace: Trace, element: Any, *, stage: str | None = None) -> Explanation:
    """Explain where an element went: its windows and panes, or why it is in none.

    The explanation follows the panes that contain the element through all downstream stages.
    O(records + elements + panes + lines returned).

    Args:
        trace: The trace of the run.
        element: What to look for: a record as the source read it; a mapping, or a row of a pandas
            DataFrame, which matches every record that has these fields; a function, which matches
            every record that it returns true for; or a :class:`TracedElement`. Records that a stage
            emitted match too.
        stage: The only stage to look at; all by default.

    Raises:
        InvalidArgument: There is no such stage, or the function raises for every record.
    """
    journeys = Journeys(trace, stage)
    if isinstance(element, TracedElement):
        found = [(each.name, element) for each in journeys.stages if element in each.elements]
        return _explained(journeys, found, [])
    element = _as_mapping(element)
    matches = _Matches(element if callable(element) else _matcher(element))
    dead_letters = EqualityIndex((error.record, error) for error in trace.errors)
    meant: list[tuple[Any, None]] = []
    stories: list[tuple[str, TracedElement]] = []
    lost: list[str] = []
    for name, records in trace.read.items():
        for at, record in numbered(records):
            if not matches.says(record):
                continue
            meant.append((record, None))
            own = journeys.made_of(name, at)
            told = [story for of, one in own for story in journeys.elements_of(of, one)]
            stories += told
            if not own:
                lost.append(_lost(dead_letters.of(record), name, at, record, journeys))
            elif not told:
                lost.append(
                    f"{shown(record)} reached {_names(own)}; nothing derived from it "
                    + ("is in the trace of " if journeys.is_sample else "reached ")
                    + f"`{stage}`"
                )
    stories += [
        (each.name, one)
        for each in journeys.stages
        for one in each.elements
        if not one.origins and matches.says(one.record)
    ]
    known = EqualityIndex(meant)
    lost += [
        _dead(error)
        for error in trace.errors
        if matches.says(error.record) and not known.of(error.record)
    ]
    matches.check()
    if not (stories or lost):
        lost = [*_unkept_records(trace), *_unknown_fields(trace, element)]
    return _explained(journeys, stories, lost)


def _unkept_records(trace: Trace) -> Iterator[str]:
    """Yield that no record matches: none that was read, or none that the trace keeps."""
    some = {
        name: records
        for name, records in trace.read.items()
        if isinstance(records, TracedRecords) and records.total > len(records)
    }
    if not some:
        yield _NOT_FOUND
    for name, records in some.items():
        yield (
            f"the trace keeps {len(records):,} of {counted(records.total, 'record')} of source "
            f"`{name}`, and no such element is among them"
        )


def _unknown_fields(trace: Trace, element: Any) -> Iterator[str]:
    """Yield what is wrong with an element that no record equals: its fields, or its kind."""
    records = [record for read in trace.read.values() for record in read]
    fields = {name: None for record in records if isinstance(record, Mapping) for name in record}
    if not fields or callable(element):
        return
    known = ", ".join(map(shown, fields))
    if not isinstance(element, Mapping):
        yield f"  records are mappings with the fields {known}: pass one of them with its value"
        return
    unknown = [name for name in element if name not in fields]
    if "window_start" in unknown:
        yield (
            "  it is a row of a result, which is a pane: explain(key, window) explains its window, "
            f"which has started at {shown(element['window_start'])}"
        )
    elif unknown:
        names = ", ".join(map(shown, unknown))
        yield f"  no record has {names}; the fields are {known}"


class _Matches:
    """Matches records with a user's function, which may fail on some kinds of records."""

    def __init__(self, function: Predicate) -> None:
        self._function = function
        self._knows_any = False
        self._raised: Exception | None = None

    def says(self, record: Any) -> bool:
        """Return whether a record matches."""
        try:
            said = bool(self._function(record))
        except Exception as error:
            self._raised = self._raised or error
            return False
        self._knows_any = True
        return said

    def check(self) -> None:
        """Raise if the function raised for every record."""
        if self._raised is None or self._knows_any:
            return
        error = self._raised
        raise InvalidArgument(
            f"the function raised {type(error).__name__} for every record: {error}",
            where="why",
            hint="Pass one that takes a record, as in lambda record: record['id'] == 7",
        ) from error


def _lost(
    dead_letters: list[ErrorRecord], source: str, at: int, record: Any, journeys: Journeys
) -> str:
    """Explain what happened to a record that is not known to have reached any stage."""
    if dead_letters:
        return _dead(dead_letters[0])
    unkept = journeys.may_lack(source, at)
    went = (
        f"the sample of {' and '.join(f'`{name}`' for name in unkept)} does not contain it"
        if unkept
        else "a step, such as a filter, dropped it"
        if journeys.knows_origins_of(source)
        else "it cannot be traced further: a map_batches function may have reordered rows"
    )
    return f"{shown(record)} was read from source `{source}` (record {at}); {went}"


def _names(elements: list[tuple[str, TracedElement]]) -> str:
    return " and ".join(dict.fromkeys(f"`{name}`" for name, _ in elements))


def _dead(error: ErrorRecord) -> str:
    return f"{shown(error.record)} became a dead letter ({error.reason}): {error.detail}"


def _explained(
    journeys: Journeys, found: list[tuple[str, TracedElement]], lost: list[str]
) -> Explanation:
    lines: list[str] = []
    elements: dict[int, TracedElement] = {}
    panes: dict[int, Pane] = {}
    told = untold = 0
    for stage, element in found:
        if id(element) in elements:
            continue  # already explained, as a pane of another element
        if told < MOST:
            told += 1
            story = journeys.of(stage, element)
            lines += story.lines
        else:
            untold += 1
            story = Explanation((), (element,), tuple(journeys.panes(stage, element)))
        elements |= {id(one): one for one in story.elements}
        panes |= {id(one): one for one in story.panes}
    lines += lost[:MOST]
    if (more := untold + max(0, len(lost) - MOST)) > 0:
        lines.append(f"… and {counted(more, 'element')} more")
    if not lines:
        lines = [_NOT_FOUND]
    lines += sample_lines(journeys.stages)
    return Explanation(tuple(lines), tuple(elements.values()), tuple(panes.values()))


def _as_mapping(element: Any) -> Any:
    """Return a row of a pandas DataFrame as a mapping, and anything else as it is."""
    is_row = callable(getattr(element, "to_dict", None)) and hasattr(element, "ndim")
    return _row(element) if is_row else element


def _matcher(element: Any) -> Predicate:
    if isinstance(element, Mapping):
        wanted = dict(element)
        return lambda record: (
            isinstance(record, Mapping)
            and all(name in record and same(record[name], value) for name, value in wanted.items())
        )
    return lambda record: same(record, element)


def _row(element: Any) -> Mapping[str, Any]:
    """Return a row of a pandas DataFrame (a Series) by column, without its missing values."""
    if element.ndim != 1:
        raise InvalidArgument(
            f"element is a {type(element).__name__} with {len(element)} rows, not one record",
            where="why",
            hint="Pass one row, such as df.iloc[0], or a function of a record",
        )
    values = element.to_dict()
    # A null is None in the trace, but NaN, NaT or NA in pandas: they are not compared.
    return {name: value for name, value in values.items() if not _is_missing(value)}


def _is_missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):  # NA has no truth value; arrays have several, and are values
        return not hasattr(value, "shape")


_T = TypeVar("_T")


@final
class EqualityIndex(Generic[_T]):
    """Maps values to items by equality. Built in O(values) for hashable and nested plain values.

    Plain values, and lists, tuples, sets and mappings of them, are hashed. Other unhashable
    values, such as arrays, are compared with every value of their kind.

    Args:
        pairs: The values, each with its item.

    >>> found = EqualityIndex([({"id": 1, "tags": ["a"]}, "first"), ([2], "second")])
    >>> found.of({"tags": ["a"], "id": 1.0}), found.of([3])
    (['first'], [])
    """

    def __init__(self, pairs: Iterable[tuple[Any, _T]]) -> None:
        self._by: dict[Any, list[tuple[Any, _T]]] = {}
        for value, what in pairs:
            self._by.setdefault(_kind(value), []).append((value, what))

    def of(self, value: Any) -> list[_T]:
        """Return the items of all values equal to this one, in order."""
        return [what for one, what in self._by.get(_kind(value), []) if same(one, value)]


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal; NaN equals NaN, incomparable values are not equal."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        alike = isinstance(one, list) == isinstance(other, list) and len(one) == len(other)
        return alike and all(map(same, one, other))
    try:
        return one is other or bool(one == other) or bool(one != one and other != other)
    except (TypeError, ValueError):  # such as arrays, which compare element by element
        return False


def _kind(value: Any) -> Any:
    """Return a hashable value that is the same for equal values."""
    if isinstance(value, Mapping):
        return Mapping, frozenset((name, _kind(item)) for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return list if isinstance(value, list) else tuple, tuple(map(_kind, value))
    try:
        if value != value:
            return float
        hash(value)
    except (TypeError, ValueError):
        return frozenset(value) if isinstance(value, set) else None
    return value
