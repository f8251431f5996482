"""Windows as records of bytes that stand by themselves: what a window is when it leaves memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from lowwater.engine.window.window_state import WindowState
from lowwater.state.codec import decode, encode
from lowwater.state.damage import damaged, decoding
from lowwater.state.journal import check_packed, joined, row_type
from lowwater.state.side_columns import Loose, Parts, check_parts
from lowwater.state.table import Table
from lowwater.time import Int64Array

Layout: TypeAlias = list[tuple[str, str, Any]]
"""(name, dtype, fill) of each packed column."""

_NUMBER = "layout"
_PLACE = "derived:place"
_SHOWN = "shown"
# A record is stored under its key, start and end; what refers to rows of memory stays there.
_LEFT_OUT = frozenset({"key", "start", "end", "due", "clock_due", "hold", "turn", "shown"})


@final
@dataclass(frozen=True, slots=True)
class Records:
    """Frozen windows.

    Args:
        packed: The fixed-width columns, uint8, shape (n, width).
        loose: The rest of each, empty bytes where there is none; ``None`` if there is none of any.
    """

    packed: NDArray[np.uint8]
    loose: list[bytes] | None


@final
class Freezer:
    """Packs windows into records, and unpacks records into rows.

    A record begins with the number of the layout it was packed in, since columns come and widen
    while records lie in the store.

    Args:
        state: The windows.
    """

    def __init__(self, state: WindowState) -> None:
        self._state = state
        self._loose = Loose(state.table, state.aggregation.bags)
        self.layouts: list[Layout] = []
        self.shown_layouts: list[Layout] = []

    def expect(self, layouts: Sequence[Any], shown_layouts: Sequence[Any]) -> None:
        """Get ready to unpack records in layouts that were written down before."""
        for known, read in ((self.layouts, layouts), (self.shown_layouts, shown_layouts)):
            for layout in read:
                known.append([(name, kind, fill) for name, kind, fill in layout])
                _dtype(known[-1])

    def may_be_loose(self) -> bool:
        """Whether records may have a part that is not packed."""
        return self._state.shown is not None or self._loose.is_any()

    def pack(self, rows: Int64Array) -> Records:
        """Return the records of rows, whose shown panes are taken off them."""
        layout = [*_layout(self._state.table, _LEFT_OUT), (_PLACE, "<i8", 0)]
        places = self._state.places(rows)
        packed = _packed(self._state.table, rows, layout, _number(self.layouts, layout), places)
        if not self.may_be_loose():
            return Records(packed, None)
        each = self._loose.of(rows)
        self._pack_shown(rows, each)
        return Records(packed, [encode(parts) if parts else b"" for parts in each])

    def unpack(
        self, rows: Int64Array, values: Sequence[bytes], loose: Sequence[bytes | None]
    ) -> Int64Array:
        """Fill rows, newly allocated, from their records; return the places of their keys.

        Raises:
            StateError: A record is damaged.
        """
        state = self._state
        places = np.zeros(len(rows), dtype=np.int64)
        with decoding("a stored window"):
            for at, packed, layout in unpacked(values, self.layouts):
                places[at] = packed[_PLACE]
                _fill(state.table, rows[at], packed, layout)
            which = [at for at, data in enumerate(loose) if data]
            each = [check_parts(decode(loose[at] or b"")) for at in which]
            owners = rows[which].tolist()
            self._unpack_shown(rows[which], [parts.pop(_SHOWN, None) for parts in each])
            self._loose.put(owners, each)
        return places

    def peek(self, values: Sequence[bytes]) -> tuple[Int64Array, NDArray[np.bool_]]:
        """Return (place of each record's key, whether its window has finished)."""
        places = np.zeros(len(values), dtype=np.int64)
        finished = np.zeros(len(values), dtype=np.bool_)
        with decoding("a stored window"):
            for at, packed, _ in unpacked(values, self.layouts):
                places[at], finished[at] = packed[_PLACE], packed["finished"]
        return places, finished

    def _pack_shown(self, rows: Int64Array, each: list[Parts]) -> None:
        shown = self._state.shown
        if shown is None:
            return
        panes, which = shown.take(rows)
        if panes.size:
            order = np.argsort(which, kind="stable")  # of one window they stay in their order
            panes, which = panes[order], which[order]
            layout = _layout(shown.table, frozenset({"next"}))
            number = _number(self.shown_layouts, layout)
            packed = _packed(shown.table, panes, layout, number, None)
            objects = Loose(shown.table, dict).of(panes)
            for pane, window in enumerate(which.tolist()):
                held = each[window].setdefault(_SHOWN, [])
                held.append((packed[pane].tobytes(), objects[pane]))
        shown.release(panes)

    def _unpack_shown(self, rows: Int64Array, held: Sequence[Any]) -> None:
        shown = self._state.shown
        if shown is None or not any(held):
            return
        flat = [(row, pane) for row, panes in zip(rows, held, strict=True) for pane in panes or ()]
        panes = shown.table.allocate(len(flat))
        for at, packed, layout in unpacked([pane[0] for _, pane in flat], self.shown_layouts):
            _fill(shown.table, panes[at], packed, layout)
        Loose(shown.table, dict).put(panes.tolist(), [check_parts(pane[1]) for _, pane in flat])
        shown.link(np.array([row for row, _ in flat], dtype=np.int64), panes)


def _layout(table: Table, left_out: frozenset[str]) -> Layout:
    return [
        (field.name, np.dtype(field.dtype).str, _plain(field.fill))
        for field in table.fields
        if np.dtype(field.dtype).kind != "O"
        and field.name not in left_out
        and not field.name.startswith("slot:")
    ]


def _plain(fill: Any) -> Any:
    return fill.item() if isinstance(fill, np.generic) else fill


def _number(layouts: list[Layout], layout: Layout) -> int:
    """Return the number of a layout, a new one if it is new."""
    if not layouts or layouts[-1] != layout:
        layouts.append(layout)
    return len(layouts) - 1


def _dtype(layout: Layout) -> np.dtype[Any]:
    return row_type([(_NUMBER, "<u2"), *((name, kind) for name, kind, _ in layout)])


def _packed(
    table: Table, rows: Int64Array, layout: Layout, number: int, places: Int64Array | None
) -> NDArray[np.uint8]:
    packed = np.empty(len(rows), dtype=_dtype(layout))
    packed[_NUMBER] = number
    for name, _, _ in layout:
        packed[name] = places if name == _PLACE else table[name][rows]
    return packed.view(np.uint8).reshape(len(rows), -1)


def unpacked(
    values: Sequence[bytes], layouts: Sequence[Layout]
) -> list[tuple[Int64Array, NDArray[np.void], Layout]]:
    """Return the columns of records: (their places in ``values``, the columns, their layout).

    Raises:
        StateError: A record is damaged.
    """
    heads = np.frombuffer(joined([value[:2] for value in values], 2), dtype="<u2")
    parts = []
    for number in np.unique(heads).tolist():
        if number >= len(layouts):
            raise damaged("a stored window", f"it has layout {number} of {len(layouts)}")
        dtype = _dtype(layouts[number])
        at = np.flatnonzero(heads == number)
        data = joined([values[place] for place in at.tolist()], dtype.itemsize)
        packed = data.reshape(-1).view(dtype)
        check_packed(packed)
        parts.append((at, packed, layouts[number]))
    return parts


def _fill(table: Table, rows: Int64Array, packed: NDArray[np.void], layout: Layout) -> None:
    """Write packed columns into rows, as they would be there had they never left."""
    for name, _, fill in layout:
        if name == _PLACE:
            continue
        if name not in table.columns:
            raise damaged("a stored window", f"it has a column {name!r} that the pipeline does not")
        values = packed[name]
        column = table[name]
        if values.dtype != column.dtype:
            field = next(field for field in table.fields if field.name == name)
            with np.errstate(invalid="ignore"):  # what stands for nothing may not fit
                wider = values.astype(column.dtype)
            if object not in (values.dtype, column.dtype) and field.fill != fill:
                nothing = values == fill
                seen = f"{name.rsplit(':', 1)[0]}:seen"
                if seen in (packed.dtype.names or ()):
                    nothing &= ~packed[seen]
                wider[nothing] = field.fill
            values = wider
        column[rows] = values
