"""Hostile JSON lines and CSV: odd lines among sound ones, damaged and compressed files."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import random
from collections.abc import Callable, Mapping
from typing import Any

from tests.hostile.hostile_input import TIME_US, HostileInput


def _deep(levels: int, opening: str = "[", closing: str = "]") -> str:
    return opening * levels + "1" + closing * levels


_AT = f'"at": {TIME_US}, "k": "a", "v": 1'
JSON_LINES: Mapping[str, str | bytes] = {
    **{f"the line is {text}": text for text in (
        "null", "true", "1", "-0.5", '"text"', "[]", "[1]", "{}", "NaN", "nul", "{", "}", "[", ",",
        "{}{}", "{} null", "null {}", '{"at": 1}}', "{'at': 1}", "//", "\x00", "\x0c", " null",
    )},
    **{f"at is {value}": f'{{"at": {value}, "k": "a", "v": 1, "x": 1}}' for value in (
        "1714564800.5", "1.0", "NaN", "Infinity", "-Infinity", "1e400", "true", "null", "[]", "{}",
        '""', '"soon"', '"2024-05-01"', '"2024-05-01T12:00:00"', '"2024-13-01T00:00:00Z"',
        '"0000-00-00T00:00:00Z"', '"99999-01-01T00:00:00Z"', str(2**63 - 1), str(-(2**63)),
        str(2**63), str(-(2**63) - 1), str(10**30), "9" * 5000, '"\\ud800"', '"\\u0000"',
        str(-(2**63) + 1), str(2**63 - 86_400_000_001), str(2**62), str(-(2**62)),
    )},
    **{f"k is {value}": f'{{"at": {TIME_US}, "k": {value}, "v": 1, "x": 1}}' for value in (
        "null", "1", "1.5", "NaN", "true", "[]", '{"a": 1}', '""', '"\\ud800"', '"\\u0000"',
        '"' + "k" * 70_000 + '"', '"\U0001f30a"',
    )},
    **{f"v is {value}": f'{{"at": {TIME_US}, "k": "a", "v": {value}, "x": 1}}' for value in (
        "null", '"many"', "1.5", "NaN", "Infinity", "1e308", "true", "[1]", "{}", str(2**63),
        str(2**63 - 1), str(2**70), "-0.0", "9" * 400,
    )},
    **{f"x is {value[:30]}": f'{{{_AT}, "x": {value}}}' for value in (
        "[]", "[null]", "[null, 1]", "{}", '{"a": null}', '{"a": [null, {"b": 1}]}', "[[], {}]",
        '[1, "a"]', "[true, 1]", '{"": 1}', '{"\\ud800": 1}', '"\\ud800"', '{"a": 1, "a": 2}',
        _deep(38), _deep(41), _deep(90), _deep(495), _deep(2_000), _deep(100_000),
        _deep(39, '{"y": ', "}"), _deep(63, '{"y": ', "}"), _deep(494, '{"y": ', "}"),
        _deep(2_000, '{"y": ', "}"), "[" * 50_000, '"' + "x" * 300_000 + '"',
    )},
    "the name of a field is half a surrogate pair": f'{{{_AT}, "\\ud800": 1}}',
    "the name of a field is empty": f'{{{_AT}, "": 1}}',
    "the name of a field has a zero": f'{{{_AT}, "\\u0000": 1}}',
    "the name of a field is reserved": f'{{{_AT}, "__lw_time": 1, "__lw_sign": -1}}',
    "a field comes twice": f'{{{_AT}, "v": 2}}',
    "a thousand fields": f'{{{_AT}, ' + ", ".join(f'"f{n}": {n}' for n in range(1000)) + "}",
    "it is cut": f'{{{_AT}, "x": "ab',
    "it is followed by another": f'{{{_AT}}} {{{_AT}}}',
    "it is not UTF-8": b'{"at": 1, "k": "\xff\xfe", "v": 1}',
    "half of a surrogate pair in UTF-8": b'{"at": 1, "k": "\xed\xa0\x80", "v": 1}',
    "an overlong encoding": b'{"at": 1, "k": "\xc0\xaf", "v": 1}',
    "a byte order mark": b'\xef\xbb\xbf{"at": 1, "k": "a", "v": 1}',
    "a raw tab and a raw zero": b'{"at": 1, "k": "a\tb\x00", "v": 1}',
    "a carriage return within": b'{"at": 1,\r"k": "a", "v": 1}',
}  # fmt: skip

CSV_ROWS: Mapping[str, str | bytes] = {
    **{f"at is {value[:30]}": f"{value},a,1,1" for value in (
        "1714564800.5", "NaN", "inf", "true", "", '""', "soon", "2024-05-01", str(2**63 - 1),
        str(-(2**63)), str(2**63), "9" * 400, "2024-05-01T12:00:00Z", "\x00", "0x10", "1_000",
        "99999-01-01T00:00:00Z", " 1714564800000000 ",
    )},
    **{f"v is {value[:30]}": f"{TIME_US},a,{value},1" for value in (
        "", '""', "many", "1.5", "NaN", "inf", "1e999", "9" * 400, str(2**63), "true", "\x00",
    )},
    **{f"k is {value[:30]}": f"{TIME_US},{value},1,1" for value in (
        "", '""', '"a""b"', "k" * 70_000, "NULL", "\x00", "\U0001f30a", "=cmd()",
    )},
    **{f"the row is {value[:30]}": value for value in (
        "1", "1,2", "1,2,3,4,5", ",,,", ",", ",,,,,,", "a,b,c,d", " , , , ",
    )},
    "it is not UTF-8": b"1,\xff\xfe,1,1",
    "half of a surrogate pair in UTF-8": b"1,\xed\xa0\x80,1,1",
    "a row of 9 MB": f"{TIME_US},{'k' * 9_000_000},1,1",
}  # fmt: skip


def json_lines(random_: random.Random) -> HostileInput:
    """Return some odd lines among sound ones."""
    titles = random_.sample(list(JSON_LINES), random_.choice((1, 1, 2, 5)))
    return _among(random_, titles)


def json_line(random_: random.Random, title: str) -> HostileInput:
    """Return one odd line among sound ones: at the beginning, in the middle or at the end."""
    return _among(random_, [title])


def _among(random_: random.Random, titles: list[str]) -> HostileInput:
    sound = [_sound_line(random_) for _ in range(random_.choice((6, 30)))]
    places = sorted(random_.choice((0, 0, len(sound) // 2, len(sound))) for _ in titles)
    for place, title in reversed(list(zip(places, titles, strict=True))):
        line = JSON_LINES[title]
        sound.insert(
            place, line.encode("utf-8", "surrogatepass") if isinstance(line, str) else line
        )
    files = _in_files(random_, sound, ".jsonl")
    return HostileInput(
        "jsonl", f"line {places}: {', '.join(titles)}", files, rows=_count_lines(files),
        refusable=False,
    )  # fmt: skip


def _sound_line(random_: random.Random) -> bytes:
    at = TIME_US + random_.randrange(10_000_000_000)
    row: dict[str, Any] = {"at": at, "k": random_.choice("ab"), "v": random_.randrange(9), "x": 1}
    return json.dumps(row).encode()


def random_json_lines(random_: random.Random) -> HostileInput:
    """Return objects of random values: fields change their types from line to line."""
    lines = [_sound_line(random_) for _ in range(5)]
    for _ in range(random_.randrange(1, 20)):
        row = json.loads(_sound_line(random_))
        row[random_.choice(("at", "k", "v", "x", "y"))] = _random_value(random_, 4)
        lines.insert(random_.randrange(len(lines) + 1), json.dumps(row).encode())
    files = _in_files(random_, lines, ".jsonl")
    return HostileInput("jsonl", "random values", files, rows=_count_lines(files), refusable=False)


def _random_value(random_: random.Random, depth: int) -> Any:
    kinds: list[Callable[[], Any]] = [
        lambda: None, lambda: random_.random() < 0.5, lambda: random_.randrange(-(2**65), 2**65),
        lambda: random_.randrange(100), lambda: random_.choice((0.5, float("nan"), 1e300)),
        lambda: random_.choice(("", "x", "2024-05-01T12:00:00Z", "\ud800", "\x00")),
    ]  # fmt: skip
    if depth:
        kinds += [
            lambda: [_random_value(random_, depth - 1) for _ in range(random_.randrange(4))],
            lambda: {
                random_.choice(("a", "b", "", "\udfff")): _random_value(random_, depth - 1)
                for _ in range(random_.randrange(3))
            },
        ] * 2
    return random_.choice(kinds)()


def damaged_json_lines(random_: random.Random) -> HostileInput:
    """Return sound lines whose bytes were changed at random."""
    files = {"1.jsonl": _damaged(random_, _json_text(random_) * 2)}
    return HostileInput("jsonl", "damaged bytes", files, rows=_count_lines(files), refusable=False)


def _json_text(random_: random.Random) -> bytes:
    return b"".join(_sound_line(random_) + b"\n" for _ in range(20))


JSON_FILES: Mapping[str, tuple[str, Callable[[random.Random], bytes], int | None]] = {
    "empty": (".jsonl", lambda _: b"", 0),
    "blank lines": (".jsonl", lambda _: b"\n \n\r\n\n", 0),
    "a byte order mark alone": (".jsonl", lambda _: b"\xef\xbb\xbf", 0),
    "a byte order mark": (".jsonl", lambda r: b"\xef\xbb\xbf" + _json_text(r), 20),
    "carriage returns": (".jsonl", lambda r: _json_text(r).replace(b"\n", b"\r\n"), 20),
    "no newline at the end": (".jsonl", lambda r: _json_text(r).rstrip(), 20),
    "UTF-16": (".jsonl", lambda r: _json_text(r).decode().encode("utf-16"), None),
    "one array": (".jsonl", lambda r: b"[" + b",\n".join(_json_text(r).splitlines()) + b"]", 20),
    "pretty printed": (".jsonl", lambda r: _json_text(r).splitlines()[0].replace(b",", b",\n"), 4),
    "only nulls": (".jsonl", lambda _: b"null\n" * 5_000, 5_000),
    "only braces": (".jsonl", lambda _: b"{}\n" * 5_000, 5_000),
    "all on one line": (".jsonl", lambda r: _json_text(r).replace(b"\n", b" "), 1),
    "zeros": (".jsonl", lambda _: b"\x00" * 4_096, 1),
    "no event times": (".jsonl", lambda _: b'{"k": "a", "v": 1, "x": 1}\n' * 9, 9),
    "zstd": (".jsonl", lambda r: b"\x28\xb5\x2f\xfd" + _json_text(r), None),
    "bzip2": (".jsonl", lambda r: bz2.compress(_json_text(r)), None),
    "xz": (".jsonl.gz", lambda r: lzma.compress(_json_text(r)), None),
    "gzip without its suffix": (".jsonl", lambda r: gzip.compress(_json_text(r)), 20),
    "gzip": (".jsonl.gz", lambda r: gzip.compress(_json_text(r)), 20),
    "gzip in two members": (".jsonl.gz", lambda r: gzip.compress(_json_text(r)) * 2, 40),
    "no gzip": (".jsonl.gz", _json_text, None),
    "empty gzip": (".jsonl.gz", lambda _: b"", 0),
    "gzip and rubbish": (".jsonl.gz", lambda r: gzip.compress(_json_text(r)) + b"rubbish", None),
    "cut gzip": (".jsonl.gz", lambda r: _cut(r, gzip.compress(_json_text(r))), None),
    "damaged gzip": (".jsonl.gz", lambda r: _damaged(r, gzip.compress(_json_text(r) * 50)), None),
}  # fmt: skip


def json_files(random_: random.Random) -> HostileInput:
    """Return a file that is hostile as a whole."""
    return json_file(random_, random_.choice([*JSON_FILES, "damaged gzip", "cut gzip"]))


def json_file(random_: random.Random, title: str) -> HostileInput:
    """Return a file that is hostile as a whole; sometimes a sound one comes after it."""
    suffix, made, rows = JSON_FILES[title]
    files = {f"1{suffix}": made(random_)}
    if rows is None or random_.random() < 0.5:
        return HostileInput("jsonl", title, files, rows=rows)
    files["2.jsonl"] = _json_text(random_)
    return HostileInput("jsonl", f"{title}, then a file", files, rows=rows + 20, refusable=False)


def csv_rows(random_: random.Random) -> HostileInput:
    """Return some odd rows among sound ones."""
    return _among_rows(random_, random_.sample(list(CSV_ROWS), random_.choice((1, 1, 2, 5))))


def csv_row(random_: random.Random, title: str) -> HostileInput:
    """Return one odd row among sound ones."""
    return _among_rows(random_, [title])


def _among_rows(random_: random.Random, titles: list[str]) -> HostileInput:
    rows = [_sound_row(random_) for _ in range(random_.choice((6, 30)))]
    for title in titles:
        row = CSV_ROWS[title]
        data = row.encode() if isinstance(row, str) else row
        rows.insert(random_.choice((0, len(rows) // 2, len(rows))), data)
    data = b"at,k,v,x\n" + b"\n".join(rows) + b"\n"
    options = {"types": {"v": "float64", "k": "string", "x": "string"}}
    return HostileInput(
        "csv", ", ".join(titles), {"1.csv": data}, rows=len(rows), refusable=False, options=options
    )


def _sound_row(random_: random.Random) -> bytes:
    at = TIME_US + random_.randrange(10_000_000_000)
    return f"{at},{random_.choice('ab')},{random_.randrange(9)},1".encode()


def _csv_rows(random_: random.Random) -> bytes:
    return b"".join(_sound_row(random_) + b"\n" for _ in range(20))


def _csv_text(random_: random.Random) -> bytes:
    return b"at,k,v,x\n" + _csv_rows(random_)


CSV_FILES: Mapping[str, tuple[str, Callable[[random.Random], bytes], int | None]] = {
    "empty": (".csv", lambda _: b"", 0),
    "blank": (".csv", lambda _: b"\n\n", None),
    "no header": (".csv", _csv_rows, None),
    "header alone": (".csv", lambda _: b"at,k,v,x\n", None),
    "a byte order mark": (".csv", lambda r: b"\xef\xbb\xbf" + _csv_text(r), 20),
    "carriage returns": (".csv", lambda r: _csv_text(r).replace(b"\n", b"\r\n"), 20),
    "only carriage returns": (".csv", lambda r: _csv_text(r).replace(b"\n", b"\r"), 20),
    "UTF-16": (".csv", lambda r: _csv_text(r).decode().encode("utf-16"), None),
    "zeros": (".csv", lambda _: b"\x00" * 4_096, None),
    "one name twice": (".csv", lambda r: b"at,k,v,v\n" + _csv_rows(r), None),
    "a reserved name": (".csv", lambda r: b"at,k,v,__lw_row\n" + _csv_rows(r), None),
    "a name that is not UTF-8": (".csv", lambda r: b"at,k,v,\xff\n" + _csv_rows(r), None),
    "an open quote": (".csv", lambda r: _csv_text(r) + b'1,"a,1,1\n' + _csv_rows(r), None),
    "a quote in a field": (".csv", lambda r: _csv_text(r) + b'1,a"b,1,1\n' + _csv_rows(r), None),
    "semicolons": (".csv", lambda r: _csv_text(r).replace(b",", b";"), None),
    "gzip": (".csv.gz", lambda r: gzip.compress(_csv_text(r)), 20),
    "no gzip": (".csv.gz", _csv_text, None),
    "cut gzip": (".csv.gz", lambda r: _cut(r, gzip.compress(_csv_text(r))), None),
    "damaged gzip": (".csv.gz", lambda r: _damaged(r, gzip.compress(_csv_text(r) * 50)), None),
    "damaged bytes": (".csv", lambda r: _damaged(r, _csv_text(r)), None),
}


def csv_files(random_: random.Random) -> HostileInput:
    """Return a CSV file that is hostile as a whole."""
    return csv_file(random_, random_.choice([*CSV_FILES, *["damaged bytes"] * 3, "damaged gzip"]))


def csv_file(random_: random.Random, title: str) -> HostileInput:
    """Return a file that is hostile as a whole."""
    suffix, made, rows = CSV_FILES[title]
    return HostileInput("csv", title, {f"1{suffix}": made(random_)}, rows=rows)


def _in_files(random_: random.Random, lines: list[bytes], suffix: str) -> dict[str, bytes]:
    """Spread lines over one file or two."""
    cut = random_.choice((len(lines), len(lines), len(lines) // 2))
    parts = [part for part in (lines[:cut], lines[cut:]) if part]
    return {
        f"{number}{suffix}": b"\n".join(part) + b"\n" for number, part in enumerate(parts, start=1)
    }


def _count_lines(files: Mapping[str, bytes]) -> int:
    return sum(bool(line.strip()) for data in files.values() for line in data.split(b"\n"))


def _cut(random_: random.Random, data: bytes) -> bytes:
    return data[: random_.randrange(1, 90)]


def _damaged(random_: random.Random, data: bytes) -> bytes:
    damaged = bytearray(data)
    for _ in range(random_.choice((1, 3, 10))):
        at = random_.randrange(len(damaged))
        match random_.randrange(3):
            case 0:
                damaged[at] = random_.randrange(256)
            case 1:
                del damaged[at : at + random_.randrange(20)]
            case _:
                damaged[at:at] = random_.randbytes(random_.randrange(5))
    return bytes(damaged)
