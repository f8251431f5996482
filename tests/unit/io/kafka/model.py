"""A model of a Kafka cluster within the process, in the place of the client library.

It does what the broker of the tests does not: transactions whose records nobody sees until they are
committed, and never if they are aborted; markers of transactions, which take offsets; producers
that are fenced by a newer one of their name; offsets that a transaction commits; partitions that
are added, times of messages, and messages that retention or compaction removed.
"""

from __future__ import annotations

import sys
import types
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, final

import confluent_kafka as kafka
import pytest
from confluent_kafka import admin

from tests.unit.io.kafka.broker import Message

_CODES = kafka.KafkaError


@final
class Aborting(BaseException):
    """Raised where a test lets a process die."""


@final
@dataclass
class Stored:
    """What a partition has at an offset; messages are read as such.

    Args:
        at: Topic, partition and offset.
        pair: Key and value; ``None`` for the marker of a transaction.
        millis: The timestamp.
        given_headers: The headers.
        transaction: The transaction; ``None`` for none.
        failure: What is wrong, or that the partition ends here.
    """

    at: tuple[str, int, int]
    pair: Message | None
    millis: int = 0
    given_headers: Any = None
    transaction: Transaction | None = None
    failure: Any = None

    def headers(self) -> Any:
        return self.given_headers

    def topic(self) -> str:
        return self.at[0]

    def partition(self) -> int:
        return self.at[1]

    def offset(self) -> int:
        return self.at[2]

    def key(self) -> bytes | None:
        return None if self.pair is None else self.pair[0]

    def value(self) -> bytes | None:
        return None if self.pair is None else self.pair[1]

    def timestamp(self) -> tuple[int, int]:
        return (1, self.millis)

    def error(self) -> Any:
        return self.failure

    @property
    def is_open(self) -> bool:
        return self.transaction is not None and self.transaction.committed is None

    @property
    def is_shown(self) -> bool:
        if self.pair is None:
            return False
        return self.transaction is None or bool(self.transaction.committed)


@final
@dataclass
class Transaction:
    """A transaction: open, committed or aborted, and the offsets that it commits."""

    committed: bool | None = None
    offsets: list[tuple[str, Any]] = field(default_factory=list)
    places: set[tuple[str, int]] = field(default_factory=set)


@final
class Log:
    """A partition."""

    def __init__(self) -> None:
        self.entries: list[Stored] = []
        self.first = 0
        self.end = 0

    def stable(self) -> int:
        """Return the offset up to which all transactions have ended."""
        return next((entry.offset() for entry in self.entries if entry.is_open), self.end)


@final
class ModelBroker:
    """A cluster, with the methods that tests use of a broker."""

    servers = "model:9092"
    relay = None

    def __init__(self) -> None:
        self.topics: dict[str, tuple[str, list[Log]]] = {}
        self.groups: dict[tuple[str, str, int], Any] = {}
        self.epochs: dict[str, int] = {}
        self.opened: dict[str, Transaction] = {}
        self.now = 1_000
        self.cluster_id = uuid.uuid4().hex
        self.fuse = 0
        """After so many requests of producers the process dies; 0: never."""

    def burn(self) -> None:
        """Count a request of a producer, which may be its last.

        Raises:
            Aborting: It is.
        """
        if self.fuse:
            self.fuse -= 1
            if not self.fuse:
                raise Aborting

    def topic(self, partitions: int = 1) -> str:
        name = f"model-{uuid.uuid4().hex[:12]}"
        self.topics[name] = (uuid.uuid4().hex, [Log() for _ in range(partitions)])
        return name

    def recreate(self, topic: str, partitions: int = 1) -> None:
        self.topics[topic] = (uuid.uuid4().hex, [Log() for _ in range(partitions)])

    def add_partitions(self, topic: str, total: int) -> None:
        logs = self.topics[topic][1]
        logs += [Log() for _ in range(total - len(logs))]

    def produce(
        self,
        topic: str,
        messages: Mapping[int, Sequence[Message]],
        *,
        millis: int = 0,
        headers: Any = None,
    ) -> None:
        for number, every in messages.items():
            for pair in every:
                self.append(topic, number, pair, millis or self.now, headers)

    def append(
        self,
        topic: str,
        number: int,
        pair: Message | None,
        millis: int = 0,
        headers: Any = None,
        transaction: Transaction | None = None,
    ) -> None:
        log = self.topics[topic][1][number]
        stored = Stored((topic, number, log.end), pair, millis, headers, transaction)
        log.entries.append(stored)
        log.end += 1

    def retain(self, topic: str, number: int, first: int) -> None:
        """Remove the messages before an offset."""
        log = self.topics[topic][1][number]
        log.first = first
        log.entries = [entry for entry in log.entries if entry.offset() >= first]

    def compact(self, topic: str, number: int, gone: set[int]) -> None:
        """Remove messages at some offsets, which leaves gaps."""
        log = self.topics[topic][1][number]
        log.entries = [entry for entry in log.entries if entry.offset() not in gone]

    def end_transaction(self, name: str, *, committed: bool) -> None:
        """End the open transaction of a producer, if there is one; leave markers."""
        transaction = self.opened.pop(name, None)
        if transaction is None:
            return
        transaction.committed = committed
        for topic, number in sorted(transaction.places):
            self.append(topic, number, None)
        if committed:
            for group, place in transaction.offsets:
                self.groups[group, place.topic, place.partition] = place

    def consume(self, topic: str, ends: Mapping[int, int] | None = None) -> list[Message]:
        return [
            entry.pair
            for log in self.topics[topic][1]
            for entry in log.entries
            if entry.is_shown and entry.pair is not None and entry.offset() < log.stable()
        ]

    def offsets(self, group: str, topic: str, partitions: int) -> dict[str, int]:
        return {
            str(number): self.groups[group, topic, number].offset
            for number in range(partitions)
            if (group, topic, number) in self.groups
        }

    @contextmanager
    def patched(self) -> Iterator[ModelBroker]:
        """Let ``import confluent_kafka`` give a client of this cluster."""
        client = types.ModuleType("confluent_kafka")
        vars(client).update(
            Consumer=lambda config: ModelConsumer(self, config),
            Producer=lambda config: ModelProducer(self, config),
            TopicPartition=kafka.TopicPartition,
            TopicCollection=kafka.TopicCollection,
            KafkaError=kafka.KafkaError,
            KafkaException=kafka.KafkaException,
            ConsumerGroupTopicPartitions=kafka.ConsumerGroupTopicPartitions,
            IsolationLevel=kafka.IsolationLevel,
        )
        managing = types.ModuleType("confluent_kafka.admin")
        vars(managing).update(
            AdminClient=lambda config: ModelAdmin(self), OffsetSpec=admin.OffsetSpec
        )
        vars(client)["admin"] = managing
        # Not patch.dict, which would forget other modules that are imported meanwhile.
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "confluent_kafka", client)
            patch.setitem(sys.modules, "confluent_kafka.admin", managing)
            yield self


@final
@dataclass
class Found:
    """The answer to a request."""

    offset: int = -1
    topic_id: str = ""

    def result(self, timeout: float) -> Found:
        return self


@final
class ModelAdmin:
    """What manages topics."""

    def __init__(self, broker: ModelBroker) -> None:
        self._broker = broker

    def describe_topics(self, topics: Any, request_timeout: float) -> dict[str, Found]:
        (name,) = topics.topic_names
        return {name: Found(topic_id=self._broker.topics.get(name, ("", []))[0])}

    def list_offsets(
        self,
        asked: Mapping[Any, Any],
        request_timeout: float,
        isolation_level: Any = kafka.IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[Any, Found]:
        found = {}
        for place, spec in asked.items():
            log = self._broker.topics[place.topic][1][place.partition]
            is_first = spec is admin.OffsetSpec.earliest()
            sees_all = isolation_level is kafka.IsolationLevel.READ_UNCOMMITTED
            last = log.end if sees_all else log.stable()
            found[place] = Found(log.first if is_first else last)
        return found

    def alter_consumer_group_offsets(
        self, asked: Sequence[Any], request_timeout: float
    ) -> dict[str, Future[Any]]:
        answers = {}
        for one in asked:
            for place in one.topic_partitions:
                self._broker.groups[one.group_id, place.topic, place.partition] = place
            answers[one.group_id] = Future[Any]()
            answers[one.group_id].set_result(one)
        return answers

    def poll(self, timeout: float) -> int:
        return 0


@final
class ModelConsumer:
    """A consumer of what is committed."""

    def __init__(self, broker: ModelBroker, config: Mapping[str, Any]) -> None:
        self._broker = broker
        self._config = config
        self._at: dict[tuple[str, int], int] = {}
        self._paused: set[tuple[str, int]] = set()
        self._ended: dict[tuple[str, int], int] = {}

    def list_topics(self, topic: str, timeout: float) -> Any:
        found = self._broker.topics.get(topic)
        partitions = {} if found is None else dict.fromkeys(range(len(found[1])))
        error = None if found else kafka.KafkaError(_CODES.UNKNOWN_TOPIC_OR_PART)
        metadata = types.SimpleNamespace(partitions=partitions, error=error)
        return types.SimpleNamespace(
            topics={topic: metadata}, brokers={}, cluster_id=self._broker.cluster_id
        )

    def offsets_for_times(self, asked: Sequence[Any], timeout: float) -> list[Any]:
        found = []
        for place in asked:
            log = self._broker.topics[place.topic][1][place.partition]
            at = next((e.offset() for e in log.entries if e.pair and e.millis >= place.offset), -1)
            found.append(kafka.TopicPartition(place.topic, place.partition, at))
        return found

    def incremental_assign(self, places: Sequence[Any]) -> None:
        self._at |= {(place.topic, place.partition): place.offset for place in places}

    def pause(self, places: Sequence[Any]) -> None:
        self._paused |= {(place.topic, place.partition) for place in places}

    def resume(self, places: Sequence[Any]) -> None:
        self._paused -= {(place.topic, place.partition) for place in places}

    def consume(self, most: int, timeout: float) -> list[Any]:
        found: list[Any] = []
        for place, at in self._at.items():
            if place in self._paused or len(found) >= most:
                continue
            topic, number = place
            logs = self._broker.topics[topic][1]
            if number >= len(logs) or not logs[number].first <= at <= logs[number].end:
                code = _CODES._AUTO_OFFSET_RESET
                failed = Stored((topic, number, at), None, failure=kafka.KafkaError(code))
                return [failed]
            log, stable = logs[number], logs[number].stable()
            for entry in log.entries:
                if len(found) >= most:
                    break
                if self._at[place] <= entry.offset() < stable:
                    self._at[place] = entry.offset() + 1
                    if entry.is_shown:
                        found.append(entry)
            else:
                self._at[place] = max(self._at[place], stable)
            is_end = self._at[place] >= stable and self._ended.get(place) != stable
            if is_end and len(found) < most:
                self._ended[place] = stable
                end = kafka.KafkaError(_CODES._PARTITION_EOF)
                found.append(Stored((topic, number, stable), None, failure=end))
        return found

    def committed(self, places: Sequence[Any], timeout: float) -> list[Any]:
        group = self._config["group.id"]
        return [
            self._broker.groups.get((group, place.topic, place.partition), place)
            for place in places
        ]

    def consumer_group_metadata(self) -> str:
        return str(self._config["group.id"])

    def close(self) -> None:
        pass


@final
class ModelProducer:
    """A producer, transactional if it has a name."""

    def __init__(self, broker: ModelBroker, config: Mapping[str, Any]) -> None:
        self._broker = broker
        self._name: str = config.get("transactional.id", "")
        self._epoch = 0
        self._next = 0

    def init_transactions(self, timeout: float) -> None:
        self._broker.burn()
        self._broker.end_transaction(self._name, committed=False)
        self._epoch = self._broker.epochs[self._name] = self._broker.epochs.get(self._name, 0) + 1

    def begin_transaction(self) -> None:
        self._broker.burn()
        self._check_epoch()
        self._broker.opened[self._name] = Transaction()

    def produce_batch(
        self, topic: str, messages: Sequence[dict[str, Any]], on_delivery: Any = None
    ) -> int:
        self._broker.burn()
        transaction = None
        if self._name:
            self._check_epoch()
            transaction = self._broker.opened[self._name]
        for message in messages:
            number = self._next % len(self._broker.topics[topic][1])
            if message.get("key") is not None:
                number = hash_of(message["key"]) % len(self._broker.topics[topic][1])
            self._next += 1
            pair = (message.get("key"), message["value"])
            self._broker.append(topic, number, pair, self._broker.now, None, transaction)
            if transaction is not None:
                transaction.places.add((topic, number))
        return len(messages)

    def send_offsets_to_transaction(
        self, offsets: Sequence[Any], group: str, timeout: float
    ) -> None:
        self._broker.burn()
        self._check_epoch()
        transaction = self._broker.opened[self._name]
        transaction.offsets += [(group, place) for place in offsets]

    def commit_transaction(self, timeout: float) -> None:
        self._broker.burn()
        self._check_epoch()
        self._broker.end_transaction(self._name, committed=True)
        self._broker.burn()

    def flush(self, timeout: float) -> int:
        return 0

    def poll(self, timeout: float) -> int:
        return 0

    def purge(self) -> None:
        pass

    def _check_epoch(self) -> None:
        if self._broker.epochs[self._name] != self._epoch:
            raise kafka.KafkaException(kafka.KafkaError(_CODES._FENCED))


def hash_of(key: bytes) -> int:
    """Return a number for a key, the same in each process."""
    return sum(key)
