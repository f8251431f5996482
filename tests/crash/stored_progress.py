"""Reads from a state directory how far its run has come."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

from lowwater.engine.keyed import persistence as records
from lowwater.engine.local.run_record import read_run
from lowwater.engine.process import stored_facts as stored
from lowwater.engine.window import persistence as _stored
from lowwater.errors import StateError
from lowwater.pipeline.state_tools import verify_state
from lowwater.state.codec import decode
from lowwater.state.key_layout import table_prefix
from lowwater.state.rocks import RocksStore

Progress: TypeAlias = dict[str, int]

_FACTS = {
    "windows": _stored.FACTS,
    "process": stored.FACTS,
    "join": records.FACTS,
    "match": records.FACTS,
    "table": records.FACTS,
}
_RISING = ("watermark", "output watermark", "clock")


def stored_progress(state: Path) -> Progress:
    """Return what must never decrease: commits, records read, and each stage's watermarks.

    Also reads and decodes everything else in the directory. The result is empty for a directory
    without a commit.
    """
    try:
        store = RocksStore(state, read_only=True)
    except StateError as error:
        if error.what.startswith("there is no state"):
            return {}
        raise
    with store:
        record = read_run(store, str(state))
        if record is None:
            return {}
        found = {"commits": store.last_commit, "epoch": record["epoch"]}
        if record["run"] is not None:
            counts = record["run"]["metrics"]
            found |= {name: counts[name] for name in ("events", "bundles", "duplicates")}
        for stage, of in record["stages"].items():
            (data,) = store.get([table_prefix(stage, 0, _FACTS[of["kind"]])])
            if data is not None:
                facts = decode(data)["facts"]
                found |= {f"{stage}: {name}": facts[name] for name in _RISING}
    verify_state(state)
    return found
