"""How much of what there is to read was read: it never goes back, and is 1 at last."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import lowwater as lw
from lowwater.engine.graph.metrics import Metrics
from lowwater.engine.local.progress import progress_text
from lowwater.io import Log
from tests.examples import sampled

ROWS = 300_000
"""More than any reader takes at a time, and than a bundle has."""


@cache
def _table(rows: int = ROWS, first: int = 0) -> pa.Table:
    at = range(first, first + rows)
    texts = [f"a text of some length {number}" for number in at]
    return pa.table({"t": list(at), "k": [str(n % 7) for n in at], "x": texts})


def _parquet(folder: Path) -> lw.Stream:
    for number in range(3):
        pq.write_table(_table(ROWS // 3, number * ROWS // 3), folder / f"{number}.parquet")
    return lw.read_parquet(str(folder), time="t")


def _csv(folder: Path) -> lw.Stream:
    for number in range(3):
        pa_csv.write_csv(_table(ROWS // 3, number * ROWS // 3), folder / f"{number}.csv")
    return lw.read_csv(str(folder), time="t", unit="us")


def _dirty_csv(folder: Path) -> lw.Stream:
    pa_csv.write_csv(_table(), folder / "0.csv")
    with (folder / "0.csv").open("a") as opened:
        opened.write("1,2\n")
    return lw.read_csv(str(folder), time="t", unit="us")


def _lines() -> Iterator[str]:
    for row in _table().to_pylist():
        yield json.dumps(row) + "\n"


def _jsonl(folder: Path) -> lw.Stream:
    (folder / "0.jsonl").write_text("".join(_lines()))
    return lw.read_jsonl(str(folder), time="t", unit="us")


def _jsonl_gz(folder: Path) -> lw.Stream:
    with gzip.open(folder / "0.jsonl.gz", "wt", compresslevel=1) as opened:
        opened.writelines(_lines())
    return lw.read_jsonl(str(folder), time="t", unit="us")


def _log(folder: Path) -> lw.Stream:
    with Log(folder / "log", partitions=2) as log:
        for number in range(4):
            log.append(_table(ROWS // 4, number * ROWS // 4), partition=number % 2)
    return lw.read_log(str(folder / "log"), time="t")


KNOWN: dict[str, Callable[[Path], lw.Stream]] = {
    "parquet": _parquet,
    "dirty csv": _dirty_csv,
    "csv": _csv,
    "jsonl": _jsonl,
    "jsonl.gz": _jsonl_gz,
    "pandas": lambda _: lw.from_pandas(_table().to_pandas(), time="t"),
    "log": _log,
    "arrow": lambda _: lw.from_arrow(_table(), time="t"),
    "list": lambda _: lw.from_iterable(_table().to_pylist(), time="t"),
}


def _windowed(stream: lw.Stream) -> Any:
    return stream.key_by("k").window(lw.FixedWindows("1s")).aggregate(n=lw.count())


def _shares(pipeline: Any, **options: Any) -> list[tuple[int, float | None]]:
    seen: list[tuple[int, float | None]] = []
    pipeline.collect(progress=lambda m: seen.append((m.events, m.share)), **options)
    return seen


@pytest.mark.parametrize("name", sampled(KNOWN, every=2))
def test_the_share_grows_with_what_was_read_and_ends_at_one(name: str, tmp_path: Path) -> None:
    seen = _shares(_windowed(KNOWN[name](tmp_path)), bundle_size=20_000)
    shares = [share for _, share in seen if share is not None]
    assert len(shares) == len(seen)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert len(set(shares)) > 10
    for events, share in seen:  # Arrow reads blocks of a CSV file ahead
        assert share is not None
        assert share == pytest.approx(events / ROWS, abs=0.15 if "csv" not in name else 0.6)
    read = [events for events, _ in seen]
    assert read == sorted(read)
    assert len(set(read)) > 10


def test_of_two_sources_each_counts_by_its_records(tmp_path: Path) -> None:
    few = lw.from_iterable([{"t": n, "k": "a", "x": ""} for n in range(10)], time="t")
    seen = _shares(_windowed(_parquet(tmp_path) | few), bundle_size=20_000)
    known = [share for _, share in seen if share is not None]
    assert known == sorted(known)
    assert len(known) == len(seen)
    assert seen[-1] == (ROWS + 10, 1.0)
    # The few come last, and count as much as the others until they are read.
    assert all(share == pytest.approx(events / ROWS / 2, abs=0.1) for events, share in seen[:-2])


def test_nothing_is_said_where_the_end_is_not_known(tmp_path: Path) -> None:
    items = ({"t": n, "k": "a"} for n in range(100))
    assert {
        s for _, s in _shares(_windowed(lw.from_iterable(items, time="t")), bundle_size=10)
    } == {
        None,
        1.0,
    }
    pq.write_table(_table(1000), tmp_path / "0.parquet")
    followed = lw.read_parquet(
        str(tmp_path), time="t", follow=True, max_idle="1ms", poll_every="1ms"
    )
    assert {share for _, share in _shares(_windowed(followed), bundle_size=100)} == {None, 1.0}


class Unsized(list[Any]):
    """A class of a user that does not know how much it has."""

    def __len__(self) -> int:
        raise ValueError("not known")


def test_a_length_that_is_not_told_is_not_known() -> None:
    items = Unsized({"t": n, "k": "a"} for n in range(100))
    seen = _shares(_windowed(lw.from_iterable(items, time="t")), bundle_size=10)
    assert {share for _, share in seen} == {None, 1.0}
    assert seen[-1][0] == 100
    assert "IterableSource(Unsized)" in repr(lw.from_iterable(items, time="t"))  # as logs have it


def test_a_resumed_run_counts_what_is_left(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    writing = _windowed(_csv(tmp_path / "in")).write_jsonl(str(tmp_path / "out/o.jsonl"))
    shares: list[float | None] = []
    rest: list[tuple[int, float | None]] = []
    seen: list[Metrics] = []

    def stop_half_way(metrics: Metrics) -> None:
        shares.append(metrics.share)
        if metrics.events > ROWS // 2:
            run.stop()

    def look(metrics: Metrics) -> None:
        rest.append((metrics.events, metrics.share))
        seen.append(metrics)

    options: dict[str, Any] = {"state": str(tmp_path / "state"), "bundle_size": 20_000}
    run: Any = writing.start(**options, commit_every="bundle", progress=stop_half_way)
    run.wait()
    assert shares[-1] is not None
    assert 0 < shares[-1] < 1
    writing.run(**options, progress=look)
    known = [share for _, share in rest if share is not None]
    assert known == sorted(known)
    assert known[-1] == 1.0
    assert known[0] < 0.9
    assert rest[-1][0] == ROWS
    assert 0 < seen[-1].resumed_at < ROWS
    assert seen[-1].events_per_second < ROWS / seen[-1].elapsed


def test_with_an_arrival_clock_records_count_as_they_arrive() -> None:
    items = [{"t": n, "at": n * 60_000_000, "k": "a"} for n in range(50)]
    stream = lw.from_iterable(items, time="t", clock=lw.ArrivalClock("at"))
    seen = _shares(_windowed(stream))
    assert [events for events, _ in seen][:5] == [1, 2, 3, 4, 5]
    assert seen[-1] == (50, 1.0)


def test_the_line_says_how_long_the_rest_takes() -> None:
    metrics = Metrics(events=10, elapsed=60.0, share=0.25)
    assert metrics.seconds_left == 180.0
    assert progress_text(metrics).startswith("25 %  3:00 left  10 events")
    assert progress_text(Metrics(events=10, elapsed=60.0)).startswith("10 events")
