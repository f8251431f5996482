"""Dead letters on their way through Spark, as an Arrow table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from lowwater.engine.records.panes import ErrorRecord

DEAD_LETTERS = pa.schema(
    [("reason", pa.string()), ("detail", pa.string()), ("record", pa.string())]
)


def dead_letters_to_arrow(dead_letters: Sequence[ErrorRecord]) -> pa.Table:
    """Return dead letters as a table; each record is JSON."""
    return pa.table(
        {
            "reason": [letter.reason for letter in dead_letters],
            "detail": [letter.detail for letter in dead_letters],
            "record": [record_text(letter.record) for letter in dead_letters],
        },
        schema=DEAD_LETTERS,
    )


def record_text(record: Any) -> str:
    """Return a record as JSON; what JSON has no form for becomes text."""
    return json.dumps(record, default=str)
