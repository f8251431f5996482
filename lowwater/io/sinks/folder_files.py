"""What a folder of output is made of, whether it is local or in a remote store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import BinaryIO, Protocol


class Entry(Protocol):
    """A file as a listing has it."""

    @property
    def size(self) -> int:
        """Its length in bytes."""
        ...

    @property
    def modified(self) -> float:
        """When it was written: seconds since 1970."""
        ...

    @property
    def is_plain(self) -> bool:
        """Whether it is a file, and neither a folder nor a link."""
        ...


class FileSet(Protocol):
    """The files of one folder, without those of folders within it."""

    def entries(self) -> Mapping[str, Entry]:
        """Return what is there by name, sorted; nothing if the folder is not there."""
        ...

    def open(self, name: str) -> BinaryIO:
        """Open a file to read it.

        Raises:
            StateError: It is a symbolic link.
            FileNotFoundError: It is not there.
        """
        ...

    def put(self, files: Mapping[str, bytes]) -> None:
        """Make files appear, durably, each of them whole and in the order given.

        A file of the same name is replaced. Killed or failing in between, those that came first
        are there, and none is there in part.
        """
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Remove files; one that is gone already is fine."""
        ...


class OutputFolder(Protocol):
    """A folder that one run at a time writes to.

    Attributes:
        name: What messages call it.
        published: The files that readers see.
        collected: The hidden files of deliveries that are not yet worth a file.
        is_there: Whether the folder exists. A remote store has no folders: it always does.
    """

    @property
    def name(self) -> str: ...

    @property
    def published(self) -> FileSet: ...

    @property
    def collected(self) -> FileSet: ...

    @property
    def is_there(self) -> bool: ...

    def check(self, examine: Callable[[], object]) -> None:
        """Raise if it cannot be a folder of output, or a live run is known to write to it.

        Args:
            examine: Called in between; it may raise, too.

        Raises:
            InvalidArgument: A file of that name is there.
            StateError: A run writes there, or what is hidden there is another's.
        """
        ...

    def taking(self, examine: Callable[[], object]) -> AbstractContextManager[None]:
        """Lock the folder, and keep the lock if the block succeeds.

        Args:
            examine: Called once no other run can take the folder, before anything is removed. If
                it raises, the folder is not taken.

        Raises:
            StateError: Another run has it.
        """
        ...

    def join(self, source: FileSet, names: Sequence[str], name: str) -> None:
        """Publish files of one format as one, which appears whole; they stay.

        Args:
            source: The folder they are in.
            names: The files.
            name: The name of the joined file.
        """
        ...

    def publish(self, name: str, data: bytes) -> None:
        """Publish a file that has collected as it is; it may stay where it was, too.

        Args:
            name: Its name, here and there.
            data: What it holds.
        """
        ...

    def release(self) -> None:
        """Release the folder for other runs; a second call does nothing."""
        ...
