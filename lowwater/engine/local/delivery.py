"""What a run hands to its sinks, and the protocol that a sink implements."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import PurePath
from typing import Protocol, TypeAlias, final, runtime_checkable

import pyarrow as pa

from lowwater.engine.graph.sources import GrowingMap
from lowwater.engine.records.pane_table import MICROS_UTC, PANE_FIELDS
from lowwater.errors import InvalidArgument, describe

EPOCHS = 10**12
OUTPUTS = 1_000
PIECES = 1_000_000


@final
@dataclass(frozen=True, slots=True)
class Delivery:
    """A piece of what a run writes to one of its outputs.

    A run writes in epochs: with a state directory, an epoch is a commit. What an epoch brings to
    an output is cut into pieces. A sink receives the deliveries of one output, in the order of
    (epoch, piece). After a crash of a run with a state directory the last epoch is delivered
    again: under the same ids, with the same content.

    Args:
        epoch: The number of the epoch; it rises from epoch to epoch.
        output: The number of the output within the run, from 0.
        piece: The number of the piece within the epoch and output, from 0.
        panes: As :func:`~lowwater.engine.records.pane_table.panes_to_table` returns; may be empty.
            Of a table, the net changes: at most one per primary key, whose columns come first; with
            ``kind``, ``insert`` for a row that now stands and ``retract`` for one that went.
        late: Elements dropped from one of their windows, or ``None``.
        errors: Dead letters, or ``None``.

    Raises:
        InvalidArgument: The numbers are out of range, or ``panes`` lacks a column.
    """

    epoch: int
    output: int
    piece: int
    panes: pa.Table
    late: pa.Table | None = None
    errors: pa.Table | None = None

    def __post_init__(self) -> None:
        for name, number, limit in (
            ("epoch", self.epoch, EPOCHS),
            ("output", self.output, OUTPUTS),
            ("piece", self.piece, PIECES),
        ):
            if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < limit:
                raise InvalidArgument(
                    f"{describe(name, number)} must be an int from 0 to {limit - 1}",
                    hint="Number epochs, the outputs of a run, and pieces from 0",
                )
        _check_panes(self.panes)

    @property
    def id(self) -> str:
        """The delivery's name, of fixed width: the ids of an output sort as deliveries come."""
        return f"{self.epoch:012d}-{self.output:03d}-{self.piece:06d}"

    @property
    def rows(self) -> int:
        """How many rows it has: panes, late elements and dead letters."""
        tables = (self.panes, self.late, self.errors)
        return sum(table.num_rows for table in tables if table is not None)

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the key columns: those before ``window_start``, or the primary key."""
        from lowwater.engine.join.views import key_of

        names = self.panes.schema.names
        if (key := key_of(self.panes)) is not None:
            return key
        if self.is_records:
            raise InvalidArgument(
                "these are records that a process emitted: they have no windows to go by",
                where="write_to",
                hint="Write them to a folder of files or a callback",
            )
        return tuple(names[: names.index("window_start")])

    @property
    def is_records(self) -> bool:
        """Whether ``panes`` are no panes, but records that a process emitted."""
        return b"lowwater.records" in (self.panes.schema.metadata or {})

    @property
    def is_table(self) -> bool:
        """Whether ``panes`` are no panes, but the changes of a table with a primary key."""
        from lowwater.engine.join.views import key_of

        return key_of(self.panes) is not None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """Who opens a sink. What another writer has written is never mixed with this one's.

    Args:
        id: Names the state directory since it was made or reset; without one, the run.
        output: The number of the output that the sink gets.
        resumes: Whether the writer may come back after a crash, as a run with a state directory
            does. It then delivers its last epoch again.
        delivered: Whether the writer has delivered to the sink's places before, up to its last
            commit. Its output must be there then: what is lost of it would not come again.
        opening: A random id of this opening of the state directory. The sink stores it: the
            output belongs to the opening that it names.
        openings: The earlier openings that the output may name, as this one follows them. Another
            opening of the same writer is one of a copy of the state directory, or of a later
            state than this one: either has delivered what this writer knows nothing of.
        epoch: The last epoch that the state directory holds. An output that is ahead of it has
            deliveries that this writer would number again.
        new_id: The :attr:`Held.id` of the sink's place, if it has none yet.
        held: What sinks of this output held at the last commit, by :attr:`Held.id`. Of an id that
            is not there nothing is known: the state is older than these lists.
        again: The ids of the deliveries that come again: a sink may hold some of them, and they are
            in no list yet.
        drops: Whether a sink may drop what it held and no longer has. It says what it drops.
    """

    id: str
    output: int
    resumes: bool
    delivered: bool = False
    opening: str = ""
    openings: tuple[str, ...] = ()
    epoch: int = 0
    new_id: str = ""
    held: Mapping[str, Mapping[str, Sequence[int]]] = field(default_factory=dict, repr=False)
    again: frozenset[str] = frozenset()
    drops: bool = False

    def follows(self, opening: str) -> bool:
        """Whether the output that an opening of the same writer wrote may be continued."""
        return opening == self.opening or opening in self.openings


Identities: TypeAlias = Mapping[str, Collection[Hashable]]
"""What parts of a place are, beyond how they are spelled: equal parts share an element."""


@final
@dataclass(frozen=True, slots=True)
class Place:
    """A place that a sink writes to: no other sink of the same run may write there.

    A source that is no file may have ``places()`` too: what it reads there, no sink may write.

    Args:
        at: A file or a folder: a ``Path`` on this machine, another pure path in a remote store; or
            text that names the place otherwise, such as how to connect to a database. Two paths
            conflict if one lies within the other, too.
        name: What errors call the place; its path if empty. Text in ``at`` is never printed.
        parts: The parts of it that are written, such as tables: two sinks may write to different
            ones. Empty: all of it.
        patterns: For a folder, the names in it that the sink writes or removes, as ``"part-*"``:
            files of other names may be another sink's. Empty: all names.
        also: Further parts that are written, which several sinks may share.
        identify: Asks what some of the parts are, such as their ids on the server: one server has
            many addresses. Parts of which nothing is known are left out. ``at`` then begins with
            the kind of the place and a space; only places of one kind are compared.
    """

    at: PurePath | str = field(repr=False)
    name: str = ""
    parts: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    identify: Callable[[Collection[str]], Identities] | None = field(
        default=None, repr=False, compare=False
    )


@runtime_checkable
class Sink(Protocol):
    """Writes what a run delivers to one of its outputs.

    A run calls ``places`` before anything else, then ``open`` once, ``deliver`` for each piece,
    and ``close`` once. A sink may be used by a later run, which opens it again.
    """

    def places(self) -> Iterable[Place]:
        """Return what the sink writes to; nothing, if that cannot be known. Changes nothing."""
        ...

    def open(self, writer: Writer, /) -> None:
        """Prepare to write, at the start of a run and at every restart.

        Look before touching: the output of another writer is refused, unless the user asked to
        replace it. For the same writer, finish or remove what a crash left half done.
        """
        ...

    def deliver(self, delivery: Delivery, /) -> None:
        """Write a piece; it is durable when this returns.

        A piece that was written before has no further effect: this is what makes a run with a
        state directory exactly once.
        """
        ...

    def close(self, *, complete: bool) -> None:
        """Release files and connections.

        Args:
            complete: Whether everything of the run was delivered; if not, it failed or was
                stopped.
        """
        ...


@runtime_checkable
class Looks(Protocol):
    """What a sink may have beside the methods of :class:`Sink`, as the built-in ones do.

    A run with several sinks calls ``look`` of all before it calls ``open`` of the first, so that a
    sink that refuses its place leaves the places of the others as they are.
    """

    def look(self, writer: Writer, /) -> None:
        """Raise what ``open`` would raise about what is at the place. Changes nothing."""
        ...


@runtime_checkable
class Collects(Protocol):
    """What a sink has, beside the methods of :class:`Sink`, that lets deliveries collect.

    A run calls ``publish_due`` at the boundaries of bundles, so that what has waited for long is
    published although nothing new is delivered.
    """

    def publish_due(self) -> None:
        """Publish what has collected, if it is time to."""
        ...


@final
@dataclass(frozen=True, slots=True)
class Held:
    """The files of deliveries that a sink took and no reader sees yet: there is no other copy.

    Args:
        id: Names the place where they are, wherever it is moved; random.
        files: By name the size in bytes, the CRC-32, and the number of rows.
    """

    id: str
    files: GrowingMap


@runtime_checkable
class Holds(Protocol):
    """What a sink has, beside the methods of :class:`Sink`, that keeps what no reader sees yet.

    A commit stores what the sink holds, so that a restart notices what is gone or damaged, and that
    a run without the sink can publish it.
    """

    def unpublished(self) -> Held | None:
        """Return what the sink holds; ``None`` if it neither looked at its place nor opened it."""
        ...


@runtime_checkable
class Checks(Protocol):
    """What a sink may have beside the methods of :class:`Sink`, as the tables do.

    Called when the sink is given to a pipeline, so that an output that the sink can never take is
    refused before anything runs: once a delivery is committed, it comes at every restart.
    """

    def check(self, panes: pa.Table, /) -> None:
        """Raise if the sink cannot take deliveries with these columns. Changes nothing.

        Args:
            panes: The output's table of panes, without rows. Types are not known yet.
        """
        ...


METHODS = ("places", "open", "deliver", "close")


def check_sink(sink: object, hint: str) -> None:
    """Raise unless an object has the methods of a sink.

    Raises:
        InvalidArgument: It lacks some; the message names them.
    """
    missing = [name for name in METHODS if not callable(getattr(sink, name, None))]
    if isinstance(sink, type):
        missing = ["an instance"]
        hint = f"Give an object, such as {sink.__name__}(...)"
    elif isinstance(sink, (str, PathLike)):
        hint = f"Write .write_parquet({str(sink)!r}) or .write_jsonl({str(sink)!r})"
    elif isinstance(sink, (list, tuple)):
        hint = "Give the sinks one by one: write_to(first, second)"
    elif callable(sink):
        name = getattr(sink, "__name__", "function")
        hint = f"Call a function for each delivery with lowwater.io.sinks.Callback({name})"
    if missing:
        raise InvalidArgument(
            f"{describe('sink', sink)} is no sink: it lacks {', '.join(missing)}", hint=hint
        )


def _check_panes(panes: pa.Table) -> None:
    if not isinstance(panes, pa.Table):
        raise InvalidArgument(
            f"{describe('panes', type(panes).__name__)} is not an Arrow table",
            hint="Use panes_to_table(batch, keys)",
        )
    names = panes.schema.names
    if b"lowwater.records" in (panes.schema.metadata or {}):
        return
    if len(set(names)) < len(names):
        raise InvalidArgument(
            f"columns of panes have the same name: {', '.join(names)}", hint="Rename one"
        )
    instants = [pa.field("window_start", MICROS_UTC), pa.field("window_end", MICROS_UTC)]
    for wanted in (*instants, *PANE_FIELDS):
        found = panes.schema.get_field_index(wanted.name)
        if found < 0 or panes.schema.field(found).type != wanted.type:
            raise InvalidArgument(
                f"panes lack the column {wanted.name!r} of type {wanted.type}",
                hint="Use panes_to_table(batch, keys)",
            )
