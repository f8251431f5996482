"""Forbids in this process what a browser lacks: packages, processes, threads."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

FORBIDDEN = {
    *("fcntl", "multiprocessing", "pwd", "resource", "subprocess"),
    *("numba", "rocksdict"),
}
"""What cannot be imported: ``fcntl`` and two others can in Pyodide, but are of no use there."""


class _Forbidding(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] in FORBIDDEN:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return None


def install() -> None:
    """Forbid it from now on, before anything of lowwater is loaded."""
    importlib.import_module("asyncio")  # which is there, with a loop of the browser's
    for name in FORBIDDEN & sys.modules.keys():
        del sys.modules[name]
    sys.meta_path.insert(0, _Forbidding())

    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")  # what Pyodide says

    threading.Thread.start = start  # type: ignore[method-assign]
