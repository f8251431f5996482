"""The places that a run no longer writes to: what was delivered there is published before it goes.

A place is left when its output is removed, or when its sink is given another place. What its sink
held is listed in the state directory, and nobody else will publish it. So the first run without it
opens it once more, delivers again what comes again, and leaves it as the last run had it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from os.path import realpath
from typing import Protocol, TypeAlias, final

from lowwater.engine.local.delivery import Delivery, Writer
from lowwater.engine.local.pieces import writer_of
from lowwater.engine.local.run_record import StoredHeld
from lowwater.errors import DataError, InvalidArgument, PipelineWarning, StateError, warn

_LOG = logging.getLogger("lowwater.engine")


class LeftPlace(Protocol):
    """A place that no sink of the run writes to."""

    def look(self, writer: Writer, /) -> bool:
        """Return whether there is something to finish. Changes nothing.

        Raises:
            StateError: What its sink held cannot be published.
            DataError: The place cannot be read.
        """
        ...

    def finish(
        self, writer: Writer, deliveries: Sequence[Delivery], /, *, if_taken: bool
    ) -> Sequence[Delivery]:
        """Publish what its sink held, and what comes again; return what it did not take.

        Args:
            writer: Who opens it.
            deliveries: What comes again.
            if_taken: Whether to leave out what its sink had not taken before.

        Raises:
            StateError: Another run has the place, or it has changed meanwhile.
            DataError: The place cannot be written.
        """
        ...


Reopen: TypeAlias = Callable[[StoredHeld], LeftPlace | None]
"""Returns a place as a state directory knows it; ``None`` if it cannot be opened by its name."""


@final
class LeftPlaces:
    """The places of former sinks that none of the sinks of a run has.

    Args:
        held: What sinks held at the last commit.
        again: The deliveries that come again.
        writer: Who opens them.
        reopen: Opens a place.
        lost: The numbers of outputs that are gone: what their sinks had not taken may be dropped,
            or this run would have been refused.
        path: The state directory.
    """

    def __init__(
        self,
        held: Sequence[StoredHeld],
        again: Sequence[Delivery],
        writer: Writer,
        reopen: Reopen,
        lost: Collection[int],
        path: str,
    ) -> None:
        self._held = held
        self._again = again
        self._writer = writer
        self._reopen = reopen
        self._lost = lost
        self._path = path
        self._left: list[tuple[StoredHeld, LeftPlace, Writer, list[Delivery]]] = []
        self.is_any = False
        """Whether there are places that have been left."""

    @property
    def outputs(self) -> frozenset[int]:
        """The numbers of outputs of which a place that was left gets what comes again."""
        return frozenset(held.output for held, *_ in self._left)

    def look(self, claimed: Collection[str], places: Collection[str]) -> None:
        """Find what there is to finish. Changes nothing.

        Args:
            claimed: The ids of the places that the sinks of the run have.
            places: The names of these places.

        Raises:
            StateError: What a sink held cannot be published, and may not be dropped.
        """
        paths = {realpath(name) for name in places}
        for held in self._held:
            # A state without lists has no ids; it knows places by their names alone.
            if held.id in claimed or (not held.is_listed and realpath(held.place) in paths):
                continue
            self.is_any = True
            writer = writer_of(self._writer, held.output, self._held, self._again)
            deliveries = [one for one in self._again if one.output == held.output]
            if held.is_listed and not held.files and not deliveries:
                continue
            try:
                place = self._reopen(held)
                if place is None:
                    raise StateError(
                        f"nothing can open {held.place!r} by its name",
                        hint="Run the pipeline as it was until it ends or is stopped",
                    )
                if place.look(writer):
                    self._left.append((held, place, writer, deliveries))
            except (StateError, DataError, InvalidArgument) as error:
                self._give_up(held, error)

    def finish(self) -> None:
        """Publish what sinks held in places that are left, and what comes again.

        Raises:
            StateError: A place has changed since :meth:`look`.
            DataError: A place cannot be written.
        """
        for held, place, writer, deliveries in self._left:
            dropped = place.finish(writer, deliveries, if_taken=held.output in self._lost)
            _LOG.info(
                "%s: %r is not written to any more; the %d rows that had collected there are "
                "published, and %d deliveries that came again",
                self._path, held.place, held.rows, len(deliveries) - len(dropped),
            )  # fmt: skip
            if dropped:
                _LOG.warning(
                    "%s: %d rows had not been delivered to %r, and are dropped",
                    self._path, sum(one.rows for one in dropped), held.place,
                )  # fmt: skip

    def _give_up(self, held: StoredHeld, error: StateError | DataError | InvalidArgument) -> None:
        """Raise for a place that cannot be finished, unless nothing waits there or it may go."""
        what = (
            f"{held.rows:,} rows wait unpublished in {held.place!r}, which this run does not "
            f"write to: {error.what}"
        )
        if not held.files:
            _LOG.info("%s: %r is not written to any more: %s", self._path, held.place, error.what)
        elif self._writer.drops:
            warn(
                PipelineWarning,
                f"{what}; they are dropped",
                where=self._path,
                hint="That is what drop_undelivered=True is for; leave it out otherwise",
            )
        else:
            raise StateError(
                what,
                where=self._path,
                hint=f"{error.hint}; or go on without these rows: drop_undelivered=True",
            ) from error


def cannot_reopen(_: StoredHeld) -> LeftPlace | None:
    """Return ``None``: nothing here knows how to open a place by its name."""
    return None
