"""What a run has done in one line of JSON, for schedulers; and whether there is more to read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lowwater.time import END_OF_TIME, START_OF_TIME, Instant

if TYPE_CHECKING:
    from lowwater.engine.graph.metrics import Metrics
    from lowwater.pipeline import Writing


def has_more(writing: Writing, state: str, bundle_size: int) -> bool:
    """Return whether there is something to read by now that the run over a state has not read.

    Reads the position of each source in the state, and looks for a record after it.

    Args:
        writing: The pipeline.
        state: The state directory, which no process may have open.
        bundle_size: That of the run.
    """
    from lowwater.engine.graph.graph import Graph
    from lowwater.engine.graph.sources import is_replayable, up_to_now
    from lowwater.engine.local.run_record import read_run
    from lowwater.state.rocks import RocksStore

    with RocksStore(state) as store:
        record = read_run(store, state) or {}
    sources = (record.get("run") or {}).get("sources", {})
    graph = Graph.of([writing._stage])
    for read in graph.reads:
        known, source = sources.get(graph.name_of(read)), up_to_now(read.source)
        if known is None or known["ended"] or source is None or not is_replayable(source):
            continue
        for records, _ in source.batches_from(known["position"], bundle_size, ()):
            if records.length or records.unreadable:
                return True
    return False


def summary_json(metrics: Metrics, *, more: bool | None) -> str:
    """Return the counts of a run, and where its watermarks are, as a line of JSON.

    Args:
        metrics: The metrics.
        more: Whether there is more to read; ``None`` where nobody has looked.
    """
    content: dict[str, Any] = {
        "records": metrics.events,
        "new_records": metrics.events - metrics.resumed_at,
        "seconds": round(metrics.elapsed, 3),
        "panes": dict(metrics.panes),
        "emitted": metrics.emitted,
        "late": dict(metrics.late),
        "dead_letters": dict(metrics.errors),
        "open_windows": metrics.open_windows,
        "watermarks": {
            mark.stage: {
                "input": _text(mark.input),
                "output": _text(mark.output),
                "held_by": mark.held_by,
                "due": _text(mark.due),
                "due_at_clock": _text(mark.due_at_clock),
            }
            for mark in metrics.watermarks()
        },
    }
    if more is not None:
        content["more"] = more
    return json.dumps(content)


def _text(at: Instant | None) -> str | None:
    """Return an instant as ISO 8601; null for one that is not known, or beyond all times."""
    return None if at is None or int(at) in (START_OF_TIME, END_OF_TIME) else str(at)
