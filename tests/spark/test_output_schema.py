"""What columns the rows of a query have."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.engine.graph.graph import Graph
from lowwater.spark.output_schema import ColumnTypes, OutputSchema, QueryOutput, schema_of


class Pass:
    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        ctx.emit({"n": record["n"]})


def schema(*, windowed: bool, sides: bool) -> OutputSchema:
    """Return the columns of a process, perhaps behind windows."""
    given = pa.table({"at": [1], "key": [1], "n": [1]})
    stream = lw.from_arrow(given, time="at")
    if windowed:
        counts = stream.key_by("key").window(lw.FixedWindows("1s")).aggregate(n=lw.count())
        stream = counts.to_stream()
    stage = stream.key_by("key").process(Pass())._stage
    types = ColumnTypes(Graph.of([stage]), [given.schema], {"key": pa.int64(), "n": pa.int64()})
    return schema_of([(0, QueryOutput(stage))], types, several=False, sides=sides)


@pytest.mark.parametrize("windowed", [True, False])
def test_late_records_of_a_stage_that_is_no_output_have_their_window(windowed: bool) -> None:
    """An output of a process has no windows; the stage before it drops records from its own."""
    added = ["window_start", "window_end", "watermark"] if windowed else []
    found = schema(windowed=windowed, sides=True)
    sides = ["reason", "detail", "record"]
    assert found.schema.names == ["output", "key", "n", "timestamp", *added, *sides]
    assert found.columns[0, "main"] == ("key", "n", "timestamp")


def test_outputs_alone_have_only_their_columns() -> None:
    assert schema(windowed=True, sides=False).schema.names == ["key", "n", "timestamp"]


def test_a_process_that_retracts_says_the_kind() -> None:
    class Retracts(Pass):
        retracts = True

    given = pa.table({"at": [1], "key": [1]})
    stage = lw.from_arrow(given, time="at").key_by("key").process(Retracts())._stage
    kinds = {"n": pa.int64(), "kind": pa.string()}
    types = ColumnTypes(Graph.of([stage]), [given.schema], kinds)
    found = schema_of([(0, QueryOutput(stage))], types, several=False, sides=False)
    assert found.schema.names == ["key", "n", "kind", "timestamp"]


@pytest.mark.parametrize("once", [False, True])
def test_a_join_of_records_whose_types_are_given_has_all_of_their_columns(once: bool) -> None:
    """Also if a stage in front of it drops duplicates, and passes on what it knows."""
    given = pa.table({"at": [1], "key": [1], "n": [1]})
    stream = lw.from_arrow(given, time="at").map(lambda one: one).select("key", "n")
    left = stream.deduplicate(id="n", within="1h") if once else stream
    stage = left.join(stream, on="key", within="1h")._stage
    kinds = dict.fromkeys(("key", "at", "n", "at_right", "n_right"), pa.int64())
    types = ColumnTypes(Graph.of([stage]), [given.schema], kinds)
    found = schema_of([(0, QueryOutput(stage))], types, several=False, sides=False)
    assert sorted(found.schema.names) == sorted([*kinds, "timestamp"])
