"""Connects in a thread of its own, so that a run can be stopped meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from typing import Generic, TypeVar, final

Connection = TypeVar("Connection")


@final
class Connecting(Generic[Connection]):
    """What is connected elsewhere: the client library waits for brokers where nothing ends it.

    Args:
        connect: Connects, for as long as it takes.
        disconnect: Closes a connection that nobody waited for.
    """

    def __init__(
        self, connect: Callable[[], Connection], disconnect: Callable[[Connection], object]
    ) -> None:
        self._connect, self._disconnect = connect, disconnect
        self._answer: Future[Connection] = Future()
        # As a daemon it keeps no process from ending.
        threading.Thread(target=self._run, name="lowwater kafka", daemon=True).start()

    def _run(self) -> None:
        try:
            connection = self._connect()
        except BaseException as error:  # re-raised where it is waited for, if anywhere
            with suppress(InvalidStateError):
                self._answer.set_exception(error)
            return
        try:
            self._answer.set_result(connection)
        except InvalidStateError:
            self._disconnect(connection)

    def wait(self, seconds: float) -> Connection | None:
        """Return the connection; ``None`` if it is not there within so many seconds.

        Raises:
            BaseException: What connecting raised.
        """
        try:
            return self._answer.result(seconds)
        except NotYet:
            # A connection may raise a TimeoutError of its own.
            if self._answer.done():
                raise
            return None

    def give_up(self) -> None:
        """Close the connection as soon as it is made; without effect if it was returned."""
        self._answer.cancel()
