"""Durable runs whose outputs collect, and what has become of the rows they were given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.parquet as pq
import pytest

import lowwater as lw
from lowwater.engine.local import pieces
from lowwater.io.sinks import Compaction, JsonLinesFolder, ParquetFolder
from lowwater.pipeline.outputs import Writing
from tests.unit.engine.local.durable_runs import Stopped, stopping
from tests.unit.io.deliveries import die as release_locks

NEVER = Compaction(size="1GB", age="1000d")
ROWS, BUNDLE = 160, 10
CLOCK = lw.ManualClock(0)
KINDS = {"parquet": ParquetFolder, "jsonl": JsonLinesFolder}


def write_input(folder: Path, rows: int = ROWS) -> None:
    """Write records, a second apart."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"at": 1_000_000 + n, "n": n}) for n in range(rows)]
    (folder / "1.jsonl").write_text("".join(line + "\n" for line in lines))


def panes_of(folder: Path, *names: str, source: str = "numbers") -> list[lw.Pipeline]:
    """Return stages that give a pane for each record, whose key ``n`` is the record's."""
    read = lw.read_jsonl(
        str(folder / "in"), time="at", unit="s", watermark=lw.Ascending(), clock=CLOCK
    )
    keyed = read.named(source).key_by(n=lw.col("n"))
    each = keyed.window(
        lw.FixedWindows("1s"), trigger=lw.Repeatedly(lw.AfterCount(1)), accumulation="discarding"
    )
    return [each.aggregate(total=lw.sum("n")).named(name) for name in names]


def run(folder: Path, *ends: Writing, **options: Any) -> lw.Metrics:
    """Run over the state in the folder, a commit per bundle."""
    options = {"bundle_size": BUNDLE, "commit_every": "bundle", "progress": False, **options}
    return lw.run(*ends, state=folder / "state", **options)


def die(
    folder: Path, *ends: Writing, count: int, at: str = "before forgetting", **more: Any
) -> None:
    """Run, and let the process die when it passes a point: sinks are not closed."""
    with (
        mock.patch.object(pieces, "_close"),
        stopping(at, count),
        pytest.raises(Stopped),
    ):
        run(folder, *ends, **more)
    release_locks()


def numbers(*places: Path) -> list[int]:
    """Return the records whose panes readers see in places, sorted."""
    found: list[int] = []
    for place in places:
        for path in sorted(place.glob("part-*")):
            if path.suffix == ".parquet":
                found += pq.read_table(path)["n"].to_pylist()
            else:
                found += [json.loads(line)["n"] for line in path.read_text().splitlines()]
    return sorted(found)


def waiting(place: Path) -> list[Path]:
    """Return the files that have collected in a place."""
    return sorted((place / ".pending").glob("*-*"))
