"""A table outside equals what SQL computes from the input so far, at every commit (T-5)."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.local import pieces
from lowwater.io.sinks import Callback, Delivery, SqliteTable
from tests.examples import examples
from tests.property.tables_in_sql import SCHEMA, TABLES, answer, held_in, tables_of, upserts
from tests.unit.engine.local.durable_runs import Stopped, stopping
from tests.unit.io.deliveries import die

POINTS = (
    "after the announcement",
    "before the write",
    "after the write",
    "before forgetting",
    "before publishing",
)


@pytest.mark.parametrize("name", TABLES)
@given(upserts(), st.integers(1, 5), st.booleans(), st.sampled_from([1, 3, pieces.PIECE_ROWS]))
@examples(0.4)
def test_at_every_commit(
    name: str, given: list[dict[str, Any]], size: int, ordered: bool, piece: int
) -> None:
    table = TABLES[name]
    source = lw.from_arrow(pa.Table.from_pylist(given, SCHEMA), time="at")
    made = table.make(*tables_of(source, ordered=ordered))
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "a.sqlite")
        seen: dict[int, Any] = {}

        def look(delivery: Delivery) -> None:
            assert delivery.is_table
            seen[delivery.epoch] = held_in(path, "t")

        with mock.patch.object(pieces, "PIECE_ROWS", piece):
            writing = made.write_to(SqliteTable(path, "t"), Callback(look))
            writing.run(bundle_size=size, commit_every="bundle")
        assert held_in(path, "t") == answer(table.query, given, ordered=ordered)
        for epoch, rows in seen.items():
            assert rows == answer(table.query, given[: epoch * size], ordered=ordered)


@given(st.sampled_from(sorted(TABLES)), upserts(), st.integers(1, 30), st.booleans())
def test_rows_that_stand(name: str, given: list[dict[str, Any]], size: int, ordered: bool) -> None:
    table = TABLES[name]
    source = lw.from_arrow(pa.Table.from_pylist(given, SCHEMA), time="at")
    made = table.make(*tables_of(source, ordered=ordered))
    rows = made.rows(bundle_size=size)
    wanted = answer(table.query, given, ordered=ordered)
    assert sorted(map(repr, (tuple(sorted(row.items())) for row in rows))) == sorted(
        map(repr, wanted.elements())
    )


@given(
    st.sampled_from(sorted(TABLES)),
    upserts(),
    st.integers(1, 6),
    st.lists(st.tuples(st.sampled_from(POINTS), st.integers(1, 4)), max_size=4),
    st.booleans(),
)
def test_killed_and_run_again(
    name: str,
    given: list[dict[str, Any]],
    size: int,
    kills: Sequence[tuple[str, int]],
    ordered: bool,
) -> None:
    table = TABLES[name]
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "a.sqlite")
        pq.write_table(pa.Table.from_pylist(given, SCHEMA), f"{folder}/in.parquet")

        def run() -> None:
            stream = lw.read_parquet(f"{folder}/in.parquet", time="at")
            made = table.make(*tables_of(stream, ordered=ordered))
            made.write_to(SqliteTable(path, "t")).run(
                state=f"{folder}/state", bundle_size=size, commit_every="bundle"
            )

        for point, count in kills:
            with stopping(point, count):
                try:
                    run()
                except Stopped:
                    die()
        run()
        assert held_in(path, "t") == answer(table.query, given, ordered=ordered)
