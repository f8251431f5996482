"""A folder of output that its run no longer writes to, opened by what the state knows of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from lowwater.engine.local.delivery import Delivery, Writer
from lowwater.engine.local.left_places import LeftPlace
from lowwater.engine.local.run_record import StoredHeld
from lowwater.errors import StateError
from lowwater.io.sinks.file_forms import FORMS, FileForm
from lowwater.io.sinks.folders import JsonLinesFolder, ParquetFolder, files_of
from lowwater.io.sinks.owned_folder import OwnedFolder, has_published_all, kind_at

_KINDS: dict[str, FileForm] = {one.__name__: one._form for one in (ParquetFolder, JsonLinesFolder)}


def left_folder(held: StoredHeld) -> LeftPlace | None:
    """Return a folder by what a state directory knows of it; ``None`` if it is no folder.

    Raises:
        StateError: It cannot be told whether it is one.
        DataError: The place cannot be read.
    """
    # The place of a folder in a store is told with the kind of its sink.
    word, _, uri = held.place.partition(" ")
    path = uri if word in _KINDS else held.place
    form = _KINDS.get(held.kind or word)
    if form is None and not held.is_listed:
        kind = kind_at(path)
        form = next((one for one in FORMS if one.name == kind), None)
    return None if form is None else LeftFolder(held, path, form)


@final
class LeftFolder:
    """A folder that no sink of the run has.

    Args:
        held: What the state directory knows of it.
        path: The folder, or its URI without options.
        form: The format of its files of panes.
    """

    def __init__(self, held: StoredHeld, path: str, form: FileForm) -> None:
        self._held = held
        self._path = path
        self._form = form
        self._found: OwnedFolder | None = None

    def look(self, writer: Writer) -> bool:
        """Return whether the folder can be finished. Changes nothing.

        Raises:
            StateError: Rows wait there, and it is not the folder any more, or cannot be continued.
            DataError: It cannot be read.
        """
        kind, folder_id = self._form.name, self._held.id
        try:
            self._found = OwnedFolder(self._path, kind, writer, overwrite=False, leaves=folder_id)
        except StateError:
            if has_published_all(self._path, kind, writer, folder_id):
                return False
            raise
        return self._held.is_listed or self._found.has_waiting

    def finish(
        self, writer: Writer, deliveries: Sequence[Delivery], *, if_taken: bool
    ) -> Sequence[Delivery]:
        """Publish what has collected, and what comes again; then leave the folder.

        Args:
            writer: Who opens it; the one of :meth:`look`.
            deliveries: What comes again.
            if_taken: Whether to leave out what the folder has not had before.

        Returns:
            What was left out.
        """
        folder = self._found
        if folder is None or folder.writer != writer:
            raise StateError(f"{self._path!r} was not looked at", hint="Call look() first")
        folder.take()
        try:
            left_out = [one for one in deliveries if if_taken and not folder.has_taken(one.id)]
            ids = {one.id for one in left_out}
            for delivery in deliveries:
                if delivery.id not in ids:
                    folder.deliver(*files_of(delivery, self._form))
            folder.leave()
        finally:
            folder.release()
        return left_out
