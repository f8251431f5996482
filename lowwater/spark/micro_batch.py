"""The micro-batch that a task belongs to, as Spark tells its tasks.

Spark sets three local properties on the thread that runs a query, and hands them to every task of
every attempt: the query's id, which the checkpoint keeps; the number of the micro-batch, which is
the same when it runs again; and the id of the run, new with each start, as the group of its jobs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import final

from pyspark import TaskContext

from lowwater.errors import StateError

_QUERY = "sql.streaming.queryId"
_NUMBER = "streaming.sql.batchId"
_RUN = "spark.jobGroup.id"
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_WHERE = 'to_spark(operator="mapInArrow")'


@final
@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A micro-batch, in one run of its query.

    Args:
        query: The id of the query, from its checkpoint.
        run: The id of the run: 32 hexadecimal digits.
        number: The number of the micro-batch, from 0.
    """

    query: str
    run: str
    number: int

    @classmethod
    def of_task(cls) -> MicroBatch:
        """Return that of the task that runs here.

        Raises:
            StateError: Spark does not tell it to this task, or somebody replaced what it tells.
        """
        task = TaskContext.get()
        told = {} if task is None else {
            name: task.getLocalProperty(name) for name in (_QUERY, _NUMBER, _RUN)
        }  # fmt: skip
        query, number, run = (told.get(name) for name in (_QUERY, _NUMBER, _RUN))
        if not query or number is None or run is None:
            raise StateError(
                "Spark does not tell this task its micro-batch, by which the state is named",
                where=_WHERE,
                hint="Use the DataFrame in the thread that calls foreachBatch, or in threads of "
                "pyspark.InheritableThread; continuous processing has no micro-batches",
            )
        if not _UUID.fullmatch(run):
            raise StateError(
                f"the group of Spark's jobs is {run!r}, not the id of the query's run",
                where=_WHERE,
                hint="In foreachBatch, label jobs by addJobTag instead of setJobGroup",
            )
        return cls(query, run.replace("-", ""), int(number))
