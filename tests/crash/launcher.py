"""Starts the processes that a campaign kills, without importing the library for each.

``python -m tests.crash.launcher`` imports everything once. For each line of JSON on its standard
input, ``[MODULE, ARGUMENT, ...]``, it forks a process that calls ``MODULE.main()`` with these
arguments, waits for its end and prints the exit code, negative for a signal.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import final

from tests.paths import ROOT

MODULES = (
    "tests.crash.windows_to_kill",
    "tests.crash.graph_to_kill",
    "tests.crash.follow_to_kill",
    "tests.crash.joins_to_kill",
    "tests.crash.kafka_to_kill",
    "tests.crash.changes_to_kill",
    "tests.crash.stores_to_kill",
    "tests.crash.changing_to_kill",
    "tests.crash.collecting_to_kill",
)
_PATIENCE_S = 300.0  # a run takes a few seconds; one that hangs dumps its stacks and ends


@final
class Launcher:
    """The launcher's process, seen from the tests: a context manager.

    Args:
        errors: The file that the processes write their errors to.
    """

    def __init__(self, errors: Path) -> None:
        self._errors = errors

    def __enter__(self) -> Launcher:
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.launcher"],
                cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate()

    def run(self, module: str, arguments: Sequence[str]) -> tuple[int, str]:
        """Run a module's ``main``; return its exit code and what it wrote to standard error."""
        assert module in MODULES
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        before = self._errors.stat().st_size
        self._process.stdin.write(json.dumps([module, *arguments]) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        return code, self._errors.read_bytes()[before:].decode()


def main() -> None:
    """Serve until standard input ends."""
    for module in MODULES:
        importlib.import_module(module)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _run(*json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _run(module: str, *arguments: str) -> None:
    """Call the module's ``main`` as if it was run as a program; never return."""
    code = 1
    try:
        faulthandler.dump_traceback_later(_PATIENCE_S, exit=True)
        sys.argv = [module, *arguments]
        importlib.import_module(module).main()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
