"""No two sinks of a run write to one place, nor one into what is another's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from lowwater.engine.local.delivery import Place, Sink
from lowwater.errors import InvalidArgument, describe

_HINT = 'Give each its own place, such as "first/" and "second/"'


def check_conflicts(outputs: Iterable[Sequence[Sink]]) -> None:
    """Raise if two sinks could disturb one another: what one has written would not stay as it was.

    Two may write to different tables of one database, and a file that is no output of a folder's
    may be in that folder. A folder within a folder is refused, as a reader of the outer one reads
    both. Sinks that name no place are not checked.

    Args:
        outputs: The sinks of each output of the run.

    Raises:
        InvalidArgument: Two paths lead to one place, or one into the other's, whatever symbolic
            links are on the way; two write to one table; or a sink is given twice.
    """
    taken: list[Place] = []
    sinks: list[Sink] = []
    for sink in (sink for output in outputs for sink in output):
        if any(sink is one for one in sinks):
            raise InvalidArgument(
                f"the sink {sink!r} is given twice",
                where="run",
                hint="Give each output sinks of its own",
            )
        sinks.append(sink)
        places = [_resolved(place, sink) for place in sink.places()]
        for place in places:
            for other in taken:
                _check_two(other, place)
        taken += places


def _resolved(place: object, sink: Sink) -> Place:
    if not isinstance(place, Place):
        raise InvalidArgument(
            f"{describe('place', place)} of the sink {sink!r} is no Place",
            where="run",
            hint='Return places such as Place(Path("out"))',
        )
    at = place.at
    if isinstance(at, Path):
        return replace(place, at=at.resolve(), name=place.name or str(at))
    return replace(place, name=place.name or repr(sink))


def _check_two(one: Place, other: Place) -> None:
    if one.at == other.at:
        if not one.parts or not other.parts:
            raise InvalidArgument(f"two outputs write to {other.name!r}", where="run", hint=_HINT)
        _check_parts(one.parts, other)
    for outer, inner in ((one, other), (other, one)):
        name = _first_name_below(inner.at, outer.at)
        if name is not None and not _may_be_within(inner, outer, name):
            raise InvalidArgument(
                f"two outputs write to {outer.name!r}: {inner.name!r} lies within it",
                where="run",
                hint=_HINT,
            )


def _first_name_below(inner: Path | str, outer: Path | str) -> str | None:
    """Return what the outer folder holds and the inner path begins with; ``None`` for nothing."""
    if isinstance(inner, str) or isinstance(outer, str) or outer not in inner.parents:
        return None
    return inner.relative_to(outer).parts[0]


def _may_be_within(inner: Place, outer: Place, name: str) -> bool:
    """Whether a file is none of those that are the outer folder's own."""
    if inner.patterns or not outer.patterns:
        return False
    return not any(fnmatchcase(name, pattern) for pattern in outer.patterns)


def _check_parts(taken: Sequence[str], place: Place) -> None:
    """Raise if two sinks have a table in common: that of panes, or one of what goes beside it."""
    for part in taken:
        if part in place.parts:
            raise InvalidArgument(
                f"two outputs write to the table {part!r} in {place.name!r}",
                where="run",
                hint="Give each a table of its own, such as one that does not end in _late or "
                "_errors",
            )
