"""The cell of state that Spark holds per key group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from lowwater.errors import StateError
from lowwater.state.formats import FORMATS, check_format

FORMAT = "Spark cells"
_HINT = "Run it with the lowwater that wrote it, or begin with a new checkpoint"
CELL_DDL = "layout int, key_groups int, keeper string, stamp binary, latest long, content binary"


@final
@dataclass(frozen=True, slots=True)
class Cell:
    """What is stored of a key group.

    Args:
        key_groups: How many key groups there are.
        keeper: The name of the keeper that ``content`` belongs to.
        stamp: Differs from that of every other cell ever written.
        latest: The latest event time seen, int microseconds; ``None`` before any.
        content: What the keeper saved.
    """

    key_groups: int
    keeper: str
    stamp: bytes
    latest: int | None
    content: bytes

    def to_row(self) -> tuple[Any, ...]:
        """Return it as Spark takes it."""
        layout = FORMATS[FORMAT]
        return (layout, self.key_groups, self.keeper, self.stamp, self.latest, self.content)

    @classmethod
    def from_row(cls, row: tuple[Any, ...], *, key_groups: int, keeper: str) -> Cell:
        """Return the cell of a row, if it goes with the pipeline as it is now.

        Raises:
            StateError: It was written with another layout, number of key groups or keeper.
        """
        layout, stored_groups, stored_keeper, stamp, latest, content = row
        check_format(FORMAT, layout, where="the checkpoint", hint=_HINT)
        if stored_groups != key_groups:
            raise StateError(
                f"the checkpoint's state is in {stored_groups} key groups, not {key_groups}",
                where="to_spark(key_groups=)",
                hint=f"Use key_groups={stored_groups}, or begin with a new checkpoint",
            )
        if stored_keeper != keeper:
            raise StateError(
                f"the checkpoint's state is kept by {stored_keeper!r}, not {keeper!r}",
                where="to_spark(state=)",
                hint=f"Use state={stored_keeper!r}, or begin with a new checkpoint",
            )
        return cls(stored_groups, stored_keeper, bytes(stamp), latest, bytes(content))
