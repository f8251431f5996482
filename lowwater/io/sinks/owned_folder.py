"""A folder of files that a run writes to: whose it is, and how files get there whole."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

import pyarrow as pa

from lowwater.engine.local.delivery import Held, Writer
from lowwater.errors import DataError, StateError
from lowwater.io.paths import is_remote
from lowwater.io.sinks.compaction import Compaction, compact_published, files_in, last_epoch
from lowwater.io.sinks.file_forms import form_of
from lowwater.io.sinks.folder_files import FileSet, OutputFolder
from lowwater.io.sinks.folder_names import MARKER, NAME, PREFIXES
from lowwater.io.sinks.local_folder import LocalFolder
from lowwater.io.sinks.output_owner import (
    check_owner,
    encoded,
    is_same_opening,
    is_same_writer,
    owned_by,
    parse_owner,
    unreadable,
)
from lowwater.io.sinks.pending import Pending
from lowwater.io.sinks.remote_folder import RemoteFolder
from lowwater.io.sinks.staging import refusals

_FIELDS = {"published": dict}
_FOR_TYPES = Compaction(size="16MB", age="1m")
"""How much waits, and for how long, for the type of a column that has had no value yet."""
_LOG = logging.getLogger("lowwater.sinks")


def folder_at(path: str) -> OutputFolder:
    """Return the folder at a path, or at a URI of a remote store.

    Raises:
        InvalidArgument: Nothing here knows this kind of URI.
        DataError: The store is out of reach.
    """
    return RemoteFolder(path) if is_remote(path) else LocalFolder(path)


@final
class OwnedFolder:
    """A folder that a writer may have, and has once it takes it.

    Args:
        path: The folder, or its URI.
        kind: What its sink writes.
        writer: Who opens it.
        overwrite: Whether the output of another writer is to be replaced.
        compaction: When deliveries become files; ``None``: each at once.
        leaves: The id of the folder (empty: any), if it is opened for the last time, to finish what
            it was given: it must be there, and stays as the last opening had it, so that no later
            one continues it.

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
        leaves: str | None = None,
    ) -> None:
        self._folder = folder_at(str(path))
        self._name = self._folder.name
        self._writer = writer
        self._overwrite = overwrite
        self._has_delivered = False
        self._leaves = leaves
        self._owner = {**owned_by(kind, writer), "published": {}}
        if writer.new_id:
            self._owner["folder"] = writer.new_id
        self._marker = b""  # as this writer wrote it last
        self._compaction = compaction
        self._pending = Pending(self._folder, compaction or _FOR_TYPES, writer)
        with refusals(self._name):
            self._folder.check(self._examine)

    @property
    def writer(self) -> Writer:
        """Who opens it."""
        return self._writer

    @property
    def unpublished(self) -> Held | None:
        """What has collected, once the folder is taken; before, only the id says something."""
        return Held(self._id, self._pending.files) if self._id else None

    def take(self) -> None:
        """Make the folder the writer's; remove what is to be replaced, or was left half done.

        Raises:
            StateError: Another run has it, or has changed it since this one looked.
            DataError: The folder cannot be written.
        """
        # It is examined again, as another run may have ended since.
        with refusals(self._name), self._folder.taking(self._examine):
            self._take()

    def _examine(self) -> None:
        """Find whose the folder is, and whether this writer may have it. Changes nothing."""
        known = self._known = _read_owner(self._folder)
        self._is_ours = known is not None and is_same_writer(known, self._owner)
        if known is not None and self._is_ours:
            self._owner = {**self._owner, **_id_of(known)}  # versions before this one gave none
        if self._leaves is not None and not (
            self._is_ours and (self._id == self._leaves or not self._leaves)
        ):
            raise StateError(
                f"{self._name!r} is no longer the folder that the run has written",
                hint="Put it back as it was and start again; if it was moved, say where it is: "
                "python -m lowwater state relocate DIR OLD NEW",
            )
        check_owner(
            self._name,
            known,
            self._owner,
            self._writer,
            overwrite=self._overwrite,
            last_epoch=self._last_epoch(known) if known is not None and self._is_ours else 0,
        )
        self._replaced = [] if self._is_ours else self._to_replace(known)
        if known is not None and self._is_ours:
            self._pending.check(self._listed, known["published"])

    @property
    def _listed(self) -> Mapping[str, Sequence[int]] | None:
        """What had collected at the last commit; ``None`` if the state does not say."""
        return self._writer.held.get(self._id)

    @property
    def _id(self) -> str:
        found: str = self._owner.get("folder", "")
        return found

    def _last_epoch(self, known: Mapping[str, Any]) -> int:
        published = [int(last[:12]) for last in known["published"].values()]
        return max([last_epoch(self._folder.published, self._folder.collected), *published])

    def _take(self) -> None:
        known, own = self._known, self._owner
        if known is not None and self._replaced:
            # Killed amid this, the folder still belongs to the one before, and says that it
            # is not whole.
            self._mark({**known, "complete": False})
            for files, names in self._replaced:
                files.delete(names)
        if known is not None and self._is_ours:
            opening = own["opening"] if self._leaves is None else known["opening"]
            own = {**known, **_id_of(own), "opening": opening, "complete": False}
        self._mark(own)
        leaves = self._leaves is not None
        self._pending.resume(self._listed, self._owner["published"], leaves=leaves)
        if self._compaction is None and not self._pending.lacks_types():
            self._publish_pending()  # what an earlier run let collect

    def deliver(
        self, files: Mapping[str, bytes], rows: Mapping[str, int], *, waits: bool = False
    ) -> None:
        """Publish the files of a delivery, or let them collect.

        Args:
            files: What they hold.
            rows: How many rows that is, for each of them.
            waits: Whether a column is of a type that is not known yet: then they collect for a
                while, as a later delivery may tell it, and it is that of the file that they become.

        Raises:
            StateError: Another writer has taken the folder meanwhile.
            DataError: The folder cannot be written.
        """
        with refusals(self._name):
            self._check_ours()
            missing = {name: files[name] for name in self._pending.missing(files)}
            # Before the first rename: cut short, it may leave files, and they need their marker.
            self._has_delivered = self._has_delivered or bool(files)
            collects = self._compaction is not None or waits or bool(self._pending.files)
            if not collects:
                self._folder.published.put(missing)
                return
            self._folder.collected.put(missing)
            self._pending.added(missing, rows)
            if self._compaction is None and not waits:
                self._publish_pending()
                return
        self.publish_due()

    def publish_due(self) -> None:
        """Publish what has collected, if it is large or old enough.

        Raises:
            StateError: Another writer has taken the folder meanwhile.
            DataError: The folder cannot be written.
        """
        if self._pending.is_due():
            with refusals(self._name):
                self._check_ours()
                self._publish_pending()

    def schema_of_last(self) -> pa.Schema | None:
        """Return the columns of the last part that is there, if they are told."""
        with refusals(self._name):
            parts = [name for name in files_in(self._folder.published) if name.startswith("part-")]
            return form_of(parts[-1]).schema(self._folder.published, parts[-1]) if parts else None

    @property
    def has_collected(self) -> bool:
        """Whether files have collected since the folder was taken, or were there then."""
        return bool(self._pending.files)

    @property
    def has_waiting(self) -> bool:
        """Whether files have collected, as far as their names say."""
        with refusals(self._name):
            return bool(files_in(self._folder.collected))

    def has_taken(self, delivery_id: str) -> bool:
        """Whether files of a delivery were there when the folder was taken."""
        return self._pending.had(delivery_id)

    def leave(self) -> None:
        """Note that the folder is finished: what is said of its run stays as it was."""
        with refusals(self._name):
            if self._known is not None and self._is_still_ours():
                self._mark({**self._owner, "complete": self._known["complete"]})
                self._pending.clear()

    def release(self) -> None:
        """Release the folder for other runs; a second call does nothing."""
        self._folder.release()

    def close(self, *, complete: bool) -> None:
        """Publish what has collected, and note that the run is complete if it is.

        A run without a state directory that failed before it wrote anything is forgotten.
        """
        try:
            if complete:
                with refusals(self._name):
                    if not self._owner["complete"] and self._is_still_ours():
                        self._publish_pending()
                        self._mark({**self._owner, "complete": True})
            else:
                self._stop()
        finally:
            self._folder.release()

    def _stop(self) -> None:
        """Publish what has collected, if that can be: what led here is what to tell."""
        try:
            if self._is_still_ours():
                # A run that was stopped may not come again soon; types may still come if it does.
                if not (self._writer.resumes and self._pending.lacks_types()):
                    self._publish_pending()
                if not (self._writer.resumes or self._has_delivered):
                    self._folder.published.delete([MARKER])
        except (OSError, StateError, DataError) as error:
            if self._pending.files:
                _LOG.warning(
                    "%r: what had collected there is not published yet: %s", self._name, error
                )

    def _publish_pending(self) -> None:
        is_known = self._compaction is None or self._pending.published == self._owner["published"]
        if not self._pending.files and is_known:
            return
        # Under a joined name a delivery would come again as another file.
        self._pending.publish(
            lambda: self._mark({**self._owner, "published": {**self._pending.published}})
        )

    def _to_replace(self, known: Mapping[str, Any] | None) -> list[tuple[FileSet, list[str]]]:
        """Return the files that a former writer has left; refuse what no sink wrote.

        With strangers among them, who reads ``part-*`` would read these too.
        """
        found = []
        for files in (self._folder.published, self._folder.collected):
            entries = files.entries()
            names = [name for name in entries if name.startswith(PREFIXES)]
            for name in names:
                if known is None or not NAME.fullmatch(name) or not entries[name].is_plain:
                    raise StateError(
                        f"{self._name!r} already holds {name!r}, which this sink did not write",
                        hint="Give an empty folder",
                    )
            if names:
                found.append((files, names))
        return found

    def _mark(self, owner: Mapping[str, Any]) -> None:
        self._marker = encoded(owner)
        self._folder.published.put({MARKER: self._marker})
        self._owner = dict(owner)

    def _check_ours(self) -> None:
        if not self._is_still_ours():
            raise StateError(
                f"{self._name!r} was taken over by another run, or {MARKER} was removed",
                hint="Let one run at a time write to a folder",
            )

    def _is_still_ours(self) -> bool:
        # Where the folder itself is gone, the error of the write says more.
        if not self._folder.is_there:
            return True
        data = _read_marker(self._folder)
        if data is None or data == self._marker:
            return data is not None
        return is_same_opening(_parsed(self._folder, data), self._owner)


def kind_at(path: str) -> str | None:
    """Return what the sink of a folder writes; ``None`` if it is no folder of output.

    Raises:
        StateError: What says so is damaged.
        DataError: The folder cannot be read.
    """
    folder = folder_at(path)
    with refusals(folder.name):
        known = _read_owner(folder) if folder.is_there else None
    return None if known is None else str(known["kind"])


def has_published_all(path: str, kind: str, writer: Writer, folder_id: str) -> bool:
    """Return whether all that had collected in a folder at the last commit is published there.

    A later opening may have done it, which this writer knows nothing of.

    Raises:
        StateError: It cannot be told whose the folder is.
        DataError: The folder cannot be read.
    """
    folder = folder_at(path)
    with refusals(folder.name):
        known = _read_owner(folder)
        if known is None or known.get("folder") != folder_id:
            return False
        pending = Pending(folder, None, writer)
        listed = writer.held.get(folder_id, {})
        return is_same_writer(known, owned_by(kind, writer)) and pending.has_published(
            listed, known["published"]
        )


def compact_folder(
    path: str | Path, writer_id: str, compaction: Compaction
) -> tuple[int, int] | None:
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
    folder = folder_at(str(path))
    with refusals(folder.name):
        known = _read_owner(folder) if folder.is_there else None
        if known is None or known["writer"] != writer_id:
            return None
        with folder.taking(lambda: None):
            joined = compact_published(folder, compaction)
        folder.release()
        return joined


def _id_of(owner: Mapping[str, Any]) -> dict[str, Any]:
    """Return the field of an owner's file that names its folder."""
    return {name: value for name, value in owner.items() if name == "folder"}


def _read_owner(folder: OutputFolder) -> dict[str, Any] | None:
    """Return whose a folder is; ``None`` if nobody's."""
    data = _read_marker(folder)
    return None if data is None else _parsed(folder, data)


def _read_marker(folder: OutputFolder) -> bytes | None:
    try:
        with folder.published.open(MARKER) as file:
            data: bytes = file.read()
            return data
    except FileNotFoundError:
        return None


def _parsed(folder: OutputFolder, data: bytes) -> dict[str, Any]:
    place = f"{folder.name.rstrip('/')}/{MARKER}"
    known = parse_owner(data, place, _FIELDS)
    if not isinstance(known.get("folder", ""), str):
        raise unreadable(place)
    return known
