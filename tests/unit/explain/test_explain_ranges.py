"""What explanations say of values over rows: the range, the result, and what corrected it."""

from __future__ import annotations

from typing import Any

import lowwater as lw

READINGS = ((0, 0), (1, 1), (5, 25), (9, 81), (4, 16), (12, 144), (20, 400), (3, 9))


def run(**options: Any) -> lw.Result:
    rows = [{"at": f"2000-01-01T12:{at:02}:00Z", "v": v, "k": "A"} for at, v in READINGS]
    stream = lw.from_iterable(rows, time="at", watermark=lw.BoundedDisorder("2m")).key_by("k")
    moving = stream.over("5m", mean=lw.mean("v"), n=lw.count(), allowed_lateness="6m")
    return moving.collect(bundle_size=1, **{"trace": True, **options})


def test_a_row_whose_result_was_corrected() -> None:
    text = str(run().why({"v": 25}))
    assert "its range: rows after 12:00:00 up to 12:05:00" in text
    assert "the watermark passed it: mean=13.0, n=2" in text
    assert "corrected by a late row of 12:04:00: mean=14.0, n=3" in text


def test_a_late_row() -> None:
    text = str(run().why({"v": 16}))
    assert "it came out late: mean=5.66667, n=3" in text
    assert "its bundle corrected the results of 1 other row" in text


def test_a_row_that_was_too_late() -> None:
    text = str(run().why({"v": 9}))
    assert "dropped (too_late)" in text
    assert "range" not in text


def test_the_rows_of_a_key_between_two_instants() -> None:
    result = run()
    found = result.explain("A", ("2000-01-01T12:04Z", "2000-01-01T12:06Z"))
    assert [element.values["v"] for element in found.elements] == [25, 16]
    assert "mean=14.0, n=3" in str(found)
    assert "no row of this key came there; it has 7 rows" in str(
        result.explain("A", "2000-01-01T12:07Z")
    )
    assert "it has 0 rows" in str(result.explain("B", "2000-01-01T12:07Z"))


def test_a_sample_cannot_tell() -> None:
    text = str(run(trace=lw.Tracing(limit=4)).explain("A", "2000-01-01T12:05Z"))
    assert "only a sample of the elements" in text


def test_retracted_rows() -> None:
    rows = [{"at": f"1970-01-01T00:{at}Z", "k": "A"} for at in ("00:00", "00:01", "01:10", "00:02")]
    panes = (
        lw.from_iterable(rows, time="at", watermark=lw.Ascending())
        .key_by("k")
        .window(lw.FixedWindows("1m"), accumulation="retracting", allowed_lateness="1h")
        .aggregate(n=lw.count())
        .to_stream()
        .select("k", "n")
    )
    moving = panes.key_by("k").over("5m", total=lw.sum("n")).named("moving")
    result = moving.collect(bundle_size=1, trace=True)
    text = str(result.explain("A", ("1970-01-01T00:00Z", "1970-01-01T00:02Z"), stage="moving"))
    assert "the watermark passed it: 2" in text
    assert "it was retracted" in text
    assert "it came out late: 3" in text
