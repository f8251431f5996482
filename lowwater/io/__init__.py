"""Sources and sinks: where records come from and where panes go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowwater._on_use import on_use

if TYPE_CHECKING:
    from lowwater.io.log import Compacted as Compacted
    from lowwater.io.log import Erased as Erased
    from lowwater.io.log import Log as Log
    from lowwater.io.log import LogBatch as LogBatch
    from lowwater.io.log import LogReader as LogReader
    from lowwater.io.log import Recovered as Recovered

_PLACES = {"lowwater.io.log": "Compacted Erased Log LogBatch LogReader Recovered"}


if not TYPE_CHECKING:  # or a type checker would take every name to be there
    __getattr__, __dir__ = on_use(__name__, _PLACES)
