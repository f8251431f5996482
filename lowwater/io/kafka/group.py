"""The offsets of a consumer group, which follow the commits of a run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from typing import Any, final

from lowwater.io.kafka.client import LOG, REQUEST_S, client, load_admin, settings

_SETTLE_S = 5.0
"""How long the end of a run waits for the offsets to be committed."""


@final
class GroupOffsets:
    """Commits the offsets of a group, one request at a time, and waits for none of them.

    The requests are those of an admin client, because a consumer that has asked for a commit
    cannot be closed before the brokers have answered.

    Args:
        admin: The client that manages topics and groups.
        topic: The topic.
        group: The group; ``None``: nothing is committed.
    """

    def __init__(self, admin: Any, topic: str, group: str | None) -> None:
        self._admin = admin
        self._topic = topic
        self._group = group
        self._wanted: Mapping[str, int] = {}
        self._asked: Mapping[str, int] = {}
        self._answer: Future[Any] | None = None
        self._failed = False
        self.taken: Mapping[str, int] = {}
        """What the brokers have, as far as that is known."""

    def commit(self, offsets: Mapping[str, int]) -> None:
        """Commit offsets, by partition, after what was committed before."""
        if self._group is None:
            return
        self.serve()
        if self._failed and self._answer is None:
            self._asked, self._failed = {}, False  # so that it is asked for again
        self._wanted = offsets
        self.serve()

    def serve(self) -> None:
        """Heed an answer, and ask for what was to be committed meanwhile."""
        if self._answer is not None:
            if not self._answer.done():
                return
            self._heed(self._answer)
            self._answer = None
        if self._wanted != self._asked:
            kafka = client()
            self._asked = self._wanted
            places = [
                kafka.TopicPartition(self._topic, int(number), offset)
                for number, offset in self._asked.items()
            ]
            asked = [kafka.ConsumerGroupTopicPartitions(self._group, places)]
            answers = self._admin.alter_consumer_group_offsets(asked, request_timeout=REQUEST_S)
            self._answer = answers[self._group]

    def settle(self) -> bool:
        """Wait for the last offsets for at most five seconds; return whether they were taken."""
        end = time.monotonic() + _SETTLE_S
        self.serve()
        while self._answer is not None:
            try:
                self._answer.exception(max(0.0, end - time.monotonic()))
            except NotYet:
                break
            self.serve()
        if self._wanted == self.taken:
            return True
        LOG.warning(
            "the offsets of the group %r may be behind the state: the brokers have not taken them; "
            "the next run commits them",
            self._group,
        )
        return False

    def _heed(self, answer: Future[Any]) -> None:
        error: Any = answer.exception()
        if error is None:
            places = answer.result().topic_partitions
            error = next((place.error for place in places if place.error is not None), None)
        if error is None:
            self.taken, self._failed = self._asked, False
            return
        LOG.warning("the offsets of the group %r are not committed: %s", self._group, error)
        self._failed = True


def commit_offsets(
    servers: str, topic: str, config: Mapping[str, Any], group: str, offsets: Mapping[str, int]
) -> bool:
    """Commit the offsets of a group on a connection of its own; a failure is logged.

    Returns:
        Whether the brokers have taken them.
    """
    admin = load_admin().AdminClient(settings(servers, config))
    own = GroupOffsets(admin, topic, group)
    own.commit(offsets)
    return own.settle()
