"""The end of input: what is it, and what only looks like it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import lowwater as lw
from tests.spark.test_to_spark import SECOND, START, plain, run

NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"
MINUTE = lw.FixedWindows("1m")


def counted(begun: lw.Stream) -> lw.Pipeline:
    return begun.key_by("key").window(MINUTE).aggregate(n=lw.count())


def lines(*seconds: int) -> str:
    rows = [{"at": START + second * SECOND, "key": "a"} for second in seconds]
    return "".join(json.dumps(row) + "\n" for row in rows)


def write(folder: Path, files: dict[str, str]) -> Path:
    for at, (name, text) in enumerate(files.items()):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (1_000_000 + at, 1_000_000 + at))
    return folder


def test_a_file_of_no_bytes_is_not_the_end(spark: Any, tmp_path: Path) -> None:
    files = {"1.jsonl": lines(1, 70), "2.jsonl": "", "3.jsonl": lines(65, 130), "4.jsonl": ""}
    folder = write(tmp_path / "in", files)
    made = counted(lw.read_jsonl(folder, time="at", watermark=lw.BoundedDisorder("5s")))
    rows, reports = run(
        made.to_spark(spark, drain=True, files_per_batch=1), tmp_path / "checkpoint"
    )
    assert [row["n"] for row in rows] == [1, 2, 1]
    assert plain(rows) == plain(made.to_arrow(bundle_size=2).to_pylist())
    assert len(reports) > len(files)


def test_what_a_filter_leaves_empty_is_not_the_end(spark: Any, tmp_path: Path) -> None:
    """The files of one day are all that a micro-batch reads, and none of that day is wanted."""
    files = {f"day={day}/{day}.jsonl": lines(100 * day, 100 * day + 70) for day in (1, 2, 3)}
    folder = write(tmp_path / "in", files)
    frame = (
        spark.readStream.schema("at long, key string, day int")
        .option("maxFilesPerTrigger", 1)
        .json(str(folder))
        .where("day <> 2")
    )
    begun = lw.from_spark(frame, time="at", watermark=lw.BoundedDisorder("5s"))
    rows, _ = run(counted(begun).to_spark(spark, drain=True), tmp_path / "checkpoint")
    assert [row["n"] for row in rows] == [1, 1, 1, 1]


def test_more_after_the_end_is_an_error(spark: Any, tmp_path: Path) -> None:
    folder = write(tmp_path / "in", {"1.jsonl": lines(1, 70)})
    made = counted(lw.read_jsonl(folder, time="at", watermark=lw.BoundedDisorder("5s")))
    run(made.to_spark(spark, drain=True), tmp_path / "checkpoint")
    (folder / "2.jsonl").write_text(lines(200))
    with pytest.raises(Exception, match="more records came of a source after its input had ended"):
        run(made.to_spark(spark, drain=True), tmp_path / "checkpoint")


def test_a_session_without_a_last_micro_batch_is_refused(spark: Any, tmp_path: Path) -> None:
    folder = write(tmp_path / "in", {"1.jsonl": lines(1, 70)})
    made = counted(lw.read_jsonl(folder, time="at", watermark=lw.BoundedDisorder("5s")))
    spark.conf.set(NO_DATA, "false")
    try:
        with pytest.raises(lw.InvalidArgument, match=r"drain=True ends the input .* is false"):
            made.to_spark(spark, drain=True)
    finally:
        spark.conf.unset(NO_DATA)
