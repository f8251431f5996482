"""Many small files give what each gives by itself: records, errors, bundles and positions (S-B1).

Small files are read ahead and parsed together, which must not show. The reference reads each file
alone when its turn has come.
"""

from __future__ import annotations

import gzip
import json
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.records.batch import Records
from lowwater.errors import DataError
from lowwater.io import files_ahead, json_blocks, jsonl
from lowwater.io.files_ahead import FilesAhead
from lowwater.io.jsonl import JsonLinesSource

SIZE = 64


@contextmanager
def one_by_one() -> Iterator[None]:
    """Read no file before its turn."""
    with mock.patch.object(FilesAhead, "take", return_value=None):
        yield


@contextmanager
def parses_counted() -> Iterator[list[int]]:
    """Count the lines of each block that Arrow parses."""
    parsed: list[int] = []
    read = json_blocks._read_json

    def counted(block: bytes, *args: Any, **options: Any) -> Any:
        parsed.append(block.count(b"\n"))
        return read(block, *args, **options)

    with mock.patch.object(json_blocks, "_read_json", counted):
        yield parsed


@contextmanager
def settled_by(files: int) -> Iterator[None]:
    """Settle the types by so few files that later ones have fields that are not known."""
    with mock.patch.object(jsonl, "_FIRST_FILES", files):
        yield


def plain(number: int, **fields: Any) -> bytes:
    row = {"t": 1_000 * number, "k": f"k{number % 3}", "v": number, "x": number / 4, **fields}
    return json.dumps(row).encode()


def contents(lines: list[bytes]) -> list[tuple[str, bytes]]:
    """Return ways in which lines may be in a file."""
    text = b"\n".join(lines)
    return [
        (".jsonl", text + b"\n"),
        (".jsonl", text + b"\n"),
        (".jsonl", text + b"\n"),
        (".jsonl", text),
        (".jsonl", text.replace(b"\n", b"\r\n") + b"\r\n"),
        (".jsonl", b"\xef\xbb\xbf" + text + b"\n"),
        (".jsonl", text + b"\n\n  \n"),
        (".jsonl.gz", gzip.compress(text + b"\n", mtime=0)),
        (".ndjson", gzip.compress(text, mtime=0)),
    ]


NUMBERS = st.integers(0, 40)
ODD_FIELDS = st.sampled_from(
    [
        {"v": 2.5},
        {"v": None},
        {"v": "7"},
        {"v": 2**53 + 1},
        {"v": 2**63},
        {"x": 3},
        {"x": 2**53 + 1},
        {"x": None},
        {"k": 5},
        {"k": "2024-05-01T00:00:00Z"},
        {"t": None},
        {"t": "soon"},
        {"t": 1.5},
        {"new": 1},
        {"new": None},
        {"new": "2024-05-01"},
        {"inner": {"a": 1}},
        {"inner": {"a": 1, "b": [1, None]}},
        {"inner": {"b": [None]}},
        {"inner": {}},
        {"list": []},
        {"list": [1, 2.5]},
        {"k": "ä" * 300},
    ]
)
WHOLE = st.builds(plain, NUMBERS)
ODD = st.one_of(
    st.builds(lambda number, fields: plain(number, **fields), NUMBERS, ODD_FIELDS),
    st.sampled_from(
        [
            b"broken",
            b'{"t": 1',
            b"[1]",
            b"",
            b"{}",
            b"null",
            b'{"t": 5}',
            b'{"t": 5, "k": "\xff"}',
            b'{"t": 5} {"t": 6}',
            b'{"t": 5}\r{"t": 6}',
            b'{"t": 5, "t": 6}',
            b'{"t": 5, "v": ' + b"[" * 300 + b"]" * 300 + b"}",
        ]
    ),
)
LINES = st.one_of(
    st.lists(WHOLE, min_size=1, max_size=1),
    st.lists(WHOLE, min_size=1, max_size=4),
    st.lists(st.one_of(WHOLE, ODD), max_size=3),
)
FILE = st.one_of(
    st.lists(WHOLE, min_size=1, max_size=1).map(lambda lines: (".jsonl", lines[0] + b"\n")),
    LINES.flatmap(lambda lines: st.sampled_from(contents(lines))),
    st.sampled_from([(".jsonl", b""), (".jsonl", b"\n"), (".jsonl", b"\xef\xbb\xbf")]),
)
# Most files are alike, so that many are read together, with what is odd in one of them.
ALIKE = st.builds(lambda number: (".jsonl", plain(number) + b"\n"), NUMBERS)
ODD_FIELD = st.builds(
    lambda number, fields: (".jsonl", plain(number, **fields) + b"\n"), NUMBERS, ODD_FIELDS
)
FILES = st.one_of(
    st.lists(FILE, min_size=1, max_size=12),
    st.lists(st.one_of(ALIKE, ALIKE, ALIKE, ALIKE, ODD_FIELD, FILE), min_size=8, max_size=30),
    st.lists(st.one_of(*[ALIKE] * 10, ODD_FIELD), min_size=16, max_size=30),
)
OPTIONS = st.sampled_from(
    [{}, {}, {"columns": ("t", "k", "v")}, {"types": {"v": "float64"}}, {"fractions": True}]
)


def written(folder: Path, files: list[tuple[str, bytes]]) -> Path:
    for number, (suffix, content) in enumerate(files):
        (folder / f"part-{number:05d}{suffix}").write_bytes(content)
    return folder


def source(folder: Path, options: dict[str, Any]) -> JsonLinesSource:
    import pyarrow as pa

    types = {name: pa.type_for_alias(kind) for name, kind in options.get("types", {}).items()}
    return JsonLinesSource((str(folder),), "t", **{**options, "types": types})


def shown(records: Records) -> Any:
    """Return all that there is to know of a batch."""
    kinds = [(name, str(records.columns[name].type)) for name in records.columns]
    return (
        kinds,
        [repr(row) for row in records.rows(exact=True)] if records.columns else records.length,
        [records.place(at) for at in range(records.length)],
        repr(records.unreadable),
        records.origin,
        records.share,
    )


def at(position: Any) -> Any:
    """Return a position without stamps, which files have once they were written a while ago."""
    done = [(name, content[:2]) for name, content in position["done"].items()]
    return {**position, "done": done, "content": (position["content"] or [])[:2]}


def ended(batches: Iterator[Any]) -> list[Any]:
    """Return what an iterator gives, and the error that it ends with."""
    found: list[Any] = []
    try:
        found.extend(batches)
    except Exception as error:
        found.append((type(error).__name__, str(error)))
    return found


def read(one: JsonLinesSource, position: Any = None) -> list[Any]:
    batches = one.batches_from(position, SIZE, ("k",))
    return ended((shown(records), at(where)) for records, where in batches)


@given(files=FILES, options=OPTIONS, first=st.integers(1, 3))
def test_files_read_ahead_give_what_each_gives_alone(
    files: list[tuple[str, bytes]], options: dict[str, Any], first: int
) -> None:
    with tempfile.TemporaryDirectory() as name, settled_by(first):
        one = source(written(Path(name), files), options)
        with one_by_one():
            alone = read(one)
            batches = ended(shown(records) for records in one.batches(SIZE, ("k",)))
        assert read(one) == alone
        assert ended(shown(records) for records in one.batches(SIZE, ("k",))) == batches


@given(files=FILES, options=OPTIONS, data=st.data())
def test_a_run_resumes_among_files_read_ahead(
    files: list[tuple[str, bytes]], options: dict[str, Any], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as name, settled_by(2):
        one = source(written(Path(name), files), options)
        positions: list[Any] = [None]
        begun = (where for _, where in one.batches_from(None, SIZE, ()) if where["file"])
        positions += [where for where in ended(begun) if isinstance(where, dict)]
        place = data.draw(st.integers(0, len(positions) - 1))
        with one_by_one():
            alone = read(one, positions[place])
            whole = read(one)
        rest = read(one, positions[place])
        assert rest == alone
        # But for the share of what there is to read, which is that of the rest.
        assert list(map(without_share, rest)) == list(map(without_share, whole[place:]))


def without_share(item: Any) -> Any:
    records, where = item
    return records if isinstance(records, str) else records[:-1], where


def mixed() -> list[tuple[str, bytes]]:
    """Return files of all sorts between many that are alike."""
    files = [(".jsonl", plain(n) + b"\n") for n in range(200)]
    files[20] = (".jsonl", b"")
    files[40] = (".jsonl", plain(40))
    files[77] = (".jsonl", plain(77) + b'\n{"t": 1,\n' + plain(78) + b"\n")
    files[90] = (".jsonl", plain(90, extra="e") + b"\n")
    files[91] = (".jsonl", plain(91, v="text") + b"\n")
    files[110] = (".jsonl.gz", gzip.compress(plain(110) + b"\n", mtime=0))
    files[130] = (".jsonl", b"\xef\xbb\xbf" + plain(130) + b"\n")
    files[185] = (".jsonl", plain(185, extra=None, more=2) + b"\n")
    files[150] = (".jsonl", b"".join(plain(n) + b"\n" for n in range(20_000)))
    return files


def test_files_of_all_sorts_among_many(tmp_path: Path) -> None:
    one = source(written(tmp_path, mixed()), {})
    with one_by_one():
        alone = read(one)
    assert read(one) == alone
    found = [kinds for (kinds, *_), where in alone if where["file"].endswith("00185.jsonl")]
    assert [name for name, _ in found[-1]] == ["t", "k", "v", "x", "extra", "more"]


def test_files_without_event_times(tmp_path: Path) -> None:
    written(tmp_path, [(".jsonl", plain(n) + b"\n") for n in range(20)])
    one = JsonLinesSource((str(tmp_path),), "absent")
    with one_by_one():
        alone = read(one)
    assert read(one) == alone


def outcome(folder: Path, **options: Any) -> Any:
    result = (
        lw.read_jsonl(folder, time="t", unit="ms", watermark=lw.BoundedDisorder("5s"))
        .key_by("k")
        .window(lw.FixedWindows("10s"))
        .aggregate(count=lw.count(), values=lw.collect("v"), last=lw.last("x"))
        .collect(on_error="dead_letter", clock=lw.ManualClock(0), **options)
    )
    letters = [(repr(one.record), one.reason, one.where) for one in result.errors]
    return repr(result.panes), letters, result.metrics.bundles, result.metrics.events


def test_a_pipeline_cannot_tell(tmp_path: Path) -> None:
    folder = written(tmp_path, mixed())
    with one_by_one():
        alone = outcome(folder)
    assert outcome(folder) == alone
    (_, letters, bundles, _) = alone
    assert bundles == 198
    assert "part-00077.jsonl:2" in {Path(place).name for _, _, place in letters}
    assert {Path(place).name for _, _, place in letters} >= {"part-00091.jsonl:1"}


def test_files_alike_are_parsed_together(tmp_path: Path) -> None:
    one = source(written(tmp_path, [(".jsonl", plain(n) + b"\n") for n in range(1_000)]), {})
    with parses_counted() as parsed:
        assert sum(records.length for records in one.batches(SIZE, ())) == 1_000
    assert len(parsed) < 40
    assert max(parsed) == files_ahead._MOST


def test_odd_files_cost_few_attempts(tmp_path: Path) -> None:
    """Where every file has a broken line, hardly any are parsed in vain."""
    files = [(".jsonl", plain(n) + b"\nbroken\n") for n in range(300)]
    one = source(written(tmp_path, files), {})
    with mock.patch.object(json_blocks.JsonBlocks, "together", return_value=None) as together:
        assert sum(records.length for records in one.batches(SIZE, ())) == 300
    assert together.call_count < 20


@pytest.mark.parametrize("watched", [False, True])
def test_a_file_that_changes_before_its_turn_is_read_as_it_is_then(
    tmp_path: Path, watched: bool
) -> None:
    one = source(written(tmp_path, [(".jsonl", plain(n) + b"\n") for n in range(40)]), {})
    batches = one.batches_from(None, SIZE, ()) if watched else one.batches(SIZE, ())
    values = []
    for item in batches:
        records = item[0] if isinstance(item, tuple) else item
        if not records.length:
            continue
        values += [row["v"] for row in records.rows()]
        if len(values) == 10:  # the next ones are read already
            (tmp_path / "part-00011.jsonl").write_bytes(plain(711) + b"\n" + plain(712) + b"\n")
            same_size = plain(99)
            assert len(same_size) == len(plain(12)) + 2  # "t": 99000 and 24.75
            (tmp_path / "part-00012.jsonl").write_bytes(plain(52) + b"\n")
    wanted = [*range(11), 711, 712, 52, *range(13, 40)]
    assert values == wanted


def test_a_file_that_vanishes_before_its_turn_is_an_error(tmp_path: Path) -> None:
    one = source(written(tmp_path, [(".jsonl", plain(n) + b"\n") for n in range(40)]), {})
    batches = one.batches(SIZE, ())
    values = [next(batches).rows()[0]["v"] for _ in range(10)]
    (tmp_path / "part-00011.jsonl").unlink()
    with pytest.raises(DataError, match=r"vanished while it was being read.*") as error:
        values += [records.rows()[0]["v"] for records in batches]
    assert values == list(range(10))
    assert "part-00011" in str(error.value)


def test_a_file_that_becomes_a_pipe_holds_up_nothing_before_its_turn(tmp_path: Path) -> None:
    one = source(written(tmp_path, [(".jsonl", plain(n) + b"\n") for n in range(40)]), {})
    found = one.batches_from(None, SIZE, ())
    for _, where in found:
        if where["file"].endswith("00002.jsonl"):
            break
    (tmp_path / "part-00011.jsonl").unlink()
    os.mkfifo(tmp_path / "part-00011.jsonl")
    arrived = threading.Event()

    def read_on() -> None:
        for _, where in found:
            if where["file"].endswith("00010.jsonl"):
                arrived.set()
                return

    threading.Thread(target=read_on, daemon=True).start()  # it might wait for ever
    assert arrived.wait(20)
