"""What the real code announces is what the model allows: over deaths at every point."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.parquet as pq
import pytest

import lowwater as lw
from lowwater.engine.local import durable
from lowwater.engine.local.durable import POINTS, Point
from lowwater.io import Log
from lowwater.io.sinks import Callback, Compaction, SqliteTable
from tests.examples import is_campaign, sampled
from tests.protocol.traces import NEXT, Announced, Lives
from tests.unit.engine.local.durable_runs import Stopped, pipeline, write_files
from tests.unit.io.kafka.model import ModelBroker

DEATHS = 100 if is_campaign() else 8
"""How often each pair of a source and a sink dies."""
ONCE = ("after taking up", "after the announcement", "after opening")
"""The points to which a run comes once."""


def test_every_point_is_one_of_the_protocol() -> None:
    assert set(POINTS) == {*NEXT} - {""}


@contextmanager
def _announcing(announced: list[Announced], death: tuple[str, int] | None) -> Iterator[None]:
    """Note what a run announces; stop it at a point, when it comes there for that time."""
    left = 0 if death is None else death[1]

    def on_point(point: str) -> None:
        nonlocal left
        assert isinstance(point, Point)
        announced.append((str(point), point.fact))
        if death is not None and point == death[0]:
            left -= 1
            if not left:
                raise Stopped(point)

    with mock.patch.object(durable, "on_point", on_point):
        yield


def _files(folder: Path) -> Any:
    return write_files(folder / "in", 2)


def _log(folder: Path) -> Any:
    source = write_files(folder / "in", 2)
    if not (folder / "log").exists():
        with Log(folder / "log") as log:
            for path in sorted(source.iterdir()):
                log.append(pq.read_table(path))
    return folder / "log"


def _jsonl_file(folder: Path, made: Any) -> Any:
    return made.write_jsonl(folder / "out.jsonl")


SINKS: dict[str, Callable[[Path, Any], Any]] = {
    "parquet": lambda folder, made: made.write_parquet(folder / "out"),
    "json lines": lambda folder, made: made.write_jsonl(folder / "out"),
    "one file": _jsonl_file,
    "collecting": lambda folder, made: made.write_parquet(
        folder / "out", compact=Compaction(size="4KB", age="1h")
    ),
    "a store": lambda folder, made: made.write_jsonl(f"memory://{abs(hash(folder))}/out"),
    "sqlite": lambda folder, made: made.write_to(SqliteTable(str(folder / "out.db"), "panes")),
    "two": lambda folder, made: made.write_to(
        lw.io.sinks.JsonLinesFolder(str(folder / "one")), Callback(lambda _: None)
    ),
}
SOURCES: dict[str, Callable[[Path], Any]] = {"files": _files, "log": _log, "kafka": _files}
PAIRS = [f"{source} to {sink}" for sink in SINKS for source in SOURCES]


def _made(source: str, place: Any) -> Any:
    if source == "files":
        return pipeline(place, accumulation="discarding")
    if source == "log":
        stream = lw.read_log(place, time="at", watermark=lw.BoundedDisorder("5s"))
    else:
        servers, topic, count = place
        stream = lw.read_kafka(
            servers, topic, time="at", unit="us", end={0: count},
            watermark=lw.PerPartition(lw.BoundedDisorder("5s")),
        )  # fmt: skip
    windows = stream.key_by("key").window(lw.FixedWindows("20s"))
    return windows.aggregate(n=lw.count(), total=lw.sum("value"))


@pytest.fixture
def broker() -> Iterator[ModelBroker]:
    with ModelBroker().patched() as model:
        yield model


def _topic(broker: ModelBroker, folder: Path) -> tuple[str, str, int]:
    rows = [row for path in sorted(folder.iterdir()) for row in pq.read_table(path).to_pylist()]
    topic = broker.topic(1)
    broker.produce(topic, {0: [(None, json.dumps(row).encode()) for row in rows]})
    return broker.servers, topic, len(rows)


@pytest.mark.parametrize("pair", sampled(PAIRS, every=2))
def test_what_runs_announce_is_what_the_model_allows(
    pair: str, tmp_path: Path, broker: ModelBroker
) -> None:
    source, sink = pair.split(" to ")
    hit: Counter[str] = Counter()
    deaths = turn = 0
    while deaths < DEATHS:
        turn += 1
        folder = tmp_path / str(turn)
        folder.mkdir()
        place = SOURCES[source](folder)
        if source == "kafka":
            place = _topic(broker, place)
        lives = Lives()
        for number in range(len(POINTS) + 1):
            announced: list[Announced] = []
            point = POINTS[(turn + number) % len(POINTS)]
            count = 1 if point in ONCE else 1 + (turn + number) % 3
            death = None if number == len(POINTS) else (point, count)
            written = SINKS[sink](folder, _made(source, place))
            options = {"bundle_size": 25, "commit_every": "bundle", "progress": False}
            with _announcing(announced, death):
                try:
                    written.run(state=folder / "state", **options)
                except Stopped:
                    lives.live(announced, died=True)
                    hit[point] += 1
                    deaths += 1
                    continue
            lives.live(announced, died=False)
            break
        assert not lives.wrong, lives.wrong
    print(f"{source}, {sink}: {deaths} deaths at {dict(hit)}")
    if is_campaign():
        assert set(hit) == set(POINTS)


@pytest.mark.parametrize("nth", range(1, 9))
def test_a_trace_that_skips_a_step_is_not_accepted(nth: int, tmp_path: Path) -> None:
    """The check can fail: without any one of its points a life is none of the protocol."""
    announced: list[Announced] = []
    place = write_files(tmp_path / "in", 1)
    written = _made("files", place).write_jsonl(tmp_path / "out")
    with _announcing(announced, None):
        written.run(state=tmp_path / "state", bundle_size=25, commit_every="bundle", progress=False)
    name = POINTS[nth - 1]
    at = [number for number, (point, _) in enumerate(announced) if point == name][-1]
    lives = Lives()
    lives.live(announced, died=False)
    assert not lives.wrong
    lives = Lives()
    lives.live(announced[:at] + announced[at + 1 :], died=False)
    assert lives.wrong
