"""Tables of panes: a row for each key and window (T-3)."""

from __future__ import annotations

import pyarrow as pa

from lowwater.engine.graph.graph import Stage
from lowwater.engine.join.upserting import Upserting
from lowwater.engine.records.expressions import Expressions
from lowwater.engine.records.stateless import Select
from lowwater.engine.stages.upserted import Upserted
from lowwater.engine.window.windowing import Windowing
from lowwater.errors import InvalidArgument
from lowwater.pipeline.checks import emits_again
from lowwater.pipeline.joined_keys import TableKey
from lowwater.pipeline.joins import known_columns
from lowwater.pipeline.stages import emitted_as_records
from lowwater.pipeline.tables import StreamT, Table

_WINDOW = ("window_start", "window_end")


def pane_table(stream: StreamT, stage: Stage, windowing: Windowing) -> Table[StreamT]:
    """Return the table of a stage's panes, by key and window.

    Args:
        stream: Its panes as a stream.
        stage: The stage.
        windowing: Its windows.

    Raises:
        InvalidArgument: The panes do not say what stands of a window.
    """
    _check(windowing)
    key = (*stage.key_names, *_WINDOW)
    names = (*key, *stage.work.aggregates)
    chosen = Select(Expressions(names, {}), stream._always_selected())
    if stage.retracts:
        return Table(stream._with(chosen), TableKey(key))
    order = "index" if emits_again(windowing) else None
    types = {
        name: kind
        for name, kind in (known_columns(stream) or {}).items()
        if name not in key and not name.startswith("__lw_")
    }
    known = known_columns(stream)
    keys: dict[str, pa.DataType | None] = {name: (known or {}).get(name) for name in key}
    table = Stage(stream._flows, key, key, Upserted(Upserting(order), types))
    made = stream._of(emitted_as_records(table, None if known is None else {**keys, **types}))
    return Table(made, TableKey(key)).select(*names, "timestamp")


def _check(windowing: Windowing) -> None:
    """Raise if the last pane of a window is not what stands of it."""
    hint = 'Use accumulation="retracting", whose panes take back what they replace'
    if windowing.mode == "retracting":
        return
    if windowing.mode == "accumulating":
        if windowing.merging is not None and emits_again(windowing):
            raise InvalidArgument(
                f"windows of {windowing.windows!r} merge, and without retractions the rows of "
                "those that are gone would stay",
                where="table",
                hint=hint,
            )
        return
    if emits_again(windowing) or (windowing.closing == "always" and windowing.lateness_us):
        raise InvalidArgument(
            "windows fire more than once, and with accumulation='discarding' each pane has only "
            "what was new, so that none says what stands of its window",
            where="table",
            hint='Use accumulation="accumulating" or "retracting"',
        )
