"""Topics as sinks: what is in them, and that it is there once."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.io.sinks import KafkaTopic, Writer
from tests.unit.io.deliveries import with_everything
from tests.unit.io.kafka.broker import Broker
from tests.unit.io.kafka.model import Aborting, ModelBroker

Brokers = Broker | ModelBroker
EVENTS = [
    {"at": row * 1_000_000, "user": f"u{row % 5}", "amount": row} for row in range(300)
]  # fmt: skip


@pytest.fixture
def events(tmp_path: Path) -> Path:
    path = tmp_path / "events.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in EVENTS))
    return path


def _pipeline(events: Path) -> lw.Pipeline:
    stream = lw.read_jsonl(str(events), time="at", watermark=lw.Ascending())
    return (
        stream.key_by("user")
        .window(lw.FixedWindows("30s"))
        .aggregate(n=lw.count(), amount=lw.sum("amount"))
    )


def _run(
    broker: Brokers, topic: str, events: Path, state: Path | None, size: int = 40, **options: Any
) -> None:
    _pipeline(events).write_kafka(broker.servers, topic, **options).run(
        state=state, commit_every="bundle", bundle_size=size
    )


def _results(broker: Brokers, topic: str) -> list[tuple[str, str, int, int]]:
    rows = []
    for key, value in broker.consume(topic):
        assert key is not None
        assert value is not None
        row = json.loads(value)
        assert row["user"] == key.decode()
        rows.append((row["user"], row["window_start"], row["n"], row["amount"]))
    return sorted(rows)


def _wanted(events: Path) -> list[tuple[str, str, int, int]]:
    rows = _pipeline(events).collect().to_arrow().to_pylist()
    return sorted(
        (row["user"], lw.Instant(lw.instant(row["window_start"])).to_datetime().strftime(
            "%Y-%m-%dT%H:%M:%SZ"), row["n"], row["amount"])
        for row in rows
    )  # fmt: skip


@pytest.mark.parametrize("durable", [False, True])
def test_each_pane_is_a_message_under_its_key(
    broker: Brokers, events: Path, tmp_path: Path, durable: bool
) -> None:
    topic = broker.topic(2)
    _run(broker, topic, events, tmp_path / "state" if durable else None)
    assert _results(broker, topic) == _wanted(events)
    if durable:  # it is complete: nothing is written again
        _run(broker, topic, events, tmp_path / "state")
        assert _results(broker, topic) == _wanted(events)


def test_dying_at_any_request_writes_each_result_once(
    model: ModelBroker, events: Path, tmp_path: Path
) -> None:
    wanted, died = _wanted(events), 0
    for first in range(1, 200, 3):
        topic, state, at = model.topic(2), tmp_path / f"state-{first}", first
        while True:  # dies again and again, later each time
            model.fuse = at
            try:
                _run(model, topic, events, state, size=100)
            except Aborting:
                died += 1
                at += 3
                assert len(model.consume(topic)) == len(set(model.consume(topic)))
                continue
            break
        left, model.fuse = model.fuse, 0
        assert _results(model, topic) == wanted
        shutil.rmtree(state)
        if at == first:
            assert left
            break
    assert died > 15


def test_an_older_run_over_the_same_state_is_fenced(model: ModelBroker) -> None:
    topic = model.topic()
    old, new = (KafkaTopic(model.servers, topic) for _ in range(2))
    old.open(Writer(id="w", output=0, resumes=True, opening="1"))
    old.deliver(with_everything(1))
    new.open(Writer(id="w", output=0, resumes=True, opening="2", openings=("1",), epoch=1))
    with pytest.raises(lw.DataError, match="let only one run"):
        old.deliver(with_everything(2))
    new.deliver(with_everything(1))  # it was delivered
    new.deliver(with_everything(2))
    assert len(model.consume(topic)) == 2 * with_everything(1).panes.num_rows


def test_states_that_do_not_fit_the_topic_are_refused(model: ModelBroker) -> None:
    topic = model.topic()
    sink = KafkaTopic(model.servers, topic)
    sink.open(Writer(id="w", output=0, resumes=True, opening="1"))
    sink.deliver(with_everything(7))
    sink.close(complete=True)
    with pytest.raises(lw.StateError, match="an older copy"):
        sink.open(Writer(id="w", output=0, resumes=True, opening="2", openings=("1",), epoch=3))
    with pytest.raises(lw.StateError, match="knows nothing of"):
        sink.open(Writer(id="w", output=0, resumes=True, opening="2", epoch=7))
    with pytest.raises(lw.StateError, match="no longer holds it"):
        sink.open(Writer(id="other", output=0, resumes=True, opening="2", delivered=True, epoch=7))


def test_a_table_is_kept_by_its_primary_key(broker: Brokers, tmp_path: Path) -> None:
    source = tmp_path / "people.jsonl"
    rows = [
        {"at": 1, "id": "a", "name": "Ada", "gone": False},
        {"at": 2, "id": "b", "name": "Bo", "gone": False},
        {"at": 3, "id": "a", "name": "Ada L.", "gone": False},
        {"at": 4, "id": "b", "name": "Bo", "gone": True},
    ]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    topic = broker.topic()
    table = lw.read_jsonl(str(source), time="at").table(key="id", deleted=lw.col("gone"))
    sink = KafkaTopic(broker.servers, topic)
    table.write_to(sink).run(state=tmp_path / "state", commit_every="bundle", bundle_size=1)
    found: dict[bytes | None, Any] = {}
    for key, value in broker.consume(topic):  # as compaction would
        found[key] = None if value is None else json.loads(value)
    assert found[b"b"] is None
    assert found[b"a"]["name"] == "Ada L."
    with pytest.raises(lw.InvalidArgument, match="not the primary key of the table"):
        table.write_to(KafkaTopic(broker.servers, topic, key="name")).run()


def test_values_may_be_arrow_or_anything(broker: Brokers, events: Path) -> None:
    topic = broker.topic()
    _run(broker, topic, events, None, value="arrow")
    tables = [pa.ipc.open_stream(value).read_all() for _, value in broker.consume(topic)]
    assert sum(table.num_rows for table in tables) == len(_wanted(events))
    own = broker.topic()
    _run(broker, own, events, None, value=lambda row: row["user"].encode(), key=("user", "n"))
    key, value = broker.consume(own)[0]
    assert value is not None
    assert key is not None
    assert json.loads(key)[0] == value.decode()


def test_late_elements_and_dead_letters_have_topics_or_a_warning(
    broker: Brokers, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = tmp_path / "events.jsonl"
    lines = [{"at": 90_000_000, "user": "a", "amount": 1}, {"at": 1, "user": "a", "amount": 1}]
    source.write_text("".join(json.dumps(line) + "\n" for line in lines) + "junk\n")
    panes, late, errors = broker.topic(), broker.topic(), broker.topic()
    _run(broker, panes, source, None, size=1, late=late, errors=errors)
    assert [json.loads(value or b"")["reason"] for _, value in broker.consume(late)] == ["expired"]
    found = [json.loads(value or b"")["reason"] for _, value in broker.consume(errors)]
    assert found == ["malformed_json"]
    with caplog.at_level(logging.WARNING, "lowwater.io"):
        _run(broker, panes, source, None, size=1)
    assert "1 late elements are not written" in caplog.text
    assert "1 dead letters are not written" in caplog.text


def test_a_topic_that_is_not_there_is_refused_before_anything_runs(
    broker: Brokers, events: Path
) -> None:
    with pytest.raises(lw.DataError, match=r"'nothing'.*Create the topic"):
        _run(broker, "nothing", events, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": 3}, "name of a column"),
        ({"key": "nobody"}, "no column 'nobody'"),
        ({"value": "xml"}, "how rows become messages"),
        ({"value": "arrow", "key": "user"}, "no key of its own"),
        ({"config": {"transactional.id": "x"}}, "names the writer"),
        ({"late": ""}, "name of a topic"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    events: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(lw.InvalidArgument, match=message):
        _pipeline(events).write_kafka("localhost:9092", "out", **options)
