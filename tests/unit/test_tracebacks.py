"""Tracebacks show the lines of the user, and none of the library between them."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lowwater as lw
from lowwater.display.tracebacks import WHOLE
from lowwater.errors import InternalError, explained

EVENTS = [{"t": f"2024-01-01T00:00:0{at}Z", "k": "a", "v": at} for at in range(9)]


def _divide(record: Any) -> Any:
    return {**record, "v": 1 / (record["v"] - 3)}


def _badly(record: Any) -> Any:
    return {**record, "w": lw.FixedWindows("badly")}


def _counted(stream: Any) -> Any:
    return stream.key_by("k").window(lw.FixedWindows("1m")).aggregate(n=lw.count())


def _stream() -> Any:
    return lw.from_iterable(EVENTS, time="t")


def _progress(_: object) -> None:
    raise ZeroDivisionError("in progress")


class _Alarms:
    def on_record(self, record: Any, ctx: Any) -> None:
        _divide(record)


def _iterate(folder: Path) -> None:
    for _ in _counted(_stream().map(_divide)).run():
        pass


CALLS: dict[str, tuple[Callable[[Path], Any], tuple[str, ...]]] = {
    "collect": (lambda _: _counted(_stream().map(_divide)).collect(), ("_divide",)),
    "frame": (lambda _: _counted(_stream().map(_divide)).to_pandas(), ("_divide",)),
    "iteration": (_iterate, ("_divide",)),
    "a process": (lambda _: _stream().key_by("k").process(_Alarms()).collect(), ("_divide",)),
    "our error in a function": (lambda _: _stream().map(_badly).collect(), ("_badly",)),
    "an output": (
        lambda folder: _counted(_stream().map(_divide)).write_jsonl(folder / "o.jsonl").run(),
        ("_divide",),
    ),
    "several outputs": (
        lambda folder: lw.run(_counted(_stream().map(_divide)).write_jsonl(folder / "o.jsonl")),
        ("_divide",),
    ),
    "in the background": (
        lambda folder: (
            _counted(_stream().map(_divide)).write_jsonl(folder / "o.jsonl").start().wait()
        ),
        ("_divide",),
    ),
    "a callback": (lambda _: _counted(_stream()).collect(progress=_progress), ("_progress",)),
    "a wrong column": (lambda _: _counted(_stream().select("t")).collect(), ()),
    "a wrong window": (lambda _: lw.FixedWindows("badly"), ()),
    "no file": (lambda folder: lw.read_csv(folder / "none.csv", time="t"), ()),
    "a damaged file": (lambda folder: lw.read_parquet(_damaged(folder), time="t"), ()),
}


def _damaged(folder: Path) -> Path:
    (folder / "x.parquet").write_bytes(b"PAR1 not at all")
    return folder / "x.parquet"


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the frames that Python shows of an error and of what it came from."""
    shown = [*traceback.extract_tb(error.__traceback__)]
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return shown if cause is None else [*_frames(cause), *shown]


@pytest.mark.parametrize("name", CALLS)
def test_only_lines_of_the_user_are_shown(name: str, tmp_path: Path) -> None:
    call, functions = CALLS[name]
    with pytest.raises(Exception) as caught:  # noqa: PT011  # of any class
        call(tmp_path)
    frames = _frames(caught.value)
    assert {frame.filename for frame in frames} == {__file__}
    assert {frame.name for frame in frames} >= set(functions)


def test_all_are_kept_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WHOLE, "full")
    with pytest.raises(lw.DataError) as caught:
        _counted(_stream().map(_divide)).collect()
    assert any("runner.py" in frame.filename for frame in _frames(caught.value))


@pytest.mark.parametrize("error", [InternalError("a bug"), KeyError("in the library")])
def test_a_fault_of_the_library_keeps_its_frames(error: Exception) -> None:
    # As code of the library would raise it.
    inside: dict[str, Any] = {"__name__": "lowwater.inside", "error": error}
    exec(compile("def call():\n    raise error\n", "inside.py", "exec"), inside)
    with pytest.raises(type(error)) as caught:
        explained()(inside["call"])()
    assert "inside.py" in {frame.filename for frame in _frames(caught.value)}


def test_a_fault_in_another_package_keeps_all_frames() -> None:
    """It may be the library that has called it wrongly."""
    code = compile("def call():\n    raise KeyError('in there')\n", "/site-packages/x.py", "exec")
    other: dict[str, Any] = {"__name__": "x"}
    exec(code, other)
    inside: dict[str, Any] = {"__name__": "lowwater.inside", "call": other["call"]}
    exec(compile("def enter():\n    call()\n", "inside.py", "exec"), inside)
    with pytest.raises(KeyError) as caught:
        explained()(inside["enter"])()
    assert "inside.py" in {frame.filename for frame in _frames(caught.value)}
