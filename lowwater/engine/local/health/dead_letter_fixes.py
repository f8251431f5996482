"""What to do about dead letters: one concrete fix for each reason, in the user's columns."""

from __future__ import annotations

import re

from lowwater.engine.records.admit_words import HAS_NO_WORD
from lowwater.engine.records.calls import FUNCTION_FAILED, NULL_RECORD
from lowwater.engine.records.evaluation import BAD_EXPRESSION
from lowwater.engine.records.explode import NOT_A_LIST
from lowwater.engine.records.storable import UNSTORABLE

_UNIT = 'Name the unit of times that are numbers, as in unit="s" for seconds'
_ZONE = 'Name the time zone of times that have none, as in timezone="UTC"'
_FILL = "Fill the column, or filter such records out before"
_FIXES = {
    "bad_time": "Convert the times first, to ISO-8601 text with an offset or to aware datetimes",
    "null_time": "Name the column of event times with time=, or filter such records out before",
    "time_out_of_range": _UNIT,
    "too_far_ahead": f"{_UNIT}, or raise max_ahead=",
    "null_key": _FILL,
    "null_id": _FILL,
    NULL_RECORD: "Return a record from map, such as {**record, 'total': 1} (is there a "
    "`return`?); to leave records out, use filter, or flat_map with an empty list",
    BAD_EXPRESSION: "Correct the expression, or what it reads: convert the column first, as in "
    ".map(...), or fill it",
    NOT_A_LIST: "Make it a list before, as in .map(lambda row: row | {{{0}: [row[{0}]]}})",
    FUNCTION_FAILED: "Fix the function, or filter such records out before",
    "wrong_type": "Convert the column first, as in "
    ".map(lambda row: row | {{{0}: float(row[{0}])}})",
    UNSTORABLE: "Make it numbers, text, bytes, times, or lists, tuples, sets and dicts of these, "
    "as in .map(lambda row: row | {{{0}: str(row[{0}])}})",
    "nan": "Filter such records out before, as in .filter(lambda row: row[{0}] == row[{0}])",
    "bad_window": "Declare a longer window with longest=, or correct the bounds",
    "bad_bound": "Declare longest= longer, or correct the bound",
    "bad_gap": "Give each record a gap above zero",
    "malformed_csv": 'Check the header, and name the delimiter, as in delimiter=";"',
    "malformed_json": "Check that each line holds one JSON object",
    "malformed_arrow": "Write each value as an Arrow stream (pyarrow.ipc.new_stream)",
    "malformed_key": "Leave out key=, or write keys as UTF-8 text",
    "tombstone": 'Name a column that tells such messages apart, as in tombstone="deleted", '
    'timestamp="at", time="at"',
    "unreadable_object": "Rename such objects, or pass filesystem= of fsspec, such as "
    "s3fs.S3FileSystem()",
    "undecodable": "Correct the function that is given as value=",
}
_NAMED = re.compile(r"(?:the [a-z ]+)?'(.+?)' is |(.+?)=")
_A_NUMBER = re.compile(r"='[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?'")
_NOT_READ = re.compile(r"=('.*'|None) is not (u?int\d*|float|double|bool|date|timestamp|decimal)")


def fix_for(reason: str, example: str, time: str = "") -> str:
    """Return one concrete fix for a reason, as far as its example tells more.

    Args:
        reason: The reason of the dead letters.
        example: What is wrong with one of them; it begins with the value or names the column.
        time: The column of event times, where a source is read.
    """
    if reason == "wrong_type" and example.startswith(("where=", "define=", "without=")):
        return 'Compare something in the condition, as in lw.col("price") < 10'
    found = _NAMED.match(example)
    column = "value" if found is None else found[1] or found[2]
    quoted = f'"{column}"'
    is_number = _A_NUMBER.match(example, len(column)) is not None
    is_not_read = reason == "wrong_type" and _NOT_READ.match(example, len(column)) is not None
    if is_number and is_not_read and column == time:
        return _UNIT
    if is_number and reason == "bad_time":
        return (
            f"Make the times numbers, as in .map(lambda row: row | {{{quoted}: "
            f'float(row[{quoted}])}}), and name their unit, as in unit="s" for seconds'
        )
    if is_not_read:
        return f'Read the column as text, as in types={{{quoted}: "string"}}, and convert it later'
    if reason == "bad_time" and "has no time zone" in example:
        return _ZONE
    if reason == "bad_time" and "(float) is not an instant" in example:
        return _UNIT
    if HAS_NO_WORD in example:
        return (
            "Make its items text, as in "
            f".map(lambda row: row | {{{quoted}: [str(word) for word in row[{quoted}]]}})"
        )
    if reason == "wrong_type" and "cannot be a" in example:
        return (
            "Make it a plain value first, as in "
            f".map(lambda row: row | {{{quoted}: tuple(row[{quoted}])}})"
        )
    fix = _FIXES.get(reason, "Fix such records, or filter them out before")
    return fix.format(quoted) if "{0}" in fix else fix
