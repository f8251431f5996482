"""A run never reads what it writes, and no two of its sinks write to one place.

Places are compared by what they are, not by how they are spelled: files without symbolic links and
by their inodes, tables and topics by what their server says of them.
"""

from __future__ import annotations

import glob
import os
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


def places_of(source: Source) -> Iterable[Place]:
    """Return the places that a source reads and that are no files it names as ``paths``."""
    places = getattr(source, "places", None)
    return [_real(place) for place in places()] if callable(places) else ()


def check_places(places: Sequence[Place], sources: Iterable[Source]) -> None:
    """Do what :func:`check_inputs` does for the places of sinks.

    Args:
        places: What the run writes to; resolved, and with names.
        sources: What the run reads.

    Raises:
        InvalidArgument: See :func:`check_inputs`.
    """
    for source in sources:
        for read in places_of(source):
            for place in places:
                _check_read(read, place)
        reads = getattr(source, "reads", None)
        paths: Iterable[str] = getattr(source, "paths", ())
        for place in places:
            if isinstance(place.at, str):
                continue
            written = _as_spelled(place.at, paths)
            if callable(reads) and any(map(reads, _files_in(written, place.patterns))):
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
                if _contains(output, at):
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
    sources = list(sources)
    for sink in (sink for output in outputs for sink in output):
        for place in (_resolved(place, sink) for place in sink.places()):
            if isinstance(place.at, Path) and _lie_within(place.at, at):
                raise InvalidArgument(
                    f"the state directory {state!r} and the output {place.name!r} lie within one "
                    "another",
                    where="run(state=)",
                    hint='Give each its own place, such as "state/" and "out/"',
                )
    for source in sources:
        for path in getattr(source, "paths", ()):
            if _contains(at, fixed_part(path)):
                raise InvalidArgument(
                    f"the input {path!r} lies in the state directory {state!r}",
                    where="run(state=)",
                    hint='Give each its own place, such as "state/" and "in/"',
                )
        for place in places_of(source):
            if isinstance(place.at, Path) and _lie_within(place.at, at):
                raise InvalidArgument(
                    f"the state directory {state!r} and the input {place.name!r} lie within one "
                    "another",
                    where="run(state=)",
                    hint='Give each its own place, such as "state/" and "in/"',
                )


def _check_read(read: Place, written: Place) -> None:
    """Raise if a sink writes what a source that is no file reads."""
    if isinstance(read.at, Path) and isinstance(written.at, Path):
        if _lie_within(read.at, written.at):
            raise InvalidArgument(
                f"the output {written.name!r} and the input {read.name!r} lie within one another",
                where="run",
                hint="Write to a folder beside the one that is read",
            )
        return
    for part in _shared_parts(written, read):
        raise InvalidArgument(
            f"the run reads {part!r} of {read.name} and writes to it: it would read again what it "
            "has written",
            where="run",
            hint="Give the output a place of its own",
        )


def _shared_parts(one: Place, other: Place) -> list[str]:
    """Return which parts of one place are parts of another."""
    names, others = (*one.parts, *one.also), (*other.parts, *other.also)
    if one.at == other.at and (shared := [part for part in names if part in others]):
        return shared
    if one.identify is None or other.identify is None or _kind(one) != _kind(other):
        return []
    alike = {_last_name(part) for part in names} & {_last_name(part) for part in others}
    if not alike:
        return []
    asked = one.identify([part for part in names if _last_name(part) in alike])
    found = other.identify([part for part in others if _last_name(part) in alike]) if asked else {}
    known = {each for identities in found.values() for each in identities}
    return [part for part, identities in asked.items() if not known.isdisjoint(identities)]


def _kind(place: Place) -> str:
    return str(place.at).partition(" ")[0]


def _last_name(part: str) -> str:
    """Return the name of a table without its schema, which may be that of the search path."""
    return part.rpartition(".")[2]


def _contains(outer: PurePath, inner: PurePath) -> bool:
    """Whether a path is another one or lies below it, under whichever name."""
    if inner == outer or outer in inner.parents:
        return True
    if not (isinstance(outer, Path) and isinstance(inner, Path)):
        return False
    return any(_is_same(outer, one) for one in (inner, *inner.parents))


def _lie_within(one: Path, other: Path) -> bool:
    return _contains(one, other) or _contains(other, one)


def _is_same(one: Path, other: Path) -> bool:
    """Whether two paths are one file or folder: a hard link, a mount, another case of letters."""
    try:
        return os.path.samestat(one.stat(), other.stat())
    except OSError:
        return False


def _as_spelled(at: PurePath, paths: Iterable[str]) -> PurePath:
    """Return a path as a source spells it that reads the place or something around it."""
    if isinstance(at, Path):
        for root in (fixed_part(path) for path in paths if not is_remote(path)):
            for outer in (at, *at.parents):
                if outer != root and outer.name and _is_same(outer, root):
                    return root / at.relative_to(outer)
    return at


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
    real = _real(place)
    return replace(real, name=real.name or repr(sink))


def _real(place: Place) -> Place:
    """Return a place without symbolic links on the way, and with the name of its path."""
    if not isinstance(place.at, Path):
        return place
    return replace(place, at=place.at.resolve(), name=place.name or str(place.at))


def _check_two(one: Place, other: Place) -> None:
    is_one = one.at == other.at or _are_same(one.at, other.at)
    if is_one and (not one.parts or not other.parts):
        raise InvalidArgument(f"two outputs write to {other.name!r}", where="run", hint=_HINT)
    _check_parts(replace(one, at=other.at) if is_one else one, other)
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


def _are_same(one: PurePath | str, other: PurePath | str) -> bool:
    return isinstance(one, Path) and isinstance(other, Path) and _is_same(one, other)


def _check_parts(one: Place, other: Place) -> None:
    """Raise if two sinks have a table in common: that of panes, or one of what goes beside it."""
    noun = "topic" if _kind(other) == "kafka" else "table"
    for part in _shared_parts(replace(one, also=()), replace(other, also=())):
        raise InvalidArgument(
            f"two outputs write to the {noun} {part!r} in {other.name!r}",
            where="run",
            hint=f"Give each a {noun} of its own, such as one that does not end in _late or "
            "_errors",
        )
