"""The connection to brokers: the client library, its settings, and its errors in words."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lowwater.errors import DataError, InvalidArgument, cause, describe, load_extra

LOG = logging.getLogger("lowwater.io")
REQUEST_S = 15.0
"""How long a request to the brokers may take, where nothing can be done without its answer."""

_OURS = {
    "bootstrap.servers": "servers= names the brokers",
    "group.id": "group= names the consumer group",
    "enable.auto.commit": "the offsets of group= follow the commits of the run",
    "enable.auto.offset.store": "the offsets of group= follow the commits of the run",
    "auto.offset.reset": "start= says where to begin",
    "enable.partition.eof": "end= says where the input ends",
    "isolation.level": "only what was committed is read",
    "transactional.id": "run(state=...) names the writer",
    "enable.idempotence": "it is always on",
}
_UNREACHABLE = frozenset(
    {"_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE", "LEADER_NOT_AVAILABLE"}
)


def client() -> Any:
    """Return the client library.

    Raises:
        InvalidArgument: It is not installed.
    """
    return load_extra("confluent_kafka", extra="kafka", purpose="Kafka")


def load_admin() -> Any:
    """Return the part of the client library that manages topics and groups."""
    from confluent_kafka import admin

    return admin


def checked_servers(servers: object) -> str:
    """Return the addresses of brokers as one text.

    Raises:
        InvalidArgument: They are no text, nor a list of it.
    """
    if isinstance(servers, (list, tuple)) and all(isinstance(one, str) for one in servers):
        servers = ",".join(servers)
    if not isinstance(servers, str) or not servers.strip():
        raise InvalidArgument(
            f"{describe('servers', servers)} does not name brokers",
            hint='Use text such as "localhost:9092" or "broker1:9092,broker2:9092"',
        )
    if "@" in servers:
        raise InvalidArgument(
            "servers= has an @: what is before it is not sent, but taken for the name of a broker",
            hint='Give user and password in config=, as "sasl.username" and "sasl.password"',
        )
    return servers


def checked_topic(topic: object, name: str = "topic") -> str:
    """Return the name of a topic.

    Raises:
        InvalidArgument: It cannot be one.
    """
    if not isinstance(topic, str) or not topic or topic.startswith("^"):
        raise InvalidArgument(
            f"{describe(name, topic)} is not the name of a topic",
            hint='Use a name such as "orders"; unite the streams of several topics with first | '
            "second",
        )
    return topic


def checked_config(config: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return further settings of the client library.

    Raises:
        InvalidArgument: They are no mapping, or set what lowwater sets itself.
    """
    if config is None:
        return {}
    if not isinstance(config, Mapping) or not all(isinstance(name, str) for name in config):
        raise InvalidArgument(
            "config= is not a mapping of settings by name",
            hint='Use a dict such as {"security.protocol": "ssl"}',
        )
    for name in config:
        if name in _OURS:
            raise InvalidArgument(
                f"config= sets {name!r}, which lowwater sets itself",
                hint=f"Leave it out: {_OURS[name]}",
            )
    return dict(config)


def settings(servers: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that all clients share; what the library logs goes to ``logging``."""
    return {"bootstrap.servers": servers, "logger": LOG, **config}


@contextmanager
def told(what: str) -> Iterator[None]:
    """Turn an error of the client library into one that says what failed.

    Args:
        what: What is done, as ``"the topic 'orders' could not be read"``.

    Raises:
        DataError: The library raised, or the brokers did not answer in time.
    """
    kafka = client()
    try:
        yield
    except kafka.KafkaException as error:
        raise failure(what, error.args[0]) from cause(error)
    except TimeoutError as error:
        raise DataError(
            f"{what}: the brokers did not answer",
            hint="See that they can be reached and start again: with a state nothing is lost",
        ) from error


def failure(what: str, error: Any) -> DataError:
    """Return what to raise for an error of the client library (``KafkaError``)."""
    return DataError(f"{what}: {error.str() or error.name()} ({error.name()})", hint=_hint(error))


def _hint(error: Any) -> str:
    name = error.name()
    if name in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"):
        return "Create the topic, or correct its name"
    if name == "_INVALID_ARG":
        return "Correct config=: its settings are those of librdkafka"
    if "AUTH" in name or name == "_SSL":
        return "Give the credentials in config=, and the right to use the topic on the brokers"
    if name == "_FENCED" or "FENCED" in name:
        return "Another run over the same state directory has begun since: let only one run"
    if name in (
        "_TRANSPORT",
        "_ALL_BROKERS_DOWN",
        "_TIMED_OUT",
        "_RESOLVE",
        "LEADER_NOT_AVAILABLE",
    ):
        return "See that the brokers can be reached and start again: with a state nothing is lost"
    if name == "MSG_SIZE_TOO_LARGE":
        return 'Raise "message.max.bytes" in config= and on the brokers'
    return "See to that and start again: with a state directory nothing is lost"
