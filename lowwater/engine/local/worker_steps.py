"""Steps that call a Python function for each record, in worker processes.

A batch goes to the workers in slices of a fixed size, and comes back in order, as columns. The
steps have no state, so nothing that is stored depends on the workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, TypeAlias, final

import numpy as np
import pyarrow as pa

from lowwater.engine.graph.graph import Graph
from lowwater.engine.local.worker_messages import CannotPass
from lowwater.engine.local.worker_pool import Request, Workers, as_error, as_plain
from lowwater.engine.records.batch import Records
from lowwater.engine.records.calls import Called, Failure, PythonStep, shaped, step_through
from lowwater.engine.records.columns import Column
from lowwater.engine.records.stateless import calls_python, set_aside
from lowwater.engine.records.stepping import Apply, Step, Stepped, applied
from lowwater.errors import LowwaterError
from lowwater.time import Int64Array

SLICE = 500
"""How many records a worker is given at once, whatever the number of workers."""

_PLACE = "steps"


def python_steps(graph: Graph) -> list[PythonStep]:
    """Return the steps of a graph whose functions workers can call."""
    every = (step for stage in graph.stages for flow in stage.inputs for step in flow.steps)
    return [step for step in every if calls_python(step)]


def apply_in(workers: Workers | None, graph: Graph, *, sets_aside: bool) -> Apply:
    """Return what applies the steps of a graph: in worker processes, if there are several.

    Args:
        workers: The workers, if there are any.
        graph: The graph.
        sets_aside: Whether records for which a function fails become dead letters; else such a
            failure stops the run.
    """
    steps = python_steps(graph)
    if workers is None or workers.count <= 1 or not steps:
        return set_aside if sets_aside else applied
    return StepsInWorkers(steps, workers, sets_aside=sets_aside).apply


@final
class StepsInWorkers:
    """Applies steps: workers call the Python functions.

    Args:
        steps: The steps that call one.
        workers: The workers.
        sets_aside: Whether records for which a function fails are rejected.
    """

    def __init__(
        self, steps: Sequence[PythonStep], workers: Workers, *, sets_aside: bool = False
    ) -> None:
        self._sets_aside = sets_aside
        self._numbers = {id(step): number for number, step in enumerate(steps)}
        self._workers = workers
        workers.add(_PLACE, partial(_hosted, steps))

    def apply(self, step: Step, records: Records) -> Stepped:
        """Apply a step.

        Raises:
            DataError: The function failed; for several records, the first of them.
        """
        number = self._numbers.get(id(step))
        if number is None or not calls_python(step):
            return step.apply(records)
        given = {name: records.columns[name] for name in records.names}
        slices = [
            [_sliced(given, start, stop), stop - start] for start, stop in _bounds(records.length)
        ]
        some = min(self._workers.count, len(slices))
        requests = {
            at: (number, at, some, slices[at::some], self._sets_aside) for at in range(some)
        }
        try:
            answers = self._workers.ask(_PLACE, requests)
        except CannotPass:
            # A value in a record, or in what a function made of one. The functions have no state,
            # so they may be called once more.
            return step_through(step, records, sets_aside=self._sets_aside)
        if failures := [failure for failure, _ in answers if failure is not None]:
            raise as_error(min(failures, key=itemgetter(0, 1))[2])
        made = [answers[at % some][1][at // some] for at in range(len(slices))]
        columns, called = _together(made)
        return step.made(records, columns, called)


@final
class HostedSteps:
    """The steps of a run, where their functions are called."""

    def __init__(self, steps: Sequence[PythonStep]) -> None:
        self._steps = steps

    def answer(self, request: Request) -> Any:
        """Call the function of a step for slices of a batch.

        Args:
            request: The number of the step, that of the first slice, how far apart they are, of
                each slice its columns and its length, and whether records for which the function
                fails are rejected.

        Returns:
            (the phase, the number of the slice and the failure, of the first of them; what comes of
            each slice). All functions come before all columns that are made of what they return.
        """
        number, first, apart, slices, sets_aside = request
        step = self._steps[number]
        called: list[Called] = []
        made: list[Made] = []
        try:
            for columns, length in slices:
                rows = Records(columns, length).rows()
                called.append(step.call(rows, sets_aside=sets_aside))
            for each, (_, length) in zip(called, slices, strict=True):
                made.append(_as_made(step, each, length, sets_aside=sets_aside))
        except (LowwaterError, SystemExit) as error:
            phase = int(len(called) == len(slices))
            done = len(made) if phase else len(called)
            return (phase, first + done * apart, as_plain(error)), None
        return None, made


Made: TypeAlias = tuple[dict[str, Column], int, int, Int64Array | None, list[tuple[int, str, str]]]
"""The results for a slice: columns and their length; the number of records that it has, how many
values each gave (``None``: one each), and the failures."""


def _as_made(step: PythonStep, called: Called, length: int, *, sets_aside: bool) -> Made:
    columns, called = shaped(step, called, sets_aside=sets_aside)
    failed = [(row, reason, detail) for row, reason, detail in called.failed]
    return columns, len(called.values), length, called.counts, failed


def _hosted(steps: Sequence[PythonStep], _worker: int) -> HostedSteps:
    return HostedSteps(steps)


def _bounds(length: int) -> Iterator[tuple[int, int]]:
    for start in range(0, length, SLICE):
        yield start, min(start + SLICE, length)


def _sliced(columns: Mapping[str, Column], start: int, stop: int) -> dict[str, Column]:
    """Return a slice of columns; dictionaries that are longer than it stay here."""
    sliced = {name: column.slice(start, stop) for name, column in columns.items()}
    for name, column in sliced.items():
        array = column.arrow
        if (
            array is not None
            and pa.types.is_dictionary(array.type)
            and len(array.dictionary) > stop - start
        ):
            sliced[name] = Column.from_arrow(array.dictionary_decode())
    return sliced


def _together(made: Sequence[Made]) -> tuple[dict[str, Column], Called]:
    """Return the results for all slices, as if they were made at once: fields may differ."""
    names = dict.fromkeys(name for columns, *_ in made for name in columns)
    columns = {
        name: Column.concat([_column(some.get(name), length) for some, length, *_ in made])
        for name in names
    }
    if all(counts is None for *_, counts, _ in made):
        return columns, Called([], None, ())
    every = []
    failed: list[Failure] = []
    first = 0
    for _, _, length, counts, failures in made:
        every.append(np.ones(length, np.int64) if counts is None else counts)
        failed += [Failure(first + row, reason, detail) for row, reason, detail in failures]
        first += length
    return columns, Called([], np.concatenate(every), failed)


def _column(column: Column | None, length: int) -> Column:
    """Return the column of a field; without one, all values are missing."""
    return Column.of_objects([None] * length) if column is None else column
