"""State directories of another user: looking takes the right to read, and what fails says so."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import lowwater as lw
from lowwater.cli.main import main
from lowwater.errors import LowwaterError
from lowwater.io.sinks import Compaction
from lowwater.pipeline.relocation import relocate_state
from lowwater.pipeline.state_parts import merge_states, split_state
from lowwater.pipeline.state_tools import (
    compact_outputs,
    export_state,
    reset_state,
    state_info,
    verify_state,
)

NOBODY = 65_534
LOOKING = ("info", "verify", "export", "compact")
CHANGING = ("relocate", "split", "merge", "reset")


def tools(state: Path) -> dict[str, Callable[[], Any]]:
    folder = state.parent
    return {
        "info": lambda: state_info(state).to_text(),
        "verify": lambda: verify_state(state),
        "export": lambda: export_state(state).num_rows,
        "compact": lambda: compact_outputs(state, Compaction()),
        "relocate": lambda: relocate_state(state, folder / "in.jsonl", folder / "moved.jsonl"),
        "split": lambda: split_state(state, {folder / "new": ["counts"]}),
        "merge": lambda: merge_states([state, folder / "state"], folder / "new"),
        "reset": lambda: reset_state(state, yes=True),
    }


def as_nobody(calls: dict[str, Callable[[], Any]]) -> dict[str, str]:
    """Call functions in a process that may read and write what anybody may; return what they say.

    It is forked, because the interpreter may lie where only its user reads it.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said: dict[str, str] = {}
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            for name, call in calls.items():
                try:
                    said[name] = f"returned {call()}"
                except LowwaterError as error:
                    said[name] = f"{type(error).__name__}: {error}"
                except BaseException:
                    said[name] = traceback.format_exc()
            os.write(writing, json.dumps(said).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        content = file.read()
    os.waitpid(child, 0)
    found: dict[str, str] = json.loads(content)
    return found


def allow(state: Path, folders: int, files: int) -> None:
    for path in [*state.rglob("*")]:
        if path.is_file():
            path.chmod(files)
    for path in sorted(state.rglob("*"), reverse=True):
        if path.is_dir():
            path.chmod(folders)
    state.chmod(folders)


def everything(place: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in place.rglob("*") if path.is_file()}


@pytest.fixture
def state() -> Iterator[Path]:
    """Yield a state directory, in a folder that anybody may enter, unlike those of pytest."""
    with TemporaryDirectory(prefix="lowwater-rights-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        lines = "".join(f'{{"at": {at}, "k": 1}}\n' for at in range(90))
        for file in ("in.jsonl", "moved.jsonl"):
            (folder / file).write_text(lines)
        read = lw.read_jsonl(folder / "in.jsonl", time="at", unit="s", watermark=lw.Ascending())
        windows = read.named("in").key_by("k").window(lw.FixedWindows("1m"))
        counts = windows.aggregate(n=lw.count()).named("counts").write_jsonl(folder / "out")
        for state in ("state", "theirs"):
            counts.run(state=folder / state, progress=False, bundle_size=20)
            (folder / "out").rename(folder / f"out of {state}")
        for tool in LOOKING:
            tools(folder / "theirs")[tool]()  # what the tools import, nobody may not
        yield folder / "theirs"
        # From above, because its owner cannot enter it either, unless it is root.
        (folder / "theirs").chmod(0o755)
        for path in [*(folder / "theirs").glob("rocksdb-*")]:
            path.chmod(0o755)
        allow(folder / "theirs", 0o755, 0o644)


def test_looking_takes_the_right_to_read_alone(state: Path) -> None:
    """Nothing is made, changed or locked, and what is returned is what the owner gets."""
    wanted = {name: f"returned {tools(state)[name]()}" for name in LOOKING}
    allow(state, 0o555, 0o444)
    before = everything(state)
    assert as_nobody({name: tools(state)[name] for name in LOOKING}) == wanted
    assert everything(state) == before


def test_changing_takes_the_right_to_write(state: Path) -> None:
    allow(state, 0o555, 0o444)
    before = everything(state)
    for name, said in as_nobody({name: tools(state)[name] for name in CHANGING}).items():
        assert said.startswith("StateError: the state cannot be "), (name, said)
        assert "Permission denied" in said
        assert str(state) in said
    assert everything(state) == before


def locked(state: Path) -> None:
    state.chmod(0)


def without_x(state: Path) -> None:
    allow(state, 0o444, 0o444)


def without_files(state: Path) -> None:
    allow(state, 0o555, 0)


def without_database(state: Path) -> None:
    next(state.glob("rocksdb-*")).chmod(0)


def one_file(pattern: str) -> Callable[[Path], None]:
    def take(state: Path) -> None:
        allow(state, 0o555, 0o444)
        next(state.rglob(pattern)).chmod(0)

    take.__name__ = pattern
    return take


@pytest.mark.parametrize(
    "take",
    [
        locked, without_x, without_files, without_database, one_file("OWNER"),
        one_file("SEQUENCER"), one_file("CURRENT"), one_file("MANIFEST-*"), one_file("*.log"),
    ],
    ids=lambda take: take.__name__,
)  # fmt: skip
def test_what_may_not_be_read_is_named_with_who_may(
    take: Callable[[Path], None], state: Path
) -> None:
    take(state)
    for name, said in as_nobody({name: tools(state)[name] for name in LOOKING}).items():
        assert said.startswith("StateError: the state cannot be read"), (name, said)
        assert str(state) in said
        assert "whose it is, or give this one the right to read it" in said


def test_the_command_line_says_it_in_one_line(
    state: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    state.chmod(0)
    commands = {
        action: lambda action=action: main(["state", action, str(state)]) for action in LOOKING
    } | {"reset": lambda: main(["state", "reset", str(state), "--yes"])}
    assert set(as_nobody(commands).values()) == {"returned 1"}
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == len(commands)
    assert all(line.startswith("lowwater: the state cannot be ") for line in lines)
