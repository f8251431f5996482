"""A JSON object means what it means alone, whatever is parsed with it (S-B1)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.records.batch import Records
from lowwater.io import json_blocks
from lowwater.io.json_blocks import JsonBlocks, with_odd

BIG = 2**53
NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([BIG, BIG + 1, -BIG - 1, 2**60 + 1, 2**63 - 1, 2**63, 2**64 - 1, 10**20]),
    st.sampled_from([0.5, 7.0, -0.0, 1e20, 1e300, 0.1]),
)
TEXTS = st.sampled_from(["", "a", "7", "null", "2024-05-01T12:00:00+02:00", "ä", "9" * 20])
LEAVES = st.one_of(NUMBERS, TEXTS, st.none(), st.booleans())
VALUES = st.one_of(
    LEAVES,
    st.lists(st.one_of(NUMBERS, st.none()), max_size=3),
    st.lists(TEXTS, max_size=2),
    st.dictionaries(st.sampled_from("xyz"), LEAVES, max_size=3),
    st.lists(st.dictionaries(st.sampled_from("xy"), NUMBERS, max_size=2), max_size=2),
)


def columns(of: Any) -> Any:
    """Return lines in which a field has values that are alike, more or less, and odd lines."""
    objects = st.fixed_dictionaries({}, optional={"a": of, "b": NUMBERS, "c": VALUES, "d": TEXTS})
    odd = st.sampled_from([b"broken\n", b"[1]\n", b'{"a": 1\n', b'{"a": "\xff"}\n', b"\n", b"{}\n"])
    line = objects.map(lambda one: json.dumps(one).encode() + b"\n")
    return st.lists(st.one_of(line, line, line, odd), min_size=1, max_size=24)


LINES = st.sampled_from([NUMBERS, VALUES, TEXTS, st.lists(NUMBERS, max_size=2)]).flatmap(columns)


def plain(value: Any) -> Any:
    """Return a value without the fields of objects that are null."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items() if one is not None}
    return [plain(one) for one in value] if isinstance(value, list) else value


def parsed(blocks: JsonBlocks, lines: list[bytes], first: int = 0) -> tuple[list[Any], list[Any]]:
    """Return the records of lines, each with its number, and the dead letters."""
    found = blocks.parse(lines, lambda number: str(first + number))
    letters = [(one.where, one.reason, str(one.record)) for one in found.letters]
    if found.batch is None:
        return [], letters
    records = with_odd(Records.from_arrow(found.batch), found.odd)
    rows = range(len(lines)) if found.lines is None else found.lines.tolist()
    values = [plain(row) for row in records.rows(exact=True)]
    return [(first + row, value) for row, value in zip(rows, values, strict=True)], letters


def fresh(settled: dict[str, Any], skips_blank: bool) -> JsonBlocks:
    made = JsonBlocks(None, False, skips_blank=skips_blank)
    made.types.update(settled)
    return made


@given(LINES, st.integers(1, 24), st.booleans())
def test_a_block_is_what_its_lines_are(lines: list[bytes], cut: int, skips_blank: bool) -> None:
    settling = fresh({}, skips_blank)
    settling.parse(lines, str)
    settled = dict(settling.types)
    whole = parsed(fresh(settled, skips_blank), lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_blocks, "_LINES", 5)
        patch.setattr(json_blocks, "_FEW", 1)
        small = parsed(fresh(settled, skips_blank), lines)
    assert small == whole
    blocks = fresh(settled, skips_blank)
    first, second = parsed(blocks, lines[:cut]), parsed(blocks, lines[cut:], cut)
    assert (first[0] + second[0], first[1] + second[1]) == whole
    by_line = fresh(settled, skips_blank)
    alone = [parsed(by_line, [line], at) for at, line in enumerate(lines)]
    assert ([r for rows, _ in alone for r in rows], [e for _, es in alone for e in es]) == whole


@given(LINES)
def test_a_value_is_what_it_is_written_as(lines: list[bytes]) -> None:
    rows, _ = parsed(fresh({}, True), lines)
    for number, value in rows:
        written = plain(json.loads(lines[number]))
        assert value == written
        assert exact(value) == exact(written)


def exact(value: Any) -> Any:
    """Return a value with its integers as text where floats cannot hold them."""
    if isinstance(value, dict):
        return {name: exact(one) for name, one in value.items()}
    if isinstance(value, list):
        return [exact(one) for one in value]
    return str(value) if type(value) is int and abs(value) > BIG else value


@pytest.mark.parametrize(
    ("odd", "size"),
    [("broken", 65_536), ('{"t": 70000, "id": 0.5}', 200_000), ('{"t": 70000, "id": "x"}', 1_000)],
)
def test_one_odd_line_changes_no_other(tmp_path: Path, odd: str, size: int) -> None:
    """Past every block: 150,000 ids above 2^53."""
    count = 150_000
    lines = [f'{{"t": {at}, "id": {BIG + 1 + 2 * at}}}' for at in range(count)]
    lines[100_000] = odd
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    stream = lw.read_jsonl(tmp_path, time="t", unit="us").key_by(k=lw.col("t") * 0)
    stage = stream.window(lw.FixedWindows("1h")).aggregate(n=lw.count_distinct("id"))
    found = stage.collect(on_error="dead_letter", bundle_size=size)
    (pane,) = found.panes
    is_number = odd.endswith("0.5}")
    assert pane.values["n"] == count - (not is_number)
    assert len(found.errors) == (not is_number)


@given(LINES, st.integers(0, 24), st.integers(0, 24))
def test_files_may_be_cut_anywhere(
    tmp_path_factory: Any, lines: list[bytes], one: int, two: int
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    timed = [b'{"t": %d, ' % at + line[1:] if line[1:2] == b'"' else line
             for at, line in enumerate(lines)]  # fmt: skip
    whole, several = folder / "whole", folder / "several"
    low, high = sorted((min(one, len(lines)), min(two, len(lines))))
    for place, parts in (
        (whole, [timed]), (several, [timed[:low], timed[low:high], timed[high:]]),
    ):  # fmt: skip
        place.mkdir()
        for at, part in enumerate(parts):
            (place / f"{at}.jsonl").write_bytes(b"".join(part))
    if not any(line[1:2] == b'"' and json_is_object(line) for line in timed):
        return
    found = []
    for place in (whole, several):
        result = (
            lw.read_jsonl(place, time="t", unit="us")
            .map(lambda row: row)
            .collect(on_error="dead_letter", on_dead_letter=lambda _letter: None)
        )
        letters = [(one.reason, str(plain(one.record))) for one in result.errors]
        found.append(([plain(row) for row in result.values()], sorted(letters)))
    assert found[0] == found[1]


def json_is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False
