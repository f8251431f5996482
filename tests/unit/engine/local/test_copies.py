"""State directories that were copied, or put back: no output is ever continued by the wrong one."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from lowwater.engine.local.delivery import Delivery, Place, Sink, Writer
from lowwater.engine.local.run_record import read_run
from lowwater.errors import DataError, StateError
from lowwater.io.sinks import JsonLinesFile, JsonLinesFolder, ParquetFolder, SqliteTable
from lowwater.state.rocks import RocksStore
from tests.unit.engine.local.durable_runs import Stopped, pipeline, stopping, write_files

KINDS = ("folder", "parquet", "file", "table")


def sink_of(kind: str, folder: Path) -> Sink:
    folder.mkdir(exist_ok=True, parents=True)
    if kind == "table":
        return SqliteTable(str(folder / "t.sqlite"), "counts")
    if kind == "file":
        return JsonLinesFile(str(folder / "out.jsonl"))
    return (JsonLinesFolder if kind == "folder" else ParquetFolder)(str(folder))


def one_of_each(folder: Path) -> list[Sink]:
    return [sink_of(kind, folder / kind) for kind in KINDS]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """Return what an undisturbed run writes, by the kind of the sink."""
    folder = tmp_path_factory.mktemp("whole")
    write_files(folder / "in")
    run(folder, *one_of_each(folder))
    return {kind: contents(kind, folder / kind) for kind in KINDS}


def run(folder: Path, *sinks: Sink, state: str = "state", every: Any = 10) -> Any:
    made = pipeline(folder / "in", accumulation="discarding").write_to(*sinks)
    return made.run(state=folder / state, bundle_size=10, commit_every=every, progress=False)


def seen_by_readers(folder: Path) -> dict[str, Any]:
    """Return what is in a folder, but for hidden files and what databases keep beside theirs."""
    return {
        path.name: path.read_bytes()
        for path in sorted(folder.iterdir())
        if path.is_file() and not path.name.startswith(".")
    }


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


def stop(folder: Path, *sinks: Sink, commits: int, **options: Any) -> None:
    with stopping("before forgetting", commits), pytest.raises(Stopped):
        run(folder, *sinks, **options)


def test_an_older_state_is_put_back(tmp_path: Path) -> None:
    """Copied while it ran, and put back after it had gone on: with other cuts, rows would mix."""
    write_files(tmp_path / "in")
    out = tmp_path / "out"
    copy = tmp_path / "copy"
    with (
        stopping("before the write", 8, lambda: shutil.copytree(tmp_path / "state", copy)),
        stopping("before forgetting", 14),
        pytest.raises(Stopped),
    ):
        run(tmp_path, *one_of_each(out))
    shutil.rmtree(tmp_path / "state")
    copy.rename(tmp_path / "state")
    for kind in KINDS:
        before = seen_by_readers(out / kind)
        with pytest.raises(StateError, match=r"holds epoch 14 of this state.* is epoch 7") as told:
            run(tmp_path, sink_of(kind, out / kind), every=17)
        assert "exactly what follows epoch 7" in (told.value.hint or "")
        assert seen_by_readers(out / kind) == before


def test_new_places_get_exactly_what_follows_the_older_state(tmp_path: Path, whole: Any) -> None:
    """The way out that the message gives: with what the former output had up to then, it is all."""
    write_files(tmp_path / "in")
    out, rest = tmp_path / "out", tmp_path / "rest"
    stop(tmp_path, sink_of("folder", out), commits=8)
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    run(tmp_path, sink_of("folder", out))
    with pytest.raises(StateError, match="was last written by opening"):
        run(tmp_path, sink_of("folder", out), state="copy")
    run(tmp_path, sink_of("folder", rest), state="copy", every=17)
    upto = [n for n in seen_by_readers(out) if int(n.split("-")[1]) < 8]
    found = [line for name in upto for line in lines_of(out / name)]
    found += [line for name in seen_by_readers(rest) for line in lines_of(rest / name)]
    assert sorted(found) == whole["folder"]


@pytest.mark.parametrize("is_over", [False, True])
def test_the_second_of_two_copies_is_refused(is_over: bool, tmp_path: Path, whole: Any) -> None:
    """Whichever runs first has the output, and comes to what one undisturbed run writes."""
    write_files(tmp_path / "in")
    out = tmp_path / "out"
    stop(tmp_path, *one_of_each(out), commits=8)
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    if is_over:
        run(tmp_path, *one_of_each(out), state="copy")
    else:
        stop(tmp_path, *one_of_each(out), commits=3, state="copy")
    for kind in KINDS:
        before = seen_by_readers(out / kind)
        with pytest.raises(StateError, match=r"was last written by opening .* knows nothing of"):
            run(tmp_path, sink_of(kind, out / kind), every=17)
        assert seen_by_readers(out / kind) == before
    run(tmp_path, *one_of_each(out), state="copy")
    assert {kind: contents(kind, out / kind) for kind in KINDS} == whole


def contents(kind: str, folder: Path) -> Any:
    """Return the rows of an output; where epochs end is another matter."""
    if kind in {"folder", "file"}:
        return sorted(line for name in seen_by_readers(folder) for line in lines_of(folder / name))
    if kind == "parquet":
        rows = [row for one in folder.glob("*.parquet") for row in pq.read_table(one).to_pylist()]
        return sorted(map(str, rows))
    connection = sqlite3.connect(folder / "t.sqlite")
    rows = connection.execute("SELECT * FROM counts ORDER BY key, window_start").fetchall()
    connection.close()
    return rows


@pytest.mark.parametrize("point", ["after the announcement", "before publishing"])
def test_openings_that_were_cut_short(point: str, tmp_path: Path, whole: Any) -> None:
    """Stopped before all sinks know the new opening, again and again, the state is still theirs."""
    write_files(tmp_path / "in")
    out = tmp_path / "out"
    stop(tmp_path, *one_of_each(out), commits=8)
    for _ in range(3):
        with stopping(point, 1), pytest.raises(Stopped):
            run(tmp_path, *one_of_each(out))
    run(tmp_path, *one_of_each(out))
    assert {kind: contents(kind, out / kind) for kind in KINDS} == whole


def test_a_sink_that_was_left_out_of_a_run(tmp_path: Path) -> None:
    """It lacks what was delivered meanwhile, so it is not continued."""
    write_files(tmp_path / "in")
    first, second = tmp_path / "first", tmp_path / "second"
    stop(tmp_path, sink_of("folder", first), sink_of("folder", second), commits=5)
    stop(tmp_path, sink_of("folder", first), commits=5)
    with pytest.raises(StateError, match="left out of a run"):
        run(tmp_path, sink_of("folder", first), sink_of("folder", second))
    run(tmp_path, sink_of("folder", first))


def test_a_start_that_fails_leaves_the_pipeline_as_it_was(tmp_path: Path, whole: Any) -> None:
    """A new version whose sink cannot be opened may be rolled back."""
    write_files(tmp_path / "in")
    write_files(tmp_path / "more", 1)
    out = tmp_path / "out"
    stop(tmp_path, sink_of("folder", out), commits=5)

    class Down(Refusing):
        def open(self, writer: Writer) -> None:
            raise DataError("the database is down", hint="Start it")

    both = [str(tmp_path / "in"), str(tmp_path / "more")]
    newer = pipeline(both, accumulation="discarding", lateness="1h")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="is down"):
        newer.write_to(sink_of("folder", out), Down()).run(
            state=tmp_path / "state", bundle_size=10, progress=False
        )
    run(tmp_path, sink_of("folder", out))
    assert contents("folder", out) == whole["folder"]


class Refusing:
    """A sink with nothing but its methods."""

    def places(self) -> list[Place]:
        return []

    def open(self, writer: Writer) -> None: ...

    def deliver(self, delivery: Delivery) -> None: ...

    def close(self, *, complete: bool) -> None: ...


def test_what_is_stored_of_openings_does_not_grow(tmp_path: Path) -> None:
    write_files(tmp_path / "in")
    for _ in range(3):
        stop(tmp_path, sink_of("folder", tmp_path / "out"), commits=3)
    with RocksStore(tmp_path / "state") as store:
        record = read_run(store, "state")
    assert record is not None
    (opening,) = record["openings"]
    owner = json.loads((tmp_path / "out" / ".lowwater.json").read_text())
    assert owner["opening"] == opening
