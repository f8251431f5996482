"""A function of the user's that takes deliveries."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import final

from lowwater.engine.local.delivery import Delivery, Place, Writer
from lowwater.errors import InvalidArgument, describe


@final
@dataclass(frozen=True, slots=True)
class Callback:
    """Calls a function with each delivery.

    Guarantee: at least once. A delivery counts as taken when the function returns; after a crash
    of a run with a state directory the last ones come again, under the same ``id`` and with the
    same content. A function that stores the id together with what it does, and skips an id it has
    stored, is exactly once. Ids sort as deliveries come, so it is enough to keep the last. The ids
    of another state directory, or of another run without one, begin again from the lowest.

    Args:
        function: Takes a :class:`~lowwater.io.sinks.Delivery`; its result is ignored. An error it
            raises ends the run; with a state directory the delivery comes again at the next start.
    """

    function: Callable[[Delivery], object]

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InvalidArgument(
                f"{describe('function', self.function)} cannot be called",
                hint="Give a function that takes a Delivery",
            )

    def places(self) -> Iterable[Place]:
        return ()

    def open(self, writer: Writer) -> None:
        pass

    def deliver(self, delivery: Delivery) -> None:
        self.function(delivery)

    def close(self, *, complete: bool) -> None:
        pass
