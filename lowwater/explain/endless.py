"""Tells whether a source ends by itself."""

from __future__ import annotations

from typing import Any

from lowwater.engine.graph.graph import Read
from lowwater.io.follow import Follow


def is_endless(read: Read, *, goes_on: bool = False) -> bool:
    """Whether a source never ends by itself: because it follows new data, or declares it.

    One that follows new data until ``stop`` or ``max_idle`` does end.

    Args:
        read: The source.
        goes_on: Whether runs end with what is there and leave the input open: then only a source
            with ``ends=True`` ends.
    """
    if goes_on:
        return not read.ends
    source: Any = read.source
    follow = getattr(source, "follow", None)
    if isinstance(follow, Follow):
        return follow.max_idle_us is None and follow.stop is None
    return bool(follow) or getattr(source, "endless", False) is True
