"""A topic of Kafka: each delivery is a transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, final

import pyarrow as pa

from lowwater.engine.join.views import KEY
from lowwater.engine.local.delivery import PIECES, Delivery, Place, Writer
from lowwater.engine.records.json_lines import json_lines
from lowwater.engine.records.json_rows import json_text, without_tags
from lowwater.errors import DataError, InvalidArgument, constructor, describe, user_code
from lowwater.io.kafka.client import (
    LOG,
    REQUEST_S,
    checked_config,
    checked_servers,
    checked_topic,
    client,
    failure,
    settings,
    told,
)
from lowwater.io.kafka.identity import topics_at
from lowwater.io.sinks.output_owner import ahead, check_closed, foreign_opening, lost
from lowwater.state.forks import outlive_forks

Encoder: TypeAlias = Callable[[dict[str, Any]], bytes | None]
MessageFormat: TypeAlias = Literal["json", "arrow"] | Encoder
"""How rows become values; or a function of a row that returns the bytes of its message."""

_ARROW_ROWS = 4_096
"""How many rows a message in the format of Arrow has at most."""
_COMMIT_S = 60.0
"""How long the brokers may take to take a delivery."""
_IN_ALL = 4_000_000
"""How many messages the client library may hold: more than a delivery has."""


@constructor(brokers="servers", bootstrap_servers="servers", name="topic")
@final
@dataclass(frozen=True, slots=True)
class KafkaTopic:
    """A topic of Kafka that gets a message for each pane, record or changed row.

    Guarantee: exactly once for a run with a state directory, as consumers see it that read what is
    committed (``isolation.level=read_committed``). Each delivery is one transaction, which also
    commits its number as the offset of a consumer group of the run's own. A delivery that comes
    again after a crash is skipped if that offset says that it was committed. The transactional id
    is of the state directory and the output: the brokers refuse an older run over the same state
    that still writes. Without a state directory messages are written once unless the run fails.

    The offset of the group ``lowwater-<state>-<output>-<topic>`` must outlive the pauses between
    runs: brokers forget it after ``offsets.retention.minutes`` (7 days by default) without a run.
    A run that was away for longer is refused, as it cannot know whether its last delivery arrived.

    The message of a pane or record is its row, with the fields of ``write_jsonl``. Of a table
    (``stream.table(...)``) it is the row that stands, under its primary key, and for a row that
    went a message without a value: a topic that is compacted holds the table.

    Topics must exist. Other programs may write to them too; of one run, one output.

    Needs ``pip install "lowwater[kafka]"``.

    Args:
        servers: The brokers, such as ``"localhost:9092"``.
        topic: The topic.
        key: The column whose values are the messages' keys, or several, whose values are a JSON
            list. Text is written as it is, other values as JSON. By default the key columns of
            panes; records of a process have none. Tables go under their primary keys only.
        value: ``"json"``: an object in each message. ``"arrow"``: an Arrow stream in each, of up
            to 4,096 rows and without a key. Or a function that takes a row as a dict and returns
            bytes, or ``None`` for no value.
        late: The topic of late elements, as JSON. By default they are counted, not written.
        errors: The topic of dead letters, as JSON. By default they are counted, not written.
        config: Further settings of the client library (librdkafka), such as those of security.
    """

    servers: str = field(repr=False)
    topic: str
    key: str | tuple[str, ...] | None = None
    value: MessageFormat = "json"
    late: str | None = None
    errors: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)
    _open: list[_Connection] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        client()
        object.__setattr__(self, "servers", checked_servers(self.servers))
        object.__setattr__(self, "config", checked_config(self.config))
        checked_topic(self.topic)
        for name in ("late", "errors"):
            if getattr(self, name) is not None:
                checked_topic(getattr(self, name), name)
        key = self.key
        if isinstance(key, list):
            key = tuple(key)
            object.__setattr__(self, "key", key)
        names = (key,) if isinstance(key, str) else key
        if names is not None and (
            not isinstance(names, tuple) or not names or not all(isinstance(n, str) for n in names)
        ):
            raise InvalidArgument(
                f"{describe('key', key)} is not the name of a column",
                hint='Use key="user", or several as key=("user", "day")',
            )
        if self.value not in ("json", "arrow") and not callable(self.value):
            raise InvalidArgument(
                f"{describe('value', self.value)} does not say how rows become messages",
                hint='Use "json", "arrow", or a function of a row that returns bytes',
            )
        if self.value == "arrow" and key is not None:
            raise InvalidArgument(
                'a message of value="arrow" has many rows, and no key of its own',
                hint='Leave out key=, or use value="json"',
            )

    def check(self, panes: pa.Table) -> None:
        for name in (self.key,) if isinstance(self.key, str) else self.key or ():
            if panes.schema.names and name not in panes.schema.names:
                raise InvalidArgument(
                    f"there is no column {name!r} in the output",
                    where="KafkaTopic(key=)",
                    hint=f"Use one of {', '.join(panes.schema.names)}",
                )
        primary = (panes.schema.metadata or {}).get(KEY)
        names = [self.key] if isinstance(self.key, str) else list(self.key or ())
        if primary is not None and names and sorted(names) != sorted(json.loads(primary)):
            raise InvalidArgument(
                f"{describe('key', self.key)} is not the primary key of the table: a row that "
                "changes in it, or goes, would leave its message behind",
                where="KafkaTopic(key=)",
                hint=f"Leave out key=: messages go under {', '.join(json.loads(primary))}",
            )
        if self.value == "arrow" and primary is not None:
            raise InvalidArgument(
                'a table goes to a topic row by row, under its primary key, and value="arrow" has '
                "many rows in a message",
                where="KafkaTopic(value=)",
                hint='Use value="json"',
            )

    def places(self) -> Iterable[Place]:
        # Topics of late elements and dead letters may be shared.
        also = tuple(topic for topic in (self.late, self.errors) if topic is not None)
        return [topics_at(self.servers, self.config, repr(self), (self.topic,), also)]

    def look(self, writer: Writer) -> None:
        check_closed(self, self._open)
        self._check_topics()

    def open(self, writer: Writer) -> None:
        check_closed(self, self._open)
        self._check_topics()
        self._open.append(_Connection(self, writer))

    def deliver(self, delivery: Delivery) -> None:
        if not self._open:
            raise InvalidArgument("this KafkaTopic is not open", hint="Call open() first")
        self._open[0].write(delivery, self._messages(delivery))

    def close(self, *, complete: bool) -> None:
        while self._open:
            self._open.pop().close()

    @property
    def _what(self) -> str:
        return f"the topic {self.topic!r} could not be written"

    def _check_topics(self) -> None:
        """Raise if a topic is not there: brokers may otherwise make one of one partition."""
        kafka = client()
        # A consumer, unlike a producer, does not ask brokers to create what it looks for.
        with told(self._what):
            consumer = kafka.Consumer(
                {**settings(self.servers, self.config), "group.id": "lowwater"}
            )
            try:
                for topic in filter(None, (self.topic, self.late, self.errors)):
                    found = consumer.list_topics(topic, timeout=REQUEST_S).topics[topic]
                    if found.error is not None:
                        raise failure(f"the topic {topic!r} could not be written", found.error)
            finally:
                consumer.close()

    def _messages(self, delivery: Delivery) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        """Yield the messages of a delivery by topic."""
        if delivery.panes.num_rows:
            yield self.topic, self._of_rows(delivery)
        for name, table in (("late", delivery.late), ("errors", delivery.errors)):
            topic = getattr(self, name)
            if table is None or not table.num_rows:
                continue
            if topic is None:
                LOG.warning(
                    "%d %s are not written to %r: name a topic for them with KafkaTopic(%s=...)",
                    table.num_rows, _NOUNS[name], self.topic, name,
                )  # fmt: skip
                continue
            yield topic, [{"value": line} for line in _lines(table)]

    def _of_rows(self, delivery: Delivery) -> list[dict[str, Any]]:
        table = delivery.panes
        if self.value == "arrow":
            return [
                {"value": _stream(table.slice(start, _ARROW_ROWS))}
                for start in range(0, table.num_rows, _ARROW_ROWS)
            ]
        keys = self._keys(delivery)
        gone: Sequence[bool] = ()
        if delivery.is_table and "kind" in table.schema.names:
            gone = [kind == "retract" for kind in table.column("kind").to_pylist()]
            table = table.drop_columns(["kind"])
        values: Iterable[bytes | None] = _lines(table)
        if callable(self.value):
            values = self._encoded(self.value, table)
        messages: list[dict[str, Any]] = [{"value": value} for value in values]
        for message, key in zip(messages, keys, strict=False):
            if key is not None:
                message["key"] = key
        for message, went in zip(messages, gone, strict=False):
            if went:
                message["value"] = None
        return messages

    def _encoded(self, encoder: Encoder, table: pa.Table) -> Iterator[bytes | None]:
        for row in table.to_pylist():
            with user_code("the function of KafkaTopic(value=)"):
                value = encoder(row)
            if value is not None and not isinstance(value, bytes):
                raise DataError(
                    f"the function of value= returned {type(value).__name__}, not bytes",
                    where="KafkaTopic(value=)",
                    hint="Encode it, as in json.dumps(row).encode()",
                )
            yield value

    def _keys(self, delivery: Delivery) -> list[bytes | None]:
        """Return the keys of the messages; nothing if they have none."""
        names: Sequence[str]
        if self.key is not None:
            names = (self.key,) if isinstance(self.key, str) else self.key
        elif delivery.is_records and not delivery.is_table:
            return []
        else:
            names = delivery.keys
        table = without_tags(delivery.panes.select(list(names)))
        columns = [column.to_pylist() for column in table.columns]
        if len(columns) == 1:
            keys = [_key(value) for value in columns[0]]
            # Compaction keeps no message without a key: a null that is one is the text "null".
            return [b"null" if key is None else key for key in keys] if delivery.is_table else keys
        return [json_text(list(row)).encode() for row in zip(*columns, strict=True)]


@final
class _Connection:
    """A producer for one run, and what was delivered.

    Args:
        sink: The sink.
        writer: Who writes.

    Raises:
        StateError: Another run over a copy of the state has written since.
        DataError: The brokers refuse or do not answer.
    """

    def __init__(self, sink: KafkaTopic, writer: Writer) -> None:
        outlive_forks(self)  # the client library has threads
        self._sink = sink
        self._kafka = client()
        self._writer = writer
        self._name = f"lowwater-{writer.id}-{writer.output}-{sink.topic}"
        self._last = -1
        self._failed: list[Any] = []
        self._group: Any = None
        what = sink._what
        with told(what):
            self._producer = self._kafka.Producer(
                {
                    "partitioner": "murmur2_random",  # as clients in Java place keys
                    "queue.buffering.max.messages": _IN_ALL,
                    "linger.ms": 5,
                    **settings(sink.servers, sink.config),
                    "enable.idempotence": True,
                    "delivery.report.only.error": True,
                    **({"transactional.id": self._name} if writer.resumes else {}),
                }
            )
        if not writer.resumes:
            return
        with told(what):
            # The first of the two: from here on an older run over this state is refused.
            self._producer.init_transactions(REQUEST_S)
            self._group = self._kafka.Consumer(
                {
                    **settings(sink.servers, sink.config),
                    "group.id": self._name,
                    "enable.auto.commit": False,
                }
            )
        try:
            self._resume()
        except BaseException:
            self._group.close()
            raise

    def _resume(self) -> None:
        """Learn what was delivered, and note that this opening delivers from here on."""
        sink, writer = self._sink, self._writer
        with told(sink._what):
            place = self._kafka.TopicPartition(sink.topic, 0)
            (found,) = self._group.committed([place], timeout=REQUEST_S)
            if found.error is not None:
                raise failure(sink._what, found.error)
        if found.offset >= 0:
            self._last = found.offset - 1
            if found.metadata and not writer.follows(found.metadata):
                raise foreign_opening(sink.topic, found.metadata, writer)
            if (epoch := self._last // PIECES) > writer.epoch:
                raise ahead(sink.topic, epoch, writer)
        elif writer.delivered:
            raise lost(sink.topic, is_another=False)
        with told(sink._what):
            self._producer.begin_transaction()
            self._commit(self._last)

    def write(
        self, delivery: Delivery, by_topic: Iterator[tuple[str, list[dict[str, Any]]]]
    ) -> None:
        """Write a delivery, unless it was written before."""
        number = delivery.epoch * PIECES + delivery.piece
        if self._writer.resumes and number <= self._last:
            return
        with told(self._sink._what):
            if not self._writer.resumes:
                self._produce(by_topic)
                if self._producer.flush(_COMMIT_S) or self._failed:
                    raise self._not_taken()
                return
            self._producer.begin_transaction()
            self._produce(by_topic)
            if self._producer.flush(_COMMIT_S) or self._failed:
                raise self._not_taken()
            self._commit(number)
        self._last = number

    def close(self) -> None:
        """Disconnect. The brokers abort a transaction that was begun and not committed."""
        if self._group is not None:
            self._group.close()
        self._producer.purge()

    def _produce(self, by_topic: Iterator[tuple[str, list[dict[str, Any]]]]) -> None:
        for topic, messages in by_topic:
            try:
                self._producer.produce_batch(topic, messages, on_delivery=self._heard)
            except BufferError:
                raise self._not_taken() from None
            self._failed += [error for one in messages if (error := one.get("_error")) is not None]
            self._producer.poll(0)

    def _commit(self, number: int) -> None:
        """Commit the transaction, and with it the number of the last delivery."""
        place = self._kafka.TopicPartition(
            self._sink.topic, 0, number + 1, metadata=self._writer.opening
        )
        group = self._group.consumer_group_metadata()
        self._producer.send_offsets_to_transaction([place], group, _COMMIT_S)
        self._producer.commit_transaction(_COMMIT_S)

    def _heard(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed.append(error)

    def _not_taken(self) -> DataError:
        if self._failed:
            return failure(self._sink._what, self._failed[0])
        return DataError(
            f"{self._sink._what}: the brokers did not take all messages within {_COMMIT_S:g} s",
            hint="See that they can be reached and start again: with a state nothing is lost",
        )


_NOUNS = {"late": "late elements", "errors": "dead letters"}


def _lines(table: pa.Table) -> list[bytes]:
    """Return a table's rows as JSON."""
    return json_lines(table).split(b"\n")[:-1]


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    whole = without_tags(table).combine_chunks()
    with pa.ipc.new_stream(sink, whole.schema) as stream:
        stream.write_table(whole)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _key(value: Any) -> bytes | None:
    if value is None:
        return None
    return (value if isinstance(value, str) else json_text(value)).encode()
