"""``python -m lowwater state verify`` decodes the state of processes, without the processes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

import lowwater as lw
from lowwater.cli.main import main
from lowwater.engine.process.stored_facts import CELLS, FACTS, KEYS, PARTS, ROWS, SCOPES, TIMERS
from lowwater.engine.records.columns import Column
from lowwater.engine.records.key_hash import hash_keys
from lowwater.errors import StateError
from lowwater.pipeline.state_tools import verify_state
from lowwater.state.codec import decode, encode
from lowwater.state.key_layout import END, HEAD_BYTES, split_key
from lowwater.state.rocks import RocksStore
from lowwater.state.store import Batch
from tests.unit.engine.local.durable_runs import run, stopped, write_files

NEVER = 10**15
"""Later than all records."""

FIRST = "k4"
"""The key whose scope is stored first: of the lowest key group."""

StoppedRun: TypeAlias = Callable[[str], tuple[Any, Path]]
Make: TypeAlias = Callable[[bytes, bytes], dict[bytes, bytes]]
"""Makes rows of a stored one."""


class Everything:
    """A process with a cell of each kind, and timers of both domains and with tags."""

    total = lw.value_cell(0, dtype="int64", merge=max)
    last = lw.value_cell(merge=max)
    seen = lw.list_cell()
    names = lw.set_cell()
    by_name = lw.map_cell(merge=max)
    least = lw.combining_cell(lw.min())
    ordered = lw.ordered_cell()
    once = lw.timer()
    wall = lw.timer(domain="processing")

    def on_record(self, record: Any, ctx: Any) -> None:
        value = record["value"]
        ctx.total.set(ctx.total.get() + value)
        ctx.last.set((value, "x"))
        ctx.seen.append(value)
        ctx.names.add(value % 3)
        ctx.by_name[value % 2] = value
        ctx.least.add(value)
        ctx.ordered.add(value, {"v": value})
        ctx.once.set(NEVER if ctx.window is None else ctx.window.end, tag=value % 2)
        ctx.wall.set(NEVER)
        ctx.emit({"total": ctx.total.get()})

    def on_timer(self, name: str, ctx: Any) -> None:
        ctx.total.clear()


class Columns:
    """A vectorised process.

    Args:
        plain: Whether there are no windows.
    """

    def __init__(self, plain: bool) -> None:
        self.plain = plain

    total = lw.value_cell(dtype="int64")
    most = lw.value_cell(1.5, dtype="float64")
    flag = lw.value_cell(dtype="bool")
    once = lw.timer()

    def on_records(self, batch: Any, ctx: Any) -> None:
        ctx.total.add(batch.ids, batch["value"])
        ctx.flag[batch.ids] = True
        ctx.once.set(batch.ids, np.full(len(batch), NEVER) if self.plain else ctx.ends(batch.ids))
        ctx.emit({"total": ctx.total[batch.ids]}, ids=batch.ids, times=batch.times)

    def on_timers(self, batch: Any, ctx: Any) -> None:
        ctx.total[batch.ids] = 0


def made(folder: Path, what: str) -> Any:
    """Return a process over files, stopped half way."""
    keyed = lw.read_parquet(
        write_files(folder / "in"),
        time="at",
        watermark=lw.BoundedDisorder("5s"),
        clock=lw.ManualClock(0),
    ).key_by("key")
    hour = lw.FixedWindows("1h")
    return {
        "records": lambda: keyed.process(Everything()),
        "records in parts": lambda: keyed.process(Everything()),
        "windows in parts": lambda: keyed.window(hour).process(Everything()),
        "windows": lambda: keyed.window(hour).process(Everything()),
        "sessions": lambda: keyed.window(lw.Sessions("15s")).process(Everything()),
        "columns": lambda: keyed.process(Columns(plain=True)),
        "columns in windows": lambda: keyed.window(hour).process(Columns(plain=False)),
    }[what]()


KINDS = ("records", "windows", "sessions", "columns", "columns in windows")


def options(what: str) -> dict[str, Any]:
    """Return how a process is run: in parts, keys are divided among workers."""
    return {"workers": 2} if what.endswith("in parts") else {}


@pytest.fixture(scope="module")
def stopped_run(tmp_path_factory: pytest.TempPathFactory) -> StoppedRun:
    """Return what restores the folder of a stopped process: its state knows files by their paths.

    It returns the process, and the folder as it was when the run was stopped.
    """
    place = tmp_path_factory.mktemp("stopped")

    @cache
    def stopped_once(what: str) -> tuple[Any, Path, Path]:
        folder, copy = place / what, place / f"copy of {what}"
        process = made(folder, what)
        stopped(process, folder, **options(what))
        shutil.copytree(folder, copy)
        return process, folder, copy

    def restored(what: str) -> tuple[Any, Path]:
        process, folder, copy = stopped_once(what)
        shutil.rmtree(folder)
        shutil.copytree(copy, folder)
        return process, folder

    return restored


def change(state: Path, table: int, make: Make) -> None:
    """Put other rows in place of the first of a table, as if by a store that is sound."""
    with RocksStore(state) as store:
        stored = store.scan(b"\x01", END)
        key, value = next((key, value) for key, value in stored if split_key(key)[2] == table)
        batch = Batch()
        batch.delete([key])
        rows = make(key, value)
        batch.put(list(rows), list(rows.values()))
        store.commit(batch)


def other_facts(**facts: Any) -> Make:
    """Return what puts other facts in a row."""
    return lambda key, value: {key: encode({**decode(value), **facts})}


def other_scope(at: int, *parts: Any) -> Make:
    """Return what puts other parts in a scope: its start, its end, its birth and its key."""

    def make(key: bytes, value: bytes) -> dict[bytes, bytes]:
        stored = decode(value)
        return {key: encode([*stored[:at], *parts, *stored[at + 1 :]])}

    return make


def of_another_part() -> str:
    """Return a key of another part, whose group there has the place of that of the first."""
    names = [f"n{n}" for n in range(10_000)]
    hashes = hash_keys([Column.of_objects(names)]) % np.uint64(256)
    (of_first,) = hash_keys([Column.of_objects([FIRST])]) % np.uint64(256)
    alike = (hashes % np.uint64(16) == of_first % np.uint64(16)) & (hashes != of_first)
    return names[int(np.flatnonzero(alike)[0])]


@pytest.mark.parametrize("what", [*KINDS, "records in parts", "windows in parts"])
def test_sound_state_is_found_sound(stopped_run: StoppedRun, what: str) -> None:
    process, folder = stopped_run(what)
    with RocksStore(folder / "state", read_only=True) as store:
        rows = store.verify()
    assert verify_state(folder / "state") == rows > 10
    run(process, folder, **options(what))
    assert verify_state(folder / "state") > 0


class Stubborn:
    """Goes on where a cell has refused what has no hash."""

    names = lw.set_cell()
    by_name = lw.map_cell()

    def on_record(self, record: Any, ctx: Any) -> None:
        with pytest.raises(lw.InvalidArgument, match=r"cell 'names': it has no hash"):
            ctx.names.add([record["value"]])
        with pytest.raises(lw.InvalidArgument, match=r"cell 'by_name': it has no hash"):
            ctx.by_name[{}] = 1


def test_what_a_cell_refuses_leaves_nothing_behind(tmp_path: Path) -> None:
    source = lw.read_parquet(write_files(tmp_path / "in"), time="at", clock=lw.ManualClock(0))
    process: Any = source.key_by("key").process(Stubborn())
    stopped(process, tmp_path)
    verify_state(tmp_path / "state")
    run(process, tmp_path)


@pytest.mark.parametrize(
    ("what", "table"),
    [
        *(("records in parts", table) for table in (FACTS, PARTS, SCOPES, CELLS, TIMERS)),
        *((what, FACTS) for what in KINDS),
        *((what, table) for what in KINDS[:3] for table in (PARTS, SCOPES)),
        *((what, table) for what in KINDS[3:] for table in (KEYS, ROWS)),
        *(("records", table) for table in (CELLS, TIMERS)),
        *(("windows", table) for table in (CELLS, TIMERS)),
    ],
)
def test_a_row_that_is_damaged(
    stopped_run: StoppedRun, what: str, table: int, capsys: pytest.CaptureFixture[str]
) -> None:
    process, folder = stopped_run(what)
    change(folder / "state", table, lambda key, value: {key: value[:-3] + b"\xc1"})
    assert main(["state", "verify", str(folder / "state")]) == 1
    assert "estore" in capsys.readouterr().err
    with pytest.raises(StateError):
        run(process, folder, **options(what))


@pytest.mark.parametrize("table", [FACTS, PARTS, SCOPES, CELLS, TIMERS])
@pytest.mark.parametrize("what", ["records", "records in parts", "windows in parts"])
def test_a_row_that_is_missing(stopped_run: StoppedRun, what: str, table: int) -> None:
    process, folder = stopped_run(what)
    change(folder / "state", table, lambda key, value: {})
    with pytest.raises(StateError):
        verify_state(folder / "state")
    with pytest.raises(StateError, match="cannot be read"):
        run(process, folder, **options(what))


@pytest.mark.parametrize(
    ("what", "table", "make", "said"),
    [
        ("records", CELLS, lambda key, value: {}, "parts of it are missing"),
        ("records", TIMERS, lambda key, value: {}, "parts of it are missing"),
        ("windows", SCOPES, lambda key, value: {}, "a value of no key"),
        ("columns", ROWS, lambda key, value: {}, "rows are there"),
        ("columns", KEYS, lambda key, value: {}, "stored key cannot be read: . of . are there"),
        ("records", PARTS, lambda key, value: {}, "facts of a part of it are missing"),
        ("records", PARTS, other_facts(keys=99), "there are 99 keys, or"),
        ("records", PARTS, other_facts(timers=99), "parts of it are missing"),
        ("records", SCOPES, other_scope(0, 5), "cannot be there"),
        ("records", SCOPES, lambda key, value: {key[:-8] + b"\xff" * 8: value}, "of no key"),
        ("windows", SCOPES, other_scope(1, -1), "cannot be there"),
        ("windows", SCOPES, other_scope(2, 10**6), "cannot be there"),
        ("windows", SCOPES, other_scope(4, "elsewhere"), "cannot be there"),
        ("records in parts", SCOPES, other_scope(4, of_another_part()), "cannot be there"),
        ("windows", SCOPES, other_scope(3, 1), "a key has the place"),
        ("windows", SCOPES, other_scope(4, "x", "y"), "a key has the place"),
        ("windows", PARTS, other_facts(now=1), "its keys are of types 1 of 1"),
        ("windows", SCOPES, other_scope(0, None), "a key has the place"),
        ("records", CELLS, lambda key, value: {key: encode("x")}, "holds a str|does not fit"),
        ("records", TIMERS, lambda key, value: {key: encode([1, 2])}, "a timer is set to"),
        (
            "records",
            CELLS,
            lambda key, value: {key: value, key[:HEAD_BYTES] + b"gone\0" + key[-8:]: value},
            "1 rows are of nothing that it declares",
        ),
        (
            "columns",
            FACTS,
            lambda key, value: {key: value, key[: HEAD_BYTES - 1] + b"\x63xyz": value},
            "unknown table",
        ),
        ("records", FACTS, lambda key, value: {}, "there is nothing of the stage"),
        (
            "records",
            FACTS,
            lambda key, value: {key: encode({**decode(value), "layout": 99})},
            "layout 99",
        ),
        (
            "records",
            FACTS,
            lambda key, value: {
                key: encode({**decode(value), "declared": [["cell", "a", "b", None]]})
            },
            "KeyError",
        ),
    ],
)
def test_rows_that_do_not_fit_together(
    stopped_run: StoppedRun, what: str, table: int, make: Make, said: str
) -> None:
    _, folder = stopped_run(what)
    change(folder / "state", table, make)
    with pytest.raises(StateError, match=said):
        verify_state(folder / "state")
