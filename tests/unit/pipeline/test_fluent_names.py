"""Outputs with steps behind a stage have names."""

from __future__ import annotations

import pytest

import lowwater as lw


def counts() -> lw.Pipeline:
    rows = [{"at": 1, "k": 1}]
    stream = lw.from_iterable(rows, time="at", unit="s").named("clicks")
    return stream.key_by("k").window(lw.FixedWindows("1h")).aggregate(n=lw.count()).named("counts")


def test_a_stream_behind_a_stage_is_named_as_an_output() -> None:
    made = counts().filter(lw.col("n") > 0).select("k", "n").named("bought")
    result = made.collect(progress=False)
    assert list(result.metrics.stages) == ["counts", "bought"]
    assert [row["n"] for row in result.values()] == [1]


def test_a_stream_with_steps_is_named_as_an_output_and_its_source_keeps_its_name() -> None:
    rows = [{"at": 1, "k": 1}]
    stream = lw.from_iterable(rows, time="at", unit="s").named("clicks").filter(lw.col("k") > 0)
    made = stream.named("some")
    assert list(made.collect(progress=False).metrics.stages) == ["some"]
    assert [flow.origin.name for flow in made._flows] == ["clicks"]


def test_a_name_behind_a_stage_must_be_one() -> None:
    with pytest.raises(lw.InvalidArgument, match="is not a name"):
        counts().select("k").named("")
