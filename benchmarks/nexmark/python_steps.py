"""What queries do in Python, a record at a time."""

from __future__ import annotations

import re
from typing import Any

Record = dict[str, Any]

HOURS = {
    hour: "dayTime" if 8 <= hour <= 18 else "nightTime" if hour <= 6 or hour >= 20 else "otherTime"
    for hour in range(24)
}


_KNOWN = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}


def channel_id(bid: Record) -> Record:
    found = re.search("(&|^)channel_id=([^&]*)", bid["url"])
    return {**bid, "channel_id": _KNOWN.get(bid["channel"].lower(), found and found[2])}
