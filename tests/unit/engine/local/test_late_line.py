"""What a run says at its end of the records that it dropped as late."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.time import as_micros, duration

SECOND = 1_000_000


def disordered(seed: int, count: int = 3_000) -> pa.Table:
    """Return records ten seconds apart, of which some are late by up to hours."""
    chance = random.Random(seed)
    at = [
        round((n * 10 - (chance.expovariate(1 / 400) if n % 7 == 0 else 0)) * SECOND)
        for n in range(1, count)
    ]
    return pa.table({"at": [max(0, each) for each in at], "k": ["a"] * len(at)})


def counts(table: pa.Table, lateness: Any = "0s", **options: Any) -> lw.Pipeline:
    stream = lw.from_arrow(table, time="at", watermark=lw.BoundedDisorder("5s"))
    return (
        stream.key_by("k")
        .window(
            lw.FixedWindows("1m"),
            allowed_lateness=lateness,
            accumulation="discarding",
            **options,
        )
        .aggregate(n=lw.count())
    )


def told(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("size", "count", "seed"),
    [
        (1, 400, 0),
        pytest.param(1, 3_000, 1, marks=pytest.mark.long(reason="thousands of bundles")),
        *((1_000, 3_000, seed) for seed in range(6)),
    ],
)
def test_the_lateness_it_names_admits_99_percent(
    size: int, count: int, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    table = disordered(seed, count)
    without = counts(table).to_arrow(bundle_size=size, progress=False)
    line = told(capsys)
    found = re.search(r'([\d,]+) records? w\w+ dropped .*allowed_lateness="(\w+)"', line)
    assert found is not None, line
    dropped, lateness = int(found[1].replace(",", "")), found[2]
    assert dropped == len(table) - sum(without["n"].to_pylist())
    admitted = counts(table, lateness).to_arrow(bundle_size=size, progress=False)
    left = len(table) - sum(admitted["n"].to_pylist())
    assert left <= 0.01 * dropped
    # It is not far above: half of it leaves more.
    half = counts(table, as_micros(duration(lateness)) // 2)
    assert len(table) - sum(half.to_arrow(bundle_size=size, progress=False)["n"].to_pylist()) > left


def test_who_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    table = disordered(1, 300)
    options: dict[str, Any] = {"bundle_size": 1, "progress": False}
    pipeline = counts(table)
    for run in (pipeline.to_arrow, pipeline.to_pandas, lambda **how: list(pipeline.run(**how))):
        run(**options)
        assert "Take them with on_late=, or read collect().late" in told(capsys)
    pipeline.write_jsonl(tmp_path / "out").run(**options)
    assert "Read them beside the output" in told(capsys)
    taken: list[Any] = []
    pipeline.to_arrow(on_late=taken.append, **options)
    assert taken
    assert told(capsys) == ""
    result = pipeline.collect(**options)
    assert result.late
    assert told(capsys) == ""


def test_nothing_late_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    table = pa.table({"at": list(range(0, 300 * SECOND, SECOND)), "k": ["a"] * 300})
    counts(table).to_arrow(progress=False)
    assert told(capsys) == ""


def test_a_window_that_its_trigger_closed_is_no_matter_of_lateness(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = pa.table({"at": [0, SECOND, 2 * SECOND, 3 * SECOND], "k": ["a"] * 4})
    pipeline = counts(table, trigger=lw.AfterCount(2), allow_data_loss="the first two are enough")
    pipeline.to_arrow(bundle_size=1, progress=False)
    line = told(capsys)
    assert "2 records were dropped as late (closed 2). " in line
    assert "allowed_lateness" not in line
