"""Goldens of Kafka: positions in topics, and what the sink has written, on the model of a cluster.

``broker.json`` in a golden's folder holds the topics.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka as kafka

import lowwater as lw
from lowwater.pipeline.outputs import Writing
from tests.goldens.golden import Golden
from tests.goldens.rows import FIRST, LATER, plain
from tests.goldens.windows import written
from tests.unit.io.kafka.model import Log, ModelBroker, Stored, Transaction

_KEPT = Path("broker.json")
_OUT = ("sums", "late")
PARTITIONS = 3


@contextmanager
def cluster() -> Iterator[ModelBroker]:
    """Run a cluster with the topics that are kept in the folder, and keep them again."""
    with ModelBroker().patched() as broker:
        _load(broker)
        try:
            yield broker
        finally:
            _save(broker)


def _load(broker: ModelBroker) -> None:
    if not _KEPT.exists():
        broker.cluster_id = "golden"
        for number, name in enumerate(("clicks", *_OUT)):
            broker.topics[name] = (f"{number:032}", [Log() for _ in range(PARTITIONS)])
        for at, row in enumerate(row for part in (*FIRST, *LATER) for row in plain(part)):
            data = b"{oops" if at % 17 == 5 else json.dumps(row).encode()
            headers = [("n", str(at).encode())]
            broker.append("clicks", at % PARTITIONS, (b"k%d" % at, data), 1_000 + at, headers)
        return
    kept = json.loads(_KEPT.read_text())
    broker.cluster_id, broker.epochs, broker.now = kept["id"], kept["epochs"], kept["now"]
    for name, (topic_id, logs) in kept["topics"].items():
        broker.topics[name] = (topic_id, [_log(name, number, log) for number, log in logs])
    for group, topic, number, offset, metadata in kept["groups"]:
        told = () if metadata is None else (metadata,)
        broker.groups[group, topic, number] = kafka.TopicPartition(topic, number, offset, *told)


def _log(topic: str, number: int, kept: dict[str, Any]) -> Log:
    log = Log()
    log.first, log.end = kept["first"], kept["end"]
    for offset, pair, millis, headers, committed in kept["entries"]:
        transaction = None if committed is None else Transaction(committed=committed)
        log.entries.append(
            Stored((topic, number, offset), _bytes(pair), millis, _bytes(headers), transaction)
        )
    return log


def _save(broker: ModelBroker) -> None:
    for name in list(broker.opened):  # as a broker does when a producer is gone for long
        broker.end_transaction(name, committed=False)
    topics = {
        name: [topic_id, [[number, _kept(log)] for number, log in enumerate(logs)]]
        for name, (topic_id, logs) in broker.topics.items()
    }
    groups = [
        [*name, place.offset, place.metadata] for name, place in sorted(broker.groups.items())
    ]
    kept = {
        "id": broker.cluster_id,
        "epochs": broker.epochs,
        "now": broker.now,
        "topics": topics,
        "groups": groups,
    }
    _KEPT.write_text(json.dumps(kept))


def _kept(log: Log) -> dict[str, Any]:
    entries = [
        [
            entry.offset(),
            _text(entry.pair),
            entry.millis,
            _text(entry.given_headers),
            None if entry.transaction is None else bool(entry.transaction.committed),
        ]
        for entry in log.entries
    ]
    return {"first": log.first, "end": log.end, "entries": entries}


def _text(value: Any) -> Any:
    """Return pairs of bytes as JSON has them."""
    match value:
        case bytes():
            return {"hex": value.hex()}
        case list() | tuple():
            return [_text(each) for each in value]
        case _:
            return value


def _bytes(value: Any) -> Any:
    match value:
        case {"hex": text}:
            return bytes.fromhex(text)
        case list():
            return tuple(map(_bytes, value))
        case _:
            return value


def topics() -> list[Writing]:
    """A topic that is read whole and with columns of its own, and one that is written."""
    count = len((*FIRST, *LATER)) * 30 // PARTITIONS
    options: Any = {
        "time": "at",
        "end": dict.fromkeys(range(PARTITIONS), count),
        "watermark": lw.PerPartition(lw.BoundedDisorder("8s")),
    }
    whole = lw.read_kafka("model:9092", "clicks", group="golden", **options).named("whole")
    typed = lw.read_kafka(
        "model:9092", "clicks", schema={"at": "string", "key": "string", "v": "int64"},
        key="own", headers="heads", timestamp="sent", start={0: 3, 1: 0, 2: 5}, **options,
    ).named("typed")  # fmt: skip
    sums = (
        typed.key_by("key")
        .window(lw.FixedWindows("40s"), trigger=_EARLY, accumulation="retracting")
        .aggregate(n=lw.count(), v=lw.sum("v"), owns=lw.collect("own"), sent=lw.max("sent"))
        .named("sums")
    )
    counts = (
        whole.key_by("key")
        .window(lw.Sessions("9s"))
        .aggregate(n=lw.count(), s=lw.collect("s"), f=lw.sum("f"))
        .named("counts")
    )
    many = (
        sums.key_by("n")
        .window(lw.FixedWindows("60s"), accumulation="retracting")
        .aggregate(of=lw.count(), v=lw.sum("v"))
        .named("many")
    )
    return [
        *written(counts),
        sums.write_kafka("model:9092", "sums", late="late"),
        *written(many),
    ]


_EARLY = lw.AfterWatermark(early=lw.AfterCount(3), late=lw.AfterCount(1))


def _nothing(later: bool) -> None:
    """Write nothing: the topics have it all."""


def _told() -> dict[str, list[str]]:
    """Return what the topics that are written to show, by their names."""
    with cluster() as broker:
        return {name: [str(pair) for pair in broker.consume(name)] for name in _OUT}


GOLDENS = [
    Golden(
        name="topics", feed=_nothing, outputs=topics, clock=lw.ManualClock(0), stop=9, killed=False,
        world=cluster, more_output=_told,
    ),
]  # fmt: skip
