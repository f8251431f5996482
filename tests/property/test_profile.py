"""``lw.profile`` foretells exactly which records a run finds late."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
from hypothesis import given

import lowwater as lw
from tests.examples import examples

EXAMPLES = examples(2)
SECOND = 1_000_000


def late_in_a_run(table: pa.Table, delay: int, size: int) -> int:
    """Return how many records a run finds late: a window of a microsecond expires with its time."""
    counts = (
        lw.from_arrow(table, time="at", watermark=lw.BoundedDisorder(delay))
        .key_by("k")
        .window(lw.FixedWindows(1))
        .aggregate(n=lw.count())
    )
    result = counts.collect(
        bundle_size=size, clock=lw.ManualClock(0), progress=False, on_error="dead_letter"
    )
    return result.metrics.late.total()


@given(
    st.lists(st.one_of(st.none(), st.integers(-30, 30)), min_size=1, max_size=60),
    st.integers(0, 40),
    st.integers(1, 12),
    st.integers(1, 30),
    st.booleans(),
)
@EXAMPLES
def test_as_many_are_late_as_in_a_run(
    seconds: list[int | None], delay: int, size: int, chunk: int, by: bool
) -> None:
    times = pa.array(
        [None if at is None else at * SECOND for at in seconds], pa.timestamp("us", "UTC")
    )
    keys = pa.array(["a" if at % 3 else "b" for at in range(len(seconds))])
    whole = pa.table({"at": times, "k": keys})
    table = pa.concat_tables([whole.slice(at, chunk) for at in range(0, len(whole), chunk)])
    found = lw.profile(
        table, time="at", bundle_size=size, delays=[f"{delay}s"], by="k" if by else ()
    )
    wanted = late_in_a_run(table, delay * SECOND, size)
    assert found.late(f"{delay}s") == found.rows[0].late == wanted
    assert found.records == sum(at is not None for at in seconds)
    assert sum(found.invalid.values()) == sum(at is None for at in seconds)
    share = delay / 40
    shortest = found.delay(share)
    allowed = share * found.records + 1e-9
    assert late_in_a_run(table, shortest, size) <= allowed
    assert shortest == 0 or late_in_a_run(table, shortest - 1, size) > allowed
    for group in found.groups:
        own = table.filter(pa.compute.equal(table["k"], group.key))
        alone = lw.profile(own, time="at")
        assert (group.records, group.most) == (alone.records, alone.lag(1.0))
        assert (group.p50, group.p99) == (alone.lag(0.5), alone.lag(0.99))


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.one_of(st.none(), st.integers(0, 9))),
        min_size=1,
        max_size=40,
    ),
    st.integers(0, 20),
    st.integers(1, 9),
)
@EXAMPLES
def test_records_are_taken_in_order_of_arrival(
    rows: list[tuple[int, int | None]], delay: int, size: int
) -> None:
    def column(values: list[Any]) -> pa.Array:
        micros = [None if value is None else value * SECOND for value in values]
        return pa.array(micros, pa.timestamp("us", "UTC"))

    table = {"at": column([at for at, _ in rows]), "came": column([came for _, came in rows])}
    found = lw.profile(table, time="at", arrived="came", bundle_size=size)
    known = sorted((row for row in rows if row[1] is not None), key=lambda row: row[1] or 0)
    assert found.invalid.get("invalid_arrival", found.invalid.get("null_time", 0)) == len(
        rows
    ) - len(known)
    assert found.records == len(known)
    if known:
        arrived = pa.table({"at": column([at for at, _ in known]), "k": ["a"] * len(known)})
        assert found.late(f"{delay}s") == late_in_a_run(arrived, delay * SECOND, size)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=50))
@EXAMPLES
def test_quantiles_are_those_of_numpy(seconds: list[int]) -> None:
    found = lw.profile({"at": seconds}, time="at", unit="s")
    lags = np.maximum(np.maximum.accumulate(seconds) - np.array(seconds), 0) * SECOND
    for share in (0.0, 0.1, 0.5, 0.9, 0.99, 1.0):
        assert found.lag(share) == np.quantile(lags, share, method="inverted_cdf")
    assert found.rows[-1].late == 0
    assert found.suggestion.share <= 0.001
