"""The outputs of a run, and how what comes out is cut into deliveries.

Both kinds of runs cut alike, so that the same epochs give the same deliveries: an output's rows
become pieces as soon as there are :data:`PIECE_ROWS` of them, and at the end of each epoch.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, final

import pyarrow as pa

from lowwater.engine.graph.graph import MAIN
from lowwater.engine.local.delivery import (
    OUTPUTS,
    Collects,
    Delivery,
    Holds,
    Looks,
    Sink,
    Writer,
)
from lowwater.engine.local.outcomes import LateElements, Outcome
from lowwater.engine.local.run_record import StoredHeld
from lowwater.engine.records.json_rows import errors_to_table, late_to_table
from lowwater.engine.records.panes import ErrorRecord
from lowwater.engine.records.stage_output import Output, output_table
from lowwater.errors import InvalidArgument, StateError
from lowwater.state.forks import check_process, process_number

if TYPE_CHECKING:
    from lowwater.engine.join.views import View

PIECE_ROWS = 131_072
"""How many panes, late elements or dead letters a piece has at most."""

PIECE_BYTES = 64 << 20
"""How large a piece is at most, as Arrow counts, unless one row is larger."""


@final
@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RunOutput:
    """An output of a run: what leaves it there, and for which sinks.

    Args:
        stage: Number of the stage whose panes it gets.
        keys: The names of that stage's key columns.
        sinks: Where the deliveries go.
        empty: The table of panes of a delivery that has none.
        late_of: Numbers of the stages whose late elements it gets.
        tag: Which output of the stage is meant, if it is a process.
        view: How the stage's output becomes the changes of a table; ``None`` if it does not.
        number: Its number in the names of deliveries.
        set_aside: Called with the rows for which a step of the view fails, which are dead letters.
    """

    stage: int
    keys: Sequence[str]
    sinks: Sequence[Sink]
    empty: pa.Table
    late_of: frozenset[int]
    tag: str = MAIN
    view: View | None = None
    number: int = 0
    set_aside: Callable[[Sequence[ErrorRecord]], None] | None = None

    @property
    def places(self) -> list[str]:
        """The names of the places of its sinks."""
        return [name for sink in self.sinks for name in place_names(sink)]


@final
class Opened:
    """The sinks of a run while they are open; set ``complete`` when all was delivered.

    Args:
        writers: The sinks, and what each of them knows the run by.
    """

    def __init__(self, writers: Iterable[tuple[Sink, Writer]]) -> None:
        self.complete = False
        self._writers = list(writers)
        self._collecting = [sink for sink, _ in self._writers if isinstance(sink, Collects)]
        self._process = process_number()

    def held(self) -> list[StoredHeld]:
        """Return what the sinks hold, those that have opened their places or looked at them.

        Raises:
            StateError: Two of them hold the same, as the place of one is a copy of the other's.
        """
        found: dict[str, StoredHeld] = {}
        for sink, writer in self._writers:
            held = sink.unpublished() if isinstance(sink, Holds) else None
            if held is None:
                continue
            (place,) = place_names(sink)
            if held.id in found:
                raise StateError(
                    f"{place!r} is a copy of {found[held.id].place!r}: a run that writes to both "
                    "could not tell them apart",
                    hint="Give one of the two sinks an empty place",
                )
            found[held.id] = StoredHeld(
                writer.output, type(sink).__name__, place, held.id, held.files
            )
        return list(found.values())

    def is_new(self, sink: Sink) -> bool:
        """Whether a sink has got nothing of this state before, as far as can be known."""
        (writer,) = (writer for one, writer in self._writers if one is sink)
        held = sink.unpublished() if isinstance(sink, Holds) else None
        return not writer.delivered and (held is None or held.id not in writer.held)

    @property
    def is_forked(self) -> bool:
        """Whether this process was forked off the one that opened the sinks."""
        return process_number() != self._process

    def check_process(self) -> None:
        """Raise in a process that was forked off: the sinks and the state are its parent's.

        Raises:
            StateError: This is one.
        """
        check_process(self._process)

    def publish_due(self) -> None:
        """Publish in sinks what has waited for long."""
        for sink in self._collecting:
            sink.publish_due()


@contextmanager
def opened(
    outputs: Sequence[RunOutput],
    writer: Writer,
    *,
    delivered: Collection[str] = (),
    held: Sequence[StoredHeld] = (),
    again: Sequence[Delivery] = (),
    announce: Callable[[Opened], object] = Opened.held,
) -> Iterator[Opened]:
    """Open all sinks, and close those that were opened, whatever happens.

    All that can look at their places first do so, before one of them changes anything.

    Args:
        outputs: The outputs of the run.
        writer: What the sinks know the run by; each sink gets it with the number of its output.
        delivered: The names of places that runs under this name have delivered to before.
        held: What sinks held at the last commit.
        again: The deliveries that come again.
        announce: Called when all places were found to be right, before the first one changes.
    """
    writers: list[tuple[Sink, Writer]] = []
    for output in outputs:
        own = writer_of(writer, output.number, held, again)
        for sink in output.sinks:
            names = place_names(sink)
            before = bool(names) and all(name in delivered for name in names)
            writers.append((sink, replace(own, delivered=before, new_id=secrets.token_hex(8))))
    found = Opened(writers)
    for sink, one in writers:
        if isinstance(sink, Looks):
            sink.look(one)
    announce(found)
    with ExitStack() as stack:
        for sink, one in writers:
            sink.open(one)
            stack.callback(_close, sink, found)
        yield found


def writer_of(
    writer: Writer, number: int, held: Iterable[StoredHeld], again: Iterable[Delivery]
) -> Writer:
    """Return what the sinks of an output know a run by."""
    return replace(
        writer,
        output=number,
        held={one.id: one.files for one in held if one.output == number and one.is_listed},
        again=frozenset(one.id for one in again if one.output == number),
    )


def place_names(sink: Sink) -> list[str]:
    """Return what a state directory knows the places of a sink by; nothing of it is secret."""
    names = []
    for place in sink.places():
        # Text may hold a password, which also changes while the place stays what it is.
        at = str(place.at) if isinstance(place.at, Path) else type(sink).__name__
        parts = place.parts or (() if isinstance(place.at, Path) else (place.name,))
        names.append(" ".join([at, *parts]))
    return names


def _close(sink: Sink, opened: Opened) -> None:
    if not opened.is_forked:  # the parent still writes there
        sink.close(complete=opened.complete)


@final
class Pieces:
    """Collects what comes out of a run, and cuts it into deliveries.

    Dead letters go to the first output. ``is_cut`` says whether the epoch has had a full piece: it
    is large enough to end.

    Args:
        outputs: The outputs of the run.

    Raises:
        InvalidArgument: There are more outputs than a delivery's name has room for.
    """

    def __init__(self, outputs: Sequence[RunOutput]) -> None:
        if len(outputs) > OUTPUTS:
            raise InvalidArgument(
                f"the run has {len(outputs)} outputs",
                where="run",
                hint=f"Use at most {OUTPUTS}: run the rest as a pipeline of its own",
            )
        self._pending = [_Pending(output, is_first=not at) for at, output in enumerate(outputs)]
        self.is_cut = False

    def begin(self, epoch: int) -> None:
        """Begin an epoch: its pieces are numbered from 0."""
        self.is_cut = False
        for pending in self._pending:
            pending.epoch, pending.piece = epoch, 0

    def add(self, outcome: Outcome) -> Iterator[Delivery]:
        """Add an outcome; yield the pieces that are full."""
        for pending in self._pending:
            pending.take(outcome)
            if pending.rows >= PIECE_ROWS:
                self.is_cut = True
                self._prepare(pending)
                yield from pending.cut()

    def rest(self) -> Iterator[Delivery]:
        """Yield what is left at the end of the epoch."""
        for pending in self._pending:
            self._prepare(pending)  # what the other outputs reject goes to the first one
        for pending in self._pending:
            yield from pending.cut()

    def _prepare(self, pending: _Pending) -> None:
        if errors := pending.prepare():
            self._pending[0].errors.extend(errors)


@final
class _Pending:
    """What waits to be delivered to an output."""

    def __init__(self, output: RunOutput, *, is_first: bool) -> None:
        self.epoch = 0
        self.piece = 0
        self._is_first = is_first
        self._output = output
        self._emitted: list[Output] = []
        self._late: list[LateElements] = []
        self.errors: list[ErrorRecord] = []
        self._table: pa.Table | None = None

    @property
    def rows(self) -> int:
        """How many rows the longest of the tables would have."""
        tables = (self._emitted, self._late)
        return max(*(sum(map(len, parts)) for parts in tables), len(self.errors))

    def take(self, outcome: Outcome) -> None:
        """Add what an outcome has for this output."""
        output = self._output
        if outcome.stage == output.stage and output.tag in outcome.outputs:
            self._emitted.append(outcome.outputs[output.tag])
        if outcome.late is not None and outcome.stage in output.late_of:
            self._late.append(outcome.late.compact())
        if outcome.errors and self._is_first:
            self.errors.extend(outcome.errors)

    def prepare(self) -> list[ErrorRecord]:
        """Convert what waits to a table, before :meth:`cut`; return the rows that are rejected."""
        rejected: list[ErrorRecord] = []
        self._table = self._converted(rejected)
        self._emitted = []
        if rejected and self._output.set_aside is not None:
            self._output.set_aside(rejected)
        return rejected

    def cut(self) -> Iterator[Delivery]:
        """Yield all that was prepared, in pieces of about the same size."""
        late = [record for part in self._late for record in part.to_records()]
        errors = self.errors
        panes = self._output.empty if self._table is None else self._table
        self._table, self._late, self.errors = None, [], []
        tables = (
            panes,
            late_to_table(late) if late else None,
            errors_to_table(errors) if errors else None,
        )
        count = max(_pieces(table) for table in tables)
        for at in range(count):
            shown, dropped, failed = (_part(table, at, count) for table in tables)
            yield Delivery(
                self.epoch,
                self._output.number,
                self.piece,
                panes.slice(0, 0) if shown is None else shown,
                dropped,
                failed,
            )
            self.piece += 1

    def _converted(self, rejected: list[ErrorRecord]) -> pa.Table:
        """Return the panes, records or changes that wait as a table."""
        output = self._output
        if not self._emitted:
            return output.empty
        if output.view is None:
            return output_table(self._emitted, output.keys)
        records = output.view.records(self._emitted, output.keys, rejected.extend)
        return output.view.changes(records)


def _pieces(table: pa.Table | None) -> int:
    """Return into how many pieces a table has to be cut."""
    if table is None or not table.num_rows:
        return 0
    by_size = -(-table.nbytes // PIECE_BYTES)
    return min(table.num_rows, max(-(-table.num_rows // PIECE_ROWS), by_size))


def _part(table: pa.Table | None, at: int, count: int) -> pa.Table | None:
    """Return one of so many parts of a table; ``None`` if it is empty."""
    if table is None:
        return None
    start, stop = (table.num_rows * edge // count for edge in (at, at + 1))
    return table.slice(start, stop - start) if stop > start else None
