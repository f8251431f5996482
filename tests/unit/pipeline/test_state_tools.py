"""``python -m lowwater state``: what is inside, whether it is sound, taking it out, removing it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import lowwater as lw
from lowwater.cli.main import main
from lowwater.engine.local.run_record import OUTBOX, RUN
from lowwater.engine.window import persistence as windows_stored
from lowwater.errors import InvalidArgument, StateError
from lowwater.pipeline.state_tools import export_state, reset_state, state_info, verify_state
from lowwater.state.codec import decode, encode
from lowwater.state.formats import FORMATS
from lowwater.state.key_layout import END, prefix_range, split_key
from lowwater.state.rocks import RocksStore
from lowwater.state.store import Batch
from tests.unit.engine.local.durable_runs import (
    KEYS,
    Stopped,
    output,
    pipeline,
    run,
    stopped,
    stopping,
    write_files,
)


@pytest.fixture(scope="module")
def stopped_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a folder with a run that was stopped half way, and its copy."""
    folder, copy = (tmp_path_factory.mktemp(name) for name in ("stopped", "copy"))
    stopped(pipeline(write_files(folder / "in")), folder)
    shutil.copytree(folder, copy, dirs_exist_ok=True)
    return folder, copy


@pytest.fixture
def folder(stopped_run: tuple[Path, Path]) -> Path:
    """Return the folder as it was when the run was stopped: a state knows files by their paths."""
    folder, copy = stopped_run
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)
    return folder


def first_key(store: RocksStore, table: int) -> bytes:
    """Return the first key of a table of the only stage."""
    keys = (key for key, _ in store.scan(b"\x01", END))
    return next(key for key in keys if split_key(key)[2] == table)


def change(state: Path, table: bytes | int, make: Callable[[bytes], bytes]) -> None:
    """Rewrite the first row under a prefix or of a table, as if by a store that is sound."""
    with RocksStore(state) as store:
        prefix = first_key(store, table) if isinstance(table, int) else table
        key, value = next(store.scan(*prefix_range(prefix)))
        batch = Batch()
        batch.put([key], [make(value)])
        store.commit(batch)


def test_info(folder: Path) -> None:
    info = state_info(folder / "state")
    assert info.epoch == 12
    assert info.sequencer == 1
    assert not info.in_use
    assert not info.complete
    position = info.positions["source 1"]
    assert position is not None
    assert len(position["done"]) == 1
    assert str(position["file"]).endswith("1.parquet")
    assert info.open_windows == len(export_state(folder / "state")) > 0
    assert info.keys == KEYS
    assert info.watermark == (119 - 1 - 5) * 1_000_000
    assert [delivery.epoch for delivery in info.outbox] in ([12], [])
    assert {(size.stage, size.table) for size in info.sizes} >= {
        ("pipeline", "the run"),
        ("stage 1", "facts"),
        ("stage 1", "windows"),
        ("stage 1", "keys"),
    }


def test_info_as_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["state", "info", str(folder / "state")]) == 0
    shown = capsys.readouterr().out
    for text in ("epoch 12", "1.parquet", "FixedWindows('20s')", "in use", "bundle_size", "keys"):
        assert text in shown


def test_info_of_a_complete_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(pipeline(folder / "in"), folder)
    info = state_info(folder / "state")
    assert info.complete
    assert info.open_windows == 0
    assert info.outbox == ()
    assert "the run is complete" in info.to_text()
    assert verify_state(folder / "state") >= 1
    assert export_state(folder / "state").num_rows == 0


def test_looking_changes_nothing(folder: Path) -> None:
    before = {path: path.read_bytes() for path in sorted((folder / "state").rglob("*.sst"))}
    sequencer = (folder / "state/SEQUENCER").read_bytes()
    state_info(folder / "state")
    verify_state(folder / "state")
    export_state(folder / "state")
    assert {path: path.read_bytes() for path in sorted((folder / "state").rglob("*.sst"))} == before
    assert (folder / "state/SEQUENCER").read_bytes() == sequencer


def test_beside_a_live_process(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with RocksStore(folder / "state"):
        assert state_info(folder / "state").in_use
        for action in ("verify", "export"):
            assert main(["state", action, str(folder / "state")]) == 1
            assert "in use by another process" in capsys.readouterr().err
        assert main(["state", "reset", "--yes", str(folder / "state")]) == 1
        assert "open" in capsys.readouterr().err
    assert not state_info(folder / "state").in_use


def test_verify(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["state", "verify", str(folder / "state")]) == 0
    assert "no damage found" in capsys.readouterr().out


@pytest.mark.parametrize(
    "table",
    [RUN, OUTBOX, windows_stored.WINDOWS, windows_stored.KEYS, windows_stored.FACTS],
    ids=["run", "outbox", "windows", "keys", "facts"],
)
def test_verify_reports_a_row_that_is_damaged(
    folder: Path, table: bytes | int, capsys: pytest.CaptureFixture[str]
) -> None:
    change(folder / "state", table, lambda value: value[:-3] + b"\xc1")
    assert main(["state", "verify", str(folder / "state")]) == 1
    err = capsys.readouterr().err
    assert "Restore" in err or "restore" in err
    with pytest.raises(StateError):
        run(pipeline(folder / "in"), folder)


def test_verify_reports_keys_that_are_missing(folder: Path) -> None:
    with RocksStore(folder / "state") as store:
        batch = Batch()
        batch.delete([first_key(store, windows_stored.KEYS)])
        store.commit(batch)
    with pytest.raises(StateError, match=r"stored key cannot be read: \d of \d are there"):
        verify_state(folder / "state")
    with pytest.raises(StateError, match=r"stored key cannot be read: \d of \d are there"):
        run(pipeline(folder / "in"), folder)


def test_state_of_a_former_layout_is_refused(folder: Path) -> None:
    state = folder / "state"
    change(state, RUN, lambda value: encode({**decode(value), "layout": 3}))
    refused = (
        r"written in layout 3 of the run record; this lowwater reads layout 8 .*"
        r"python -m lowwater state reset --yes .*state"
    )
    for look in (state_info, verify_state, export_state):
        with pytest.raises(StateError, match=refused):
            look(state)
    with pytest.raises(StateError, match=refused):
        run(pipeline(folder / "in"), folder)
    assert reset_state(state, yes=True) == []


def test_state_of_a_stage_of_a_former_layout_is_refused(folder: Path) -> None:
    facts = windows_stored.FACTS
    change(folder / "state", facts, lambda value: encode({**decode(value), "layout": 2}))
    reads = f"layout 2 of window state; this lowwater reads layout {FORMATS['window state']}"
    with pytest.raises(StateError, match=reads):
        run(pipeline(folder / "in"), folder)


def test_verify_reports_a_flipped_byte(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = max((folder / "state").rglob("*.sst"), key=lambda path: path.stat().st_size)
    content = bytearray(table.read_bytes())
    content[len(content) // 3] ^= 0xFF
    table.write_bytes(content)
    assert main(["state", "verify", str(folder / "state")]) == 1
    assert "damaged" in capsys.readouterr().err


def test_another_layout_is_refused(folder: Path) -> None:
    change(folder / "state", RUN, lambda value: encode({**decode(value), "layout": 99}))
    with pytest.raises(StateError, match="layout 99"):
        verify_state(folder / "state")
    with pytest.raises(StateError, match="layout 99"):
        run(pipeline(folder / "in"), folder)


def test_export_as_lines(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["state", "export", str(folder / "state")]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows
    for row in rows:
        assert row["key"] in {f"k{n}" for n in range(KEYS)}
        assert row["state.n:count"] == len(row["state.values:values"])
        assert row["state.total:sum"] == sum(row["state.values:values"])
        assert row["window_start"] < row["window_end"] < row["expires"]


def test_export_to_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = str(folder / "state")
    lines, table = folder / "open.jsonl", folder / "open.parquet"
    assert main(["state", "export", state, "--output", str(lines)]) == 0
    assert main(["state", "export", state, "--format", "parquet", "--output", str(table)]) == 0
    assert len(lines.read_text().splitlines()) == pq.read_table(table).num_rows > 0
    assert main(["state", "export", state, "--format", "parquet"]) == 2
    assert "--output" in capsys.readouterr().err
    assert main(["state", "export", state, "--output", str(folder / "none/x")]) == 2


def test_sessions_and_retractions_are_verified_and_exported(tmp_path: Path) -> None:
    made = pipeline(
        write_files(tmp_path / "in"), windows=lw.Sessions("15s"), accumulation="retracting"
    )
    stopped(made, tmp_path, 9)
    assert verify_state(tmp_path / "state") > 0
    assert export_state(tmp_path / "state").num_rows > 0
    run(made, tmp_path)


def test_reset_asks_first(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["state", "reset", str(folder / "state")]) == 2
    assert "--yes" in capsys.readouterr().err
    assert state_info(folder / "state").epoch == 12


def test_reset_removes_all_that_is_state(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["state", "reset", "--yes", str(folder / "state")]) == 0
    assert not (folder / "state").exists()
    with pytest.raises(StateError, match="output of another state directory"):
        run(pipeline(folder / "in"), folder)
    for path in (folder / "out").rglob("*"):
        if path.is_file():
            path.unlink()
    run(pipeline(folder / "in"), folder)
    whole = folder / "whole"
    run(pipeline(folder / "in"), whole)
    assert output(folder) == output(whole)


def test_reset_leaves_what_is_not_state(folder: Path) -> None:
    state = folder / "state"
    (database,) = state.glob("rocksdb-*")
    (state / "notes.txt").write_text("mine")
    (database / "also mine").write_text("mine")
    (state / "rocksdb-99").symlink_to(folder / "in")
    left = reset_state(state, yes=True)
    assert left == ["notes.txt", f"{database.name}/also mine", "rocksdb-99"]
    assert (database / "also mine").read_text() == "mine"
    assert (folder / "in/0.parquet").exists()
    assert not (state / "SEQUENCER").exists()


def test_reset_of_damaged_state(folder: Path) -> None:
    (folder / "state/SEQUENCER").write_bytes(b"nonsense")
    with pytest.raises(StateError):
        state_info(folder / "state")
    assert reset_state(folder / "state", yes=True) == []
    assert not (folder / "state").exists()


@pytest.mark.parametrize("what", ["nothing", "a file", "another folder"])
@pytest.mark.parametrize("action", ["info", "verify", "export", "reset"])
def test_what_is_no_state(
    what: str, action: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "place"
    if what == "a file":
        path.write_text("mine")
    if what == "another folder":
        (path / "sub").mkdir(parents=True)
        (path / "sub/notes.txt").write_text("mine")
    arguments = ["state", action, str(path), *(["--yes"] if action == "reset" else [])]
    assert main(arguments) == 1
    assert "lowwater: " in capsys.readouterr().err
    assert path.exists() == (what != "nothing")


def test_a_state_that_was_opened_and_never_committed_to(tmp_path: Path) -> None:
    with RocksStore(tmp_path / "state"):
        pass
    info = state_info(tmp_path / "state")
    assert (info.epoch, info.open_windows, info.positions) == (0, 0, {})
    assert verify_state(tmp_path / "state") == 0
    assert export_state(tmp_path / "state").num_rows == 0


def test_what_reset_takes_is_checked_in_the_call_too(folder: Path) -> None:
    with pytest.raises(InvalidArgument, match="permanently"):
        reset_state(folder / "state", yes=False)


class Totals:
    """Counts per key, and says so when a key was quiet for a while."""

    count = lw.value_cell(0)
    quiet = lw.timer()

    def on_record(self, record: dict[str, object], ctx: lw.ProcessContext) -> None:
        ctx.count.set(ctx.count.get() + 1)
        ctx.quiet.set(ctx.time + 30_000_000)

    def on_timer(self, name: str, ctx: lw.ProcessContext) -> None:
        ctx.emit({"count": ctx.count.get()})
        ctx.count.clear()


def test_a_graph_of_stages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each stage has tables of its own, and they are told by its name."""
    stream = lw.read_parquet(
        str(write_files(tmp_path / "in")), time="at", watermark=lw.BoundedDisorder("5s"),
        clock=lw.ManualClock(0),
    ).named("events")  # fmt: skip
    quiet = stream.key_by("key").process(Totals()).named("quiet")
    windows = (
        (quiet | quiet)
        .key_by(all=lw.lit("all"))
        .window(lw.FixedWindows("1h"))
        .aggregate(count=lw.sum("count"))
        .named("per hour")
    )
    stopped(windows, tmp_path)
    info = state_info(tmp_path / "state")
    assert list(info.positions) == ["events"]
    tables = {(size.stage, size.table) for size in info.sizes}
    assert {("quiet", "cells"), ("quiet", "timers"), ("per hour", "facts")} <= tables
    assert verify_state(tmp_path / "state") > 0
    assert main(["state", "info", str(tmp_path / "state")]) == 0
    shown = capsys.readouterr().out
    for text in ("position of events", "per hour", "quiet", "cells"):
        assert text in shown
    assert "window_start" in export_state(tmp_path / "state").column_names
    run(windows, tmp_path)
    run(windows, tmp_path / "whole")
    assert output(tmp_path) == output(tmp_path / "whole")


def test_streams_by_themselves_have_no_keys(tmp_path: Path) -> None:
    """Nor have the duplicates of a side of a join, which are dropped in a stage of its own."""
    stream = lw.read_parquet(
        write_files(tmp_path / "in"), time="at", watermark=lw.BoundedDisorder("5s"),
        clock=lw.ManualClock(0),
    ).named("events")  # fmt: skip
    once = stream.deduplicate(id="value", within="10s")
    ends: dict[str, Any] = {
        "alone": stream,
        "changed": stream.filter(lw.col("value") > 3).with_columns(twice=lw.col("value") * 2),
        "united": stream | stream.filter(lw.col("value") > 3),
        "joined": once.join(stream.select("at", "key"), on="key", within="2s"),
    }
    for name, end in ends.items():
        (tmp_path / name).mkdir()
        stopped(end, tmp_path / name, commits=2)
        info = state_info(tmp_path / name / "state")
        assert info.keys == (KEYS if name == "joined" else 0), name
        assert verify_state(tmp_path / name / "state")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"most": lw.max("value")}, {"most": lw.max("key")}),
        ({"last": lw.last("key")}, {"last": lw.last("value")}),
        ({"first": lw.first("value", by="key")}, {"first": lw.first("key", by="value")}),
    ],
)
def test_stages_with_other_columns_of_one_name_are_exported(
    first: dict[str, Any], second: dict[str, Any], tmp_path: Path
) -> None:
    stream = lw.read_parquet(
        write_files(tmp_path / "in"), time="at", watermark=lw.BoundedDisorder("5s"),
        clock=lw.ManualClock(0),
    ).named("events")  # fmt: skip
    windows = stream.key_by("key").window(lw.FixedWindows("20s"))
    ends = [
        windows.aggregate(**each).named(name).write_jsonl(tmp_path / name)
        for name, each in (("one", first), ("two", second))
    ]
    with stopping("before forgetting", 5), pytest.raises(Stopped):
        lw.run(
            *ends, state=tmp_path / "state", bundle_size=10, commit_every="bundle", progress=False
        )
    exported = export_state(tmp_path / "state")
    assert {"key", "window_start", "window_end"} <= {*exported.column_names}
    assert any(name.startswith("one: state.") for name in exported.column_names)
    assert any(name.startswith("two: state.") for name in exported.column_names)
    assert exported.num_rows == state_info(tmp_path / "state").open_windows


def test_keys_of_other_types_are_exported(tmp_path: Path) -> None:
    stream = lw.read_parquet(
        write_files(tmp_path / "in"), time="at", watermark=lw.BoundedDisorder("5s"),
        clock=lw.ManualClock(0),
    ).named("events")  # fmt: skip
    ends = [
        keyed.window(lw.FixedWindows("20s"))
        .aggregate(n=lw.count())
        .named(name)
        .write_jsonl(tmp_path / name)
        for name, keyed in (
            ("text", stream.key_by("key")),
            ("number", stream.key_by(key=lw.col("value") % 3)),
        )
    ]
    with stopping("before forgetting", 5), pytest.raises(Stopped):
        lw.run(
            *ends, state=tmp_path / "state", bundle_size=10, commit_every="bundle", progress=False
        )
    exported = export_state(tmp_path / "state")
    assert exported.column("text: key").null_count + exported.column("number: key").null_count == (
        exported.num_rows
    )
