"""Calls to the outside for each record: a service or a model, many at a time, in order.

A batch is a barrier: its calls run side by side, at most so many at once, and the step goes on when
all have come back. So the order of records, state and everything behind are as if each call had
been made in turn, whatever the calls take.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, final

import numpy as np

from lowwater.display.text import cut, shown
from lowwater.engine.records.batch import HIDDEN, Records, columns_of
from lowwater.engine.records.calls import (
    FUNCTION_FAILED,
    NULL_RECORD,
    Called,
    Failure,
    dead_letters,
    said,
    shaped,
)
from lowwater.engine.records.columns import Column
from lowwater.engine.records.stepping import StepKind, Stepped
from lowwater.errors import DataError, UnsupportedByRunner, describe
from lowwater.time import format_duration

if TYPE_CHECKING:
    import asyncio  # slow to load, and few runs need it

AsyncFunction: TypeAlias = Callable[[Any], Awaitable[Any]]

TIMED_OUT = "timed_out"
"""The reason of a dead letter for which a call did not come back in time."""
_FIRST_WAIT_S = 0.1
_LONGEST_WAIT_S = 5.0


@final
@dataclass(frozen=True, slots=True)
class MapAsync(StepKind):
    """Replaces each record by what an ``async`` function returns for it.

    A record for which the call fails, or takes too long, after all retries is rejected.

    Args:
        function: The function, of a record; with ``batch``, of a list of records.
        capacity: How many calls run at once at most.
        timeout_us: How long a call may take, microseconds; ``None``: as long as it likes.
        retries: How often a call that failed is made again.
        batch: How many records a call gets at most; ``None``: one, not in a list.
    """

    function: AsyncFunction
    capacity: int = 100
    timeout_us: int | None = None
    retries: int = 0
    batch: int | None = None

    method: ClassVar[str] = "map_async"

    def text(self) -> str:
        return f"map_async({cut(shown(self.function), 60)})"

    def apply(self, records: Records) -> Stepped:
        rows = records.rows()
        values, failed = _LOOPS.run(self._called(rows))
        lost = {failure.row for failure in failed}
        failed += [
            Failure(row, NULL_RECORD, "map_async's function returned None, which is not a record")
            for row, (record, value) in enumerate(zip(rows, values, strict=True))
            if value is None and isinstance(record, Mapping) and row not in lost
        ]
        lost = {failure.row for failure in failed}
        counts = np.ones(len(rows), dtype=np.int64)
        counts[list(lost)] = 0
        kept = [value for row, value in enumerate(values) if row not in lost]
        called = Called(kept, counts, sorted(failed))
        columns, called = shaped(self, called, sets_aside=True)
        return self.made(records, columns, called)

    def columns(self, values: Sequence[Any]) -> dict[str, Column]:
        return columns_of(values)

    def made(self, records: Records, columns: Mapping[str, Column], called: Called) -> Stepped:
        assert called.counts is not None
        sound = np.flatnonzero(called.counts)
        left = records.take(sound)
        hidden = {name: one for name, one in left.columns.items() if name.startswith(HIDDEN)}
        letters = dead_letters(records, called.failed, self.method)
        return Stepped(left.replaced({**columns, **hidden}), sound, *letters)

    async def _called(self, rows: Sequence[Any]) -> tuple[list[Any], list[Failure]]:
        """Return what came back for each record, in order, and the calls that failed."""
        import asyncio

        values: list[Any] = [None] * len(rows)
        failed: list[Failure] = []
        size = 1 if self.batch is None else self.batch
        calls = iter(range(0, len(rows), size))

        async def work(calls: Iterator[int]) -> None:
            for start in calls:
                some = rows[start : start + size]
                try:
                    given = some[0] if self.batch is None else list(some)
                    result = await self._once(given)
                    results = [result] if self.batch is None else self._results(result, some)
                    values[start : start + len(some)] = results
                except MemoryError:
                    raise
                except Exception as error:
                    reason, detail = self._why(error)
                    failed.extend(Failure(start + n, reason, detail) for n in range(len(some)))

        # A few tasks that take the next call each, rather than a task for every call.
        await asyncio.gather(*(work(calls) for _ in range(min(self.capacity, len(rows)))))
        return values, failed

    async def _once(self, given: Any) -> Any:
        """Make a call, again if it fails and there are retries left."""
        import asyncio

        seconds = None if self.timeout_us is None else self.timeout_us / 1e6
        wait = _FIRST_WAIT_S
        for left in range(self.retries, -1, -1):
            try:
                return await asyncio.wait_for(self.function(given), seconds)
            except MemoryError:
                raise
            except Exception:
                if not left:
                    raise
            await asyncio.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT_S)
        raise AssertionError("the last attempt returns or raises")

    def _results(self, result: Any, some: Sequence[Any]) -> Sequence[Any]:
        if not isinstance(result, (list, tuple)) or len(result) != len(some):
            raise DataError(
                f"map_async's function returned {describe('result', result)} for {len(some)} "
                "records, not a list with a result for each",
                hint="Return as many results as records were given, in their order",
            )
        return result

    def _why(self, error: Exception) -> tuple[str, str]:
        """Return the reason and the description of a dead letter."""
        tries = "" if not self.retries else f" {self.retries + 1} times"
        if isinstance(error, TimeoutError) and self.timeout_us is not None:
            within = format_duration(self.timeout_us)
            return TIMED_OUT, f"the function of map_async took longer than {within}{tries}"
        return FUNCTION_FAILED, f"the function of map_async failed{tries}: {said(error)}"


@final
class _Loops:
    """Runs coroutines in a thread of their own, whose loop stays.

    The caller's thread may have a running loop, as notebooks do, and what a function keeps, such as
    a session with connections, belongs to the loop that it was made in.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0

    def run(self, coroutine: Any) -> Any:
        """Run a coroutine to its end; cancel it if the caller is interrupted."""
        import asyncio

        try:
            loop = self._started()
        except BaseException:
            coroutine.close()  # else Python warns that it was never awaited
            raise
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _started(self) -> asyncio.AbstractEventLoop:
        import asyncio

        with self._lock:
            # A thread does not survive a fork, and its loop would never run.
            if self._loop is None or self._process != os.getpid():
                loop = asyncio.new_event_loop()
                thread = threading.Thread(
                    target=loop.run_forever, name="lowwater-map-async", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError as error:
                    loop.close()
                    raise UnsupportedByRunner(
                        f"the calls of map_async run in a thread, and there is none here: {error}",
                        where="map_async",
                        hint="Make the calls before the run, and use map; or run this outside a "
                        "browser",
                    ) from error
                self._loop, self._process = loop, os.getpid()
            return self._loop


_LOOPS = _Loops()
