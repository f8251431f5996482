"""No two sinks of a run write to one place, nor one into what is another's or what is read."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePath, PurePosixPath

from lowwater.engine.graph.sources import Source
from lowwater.engine.local.delivery import Place, Sink
from lowwater.errors import InvalidArgument, describe
from lowwater.io.paths import fixed_part, is_remote
from lowwater.io.uris import RemotePlace

_SUFFIXES = (".jsonl", ".parquet", ".csv")
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


def check_inputs(outputs: Iterable[Sequence[Sink]], sources: Iterable[Source]) -> None:
    """Raise if a run would read what it writes, or read from within a folder that it writes to.

    Args:
        outputs: The sinks of each output of the run.
        sources: What the run reads.

    Raises:
        InvalidArgument: A sink writes to a place that a source reads, or a source reads from one
            within a sink's folder, whatever symbolic links are on the way.
    """
    sinks = [sink for output in outputs for sink in output]
    check_places([_resolved(place, sink) for sink in sinks for place in sink.places()], sources)


def check_places(places: Sequence[Place], sources: Iterable[Source]) -> None:
    """Do what :func:`check_inputs` does for the places of sinks.

    Args:
        places: What the run writes to; resolved, and with names.
        sources: What the run reads.

    Raises:
        InvalidArgument: See :func:`check_inputs`.
    """
    for source in sources:
        reads = getattr(source, "reads", None)
        paths: Iterable[str] = getattr(source, "paths", ())
        for place in places:
            if isinstance(place.at, str):
                continue
            if callable(reads) and any(map(reads, _files_in(place.at, place.patterns))):
                raise InvalidArgument(
                    f"the output {place.name!r} lies where the run reads "
                    f"{', '.join(map(repr, paths))}: what it writes would be read",
                    where="run",
                    hint="Write to a folder beside the one that is read",
                )
            for path in paths if place.patterns else ():
                at, output = _read_at(path), place.at
                if is_remote(path) and "endpoint_override=" not in path:
                    at, output = _of_any_server(at), _of_any_server(output)
                if at == output or output in at.parents:
                    raise InvalidArgument(
                        f"the input {path!r} lies in the output folder {place.name!r}",
                        where="run",
                        hint="Write to a folder beside the one that is read",
                    )


def check_state(state: str, outputs: Iterable[Sequence[Sink]], sources: Iterable[Source]) -> None:
    """Raise if a state directory and what a run writes or reads lie within one another.

    Args:
        state: The state directory.
        outputs: The sinks of each output of the run.
        sources: What the run reads.

    Raises:
        InvalidArgument: An output or an input is in the state directory, or that is in an output.
    """
    at = Path(state).resolve()
    for sink in (sink for output in outputs for sink in output):
        for place in (_resolved(place, sink) for place in sink.places()):
            if isinstance(place.at, Path) and (
                place.at == at or place.at in at.parents or at in place.at.parents
            ):
                raise InvalidArgument(
                    f"the state directory {state!r} and the output {place.name!r} lie within one "
                    "another",
                    where="run(state=)",
                    hint='Give each its own place, such as "state/" and "out/"',
                )
    for source in sources:
        for path in getattr(source, "paths", ()):
            found = fixed_part(path)
            if found == at or at in found.parents:
                raise InvalidArgument(
                    f"the input {path!r} lies in the state directory {state!r}",
                    where="run(state=)",
                    hint='Give each its own place, such as "state/" and "in/"',
                )


def _read_at(path: str) -> PurePath:
    """Return a path or URI that is read, up to the first part that is a pattern."""
    if not is_remote(path):
        return fixed_part(path)
    at = RemotePlace.of(path).at
    magic = [number for number, part in enumerate(at.parts) if glob.has_magic(part)]
    return PurePosixPath(*at.parts[: magic[0]]) if magic else at


def _of_any_server(at: PurePath) -> PurePath:
    """Return a place in a store without its server, which not every source names."""
    return at if isinstance(at, Path) else PurePosixPath(at.parts[0].split(":")[0], *at.parts[1:])


def _files_in(at: PurePath, patterns: Sequence[str]) -> Iterator[Path | str]:
    """Yield files as a sink may write them to a place; those of a store by their names."""
    names = [f"{one.replace('*', 'x')}{suffix}" for one in patterns for suffix in _SUFFIXES]
    if isinstance(at, Path):
        yield from [at / name for name in names] or [at]
        return
    scheme = at.parts[0].partition(":")[0]
    yield from (
        f"{scheme}://{at.joinpath(name).relative_to(at.parts[0])}" for name in names or [""]
    )


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


def _first_name_below(inner: PurePath | str, outer: PurePath | str) -> str | None:
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
