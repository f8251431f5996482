"""A folder whose files appear whole: staged under a passing name, then renamed."""

from __future__ import annotations

import errno
import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from lowwater.errors import DataError, InvalidArgument, StateError

STAGING = ".staging"
MARKER = ".lowwater.json"
PREFIXES = ("part-", "late-", "errors-")
_VERSION = 1
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def open_folder(path: str, kind: str, description: Mapping[str, object]) -> None:
    """Make the folder if need be, see that it is ours, and remove what is left of half-done work.

    Args:
        path: The folder.
        kind: What its sink writes: another kind's folder is refused.
        description: What the pipeline says of itself; see
            :meth:`~lowwater.engine.local.delivery.DurableSink.open`.

    Raises:
        InvalidArgument: The path is a file.
        StateError: Something else has written there.
        DataError: The folder cannot be written.
    """
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise InvalidArgument(
            f"{path!r} is a file, but output goes into a folder", hint="Give the name of a folder"
        )
    state_id = description.get("state_id")
    own = {
        "version": _VERSION,
        "kind": kind,
        "state_id": None if state_id is None else str(state_id),
    }
    try:
        _make(folder)
        staging = folder / STAGING
        _make(staging)
        for left in sorted(staging.iterdir()):
            left.unlink(missing_ok=True)
        known = _read_marker(folder)
        if known is None:
            _refuse_strangers(folder)
        else:
            _refuse_others(folder, known, own)
            if own["state_id"] is None:
                own["state_id"] = known.get("state_id")
        if known != own:
            publish(path, {MARKER: json.dumps(own).encode()})
    except OSError as error:
        raise cannot_write(path, error) from error


def publish(path: str, files: Mapping[str, bytes]) -> None:
    """Put files into the folder, durably, in the order given.

    All are written and synced before the first is renamed. A file of the same name is replaced.

    Raises:
        DataError: The folder cannot be written. No file is there in part; those that were
            renamed before the error are there whole.
    """
    folder = Path(path)
    staged: list[tuple[Path, Path]] = []
    try:
        for name, data in files.items():
            # Two processes never write the same passing file, even if one of them is a zombie.
            passing = folder / STAGING / f"{name}.{secrets.token_hex(8)}"
            staged.append((passing, folder / name))
            _write(passing, data)
        for passing, final in staged:
            os.replace(passing, final)  # noqa: PTH105  # os.replace, os.fsync: where tests crash
        _sync_folder(folder)
    except OSError as error:
        for passing, _ in staged:
            with suppress(OSError):
                passing.unlink(missing_ok=True)
        raise cannot_write(path, error) from error


def cannot_write(path: str, error: OSError) -> DataError:
    """Return what to say when the operating system refuses."""
    if error.errno in _FULL:
        what, hint = f"the disk that holds {path!r} is full", "Free some space and start again"
    elif error.errno in _FORBIDDEN:
        what = f"{path!r} cannot be written: {error.strerror or error}"
        hint = "Give this process the right to write there and start again"
    else:
        what = f"{path!r} cannot be written: {error.strerror or error}"
        hint = "See that the folder is there and nothing else changes it, and start again"
    return DataError(what, hint=f"{hint}: with durable state nothing is lost")


def _make(folder: Path) -> None:
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(exist_ok=True)
        _sync_folder(one.parent)


def _write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, where the system has a way to."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_marker(folder: Path) -> dict[str, object] | None:
    marker = folder / MARKER
    try:
        known = json.loads(marker.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        known = None
    if not isinstance(known, dict) or known.get("version") != _VERSION:
        raise StateError(
            f"{str(marker)!r}, which says who writes to this folder, cannot be read",
            hint="Give another folder, or move what is in this one elsewhere",
        )
    return known


def _refuse_strangers(folder: Path) -> None:
    for name in sorted(entry.name for entry in folder.iterdir()):
        if name.startswith(PREFIXES):
            raise StateError(
                f"{str(folder)!r} already holds {name!r}, which this sink did not write",
                hint="Give an empty folder",
            )


def _refuse_others(folder: Path, known: Mapping[str, object], own: Mapping[str, object]) -> None:
    if known.get("kind") != own["kind"]:
        raise StateError(
            f"{str(folder)!r} holds the output of a sink for {known.get('kind')}, "
            f"and this one is for {own['kind']}",
            hint="Give each sink a folder of its own",
        )
    if None not in (known.get("state_id"), own["state_id"]) and (
        known.get("state_id") != own["state_id"]
    ):
        raise StateError(
            f"{str(folder)!r} holds the output of another state directory "
            f"({known.get('state_id')}, not {own['state_id']}): its files would mix with it",
            hint="Give another folder, or move what is in this one elsewhere",
        )
