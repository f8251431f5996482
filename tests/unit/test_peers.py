"""The comparison with other libraries: its answer, its check, and what it does without them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.events import events_file
from benchmarks.peers import __main__ as comparison
from benchmarks.peers import lowwater_csv_peer, lowwater_peer, one
from benchmarks.peers.job import (
    GAP_US,
    JOBS,
    MINUTE_US,
    WINDOWS,
    WITHIN_S,
    Answer,
    Run,
    answer_of,
    right_answer,
)
from benchmarks.peers.stopwatch import Stopwatch, peak_bytes
from tests.oracles.row_patterns import END, Pattern, Row, decided, parsed

pytestmark = pytest.mark.long(reason="runs whole programs")

EVENTS = 30_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="module")
def path(folder: Path) -> Path:
    return events_file(EVENTS, folder)


def _element_by_element(path: Path, windows: str, *, unit_us: int, touching: bool) -> Answer:
    """The answer again, with nothing but dictionaries."""
    table = pq.read_table(path)
    columns = (table["key"], table["at"].cast("int64"), table["value"])
    of_keys: dict[str, list[tuple[int, int]]] = {}
    for key, at, value in zip(*(column.to_pylist() for column in columns), strict=True):
        of_keys.setdefault(key, []).append((at // unit_us * unit_us, value))
    sums: dict[tuple[str, int], int] = {}
    for key, events in of_keys.items():
        before, session = -2 * GAP_US, 0
        for at, value in sorted(events):
            session += at - before > GAP_US or (at - before == GAP_US and not touching)
            before = at
            window = at // MINUTE_US if windows == "fixed" else session
            sums[key, window] = sums.get((key, window), 0) + value
    totals = list(sums.values())
    return Answer(len(totals), sum(totals), sum(total * total for total in totals))


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("unit_us", [1, 1_000])
@pytest.mark.parametrize("touching", [False, True])
def test_the_right_answer_is_right(path: Path, windows: str, unit_us: int, touching: bool) -> None:
    right = right_answer(path, windows, unit_us=unit_us, touching=touching)
    assert right == _element_by_element(path, windows, unit_us=unit_us, touching=touching)


@pytest.mark.parametrize("unit_us", [1, 1_000])
def test_the_right_pairs_are_right(tmp_path: Path, unit_us: int) -> None:
    """Both ends of the interval belong to it: some pairs are exactly so far apart."""
    table = pq.read_table(events_file(3_000, tmp_path)).slice(0, 400)
    at = pa.array([time // 500_000 * 500_000 + time % 7 for time in range(0, 400 * 70_000, 70_000)])
    keys = pa.array([f"key {number % 3}" for number in range(400)])
    table = table.set_column(0, "at", at.cast(pa.timestamp("us", "UTC")))
    path = tmp_path / "some.parquet"
    pq.write_table(table.set_column(table.column_names.index("key"), "key", keys), path)
    rows = [
        (row["key"], row["at"].timestamp() * 1e6 // unit_us * unit_us, row["value"])
        for row in pq.read_table(path).to_pylist()
    ]
    pairs = [
        even * 1_000 + odd
        for key, at, even in rows
        for other, later, odd in rows
        if key == other and even % 2 == 0 and odd % 2 and 0 <= later - at <= WITHIN_S * 1e6
    ]
    assert len(pairs) > 1_000
    assert right_answer(path, "join", unit_us=unit_us) == answer_of(pairs)


def test_the_right_matches_are_right(tmp_path: Path) -> None:
    """The pattern is looked for row by row, as the oracle of patterns does."""
    table = pq.read_table(events_file(3_000, tmp_path)).slice(0, 600)
    keys = pa.array([f"key {number % 3}" for number in range(600)])
    values = pa.array([row * 7919 % 5 for row in range(600)])
    table = table.set_column(table.column_names.index("key"), "key", keys)
    table = table.set_column(table.column_names.index("value"), "value", values)
    path = tmp_path / "some.parquet"
    pq.write_table(table, path)
    pattern = Pattern(
        parsed("start down+ up"),
        {
            "down": lambda match: match.row["value"] < match.prev("value"),
            "up": lambda match: match.row["value"] > match.prev("value"),
        },
    )
    lows = []
    for key in set(keys.to_pylist()):
        rows = [
            Row(row["at"].timestamp(), row, row["value"]) for row in table.to_pylist()
            if row["key"] == key
        ]  # fmt: skip
        rows.sort(key=lambda row: row.place)
        found, _ = decided(pattern, rows, END)
        lows += [rows[match.stop - 2].values["value"] for match in found]
    assert len(lows) > 50
    assert right_answer(path, "pattern") == answer_of(lows)


def test_sessions_that_touch_are_one_to_some(tmp_path: Path) -> None:
    at = pa.array([0, GAP_US, 2 * GAP_US - 1]).cast(pa.timestamp("us", tz="UTC"))
    path = tmp_path / "three.parquet"
    pq.write_table(pa.table({"at": at, "key": ["a"] * 3, "value": [1, 2, 4]}), path)
    assert right_answer(path, "sessions") == answer_of([1, 6])
    assert right_answer(path, "sessions", touching=True) == answer_of([7])


@pytest.mark.parametrize("windows", JOBS)
@pytest.mark.parametrize("run", [lowwater_peer.run, lowwater_csv_peer.run])
def test_lowwater_gives_it(path: Path, windows: str, run: Run) -> None:
    timed = run(path, windows)
    assert timed.answer == right_answer(path, windows)
    assert timed.seconds > 0


@pytest.mark.parametrize("windows", WINDOWS)
def test_polars_gives_it(path: Path, windows: str) -> None:
    pytest.importorskip("polars")
    from benchmarks.peers import polars_peer

    assert polars_peer.run(path, windows).answer == right_answer(path, windows)


def test_an_answer_sees_a_value_in_the_wrong_window() -> None:
    assert answer_of([3, 4]) == Answer(2, 7, 25)
    assert answer_of([2, 5]) != answer_of([3, 4])


def test_a_peer_that_is_not_installed_is_said_to_be(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "bytewax", None)
    monkeypatch.delitem(sys.modules, "benchmarks.peers.bytewax_peer", raising=False)
    monkeypatch.setattr(sys, "argv", ["one", "bytewax", "fixed", str(path), str(path)])
    one.main()
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"absent": "bytewax"}


def test_a_peer_without_such_a_join_is_said_to_have_none(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["one", "beam", "join", str(path), str(path)])
    one.main()
    assert json.loads(capsys.readouterr().out) == {"lacks": "a join of streams by interval"}


def test_a_peer_without_row_patterns_is_said_to_have_none(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["one", "spark", "pattern", str(path), str(path)])
    one.main()
    assert json.loads(capsys.readouterr().out) == {"lacks": "row patterns"}


def _compare(monkeypatch: pytest.MonkeyPatch, folder: Path, peer: str) -> None:
    monkeypatch.setattr(comparison, "_DATA", folder)
    options = f"--events {EVENTS} --rounds 1 --windows fixed --only {peer}"
    monkeypatch.setattr(sys, "argv", ["peers", *options.split()])
    comparison.main()


def test_the_table_has_a_figure_for_what_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _compare(monkeypatch, folder, "lowwater_csv")
    *_, line = capsys.readouterr().out.splitlines()
    name, _, events, speed, ratio, *_ = (cell.strip() for cell in line.strip("|").split("|"))
    assert (name, events) == ("lowwater_csv", f"{EVENTS:,}")
    assert float(ratio) > 0
    assert speed


def test_a_wrong_answer_has_no_figure(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(comparison, "_right_answer", lambda *_, **__: Answer(1, 2, 3))
    _compare(monkeypatch, folder, "lowwater")
    *_, line = capsys.readouterr().out.splitlines()
    assert line.startswith("| lowwater | wrong: ")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_stopwatch_sees_the_cpu_of_this_process() -> None:
    with Stopwatch() as watch:
        sum(range(10_000_000))  # many times the hundredth of a second in which /proc counts
    assert watch.seconds > 0
    assert watch.cpu > 0


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_the_most_memory_that_this_process_has_had() -> None:
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    assert peak_bytes() >= resident > 0
