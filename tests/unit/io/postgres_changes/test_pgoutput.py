"""Messages of ``pgoutput`` become records: those of a server, and any that one could send."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater.errors import DataError
from lowwater.io.postgres_changes.pgoutput import ChangeDecoder
from lowwater.io.postgres_changes.table_definition import TableColumn, TableDefinition
from lowwater.io.postgres_changes.text_values import arrow_type, from_text
from tests.examples import examples
from tests.unit.io.postgres_changes import pgoutput

TEXT, INT = 25, 23
UNKNOWN: pgoutput.Value = "unchanged"


def table(*columns: tuple[str, int, pa.DataType], any_columns: bool = False) -> TableDefinition:
    made = tuple(TableColumn(name, kind, "", type_) for name, kind, type_ in columns)
    return TableDefinition("public", "items", made, any_columns=any_columns)


ITEMS = table(("id", INT, pa.int32()), ("name", TEXT, pa.string()), ("body", TEXT, pa.string()))

# Recorded from PostgreSQL 18: inserts, updates and another primary key; with REPLICA IDENTITY FULL
# an update and a delete; a truncate.
RECORDED = [
    "420000000001719268000303e62761a6f6000002f3",
    (
        "52000040007075626c6963006974656d73006400030169640000000017ffffffff006e616d650000000019ffffffff"
        "00626f64790000000019ffffffff"
    ),
    "49000040004e000374000000013174000000036e7574740000000178",
    "49000040004e00037400000001326e7400000000",
    "55000040004e00037400000001327400000004626f6c747400000000",
    "55000040004b00037400000001316e6e4e000374000000013374000000036e7574740000000178",
    "430000000000017192680000000001719298000303e62761a6f6",
    "4200000000017194f8000303e62761c470000002f5",
    (
        "52000040007075626c6963006974656d73006600030169640000000017ffffffff016e616d650000000019ffffffff"
        "01626f64790000000019ffffffff"
    ),
    (
        "55000040004f000374000000013374000000036e75747400000001784e000374000000013374000000057363726577"
        "740000000178"
    ),
    "44000040004f00037400000001327400000004626f6c747400000000",
    "430000000000017194f80000000001719528000303e62761c470",
    "42000000000171a0c8000303e62761c772000002f6",
    "54000000010000004000",
    "4300000000000171a0c8000000000171a238000303e62761c772",
]


def test_recorded_messages() -> None:
    messages = [bytes.fromhex(one) for one in RECORDED]
    records = ChangeDecoder(ITEMS, keep_truncates=True).records(messages).rows()

    def row(*values: Any) -> dict[str, Any]:
        return dict(zip(("id", "name", "body"), values, strict=True))

    assert [(one["op"], one["before"], one["after"]) for one in records] == [
        ("c", None, row(1, "nut", "x")),
        ("c", None, row(2, None, "")),
        ("u", None, row(2, "bolt", "")),
        ("u", row(1, None, None), row(3, "nut", "x")),
        ("u", row(3, "nut", "x"), row(3, "screw", "x")),
        ("d", row(2, "bolt", ""), None),
        ("t", None, None),
    ]
    assert [one["lsn"] for one in records] == [0x1719268] * 4 + [0x17194F8] * 2 + [0x171A0C8]
    assert [one["xid"] for one in records] == [0x2F3] * 4 + [0x2F5] * 2 + [0x2F6]
    assert str(records[0]["committed_at"]) == "2026-11-23 01:19:28.204534+00:00"
    with pytest.raises(DataError, match=r"public\.items was truncated at 0/171A0C8"):
        ChangeDecoder(ITEMS, keep_truncates=False).records(messages)


values = st.none() | st.text(max_size=4).map(lambda text: text.replace("\0", ""))
rows = st.tuples(values, values)
OPS = st.sampled_from(["c", "u", "uk", "uo", "d", "t", "other", "layout"])


@examples(2)
@given(st.lists(st.tuples(OPS, rows, rows, st.booleans())), st.booleans())
def test_what_was_written_is_read(changes: list[tuple[str, Any, Any, bool]], split: bool) -> None:
    """Columns that come and go move the ones that are read; other tables are left out."""
    known = table(("b", TEXT, pa.string()), ("a", TEXT, pa.string()), any_columns=True)
    layouts = [
        [("a", TEXT), ("b", TEXT)],
        [("new", INT), ("b", TEXT), ("a", TEXT)],
    ]
    at = 0
    messages = [pgoutput.relation(7, "others", [("a", TEXT)])]
    messages.append(pgoutput.relation(5, "items", layouts[at]))
    cuts: list[int] = []
    wanted: list[tuple[str, Any, Any]] = []

    def placed(row: Any, unchanged: bool = False) -> list[Any]:
        encoded = [None if value is None else value.encode() for value in row]
        if unchanged:
            encoded[1] = UNKNOWN
        return encoded if not at else [b"1", encoded[1], encoded[0]]

    for number, (op, old, new, unchanged) in enumerate(changes):
        if number % 3 == 0:
            cuts.append(len(messages))
            messages.append(pgoutput.begin(100 + number, 5, number))
        before = dict(zip("ab", old, strict=True))
        after = dict(zip("ab", new, strict=True))
        match op:
            case "c":
                messages.append(pgoutput.insert(5, placed(new)))
                wanted.append(("c", None, after))
            case "u":
                messages.append(pgoutput.update(5, placed(new), None, b""))
                wanted.append(("u", None, after))
            case "uk":
                messages.append(pgoutput.update(5, placed(new), placed((old[0], None)), b"K"))
                wanted.append(("u", {"a": old[0], "b": None}, after))
            case "uo":  # what does not change may be left out
                messages.append(pgoutput.update(5, placed(new, unchanged), placed(old), b"O"))
                wanted.append(("u", before, {**after, "b": old[1]} if unchanged else after))
            case "d":
                messages.append(pgoutput.delete(5, placed(old), b"O"))
                wanted.append(("d", before, None))
            case "t":
                messages.append(pgoutput.truncate(*[7, 5][unchanged:]))
                wanted.append(("t", None, None))
            case "other":
                messages.append(pgoutput.insert(7, [b"5"]))
                messages.append(pgoutput.truncate(7))
            case "layout":
                at = 1 - at
                messages.append(pgoutput.relation(5, "items", layouts[at]))
    decoder = ChangeDecoder(known, keep_truncates=True)
    parts = [messages]
    if split and len(cuts) > 1:
        parts = [messages[: cuts[1]], messages[cuts[1] :]]
    found = [one for part in parts for one in decoder.records(part).rows()]
    assert [(one["op"], one["before"], one["after"]) for one in found] == wanted


def test_a_value_that_is_left_out_is_an_error() -> None:
    messages = [
        pgoutput.begin(0x1000, 5, 1),
        pgoutput.relation(5, "items", [("id", INT), ("name", TEXT), ("body", TEXT)]),
        pgoutput.update(5, [b"1", b"nut", UNKNOWN], None, b""),
    ]
    with pytest.raises(DataError) as raised:
        ChangeDecoder(ITEMS, keep_truncates=False).records(messages)
    assert "an update at 0/1000 does not say what the column 'body' holds" in str(raised.value)
    assert "ALTER TABLE public.items REPLICA IDENTITY FULL" in str(raised.value)
    read = table(("id", INT, pa.int32()), ("name", TEXT, pa.string()), any_columns=True)
    assert len(ChangeDecoder(read, keep_truncates=False).records(messages)) == 1


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ([("id", INT), ("name", TEXT)], "'body' is gone"),
        ([("id", 20), ("name", TEXT), ("body", TEXT)], "'id' has another type"),
        ([("id", INT), ("name", TEXT), ("body", TEXT), ("size", INT)], "'size' is new"),
    ],
)
def test_other_columns_are_an_error(columns: list[tuple[str, int]], told: str) -> None:
    messages = [
        pgoutput.begin(1, 5, 1),
        pgoutput.relation(5, "items", columns),
        pgoutput.insert(5, [b"1"] * len(columns)),
    ]
    with pytest.raises(DataError, match=f"the columns of public.items have changed: {told}"):
        ChangeDecoder(ITEMS, keep_truncates=False).records(messages)


@pytest.mark.parametrize(
    ("sql", "texts"),
    [
        ("boolean", ["t", "f"]),
        ("smallint", ["-32768", "7"]),
        ("bigint", ["-9223372036854775808", "9223372036854775807"]),
        ("double precision", ["NaN", "-Infinity", "0.1"]),
        ("real", ["1e-45", "3.4028235e+38"]),
        ("numeric(10,2)", ["-12345678.90", "0.05"]),
        ("numeric(50,2)", ["123456789012345678901234567890123456789012.05"]),
        ("numeric", ["1.50", "NaN"]),
        ("date", ["2024-02-29", "0001-01-01"]),
        ("time without time zone", ["12:34:56", "23:59:59.999999"]),
        ("timestamp(3) without time zone", ["2024-02-29 12:34:56.123"]),
        ("timestamp with time zone", ["2024-02-29 12:34:56.123456+00"]),
        ("bytea", ["\\x", "\\x00ff", "\\x0123456789abcdef"]),
        ("uuid", ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
        ("jsonb", ['{"a": [1]}']),
        ("integer[]", ["{1,NULL}"]),
    ],
)
def test_text_becomes_values(sql: str, texts: list[str]) -> None:
    """As if each value was converted on its own, with nulls between, in a slice too."""
    wanted = arrow_type(sql)
    found = from_text(pa.array([None, *texts, None]), wanted, "c", "t").to_pylist()
    sliced = from_text(pa.array(["no", None, *texts, None, "no"])[1:-1], wanted, "c", "t")
    assert sliced.to_pylist()[0] is found[0] is sliced.to_pylist()[-1] is found[-1] is None
    expected: Any = {
        "boolean": lambda text: text == "t",
        "bytea": lambda text: bytes.fromhex(text[2:]),
        "time without time zone": lambda text: pa.scalar(_micros(text), pa.time64("us")).as_py(),
    }.get(sql, lambda text: pa.scalar(text).cast(wanted).as_py())
    for one, text in zip(found[1:-1], texts, strict=True):
        assert repr(one) == repr(expected(text))
    assert repr(sliced.to_pylist()) == repr(found)


def _micros(text: str) -> int:
    hours, minutes, seconds = text.split(":")
    return round((int(hours) * 3600 + int(minutes) * 60 + float(seconds)) * 1e6)


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("timestamp with time zone", "infinity"),
        ("date", "0044-03-15 BC"),
        ("timestamp without time zone", "12345-01-01 00:00:00"),
        ("numeric(10,2)", "NaN"),
        ("time without time zone", "24:00:00"),
    ],
)
def test_a_value_that_does_not_fit_is_an_error(sql: str, text: str) -> None:
    with pytest.raises(
        DataError, match=r"the column 'c' holds a value .*types=\{'c': \"string\"\}"
    ):
        from_text(pa.array([text]), arrow_type(sql), "c", "t")
