"""Tables as lines of JSON: the same text as encoding each row by itself gives."""

from __future__ import annotations

import json

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lowwater.engine.records.json_lines import json_lines
from lowwater.engine.records.json_rows import json_text, rows_of
from lowwater.engine.records.pane_table import MSGPACK, tag
from tests.examples import examples

_INT64 = st.integers(-(2**63), 2**63 - 1)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
_COLUMNS = st.sampled_from(
    [
        (pa.string(), _TEXT),
        (pa.large_string(), _TEXT),
        (pa.dictionary(pa.int8(), pa.string()), _TEXT),
        (pa.int64(), _INT64),
        (pa.uint8(), st.integers(0, 255)),
        (pa.bool_(), st.booleans()),
        (pa.float64(), st.floats()),
        (pa.float32(), st.floats(width=32)),
        (pa.timestamp("us", "UTC"), _INT64),
        (pa.timestamp("us"), st.integers(-(10**15), 10**15)),
        (pa.timestamp("ms", "UTC"), st.integers(-(10**12), 10**12)),
        (pa.timestamp("ns", "UTC"), _INT64),
        (pa.timestamp("us", "Europe/Berlin"), st.integers(-(10**15), 10**15)),
        (pa.date32(), st.integers(-1000, 1000)),
        (pa.duration("us"), st.integers(-(10**12), 10**12)),
        (pa.binary(), st.binary(max_size=4)),
        (pa.list_(pa.int64()), st.lists(st.integers(0, 9) | st.none(), max_size=3)),
        (pa.struct([("a", pa.string())]), st.fixed_dictionaries({"a": _TEXT | st.none()})),
        (pa.null(), st.none()),
    ]
)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Draw a table with columns of several types, in one chunk or two, cut or whole."""
    rows = draw(st.integers(0, 6))
    columns = {}
    for number, (kind, values) in enumerate(draw(st.lists(_COLUMNS, max_size=4))):
        given_ = draw(st.lists(values | st.none(), min_size=rows, max_size=rows))
        columns[f'c{number}"é'] = pa.array(given_, kind)
    table = pa.table(columns)
    if draw(st.booleans()):
        table = pa.concat_tables([table, table])
    return table.slice(draw(st.integers(0, rows)))


@examples(4.0)
@given(tables())
def test_lines_are_those_of_the_rows_one_by_one(table: pa.Table) -> None:
    lines = json_lines(table)
    if table.num_columns:
        assert lines.decode() == "".join(f"{json_text(row)}\n" for row in rows_of(table))
    for line in lines.splitlines():
        json.loads(line)


def test_encoded_columns_are_decoded() -> None:
    field = tag(pa.field("any", pa.binary()), MSGPACK)
    table = pa.Table.from_arrays([pa.array([b"\x01", None, b"\xa1x"])], schema=pa.schema([field]))
    assert json_lines(table) == b'{"any": 1}\n{"any": null}\n{"any": "x"}\n'


def test_rows_without_columns_are_empty_objects() -> None:
    table = pa.Table.from_batches(
        [pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))]
    )
    assert json_lines(table) == b"{}\n{}\n"
