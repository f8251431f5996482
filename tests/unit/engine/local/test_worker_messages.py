"""What goes to a worker and back is what was given: values, columns and what steps return."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater.engine.local.worker_messages import pack, unpack
from lowwater.engine.records.columns import Column
from lowwater.engine.records.stage_output import Emitted, StageOutput
from lowwater.engine.records.steps import Bundle, LateBatch
from lowwater.errors import DataError, InternalError
from lowwater.watermark import Hold
from tests.examples import examples

PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary()
)
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
        st.sets(st.integers(), max_size=3),
        st.dates(),
    ),
    max_leaves=4,
)
ONE_KIND = st.one_of(
    *(
        st.lists(kind, max_size=5)
        for kind in (
            VALUES,
            st.integers(),
            st.integers(-(2**63), 2**63 - 1),
            st.booleans(),
            st.one_of(st.integers(0, 9), st.booleans(), st.floats(allow_nan=False)),
            st.fixed_dictionaries({"a": st.integers(0, 9), "b": PLAIN}),
            st.just({}),
        )
    )
)


def typed(value: Any) -> str:
    """Values with their types: 1, 1.0 and True are equal."""
    return repr(value)


@examples(6)
@given(ONE_KIND)
def test_python_values(values: list[Any]) -> None:
    column = Column.of_objects(values)
    found = unpack(pack({"column": column, "more": [1, None]}))
    assert typed(found["column"].to_list()) == typed(values)
    assert found["more"] == [1, None]
    times = np.arange(len(values))
    emitted = Emitted(times, (column,), values, places=times)
    (back, parts), late = unpack(pack(((emitted, times), None)))
    assert typed(back.to_list()) == typed(values)
    assert typed(emitted.in_columns().to_list()) == typed(values)
    assert typed(unpack(pack(emitted.in_columns())).to_list()) == typed(values)
    assert back.places.tolist() == parts.tolist() == times.tolist()
    assert late is None
    assert back.start is back.signs is None


ARRAYS = [
    pa.array([1, None, -(2**63)]),
    pa.array([0.5, float("inf"), None]),
    pa.array([True, None, False]),
    pa.array([2**64 - 1, 0], pa.uint64()),
    pa.array([1.5, None], pa.float32()),
    pa.array([1, 2**40, None], pa.timestamp("us", "UTC")),
    pa.array([1, None], pa.timestamp("ns", "Europe/Paris")),
    pa.array([dt.date(2024, 2, 29), None]),
    pa.array(["a", None, "ü"]),
    pa.array(["a", None, "a"]).dictionary_encode(),
    pa.array([[1], None, []]),
    pa.array([{"x": 1}, None]),
    pa.array([b"\x00", b""], pa.large_binary()),
    pa.array([], pa.string()),
    pa.array(["", ""]),
    pa.array(["", "a", "ü", "bc"]),
    pa.array(["", "a", "ü", "bc"], pa.large_string()),
    pa.array([b"\xff", b"", b"\x00\x01"]),
    pa.nulls(2),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: str(array.type))
def test_columns_of_arrow(array: pa.Array) -> None:
    for given_array in (array, array[1:], array[:1], array[1:3]):
        column = Column.from_arrow(given_array)
        found = unpack(pack(column))
        assert found.to_arrow().equals(given_array)
        assert found.to_list() == column.to_list()
        assert found.data.dtype == column.data.dtype


def test_bundles_and_outputs() -> None:
    bundle = Bundle(
        np.array([3, 1]),
        (Column.of_objects(["a", "b"]),),
        {"v": Column(np.array([1.5, 2.5]), np.array([True, False]))},
        np.array([1, -1], dtype=np.int8),
    )
    found = unpack(pack(bundle))
    assert found.times.tolist() == [3, 1]
    assert found.signs.dtype == np.int8
    assert found.values["v"].to_list() == [1.5, None]
    late = LateBatch(
        np.array([0]), np.array([1]), np.array([2]), np.array([4], np.uint8), -5, ["why"]
    )
    emitted = Emitted(np.array([1]), (), {"x": found.keys[0]})
    output = unpack(pack(StageOutput(outputs={"main": emitted}, late=late)))
    assert output.late.details == ["why"]
    assert output.late.watermark == -5
    assert output.outputs["main"].values["x"].to_list() == ["a", "b"]
    assert unpack(pack(Hold(2**62, "key"))) == Hold(2**62, "key")
    assert unpack(pack(-(2**63))) == -(2**63)


@pytest.mark.parametrize("value", [object(), [object()], {"a": {1: object()}}])
def test_what_is_not_plain(value: Any) -> None:
    with pytest.raises(DataError, match="object cannot be passed between processes"):
        pack(Column.of_objects([value]))


def test_text_that_is_no_unicode() -> None:
    with pytest.raises(DataError, match="not valid Unicode"):
        pack(Column.of_objects(["a\ud800"]))


def test_what_no_message_has() -> None:
    with pytest.raises(InternalError, match="has no form that goes to another process"):
        pack(object())
