"""A query to kill; as a program, with a driver of its own.

``python -m tests.spark.query_to_kill FOLDER STATE HOW``, where STATE is ``inline`` or ``rocksdb``
and HOW is ``none``, ``before:N`` or ``after:N`` (the driver dies before or after state is saved for
the N-th time) or ``executor:N`` (the N-th call of the user's function kills its executor, one of
two, each a process of its own). Prints ``started`` when the query runs.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import lowwater as lw
from lowwater.spark import InlineBackend, KeptState, RocksBackend, StateBackend, configure
from lowwater.state.store import Batch, StateStore

ZONE = "America/New_York"  # the records of dead letters are text, in the session's time zone
FAST = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # it never lives for long
WORKER_DAEMON = "tests.spark.worker_daemon"  # named, as importing it imports what workers need


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
class Deadly:
    """A backend at whose N-th save the driver dies; the worker is left to write as it likes."""

    inner: StateBackend
    counter: Counter
    when: str
    number: int
    driver: int

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

    def opened(self) -> AbstractContextManager[StateStore]:
        return self.kept.opened()

    def save(self, batch: Batch) -> bytes:
        backend = self.backend
        now = backend.counter.count() == backend.number
        if now and backend.when == "before":
            os.killpg(backend.driver, signal.SIGKILL)
        saved = self.kept.save(batch)
        if now and backend.when == "after":
            os.killpg(backend.driver, signal.SIGKILL)
        return saved


@dataclass(frozen=True)
class Tripping:
    """A user's combiner that counts, and fails or kills in the calls that ``faults`` names.

    Args:
        counter: Counts its calls.
        faults: What happens in a call, by its number: ``raise``, ``worker`` or ``executor``, the
            process that is killed.
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
            os.kill(os.getpid() if fault == "worker" else _executor(), signal.SIGKILL)
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


def rocks_backend(folder: Path) -> RocksBackend:
    """Return a backend with its state in the folder, which collects old versions soon."""
    return RocksBackend(
        str(folder / "state"), cache=str(folder / "cache"), retain=2, collect_every=3
    )


def main() -> None:
    """Run the query until the end or death."""
    folder, state, how = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    kind, _, number = how.partition(":")
    count = int(number or 0)
    counter = Counter(folder / f"{kind}-{count}")
    backend: StateBackend = rocks_backend(folder) if state == "rocksdb" else InlineBackend()
    if kind in {"before", "after"}:
        backend = Deadly(backend, counter, kind, count, os.getpgid(0))
    faults = {count: kind} if kind == "executor" else {}
    master = "local-cluster[2,1,700]" if faults else "local[2,4]"  # a task may fail three times
    query = start(_session(folder, master), folder, backend, Tripping(counter, faults))
    print("started", flush=True)
    query.awaitTermination()


def _session(folder: Path, master: str) -> SparkSession:
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
    configure(builder, partitions=2)
    session: SparkSession = builder.getOrCreate()
    return session


if __name__ == "__main__":
    main()
