"""Joins whose interval is in columns of the left side (J-14)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.engine.join.joining import Between
from lowwater.errors import InvalidArgument
from lowwater.testing import Scenario
from lowwater.time import DurationLike

BASE = dt.datetime(2026, 5, 4, 12, tzinfo=dt.UTC)
WITHIN = lw.between("opened", "closes", longest="1h")


def at(minutes: float) -> dt.datetime:
    return BASE + dt.timedelta(minutes=minutes)


def lefts(*rows: tuple[float, Any, Any]) -> list[dict[str, Any]]:
    return [
        {"at": at(time), "k": "a", "l": n, "opened": opened, "closes": closes}
        for n, (time, opened, closes) in enumerate(rows)
    ]


def rights(*times: float) -> list[dict[str, Any]]:
    return [{"at": at(time), "k": "a", "r": n} for n, time in enumerate(times)]


def pairs(
    left: Any, right: Any, within: Between = WITHIN, **options: Any
) -> tuple[list[tuple[Any, Any]], list[tuple[str, str]]]:
    """Return which records met, and the dead letters."""
    bad: list[tuple[str, str]] = []
    joined = left.join(right, on="k", within=within, **options)
    rows = joined.run(on_dead_letter=lambda one: bad.append((one.reason, one.detail)))
    return sorted((row.value["l"], row.value["r"]) for row in rows), bad


def source(rows: Sequence[dict[str, Any]], *, arrow: bool = False) -> lw.Stream:
    if arrow:
        return lw.from_arrow(pa.Table.from_pylist(list(rows)), time="at")
    return lw.from_iterable(rows, time="at")


@pytest.mark.parametrize("arrow", [False, True])
def test_both_ends_belong_to_it(arrow: bool) -> None:
    """J-14."""
    #   left at 0:    [ -10 ........ 20 ]
    #   right at    -11 -10      5    20  20.1
    left = source(lefts((0, at(-10), at(20))), arrow=arrow)
    right = source(rights(-11, -10, 5, 20, 20.1), arrow=arrow)
    assert pairs(left, right) == ([(0, 1), (0, 2), (0, 3)], [])


@pytest.mark.parametrize(
    ("within", "met"),
    [
        (lw.between("-5m", "closes", longest="1h"), [2, 3]),
        (lw.between("opened", "10m", longest="1h"), [1, 2]),
        (lw.between("opened", "closes", longest="20m"), [1, 2, 3]),
    ],
)
def test_a_difference_beside_a_column(within: Between, met: list[int]) -> None:
    """J-14."""
    left, right = source(lefts((0, at(-10), at(20)))), source(rights(-11, -10, 5, 20, 21))
    assert pairs(left, right, within) == ([(0, n) for n in met], [])


def test_an_interval_that_is_empty_meets_nothing() -> None:
    """J-14."""
    left, right = source(lefts((0, at(5), at(-5)))), source(rights(-5, 0, 5))
    assert pairs(left, right) == ([], [])
    assert sorted(
        (row.value["l"], row.value["r"])
        for row in left.join(right, on="k", within=WITHIN, how="left").run()
    ) == [(0, None)]


def test_bad_bounds_are_dead_letters() -> None:
    """J-14, S-B1."""
    left = source(
        lefts(
            (0, at(-61), at(0)), (0, at(0), at(60.1)), (0, None, at(0)), (0, at(0), "soon"),
            (0, at(-60), at(60)),
        )
    )  # fmt: skip
    found, bad = pairs(left, source(rights(0)))
    assert found == [(4, 0)]
    assert [reason for reason, _ in bad] == ["bad_bound"] * 4
    assert bad[0][1] == (
        "'opened', 2026-05-04T10:59:00Z, is more than longest='1h' from the event time "
        "2026-05-04T12:00:00Z"
    )
    assert "'opened' is null" in bad[2][1]


def test_bounds_come_out_as_they_came() -> None:
    """J-14: the columns of a record are not touched."""
    left = source(lefts((0, at(-10).isoformat(), at(20).isoformat())))
    (row,) = left.join(source(rights(1)), on="k", within=WITHIN).run()
    assert row.value["closes"] == at(20).isoformat()
    assert not [name for name in row.value if name.startswith("_")]


def test_numbers_are_in_the_unit_of_event_times() -> None:
    """J-14."""
    rows = [{"at": 100, "k": "a", "l": 0, "opened": 90, "closes": 120}]
    left = lw.from_iterable(rows, time="at", unit="s")
    right = lw.from_iterable(
        [{"at": t, "k": "a", "r": t} for t in (80, 95, 121)], time="at", unit="s"
    )
    assert pairs(left, right) == ([(0, 95)], [])


def test_many_records_of_one_key() -> None:
    """J-14: past internal chunks, with nulls on the way."""
    count = 20_000
    closes = [None if n % 100 == 7 else at((n + 2) / 60) for n in range(count)]
    left = lefts(*((n / 60, at(n / 60), closes[n]) for n in range(count)))
    right = rights(*((n + 0.5) / 60 for n in range(count)))
    found, bad = pairs(source(left, arrow=True), source(right, arrow=True))
    kept = [n for n in range(count) if n % 100 != 7]
    wanted = [(n, m) for n in kept for m in (n, n + 1) if m < count]
    assert found == wanted
    assert len(bad) == count - len(kept)


def test_panes_bound_by_their_windows() -> None:
    """J-14: the ends may be the columns of panes."""
    counts = (
        source(rights(0, 1, 7)).key_by("k").window(lw.FixedWindows("5m")).aggregate(n=lw.count())
    )
    within = lw.between("window_start", "window_end", longest="5m")
    joined = counts.join(source(rights(0, 1, 7)), on="k", within=within)
    assert sorted((row.value["n"], row.value["r"]) for row in joined.run()) == [
        (1, 2), (2, 0), (2, 1),
    ]  # fmt: skip


def test_state_is_released() -> None:
    """J-3, J-14: a left record an hour after it, a right one likewise; then nothing is kept."""
    scenario = (
        Scenario("left", "right", start=at(0))
        .add((0, at(0), "a", {"opened": at(-10), "closes": at(5)}), to="left")
        .add((1, at(1), "a"), to="right")
        .watermark(at(60))
        .watermark(at(60.1))
        .watermark(at(61.1))
        .end()
    )
    run = scenario.run_pipeline(lambda left, right: left.join(right, on="key", within=WITHIN))
    assert [step.state_rows for step in run.steps] == [1, 2, 2, 1, 0, 0]


@pytest.mark.parametrize(
    ("low", "high", "longest", "message"),
    [
        ("opened", "1h", None, "low='opened' .*declare longest="),
        ("1h", "closes", None, "high='closes' .*declare longest="),
        ("1m", "1h", "1d", "is for columns of instants, and both ends are durations"),
        ("2d", "closes", "1d", "is empty"),
        ("opened", "-2d", "1d", "is empty"),
        ("opened", "closes", "0s", "longest='0s' .* longer than zero"),
        ("", "closes", "1d", "low=''"),
    ],
)
def test_what_makes_no_sense_is_refused(
    low: DurationLike, high: DurationLike, longest: DurationLike | None, message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        lw.between(low, high, longest=longest)


def test_a_column_that_is_not_there_is_named() -> None:
    left, right = source(lefts((0, at(0), at(1)))), source(rights(0))
    with pytest.raises(InvalidArgument, match=r"no column 'closed'.*closes"):
        left.join(right, on="k", within=lw.between("opened", "closed", longest="1h"))
