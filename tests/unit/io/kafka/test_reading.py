"""Topics as sources: against a broker."""

from __future__ import annotations

import io
import json
import logging
import random
import threading
import types
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import date, time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.io.kafka.group import GroupOffsets
from lowwater.io.kafka.identity import topic_id_from
from lowwater.io.kafka.message_values import MessageColumns, MessageDecoder
from lowwater.io.kafka.topic_source import KafkaSource
from lowwater.watermark.observed import PARTITION
from tests.examples import examples
from tests.unit.engine.local.thirty_runs import rows_of, side_by_side, windows
from tests.unit.io.kafka.broker import Broker, Message
from tests.unit.io.kafka.model import ModelBroker, ModelConsumer, ModelProducer, Stored

Brokers = Broker | ModelBroker
MINUTE = 60_000_000


def _json(**fields: Any) -> Message:
    return None, json.dumps(fields).encode()


def _events(broker: Brokers, partitions: int = 3, each: int = 400) -> tuple[str, dict[int, int]]:
    """Produce events whose times rise within each partition; return the topic and its end."""
    topic = broker.topic(partitions)
    broker.produce(
        topic,
        {
            number: [
                _json(at=row * 1_000_000, user=f"u{row % 7}", amount=row, partition=number)
                for row in range(each)
            ]
            for number in range(partitions)
        },
    )
    return topic, dict.fromkeys(range(partitions), each)


def _counted(broker: Brokers, topic: str, end: Any, **options: Any) -> lw.Pipeline:
    stream = lw.read_kafka(
        broker.servers, topic, time="at", end=end,
        watermark=lw.PerPartition(lw.Ascending()), **options,
    )  # fmt: skip
    return (
        stream.key_by("user")
        .window(lw.FixedWindows("1m"))
        .aggregate(n=lw.count(), amount=lw.sum("amount"))
    )


def _sums(panes: Any) -> dict[tuple[str, int], tuple[int, int]]:
    return {(pane.key, int(pane.window.start)): tuple(pane.value.values()) for pane in panes}


def _wanted(partitions: int = 3, each: int = 400) -> dict[tuple[str, int], tuple[int, int]]:
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for row in range(each):
        key = (f"u{row % 7}", row * 1_000_000 // MINUTE * MINUTE)
        n, amount = found.get(key, (0, 0))
        found[key] = (n + partitions, amount + partitions * row)
    return found


def test_all_partitions_are_read_and_none_makes_another_late(broker: Brokers) -> None:
    topic, end = _events(broker)
    result = _counted(broker, topic, end).collect()
    assert _sums(result.panes) == _wanted()
    assert result.late == []
    assert result.errors == []


@pytest.mark.parametrize("size", [7, 100])
def test_the_next_batch_after_a_position_is_always_the_same(broker: Brokers, size: int) -> None:
    topic, end = _events(broker, 2, 60)
    source = KafkaSource(
        broker.servers, topic, "json", MessageColumns(), "at", end=tuple(end.items())
    )

    def next_of(position: Any) -> list[Any] | None:
        for records, _ in source.batches_from(position, size, ()):
            if records.length:
                return records.rows()
        return None

    position, rows = None, []
    steps = list(source.batches_from(None, size, ()))
    for records, after in steps:
        if records.length:
            assert next_of(position) == records.rows()
            rows += records.rows()
        position = after
    assert next_of(position) is None
    assert Counter(map(json.dumps, rows)) == Counter(
        json.dumps({"at": row * 1_000_000, "user": f"u{row % 7}", "amount": row, "partition": n})
        for n in range(2)
        for row in range(60)
    )
    assert position is not None
    assert position["at"] == {"0": 60, "1": 60}


def test_offsets_of_a_group_follow_a_run_with_a_state(broker: Brokers, tmp_path: Path) -> None:
    topic, end = _events(broker)
    group = f"of-{topic}"
    pipeline = _counted(broker, topic, end, group=group)
    assert pipeline.collect().metrics.events == 1_200
    assert broker.offsets(group, topic, 3) == {}  # without a state there are no commits
    metrics = pipeline.write_jsonl(tmp_path / "out").run(
        state=tmp_path / "state", commit_every="bundle", bundle_size=100
    )
    assert metrics.events == 1_200
    assert broker.offsets(group, topic, 3) == {"0": 400, "1": 400, "2": 400}


def test_a_run_goes_on_where_the_last_one_stopped(broker: Brokers, tmp_path: Path) -> None:
    topic, end = _events(broker)
    out, state = tmp_path / "out", tmp_path / "state"
    first = _counted(broker, topic, "never").write_jsonl(out).start(
        state=state, commit_every="bundle", bundle_size=50
    )  # fmt: skip
    while first.metrics.events < 300:
        assert first.is_running
    first.stop()
    first.wait()
    metrics = _counted(broker, topic, end).write_jsonl(out).run(state=state, bundle_size=50)
    assert metrics.events == 1_200
    parts = [path.read_text().splitlines() for path in out.glob("part-*")]
    rows = [json.loads(line) for lines in parts for line in lines]
    starts = {(row["user"], int(lw.instant(row["window_start"]))): row for row in rows}
    assert {key: (row["n"], row["amount"]) for key, row in starts.items()} == _wanted()
    assert len(rows) == len(starts)


def test_partitions_that_are_added_are_read(
    model: ModelBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lowwater.io.kafka.reader._LOOK_S", 0.0)
    topic = model.topic(1)
    model.produce(topic, {0: [_json(at=1, n=0)]})
    source = KafkaSource(model.servers, topic, "json", MessageColumns(), "at")
    found: list[int] = []
    batches = source.batches(10, ())
    added = False
    for records in batches:
        found += [row["n"] for row in records.rows()] if records.length else []
        if found and not added:
            model.add_partitions(topic, 2)
            model.produce(topic, {1: [_json(at=2, n=1)]})
            added = True
        if len(found) == 2:
            break
    batches.close()  # type: ignore[attr-defined]
    assert found == [0, 1]


def test_a_topic_that_was_created_anew_is_refused(broker: Brokers, tmp_path: Path) -> None:
    topic, end = _events(broker, 1, 20)
    output = _counted(broker, topic, "never").write_jsonl(tmp_path / "out")
    run = output.start(state=tmp_path / "state", commit_every="bundle")
    while run.metrics.events < 20:
        assert run.is_running
    run.stop()
    run.wait()
    broker.recreate(topic)
    broker.produce(topic, {0: [_json(at=1, user="x", amount=1)] * 30})
    with pytest.raises(lw.DataError, match="created anew"):
        _counted(broker, topic, end).write_jsonl(tmp_path / "out").run(state=tmp_path / "state")


def test_a_topic_that_is_not_there_is_named(broker: Brokers) -> None:
    with pytest.raises(lw.DataError, match=r"'nothing'.*Create the topic"):
        _counted(broker, "nothing", "latest").collect()


def test_an_offset_that_is_not_there_is_named(broker: Brokers) -> None:
    topic, _ = _events(broker, 1, 20)
    with pytest.raises(lw.DataError, match="no partition 4"):
        _counted(broker, topic, {4: 1}).collect()


def test_reading_begins_and_ends_where_it_is_told(broker: Brokers) -> None:
    topic, _ = _events(broker, 2, 50)
    stream = lw.read_kafka(
        broker.servers, topic, time="at", start={0: 10, 1: 49}, end={0: 12, 1: 50}
    )
    rows = [element.value for element in stream.collect().elements()]
    assert sorted((row["partition"], row["amount"]) for row in rows) == [(0, 10), (0, 11), (1, 49)]


def test_times_of_messages_bound_what_is_read(model: ModelBroker) -> None:
    topic = model.topic(3)
    for number in range(6):
        model.produce(topic, {0: [_json(at=number, n=number)]}, millis=1_700_000_000_000 + number)
    # The other two have nothing at the end, and the time has passed: they end where they end now.
    model.produce(topic, {1: [_json(at=7, n=7)]}, millis=1_700_000_000_003)
    stream = lw.read_kafka(
        model.servers, topic, time="at",
        start="2023-11-14T22:13:20.002Z", end="2023-11-14T22:13:20.004Z",
    )  # fmt: skip
    assert [element.value["n"] for element in stream.collect().elements()] == [2, 3, 7]


def test_keys_headers_and_timestamps_are_columns(broker: Brokers) -> None:
    topic = broker.topic()
    broker.produce(
        topic, {0: [(b"ada", b'{"n": 1}')]}, millis=1_700_000_000_123, headers=[("trace", b"\x01")]
    )
    stream = lw.read_kafka(
        broker.servers, topic, time="sent", key="who", headers="headers", timestamp="sent",
        end={0: 1},
    )  # fmt: skip
    (element,) = stream.collect().elements()
    assert element.value == {
        "n": 1,
        "who": "ada",
        "headers": [("trace", b"\x01")],
        "sent": element.value["sent"],
    }
    assert int(element.timestamp) == 1_700_000_000_123_000


def test_messages_without_a_value_are_deletes_of_a_table(broker: Brokers) -> None:
    topic = broker.topic()
    values = [(b"a", b'{"n": 1}'), (b"b", b'{"n": 2}'), (b"a", None), (b"c", None)]
    broker.produce(topic, {0: [*values, (b"b", b'{"n": 5}')]})
    stream = lw.read_kafka(
        broker.servers, topic, time="sent", key="id", timestamp="sent", tombstone="gone",
        schema={"n": "int64"}, end={0: 5},
    )  # fmt: skip
    table = stream.table(key="id", deleted=lw.col("gone")).select("id", "n")
    assert table.rows() == [{"id": "b", "n": 5}]


def test_values_may_be_arrow_bytes_or_anything(broker: Brokers) -> None:
    topic = broker.topic()
    batch = pa.record_batch({"at": pa.array([1, 2]), "n": pa.array([10, 20])})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    broker.produce(topic, {0: [(None, sink.getvalue()), (None, b"junk")]})
    read = lw.read_kafka(broker.servers, topic, time="at", value="arrow", end={0: 2}).collect()
    assert [element.value["n"] for element in read.elements()] == [10, 20]
    assert [(error.reason, error.where) for error in read.errors] == [
        ("malformed_arrow", f"{topic}/0, offset 1")
    ]
    plain = lw.read_kafka(
        broker.servers, topic, time="sent", timestamp="sent", value="bytes", end={0: 2}
    ).collect()
    assert [element.value["value"] for element in plain.elements()] == [sink.getvalue(), b"junk"]

    def decoder(value: bytes) -> dict[str, Any]:
        return {"at": 7, "size": len(value)} if value == b"junk" else json.loads(value)

    own = lw.read_kafka(broker.servers, topic, time="at", value=decoder, end={0: 2}).collect()
    assert [element.value["size"] for element in own.elements()] == [4]
    assert [error.reason for error in own.errors] == ["undecodable"]


def test_a_silent_partition_may_fall_idle(broker: Brokers) -> None:
    topic = broker.topic(2)
    broker.produce(topic, {0: [_json(at=row * MINUTE, user="a", amount=1) for row in range(30)]})
    broker.produce(topic, {1: [_json(at=0, user="b", amount=1)]})
    stream = lw.read_kafka(
        broker.servers, topic, time="at", clock=lw.ArrivalClock("at"), end={0: 30, 1: 1},
        watermark=lw.PerPartition(lw.Ascending(), idle_after="5m"),
    )  # fmt: skip
    windowed = stream.key_by("user").window(lw.FixedWindows("1m")).aggregate(n=lw.count())
    starts = [int(pane.window.start) for pane in windowed.run(bundle_size=1)]
    assert len(starts) == 31


def test_brokers_that_cannot_be_reached_are_named(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.CRITICAL, "lowwater.io"), pytest.MonkeyPatch.context() as patch:
        patch.setattr("lowwater.io.kafka.reader.REQUEST_S", 0.1)
        patch.setattr(topic_id_from, "__defaults__", (0.1,))
        stream = lw.read_kafka("127.0.0.1:1", "orders", time="at", end="latest")
        with pytest.raises(lw.DataError, match=r"could not be read.*reached"):
            stream.collect()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"value": "xml"}, "does not say how values are encoded"),
        ({"value": "bytes", "schema": {"a": "int64"}}, "schema"),
        ({"start": "yesterday"}, "no place in a topic"),
        ({"end": {0: -1}}, "no place in a topic"),
        ({"tombstone": "gone"}, "tombstone="),
        ({"group": ""}, "consumer group"),
        ({"config": {"group.id": "x"}}, "group="),
        ({"config": {"isolation.level": "read_uncommitted"}}, "only what was committed"),
        ({"config": ["x"]}, "mapping"),
        ({"key": "at", "timestamp": "at"}, "called 'at'"),
        ({"schema": {"n": "number"}}, "schema"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(lw.InvalidArgument, match=message):
        lw.read_kafka("localhost:9092", "orders", time="at", **options)


def test_random_histories_equal_what_was_produced(broker: Brokers) -> None:
    """Messages of any size in any partitions, read in bundles of any size, in stretches."""
    for seed in range(4):
        chance = random.Random(seed)
        partitions = chance.randint(1, 4)
        topic = broker.topic(partitions)
        made: dict[int, list[Message]] = {}
        for number in range(partitions):
            count = chance.choice([0, 1, 5, 300])
            made[number] = [
                _json(at=row, n=row, pad="x" * chance.randint(0, 50)) for row in range(count)
            ]
        broker.produce(topic, made)
        ends = tuple((number, len(each)) for number, each in made.items())
        source = KafkaSource(broker.servers, topic, "json", MessageColumns(), "at", end=ends)
        size = chance.choice([1, 3, 64, 1000])
        found = list(_in_stretches(source, size, chance))
        wanted = sorted(value or b"" for every in made.values() for _, value in every)
        assert sorted(json.dumps(row).encode() for row in found) == wanted


def _in_stretches(source: KafkaSource, size: int, chance: random.Random) -> Iterator[Any]:
    position = None
    while True:
        batches = source.batches_from(position, size, ())
        for records, after in batches:
            position = after
            if records.length:
                yield from records.rows()
                if chance.random() < 0.05:
                    break
        else:
            return
        batches.close()  # type: ignore[attr-defined]


def test_what_retention_removed_unread_is_an_error(model: ModelBroker, tmp_path: Path) -> None:
    topic = model.topic()
    model.produce(topic, {0: [_json(at=row, user="a", amount=1) for row in range(40)]})
    run = _counted(model, topic, {0: 20}).write_jsonl(tmp_path / "out")
    source = KafkaSource(model.servers, topic, "json", MessageColumns(), "at", end=((0, 20),))
    *_, (_, position) = source.batches_from(None, 10, ())
    assert run.run(state=tmp_path / "state").events == 20
    model.retain(topic, 0, 30)
    later = KafkaSource(model.servers, topic, "json", MessageColumns(), "at")
    with pytest.raises(lw.DataError, match="the messages 20 to 29 of partition 0"):
        list(later.batches_from(position, 10, ()))


def test_aborted_transactions_are_not_read_and_their_markers_are_passed(model: ModelBroker) -> None:
    topic = model.topic()
    with_name = {"transactional.id": "t"}
    producer = ModelProducer(model, with_name)
    producer.init_transactions(1.0)
    for number in range(4):
        producer.begin_transaction()
        producer.produce_batch(topic, [{"value": _json(at=number, n=number)[1]}] * 3)
        if number % 2:
            producer.commit_transaction(1.0)
        else:
            model.end_transaction("t", committed=False)
    producer.begin_transaction()  # and nobody knows how it ends
    producer.produce_batch(topic, [{"value": _json(at=4, n=4)[1]}])
    stream = lw.read_kafka(model.servers, topic, time="at", end="latest")
    assert [element.value["n"] for element in stream.collect().elements()] == [1, 1, 1, 3, 3, 3]


def test_compaction_between_a_commit_and_a_restart_leaves_positions_as_they_are(
    model: ModelBroker,
) -> None:
    topic = model.topic(2)
    model.produce(topic, {n: [_json(at=row, n=row) for row in range(30)] for n in range(2)})
    source = KafkaSource(model.servers, topic, "json", MessageColumns(), "at", end="latest")
    steps = list(source.batches_from(None, 8, ()))
    model.compact(topic, 0, set(range(30)) - {3, 29})
    for (_, position), (records, after) in pairwise(steps):
        if not records.length:
            continue
        found = source.batches_from(position, 8, ())
        again, then = next(step for step in found if not step[0].is_rest)
        assert then["at"] == after["at"]
        assert all(row in records.rows() for row in (again.rows() if again.length else []))


@examples(3.0)
@given(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=3) | st.sampled_from([b"k", b"\xff"]),
            st.none()
            | st.binary(max_size=6)
            | st.builds(
                lambda at, n: json.dumps({"at": at, "n": n}).encode(),
                st.integers(0, 9) | st.none(),
                st.integers(0, 9) | st.text(max_size=2) | st.floats(allow_nan=False),
            ),
        ),
        max_size=12,
    ),
    st.booleans(),
)
def test_each_message_is_a_record_or_a_dead_letter(
    pairs: list[Message], keeps_tombstones: bool
) -> None:
    columns = MessageColumns(
        key="key", timestamp="at", tombstone="gone" if keeps_tombstones else None
    )
    decoder = MessageDecoder("t", "json", columns, "at", False, {}, (("n", pa.string()),))
    messages = [Stored(("t", 0, number), pair, 1_000 + number) for number, pair in enumerate(pairs)]
    records = decoder.records(messages)
    letters = [error.where for error in records.unreadable]
    assert len(set(letters)) == len(letters)
    numbers = [] if records.row_numbers is None else records.row_numbers.tolist()
    assert len(numbers) == records.length
    assert {f"t/0, offset {number}" for number in numbers}.isdisjoint(letters)
    assert len(numbers) + len(letters) == len(pairs)
    rows = records.rows() if records.length else []
    for number, row in zip(numbers, rows, strict=True):
        key, value = pairs[number]
        assert row["key"] == (None if key is None else key.decode())
        assert (row.get("gone", False) is True) == (value is None)
        if value is not None:
            assert row["n"] == json.loads(value).get("n")


def _decoded(pairs: list[Message], **options: Any) -> tuple[list[Any], list[Any]]:
    known = options.pop("known", None)
    decoder = MessageDecoder(
        "t", "json", MessageColumns(key="key"), "at", False, {}, known, **options
    )
    messages = [Stored(("t", 0, number), pair, number) for number, pair in enumerate(pairs)]
    records = decoder.records(messages)
    rows = [{n: v for n, v in row.items() if n != PARTITION} for row in records.rows()]
    return rows, [(one.reason, one.where) for one in records.unreadable]


def test_keys_that_are_no_text() -> None:
    """Kafka's own serializers write integers as bytes, most significant first."""
    keys = [(1).to_bytes(8, "big"), b"\xff", None, (2**62).to_bytes(8, "big")]
    pairs: list[Message] = [(key, b'{"at":1}') for key in keys]
    rows, letters = _decoded(pairs, key="bytes")
    assert [row["key"] for row in rows] == keys
    assert letters == []

    def decode(key: bytes) -> int:
        if len(key) != 8:
            raise ValueError("8 bytes make an integer")
        return int.from_bytes(key, "big")

    rows, letters = _decoded(pairs, key=decode)
    assert [row["key"] for row in rows] == [1, None, 2**62]
    assert letters == [("malformed_key", "t/0, offset 1")]
    rows, letters = _decoded(pairs, key="text")
    assert letters == [("malformed_key", "t/0, offset 1")]


def test_keys_may_be_of_any_type() -> None:
    made = {b"a": 1, b"b": "x", b"c": (1, "y"), b"d": 2**53 + 1, b"e": 0.5}
    rows, letters = _decoded([(key, b'{"at":1}') for key in made], key=lambda key: made[key])
    assert [row["key"] for row in rows] == list(made.values())
    assert letters == []


def test_fields_that_are_not_wanted_may_hold_anything() -> None:
    odd = ["1", '"x"', "[1]", "0.5"]
    pairs: list[Message] = [(b"a", f'{{"at":1,"n":{n},"odd":{one}}}'.encode())
                            for n, one in enumerate(odd)]  # fmt: skip
    rows, letters = _decoded(pairs, only=("at", "n"))
    assert letters == []
    assert rows == [{"at": 1, "n": n, "key": "a"} for n in range(len(odd))]


def test_a_value_of_another_type_names_the_option_of_this_reader() -> None:
    decoder = MessageDecoder("t", "json", MessageColumns(), "at", False, {}, None)
    pairs: list[Message] = [(None, b'{"at":1,"n":1}'), (None, b'{"at":1,"n":"x"}')]
    messages = [Stored(("t", 0, number), pair, number) for number, pair in enumerate(pairs)]
    (letter,) = decoder.records(messages).unreadable
    assert letter.detail == "n='x' is not int64; schema= can name another"


def test_times_of_day_and_maps_of_json() -> None:
    known = (("at", pa.int64()), ("t", pa.time64("us")), ("m", pa.map_(pa.string(), pa.int64())))
    values = [
        '{"at":1,"t":"09:30:00.5","m":{"a":1}}',
        '{"at":2,"t":"late","m":{}}',
        '{"at":3,"t":null,"m":{"b":9007199254740993}}',
        '{"at":4,"t":"10:00","m":{"c":"x"}}',
    ]
    rows, letters = _decoded([(None, value.encode()) for value in values], known=known)
    assert [(row["at"], row["t"], row["m"]) for row in rows] == [
        (1, time(9, 30, 0, 500_000), [("a", 1)]), (3, None, [("b", 2**53 + 1)]),
    ]  # fmt: skip
    assert sorted(letters) == [("wrong_type", "t/0, offset 1"), ("wrong_type", "t/0, offset 3")]


def test_what_waits_for_brokers_comes_back_now_and_then(
    model: ModelBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = model.topic()
    model.produce(topic, {0: [_json(at=1)]})
    monkeypatch.setattr(ModelConsumer, "consume", lambda *_: [])
    source = KafkaSource(model.servers, topic, "json", MessageColumns(), "at", end="latest")
    assert next(source.batches(10, ())).is_rest  # so that the run can be stopped


def test_offsets_of_a_group_wait_for_no_answer_and_the_last_ones_win(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, Future[Any]]] = []

    class Admin:
        def alter_consumer_group_offsets(self, groups: Any, request_timeout: float) -> Any:
            asked.append((groups[0].topic_partitions[0].offset, Future()))
            return {"g": asked[-1][1]}

    def answer(error: str | None = None) -> None:
        if error is None:
            asked[-1][1].set_result(types.SimpleNamespace(topic_partitions=[]))
        else:
            asked[-1][1].set_exception(RuntimeError(error))

    offsets = GroupOffsets(Admin(), "t", "g")
    for at in (1, 2, 3):
        offsets.commit({"0": at})
    assert [at for at, _ in asked] == [1]  # one request at a time
    answer()
    offsets.serve()
    assert [at for at, _ in asked] == [1, 3]
    answer("refused")
    offsets.commit({"0": 3})  # as the next run does, or the next commit of this one
    assert [at for at, _ in asked] == [1, 3, 3]
    monkeypatch.setattr("lowwater.io.kafka.group._SETTLE_S", 0.0)
    assert not offsets.settle()  # the brokers are away
    answer()
    assert offsets.settle()
    assert offsets.taken == {"0": 3}


def _arrow(**columns: Any) -> Message:
    out = io.BytesIO()
    table = pa.table(columns)
    with pa.ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table)
    return None, out.getvalue()


@pytest.mark.parametrize("size", [1, 100])
@pytest.mark.parametrize(
    ("options", "messages", "ends"),
    [
        (  # what is not wanted may be anything; a value of another type is no one else's matter
            {"schema": {"at": "int64", "n": "int64"}},
            [_json(at=1, n=1, x=1), _json(at=2, n=2, x="s"), _json(at=3, n=1.5), _json(at=4, n=4)],
            [1, 2, "wrong_type", 4],
        ),
        (
            {"schema": {"at": pa.timestamp("us", "UTC"), "n": pa.date32()}},
            [
                _json(at="2026-01-01T00:00:00Z", n="2026-01-02"),
                _json(at="2026-01-01T00:00:00Z", n="soon"),
                _json(at="soon", n="2026-01-02"),
                _json(at=5, n="2026-01-02"),
            ],
            [date(2026, 1, 2), "wrong_type", "wrong_type", "wrong_type"],
        ),
        (
            {"value": "arrow"},
            [
                _arrow(at=[1], n=pa.array(["a"]).dictionary_encode()),
                _arrow(at=pa.array([], pa.int64()), n=pa.array([], pa.string())),
                _arrow(at=[2], n=["b"]),
                _arrow(at=[3], n=[3]),
                _arrow(at=pa.array([4], pa.int32())),
                _arrow(at=[5], n=pa.array([b"\xff"]).view(pa.string())),
            ],
            ["a", "b", "wrong_type", None, "malformed_arrow"],
        ),
        (
            {"value": "arrow", "schema": {"at": "int64", "n": "int64"}},
            [_arrow(at=[1], n=["1"]), _arrow(at=[2, 3], n=["z", "3"]), _arrow(at=[4], n=[4])],
            [1, "wrong_type", 3, 4],
        ),
    ],
)
def test_a_message_of_other_types_stops_no_run_whatever_is_read_with_it(
    model: ModelBroker, options: Any, messages: list[Message], ends: list[Any], size: int
) -> None:
    topic = model.topic()
    model.produce(topic, {0: messages})
    stream = lw.read_kafka(model.servers, topic, time="at", end="latest", **options)
    result = stream.collect(on_error="dead_letter", bundle_size=size)
    found = [element.value["n"] for element in result.elements()]
    reasons = [error.reason for error in result.errors]
    assert found == [end for end in ends if not (isinstance(end, str) and "_" in end)]
    assert reasons == [end for end in ends if isinstance(end, str) and "_" in end]


def test_messages_of_many_rows_make_no_partition_late(model: ModelBroker) -> None:
    topic = model.topic(2)
    each = [
        _arrow(at=[(4 * n + row) * MINUTE for row in range(4)], user=["a"] * 4) for n in range(9)
    ]
    model.produce(topic, {0: each, 1: each})
    stream = lw.read_kafka(
        model.servers, topic, time="at", value="arrow", end="latest",
        watermark=lw.PerPartition(lw.Ascending()),
    )  # fmt: skip
    counts = stream.key_by("user").window(lw.FixedWindows("1m")).aggregate(n=lw.count())
    result = counts.collect(bundle_size=5)
    assert result.late == []
    assert [pane.value for pane in result.panes] == [2] * 36


def _late_of(model: ModelBroker, each: list[list[int]], size: int, **options: Any) -> int:
    """Return how many of a topic's records are late in bundles of a size, each counted once."""
    topic = model.topic(len(each))
    model.produce(
        topic,
        {n: [_json(at=at * MINUTE, user="a", amount=1) for at in times]
         for n, times in enumerate(each)},
    )  # fmt: skip
    stream = lw.read_kafka(
        model.servers, topic, time="at", end="latest", watermark=lw.PerPartition(lw.Ascending())
    )
    counts = stream.key_by("user").window(lw.FixedWindows("1m")).aggregate(n=lw.count())
    result = counts.collect(bundle_size=size, **options)
    assert sum(pane.value for pane in result.panes) + len(result.late) == sum(map(len, each))
    return len(result.late)


@given(
    st.lists(st.lists(st.integers(0, 40), max_size=8).map(sorted), min_size=1, max_size=6),
    st.integers(1, 7),
)
def test_no_record_of_a_partition_in_order_is_late(each: list[list[int]], size: int) -> None:
    """Even if a bundle cannot have a record of each partition (S-T3)."""
    with ModelBroker().patched() as model:
        assert _late_of(model, each, size) == 0


def test_partitions_are_waited_for_that_are_added(
    model: ModelBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From when they are found, whatever comes meanwhile of those that were there."""
    monkeypatch.setattr("lowwater.io.kafka.reader._LOOK_S", 0.0)
    topic = model.topic(1)
    model.produce(topic, {0: [_json(at=0)]})
    source = KafkaSource(model.servers, topic, "json", MessageColumns(), "at")
    announced = []
    for records in source.batches(1, ()):
        announced.append(records.partitions)
        if records.length:
            model.add_partitions(topic, 3)
        if announced[-1] != (0,):
            break
    assert set(announced) == {(0,), (0, 1, 2)}


def test_what_waits_for_the_end_of_an_endless_topic_is_refused() -> None:
    stream = lw.read_kafka("localhost:9092", "orders", time="at")
    with pytest.raises(lw.InvalidArgument, match='end="latest"'):
        stream.collect()


@pytest.mark.parametrize(
    ("watermark", "found"),
    [
        (lw.BoundedDisorder("1m"), ["partitions are read at different speeds"]),
        (lw.PerPartition(lw.BoundedDisorder("1m")), ["a partition that falls silent"]),
        (lw.PerPartition(lw.BoundedDisorder("1m"), idle_after="5m"), []),
    ],
)
def test_check_knows_partitions(watermark: Any, found: list[str]) -> None:
    stream = lw.read_kafka("localhost:9092", "orders", time="at", watermark=watermark)
    counts = stream.key_by("user").window(lw.FixedWindows("1m")).aggregate(n=lw.count())
    findings = lw.check(counts)
    assert len(findings) == len(found)
    for finding, text in zip(findings, found, strict=True):
        assert text in finding.what


def _unanswered(*given: Any, **options: Any) -> Any:
    raise TimeoutError


def test_brokers_that_do_not_answer_are_named(
    model: ModelBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = model.topic()
    monkeypatch.setattr("tests.unit.io.kafka.model.ModelAdmin.list_offsets", _unanswered)
    with pytest.raises(lw.DataError, match="did not answer"):
        lw.read_kafka(model.servers, topic, time="at", end="latest").collect()


def test_a_look_for_partitions_that_is_not_answered_ends_nothing(
    model: ModelBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("lowwater.io.kafka.reader._LOOK_S", 0.0)
    topic = model.topic()
    batches = KafkaSource(
        model.servers, topic, "json", MessageColumns(), "at", start="earliest"
    ).batches(10, ())
    next(batches)
    model.add_partitions(topic, 2)
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "lowwater.io"):
        patch.setattr("tests.unit.io.kafka.model.ModelAdmin.list_offsets", _unanswered)
        for _ in range(3):
            next(batches)
    assert "no look for new partitions" in caplog.text
    model.produce(topic, {1: [_json(at=1, n=7)]})
    found = next(records for records in batches if records.length)
    assert found.rows() == [{"at": 1, "n": 7}]


@pytest.mark.parametrize("end", ["never", ((0, 50),)])
def test_a_topic_that_is_created_anew_while_it_is_read(
    end: Any, model: ModelBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new one has more messages than were read of the old one, so no offset is out of range."""
    monkeypatch.setattr("lowwater.io.kafka.reader._LOOK_S", 0.0)
    topic = model.topic()
    model.produce(topic, {0: [_json(at=1, n=n) for n in range(5)]})
    source = KafkaSource(
        model.servers, topic, "json", MessageColumns(), "at", start="earliest", end=end
    )
    batches = source.batches(10, ())
    while not next(batches).length:
        pass
    model.recreate(topic)
    model.produce(topic, {0: [_json(at=2, n=n) for n in range(50)]})
    with pytest.raises(lw.DataError, match="was deleted and created anew"):
        next(records for records in batches if records.length)


@contextmanager
def _slow_brokers(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Have brokers set an event once they are asked, and answer once another one is set."""
    asked, answering = threading.Event(), threading.Event()
    list_topics = ModelConsumer.list_topics

    def slow(self: Any, topic: str, timeout: float) -> Any:
        asked.set()
        assert answering.wait(30)
        return list_topics(self, topic, timeout)

    with monkeypatch.context() as patch:
        patch.setattr("lowwater.io.kafka.topic_source._CONNECT_S", 0.0)
        patch.setattr(ModelConsumer, "list_topics", slow)
        try:
            yield asked, answering
        finally:
            answering.set()


def test_a_run_that_connects_can_be_stopped(
    model: ModelBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And what connects is closed, whenever that is; a later run begins at the beginning."""
    topic = model.topic()
    model.produce(topic, {0: [_json(at=1, user="a")]})
    closed = threading.Event()
    monkeypatch.setattr(ModelConsumer, "close", lambda _: closed.set())
    stream = lw.read_kafka(model.servers, topic, time="at", group="g", end="latest")
    counts = stream.key_by("user").window(lw.FixedWindows("1m")).aggregate(n=lw.count())
    output = counts.write_jsonl(tmp_path / "found.jsonl")
    with _slow_brokers(monkeypatch) as (asked, answering):
        run = output.start(state=tmp_path / "state")
        assert asked.wait(30)
        run.stop()
        run.wait(30)
        assert not answering.is_set()
        assert not closed.is_set()
        answering.set()
        assert closed.wait(30)
    output.run(state=tmp_path / "state")
    assert len((tmp_path / "found.jsonl").read_text().splitlines()) == 1


def test_a_group_follows_once_the_brokers_are_reached(
    model: ModelBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that resumes says before it connects how far the state is."""
    topic = model.topic()
    model.produce(topic, {0: [_json(at=at) for at in range(9)]})
    source = KafkaSource(
        model.servers, topic, "json", MessageColumns(), "at", group="g", end="latest"
    )
    position = {"at": {"0": 4}, "next": None, "id": None, "types": None}
    position["types"] = next(source.batches_from(None, 9, ()))[1]["types"]
    again = KafkaSource(
        model.servers, topic, "json", MessageColumns(), "at", group="g", end="latest"
    )
    again.committed({"at": None, "next": None, "id": None, "types": None})
    again.committed(position)
    with _slow_brokers(monkeypatch) as (_, answering):
        batches = again.batches_from(position, 9, ())
        records, unchanged = next(batches)
        assert records.is_rest
        assert unchanged == position
        assert model.offsets("g", topic, 1) == {}
        answering.set()
        assert sum(len(records) for records, _ in batches) == 5
    assert model.offsets("g", topic, 1) == {"0": 4}


def test_a_source_shows_no_password() -> None:
    source = KafkaSource(
        "db:9092", "orders", "json", MessageColumns(), "at", config={"sasl.password": "secret"}
    )
    assert repr(source) == "KafkaSource('db:9092', 'orders')"


def test_runs_up_to_what_is_there(model: ModelBroker, tmp_path: Path) -> None:
    """Messages in three rounds, a run for each: as one run over all, and no window closes early."""
    topic = model.topic(3)
    for turn in range(3):
        rows = range(turn * 100, turn * 100 + 100)
        model.produce(
            topic,
            {
                number: [_json(at=row * 1_000_000, user=f"u{row % 7}", amount=row) for row in rows]
                for number in range(3)
            },
        )
        panes = _counted(model, topic, "never").write_jsonl(tmp_path / "out")
        metrics = panes.run(state=tmp_path / "state", until="available", progress=False)
        assert metrics.events == 300 * (turn + 1)
        assert metrics.late.total() == 0
        assert int(metrics.watermarks()[0].output) == (turn * 100 + 99) * 1_000_000
    written = [
        json.loads(line)
        for path in sorted((tmp_path / "out").glob("part-*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    wanted = {key: value for key, value in _wanted(3, 300).items() if key[1] < 4 * MINUTE}
    assert {
        (row["user"], int(lw.Instant(row["window_start"]))): (row["n"], row["amount"])
        for row in written
    } == wanted


def test_runs_with_kills_write_what_one_run_that_follows_writes(
    model: ModelBroker, tmp_path: Path
) -> None:
    """In as many rounds as there are places to be killed, each for the first three times."""
    topic = model.topic(3)

    def written(_: str, folder: Path) -> Any:
        stream = lw.read_kafka(
            model.servers, topic, time="t", unit="us", end="never",
            watermark=lw.BoundedDisorder("5s"), clock=lw.ManualClock(0),
        )  # fmt: skip
        return windows(stream).write_jsonl(folder)

    def add(number: int) -> int:
        rows = rows_of(number)
        model.produce(topic, {number % 3: [_json(**row) for row in rows]})
        return len(rows)

    # A round is a bundle: how messages are cut further depends on when a run comes to them.
    one, many = side_by_side(tmp_path, written, add, rounds=12, bundle_size=100)
    assert many == one
    assert len(one["part"]) > 5
    assert one["late"]
