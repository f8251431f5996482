"""Topics of Kafka beside the bare client: events per second in and out, and latency.

``python -m benchmarks.kafka [EVENTS]``. The broker is the one of the tests, on this machine: Tansu,
or ``LOWWATER_KAFKA=host:port``. In each round all cases run in turn, and medians are given.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count as count_from
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import confluent_kafka as kafka
import pyarrow as pa

import lowwater as lw
from benchmarks.machine import load, machine
from lowwater.io.sinks import Callback, Delivery, KafkaTopic, Writer
from tests.unit.io.kafka.broker import Broker, running_broker

_PARTITIONS = 4
_ROUNDS = 3
_AT_ONCE = 10_000
_LATENCIES = 200


def main() -> None:
    """Print the tables."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    print(f"{machine('confluent-kafka', 'pyarrow')}, load {load():.1f}")
    with running_broker() as broker:
        _speeds(broker, count)
        _latency(broker)
    print(f"load {load():.1f}")


def _speeds(broker: Broker, count: int) -> None:
    each = count // _PARTITIONS
    topic = broker.topic(_PARTITIONS)
    values = [
        b'{"at": %d, "user": "user-%05d", "amount": %3d, "note": "%s"}'
        % (row * 1_000, row % 10_000, row % 997, b"x" * 27)
        for row in range(each)
    ]
    for number in range(_PARTITIONS):
        _produce(broker, topic, values, number)
    panes = _panes(count // 10)
    sink, epochs = KafkaTopic(broker.servers, broker.topic(1), key="user"), count_from(1)
    sink.open(Writer(id=f"bench-{time.time_ns()}", output=0, resumes=True, opening="1"))
    cases: dict[str, Callable[[], int]] = {
        "bare consumer": lambda: _consumed(broker, topic, each),
        "read_kafka, windows, in memory": lambda: _windowed(broker, topic, each, None),
        "read_kafka, windows, with a state": lambda: _windowed(broker, topic, each, "state"),
        "bare producer, rows ready": lambda: _written_bare(broker, panes),
        "write_kafka, transactions": lambda: _written(sink, panes, epochs),
    }
    speeds: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(_ROUNDS):
        for name, case in cases.items():
            began = time.perf_counter()
            done = case()
            speeds[name].append(done / (time.perf_counter() - began))
    sink.close(complete=True)
    print(f"\n| {len(values[0])} bytes of JSON a message | messages/s | ratio | target |")
    print("|---|---|---|---|")
    bare = 0.0
    for name, found in speeds.items():
        speed = median(found)
        bare = speed if name.startswith("bare") else bare
        target = "" if name.startswith("bare") else "≥ 0.5"
        print(f"| {name} | {speed / 1e6:.3f} M | {speed / bare:.2f} | {target} |", flush=True)


def _consumed(broker: Broker, topic: str, each: int) -> int:
    consumer = kafka.Consumer(
        {"bootstrap.servers": broker.servers, "group.id": "bare", "auto.offset.reset": "error"}
    )
    consumer.assign([kafka.TopicPartition(topic, number, 0) for number in range(_PARTITIONS)])
    size = found = 0
    while found < each * _PARTITIONS:
        for message in consumer.consume(50_000, 0.05):
            size += len(message.value())
            found += 1
    consumer.close()
    return found


def _windowed(broker: Broker, topic: str, each: int, state: str | None) -> int:
    counts = (
        lw.read_kafka(
            broker.servers, topic, time="at", unit="us",
            end=dict.fromkeys(range(_PARTITIONS), each),
            watermark=lw.PerPartition(lw.BoundedDisorder("10s")),
        )
        .key_by("user")
        .window(lw.FixedWindows("1m"))
        .aggregate(n=lw.count(), amount=lw.sum("amount"))
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        at = None if state is None else Path(folder, state)
        output = counts.write_parquet(Path(folder, "out"))
        return output.run(state=at, progress=False).events


def _panes(count: int) -> pa.Table:
    rows = pa.table(
        {
            "at": pa.array(range(count), pa.timestamp("us", "UTC")),
            "user": [f"user-{row % 10_000:05d}" for row in range(count)],
            "amount": pa.array([row % 997 for row in range(count)]),
        }
    )
    stream = lw.from_arrow(rows, time="at").with_columns(at_us=lw.col("amount") * 1000)
    found: list[Delivery] = []
    stream.select("at", "user", "amount", "at_us").write_to(Callback(found.append)).run()
    return pa.concat_tables([delivery.panes for delivery in found])


def _written_bare(broker: Broker, panes: pa.Table) -> int:
    values = [json.dumps(row, default=str).encode() for row in panes.slice(0, 1).to_pylist()]
    _produce(broker, broker.topic(1), values * panes.num_rows, 0)
    return int(panes.num_rows)


def _written(sink: KafkaTopic, panes: pa.Table, epochs: Iterator[int]) -> int:
    for start in range(0, panes.num_rows, 50_000):
        sink.deliver(Delivery(next(epochs), 0, 0, panes.slice(start, 50_000)))
    return int(panes.num_rows)


def _latency(broker: Broker) -> None:
    """Measure from produce to pane, with commits every 100 ms."""
    topic, seen = broker.topic(1), threading.Event()
    arrived: list[float] = []

    def note(delivery: Delivery) -> None:
        if delivery.panes.num_rows:
            arrived.append(time.perf_counter())
            seen.set()

    each = (
        lw.read_kafka(broker.servers, topic, time="at", unit="us")
        .key_by("user")
        .window(
            lw.GlobalWindow(),
            trigger=lw.Repeatedly(lw.AfterCount(1)),
            accumulation="discarding",
        )
        .aggregate(n=lw.count())
    )
    took = []
    producer = kafka.Producer({"bootstrap.servers": broker.servers, "linger.ms": 0})
    with tempfile.TemporaryDirectory() as folder:
        run = each.write_to(Callback(note)).start(
            state=Path(folder, "state"), commit_every="100ms", progress=False
        )
        for number in range(_LATENCIES):
            seen.clear()
            value: dict[str, Any] = {"at": number, "user": "a"}
            began = time.perf_counter()
            producer.produce(topic, json.dumps(value).encode(), partition=0)
            producer.flush()
            seen.wait(30)
            took.append(arrived[-1] - began)
        run.stop()
        run.wait()
    cuts = quantiles(took, n=20)
    print("\n| from produce to pane, commits every 100 ms | p50, ms | p95, ms |")
    print("|---|---|---|")
    print(f"| in memory of the callback | {median(took) * 1e3:.0f} | {cuts[18] * 1e3:.0f} |")


def _produce(broker: Broker, topic: str, values: Sequence[bytes], number: int) -> None:
    producer = kafka.Producer({"bootstrap.servers": broker.servers})
    for start in range(0, len(values), _AT_ONCE):
        messages = [{"value": value} for value in values[start : start + _AT_ONCE]]
        producer.produce_batch(topic, messages, partition=number)
        producer.poll(0)
    assert not producer.flush(60)


if __name__ == "__main__":
    main()
