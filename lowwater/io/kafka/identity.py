"""What a topic is, whichever of its brokers' addresses it is reached by."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import Any

from lowwater.engine.local.delivery import Identities, Place
from lowwater.io.kafka.client import LOG, REQUEST_S, client, load_admin, settings


def topics_at(
    servers: str,
    config: Mapping[str, Any],
    name: str,
    topics: tuple[str, ...],
    also: tuple[str, ...] = (),
) -> Place:
    """Return topics as a place that a run reads or writes.

    Args:
        servers: The brokers.
        config: Further settings of the client library.
        name: What errors call the place.
        topics: The topics.
        also: Further topics, which several sinks may write to.
    """

    def identify(wanted: Collection[str]) -> Identities:
        return identities(servers, config, wanted)

    addresses = ",".join(sorted({one.strip().lower() for one in servers.split(",")}))
    return Place(f"kafka {addresses}", name, topics, also=also, identify=identify)


def identities(servers: str, config: Mapping[str, Any], topics: Collection[str]) -> Identities:
    """Ask brokers what topics are; nothing if they do not answer, which the run itself reports.

    A topic is the one with its id. Brokers that have none say in which cluster it is, and which
    brokers that has.
    """
    kafka = client()
    found: dict[str, set[Hashable]] = {}
    try:
        consumer = kafka.Consumer({**settings(servers, config), "group.id": "lowwater"})
    except kafka.KafkaException as error:
        LOG.debug("the brokers %s are not asked for their identity: %s", servers, error)
        return {}
    try:
        for topic in topics:
            if (number := topic_id(servers, config, topic)) is not None:
                found[topic] = {("topic", number)}
                continue
            metadata = consumer.list_topics(topic, timeout=REQUEST_S)
            found[topic] = {
                ("broker", broker.host.lower(), broker.port, topic)
                for broker in metadata.brokers.values()
            }
            if metadata.cluster_id:
                found[topic].add(("cluster", metadata.cluster_id, topic))
    except kafka.KafkaException as error:
        LOG.debug("the brokers %s do not say what they are: %s", servers, error)
    finally:
        consumer.close()
    return found


def topic_id(servers: str, config: Mapping[str, Any], topic: str) -> str | None:
    """Return the id of a topic; ``None`` if the brokers do not give one."""
    return topic_id_from(load_admin().AdminClient(settings(servers, config)), topic)


def topic_id_from(admin: Any, topic: str, seconds: float = REQUEST_S) -> str | None:
    """Return what :func:`topic_id` does, by way of a client that is connected."""
    kafka = client()
    try:
        asked = kafka.TopicCollection([topic])
        described = admin.describe_topics(asked, request_timeout=seconds)[topic].result(seconds)
    except (kafka.KafkaException, TimeoutError) as error:
        LOG.debug("the id of the topic %r is not known: %s", topic, error)
        return None
    # Brokers before Kafka 2.8 give zeros.
    found = None if described.topic_id is None else str(described.topic_id)
    return found if found is not None and found.strip("A=") else None
