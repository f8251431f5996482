"""The order in which records of several keys reach a stage with other keys."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.engine.local.key_order import in_order, minds_order
from lowwater.engine.records.batch import Records
from lowwater.engine.records.pane_table import TIME


def chain(then: Any, *, key: str = "key", deduplicated: bool = False) -> Any:
    """Return the stage behind sums per key, with some key and some work."""
    source = lw.from_iterable([{"at": 1, "key": "a", "v": 1}], time="at")
    sums = source.key_by("key").window(lw.FixedWindows("1s")).aggregate(v=lw.sum("v"))
    stream = sums.to_stream() if key == "key" else sums.to_stream().with_columns(k=lw.lit(0))
    if deduplicated:
        stream = stream.deduplicate(id=("key", "v"), within="1m")
    keyed = stream.key_by(key)
    if then is None:
        return keyed.process(Nothing())._stage
    return keyed.window(lw.FixedWindows("2s")).aggregate(v=then)._stage


class Nothing:
    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        pass


ALL = "k"


@pytest.mark.parametrize(
    ("stage", "minds"),
    [
        (chain(lw.collect("v"), key=ALL), True),
        (chain(lw.last("v"), key=ALL), True),
        (chain(lw.last("v", by="v"), key=ALL), True),
        (chain(lw.max_by("v", "v"), key=ALL), True),  # ties are decided by time and arrival
        (chain(None, key=ALL), True),
        (chain(lw.sum("v"), key=ALL, deduplicated=True), True),
        (chain(lw.sum("v"), key=ALL), False),
        (chain(lw.collect("v")), False),  # one key gets the records of one key
        (chain(None), False),
    ],
)
def test_where_the_order_makes_a_difference(stage: Any, minds: bool) -> None:
    (flow,) = stage.inputs
    assert minds_order(flow, stage) is minds
    (source,) = flow.origin.inputs
    assert not minds_order(source, flow.origin)


def test_one_key_keeps_its_order_and_times_decide_among_keys() -> None:
    stage = chain(lw.sum("v")).inputs[0].origin
    records = Records.from_arrow(
        pa.RecordBatch.from_pydict(
            {
                "key": ["a", "b", "a", "b", "a"],
                "v": [1, 2, 3, 4, 5],
                TIME: [5, 9, 3, 4, 7],  # a: 5 5 7, b: 9 9
            }
        )
    )
    assert in_order(records, stage).columns["v"].to_list() == [1, 3, 5, 2, 4]
    shuffled = records.take(pa.array([1, 0, 3, 2, 4]).to_numpy())  # the keys otherwise interleaved
    assert in_order(shuffled, stage).columns["v"].to_list() == [1, 3, 5, 2, 4]
