"""What ``fill`` goes with, what it says where it does not, and what comes out at real sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lowwater as lw

TABLE = pa.table(
    {
        "at": pa.array([0, 1, 200_000_000], pa.timestamp("us", "UTC")),
        "k": ["a", "b", "a"],
        "v": [1, 2, 2**53 + 1],
    }
)
MINUTE = lw.FixedWindows("1m")


def keyed() -> lw.KeyedStream:
    return lw.from_arrow(TABLE, time="at", watermark=lw.Ascending()).key_by("k")


class Nothing:
    def on_record(self, ctx: Any, record: Any) -> None:
        """Do nothing."""


REFUSED: dict[str, tuple[str, Callable[[], Any]]] = {
    "a number": ("not a number of windows", lambda: keyed().window(MINUTE, fill=2)),  # type: ignore[arg-type]
    "no windows": ("not a number of windows", lambda: keyed().window(MINUTE, fill="0 windows")),
    "a time": ("not a number of windows", lambda: keyed().window(MINUTE, fill="1h")),
    "too many": ("from 1 to 10_000", lambda: keyed().window(MINUTE, fill="10001 windows")),
    "never idle": ("not above zero", lambda: lw.until_idle("0s")),
    "sessions": ("not on a grid", lambda: keyed().window(lw.Sessions("1m"), fill="1 window")),
    "global": ("not on a grid", lambda: keyed().window(lw.GlobalWindow(), fill="1 window")),
    "counts": (
        "for windows of event time",
        lambda: keyed().window(lw.CountWindows(3), fill="1 window"),
    ),
    "a trigger": (
        "emits none there",
        lambda: keyed().window(
            MINUTE,
            trigger=lw.Repeatedly(lw.AfterCount(1)),
            accumulation="discarding",
            fill="1 window",
        ),
    ),
    "on time": (
        "on_time='if_new' emits none",
        lambda: keyed().window(MINUTE, on_time="if_new", fill="1 window"),
    ),
    "a process": ("fill", lambda: keyed().window(MINUTE, fill="1 window").process(Nothing())),
    "a key": (
        "a key cannot be called 'is_filled'",
        lambda: (
            lw.from_iterable([{"at": 0, "is_filled": 7}], time="at")
            .key_by("is_filled")
            .window(MINUTE, fill="1 window")
            .aggregate(n=lw.count())
        ),
    ),
    "too long": (
        "fills 525,600 windows behind",
        lambda: keyed().window(MINUTE, fill=lw.until_idle("365d")),
    ),
    "a name": (
        "is_filled",
        lambda: keyed().window(MINUTE, fill="1 window").aggregate(is_filled=lw.count()),
    ),
    "a join": (
        "joins nothing",
        lambda: lw.from_arrow(TABLE, time="at").join(
            lw.from_arrow(TABLE, time="at"),
            on="k",
            within=lw.Windowing(windows=MINUTE, fill="1 window"),
        ),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_refuses(name: str) -> None:
    what, make = REFUSED[name]
    with pytest.raises(lw.InvalidArgument, match=what) as caught:
        make()
    assert caught.value.hint


def test_the_option_is_a_value() -> None:
    idle = lw.until_idle("60m")
    assert eval(repr(idle), {"until_idle": lw.until_idle}) == idle == lw.until_idle("1h")
    windowing = lw.Windowing(windows=MINUTE, fill=" 2  windows ")
    assert windowing.fill == "2 windows"
    assert "fill='2 windows'" in repr(windowing)
    assert lw.Windowing(windows=MINUTE, fill="1 windows").fill == "1 window"


def test_it_is_shown() -> None:
    filled = keyed().window(MINUTE, fill="2 windows").aggregate(n=lw.count())
    assert "fill='2 windows'" in repr(filled)
    assert "is_filled()" not in repr(filled)
    assert "fills windows without records: 2 windows" in str(filled.explain())


def test_panes_say_which_windows_had_no_records() -> None:
    filled = keyed().window(MINUTE, fill="5 windows").aggregate(n=lw.count(), v=lw.max("v"))
    result = filled.collect(trace=True)
    rows = [(one.key, int(one.window.start) // 60_000_000, one.values) for one in result.panes]
    nothing = {"n": 0, "v": None, "is_filled": True}
    assert rows == [
        ("a", 0, {"n": 1, "v": 1, "is_filled": False}),
        ("b", 0, {"n": 1, "v": 2, "is_filled": False}),
        ("a", 1, nothing), ("b", 1, nothing), ("a", 2, nothing), ("b", 2, nothing),
        ("a", 3, {"n": 1, "v": 2**53 + 1, "is_filled": False}),
    ]  # fmt: skip
    assert result.to_arrow()["is_filled"].type == pa.bool_()
    explained = str(result.explain("a", "1970-01-01T00:01:30Z"))
    assert "it is filled, as one before it has some" in explained
    assert "no such window" not in explained
    assert "fill='5 windows' fills windows" in str(result.explain("a", "1970-01-01T01:00:00Z"))
    assert result.diagram() is not None
    behind = filled.filter(~lw.col("is_filled")).key_by("k").window(lw.FixedWindows("1h"))
    assert {one.key: one.value for one in behind.aggregate(panes=lw.count()).run()} == {
        "a": 2, "b": 1,
    }  # fmt: skip


def test_a_filled_window_closes_as_others_do() -> None:
    """Also one that fired on time before the input ended (S-O6)."""
    rows = [{"at": 0, "k": "a"}, {"at": 120_000_000, "k": "b"}]
    stream = lw.from_iterable(rows, time="at", watermark=lw.Ascending()).key_by("k")
    filled = stream.window(
        MINUTE, fill="1 window", allowed_lateness="1h", accumulation="accumulating",
        closing="always",
    )  # fmt: skip
    panes = filled.aggregate(n=lw.count()).collect(bundle_size=1).panes
    shown = [(one.key, int(one.window.start), one.timing, one.is_last) for one in panes]
    assert shown == [
        ("a", 0, "ON_TIME", False),
        ("a", 60_000_000, "ON_TIME", False),
        ("b", 120_000_000, "ON_TIME", True),
        ("a", 0, "LATE", True),
        ("a", 60_000_000, "LATE", True),
    ]


def test_a_quiet_day_is_filled_at_once() -> None:
    """5,000 windows of a key and an advance over all of them."""
    rows = [{"at": 0, "k": "a"}, {"at": 86_400_000_000, "k": "b"}]
    stream = lw.from_iterable(rows, time="at", watermark=lw.Ascending()).key_by("k")
    seconds = stream.window(lw.FixedWindows("1s"), fill="5000 windows").aggregate(n=lw.count())
    assert len(seconds.collect(bundle_size=1).panes) == 5_002


@pytest.mark.parametrize(
    ("bundle_size", "limit"),
    [
        (1_000, 17_000_000),
        (40_000, None),
        pytest.param(1_000, None, marks=pytest.mark.long(reason="repeats a proof with other data")),
        pytest.param(
            40_000, 17_000_000, marks=pytest.mark.long(reason="repeats a proof with other data")
        ),
    ],
)
def test_bundles_past_every_chunk(bundle_size: int, limit: int | None, tmp_path: Any) -> None:
    """40,000 records of 3,000 keys over two hours; each window of a known key has a pane."""
    random = np.random.default_rng(3)
    size, minute, most = 40_000, 60_000_000, 20
    times = np.sort(random.integers(0, 120 * minute, size))
    keys = random.integers(0, 3_000, size)
    table = pa.table({"at": pa.array(times, pa.timestamp("us", "UTC")), "k": keys})
    pq.write_table(table, tmp_path / "in.parquet")
    stream = lw.read_parquet(tmp_path / "in.parquet", time="at", watermark=lw.Ascending())
    filled = stream.key_by("k").window(MINUTE, fill=f"{most} windows").aggregate(n=lw.count())
    options = {} if limit is None else {"state": tmp_path / "state", "memory_limit": limit}
    if options:
        filled.write_parquet(tmp_path / "out").run(bundle_size=bundle_size, **options)
        found = pq.read_table(tmp_path / "out")
    else:
        found = filled.to_arrow(bundle_size=bundle_size)
    got = set(
        zip(
            found["k"].to_pylist(),
            (found["window_start"].cast(pa.int64()).to_numpy() // minute).tolist(),
            found["n"].to_pylist(),
            found["is_filled"].to_pylist(),
            strict=True,
        )
    )
    assert len(got) == found.num_rows
    passed = int(times[-1]) // minute  # the watermark passed what ends there
    wanted = set()
    for key in range(3_000):
        own = times[keys == key] // minute
        had = {int(at): int(n) for at, n in zip(*np.unique(own, return_counts=True), strict=True)}
        wanted |= {(key, at, n, False) for at, n in had.items()}
        last = max(had, default=0)
        behind = {at + more for at in had for more in range(1, most + 1)} - set(had)
        wanted |= {(key, at, 0, True) for at in behind if at < max(last, passed)}
    assert got == wanted
