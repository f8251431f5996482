"""The rows between operators: what is written into them is read from them."""

from __future__ import annotations

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from lowwater.spark.group_numbers import numbers_of_groups
from lowwater.spark.messages import Message, table_bytes
from lowwater.spark.rows import (
    COUNTS,
    INSTANTS,
    LEAVES,
    ROW_SCHEMA,
    SentRows,
    counted_bytes,
    counted_of,
    receivers,
    unpacked_rows,
)
from lowwater.time import END_OF_TIME, START_OF_TIME
from tests.examples import examples

NUMBERS = st.integers(START_OF_TIME, END_OF_TIME)


@given(
    st.integers(-9, 9),
    st.dictionaries(st.sampled_from([*COUNTS, *INSTANTS]), NUMBERS),
    st.none() | st.text(min_size=1),
)
@examples(1)
def test_counters_are_read_as_they_were_written(
    place: int, given: dict[str, int], held_by: str | None
) -> None:
    found = counted_of(counted_bytes(place, {"tells": True, **given}, held_by).decode())
    wanted = {**dict.fromkeys(COUNTS, 0), **dict.fromkeys(INSTANTS, START_OF_TIME), **given}
    assert found == {"place": place, "tells": 1, "held_by": held_by, **wanted}


@pytest.mark.parametrize("key_groups", [1, 3, 8])
def test_a_message_to_a_level_is_one_row_for_all_its_key_groups(key_groups: int) -> None:
    rows = SentRows(key_groups)
    rows.send(2, key_groups - 1, Message(origin=-1, part=0))
    rows.send_to_all(3, 0, Message(origin=0, part=0))
    one, every = rows.table().to_pylist()
    to = list(receivers(one["key_group"], one["level"], key_groups))
    assert to == [(2, key_groups - 1)]
    assert every["key_group"] == numbers_of_groups(key_groups)[0]
    to = list(receivers(every["key_group"], every["level"], key_groups))
    assert to == [(3, group) for group in range(key_groups)]


def test_output_rows_are_taken_out_of_what_leaves() -> None:
    table = pa.table({"n": [1, 2, 3]})
    rows = SentRows(2)
    rows.leave(0, 0, {"events": 3}, body=table_bytes(table))
    rows.leave(1, 0, {})
    assert rows.table().schema == ROW_SCHEMA
    assert set(rows.table().column("level").to_pylist()) == {LEAVES}
    bodies = rows.table().select(["body"]).to_batches()
    assert pa.Table.from_batches(unpacked_rows(bodies)) == table
