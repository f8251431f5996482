"""Sources and sinks: where records come from and where panes go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lowwater.io.log import Compacted as Compacted
    from lowwater.io.log import Log as Log
    from lowwater.io.log import LogBatch as LogBatch
    from lowwater.io.log import LogReader as LogReader
    from lowwater.io.log import Recovered as Recovered

_LOG = ("Compacted", "Log", "LogBatch", "LogReader", "Recovered")


if not TYPE_CHECKING:  # or a type checker would take every name to be there

    def __getattr__(name: str) -> Any:
        """Import a public name on first use (PEP 562): importing the package stays cheap."""
        if name not in _LOG:
            raise AttributeError(f"module 'lowwater.io' has no attribute {name!r}")
        from lowwater.io import log

        return getattr(log, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LOG})
