"""Reads the partitions of a topic as one stream, from named offsets."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, final

from lowwater.errors import DataError
from lowwater.io.foretold import Part
from lowwater.io.kafka.bounds import Bound, GivenOffsets
from lowwater.io.kafka.client import (
    LOG,
    REQUEST_S,
    client,
    failure,
    load_admin,
    settings,
    told,
)
from lowwater.io.kafka.group import GroupOffsets
from lowwater.io.kafka.identity import topic_id_from
from lowwater.state.forks import outlive_forks, process_number
from lowwater.time import Instant

Offsets: TypeAlias = dict[str, int]
"""The next offset of each partition, by the partition's number as text."""

_LOOK_S = 30.0
"""How often to look for new partitions, and whether the topic is still the same one."""
_GLANCE_S = 2.0
"""How long such a look may take."""
_QUEUE_KB = 16_384
"""How much the client library fetches ahead, unless ``config=`` says."""


MessagePart: TypeAlias = Part[list[Any], Offsets]
"""Messages that are read together, by partition and offset, and the offsets after them."""


@final
class TopicReader:
    """A consumer of all partitions of a topic; close it after use.

    Partitions are assigned, not shared out by a group: the positions of a run are its own.

    Args:
        servers: The brokers.
        topic: The topic.
        config: Further settings of the client library.
        group: The consumer group whose offsets are committed; ``None`` for none.
        offsets: Where to begin; ``None``: at ``start``.
        ahead: Offsets that must be there, and are read whatever ``end`` says.
        topic_id: The id that the topic had when the offsets were noted; ``None`` if not known.
        start: Where to begin without offsets.
        end: Where the input ends.

    Attributes:
        partitions: The partitions from which messages may come.

    Raises:
        DataError: The topic is not there or was created anew, or what is to be read no longer is.
    """

    def __init__(
        self,
        servers: str,
        topic: str,
        config: Mapping[str, Any],
        group: str | None,
        offsets: Mapping[str, int] | None,
        ahead: Mapping[str, int],
        topic_id: str | None,
        start: Bound,
        end: Bound,
    ) -> None:
        outlive_forks(self)  # the client library has threads
        self._process = process_number()
        self._topic = topic
        self._what = f"the topic {topic!r} could not be read"
        self._kafka = client()
        self._end = end
        self._stash: dict[int, list[Any]] = {}
        self._reached: dict[int, int] = {}
        self._until: dict[int, int | None] = {}
        self.partitions: tuple[int, ...] = ()
        self._paused: set[int] = set()
        self._heard: set[int] = set()
        self._ahead: dict[int, int] = {}
        self._warned_at = float("-inf")
        self._looked_at = time.monotonic()
        with told(self._what):
            self._admin = load_admin().AdminClient(settings(servers, config))
        self._offsets = GroupOffsets(self._admin, topic, group)
        with told(self._what):
            self._consumer = self._kafka.Consumer(
                {
                    "queued.max.messages.kbytes": _QUEUE_KB,
                    **settings(servers, config),
                    "group.id": group or "lowwater",
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "auto.offset.reset": "error",
                    "enable.partition.eof": True,
                }
            )
        try:
            with told(self._what):
                self.topic_id = topic_id_from(self._admin, topic)
                self._begin(offsets, ahead, topic_id, start)
        except BaseException:
            self._consumer.close()
            raise

    @property
    def at(self) -> Offsets:
        """Where the next part begins."""
        return {
            str(number): self._stash[number][0].offset() if self._stash[number] else reached
            for number, reached in sorted(self._reached.items())
        }

    @property
    def ends(self) -> Mapping[str, int | None]:
        """Where the input ends in each partition, as far as that is known."""
        return {str(number): until for number, until in self._until.items()}

    @property
    def is_ended(self) -> bool:
        """Whether the input has ended, and all of it was taken."""
        return self._end != "never" and not any(self._stash.values()) and self._is_read()

    def poll(self, seconds: float, most: int) -> None:
        """Fetch messages, waiting for the first one for at most so long."""
        if time.monotonic() - self._looked_at >= _LOOK_S:
            self._looked_at = time.monotonic()
            self._check_id(self.topic_id, topic_id_from(self._admin, self._topic, _GLANCE_S))
            if self._end == "never":
                self._find_partitions()
        self._offsets.serve()
        self._admin.poll(0)  # gives what it logs to ``logging``
        with told(self._what):
            messages = self._consumer.consume(1, max(0.0, seconds))
            if messages and most > 1:
                messages += self._consumer.consume(most - 1, 0)
        for message in messages:
            error = message.error()
            if error is None:
                self._take(message)
            elif error.code() == self._kafka.KafkaError._PARTITION_EOF:
                self._end_at(message.partition(), message.offset())
            else:
                self._heed(error, message)

    def next_parts(self, most: int) -> list[MessagePart]:
        """Return what was fetched in parts of at most so many messages.

        Each part has messages of every partition that has any, so that no partition is far ahead.
        """
        parts: list[MessagePart] = []
        while any(self._stash.values()):
            messages = []
            shares = _shares({n: len(stash) for n, stash in self._stash.items() if stash}, most)
            for number, share in sorted(shares.items()):
                messages += self._stash[number][:share]
                del self._stash[number][:share]
            parts.append(Part(messages, self.at))
        return parts

    def has(self, until: Mapping[str, int]) -> bool:
        """Return whether all messages before these offsets were fetched.

        Partitions that were are paused meanwhile, so that the others are not waited for in vain.

        Raises:
            DataError: A partition ends before: the topic is not the one that was read.
        """
        missing = {int(n) for n, offset in until.items() if self._reached.get(int(n), -1) < offset}
        self._pause(set(self._reached) - missing if missing else set())
        return not missing

    def part_until(self, until: Mapping[str, int]) -> MessagePart:
        """Return all messages before these offsets, which :meth:`has` has found there."""
        messages = []
        for number in sorted(self._stash):
            stash, offset = self._stash[number], until.get(str(number), 0)
            count = sum(message.offset() < offset for message in stash)
            messages += stash[:count]
            del stash[:count]
        return Part(messages, {**self.at, **until})

    def has_heard_all(self, most: int) -> bool:
        """Return whether of every partition a message was fetched, or its end was reached.

        One of which enough was fetched is paused until then: a client library may fetch one
        partition to its end before it fetches the first message of another.

        Args:
            most: How many messages a part has at most.
        """
        unheard = set(self._reached) - self._heard - self._paused
        enough = {n for n, stash in self._stash.items() if len(stash) >= most}
        if unheard:
            self._pause(enough)
            return False
        self._pause(set())
        return True

    def commit(self, offsets: Mapping[str, int]) -> None:
        """Commit the offsets of the group, without waiting for the brokers."""
        self._offsets.commit(offsets)

    def close(self) -> Mapping[str, int]:
        """Disconnect; return the last offsets of the group, if the brokers have taken them."""
        if self._process != process_number():
            return {}  # the connections are those of the process that this one was forked off
        settled = self._offsets.settle()
        self._consumer.close()
        return self._offsets.taken if settled else {}

    def _begin(
        self,
        offsets: Mapping[str, int] | None,
        ahead: Mapping[str, int],
        topic_id: str | None,
        start: Bound,
    ) -> None:
        """Resolve offsets, and assign the partitions.

        Raises:
            DataError: See the class.
        """
        self._check_id(topic_id, self.topic_id)
        numbers = self._partitions()
        self._looked_at = time.monotonic()
        if offsets is None:
            begin = self._resolved(start, numbers)
        else:
            if gone := set(map(int, offsets)) - set(numbers):
                raise self._recreated(f"partition {min(gone)} is gone")
            fresh = [number for number in numbers if str(number) not in offsets]
            begin = self._first(fresh) | {int(n): offset for n, offset in offsets.items()}
        self._until = self._ends(numbers)
        for number, until in self._until.items():
            if until is not None:
                self._until[number] = max(until, ahead.get(str(number), 0))
        self._ahead = {int(number): offset for number, offset in ahead.items()}
        self._assign(begin)

    def _check_id(self, noted: str | None, now: str | None) -> None:
        """Raise if the topic is not the one whose offsets were noted, as far as that is known.

        Raises:
            DataError: It is another one of the same name.
        """
        if noted is not None and now is not None and noted != now:
            raise DataError(
                f"the topic {self._topic!r} was deleted and created anew since its offsets were "
                "noted",
                hint="Begin with a state directory of its own, or reset this one: the offsets mean "
                "nothing in the new topic",
            )

    def _partitions(self) -> list[int]:
        found = self._consumer.list_topics(self._topic, timeout=REQUEST_S).topics[self._topic]
        if found.error is not None:
            raise failure(self._what, found.error)
        if not found.partitions:
            raise DataError(
                f"the topic {self._topic!r} is not there",
                hint="Create the topic, or correct its name",
            )
        return sorted(found.partitions)

    def _first(self, numbers: Iterable[int]) -> dict[int, int]:
        """Return the first offset of each partition."""
        return self._listed(numbers, load_admin().OffsetSpec.earliest())

    def _last(self, numbers: Iterable[int]) -> dict[int, int]:
        """Return the offset after the last message of each partition."""
        return self._listed(numbers, load_admin().OffsetSpec.latest())

    def _listed(self, numbers: Iterable[int], spec: Any) -> dict[int, int]:
        asked = {self._kafka.TopicPartition(self._topic, number): spec for number in numbers}
        if not asked:
            return {}
        found = self._admin.list_offsets(
            asked,
            # Not the messages of a transaction that is open: an end there may never come.
            isolation_level=self._kafka.IsolationLevel.READ_COMMITTED,
            request_timeout=REQUEST_S,
        )
        return {place.partition: one.result(REQUEST_S).offset for place, one in found.items()}

    def _resolved(self, start: Bound, numbers: list[int]) -> dict[int, int]:
        """Return where to begin in each partition."""
        if start == "earliest":
            return self._first(numbers)
        if isinstance(start, Instant):
            last, found = self._last(numbers), self._after(start, numbers)
            return {n: last[n] if (at := found[n]) is None else at for n in numbers}
        if isinstance(start, tuple):
            given = self._given(start, numbers)
            return self._first(set(numbers) - set(given)) | given
        return self._last(numbers)

    def _ends(self, numbers: list[int]) -> dict[int, int | None]:
        """Return where each partition ends, as far as that is known; ``None``: not yet."""
        if self._end == "latest":
            return {**self._last(numbers)}
        if isinstance(self._end, Instant):
            # The last ones first: until there, no message is at or after a time that none is.
            last: Mapping[int, int | None] = {}
            if self._end <= time.time_ns() // 1000:
                last = self._last(numbers)
            found = self._after(self._end, numbers)
            return {n: last.get(n) if at is None else at for n, at in found.items()}
        if isinstance(self._end, tuple):
            return {**dict.fromkeys(numbers, 0), **self._given(self._end, numbers)}
        return dict.fromkeys(numbers)

    def _given(self, offsets: GivenOffsets, numbers: list[int]) -> dict[int, int]:
        """Return the offsets that were given.

        Raises:
            DataError: The topic has no such partition.
        """
        for number, _ in offsets:
            if number not in numbers:
                raise DataError(
                    f"the topic {self._topic!r} has no partition {number}",
                    hint=f"Its partitions are {numbers[0]} to {numbers[-1]}",
                )
        return dict(offsets)

    def _after(self, at: Instant, numbers: list[int]) -> dict[int, int | None]:
        """Return the first offset at or after a time of each partition, if there is one."""
        asked = [self._kafka.TopicPartition(self._topic, n, -(-int(at) // 1000)) for n in numbers]
        found = self._consumer.offsets_for_times(asked, timeout=REQUEST_S)
        for one in found:
            if one.error is not None:
                raise failure(self._what, one.error)
        return {one.partition: one.offset if one.offset >= 0 else None for one in found}

    def _assign(self, begin: Mapping[int, int]) -> None:
        for number, offset in begin.items():
            self._stash[number], self._reached[number] = [], offset
            until = self._until[number]
            if until is None or offset < until:
                self.partitions = tuple(sorted((*self.partitions, number)))
        place = self._kafka.TopicPartition
        self._consumer.incremental_assign(
            [place(self._topic, number, offset) for number, offset in begin.items()]
        )

    def _find_partitions(self) -> None:
        """Read partitions that were added to the topic, from their beginning."""
        try:
            found = self._consumer.list_topics(self._topic, timeout=_GLANCE_S)
            numbers = set(found.topics[self._topic].partitions) - set(self._reached)
            low = self._first(numbers)
        except (self._kafka.KafkaException, TimeoutError) as error:
            LOG.warning("no look for new partitions of %r: %r", self._topic, error)
            return
        if low:
            LOG.info("the topic %r has new partitions: %s", self._topic, sorted(low))
            self._until |= dict.fromkeys(low)
            self._assign(low)

    def _take(self, message: Any) -> None:
        number, offset = message.partition(), message.offset()
        self._heard.add(number)
        if offset < self._reached[number]:
            return  # fetched before it was paused
        until = self._until[number]
        if until is None and isinstance(self._end, Instant):
            kind, millis = message.timestamp()
            if kind and millis * 1000 >= self._end:
                until = self._until[number] = offset
        if until is not None and offset >= until:
            self._reached[number] = max(self._reached[number], until)
            self._pause(self._paused | {number})
            return
        self._stash[number].append(message)
        self._reached[number] = offset + 1

    def _end_at(self, number: int, offset: int) -> None:
        """Note that a partition has nothing more for now.

        Raises:
            DataError: It had more when it was read before.
        """
        if offset < self._ahead.get(number, 0):
            raise self._recreated(
                f"partition {number} ends at offset {offset}, and {self._ahead[number]} was read"
            )
        self._heard.add(number)
        self._reached[number] = max(self._reached[number], offset)

    def _is_read(self) -> bool:
        return all(
            until is not None and self._reached[number] >= until
            for number, until in self._until.items()
        )

    def _pause(self, numbers: set[int]) -> None:
        """Fetch of these partitions nothing more for now, and of the others again."""
        numbers = numbers | {
            number
            for number, until in self._until.items()
            if until is not None and self._reached.get(number, 0) >= until
        }
        if numbers == self._paused:
            return
        place = self._kafka.TopicPartition
        pausing, resuming = sorted(numbers - self._paused), sorted(self._paused - numbers)
        self._paused = numbers
        if pausing:
            self._consumer.pause([place(self._topic, number) for number in pausing])
        if resuming:
            self._consumer.resume([place(self._topic, number) for number in resuming])

    def _heed(self, error: Any, message: Any) -> None:
        """Raise for an error that does not pass; the library tries again after any other.

        Raises:
            DataError: It does not.
        """
        codes = self._kafka.KafkaError
        number = message.partition()
        if error.code() in (codes._AUTO_OFFSET_RESET, codes.OFFSET_OUT_OF_RANGE):
            with told(self._what):
                first, at = self._first([number])[number], self._reached.get(number, 0)
            if at < first:
                raise self._deleted(number, at, first)
            raise self._recreated(f"partition {number} has no offset {at}")
        lasting = (
            codes.UNKNOWN_TOPIC_OR_PART,
            codes._UNKNOWN_TOPIC,
            codes._UNKNOWN_PARTITION,
            codes.TOPIC_AUTHORIZATION_FAILED,
            codes.GROUP_AUTHORIZATION_FAILED,
            codes._AUTHENTICATION,
        )
        if error.fatal() or error.code() in lasting:
            raise failure(self._what, error)
        if time.monotonic() - self._warned_at >= _LOOK_S:
            self._warned_at = time.monotonic()
            LOG.warning("%s for now, and is tried again: %s", self._what, error)

    def _deleted(self, number: int, offset: int, first: int) -> DataError:
        return DataError(
            f"the messages {offset} to {first - 1} of partition {number} of the topic "
            f"{self._topic!r} were deleted before they were read",
            hint="Keep messages for longer (retention.ms), or go on without them: begin with a "
            'state directory of its own and start="earliest"',
        )

    def _recreated(self, what: str) -> DataError:
        return DataError(
            f"the topic {self._topic!r} is not the one that the state directory knows: {what}",
            hint="It may have been deleted and created anew, or be another cluster's: read the "
            "topic that was read before, or begin with a state directory of its own",
        )


def _shares(counts: Mapping[int, int], most: int) -> dict[int, int]:
    """Share out so many messages evenly among partitions that have so many.

    >>> _shares({0: 10, 1: 2, 2: 10}, 9)
    {1: 2, 0: 3, 2: 4}
    """
    shares = {}
    left = max(most, len(counts))
    for place, (number, count) in enumerate(sorted(counts.items(), key=lambda one: (one[1], one))):
        shares[number] = min(count, left // (len(counts) - place))
        left -= shares[number]
    return shares
