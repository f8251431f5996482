"""Workers in the process of a test: what they are asked for, and answer, is packed all the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

# They take the name of the real pool when they are imported, which a run does at its first use of
# workers: by then a substitute may stand in its place.
from lowwater.engine.local import parted_process as _parted_process  # noqa: F401
from lowwater.engine.local import worker_combiners as _worker_combiners  # noqa: F401
from lowwater.engine.local import worker_steps as _worker_steps  # noqa: F401
from lowwater.engine.local.worker_messages import pack, unpack
from lowwater.engine.local.worker_pool import Hosted, Place, Workers
from lowwater.pipeline import worker_option as _worker_option  # noqa: F401


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
