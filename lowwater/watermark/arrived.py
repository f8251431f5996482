"""The watermark of event times that are times of arrival: the clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from lowwater.time import START_OF_TIME, Int64Array
from lowwater.watermark.estimators import EstimatorState
from lowwater.watermark.observed import Observed


@final
@dataclass(frozen=True, slots=True)
class ArrivedUntil:
    """The watermark is the clock: what arrives later has a later time, or the same one.

    Readers set it with ``time=lw.arrival()``.
    """

    def start(self) -> EstimatorState:
        return _Clock()

    def telling(self, observed: Observed) -> Int64Array:
        return np.zeros(0, dtype=np.int64)


@final
class _Clock:
    def __init__(self) -> None:
        self._at = START_OF_TIME

    def observe(self, observed: Observed) -> None:
        """Ignore the bundle: the clock alone tells."""

    def current(self, clock: int) -> int:
        self._at = max(self._at, clock)
        return self._at

    def remember(self) -> Mapping[str, int]:
        return {"arrived": self._at}

    def resume(self, known: Any) -> None:
        if isinstance(known, dict) and "arrived" in known:
            self._at = max(self._at, known["arrived"])
