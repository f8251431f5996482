"""What a new user's first mistakes are answered with: the place, and the fix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lowwater as lw

ROWS = [
    {"at": "2024-01-01T00:00:00Z", "k": "a", "v": 1},
    {"at": "2024-01-01T00:00:05Z", "k": "a", "v": 2},
]


def stream() -> Any:
    return lw.from_iterable(ROWS, time="at")


def counts(of: Any) -> Any:
    return of.key_by("k").window(lw.FixedWindows("1m")).aggregate(n=lw.count())


def refused(call: Any) -> str:
    with pytest.raises(lw.LowwaterError) as error:
        call()
    return str(error.value)


@pytest.mark.parametrize("function", [lambda row: {"k": row["k"]}, lambda row: row["k"]])
def test_a_map_that_drops_the_event_time(function: Any) -> None:
    text = refused(lambda: counts(stream().map(function).map(lambda row: {"k": "a"})).collect())
    assert "the records have no column 'at', which is to be their event time (at map)" in text
    assert "return {**record, ...}" in text


def test_a_missing_argument_names_what_is_needed() -> None:
    text = refused(lambda: stream().join(stream(), on="k"))
    assert text.endswith("Write join(other=..., on=..., within=...)")
    text = refused(lambda: lw.from_iterable(ROWS))  # type: ignore[call-overload]
    assert text.endswith("Write from_iterable(items=..., time=...)")


def test_a_run_is_iterated_once() -> None:
    run = counts(stream()).run(progress=False)
    assert len(list(run)) == 1
    assert "keeps nothing of what it gave" in refused(lambda: list(run))
    with pytest.raises(StopIteration):
        next(run)


@pytest.mark.parametrize("kind", [float, "float64"])
def test_types_of_python(kind: Any, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("at,k,v\n2024-01-01,a,1.5\n2024-01-01,a,x\n")
    read = lw.read_csv(tmp_path / "x.csv", time="at", timezone="UTC", types={"v": kind})
    result = read.collect(progress=False, on_error="dead_letter")
    assert [row["v"] for row in result.values()] == [1.5]
    assert len(result.errors) == 1
    assert "is not a type" in refused(
        lambda: lw.read_csv(tmp_path / "x.csv", time="at", types={"v": list})
    )


def test_text_where_numbers_are_needed_names_the_option(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("at,k,v\n2024-01-01T00:00:00Z,a,1\n2024-01-01T00:00:01Z,a,x\n")
    windows = lw.read_csv(tmp_path / "x.csv", time="at").key_by("k").window(lw.FixedWindows("1m"))
    text = refused(lambda: windows.aggregate(n=lw.sum("v")).collect(progress=False))
    assert 'types={"v": "float64"}' in text


def test_an_output_says_that_nothing_is_written_yet(tmp_path: Path) -> None:
    writing = counts(stream()).write_parquet(tmp_path / "out")
    assert "nothing is written before .run()" in repr(writing)
    assert not (tmp_path / "out").exists()


def test_profile_without_a_time(tmp_path: Path) -> None:
    assert "time=" in refused(lambda: lw.profile(str(tmp_path / "x.csv")))  # type: ignore[call-arg]
