"""``lw.profile``: what it reads, what it prints, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lowwater as lw

TABLE = pa.table(
    {
        "at": pa.array([10, 12, 11, None, 20, 14], pa.timestamp("s", "UTC")),
        "came": pa.array([1, 2, 3, 4, 5, 6], pa.timestamp("s", "UTC")),
        "part": ["a", "a", "a", "a", "b", "b"],
    }
)
POLARS = pl.DataFrame(pl.from_arrow(TABLE))


def test_every_kind_of_data_has_the_same_profile(tmp_path: Path) -> None:
    path = tmp_path / "taps.parquet"
    pq.write_table(TABLE, path)
    wanted = lw.profile(TABLE, time="at", arrived="came", by="part")
    assert (wanted.records, wanted.invalid) == (5, {"null_time": 1})
    frames: list[Any] = [
        TABLE.to_pandas(), POLARS, POLARS.lazy(), path, str(path),
        {name: TABLE[name] for name in TABLE.column_names},
    ]  # fmt: skip
    for frame in frames:
        found = lw.profile(frame, time="at", arrived="came", by="part")
        assert found == wanted
        assert found.lags.tolist() == [0, 0, 0, 1_000_000, 6_000_000]


def test_it_prints_a_table_and_a_suggestion() -> None:
    found = lw.profile(TABLE, time="at", by="part", delays=["1s", "0s"], bundle_size=1)
    assert repr(found).splitlines() == [
        "5 records, 2 of them (40.00 %) behind an earlier one",
        "lag: p50 0s, p90 6s, p99 6s, p99.9 6s, max 6s",
        "1 invalid record left out: null_time 1",
        "delay  late  share",
        "0s        2  40.00 %",
        "1s        1  20.00 %",
        "group  records  p50  p99  max",
        "b            2  0s   6s   6s",
        "a            3  0s   1s   1s",
        "suggestion: watermark=BoundedDisorder('6s'): 0 late (0.00 %)",
    ]
    shown = found._repr_html_()
    assert "40.00 %" in shown
    assert "BoundedDisorder" in shown
    frame = found.to_frame()
    assert frame["late"].tolist() == [2, 1]
    assert frame["delay"].tolist() == [pd.Timedelta("0s"), pd.Timedelta("1s")]
    assert "bundle of 2 records" in repr(lw.profile(TABLE, time="at", bundle_size=2))


def test_nothing_to_profile() -> None:
    found = lw.profile(TABLE.slice(3, 1), time="at")
    assert repr(found).startswith("no record has a valid event time")
    assert (found.lag(1.0), found.delay(), found.late("0s"), found.suggestion.late) == (0, 0, 0, 0)
    assert "no record" in found._repr_html_()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"time": "ta"}, "'ta'"),
        ({"time": "at", "arrived": "cme"}, "'cme'"),
        ({"time": "at", "by": ["prt"]}, "'prt'"),
        ({"time": 3}, "time=3"),
        ({"time": "at", "arrived": 3}, "arrived=3"),
        ({"time": "at", "bundle_size": 0}, "bundle_size=0"),
        ({"time": "at", "delays": "1s"}, "is not a list of durations"),
        ({"time": "at", "delays": ["-1s"]}, "negative"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(lw.InvalidArgument, match=said):
        lw.profile(TABLE, **options)


def test_shares_and_delays_are_checked() -> None:
    found = lw.profile(TABLE, time="at")
    for wrong in (-0.1, 1.5, "half", True):
        with pytest.raises(lw.InvalidArgument, match="from 0 to 1"):
            found.delay(wrong)  # type: ignore[arg-type]
    with pytest.raises(lw.InvalidArgument, match="negative"):
        found.late(-1)
    with pytest.raises(lw.InvalidArgument, match="one length"):
        lw.profile({"at": [1, 2], "b": [1]}, time="at")
