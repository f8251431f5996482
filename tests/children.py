"""Runs code in processes of their own, without importing the library for each.

``python -m tests.children`` imports it once and forks a process for each line on its standard
input. What a process does to itself, such as limits, rights and its death, stays its own.
"""

from __future__ import annotations

import atexit
import faulthandler
import importlib
import json
import os
import subprocess
import sys
import tempfile
import traceback
from functools import cache
from pathlib import Path

from tests.paths import ROOT

_IMPORTED = ("lowwater.testing.conformance", "tests.unit.engine.local.durable_runs")
_EXAMPLE = """
import runpy, sys, warnings
from lowwater.errors import LowwaterWarning

warnings.simplefilter("error", LowwaterWarning)
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""
_PATIENCE_S = 120.0  # code takes a second; a process that hangs dumps its stacks and ends


def run_code(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run code as ``python -c`` does, in the root of the repository; return how it ended.

    But nothing is closed or finalized at its end, as if it called ``os._exit``.
    """
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    given = list(map(str, arguments))
    with tempfile.TemporaryDirectory() as folder:
        server.stdin.write(json.dumps([folder, code, given]) + "\n")
        server.stdin.flush()
        status = int(server.stdout.readline())
        output, errors = (Path(folder, name).read_text() for name in ("stdout", "stderr"))
    return subprocess.CompletedProcess([code, *given], status, output, errors)


def run_example(name: str, *arguments: object) -> list[str]:
    """Run a file of ``examples`` as a program for which a warning of lowwater's is an error.

    Returns:
        The lines that it printed.
    """
    done = run_code(_EXAMPLE, ROOT / "examples" / f"{name}.py", *arguments)
    assert not done.returncode, done.stderr
    return done.stdout.splitlines()


@cache
def _server() -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.children"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    atexit.register(server.communicate)
    return server


def main() -> None:
    """Serve until standard input ends."""
    for name in _IMPORTED:
        importlib.import_module(name)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _run(*json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _run(folder: str, code: str, arguments: list[str]) -> None:
    """Run code as a program whose output goes to files; never return."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        with Path(folder, name).open("wb") as file:
            os.dup2(file.fileno(), descriptor)
    status = 0
    try:
        faulthandler.dump_traceback_later(_PATIENCE_S, exit=True)
        sys.argv = ["-c", *arguments]
        exec(code, {"__name__": "__main__"})
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
