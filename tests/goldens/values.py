"""Values of every kind that can be stored: in keys, cells, tags of timers and accumulators."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np

import lowwater as lw

STORED = Path(__file__).parent / "values.json"
_BERLIN = ZoneInfo("Europe/Berlin")
VALUES: Mapping[str, Any] = {
    "null": None,
    "true": True,
    "small int": -1,
    "int": 2**53 + 1,
    "long": 2**63,
    "longest": 2**64 - 1,
    "huge": -(10**30),
    "float": 0.1,
    "infinite": -float("inf"),
    "text": "ä\N{SNOWMAN}\x00",
    "long text": "x" * 300,
    "bytes": b"\x00\xff",
    "list": [1, "a", None, [2.5]],
    "tuple": (1, ("x", b"y"), ()),
    "dict": {"a": 1, ("t", 2): [3], None: {}},
    "set": {3, 1, "b"},
    "frozenset": frozenset({(1, 2), "c"}),
    "date": dt.date(2024, 2, 29),
    "time": dt.time(23, 59, 59, 999_999),
    "time with offset": dt.time(1, 2, tzinfo=dt.UTC),
    "datetime": dt.datetime(1969, 12, 31, 23, 59, 59, 1),  # noqa: DTZ001  # keys may be so
    "instant": dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC),
    "with offset": dt.datetime(2024, 5, 1, tzinfo=dt.timezone(dt.timedelta(hours=-3, minutes=-30))),
    "in a zone": dt.datetime(2024, 10, 27, 2, 30, tzinfo=_BERLIN),
    "second time": dt.datetime(2024, 10, 27, 2, 30, tzinfo=_BERLIN, fold=1),
    "timedelta": dt.timedelta(days=-1, microseconds=1),
    "decimal": Decimal("1.50"),
    "decimal exponent": Decimal("-1E+30"),
    "uuid": UUID(int=2**127 + 5),
    "micros": lw.Instant(-1),
    "nanoseconds": np.datetime64("2024-05-01T12:00:00.000000001"),
    "duration of numpy": np.timedelta64(5, "ns"),
    "numpy int": np.int16(7),
    "nested": {"a": [({"b": {Decimal(1): dt.date(1, 1, 1)}}, frozenset({None}))]},
}
