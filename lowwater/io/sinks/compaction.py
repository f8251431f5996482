"""Few large files in place of many small ones: deliveries collect until they are worth a file.

Files that collect are hidden, durable and named by delivery, like those that are published. When
they are large or old enough, those of each kind are joined into one file, whose name says from
which delivery to which; it is published by rename, and then they are removed. So a published file
never changes and never goes, and whoever reads the folder meanwhile sees each row once. Killed in
between, the next opening removes what a published file already covers.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import final

from lowwater.engine.local.memory_budget import SizeLike, size_bytes
from lowwater.errors import InvalidArgument, describe
from lowwater.io.sinks.file_forms import form_of
from lowwater.io.sinks.staging import sync_folder, write_whole
from lowwater.time import DurationLike, duration

KINDS = ("late", "errors", "part")
"""The kinds of files, in the order in which they are published: panes come last."""

_ID = r"\d{12}-\d{3}-\d{6}"
NAME = re.compile(
    rf"(?P<kind>part|late|errors)-(?P<first>{_ID})(_(?P<last>{_ID}))?\.(parquet|jsonl)"
)
"""The names of files: of one delivery, or of those from one to another."""

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


def published_up_to(folder: Path) -> dict[str, str]:
    """Return the id of the last delivery that is published in a folder, for each kind of file."""
    last: dict[str, str] = {}
    for kind, _, end in _named(_names_in(folder)):
        last[kind] = max(last.get(kind, ""), end)
    return last


def last_epoch(*folders: Path) -> int:
    """Return the last epoch that is in any of some folders; 0 if there is none."""
    return max(
        (int(end[:12]) for one in folders for _, _, end in _named(_names_in(one))), default=0
    )


@final
class Pending:
    """Deliveries that collect in a hidden folder until they are worth a file.

    Args:
        folder: Where files are published.
        hidden: Where they collect, on the same file system.
        staging: Where files are written before they appear.
        compaction: When to publish.
    """

    def __init__(
        self, folder: Path, hidden: Path, staging: Path, compaction: Compaction | None
    ) -> None:
        self._folder = folder
        self._hidden = hidden
        self._staging = staging
        self._compaction = compaction
        self.published: dict[str, str] = {}
        """The id of the last delivery that was published, for each kind of file."""
        self._sizes: dict[str, int] = {}  # of what has collected, by name
        self._since: float | None = None

    def resume(self, published: Mapping[str, str]) -> None:
        """Find what has collected before; remove what a published file covers.

        Args:
            published: What ``published`` was when it was last stored: files that were published
                since may be gone from the folder, as programs may move them away.

        Raises:
            OSError: The folder cannot be read or written.
        """
        remove_covered(self._folder)
        found_now = published_up_to(self._folder)
        self.published = {
            kind: max(one.get(kind, "") for one in (published, found_now))
            for kind in {*published, *found_now}
        }
        for name in _names_in(self._hidden):
            found = NAME.fullmatch(name)
            if found is not None and found["first"] <= self.published.get(found["kind"], ""):
                (self._hidden / name).unlink()
        left = {name: (self._hidden / name).stat() for name in _names_in(self._hidden)}
        self._sizes = {name: one.st_size for name, one in left.items()}
        self._since = min((one.st_mtime for one in left.values()), default=None)

    def missing(self, files: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return those of a delivery's files that no published file covers."""
        wanted = {}
        for name, data in files.items():
            found = NAME.fullmatch(name)
            assert found is not None, name
            if found["first"] > self.published.get(found["kind"], ""):
                wanted[name] = data
        return wanted

    def added(self, files: Mapping[str, bytes]) -> None:
        """Count files that were added to the hidden folder."""
        if files and self._since is None:
            self._since = clock()
        self._sizes.update((name, len(data)) for name, data in files.items())

    def is_due(self) -> bool:
        """Whether what has collected is to be published now."""
        if self._since is None or self._compaction is None:
            return False
        age_us = (clock() - self._since) * 1e6
        size = sum(self._sizes.values())
        return size >= self._compaction.size_bytes or age_us >= self._compaction.age_us

    def publish(self) -> None:
        """Publish all that has collected.

        Raises:
            OSError: The folder cannot be written: what was not published stays where it is.
        """
        names = _names_in(self._hidden)
        for kind in KINDS:
            paths = [self._hidden / name for name in names if name.startswith(f"{kind}-")]
            for run in _alike(paths):
                name = _joined_name(run)
                _write_joined(run, self._staging, self._folder / name)
                found = NAME.fullmatch(name)
                assert found is not None, name
                self.published[kind] = found["last"] or found["first"]
                for path in run:
                    path.unlink(missing_ok=True)
        self._sizes, self._since = {}, None


def compact_published(folder: Path, staging: Path, compaction: Compaction) -> tuple[int, int]:
    """Join published files that are small and old, and return how many became how many.

    Neighbours of one kind are joined, up to the size that files are to have. Killed in between,
    or for who lists the folder at that moment, some rows are there twice: in the joined file and
    in one of those it covers. :func:`remove_covered` removes these.

    Args:
        folder: A folder that no run writes to.
        staging: Where files are written before they appear.
        compaction: Files smaller than its size and at least of its age are joined.

    Raises:
        OSError: The folder cannot be read or written.
    """
    remove_covered(folder)
    before = after = 0
    for kind in KINDS:
        small = []
        for name in _names_in(folder):
            if name.startswith(f"{kind}-"):
                stat = (folder / name).stat()
                old = (clock() - stat.st_mtime) * 1e6 >= compaction.age_us
                small.append((old and stat.st_size < compaction.size_bytes, folder / name))
        for is_small, neighbours in groupby(small, key=lambda one: one[0]):
            paths = [path for _, path in neighbours]
            for run in _sized(_alike(paths), compaction.size_bytes) if is_small else ():
                if len(run) > 1:
                    _write_joined(run, staging, folder / _joined_name(run))
                    remove_covered(folder)
                    before, after = before + len(run), after + 1
    return before, after


def remove_covered(folder: Path) -> None:
    """Remove files whose deliveries are in another file, too: what a cut compaction left.

    Raises:
        OSError: The folder cannot be read or written.
    """
    covers: dict[str, str] = {}
    names = sorted(_names_in(folder), key=lambda name: _range(name)[1], reverse=True)
    names.sort(key=lambda name: _range(name)[0])  # of those that begin alike the longest is first
    removed = False
    for name in names:
        kind = name.split("-", 1)[0]
        _, last = _range(name)
        if last <= covers.get(kind, ""):
            (folder / name).unlink()
            removed = True
        else:
            covers[kind] = last
    if removed:
        sync_folder(folder)


def _range(name: str) -> tuple[str, str]:
    found = NAME.fullmatch(name)
    assert found is not None, name
    return found["first"], found["last"] or found["first"]


def _names_in(folder: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if NAME.fullmatch(name))  # noqa: PTH208  # far faster than iterdir
    except FileNotFoundError:
        return []


def _named(names: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    for name in names:
        yield (name.split("-", 1)[0], *_range(name))


def _alike(paths: Iterable[Path]) -> Iterator[list[Path]]:
    """Yield runs of neighbours that can be joined."""
    for _, run in groupby(paths, key=lambda path: (path.suffix, form_of(path).schema(path))):
        yield list(run)


def _sized(runs: Iterable[list[Path]], size: int) -> Iterator[list[Path]]:
    """Cut runs, so that each part comes to the size, or little more."""
    for run in runs:
        part: list[Path] = []
        total = 0
        for path in run:
            part.append(path)
            total += path.stat().st_size
            if total >= size:
                yield part
                part, total = [], 0
        if part:
            yield part


def _joined_name(paths: Sequence[Path]) -> str:
    first, last = _range(paths[0].name)[0], _range(paths[-1].name)[1]
    kind, suffix = paths[0].name.split("-", 1)[0], paths[0].suffix
    return f"{kind}-{first}{suffix}" if first == last else f"{kind}-{first}_{last}{suffix}"


def _write_joined(paths: Sequence[Path], staging: Path, path: Path) -> None:
    if len(paths) == 1:
        os.replace(paths[0], path)  # noqa: PTH105  # os.replace, os.fsync: where tests crash
        sync_folder(path.parent)
        return
    form = form_of(paths[0])
    write_whole(path, staging, lambda file: form.join(paths, file))
