"""What durable state costs: speed beside memory, and commits as state grows.

``python -m benchmarks.durability WINDOWS FOLDER [fixed|sessions]`` prints what commits and a
restore take with so many windows open, as JSON; with ``LOWWATER_KERNELS=numba``, by compiled
kernels.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar, final

import numpy as np

import lowwater as lw
from benchmarks.events import events_file
from benchmarks.open_windows import WINDOWS, fill_steps, windowing_of
from lowwater.engine.records.key_hash import KEY_GROUPS
from lowwater.engine.records.steps import Bundle
from lowwater.engine.window.operator import WindowOperator
from lowwater.kernels import count_records
from lowwater.pipeline import Pipeline
from lowwater.state.key_layout import StoredPlace
from lowwater.state.rocks import RocksStore
from lowwater.state.store import Batch
from lowwater.windows import WindowFunction

RATIO_TARGET = 0.6
CASES: Mapping[str, WindowFunction] = {
    "fixed 1 min": lw.FixedWindows("1m"),
    "sessions 30 s": lw.Sessions("30s"),
}
_SAVE_EACH = 8  # fills between two saves: they keep what a save holds in memory small
_CHANGED = 1_000
T = TypeVar("T")


@final
@dataclass(frozen=True, slots=True)
class Ratio:
    """Events per second in memory and with ``state=``, medians; their ratio taken by round."""

    case: str
    in_memory: float
    durable: float
    ratio: float


def ratios(count: int, rounds: int, folder: Path) -> Iterator[Ratio]:
    """Time each case in turn without and with state, after one round that does not count."""
    path = events_file(count, folder)
    for name, windows in CASES.items():
        plain: list[float] = []
        durable: list[float] = []
        for turn in range(rounds + 1):
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                pipeline = _pipeline(path, windows)
                seconds = [
                    _seconds(pipeline, Path(scratch) / "plain", None),
                    _seconds(pipeline, Path(scratch) / "durable", Path(scratch) / "state"),
                ]
            if turn:
                plain.append(count / seconds[0])
                durable.append(count / seconds[1])
        ratio = statistics.median(b / a for a, b in zip(plain, durable, strict=True))
        yield Ratio(name, statistics.median(plain), statistics.median(durable), ratio)


def _pipeline(path: Path, windows: WindowFunction) -> Pipeline:
    return (
        lw.read_parquet(str(path), time="at", watermark=lw.BoundedDisorder("10s"))
        .key_by("key")
        .window(windows)
        .aggregate(total=lw.sum("value"))
    )


def _seconds(pipeline: Pipeline, out: Path, state: Path | None) -> float:
    writing = pipeline.write_parquet(out)
    began = time.perf_counter()
    if state is None:
        writing.run(progress=False)
    else:
        writing.run(state=state, commit_every="1s", progress=False)
    return time.perf_counter() - began


@final
@dataclass(frozen=True, slots=True)
class Commits:
    """Commits of 1 000 changed rows and recovery, with so many windows open."""

    open_windows: int
    commit_ms: float
    commit_bytes: int
    open_seconds: float
    restore_seconds: float


def commits(open_windows: int, folder: Path, windows: str = "fixed") -> Commits:
    """Measure commits in a process of its own, and the restore in another."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        path = Path(scratch) / "state"
        ms, size = _apart(_fill_and_commit, open_windows, windows, path)
        opened, restored = _apart(_restore, open_windows, windows, path)
    return Commits(open_windows, ms, size, opened, restored)


def _apart(measure: Callable[[int, str, Path], T], *args: Any) -> T:
    """Measure in a new process: as a restart finds memory, without what ran before."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context) as process:
        return process.submit(measure, *args).result()


def main() -> None:
    """Measure what :func:`commits` asks for and print it as JSON."""
    count, folder, *windows = sys.argv[1:]
    print(json.dumps(asdict(commits(int(count), Path(folder), *windows))))


def _fill_and_commit(open_windows: int, windows: str, path: Path) -> tuple[float, int]:
    """Return what a commit takes: milliseconds, bytes; medians of 30."""
    operator = _operator(windows)
    seconds: list[float] = []
    sizes: list[int] = []
    with RocksStore(path) as store:
        for at, bundle in enumerate(fill_steps(open_windows, per_key=False), 1):
            operator.step(bundle)
            if not at % _SAVE_EACH:
                _commit(operator, store)
        _commit(operator, store)
        random = np.random.default_rng(2)
        for _ in range(30):
            operator.step(_again(random.choice(open_windows, _CHANGED, replace=False)))
            began = time.perf_counter()
            sizes.append(_commit(operator, store))
            seconds.append(time.perf_counter() - began)
    return statistics.median(seconds) * 1e3, int(statistics.median(sizes))


def _restore(open_windows: int, windows: str, path: Path) -> tuple[float, float]:
    """Return how many seconds the store takes to open, and the windows to come back."""
    operator = _operator(windows)
    began = time.perf_counter()
    with RocksStore(path) as store:
        opened = time.perf_counter()
        operator.restore(store)
        restored = time.perf_counter()
    if operator.open_windows != open_windows:
        raise SystemExit(f"{operator.open_windows} windows came back, not {open_windows}")
    return opened - began, restored - opened


def _operator(windows: str) -> WindowOperator:
    count_records(0)  # loads the kernels that the environment asks for: there is no stage here
    operator = WindowOperator(windowing_of(WINDOWS[windows]), {"total": lw.sum("value")})
    operator.keep_in_store(StoredPlace("stage 1", 0, KEY_GROUPS))
    return operator


def _commit(operator: WindowOperator, store: RocksStore) -> int:
    batch = Batch()
    operator.save(batch)
    store.commit(batch)
    return batch.size_bytes


def _again(numbers: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Bundle:
    """Return one more element for the windows of these numbers, as the fill made them."""
    (bundle,) = fill_steps(len(numbers), per_key=False, numbers=numbers)
    return bundle


if __name__ == "__main__":
    main()
