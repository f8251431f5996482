"""A checkpoint of another pipeline is refused before the query starts, if it is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lowwater as lw
from lowwater.errors import InvalidArgument, StateError
from tests.examples import sampled
from tests.spark.test_to_spark import cut, run, table, write


def counted(folder: Path, size: str, levels: int, *, seconds: int = 5) -> Any:
    source = lw.read_parquet(folder, time="at", watermark=lw.BoundedDisorder(f"{seconds}s"))
    made = source.key_by("key").window(lw.FixedWindows(size)).aggregate(n=lw.count())
    if levels == 2:
        made = made.key_by("n").window(lw.FixedWindows("1h")).aggregate(m=lw.count())
    return made


@pytest.mark.parametrize(
    ("levels", "state"),
    sampled(
        [pytest.param(levels, state) for levels in (1, 2) for state in ("auto", "inline")], every=4
    ),
)
def test_a_changed_pipeline_is_refused_though_there_is_nothing_to_read(
    spark: Any, tmp_path: Path, levels: int, state: str
) -> None:
    folder = write(tmp_path / "in", *cut(table(100), 50))
    options: dict[str, Any] = {"checkpoint": tmp_path / "checkpoint", "state": state}
    if state == "auto":
        options["state_location"] = tmp_path / "state"
    first = counted(folder, "1m", levels).to_spark(spark, **options)  # there is none yet
    rows, _ = run(first, tmp_path / "checkpoint")
    assert rows
    again = counted(folder, "1m", levels, seconds=9).to_spark(spark, **options)  # it may change
    assert run(again, tmp_path / "checkpoint")[0] == []
    with pytest.raises(StateError, match="belongs to another pipeline") as raised:
        counted(folder, "2m", levels).to_spark(spark, **options)
    assert "begin with a new checkpoint" in str(raised.value.hint)
    with pytest.raises(StateError, match="in 8 key groups, not 4"):
        counted(folder, "1m", levels).to_spark(spark, key_groups=4, **options)


def test_what_is_no_checkpoint_is_said(spark: Any, tmp_path: Path) -> None:
    made = counted(write(tmp_path / "in", table(10)), "1m", 1)
    own: dict[str, Any] = {"operator": "mapInArrow", "state_location": tmp_path}
    with pytest.raises(InvalidArgument, match="reads the state store of Spark"):
        made.to_spark(spark, checkpoint=tmp_path, **own)
    (tmp_path / "odd" / "commits").mkdir(parents=True)
    (tmp_path / "odd" / "commits" / "0").write_text("v1\n{}")
    with pytest.raises(StateError, match="the checkpoint cannot be read"):
        made.to_spark(spark, checkpoint=tmp_path / "odd")
