"""The cell of state that Spark holds per key group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from lowwater.errors import StateError
from lowwater.state.formats import FORMATS, check_format

FORMAT = "Spark cells"
_HINT = "Start a new checkpoint, or finish with the lowwater that wrote this one"
CELL_DDL = "layout int, key_groups int, backend string, stamp binary, latest long, content binary"


@final
@dataclass(frozen=True, slots=True)
class GroupCell:
    """What is stored of a key group.

    Args:
        key_groups: How many key groups there are.
        backend: The name of the backend that ``content`` belongs to.
        stamp: Differs from that of every other cell ever written.
        latest: The latest event time seen, int microseconds; ``None`` before any.
        content: What the backend saved.
    """

    key_groups: int
    backend: str
    stamp: bytes
    latest: int | None
    content: bytes

    def to_row(self) -> tuple[Any, ...]:
        """Return the cell as a row for Spark."""
        layout = FORMATS[FORMAT]
        return (layout, self.key_groups, self.backend, self.stamp, self.latest, self.content)

    @classmethod
    def from_row(cls, row: tuple[Any, ...], *, key_groups: int, backend: str) -> GroupCell:
        """Return the cell of a row, if it goes with the pipeline as it is now.

        Raises:
            StateError: It was written with another layout, number of key groups or backend.
        """
        layout, stored_groups, stored_backend, stamp, latest, content = row
        check_format(FORMAT, layout, where="the checkpoint", hint=_HINT)
        if stored_groups != key_groups:
            raise StateError(
                f"the checkpoint's state is in {stored_groups} key groups, not {key_groups}",
                where="to_spark(key_groups=)",
                hint=f"Use key_groups={stored_groups}, or begin with a new checkpoint",
            )
        if stored_backend != backend:
            raise StateError(
                f"the checkpoint's state is kept by {stored_backend!r}, not {backend!r}",
                where="to_spark(state=)",
                hint=f"Use state={stored_backend!r}, or begin with a new checkpoint",
            )
        return cls(stored_groups, stored_backend, bytes(stamp), latest, bytes(content))
