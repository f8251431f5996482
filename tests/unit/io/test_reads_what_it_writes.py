"""A run never reads what it writes, and no two outputs write to one place, however spelled."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

import lowwater as lw
from lowwater.errors import InvalidArgument
from lowwater.io import Log
from lowwater.io.kafka import identity as topics
from lowwater.io.postgres_changes import identity as tables
from lowwater.io.sinks import JsonLinesFile, JsonLinesFolder, KafkaTopic, PostgresTable, SqliteTable
from lowwater.io.sinks.sink_conflicts import check_conflicts
from tests.unit.io.kafka.model import ModelBroker


def counted(stream: Any) -> lw.Pipeline:
    pipeline: lw.Pipeline = stream.key_by("k").window(lw.FixedWindows("1m")).aggregate(n=lw.count())
    return pipeline


@pytest.fixture
def broker() -> Iterator[ModelBroker]:
    with ModelBroker().patched() as broker:
        yield broker


def from_topic(servers: str, topic: str) -> lw.Pipeline:
    return counted(lw.read_kafka(servers, topic, time="at", unit="s", end="latest"))


@pytest.mark.parametrize(
    ("reads", "writes"),
    [
        ("a:9092", "a:9092"),
        ("a:9092,b:9092", "b:9092,a:9092"),
        ("a:9092", " A:9092 "),
        ("a:9092", "10.0.0.1:9092"),
        ("a:9092,b:9092", "c:9093"),
    ],
)
@pytest.mark.parametrize("role", ["topic", "late", "errors", "another output"])
@pytest.mark.parametrize("state", [None, "state"])
def test_a_topic(
    reads: str, writes: str, role: str, state: str | None, broker: ModelBroker, tmp_path: Path
) -> None:
    """The one that is read is not written, as that of panes, late elements or dead letters."""
    topic, other, third = broker.topic(2), broker.topic(), broker.topic()
    broker.produce(topic, {0: [(None, json.dumps({"at": i, "k": "k"}).encode()) for i in range(5)]})
    pipeline = from_topic(reads, topic)
    options: dict[str, Any] = {} if state is None else {"state": tmp_path / state}
    sinks = [KafkaTopic(writes, topic if role == "topic" else other)]
    if role in ("late", "errors"):
        late, errors = (topic if role == name else None for name in ("late", "errors"))
        sinks = [KafkaTopic(writes, other, late=late, errors=errors)]
    if role == "another output":
        sinks.append(KafkaTopic(writes, topic))
    with pytest.raises(InvalidArgument, match=f"the run reads '{topic}' of Kafka and writes to it"):
        pipeline.write_to(*sinks).run(**options)
    assert not list(tmp_path.iterdir())
    assert len(broker.consume(topic)) == 5
    pipeline.write_to(KafkaTopic(writes, third, late=other, errors=other)).run(**options)
    assert len(broker.consume(topic)) == 5


def test_another_cluster_s_topic_of_the_same_name(
    broker: ModelBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only its id says that it is another one; brokers that have no ids say their cluster's."""
    topic = broker.topic()
    monkeypatch.setattr(topics, "topic_id", lambda servers, config, topic: f"of {servers}")
    pipeline = from_topic("a:1", topic)
    pipeline.write_kafka("b:1", topic)
    pipeline.write_to(KafkaTopic("b:1", topic)).run()
    monkeypatch.setattr(topics, "topic_id", lambda servers, config, topic: None)
    with pytest.raises(InvalidArgument, match="writes to it"):
        pipeline.write_to(KafkaTopic("b:1", topic)).run()


def test_two_outputs_to_one_topic(broker: ModelBroker) -> None:
    topic, other = broker.topic(), broker.topic()
    pipeline = from_topic("a:1", broker.topic())
    one = pipeline.write_to(KafkaTopic("a:1", topic, late=other))
    for writes in ("a:1", "b:1", "b:1,a:1"):
        with pytest.raises(InvalidArgument, match=f"two outputs write to the topic '{topic}'"):
            lw.run(one, pipeline.named("again").write_to(KafkaTopic(writes, topic)))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    Path("in/a.jsonl").write_text(json.dumps({"at": 1, "k": "k"}) + "\n")
    with Log("log") as log:
        log.append([{"at": 1, "k": "k"}])
    Path("log-link").symlink_to("log")
    return tmp_path


@pytest.mark.parametrize("output", ["log", "log/out", "log-link", "log/../log/deep/out", "."])
def test_a_log(output: str, folder: Path) -> None:
    pipeline = counted(lw.read_log("log", time="at", unit="s"))
    before = sorted(folder.rglob("*"))
    for sink in (JsonLinesFolder(output), JsonLinesFile(f"{output}/o.jsonl")):
        if output == "." and isinstance(sink, JsonLinesFile):
            continue  # a file beside the log
        with pytest.raises(InvalidArgument, match="lie within one another"):
            pipeline.write_to(sink).run()
    with pytest.raises(InvalidArgument, match="lie within one another"):
        pipeline.write_jsonl("fine").run(state=output)
    assert sorted(folder.rglob("*")) == before


def test_hard_links_are_one_file(folder: Path) -> None:
    """Symbolic links are resolved; a hard link is known by its inode."""
    os.link("in/a.jsonl", "b.jsonl")
    pipeline = counted(lw.read_jsonl("b.jsonl", time="at", unit="s"))
    with pytest.raises(InvalidArgument, match="what it writes would be read"):
        pipeline.write_jsonl("in/a.jsonl").run()
    pipeline.write_to(SqliteTable("one.sqlite", "counts")).run()
    os.link("one.sqlite", "two.sqlite")
    again = pipeline.named("again")
    with pytest.raises(InvalidArgument, match="two outputs write to the table 'counts'"):
        lw.run(
            pipeline.write_to(SqliteTable("one.sqlite", "counts", overwrite=True)),
            again.write_to(SqliteTable("two.sqlite", "COUNTS")),
        )


def test_a_followed_folder(folder: Path) -> None:
    """What is written while it is followed would be read at the next look."""
    pipeline = counted(lw.read_jsonl("in", time="at", unit="s", follow=True, poll_every="1ms"))
    for output in ("in", "in/new", "in/new.jsonl", "./log-link/../in/x"):
        with pytest.raises(InvalidArgument, match="what it writes would be read"):
            pipeline.write_jsonl(output).run()


def test_servers_are_asked_only_about_names_that_are_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What cannot be reached is reported when it is opened, in the words of the sink."""
    asked: list[str] = []

    def identities(dsn: str, names: Collection[str]) -> dict[str, Any]:
        asked.append(dsn)
        return {}

    monkeypatch.setattr(tables, "identities", identities)
    one = PostgresTable("host=/nowhere/a", "counts")
    check_conflicts([[one], [PostgresTable("host=/nowhere/b", "sums")]])
    assert asked == []
    check_conflicts([[one], [PostgresTable("host=/nowhere/b", "public.counts")]])
    assert asked == ["host=/nowhere/a"]
