"""The demo, over the first flights of the year."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lowwater import demo


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    return demo.load_flights()


def test_flights_come_in_the_order_of_landing(flights: pa.Table) -> None:
    assert len(flights) == 336_776
    assert flights["departed"].null_count == 8_255
    assert flights["landed"].null_count == 0
    landed = flights["landed"].combine_chunks().cast(pa.int64())
    assert pc.all(pc.greater_equal(landed[1:], landed[:-1])).as_py()


@pytest.mark.slow
def test_the_demo_shows_all_and_its_check_holds(
    flights: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = flights.slice(0, 15_000)
    monkeypatch.setattr(demo, "load_flights", lambda: first)
    out = io.StringIO()
    assert demo.demo(out)
    text = out.getvalue()
    for shown in (
        "EARLY",
        "ON_TIME",
        "LATE",
        "aircraft",
        "null_time",
        "every count and every mean",
    ):
        assert shown in text
    assert "= 15,000 flights" in text
