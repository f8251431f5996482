"""A topic as a replayable source of pipelines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, final

import pyarrow as pa

from lowwater.engine.graph.sources import QUIET, Position
from lowwater.engine.local.delivery import Place
from lowwater.engine.records.batch import Records
from lowwater.io.foretold import foretold_batches, share_of
from lowwater.io.kafka.bounds import Bound
from lowwater.io.kafka.connecting import Connecting
from lowwater.io.kafka.group import commit_offsets
from lowwater.io.kafka.identity import topics_at
from lowwater.io.kafka.message_values import (
    KeyFormat,
    MessageColumns,
    MessageDecoder,
    ValueFormat,
)
from lowwater.io.kafka.reader import MessagePart, Offsets, TopicReader
from lowwater.state.formats import damaged, decoding

_REST_S = 0.05
"""How long a source that has nothing new rests while others are read."""
_CONNECT_S = 0.5
"""How long a run waits for the brokers before it looks whether it is to stop."""
_NOTHING = Records({}, 0)


@final
@dataclass(slots=True)
class _Following:
    """How far the offsets of a group have followed the state.

    Args:
        readers: What reads the topic now.
        was_read: Whether the brokers were reached.
        owed: What they are to take once they are.
        taken: What they have taken, as far as that is known.
    """

    readers: list[TopicReader] = field(default_factory=list)
    was_read: bool = False
    owed: Mapping[str, int] | None = None
    taken: Mapping[str, int] = field(default_factory=dict)


@final
@dataclass(frozen=True, slots=True, repr=False)
class KafkaSource:
    """The messages of a topic.

    A position is ``{"at": offsets, "next": offsets, "id": the topic's id, "types": column types}``:
    where the next batch begins, and where it ends if that is fixed
    (:mod:`lowwater.io.foretold`); all are ``None`` before the brokers are reached. Within a batch,
    records come by partition and offset; of messages with several rows, each partition has a row in
    turn.

    Args:
        servers: The brokers.
        topic: The topic.
        value: How values are encoded.
        columns: The columns that messages have beside their values.
        time: The column of event times.
        known: The columns of values and their types, if they are given.
        group: The consumer group whose offsets follow the commits of the run.
        start: Where to begin.
        end: Where the input ends.
        config: Further settings of the client library.
        fractions: Whether event times may be floats.
        only: The columns of values that are wanted, of any type; ``None`` for all.
        key_format: How keys are decoded, if not as text.
    """

    # A state directory knows the fields that are not ``repr=False``: they must not change.
    servers: str = field(repr=False)
    topic: str
    value: ValueFormat
    columns: MessageColumns
    time: str
    known: tuple[tuple[str, pa.DataType], ...] | None = None
    group: str | None = field(default=None, repr=False)
    start: Bound = "earliest"
    end: Bound = "never"
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)
    fractions: bool = field(default=False, repr=False)
    only: tuple[str, ...] | None = field(default=None, metadata={QUIET: True})
    key_format: KeyFormat | None = field(default=None, metadata={QUIET: True})
    _group: _Following = field(default_factory=_Following, init=False, repr=False, compare=False)

    partitioned: ClassVar[bool] = True
    """Its partitions are read at different speeds: see :func:`lowwater.check`."""

    @property
    def endless(self) -> bool:
        """Whether the input never ends."""
        return self.end == "never"

    @property
    def schema(self) -> pa.Schema | None:
        """The columns, if those of the values are known."""
        if self.known is None:
            return None
        return pa.schema([*self.known, *self.columns.types(self.key_format or "text").items()])

    def places(self) -> Iterable[Place]:
        """Return the topic, which the run must not write to."""
        return [topics_at(self.servers, self.config, "Kafka", (self.topic,))]

    def up_to_now(self) -> KafkaSource:
        """Return the source that ends with what is there when it is read."""
        return replace(self, end="latest") if self.end == "never" else self

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Records]:
        for records, _ in self._batches(None, size):
            yield records  # empty ones too: a run that waits can be stopped between two of them

    def batches_from(
        self, position: Position | None, size: int, keys: tuple[str, ...]
    ) -> Iterator[tuple[Records, Position]]:
        if position is not None:
            _check(position)
        return self._batches(position, size)

    def committed(self, position: Position) -> None:
        """Commit the stored offsets to the group."""
        if self.group is None:
            return
        offsets, following = position["at"], self._group
        if offsets is None:
            return
        if following.readers:
            for reader in following.readers:
                reader.commit(offsets)
        elif not following.was_read:  # a run that is about to connect
            following.owed = offsets
        elif offsets != following.taken and commit_offsets(
            self.servers, self.topic, self.config, self.group, offsets
        ):
            following.taken = offsets

    def _batches(self, position: Position | None, size: int) -> Iterator[tuple[Records, Position]]:
        known: Position = {"at": None, "next": None, "id": None, "types": None}
        known.update(position or {})
        connecting = Connecting(lambda: self._reader(known), TopicReader.close)
        seconds = _CONNECT_S
        try:
            while (reader := connecting.wait(seconds)) is None:
                yield replace(_NOTHING, rest_seconds=_REST_S), known
                seconds = _REST_S
        finally:
            connecting.give_up()
        types: dict[str, pa.DataType] = {} if known["types"] is None else _types_of(known["types"])
        decoder = MessageDecoder(
            self.topic, self.value, self.columns, self.time, self.fractions, types, self.known,
            self.only, self.key_format or "text",
        )  # fmt: skip
        following = self._group
        following.was_read = True
        following.readers.append(reader)
        try:
            if following.owed is not None:
                reader.commit(following.owed)
                following.owed = None
            yield from foretold_batches(_TopicParts(reader, decoder, size), known["next"])
        finally:
            following.readers.remove(reader)
            following.taken = reader.close()

    def _reader(self, known: Position) -> TopicReader:
        return TopicReader(
            self.servers, self.topic, self.config, self.group,
            known["at"], known["next"] or {}, known["id"], self.start, self.end,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"KafkaSource({self.servers!r}, {self.topic!r})"


@final
class _TopicParts:
    """The parts of a topic that a reader fetches, as batches.

    Args:
        reader: Reads the topic.
        decoder: Makes records of messages.
        size: The largest number of messages in a part.
    """

    def __init__(self, reader: TopicReader, decoder: MessageDecoder, size: int) -> None:
        self._reader, self._decoder, self._size = reader, decoder, size
        self._at = self._begun = reader.at
        self._is_foretold = self._has_heard_all = False

    def fetch(self, until: Offsets | None, seconds: float | None) -> list[MessagePart]:
        reader, size = self._reader, self._size
        reader.poll(seconds or 0.0, size)
        self._is_foretold = until is not None
        if until is not None:
            return [reader.part_until(until)] if reader.has(until) else []
        self._has_heard_all = self._has_heard_all or reader.has_heard_all(size)
        return reader.next_parts(size) if self._has_heard_all else []

    def rest(self) -> float | None:
        return None if self._reader.is_ended and not self._is_foretold else _REST_S

    def batch(self, part: MessagePart, following: Offsets | None) -> tuple[Records, Position]:
        records, self._at = self._decoder.records(part.content), part.end
        share = share_of(self._begun, part.end, self._reader.ends)
        records = replace(records, partitions=self._reader.partitions, share=share)
        return records, self._position(following)

    def pause(self, following: Offsets | None) -> tuple[Records, Position]:
        nothing = replace(_NOTHING, partitions=self._reader.partitions)
        return nothing, self._position(following)

    def _position(self, following: Offsets | None) -> Position:
        return {
            "at": self._at,
            "next": following,
            "id": self._reader.topic_id,
            "types": _encoded(self._decoder.types),
        }


def _encoded(types: Mapping[str, pa.DataType]) -> bytes:
    data: bytes = pa.schema(list(types.items())).serialize().to_pybytes()
    return data


def _types_of(data: Any) -> dict[str, pa.DataType]:
    schema = pa.ipc.read_schema(pa.py_buffer(data))
    return {field.name: field.type for field in schema}


def _check(position: Position) -> None:
    """Raise ``StateError`` if a position is not one of a topic."""
    what = "the position in the topic"
    with decoding(what):
        at, ahead = position["at"], position["next"]
        if at is None and ahead is None:
            return
        for offsets in (at, ahead or {}):
            if not all(
                isinstance(number, str) and number.isdigit() and type(offset) is int
                for number, offset in offsets.items()
            ):
                raise damaged(what, f"it is {position!r}")
        _types_of(position["types"])
