"""Queries to kill, of one stage or of a graph; as a program, with a driver of its own.

``python -m tests.spark.query_to_kill FOLDER GRAPH ADAPTER STATE FAULTS``, where GRAPH is ``stage``
or one of :mod:`tests.spark.graphs_to_kill`, ADAPTER is the operator for the levels of a graph,
STATE is one of :data:`STATES`, and FAULTS is ``none`` or ``N=WHEN:WHAT``, or several of these,
separated by commas: before or after state is saved for the N-th time, by any level and key group,
the task fails (``raise``), or the ``driver``, the Python ``worker`` or the ``executor`` is killed;
then there are two of these, each a process of its own. Prints ``started`` when the query runs. The
saves are counted in ``FOLDER/saves``, over all drivers.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import lowwater as lw
from lowwater.spark import (
    GrowingBackend,
    InlineBackend,
    KeptState,
    RocksBackend,
    StateBackend,
    configure,
)
from lowwater.state.store import Batch, StateStore
from tests.spark.graphs_on_spark import frame_of
from tests.spark.graphs_on_spark import start as start_graph
from tests.spark.graphs_to_kill import GRAPHS
from tests.spark.light import FAST, WORKER_DAEMON

ADAPTERS = ("applyInPandasWithState", "transformWithStateInPandas")
OWN = "mapInArrow"
STATES = ("inline", "rocksdb", "auto")
MOVES_AT = 3_000
"""The bytes in a cell at which ``auto`` moves state: these queries reach it halfway or so."""

ZONE = "America/New_York"  # the records of dead letters are text, in the session's time zone


@dataclass(frozen=True)
class Counter:
    """Counts calls over processes and tasks, in the length of a file."""

    path: Path

    def count(self) -> int:
        """Count one call; return how many there were."""
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(file, b".")
            return os.lseek(file, 0, os.SEEK_CUR)
        finally:
            os.close(file)


@dataclass(frozen=True)
class Fault:
    """What goes wrong at a save.

    Args:
        when: ``before`` or ``after`` it.
        what: ``raise``, or the process that is killed: ``driver``, ``worker`` or ``executor``.
    """

    when: str
    what: str

    def strike(self, driver: int) -> None:
        """Have it go wrong; a worker whose driver is killed is left to write as it likes."""
        match self.what:
            case "raise":
                raise RuntimeError("once only")
            case "driver":
                os.killpg(driver, signal.SIGKILL)
            case "worker":
                os.kill(os.getpid(), signal.SIGKILL)
            case _:
                os.kill(_executor(), signal.SIGKILL)


def faults_of(text: str) -> dict[int, Fault]:
    """Read faults, by the number of the save."""
    if text == "none":
        return {}
    parts = (part.split("=") for part in text.split(","))
    return {int(number): Fault(*how.split(":")) for number, how in parts}


@dataclass(frozen=True)
class Deadly:
    """A backend with faults, by the number of the save.

    Args:
        inner: The backend.
        counter: Counts saves.
        faults: The faults.
        driver: The group of the driver's processes.
    """

    inner: StateBackend
    counter: Counter
    faults: Mapping[int, Fault]
    driver: int = 0

    @property
    def name(self) -> str:
        return self.inner.name

    def keep(self, level: int, key_group: int, content: bytes | None) -> KeptState:
        return _Deadly(self, self.inner.keep(level, key_group, content))


@dataclass
class _Deadly:
    backend: Deadly
    kept: KeptState

    @property
    def stored_bytes(self) -> int:
        return self.kept.stored_bytes

    @property
    def is_apart(self) -> bool:
        return self.kept.is_apart

    def opened(self) -> AbstractContextManager[StateStore]:
        return self.kept.opened()

    def save(self, batch: Batch) -> bytes:
        fault = self.backend.faults.get(self.backend.counter.count())
        if fault is not None and fault.when == "before":
            fault.strike(self.backend.driver)
        saved = self.kept.save(batch)
        if fault is not None and fault.when == "after":
            fault.strike(self.backend.driver)
        return saved


@dataclass(frozen=True)
class Tripping:
    """A user's combiner that counts, and fails or kills its worker in some of the calls.

    Args:
        counter: Counts its calls.
        faults: What happens in a call, by its number: ``raise``, or ``worker``, which is killed.
    """

    counter: Counter
    faults: Mapping[int, str]

    def create_accumulator(self) -> int:
        return 0

    def add_input(self, accumulator: int, value: int) -> int:
        fault = self.faults.get(self.counter.count()) if self.faults else None
        if fault == "raise":
            raise RuntimeError("once only")
        if fault is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        return accumulator + 1

    def merge_accumulators(self, accumulators: Iterable[int]) -> int:
        return sum(accumulators)

    def extract_output(self, accumulator: int) -> int:
        return accumulator


def _executor() -> int:
    """Return the process of the executor that this worker of its daemon belongs to."""
    daemon = Path(f"/proc/{os.getppid()}")
    assert b"pyspark.daemon" in (daemon / "cmdline").read_bytes()
    executor = int((daemon / "stat").read_text().rpartition(")")[2].split()[1])
    assert b"CoarseGrainedExecutorBackend" in Path(f"/proc/{executor}/cmdline").read_bytes()
    return executor


def start(
    session: SparkSession, folder: Path, backend: StateBackend, tripping: Tripping
) -> StreamingQuery:
    """Start the query over the files in ``folder/in``; its panes go to ``folder/out``."""
    pipeline = (
        lw.read_parquet(
            str(folder / "in"),
            time="at",
            watermark=lw.BoundedDisorder("5s"),
            clock=lw.ArrivalClock("arrived", tick="5s"),
        )
        .key_by("key")
        .window(
            lw.Sessions("8s"),
            trigger=lw.AfterWatermark(
                early=lw.AfterAny(lw.AfterCount(3), lw.AfterProcessingTime("4s")),
                late=lw.AfterCount(1),
            ),
            accumulation="retracting",
            allowed_lateness="6s",
        )
        .aggregate(
            total=lw.sum("value"),
            values=lw.collect("value"),
            last=lw.last("name"),
            called=lw.combine(tripping, "value"),
        )
    )
    panes = pipeline.to_spark(
        session, state=backend, key_groups=2, files_per_batch=1, drain=True,
        outputs="all", types={"called": "bigint"},
    )  # fmt: skip
    query: StreamingQuery = (
        panes.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    return query


def operator_of(adapter: str) -> Literal["mapInArrow"] | None:
    """Return the option of ``to_spark`` for an operator."""
    return "mapInArrow" if adapter == OWN else None


def rocks_backend(folder: Path) -> RocksBackend:
    """Return a backend with its state in the folder, which collects old versions soon."""
    return RocksBackend(
        str(folder / "state"), cache=str(folder / "cache"), retain=2, collect_every=3, spare=2
    )


def backend_of(folder: Path, state: str, faults: Mapping[int, Fault], driver: int = 0) -> Deadly:
    """Return a backend with faults that counts its saves in the folder."""
    inner: StateBackend = InlineBackend()
    if state != "inline":
        inner = rocks_backend(folder)
    if state == "auto":
        inner = GrowingBackend(inner, MOVES_AT)
    return Deadly(inner, Counter(folder / "saves"), faults, driver)


def main() -> None:
    """Run the query until the end or death."""
    folder, graph, adapter, state = Path(sys.argv[1]), *sys.argv[2:5]
    faults = faults_of(sys.argv[5])
    executors = any(fault.what == "executor" for fault in faults.values())
    master = "local-cluster[2,1,700]" if executors else "local[2,4]"  # a task may fail three times
    backend = backend_of(folder, state, faults, os.getpgid(0))
    session = _session(folder, master, chains=adapter == ADAPTERS[0])
    if graph == "stage":
        query = start(session, folder, backend, Tripping(Counter(folder / "calls"), {}))
    else:
        case, operator = GRAPHS[graph](), operator_of(adapter)
        query = start_graph(
            frame_of(session, case, folder, state=backend, operator=operator), folder
        )
    print("started", flush=True)
    query.awaitTermination()


def _session(folder: Path, master: str, *, chains: bool) -> SparkSession:
    builder = (
        SparkSession.builder.master(master)
        .appName("lowwater kills")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "700m")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", FAST)
        .config("spark.executor.extraJavaOptions", FAST)
        .config("spark.executor.memory", "700m")
        .config("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"])
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.python.daemon.module", WORKER_DAEMON)
        .config("spark.sql.session.timeZone", ZONE)
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
    )
    configure(builder, partitions=2, chains=chains)
    session: SparkSession = builder.getOrCreate()
    return session


if __name__ == "__main__":
    main()
