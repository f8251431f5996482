"""Workers in the process of a test: what they are asked for, and answer, is packed all the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lowwater.engine.local.worker_messages import pack, unpack
from lowwater.engine.local.worker_pool import Hosted, Place, Workers


class SimulatedWorkers(Workers):  # type: ignore[misc]  # final
    """Workers in this process, each with parts of its own, which get and give bytes alone."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._each = [Workers(count) for _ in range(count)]

    def add(self, place: Place, made: Callable[[int], Hosted]) -> None:
        for each in self._each:
            each.add(place, made)

    def ask(
        self, place: Place, requests: Mapping[int, Any], *, is_trusted: bool = False
    ) -> list[Any]:
        return [
            unpack(pack(self._each[at]._answer(at, unpack(pack((place, *request))))))
            for at, request in requests.items()
        ]
