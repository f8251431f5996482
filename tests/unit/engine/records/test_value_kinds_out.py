"""What leaves a run is what was collected, whatever is beside it (S-B1)."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.engine.records.pane_table import to_values
from lowwater.io.sinks import Callback, Delivery

DAY = dt.date(2024, 5, 1)
NOON = dt.datetime(2024, 5, 1, 12)  # noqa: DTZ001  # one without a zone
PAIRS = [
    (1, np.float16(1.5)),
    (np.bool_(True), 2),
    (np.uint8(3), np.int64(2)),
    (np.str_("a"), "b"),
    (2**53 + 1, 1.5),
    (1, 1.5),
    ({"a": 2**53 + 1}, {"a": 1.5}),
    ({"a": [1]}, {"a": [np.float32(2.5)]}),
    ([DAY], [NOON]),
    ({"a": DAY}, {"a": NOON}),
    (DAY, NOON),
    (Decimal("1.5"), Decimal("1.25")),
    ([True], [1]),
]


def plain(value: Any) -> Any:
    """Return a value as text, numbers of numpy as Python's."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (dt.date, dt.datetime)):
        return value.isoformat()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return str(value.normalize()) if isinstance(value, Decimal) else value


@pytest.mark.parametrize("pair", PAIRS, ids=repr)
@pytest.mark.parametrize("nested", [False, True])
def test_collected_values_are_what_they_are_alone(pair: tuple[Any, Any], nested: bool) -> None:
    values = [[value] for value in pair] if nested else list(pair)
    rows = [{"t": at, "k": at, "v": value} for at, value in enumerate(values)]
    stream = lw.from_iterable(rows, time="t", unit="s").key_by("k")
    found: list[Delivery] = []
    stage = stream.window(lw.FixedWindows("1h")).aggregate(a=lw.collect("v"))
    stage.write_to(Callback(found.append)).run(progress=False)
    (delivery,) = found
    table = delivery.panes
    got = to_values(table.schema.field("a"), table.column("a"))
    assert repr(plain(got)) == repr([[plain(value)] for value in values])


class Emits:
    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.emit({"n": record["n"], "x": record["x"]} if record["n"] else record["x"])
        ctx.emit({"n": record["n"], "x": [pd.NaT, {"a": pd.NA}]})


@pytest.mark.parametrize("missing", [pd.NaT, pd.NA], ids=["NaT", "NA"])
@pytest.mark.parametrize("workers", [None, 2])
def test_what_pandas_calls_missing_is_null_when_it_is_emitted(
    missing: Any, workers: int | None
) -> None:
    rows = [{"t": n, "k": "a", "n": n} for n in range(3)]
    stream = lw.from_iterable(rows, time="t", unit="s").map(lambda row: {**row, "x": missing})
    got = stream.key_by("k").process(Emits()).collect(workers=workers)
    assert not got.errors
    inner = {"n": 0, "x": [None, {"a": None}]}
    assert got.values() == [
        None, inner, {"n": 1, "x": None}, {**inner, "n": 1}, {"n": 2, "x": None}, {**inner, "n": 2},
    ]  # fmt: skip


def test_batches_of_integers_and_of_floats_are_put_together_exactly() -> None:
    ids = [2**60 + 1 + at for at in range(3)]
    integers = lw.from_arrow(pa.table({"t": [1, 2, 3], "v": ids}), time="t", unit="s")
    floats = lw.from_arrow(pa.table({"t": [4, 5], "v": [0.5, 1.5]}), time="t", unit="s")
    result = (integers | floats).map_batches(lambda batch: batch).collect()
    assert sorted(result.to_pandas()["v"].tolist()) == [0.5, 1.5, *ids]
