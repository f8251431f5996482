"""What to do about dead letters: one concrete fix for each reason."""

from __future__ import annotations

_UNIT = 'Name the unit of times that are numbers, as in unit="s" for seconds'
_ZONE = 'Name the time zone of times that have none, as in timezone="UTC"'
_FIXES = {
    "bad_time": "Convert the times first, to ISO-8601 text with an offset or to aware datetimes",
    "null_time": "Name the column of event times with time=, or filter such records out before",
    "time_out_of_range": _UNIT,
    "too_far_ahead": f"{_UNIT}, or raise max_ahead=",
    "null_key": "Fill the column, or filter such records out before",
    "null_id": "Fill the column, or filter such records out before",
    "wrong_type": "Convert the column first, as in "
    '.map(lambda row: row | {"price": float(row["price"])})',
    "nan": "Filter such records out before, as in .filter(lambda row: row[...] == row[...])",
    "bad_gap": "Give each record a gap above zero",
    "malformed_csv": 'Check the header, and name the delimiter, as in delimiter=";"',
    "malformed_json": "Check that each line holds one JSON object",
}


def fix_for(reason: str, example: str) -> str:
    """Return one concrete fix for a reason, as far as its example tells more."""
    if reason == "bad_time" and "has no time zone" in example:
        return _ZONE
    if reason == "bad_time" and "(float) is not an instant" in example:
        return _UNIT
    if reason == "wrong_type" and "cannot be a" in example:
        return (
            'Make it a plain value first, as in .map(lambda row: row | {"key": tuple(row["key"])})'
        )
    return _FIXES.get(reason, "Fix such records, or filter them out before")
