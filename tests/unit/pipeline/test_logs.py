"""What the library logs: how a run begins, resumes, commits and ends; never single records."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lowwater as lw
from lowwater.engine.local import durable
from lowwater.engine.local.health.count_log import _next_power
from lowwater.io.sinks import Callback

Logged = Callable[..., list[str]]


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Logged:
    """Return what returns the lines since it was last called, as ``logger level: text``."""
    caplog.set_level(logging.DEBUG, "lowwater")

    def lines(level: int = logging.INFO) -> list[str]:
        found = [
            f"{one.name.removeprefix('lowwater.')} {one.levelname}: {one.getMessage()}"
            for one in caplog.records
            if one.levelno >= level and one.name.startswith("lowwater.")
        ]
        caplog.clear()
        return found

    return lines


def pipeline(folder: Path, *, late: int = 0, bad: int = 0) -> lw.Pipeline:
    """Return a pipeline over records of a minute, some of them late, or without a time."""
    (folder / "in").mkdir(exist_ok=True)
    rows: list[dict[str, Any]] = [
        {"at": f"2024-05-01T12:00:{at:02}Z", "k": "a", "v": 1} for at in range(60)
    ]
    rows += [{"at": "2024-05-01T11:00:00Z", "k": "a", "v": 1}] * late
    rows += [{"at": None, "k": "a", "v": 1}] * bad
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "in" / "a.jsonl").write_text(text, encoding="utf-8")
    stream = lw.read_jsonl(folder / "in", time="at", watermark=lw.Ascending())
    made = stream.key_by("k").window(lw.FixedWindows("20s")).aggregate(n=lw.sum("v"))
    assert isinstance(made, lw.Pipeline)
    return made


def test_a_run_says_what_it_reads_and_how_it_ended(tmp_path: Path, logged: Logged) -> None:
    made = pipeline(tmp_path)
    list(made.run(bundle_size=10))
    begun, ended = logged()
    assert begun.startswith("pipeline INFO: the run of source 1 (JsonLinesSource(paths=")
    assert begun.endswith("begins, with the options {'bundle_size': 10}")
    assert ended == (
        "pipeline INFO: the run ended after 60 records: 3 panes, 0 late, 0 dead letters"
    )
    run = made.run(bundle_size=10)
    next(run)
    run.stop()
    list(run)
    assert "the run was stopped after" in logged()[-1]
    run = made.run(bundle_size=10)
    next(run)
    del run
    assert logged()[-1].endswith(
        "was closed before its end after 30 records: 1 panes, 0 late, 0 dead letters"
    )


def test_a_run_that_is_refused_leaves_its_output_as_it_is(tmp_path: Path, logged: Logged) -> None:
    made = pipeline(tmp_path).write_jsonl(tmp_path / "out")
    made.run(state=tmp_path / "state")
    with pytest.raises(lw.StateError):
        made.run(state=tmp_path / "state", bundle_size=7)
    assert logged()[-1].startswith("pipeline ERROR: the run was refused: StateError: the state")
    with pytest.raises(lw.StateError):
        made.run()
    assert logged()[-1].startswith("pipeline ERROR: the run was refused: StateError: ")


def test_a_run_that_fails_says_so(tmp_path: Path, logged: Logged) -> None:
    with pytest.raises(lw.DataError):
        pipeline(tmp_path, bad=1).collect(on_error="raise")
    assert logged()[-1].startswith("pipeline INFO: the run failed (DataError) after")


def test_a_state_directory_is_new_or_resumes(tmp_path: Path, logged: Logged) -> None:
    class Killed(Exception):
        pass

    def kill(delivery: Any) -> None:
        raise Killed

    made = pipeline(tmp_path)
    options: Any = {"state": tmp_path / "state", "commit_every": "bundle", "bundle_size": 30}
    with pytest.raises(Killed):
        made.write_to(Callback(kill)).run(**options)
    lines = logged()
    assert lines[-1].startswith("pipeline ERROR: the output is incomplete: Killed")
    assert f"state INFO: {tmp_path / 'state'} was opened, as opening 1" in lines
    assert any("is a new state" in line for line in lines)
    made.write_to(Callback(lambda delivery: None)).run(**options)
    lines = logged(logging.DEBUG)
    (resumed,) = [line for line in lines if "resumes after epoch 1" in line]
    assert resumed.startswith(f"engine INFO: {tmp_path / 'state'} resumes after epoch 1: 1 rows")
    assert any("1 deliveries of epoch 1 come again" in line for line in lines)
    assert any(line.startswith("engine DEBUG: epoch 2 was committed in") for line in lines)


def test_a_slow_commit_is_a_warning(
    tmp_path: Path, logged: Logged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "_SLOW_COMMIT_S", 0.0)
    pipeline(tmp_path).write_jsonl(tmp_path / "out").run(state=tmp_path / "state")
    assert all("was committed slowly" in line for line in logged(logging.WARNING))


def test_late_elements_and_dead_letters_are_counted_in_powers_of_ten(
    tmp_path: Path, logged: Logged
) -> None:
    pipeline(tmp_path, late=12, bad=3).collect(bundle_size=1, on_error="dead_letter")
    counts = [line for line in logged() if line.startswith("engine")]
    assert counts == [
        "engine WARNING: 3 records became dead letters: {'null_time': 3}",
        "engine INFO: 1 element was dropped as late: {'expired': 1}",
        "engine INFO: 10 elements were dropped as late: {'expired': 10}",
    ]
    pipeline(tmp_path, bad=1).collect(on_error="dead_letter")
    assert "engine WARNING: 1 record became a dead letter: {'null_time': 1}" in logged()
    assert [_next_power(count) for count in (0, 1, 9, 10, 99, 100)] == [1, 10, 10, 100, 100, 1_000]


def test_each_file_is_a_line_for_debugging(tmp_path: Path, logged: Logged) -> None:
    pipeline(tmp_path).collect()
    path = tmp_path / "in" / "a.jsonl"
    assert f"io DEBUG: {path} is read" in logged(logging.DEBUG)


def test_nothing_is_formatted_that_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(record: logging.LogRecord) -> str:
        raise AssertionError("it was formatted")

    monkeypatch.setattr(logging.LogRecord, "getMessage", fail)
    made = pipeline(tmp_path, late=1, bad=1)
    logging.getLogger("lowwater").setLevel(logging.CRITICAL)
    try:
        made.write_jsonl(tmp_path / "out").run(state=tmp_path / "state")
    finally:
        logging.getLogger("lowwater").setLevel(logging.NOTSET)


def test_the_library_itself_shows_nothing() -> None:
    handlers = logging.getLogger("lowwater").handlers
    assert any(isinstance(handler, logging.NullHandler) for handler in handlers)
