"""Few large files in place of many small ones: when deliveries become a file, and how.

Files of each kind are joined into one, whose name says from which delivery to which. Deliveries
that have not become a file yet are in :mod:`lowwater.io.sinks.pending`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import final

import pyarrow as pa

from lowwater.engine.local.memory_budget import SizeLike, size_bytes
from lowwater.errors import InvalidArgument, describe
from lowwater.io.sinks.file_forms import form_of, settled_schema
from lowwater.io.sinks.folder_files import Entry, FileSet, OutputFolder
from lowwater.io.sinks.folder_names import KINDS, NAME
from lowwater.time import DurationLike, duration

clock: Callable[[], float] = time.time
"""Returns seconds since 1970; tests replace it."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """When the deliveries to a folder become a file: a run then publishes fewer, larger files.

    Until then deliveries collect in the hidden folder ``.pending``, as durable as published ones.
    The end of a run publishes what is left.

    Args:
        size: A file is published when what has collected is this large: bytes, or text such as
            ``"128MB"``. It is at most one delivery larger.
        age: A file is published when the first delivery in it has waited this long. What is
            published is at most so old, while the run is alive; a day has at most so many files.

    Raises:
        InvalidArgument: An option is not above zero, or not understood.
    """

    size: SizeLike = "128MB"
    age: DurationLike = "1h"

    def __post_init__(self) -> None:
        if self.size_bytes < 1:
            raise InvalidArgument(
                f"{describe('size', self.size)} must be above zero", hint='Use, say, "128MB"'
            )
        if self.age_us < 1:
            raise InvalidArgument(
                f"{describe('age', self.age)} must be above zero", hint='Use, say, "1h"'
            )

    @property
    def size_bytes(self) -> int:
        """The size in bytes."""
        return size_bytes(self.size, name="size")

    @property
    def age_us(self) -> int:
        """The age in microseconds."""
        return duration(self.age, name="age")


def last_epoch(*folders: FileSet) -> int:
    """Return the last epoch that is in any of some folders; 0 if there is none."""
    return max((int(end[:12]) for one in folders for _, _, end in _named(files_in(one))), default=0)


def compact_published(folder: OutputFolder, compaction: Compaction) -> tuple[int, int]:
    """Join published files that are small and old, and return how many became how many.

    Neighbours of one kind are joined, up to the size that files are to have. Killed in between,
    or for who lists the folder at that moment, some rows are there twice: in the joined file and
    in one of those it covers. :func:`remove_covered` removes these.

    Args:
        folder: A folder that no run writes to.
        compaction: Files smaller than its size and at least of its age are joined.

    Raises:
        OSError: The folder cannot be read or written.
    """
    published = folder.published
    found = remove_covered(published)
    before = after = 0
    for kind in KINDS:
        small = []
        for name, one in found.items():
            if name.startswith(f"{kind}-"):
                old = (clock() - one.modified) * 1e6 >= compaction.age_us
                small.append((old and one.size < compaction.size_bytes, name))
        for is_small, neighbours in groupby(small, key=lambda one: one[0]):
            names = [name for _, name in neighbours]
            runs = _sized(alike(published, names), found, compaction.size_bytes)
            for run in runs if is_small else ():
                if len(run) > 1:
                    folder.join(published, run, joined_name(run))
                    remove_covered(published)
                    before, after = before + len(run), after + 1
    return before, after


def remove_covered(folder: FileSet) -> dict[str, Entry]:
    """Remove files whose deliveries are in another file, too: what a cut compaction left.

    Returns:
        The files of output that stay, by name.

    Raises:
        OSError: The folder cannot be read or written.
    """
    found = files_in(folder)
    covers: dict[str, str] = {}
    names = sorted(found, key=lambda name: delivered_range(name)[1], reverse=True)
    names.sort(
        key=lambda name: delivered_range(name)[0]
    )  # of those that begin alike the longest is first
    covered = set()
    for name in names:
        kind = name.split("-", 1)[0]
        _, last = delivered_range(name)
        if last <= covers.get(kind, ""):
            covered.add(name)
        else:
            covers[kind] = last
    folder.delete(sorted(covered))
    return {name: one for name, one in found.items() if name not in covered}


def published_up_to(names: Iterable[str]) -> dict[str, str]:
    """Return the id of the last delivery among published files, for each kind of file."""
    last: dict[str, str] = {}
    for kind, _, end in _named(names):
        last[kind] = max(last.get(kind, ""), end)
    return last


def delivered_range(name: str) -> tuple[str, str]:
    """Return the ids of the first and the last delivery that a file of output holds."""
    found = NAME.fullmatch(name)
    assert found is not None, name
    return found["first"], found["last"] or found["first"]


def files_in(folder: FileSet) -> dict[str, Entry]:
    """Return the files of output that a folder holds, sorted by name."""
    return {name: one for name, one in folder.entries().items() if NAME.fullmatch(name)}


def _named(names: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    for name in names:
        yield (name.split("-", 1)[0], *delivered_range(name))


def alike(files: FileSet, names: Iterable[str]) -> Iterator[list[str]]:
    """Yield runs of neighbours that can be joined: with one schema, but for null types."""
    run: list[str] = []
    common: tuple[str, pa.Schema] | None = None
    for name in names:
        form = form_of(name)
        found = form.suffix, form.schema(files, name)
        both = None if common is None else _in_common(common, found)
        if both is None:
            if run:
                yield run
            run, both = [], found
        run.append(name)
        common = both
    if run:
        yield run


def _in_common(
    one: tuple[str, pa.Schema], other: tuple[str, pa.Schema]
) -> tuple[str, pa.Schema] | None:
    """Return the form and the schema of files of two schemas; ``None`` if they differ."""
    first, second = settled_schema(one[1], other[1]), settled_schema(other[1], one[1])
    is_one = one[0] == other[0] and first.equals(second, check_metadata=True)
    return (one[0], first) if is_one else None


def _sized(runs: Iterable[list[str]], found: Mapping[str, Entry], size: int) -> Iterator[list[str]]:
    """Cut runs, so that each part comes to the size, or little more."""
    for run in runs:
        part: list[str] = []
        total = 0
        for name in run:
            part.append(name)
            total += found[name].size
            if total >= size:
                yield part
                part, total = [], 0
        if part:
            yield part


def joined_name(names: Sequence[str]) -> str:
    """Return the name of the file that files of one kind become, given in order."""
    first, last = delivered_range(names[0])[0], delivered_range(names[-1])[1]
    kind, suffix = names[0].split("-", 1)[0], form_of(names[0]).suffix
    return f"{kind}-{first}{suffix}" if first == last else f"{kind}-{first}_{last}{suffix}"
