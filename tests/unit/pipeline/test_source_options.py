"""The options that readers share: shown by name, documented once, checked once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lowwater as lw
from lowwater.pipeline.source_options import FileOptions, SourceOptions

MEMORY: list[Callable[..., Any]] = [
    lw.from_iterable,
    lw.from_arrow,
    lw.from_pandas,
    lw.from_source,
    lw.read_log,
]
FILES: list[Callable[..., Any]] = [lw.read_parquet, lw.read_csv, lw.read_jsonl]


def readers() -> list[tuple[Callable[..., Any], type]]:
    return [(each, SourceOptions) for each in MEMORY] + [(each, FileOptions) for each in FILES]


@pytest.mark.parametrize(("reader", "options"), readers())
def test_signature_and_docstring_name_every_option(
    reader: Callable[..., Any], options: type
) -> None:
    parameters = inspect.signature(reader).parameters
    assert not any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    assert list(options.__annotations__) == list(parameters)[-len(options.__annotations__) :]
    text = inspect.getdoc(reader) or ""
    _, _, arguments = text.partition("\nArgs:\n")
    described = [
        line.strip().partition(":")[0]
        for line in arguments.partition("\n\n")[0].splitlines()
        if line.startswith("    ") and line[4] != " "
    ]
    assert described == list(parameters)


def test_left_out_options_have_the_defaults_that_the_signature_shows(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"t": 1}\n')
    parameters = inspect.signature(lw.read_jsonl).parameters
    shown: Any = {name: parameters[name].default for name in FileOptions.__annotations__}
    assert shown == {**dict.fromkeys(shown), "ends": False, "follow": False, "poll_every": "1s"}
    (given,), (left_out,) = (
        stream._flows
        for stream in (lw.read_jsonl(path, time="t", **shown), lw.read_jsonl(path, time="t"))
    )
    names = ("time", "times", "watermark", "clock", "max_ahead_us", "idle_after_us", "ends")
    assert [getattr(given.origin, name) for name in names] == [
        getattr(left_out.origin, name) for name in names
    ]


@pytest.mark.parametrize("option", ["idel_after", "follow"])
def test_an_unknown_option_is_refused(option: str) -> None:
    wrong: Any = {option: None}
    with pytest.raises(lw.InvalidArgument, match=f"there is no option '{option}'"):
        lw.from_iterable([{"t": 1}], time="t", **wrong)


def test_an_option_of_files_alone_is_known_to_readers_of_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("t\n1\n")
    assert lw.read_csv(tmp_path / "a.csv", time="t", follow=False, poll_every="5s").columns == (
        "t",
    )
    wrong: Any = {"max_idel": "5s"}
    with pytest.raises(lw.InvalidArgument, match="max_idle"):
        lw.read_csv(tmp_path / "a.csv", time="t", **wrong)
