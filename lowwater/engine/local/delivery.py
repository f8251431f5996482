"""What a commit hands to a sink, and the sinks to which handing it over twice does no harm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, final, runtime_checkable

import pyarrow as pa

from lowwater.engine.records.pane_table import MICROS_UTC, PANE_FIELDS
from lowwater.errors import InvalidArgument, describe

EPOCHS = 2**63
SEQUENCES = 1_000_000


@final
@dataclass(frozen=True, slots=True)
class Delivery:
    """A piece of a commit's output, on its way from the outbox to a sink.

    Deliveries come in the order of (epoch, sequence). After a crash the last ones come again:
    under the same id, with the same content.

    Args:
        epoch: The number of the commit whose output this is; it rises from commit to commit.
        sequence: The place within the epoch, from 0.
        panes: As :func:`~lowwater.engine.records.tagged.panes_to_table` returns; may be empty.
        late: Elements dropped from one of their windows, or ``None``.
        errors: Dead letters, or ``None``.

    Raises:
        InvalidArgument: The numbers are out of range, or ``panes`` lacks a column.
    """

    epoch: int
    sequence: int
    panes: pa.Table
    late: pa.Table | None = None
    errors: pa.Table | None = None

    def __post_init__(self) -> None:
        for name, number, limit in (
            ("epoch", self.epoch, EPOCHS),
            ("sequence", self.sequence, SEQUENCES),
        ):
            if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < limit:
                raise InvalidArgument(
                    f"{describe(name, number)} must be an int from 0 to {limit - 1}",
                    hint="Number commits from 0, and deliveries within each from 0",
                )
        _check_panes(self.panes)

    @property
    def id(self) -> str:
        """The name of the delivery: of fixed width, so that ids sort as deliveries come."""
        return f"{self.epoch:020d}-{self.sequence:06d}"

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the key columns: those before ``window_start``."""
        names = self.panes.schema.names
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


@runtime_checkable
class DurableSink(Protocol):
    """Takes deliveries for good; the same one again has no further effect."""

    def open(self, description: Mapping[str, object]) -> None:
        """Make ready, at the start and at every restart; finish or remove half-done work.

        Args:
            description: What the pipeline says of itself. A sink looks at ``"state_id"``: text
                that names the state directory since it was made or reset. What another one has
                written is refused, as its epochs would be taken for those of this one.
        """
        ...

    def deliver(self, delivery: Delivery) -> None:
        """Take a delivery; it is durable when this returns."""
        ...

    def close(self) -> None:
        """Let go of files and connections; a sink that is not open has nothing to do."""
        ...


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
    for field in (*instants, *PANE_FIELDS):
        found = panes.schema.get_field_index(field.name)
        if found < 0 or panes.schema.field(found).type != field.type:
            raise InvalidArgument(
                f"panes lack the column {field.name!r} of type {field.type}",
                hint="Use panes_to_table(batch, keys)",
            )
