"""Who writes to a place in the file system: a small JSON file beside the output says it.

Its fields: ``version`` of the layout, ``kind`` of the sink, ``writer`` (the state directory's id or
the run's), ``output`` (its number in the run), ``resumes`` (whether the writer has a state
directory) and ``complete`` (whether its run has ended and all was delivered). A sink may keep
fields of its own there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lowwater.engine.local.delivery import Writer
from lowwater.errors import InvalidArgument, StateError

_VERSION = 2
_FIELDS: Mapping[str, type] = {
    "kind": str, "writer": str, "output": int, "resumes": bool, "complete": bool,
}  # fmt: skip


def check_closed(sink: object, opened: Sequence[object]) -> None:
    """Raise if a sink is open: it belongs to a run that has not ended.

    Raises:
        InvalidArgument: It is.
    """
    if opened:
        raise InvalidArgument(
            f"{sink!r} is open: one sink object is in two runs at once",
            hint="Make a sink for each run, with a place of its own",
        )


def owned_by(kind: str, writer: Writer) -> dict[str, Any]:
    """Return the fields of an owner's file before anything was delivered."""
    return {
        "version": _VERSION,
        "kind": kind,
        "writer": writer.id,
        "output": writer.output,
        "resumes": writer.resumes,
        "complete": False,
    }


def encoded(owner: Mapping[str, Any]) -> bytes:
    """Return the fields as they stand in the file."""
    return json.dumps(owner).encode()


def read_owner(path: Path, fields: Mapping[str, type] = _FIELDS) -> dict[str, Any] | None:
    """Return the fields of an owner's file; ``None`` if it is not there.

    Args:
        path: The file.
        fields: The types of the fields that must be there beside the version.

    Raises:
        StateError: It is damaged, of another layout, or a symbolic link.
        OSError: It cannot be read.
    """
    if path.is_symlink():
        raise StateError(
            f"{str(path)!r}, which says who writes here, is a symbolic link",
            hint="Remove it, or give another place to write to",
        )
    try:
        known = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        known = None
    if isinstance(known, dict) and known.get("version") == _VERSION:
        if all(type(known.get(name)) is kind for name, kind in {**_FIELDS, **fields}.items()):
            return known
    elif isinstance(known, dict) and isinstance(known.get("version"), int):
        raise StateError(
            f"{str(path)!r} has layout {known['version']}, and {_VERSION} is known",
            hint="Use the version of lowwater that wrote it, or give another place to write to",
        )
    raise StateError(
        f"{str(path)!r}, which says who writes here, cannot be read",
        hint="Give another place to write to, or move what is in this one elsewhere",
    )


def swapped(place: str, known: int, own: int) -> StateError:
    """Return the error for what another output of the same writer has written."""
    return StateError(
        f"{place!r} holds output {known} of this run, and this is output {own}",
        hint="Give each output the place that it had, or a new one",
    )


def lost(place: str, *, is_another: bool) -> StateError:
    """Return the error for an output that is no longer where it was delivered to.

    Args:
        place: Where it was.
        is_another: Whether another writer's output is there in its place.
    """
    now = "holds the output of another run now" if is_another else "no longer holds it"
    return StateError(
        f"the run over this state has delivered to {place!r}, which {now}",
        hint="Restore the output; or reset the state, give new places to write to and run again",
    )


def is_same_writer(known: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    """Whether both are of one writer, sink and output, so that the one goes on with the other."""
    return all(known[name] == own[name] for name in ("kind", "writer", "output"))


def check_owner(
    place: str,
    known: Mapping[str, Any] | None,
    own: Mapping[str, Any],
    *,
    overwrite: bool,
    delivered: bool,
) -> None:
    """Raise if the output of another writer is there, and was not to be replaced.

    Args:
        place: What is opened.
        known: Whose output is there; ``None`` if nobody's.
        own: Who opens it.
        overwrite: Whether another writer's output is to be replaced. What this writer has
            delivered, to this output or another, is not.
        delivered: Whether the writer has delivered there before, so that its output must be there.

    Raises:
        StateError: It is; the message says whose it is, and what to do.
    """
    if known is not None and is_same_writer(known, own):
        return
    if known is not None and known["writer"] == own["writer"]:
        if known["output"] != own["output"]:
            raise swapped(place, known["output"], own["output"])
        raise StateError(
            f"{place!r} holds the output of a sink for {known['kind']}, and this one is for "
            f"{own['kind']}",
            hint="Give each sink a folder of its own",
        )
    if delivered:
        raise lost(place, is_another=known is not None)
    if known is None or overwrite:
        return
    hint = "Give another place to write to, or replace what is there with overwrite=True"
    whose = "another state directory" if known["resumes"] else "another run"
    if known["resumes"]:
        whose += f" ({known['writer']}, not {own['writer']})"
    if not known["complete"]:
        whose += ", which did not complete"
    raise StateError(f"{place!r} holds the output of {whose}: the two would mix", hint=hint)
