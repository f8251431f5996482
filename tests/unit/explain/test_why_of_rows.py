"""``why`` of a row of a pandas DataFrame."""

from __future__ import annotations

import pandas as pd
import pytest

import lowwater as lw

TAPS = pd.DataFrame(
    {
        "at": ["2024-05-01T12:00:10Z", "2024-05-01T12:00:40Z", "2024-05-01T12:01:20Z"],
        "shop": ["a", "b", "a"],
        "price": [5.0, None, 2.0],
    }
)


def _traced() -> lw.Result:
    stream = lw.from_pandas(TAPS, time="at").key_by("shop")
    counts = stream.window(lw.FixedWindows("1m")).aggregate(n=lw.count())
    return counts.collect(trace=True, clock=lw.ManualClock("2024-05-01T13:00:00Z"))


@pytest.mark.parametrize("row", [0, 1, 2])
def test_a_row_is_found_by_its_fields(row: int) -> None:
    found = _traced().why(TAPS.iloc[row])
    assert [element.time for element in found.elements] == [lw.instant(TAPS["at"][row])]


def test_a_table_is_not_one_record() -> None:
    with pytest.raises(lw.InvalidArgument, match="DataFrame with 3 rows"):
        _traced().why(TAPS)


def test_a_row_of_a_result_is_a_pane() -> None:
    result = _traced()
    said = repr(result.why(result.to_pandas().iloc[1]))
    assert "is a row of a result" in said
    assert "explain(key, window)" in said


def test_a_row_with_an_unknown_column_names_it() -> None:
    row = TAPS.iloc[0].rename({"price": "cost"})
    assert "no record has 'cost'" in repr(_traced().why(row))
