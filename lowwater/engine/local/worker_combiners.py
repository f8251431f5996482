"""A user's combiner in worker processes: they call it, and have the accumulators.

All else of the window operator stays in the run, so the rows of windows, their panes, the order of
these and the stored state are what they are without workers. A row's accumulator is with the worker
of its key, so that windows of a key merge where they are; it comes home to be stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from lowwater.engine.aggregates import AggregateInput, AggregateSpec, Combiner, State, combiner_of
from lowwater.engine.aggregates._combine import Combine
from lowwater.engine.aggregates.specs import BuiltIn, combined_by
from lowwater.engine.graph.graph import Stage
from lowwater.engine.local.worker_pool import Place, Request, Workers, as_error, as_plain
from lowwater.engine.records.columns import Column
from lowwater.errors import LowwaterError
from lowwater.state.arrays import object_array
from lowwater.state.codec import decode, encode
from lowwater.time import Int64Array

_NO_ROWS: Int64Array = np.empty(0, dtype=np.int64)


def combines_in_workers(stage: Stage) -> bool:
    """Return whether a stage has a combiner that workers can call."""
    work = stage.work
    return work.emits_panes and any(
        _called_by_workers(spec, signed=stage.signed) is not None
        for spec in work.aggregates.values()
    )


def _called_by_workers(spec: AggregateSpec, *, signed: bool) -> Combiner | None:
    """Return the combiner of an aggregate, if workers can have its accumulators.

    Of an input with retractions, one that cannot remove values has none: it combines all values
    that are left for each pane.
    """
    has_accumulators = not signed or getattr(spec, "make_signed", None) is not None
    return combiner_of(spec) if has_accumulators else None


def _hosted(combiner: Combiner, _worker: int) -> HostedCombine:
    return HostedCombine(Combine(combiner))


@final
class CombinersInWorkers:
    """The combiners of a windowed stage that workers call.

    Args:
        aggregates: What the panes of the stage hold, by output name.
        number: The number of the stage.
        workers: Call the combiners.
        keys_of: Returns the key ids of state rows.
        signed: Whether the input of the stage has retractions.
    """

    def __init__(
        self,
        aggregates: Mapping[str, AggregateSpec],
        number: int,
        workers: Workers,
        keys_of: Callable[[Int64Array], Int64Array],
        *,
        signed: bool,
    ) -> None:
        self.aggregates = dict(aggregates)
        self._each: list[CombineInWorkers] = []
        for name, spec in aggregates.items():
            combiner = _called_by_workers(spec, signed=signed)
            if combiner is not None and isinstance(spec, BuiltIn):
                place = f"stage {number}: {name}"
                workers.add(place, partial(_hosted, combiner))
                made = CombineInWorkers(place, workers, keys_of)
                self.aggregates[name] = combined_by(spec, made)
                self._each.append(made)

    def fetch(self) -> None:
        """Fetch all accumulators into the operator's state, to be stored. O(those in workers).

        Raises:
            StateError: One cannot be stored.
        """
        for each in self._each:
            each.fetch()


@final
class CombineInWorkers:
    """Runs a user's combiner in worker processes.

    The state of a row says ``AWAY`` where its accumulator is with a worker.

    Args:
        place: What the workers call it.
        workers: The workers.
        keys_of: Returns the key ids of state rows: those of a key are with one worker.
    """

    columns = Combine.columns

    def __init__(
        self, place: Place, workers: Workers, keys_of: Callable[[Int64Array], Int64Array]
    ) -> None:
        self._place = place
        self._workers = workers
        self._keys_of = keys_of
        self._state: State | None = None
        self._gone: dict[int, list[Int64Array]] = {}

    def add(self, state: State, batch: AggregateInput) -> None:
        held: NDArray[Any] = state["accumulator"]
        self._state = state
        requests: dict[int, Request] = {}
        places: dict[int, Int64Array] = {}
        for at, some in self._shares(batch.rows):
            rows = batch.rows[some]
            values = None if batch.values is None else batch.values[some]
            signs = None if batch.signs is None else batch.signs[some]
            touched = np.unique(rows)
            requests[at] = self._request("add", at, held, touched, rows, values, signs)
            held[touched] = AWAY
            places[at] = some
        self._ask(requests, places)

    def merge(self, state: State, into: Int64Array, rows: Int64Array) -> None:
        held: NDArray[Any] = state["accumulator"]
        self._state = state
        filled = np.array([each is not None for each in held[rows].tolist()], dtype=np.bool_)
        into, rows = into[filled], rows[filled]
        requests: dict[int, Request] = {}
        places: dict[int, Int64Array] = {}
        for at, some in self._shares(rows):
            touched = np.unique(np.concatenate((into[some], rows[some])))
            requests[at] = self._request("merge", at, held, touched, into[some], rows[some])
            held[touched] = AWAY
            places[at] = some
        self._ask(requests, places)

    def result(self, state: State, rows: Int64Array) -> Column:
        held: NDArray[Any] = state["accumulator"]
        self._state = state
        requests: dict[int, Request] = {}
        places: dict[int, Int64Array] = {}
        for at, some in self._shares(rows):
            requests[at] = self._request("result", at, held, rows[some], rows[some])
            filled = [each is not None for each in held[rows[some]].tolist()]
            held[rows[some][filled]] = AWAY
            places[at] = some
        results = np.empty(len(rows), dtype=object)
        for at, found in self._ask(requests, places).items():
            results[places[at]] = found
        return Column(results)

    def release_elsewhere(self, state: State, rows: Int64Array) -> None:
        """Forget the accumulators of rows; the workers do with their next request."""
        cells = state["accumulator"][rows].tolist()
        gone = rows[[each is AWAY for each in cells]]
        for at, some in self._shares(gone):
            self._gone.setdefault(at, []).append(gone[some])

    def fetch(self) -> None:
        """Fetch the accumulators into the state.

        Raises:
            StateError: One cannot be stored.
        """
        if self._state is None:
            return
        held: NDArray[Any] = self._state["accumulator"]
        requests = {at: ("give", *self._gone_from(at)) for at in range(self._workers.count)}
        every = dict.fromkeys(requests, _NO_ROWS)
        for rows, stored in self._ask(requests, every).values():
            held[rows] = object_array(decode(stored))
        self._state = None  # until one is away again

    def _shares(self, rows: Int64Array) -> Iterator[tuple[int, Int64Array]]:
        """Yield the number of each worker with some of the rows, and where these are, rising."""
        owner = self._keys_of(rows) % self._workers.count
        for at in range(self._workers.count):
            some = np.flatnonzero(owner == at)
            if some.size:
                yield at, some

    def _request(
        self, name: str, at: int, held: NDArray[Any], touched: Int64Array, *arguments: Any
    ) -> Request:
        """Return a request; the accumulators it needs that are at home go with it."""
        cells = held[touched].tolist()
        home = [each is not None and each is not AWAY for each in cells]
        taken = touched[home]
        return name, *self._gone_from(at), taken, held[taken], *arguments

    def _gone_from(self, at: int) -> tuple[Int64Array]:
        """Return which accumulators a worker is to forget, as the next thing it does."""
        gone = self._gone.pop(at, None)
        return (_NO_ROWS if gone is None else np.concatenate(gone),)

    def _ask(
        self, requests: Mapping[int, Request], places: Mapping[int, Int64Array]
    ) -> dict[int, Any]:
        """Return the answers of workers, or raise what would have failed first without them.

        Args:
            requests: By the number of the worker.
            places: Where the share of each is in the whole.
        """
        answers = dict(zip(requests, self._workers.ask(self._place, requests), strict=True))
        failures = [
            (phase, int(places[at][place]), plain)
            for at, (failure, _) in answers.items()
            if failure is not None
            for phase, place, plain in [failure]
        ]
        if failures:
            raise as_error(min(failures, key=lambda each: each[:2])[2])
        return {at: answer for at, (_, answer) in answers.items()}


@final
class HostedCombine:
    """The accumulators of some keys, where they are."""

    def __init__(self, combine: Combine) -> None:
        self._combine = combine
        self._held = _Held()
        self._state = {"accumulator": self._held}

    def answer(self, request: Request) -> Any:
        """Forget accumulators, then do what is asked; return (what failed and where, or what came).

        Where is the phase and the place in it: removing values comes after adding all others.
        """
        name, gone, *arguments = request
        for row in gone.tolist():
            del self._held[row]
        self._combine.begun = 0
        try:
            return None, getattr(self, name)(*arguments)
        except (LowwaterError, SystemExit) as error:
            if not self._combine.begun:
                raise
            return (*self._failed_at(name, arguments), as_plain(error)), None

    def add(
        self,
        taken: Int64Array,
        accumulators: NDArray[Any],
        rows: Int64Array,
        values: NDArray[Any] | None,
        signs: NDArray[np.int8] | None,
    ) -> None:
        """Add values to the accumulators of rows, or remove them."""
        self._take(taken, accumulators)
        # A combiner is given values alone, without their times and their order in the input.
        self._combine.add(self._state, AggregateInput(rows, values, _NO_ROWS, _NO_ROWS, signs))

    def merge(
        self, taken: Int64Array, accumulators: NDArray[Any], into: Int64Array, rows: Int64Array
    ) -> None:
        """Merge the accumulators of rows."""
        self._take(taken, accumulators)
        self._combine.merge(self._state, into, rows)

    def result(
        self, taken: Int64Array, accumulators: NDArray[Any], rows: Int64Array
    ) -> NDArray[Any]:
        """Return what the accumulators of rows come to."""
        self._take(taken, accumulators)
        return self._combine.result(self._state, rows).data

    def give(self) -> tuple[Int64Array, bytes]:
        """Return all rows, and their accumulators as they are stored; none is left here."""
        rows = np.fromiter(self._held, dtype=np.int64, count=len(self._held))
        stored = encode(list(self._held.values()))
        self._held.clear()
        return rows, stored

    def _take(self, rows: Int64Array, accumulators: NDArray[Any]) -> None:
        self._held.update(zip(rows.tolist(), accumulators.tolist(), strict=True))

    def _failed_at(self, name: str, arguments: list[Any]) -> tuple[int, int]:
        last = self._combine.begun - 1
        signs = arguments[-1] if name == "add" else None
        if signs is None:
            return 0, last
        order = np.concatenate((np.flatnonzero(signs > 0), np.flatnonzero(signs < 0)))
        return int(signs[order[last]] < 0), int(order[last])


class _Held(dict[int, Any]):
    """Accumulators by row; ``None`` for a row without one, as in the columns of a table."""

    def __missing__(self, row: int) -> None:
        return None


class _Away:
    """Stands for an accumulator that a worker has."""

    def __repr__(self) -> str:
        return "AWAY"


AWAY: Final = _Away()
