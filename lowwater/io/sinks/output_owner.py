"""Who writes to a place of files: a small JSON file beside the output says it.

Its fields: ``version`` of the layout, ``kind`` of the sink, ``writer`` (the state directory's id or
the run's), ``opening`` (the random id of the writer's last opening), ``output`` (its number in the
run), ``resumes`` (whether the writer has a state directory) and ``complete`` (whether its run has
ended and all was delivered). A sink may keep fields of its own there. The last field, ``sum``, is
the opening and a CRC-32 of the others: what has collected in a folder is removed once they say that
it was published, so a flipped digit must be noticed. Versions that know nothing of this field keep
it as it is, and note an opening of theirs: then it says nothing.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

from lowwater.engine.local.delivery import Writer
from lowwater.errors import InvalidArgument, StateError, describe
from lowwater.state.ownership import FileLock, is_locked

_VERSION = 3
_SUM = "sum"
_FIELDS: Mapping[str, type] = {
    "kind": str, "writer": str, "opening": str, "output": int, "resumes": bool, "complete": bool,
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


@final
class PlaceLock:
    """The lock on a place that one run at a time may write to.

    Args:
        place: What errors call it.
        file: The file that is locked; it is there while a run has the lock.
    """

    def __init__(self, place: str, file: Path) -> None:
        self._place = place
        self._file = file
        self._lock: FileLock | None = None

    def check(self) -> None:
        """Raise if a live run has the lock. Changes nothing.

        Raises:
            StateError: One has.
        """
        if is_locked(self._file):
            raise self._busy()

    @contextmanager
    def taking(self) -> Iterator[None]:
        """Acquire the lock; keep it if the block succeeds, release it if it raises.

        Raises:
            StateError: A live run has it.
        """
        try:
            self._lock = FileLock(self._file)
        except BlockingIOError as error:
            raise self._busy() from error
        try:
            yield
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Release the lock and remove its file; a second call does nothing."""
        if self._lock is not None:
            self._lock.release(remove=True)
            self._lock = None

    def _busy(self) -> StateError:
        return StateError(
            f"another run writes to {self._place!r} at this moment",
            hint="Wait until it has ended, or give another place to write to",
        )


def check_overwrite(value: object) -> None:
    """Raise for any other value than a bool: text such as ``"no"`` is true, and would replace.

    Raises:
        InvalidArgument: It is not a bool.
    """
    if not isinstance(value, bool):
        raise InvalidArgument(
            f"{describe('overwrite', value)} is neither True nor False",
            hint="Write overwrite=True to replace the output of another run, or leave it out",
        )


def owned_by(kind: str, writer: Writer) -> dict[str, Any]:
    """Return the fields of an owner's file before anything was delivered."""
    return {
        "version": _VERSION,
        "kind": kind,
        "writer": writer.id,
        "opening": writer.opening,
        "output": writer.output,
        "resumes": writer.resumes,
        "complete": False,
    }


def encoded(owner: Mapping[str, Any]) -> bytes:
    """Return the fields as they stand in the file."""
    if not owner["opening"]:
        return json.dumps(owner).encode()
    return json.dumps({**owner, _SUM: [owner["opening"], _sum(owner)]}).encode()


def _sum(owner: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(owner, sort_keys=True).encode())


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
        return parse_owner(path.read_bytes(), str(path), fields)
    except FileNotFoundError:
        return None


def parse_owner(data: bytes, place: str, fields: Mapping[str, type] = _FIELDS) -> dict[str, Any]:
    """Return the fields of an owner's file.

    Args:
        data: What the file holds.
        place: Where it is, for errors.
        fields: The types of the fields that must be there beside the version.

    Raises:
        StateError: It is damaged or of another layout.
    """
    try:
        known = json.loads(data)
    except ValueError:
        known = None
    if isinstance(known, dict) and known.get("version") == _VERSION:
        checksum = known.pop(_SUM, None)
        if all(type(known.get(name)) is kind for name, kind in {**_FIELDS, **fields}.items()):
            is_own = isinstance(checksum, list) and checksum[:1] == [known["opening"]]
            if is_own and checksum != [known["opening"], _sum(known)]:
                raise StateError(
                    f"{place!r}, which says who writes here and up to where, was changed: its "
                    "checksum does not match",
                    hint="Put it back as it was, from a copy, and start again",
                )
            return known
    elif isinstance(known, dict) and isinstance(known.get("version"), int):
        raise StateError(
            f"{place!r} has layout {known['version']}, and {_VERSION} is known",
            hint="Use the version of lowwater that wrote it, or give another place to write to",
        )
    raise unreadable(place)


def unreadable(place: str) -> StateError:
    """Return the error for an owner's file that is damaged."""
    return StateError(
        f"{place!r}, which says who writes here, cannot be read",
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


def foreign_opening(place: str, known: str, own: Writer) -> StateError:
    """Return the error for what an opening has written that this state knows nothing of.

    Args:
        place: What is opened.
        known: The opening that wrote it last.
        own: Who opens it.
    """
    return StateError(
        f"{place!r} was last written by opening {known[:8]} of the state {own.id[:8]}, which this "
        f"state directory knows nothing of: it is a copy of that one, older than it (its last "
        f"commit is epoch {own.epoch}), or the output was left out of a run since",
        hint=_ways_out(own.epoch),
    )


def ahead(place: str, found: int, own: Writer) -> StateError:
    """Return the error for an output that has later epochs than the state directory.

    Args:
        place: What is opened.
        found: The last epoch that was delivered to it.
        own: Who opens it.
    """
    return StateError(
        f"{place!r} holds epoch {found} of this state, but the last commit of the state directory "
        f"is epoch {own.epoch}: an older copy of it was put back",
        hint=_ways_out(own.epoch),
    )


def _ways_out(epoch: int) -> str:
    return (
        "Put back the state directory that wrote the output last; or give new, empty places to "
        f"write to: they get exactly what follows epoch {epoch}; or reset the state, give new "
        "places and run over all input again"
    )


def is_same_writer(known: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    """Whether both are of one writer, sink and output, so that the one resumes the other."""
    return all(known[name] == own[name] for name in ("kind", "writer", "output"))


def is_same_opening(known: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    """Whether both are of one opening of one writer, so that no other took the place meanwhile."""
    return is_same_writer(known, own) and known["opening"] == own["opening"]


def check_owner(
    place: str,
    known: Mapping[str, Any] | None,
    own: Mapping[str, Any],
    writer: Writer,
    *,
    overwrite: bool,
    last_epoch: int,
) -> None:
    """Raise if the output of another writer is there, and was not to be replaced.

    Args:
        place: What is opened.
        known: Whose output is there; ``None`` if nobody's.
        own: Who opens it, as its file would say.
        writer: Who opens it.
        overwrite: Whether another writer's output is to be replaced. What this writer has
            delivered, to this output or another, is not.
        last_epoch: The last epoch that was delivered there; 0 for none.

    Raises:
        StateError: It is, or this writer's output is of another opening or a later epoch than its
            state directory knows; the message says whose it is, and what to do.
    """
    if known is not None and is_same_writer(known, own):
        if not writer.follows(known["opening"]):
            raise foreign_opening(place, known["opening"], writer)
        if writer.resumes and last_epoch > writer.epoch:
            raise ahead(place, last_epoch, writer)
        return
    if known is not None and known["writer"] == own["writer"]:
        if known["output"] != own["output"]:
            raise swapped(place, known["output"], own["output"])
        raise StateError(
            f"{place!r} holds the output of a sink for {known['kind']}, and this one is for "
            f"{own['kind']}",
            hint="Give each sink a folder of its own",
        )
    if writer.delivered:
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
