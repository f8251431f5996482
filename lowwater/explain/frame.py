"""A trace as a tidy table: one row per element, pane, merge and watermark change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from lowwater.engine.graph.trace import StageTrace, Trace
from lowwater.engine.records.pane_table import MICROS_UTC, instants_to_arrow
from lowwater.errors import load_extra
from lowwater.explain.text import sample_lines
from lowwater.windows import Window

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "order", "what", "stage", "key", "clock", "time", "watermark", "output_watermark",
    "window_start", "window_end", "value", "detail", "reason", "index", "is_retraction",
)  # fmt: skip
"""The columns of the table."""
_INSTANTS = frozenset(
    {"clock", "time", "watermark", "output_watermark", "window_start", "window_end"}
)


def to_frame(trace: Trace) -> pd.DataFrame:
    """Convert a trace to a pandas DataFrame, in the order of events.

    ``what`` is ``element`` (a row for each window that it entered or was dropped from), ``pane``,
    ``merge`` (a row for each window that merged into another), ``watermark`` (of a stage),
    ``source`` or ``error``. Instants are UTC timestamps; those outside the years 1 to 9999 become
    the first or last instant of that range.

    If the trace is a sample, ``attrs["sample"]`` says of which stages, and how many elements are
    kept.
    """
    load_extra("pandas", extra="pandas", purpose="to_frame")
    import pandas as pd

    rows = sorted(_rows(trace), key=lambda row: row["order"])
    columns: dict[str, Any] = {}
    for name in COLUMNS:
        values = [row.get(name) for row in rows]
        if name in _INSTANTS:
            columns[name] = instants_to_frame(values)
        elif name == "index":
            columns[name] = pd.array(values, dtype="Int64")
        else:
            columns[name] = pd.Series(values, dtype=None if name == "order" else object)
    frame = pd.DataFrame(columns)
    said = list(sample_lines(trace.stages))
    if said:
        frame.attrs["sample"] = "\n".join(said)
    return frame


def instants_to_frame(values: Sequence[int | None]) -> Any:
    """Convert instants to a pandas Series of UTC timestamps, clipped to the years 1 to 9999."""
    import numpy as np
    import pyarrow as pa

    known = np.array([0 if value is None else value for value in values], dtype=np.int64)
    array = instants_to_arrow(known).cast(MICROS_UTC)
    missing = pa.array([value is None for value in values], type=pa.bool_())
    return pa.compute.if_else(missing, pa.scalar(None, MICROS_UTC), array).to_pandas()


def _rows(trace: Trace) -> Iterator[dict[str, Any]]:
    last = 0
    for stage in trace.stages:
        for row in _stage_rows(stage):
            last = max(last, row["order"])
            yield row
    for name, stands in trace.sources.items():
        for at in stands:
            last = max(last, at.order)
            yield {
                "order": at.order, "what": "source", "stage": name, "clock": at.clock,
                "watermark": at.watermark, "detail": "idle" if at.is_idle else at.holder,
            }  # fmt: skip
    for error in trace.errors:
        yield {
            "order": last + 1, "what": "error", "value": error.record, "detail": error.detail,
            "reason": error.reason,
        }  # fmt: skip


def _stage_rows(stage: StageTrace) -> Iterator[dict[str, Any]]:
    name = stage.name
    for e in stage.elements:
        places: list[tuple[Window | None, str]] = [(window, "kept") for window in e.windows]
        places += [(window, "late") for window in e.dropped]
        for window, outcome in places or [(None, e.outcome)]:
            yield {
                "order": e.order, "what": "element", "stage": name, "key": e.key, "clock": e.clock,
                "time": e.time, "watermark": e.watermark, "value": _one(e.values),
                "detail": outcome,
                "reason": None if outcome == "kept" else e.reason, "is_retraction": e.retract,
                **_ends(window),
            }  # fmt: skip
    for order, pane in zip(stage.pane_orders, stage.panes, strict=True):
        yield {
            "order": order, "what": "pane", "stage": name, "key": pane.key,
            "clock": pane.emitted_at, "time": pane.timestamp, "watermark": pane.watermark,
            "value": _one(pane.values), "detail": pane.timing, "index": pane.index,
            "is_retraction": pane.kind == "retract", **_ends(pane.window),
        }  # fmt: skip
    for merge in stage.merges:
        for part in merge.of:
            yield {
                "order": merge.order, "what": "merge", "stage": name, "key": merge.key,
                "clock": merge.clock, "detail": str(merge.into), **_ends(part),
            }  # fmt: skip
    for move in stage.moves:
        yield {
            "order": move.order, "what": "watermark", "stage": name, "clock": move.clock,
            "watermark": move.input_watermark, "output_watermark": move.output_watermark,
            "detail": move.held_by,
        }  # fmt: skip


def _ends(window: Window | None) -> dict[str, int]:
    return {} if window is None else {"window_start": window.start, "window_end": window.end}


def _one(values: Any) -> Any:
    return next(iter(values.values())) if len(values) == 1 else dict(values)
