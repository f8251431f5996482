"""The rows of several outputs, taken apart."""

from __future__ import annotations

from typing import Any

import pytest

import lowwater as lw
from lowwater.errors import InvalidArgument
from lowwater.spark import split
from tests.spark.test_to_spark import plain, table


def outputs() -> tuple[lw.Pipeline, lw.Pipeline]:
    begun = lw.from_arrow(table(200), time="at")
    counts = begun.key_by("key").window(lw.FixedWindows("1m")).aggregate(n=lw.count())
    counts = counts.named("counts")
    again = counts.key_by("key").window(lw.FixedWindows("1h"))
    return counts, again.aggregate(most=lw.max("n")).named("most")


def ordered(row: dict[str, Any]) -> dict[str, Any]:
    return dict(sorted(row.items()))


def test_each_output_has_its_own_columns_and_rows(spark: Any) -> None:
    """They are computed once, and then forgotten."""
    counts, most = outputs()
    frame = lw.to_spark(spark, counts, most)
    assert frame.columns[0] == "output"
    assert {"n", "most"} <= set(frame.columns)
    with split(frame) as rows:
        assert list(rows) == ["counts", "most"]
        for name, pipeline in (("counts", counts), ("most", most)):
            found = rows[name].toArrow().to_pylist()
            wanted = pipeline.to_arrow().drop_columns(["weight"]).to_pylist()
            assert found[0].keys() == wanted[0].keys()
            assert plain(map(ordered, found)) == plain(map(ordered, wanted))
        assert frame.is_cached
        with pytest.raises(InvalidArgument, match=r"no output 'counted'.*counts"):
            rows["counted"]
    assert not frame.is_cached


def test_rows_that_do_not_say_what_they_are_of_are_refused(spark: Any) -> None:
    counts, _ = outputs()
    with (
        pytest.raises(InvalidArgument, match="do not say which output"),
        split(counts.to_spark(spark)),
    ):
        pass
