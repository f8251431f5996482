"""Running a query, and comparing all rows of its answer with the reference."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds

import lowwater as lw
from benchmarks.nexmark.queries import Answer
from lowwater.pipeline.outputs import Writing


@final
@dataclass(frozen=True, slots=True)
class Compared:
    """What a comparison found.

    Args:
        rows: How many rows the reference has.
        problem: What differs; empty if nothing does.
        refused: Why the query does not run, in the library's words; empty if it does.
    """

    rows: int
    problem: str
    refused: str = ""


def run(answer: Answer, bundle_size: int, folder: str) -> pa.Table:
    """Run a query to its end and return what it emitted; of windows, what stands.

    Args:
        answer: What a query returned.
        bundle_size: Events in a bundle.
        folder: Where a query that writes files has written them.
    """
    if isinstance(answer, lw.Table):
        return answer.to_arrow(bundle_size=bundle_size)
    if isinstance(answer, Writing):
        answer.run(bundle_size=bundle_size)
        return written(folder)
    result = answer.collect(bundle_size=bundle_size)
    assert not result.late, f"{len(result.late)} late records were dropped"
    return result.to_arrow(final=isinstance(answer, lw.Pipeline))


def written(folder: str) -> pa.Table:
    """Return what is in a folder with a folder for each day and minute."""
    parts = ds.partitioning(pa.schema([("dt", pa.string()), ("hm", pa.string())]), flavor="hive")
    return ds.dataset(Path(folder), partitioning=parts).to_table()


def compare(found: pa.Table, reference: pl.DataFrame) -> Compared:
    """Compare the rows as multisets, after retractions, in all columns of the reference.

    Args:
        found: What a query emitted; a retraction cancels an equal row.
        reference: What is expected.
    """
    expected = reference.to_arrow()
    if missing := [name for name in expected.schema.names if name not in found.schema.names]:
        return Compared(reference.height, f"no column {', '.join(missing)}")
    for name in expected.schema.names:
        types = [_plain(one.schema.field(name).type) for one in (found, expected)]
        if types[0] != types[1]:
            return Compared(reference.height, f"{name} is {types[0]}, not {types[1]}")
    names = expected.schema.names
    weight: Any = pl.lit(1)
    if "kind" in found.schema.names:
        weight = pl.when(pl.col("kind").cast(pl.String) == "retract").then(-1).otherwise(1)
    ours = pl.DataFrame(found).select(*names, __weight=weight)
    theirs = reference.select(*names, __weight=pl.lit(-1))
    sums = pl.concat([ours, theirs]).group_by(names).agg(pl.col("__weight").sum())
    wrong = sums.filter(pl.col("__weight") != 0).sort(names)
    if wrong.is_empty():
        return Compared(reference.height, "")
    example = wrong.row(0, named=True)
    return Compared(reference.height, f"{wrong.height} rows differ, such as {example}")


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type without how Arrow lays it out: text may be long, or numbers into a dictionary."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return pa.string() if pa.types.is_large_string(kind) or pa.types.is_string_view(kind) else kind
