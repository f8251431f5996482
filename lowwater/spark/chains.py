"""Chains of levels as Spark's operators: thin adapters to the level function.

``applyInPandasWithState`` is the operator for one level, and for all levels where the session
allows chains of it; Spark's check of a plan refuses them, though they run and are right. Elsewhere
the levels are a chain of ``transformWithStateInPandas``, which the check accepts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as every user of Spark calls it
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from lowwater.errors import InvalidArgument, load_extra
from lowwater.spark.group_numbers import numbers_of_groups
from lowwater.spark.level_call import LevelCall
from lowwater.spark.options import Timers
from lowwater.spark.rows import ROW_DDL, ROW_SCHEMA
from lowwater.spark.session import CHECKS, PROVIDER
from lowwater.spark.shipped import ShippedProcessor, shipped
from lowwater.spark.state_backends import CELL_DDL, GroupCell
from lowwater.time import END_OF_TIME

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.state import GroupState

Adapter: TypeAlias = Literal["applyInPandasWithState", "transformWithStateInPandas"]

STAMP = "now_stamp"
"""The time of the micro-batch in rows, as a timestamp, for Spark's own watermark."""
CELL = "cell"
"""The variable of ``transformWithStateInPandas`` that holds a key group."""
_MS = 1000
_LONG_MS = 10 * 365 * 86_400_000


def adapter_of(spark: SparkSession, depth: int) -> Adapter:
    """Return the operator that a graph of so many levels runs on in a session."""
    allowed = spark.conf.get(CHECKS, "true") == "false"
    return "applyInPandasWithState" if depth == 1 or allowed else "transformWithStateInPandas"


def streamed(
    rows: DataFrame,
    calls: Sequence[LevelCall],
    adapter: Adapter,
    *,
    timers: Timers,
    ends: bool,
) -> DataFrame:
    """Return the rows that leave the last level of a streaming query.

    Args:
        rows: The rows of :data:`~lowwater.spark.rows.ROW_SCHEMA` that sources give.
        calls: The function of each level, in order.
        adapter: The operator.
        timers: Whether the clock alone may wake a key group.
        ends: Whether a micro-batch without records ends the input.

    Raises:
        InvalidArgument: The adapter needs a package that is not installed, or another state store.
    """
    if adapter == "transformWithStateInPandas":
        load_extra("google.protobuf", extra="spark", purpose="a graph of several levels on Spark")
        _require_rocksdb(rows.sparkSession)
    if ends:
        # Spark's own watermark follows the micro-batches' times, so it advances in each of them and
        # Spark runs one more without records at the end. With a delay of a day no row is late.
        rows = rows.withColumn(STAMP, F.current_timestamp()).withWatermark(STAMP, "1 day")
    for call in calls:
        first = call.level == 1
        grouped = rows.groupBy("key_group")
        if adapter == "applyInPandasWithState":
            inner = _WithState(call, timers, ends=ends and first)
            rows = grouped.applyInPandasWithState(
                shipped(inner), ROW_DDL, CELL_DDL, "append", inner.timeout
            )
        else:
            processor = _Processor(call, timers, ends=ends and first)
            rows = grouped.transformWithStateInPandas(
                ShippedProcessor(processor), ROW_DDL, "Append", processor.time_mode
            )
        if call.level < len(calls):
            rows = delivered(rows, call.level + 1, call.options.key_groups)
    return rows


def _require_rocksdb(spark: SparkSession) -> None:
    """Raise if the session's state store is one that the first micro-batch would fail with.

    The checkpoint that it leaves behind would fail for ever.
    """
    store = (spark.conf.get(PROVIDER) or "").rpartition(".")[2]
    if store.startswith("HDFSBacked"):
        raise InvalidArgument(
            f"a graph of several levels runs on transformWithStateInPandas, which {store} cannot "
            "keep the state of",
            where="to_spark",
            hint="Call lowwater.spark.configure(spark) first, which sets RocksDB as the state "
            'store; or use operator="mapInArrow"',
        )


def at_once(rows: DataFrame, calls: Sequence[LevelCall]) -> DataFrame:
    """Return the rows that leave the last level of a query over static DataFrames."""
    for call in calls:
        rows = rows.groupBy("key_group").applyInArrow(_of_a_table(_Once(call)), ROW_DDL)
        if call.level < len(calls):
            rows = delivered(rows, call.level + 1, call.options.key_groups)
    return rows


def _of_a_table(function: Any) -> Callable[[pa.Table], pa.Table]:
    sent = shipped(function)

    def step(table: pa.Table) -> pa.Table:  # Spark counts the arguments
        return sent(table)

    return step


def delivered(rows: DataFrame, level: int, key_groups: int) -> DataFrame:
    """Make a row for each key group of a level of one that is for all of them.

    What applyInPandasWithState gives cannot go into an exchange as it is: this makes rows of it.
    """
    every = F.array(*map(F.lit, numbers_of_groups(key_groups)))
    own = F.array(F.coalesce(F.col("key_group"), F.lit(0)))  # not null: checkpoints know the type
    group = F.explode(F.when(F.col("level") == -level, every).otherwise(own)).alias("key_group")
    return rows.select(group, *(F.col(name) for name in rows.columns if name != "key_group"))


@final
@dataclass(frozen=True, slots=True)
class _Once:
    """The function for static DataFrames."""

    call: LevelCall

    def __call__(self, table: pa.Table) -> pa.Table:
        table = table.select(ROW_SCHEMA.names).cast(ROW_SCHEMA)
        here = pc.equal(pc.abs(table.column("level")), self.call.level)
        bodies = table.filter(here).column("body").to_pylist()
        group = self.call.group_of(table.column("key_group")[0].as_py())
        return pa.concat_tables([table.filter(pc.invert(here)), self.call.once(group, bodies)])


@final
@dataclass(frozen=True, slots=True)
class _WithState:
    """The function for ``applyInPandasWithState``."""

    call: LevelCall
    timers: Timers
    ends: bool

    @property
    def timeout(self) -> str:
        if self.ends:
            return "EventTimeTimeout"
        return "ProcessingTimeTimeout" if self.timers == "clock" else "NoTimeout"

    def __call__(
        self, key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        call = self.call
        timed_out = state.hasTimedOut
        held = state.get if state.exists else None
        bodies: list[bytes] = []
        if not timed_out:
            yield from _sorted_out(frames, call.level, bodies)
        now = int(state.getCurrentProcessingTimeMs()) * _MS
        made, cell, deadline = call.step(
            call.group_of(int(key[0])),
            _cell_of(call, held),
            bodies,
            now,
            ended=self.ends and timed_out,
        )
        state.update(cell.to_row())
        if self.ends:
            state.setTimeoutTimestamp(max(1, state.getCurrentWatermarkMs()))
        elif self.timers == "clock":
            state.setTimeoutDuration(_wait_ms(deadline, now))
        yield _frame_of(made)


@final
class _Processor(StatefulProcessor):
    """The processor for ``transformWithStateInPandas``."""

    def __init__(self, call: LevelCall, timers: Timers, *, ends: bool) -> None:
        self._call = call
        self._timers = timers
        self._ends = ends

    @property
    def time_mode(self) -> str:
        if self._ends:
            return "EventTime"
        return "ProcessingTime" if self._timers == "clock" else "None"

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._cell = handle.getValueState(CELL, CELL_DDL)
        self._called: set[int] = set()  # in this micro-batch, as each begins with init

    def handleInputRows(  # noqa: N802  # Spark calls it so
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        self._called.add(int(key[0]))
        bodies: list[bytes] = []
        yield from _sorted_out(rows, self._call.level, bodies)
        yield self._stepped(int(key[0]), bodies, timerValues, ended=False)

    def handleExpiredTimer(  # noqa: N802  # Spark calls it so
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        if int(key[0]) not in self._called:
            yield self._stepped(int(key[0]), [], timerValues, ended=self._ends)

    def close(self) -> None:
        pass

    def _stepped(
        self, number: int, bodies: Sequence[bytes], timer_values: Any, *, ended: bool
    ) -> pd.DataFrame:
        call = self._call
        held = self._cell.get() if self._cell.exists() else None
        now = None
        if self._timers == "clock" and not self._ends:
            now = int(timer_values.getCurrentProcessingTimeInMs()) * _MS
        made, cell, deadline = call.step(
            call.group_of(number), _cell_of(call, held), bodies, now, ended=ended
        )
        self._cell.update(cell.to_row())
        self._wake(deadline, now, timer_values)
        return _frame_of(made)

    def _wake(self, deadline: int, now: int | None, timer_values: Any) -> None:
        if self._ends:
            at = max(1, int(timer_values.getCurrentWatermarkInMs()) + 1)
        elif now is not None and deadline < END_OF_TIME:
            at = max(now // _MS + 1, -(-deadline // _MS))
        else:
            return
        for timer in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer)
        self._handle.registerTimer(at)


def _sorted_out(
    frames: Iterable[pd.DataFrame], level: int, bodies: list[bytes]
) -> Iterator[pd.DataFrame]:
    """Collect the messages for a level; yield the rows that pass through it."""
    for frame in frames:
        # As arrays: a selection by pandas takes a millisecond, and there is one for each key group.
        columns = {name: frame[name].to_numpy() for name in ROW_SCHEMA.names}
        here = np.abs(columns["level"]) == level
        bodies.extend(columns["body"][here].tolist())
        if not here.all():
            yield _frame({name: column[~here] for name, column in columns.items()})


def _frame_of(rows: pa.Table) -> pd.DataFrame:
    return _frame({name: rows.column(name).to_numpy() for name in ROW_SCHEMA.names})


def _frame(columns: Mapping[str, Any]) -> pd.DataFrame:
    import pandas as pd  # only a worker needs it

    return pd.DataFrame(columns, copy=False)


def _cell_of(call: LevelCall, held: tuple[Any, ...] | None) -> GroupCell | None:
    if held is None:
        return None
    return GroupCell.from_row(held, key_groups=call.options.key_groups, backend=call.backend.name)


def _wait_ms(deadline: int, now: int) -> int:
    """Return the milliseconds to wait for a deadline; one less, as Spark wakes strictly later."""
    if deadline >= END_OF_TIME:
        return _LONG_MS
    return max(1, min(_LONG_MS, -(-(deadline - now) // _MS) - 1))
