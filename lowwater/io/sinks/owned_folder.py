"""A folder of files that a run writes to: whose it is, and how files get there whole."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, final

from lowwater.engine.local.delivery import Writer
from lowwater.errors import InvalidArgument, StateError
from lowwater.io.sinks.compaction import (
    KINDS,
    NAME,
    Compaction,
    Pending,
    compact_published,
    last_epoch,
)
from lowwater.io.sinks.output_owner import (
    PlaceLock,
    check_owner,
    encoded,
    is_same_opening,
    is_same_writer,
    owned_by,
    read_owner,
)
from lowwater.io.sinks.staging import PASSING, make_folder, publish, refusals

STAGING = ".staging"
PENDING = ".pending"
MARKER = ".lowwater.json"
HIDDEN = (STAGING, PENDING, MARKER)
PREFIXES = tuple(f"{kind}-" for kind in KINDS)
_FIELDS = {"published": dict}
_LOCK = "lock"
_STAGED = re.compile(rf"({NAME.pattern}|{re.escape(MARKER)}){PASSING}")


@final
class OwnedFolder:
    """A folder that a writer may have, and has once it takes it.

    Args:
        path: The folder.
        kind: What its sink writes.
        writer: Who opens it.
        overwrite: Whether the output of another writer is to be replaced.
        compaction: When deliveries become files; ``None``: each at once.

    Raises:
        InvalidArgument: The path is a file.
        StateError: The output of another writer is there, or files that no sink wrote; or another
            run writes there now.
        DataError: The folder cannot be read.
    """

    def __init__(
        self,
        path: str,
        kind: str,
        writer: Writer,
        *,
        overwrite: bool,
        compaction: Compaction | None = None,
    ) -> None:
        self._path = path
        self._folder = Path(path)
        self._staging = self._folder / STAGING
        self._hidden = self._folder / PENDING
        self._writer = writer
        self._overwrite = overwrite
        self._has_delivered = False
        self._owner = {**owned_by(kind, writer), "published": {}}
        self._compaction = compaction
        self._pending = Pending(self._folder, self._hidden, self._staging, compaction)
        self._lock = PlaceLock(path, self._staging / _LOCK)
        with refusals(path):
            self._examine()
            self._lock.check()

    def take(self) -> None:
        """Make the folder the writer's; remove what is to be replaced, or was left half done.

        Raises:
            StateError: Another run has it, or has changed it since this one looked.
            DataError: The folder cannot be written.
        """
        with refusals(self._path):
            make_folder(self._staging)
            with self._lock.taking():
                self._examine()  # again, as another run may have ended since
                self._take()

    def _examine(self) -> None:
        """Find whose the folder is, and whether this writer may have it. Changes nothing."""
        known = self._known = self._look()
        self._is_ours = known is not None and is_same_writer(known, self._owner)
        check_owner(
            self._path,
            known,
            self._owner,
            self._writer,
            overwrite=self._overwrite,
            last_epoch=self._last_epoch(known) if known is not None and self._is_ours else 0,
        )
        self._replaced = [] if self._is_ours else self._to_replace(known)

    def _last_epoch(self, known: Mapping[str, Any]) -> int:
        published = [int(last[:12]) for last in known["published"].values()]
        return max([last_epoch(self._folder, self._hidden), *published])

    def _take(self) -> None:
        known, own = self._known, self._owner
        _remove_staged(self._staging)
        if known is not None and self._replaced:
            # Killed amid this, the folder still belongs to the one before, and says that it
            # is not whole.
            self._mark({**known, "complete": False})
            for path in self._replaced:
                path.unlink(missing_ok=True)
        if known is not None and self._is_ours:
            own = {**known, "opening": own["opening"], "complete": False}
        self._mark(own)
        self._pending.resume(self._owner["published"])
        if self._compaction is None:
            self._publish_pending()  # what an earlier run let collect

    def deliver(self, files: Mapping[str, bytes]) -> None:
        """Take the files of a delivery: publish them, or let them collect.

        Raises:
            StateError: Another writer has taken the folder meanwhile.
            DataError: The folder cannot be written.
        """
        with refusals(self._path):
            self._check_ours()
            missing = self._pending.missing(files)
            # Before the first rename: cut short, it may leave files, and they need their marker.
            self._has_delivered = self._has_delivered or bool(files)
            if self._compaction is None:
                publish(self._folder, self._staging, missing)
            else:
                make_folder(self._hidden)
                publish(self._hidden, self._staging, missing)
                self._pending.added(missing)
        self.publish_due()

    def publish_due(self) -> None:
        """Publish what has collected, if it is large or old enough.

        Raises:
            StateError: Another writer has taken the folder meanwhile.
            DataError: The folder cannot be written.
        """
        if self._pending.is_due():
            with refusals(self._path):
                self._check_ours()
                self._publish_pending()

    def close(self, *, complete: bool) -> None:
        """Publish what has collected, and note that the run is complete if it is.

        A run without a state directory that failed before it wrote anything is forgotten.
        """
        try:
            if complete:
                with refusals(self._path):
                    if not self._owner["complete"] and self._is_still_ours():
                        self._publish_pending()
                        self._mark({**self._owner, "complete": True})
            else:
                with suppress(OSError, StateError):
                    if self._is_still_ours():
                        self._publish_pending()  # a run that was stopped may not come again soon
                        if not (self._writer.resumes or self._has_delivered):
                            (self._folder / MARKER).unlink()
        finally:
            self._release()

    def _release(self) -> None:
        self._lock.release()
        with suppress(OSError):  # something else may have been put there
            if not (self._folder / MARKER).exists():
                self._staging.rmdir()

    def _publish_pending(self) -> None:
        if self._hidden.is_dir():
            self._pending.publish()
            # Under a joined name a delivery would come again as another file.
            self._mark({**self._owner, "published": self._pending.published})
            with suppress(OSError):  # something else may have been put there
                self._hidden.rmdir()

    def _look(self) -> dict[str, Any] | None:
        """Return whose the folder is; ``None`` if nobody's. Changes nothing."""
        if self._folder.exists() and not self._folder.is_dir():
            raise InvalidArgument(
                f"{self._path!r} is a file, but output goes into a folder",
                hint="Give the name of a folder",
            )
        _check_hidden(self._folder)
        return read_owner(self._folder / MARKER, _FIELDS)

    def _to_replace(self, known: Mapping[str, Any] | None) -> list[Path]:
        """Return the files that a former writer has left; refuse what no sink wrote.

        With strangers among them, who reads ``part-*`` would read these too.
        """
        found = []
        for folder in (self._folder, self._hidden):
            for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
                if not entry.name.startswith(PREFIXES):
                    continue
                if known is None or not NAME.fullmatch(entry.name) or not _is_plain_file(entry):
                    raise StateError(
                        f"{self._path!r} already holds {entry.name!r}, which this sink did not "
                        "write",
                        hint="Give an empty folder",
                    )
                found.append(entry)
        return found

    def _mark(self, owner: Mapping[str, Any]) -> None:
        publish(self._folder, self._staging, {MARKER: encoded(owner)})
        self._owner = dict(owner)

    def _check_ours(self) -> None:
        if not self._is_still_ours():
            raise StateError(
                f"{self._path!r} was taken over by another run, or {MARKER} was removed",
                hint="Let one run at a time write to a folder",
            )

    def _is_still_ours(self) -> bool:
        # Where the folder itself is gone, the error of the write says more.
        if not self._folder.is_dir():
            return True
        known = read_owner(self._folder / MARKER, _FIELDS)
        return known is not None and is_same_opening(known, self._owner)


def _check_hidden(folder: Path) -> None:
    """Raise if a hidden folder is something else, such as a link to what is another's."""
    for hidden in (folder / STAGING, folder / PENDING):
        if hidden.is_symlink() or (hidden.exists() and not hidden.is_dir()):
            raise StateError(
                f"{str(hidden)!r} is no folder, so files cannot be staged there",
                hint="Remove it, or give another folder",
            )
    lock = folder / STAGING / _LOCK
    if lock.is_symlink():
        raise StateError(f"{str(lock)!r} is a symbolic link", hint="Remove it")


def _remove_staged(staging: Path) -> None:
    """Remove what a run that was killed was about to publish."""
    for left in sorted(staging.iterdir()):
        if _STAGED.fullmatch(left.name):
            left.unlink(missing_ok=True)


def compact_folder(path: Path, writer_id: str, compaction: Compaction) -> tuple[int, int] | None:
    """Join small published files of a folder that a writer owns and no run has open.

    Args:
        path: The folder.
        writer_id: Whose output it must hold.
        compaction: Files smaller than its size and at least of its age are joined.

    Returns:
        How many files became how many; ``None`` if it is no folder with output of that writer.

    Raises:
        StateError: A run writes there at this moment.
        DataError: The folder cannot be read or written.
    """
    with refusals(str(path)):
        known = read_owner(path / MARKER, _FIELDS) if path.is_dir() else None
        if known is None or known["writer"] != writer_id:
            return None
        _check_hidden(path)
        staging = path / STAGING
        make_folder(staging)
        lock = PlaceLock(str(path), staging / _LOCK)
        with lock.taking():
            _remove_staged(staging)
            joined = compact_published(path, staging, compaction)
        lock.release()
        return joined


def _is_plain_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()
