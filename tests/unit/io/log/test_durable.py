"""From a log that grows, through runs that crash, to a folder: each record counts exactly once."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import lowwater as lw
from lowwater.engine.graph.graph import Read
from lowwater.engine.graph.metrics import Metrics
from lowwater.io import Log
from lowwater.io.log import LogSource
from tests.examples import sampled


class Crash(Exception):
    """Stands for the end of the process."""


@pytest.mark.slow(reason="faults of a disk at every write")
@pytest.mark.parametrize("seed", sampled(range(4), every=4))
def test_runs_that_crash_while_the_log_grows(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    expected: Counter[str] = Counter()
    rounds = iter(range(20))
    crashes = 0

    with Log(tmp_path / "log", 3, segment_bytes=3000, fsync=0, clock=lw.ManualClock(0)) as log:

        def append_some() -> None:
            for _ in range(chance.randint(0, 4)):
                rows = [some_row() for _ in range(chance.randint(1, 6))]
                log.append(rows, key="key")

        def some_row() -> dict[str, Any]:
            number = sum(expected.values())
            key = f"key-{number % 5}"
            expected[key] += 1
            return {"at": number * 1_000_000, "key": key}

        def wait() -> bool:
            if next(rounds, None) is None:
                return False
            append_some()
            crash_perhaps()
            return True

        def crash_perhaps(_: Metrics | None = None) -> None:
            if chance.random() < 0.1:
                raise Crash

        log.append([some_row()], key="key")
        stream = lw.read_log(
            tmp_path / "log", time="at", follow=True, watermark=lw.BoundedDisorder("1s")
        )
        (flow,) = stream._flows
        assert isinstance(flow.origin, Read)
        assert isinstance(flow.origin.source, LogSource)
        waiting = replace(flow.origin, source=replace(flow.origin.source, wait=wait))
        pipeline = (
            replace(stream, _flows=(replace(flow, origin=waiting),))
            .key_by("key")
            .window(
                lw.FixedWindows("10s"),
                trigger=lw.AfterWatermark(late=lw.AfterCount(1)),
                accumulation="discarding",
                allowed_lateness="1h",
            )
            .aggregate(count=lw.count())
            .write_jsonl(tmp_path / "out")
        )
        while True:
            try:
                pipeline.run(
                    state=tmp_path / "state",
                    commit_every="bundle",
                    bundle_size=3,
                    progress=crash_perhaps,
                )
                break
            except Crash:
                crashes += 1
    found: Counter[str] = Counter()
    for path in (tmp_path / "out").glob("**/*.jsonl"):
        for line in path.read_text().splitlines():
            pane = json.loads(line)
            found[pane["key"]] += pane["count"]
    assert found == expected
    assert crashes > 2
