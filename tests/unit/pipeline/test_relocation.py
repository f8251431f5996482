"""Projects that were moved: the state is told where inputs and outputs lie now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lowwater as lw
from lowwater.cli.main import main
from lowwater.errors import DataError, InvalidArgument, StateError
from lowwater.io.sinks import SqliteTable
from lowwater.pipeline.relocation import relocate_state
from lowwater.pipeline.state_tools import state_info
from tests.unit.engine.local.durable_runs import (
    Stopped,
    output,
    pipeline,
    run,
    stopped,
    stopping,
    write_file,
    write_files,
)

pytestmark = pytest.mark.slow(reason="moves whole state directories")


@pytest.fixture
def moved(tmp_path: Path) -> tuple[Path, Path]:
    """Return where a project was when its run stopped half way, and where it is now."""
    old, new = tmp_path / "old", tmp_path / "new"
    stopped(pipeline(write_files(old / "in")), old)
    old.rename(new)
    return old, new


def test_a_project_that_was_moved(
    moved: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = moved
    with pytest.raises(StateError, match=r"no longer reads.*state relocate .*state OLD NEW"):
        run(pipeline(new / "in"), new)
    assert main(["state", "relocate", str(new / "state"), f"{old}/", str(new)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown == [f"{old}/{name} is now {new}/{name}" for name in ("in", "out")]
    run(pipeline(new / "in"), new)
    whole = tmp_path / "whole"
    run(pipeline(write_files(whole / "in")), whole)
    assert output(new) == output(whole)
    again = run(pipeline(new / "in"), new)
    assert again.events == 300


def test_outputs_are_known_at_their_new_place(moved: tuple[Path, Path]) -> None:
    """What is lost of them there is still told."""
    old, new = moved
    relocate_state(new / "state", old, new)
    (new / "out").rename(new / "elsewhere")
    with pytest.raises(StateError, match=r"has delivered to .*new/out., which no longer holds it"):
        run(pipeline(new / "in"), new)


def test_the_files_are_checked_at_their_new_place(moved: tuple[Path, Path]) -> None:
    old, new = moved
    relocate_state(new / "state", old / "in", new / "in")
    write_file(new / "in/0.parquet", 7)
    size = (new / "in/0.parquet").stat().st_size
    with pytest.raises(DataError, match=rf"(still has {size} bytes|now has {size}).*0\.parquet"):
        run(pipeline(new / "in"), new)


def test_estimators_that_go_by_files(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"

    def built(folder: Path) -> lw.Pipeline:
        minima: dict[Any, Any] = {
            str(folder / f"in/{n}.parquet"): (n * 100 - 60) * 1_000_000 for n in range(3)
        }
        return pipeline(folder / "in", watermark=lw.FinishedFiles(minima))

    write_files(old / "in")
    stopped(built(old), old)
    old.rename(new)
    relocate_state(new / "state", old, new)
    run(built(new), new)
    whole = tmp_path / "whole"
    write_files(whole / "in")
    run(built(whole), whole)
    assert output(new) == output(whole)


def test_what_makes_no_sense(moved: tuple[Path, Path], tmp_path: Path) -> None:
    old, new = moved
    state = new / "state"
    before = state_info(state).description
    with pytest.raises(InvalidArgument, match=r"nothing at .*absent"):
        relocate_state(state, old, tmp_path / "absent")
    with pytest.raises(InvalidArgument, match=r"the state has no path .*ol'.*It has .*old/in"):
        relocate_state(state, tmp_path / "ol", new)
    assert state_info(state).description == before
    with pytest.raises(StateError, match="no state in this directory"):
        relocate_state(new / "in", old, new)


def test_two_paths_that_would_become_one(tmp_path: Path) -> None:
    for number, name in enumerate("ab"):
        write_file(tmp_path / name / f"{number}.parquet", number)
    paths: Any = [tmp_path / "a", tmp_path / "b"]
    stopped(pipeline(paths), tmp_path)
    with pytest.raises(InvalidArgument, match="has other paths below"):
        relocate_state(tmp_path / "state", tmp_path / "a", tmp_path / "b")


def test_a_database_that_was_renamed(tmp_path: Path) -> None:
    write_files(tmp_path / "in")
    old, new = tmp_path / "x.sqlite", tmp_path / "y.sqlite"
    options: Any = {"state": tmp_path / "state", "bundle_size": 10, "progress": False}
    with stopping("before forgetting", 5), pytest.raises(Stopped):
        pipeline(tmp_path / "in").write_to(SqliteTable(str(old), "t")).run(
            commit_every="bundle", **options
        )
    old.rename(new)
    assert relocate_state(tmp_path / "state", old, new) == {
        f"{old} t t_late t_errors": f"{new} t t_late t_errors"
    }
    pipeline(tmp_path / "in").write_to(SqliteTable(str(new), "t")).run(**options)
