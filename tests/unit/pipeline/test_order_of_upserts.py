"""A version column that goes back is a warning, once there are 1,000 upserts (T-1)."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import lowwater as lw

START = 946_684_800_000_000


def upserts(count: int, step: int) -> lw.Table[lw.Stream]:
    records = [{"at": START + at, "k": at % 10, "version": step * at} for at in range(count)]
    return lw.from_iterable(records, time="at").table(key="k", order="version")


def test_it_is_a_warning() -> None:
    with pytest.warns(lw.DataWarning, match="990 of the first 1,000 upserts were superseded"):
        rows = upserts(1_000, -1).rows()
    assert len(rows) == 10


@pytest.mark.parametrize(("count", "step"), [(999, -1), (1_000, 1), (3_000, 1)])
def test_it_is_none_of_few_or_of_sound_upserts(count: int, step: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(upserts(count, step).rows()) == 10


def test_a_run_that_resumes_does_not_judge_again(tmp_path: Path) -> None:
    records = [{"at": START + at, "k": 0, "version": -at} for at in range(1_500)]
    lw.from_iterable(records, time="at").write_jsonl(tmp_path / "in").run()
    stream = lw.read_jsonl(tmp_path / "in", time="at")
    table = stream.select("at", "k", "version").table(key="k", order="version")
    writing = table.changes().write_jsonl(tmp_path / "out")
    with pytest.warns(lw.DataWarning, match="were superseded"):
        writing.run(state=tmp_path / "state")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        writing.run(state=tmp_path / "state")
