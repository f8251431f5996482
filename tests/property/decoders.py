"""Everything that reads stored bytes, as functions of bytes: they may refuse, and nothing else.

``check(sample, data)`` puts ``data`` where a sample was and has it read. It must return, or raise
one of ``REFUSALS``: any other error, a hang, or a value of a type that was never written means
that the bytes had a say in what happens.
"""

from __future__ import annotations

import datetime as dt
import tempfile
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

import lowwater as lw
from lowwater.engine.local import memory_budget as _memory_budget
from lowwater.engine.local.commit_policy import CommitPolicy
from lowwater.engine.local.delivery import Delivery
from lowwater.engine.local.durable import DurableRun
from lowwater.engine.local.memory_budget import MemoryBudget
from lowwater.engine.local.outbox import decode_delivery, encode_delivery
from lowwater.engine.local.pieces import RunOutput
from lowwater.engine.local.run_record import read_outbox
from lowwater.engine.process import ProcessOperator
from lowwater.engine.records.columns import type_from_bytes, type_to_bytes
from lowwater.engine.records.key_hash import KEY_GROUPS
from lowwater.engine.window.inspect import InspectedWindows
from lowwater.errors import DataError, StateError
from lowwater.io.log import frame_format
from lowwater.io.sinks import Callback
from lowwater.pipeline import Pipeline
from lowwater.pipeline.outcomes import Outcomes
from lowwater.state.codec import decode, encode
from lowwater.state.key_layout import END, StoredPlace
from lowwater.state.memory import MemoryStore
from lowwater.state.ownership import read_sequencer
from lowwater.state.rocks import RocksStore
from lowwater.state.store import Batch
from lowwater.time import Instant
from tests.property import process_columns_model, process_model
from tests.unit.engine.local.durable_runs import Stopped, stopping, write_files
from tests.unit.io.deliveries import with_everything

REFUSALS = (StateError, DataError, frame_format.Damaged)
_KNOWN = (
    type(None), bool, int, float, str, bytes, list, tuple, dict, set, frozenset, dt.date, dt.time,
    dt.datetime, dt.timedelta, Decimal, uuid.UUID, Instant,
)  # fmt: skip


@dataclass(frozen=True)
class Decoder:
    """One of them.

    Args:
        name: What it reads.
        samples: Bytes as they are written.
        check: Reads other bytes in place of a sample, by its number.
        one_store: Samples are the keys and values of one store: ``check`` reads all of it each
            time, so that for unchanged bytes all samples are the same case.
    """

    name: str
    samples: list[bytes]
    check: Callable[[int, bytes], None]
    one_store: bool = False


def _check_value(_: int, data: bytes) -> None:
    _require_known(decode(data))


def _require_known(value: Any) -> None:
    assert type(value) in _KNOWN, type(value)
    if isinstance(value, dict):
        for key, held in value.items():
            _require_known(key)
            _require_known(held)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for held in value:
            _require_known(held)


def _value_samples() -> list[bytes]:
    plain: list[Any] = [
        None, True, 0, -1, 2**63, -(2**70), 10**30, 1.5, "text", b"bytes", [1, [2, "x"]], (1, 2),
        {"a": 1, (1, 2): [3]}, {1, 2}, frozenset({"x"}), dt.date(2024, 2, 29), dt.time(12, 30, 1),
        dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC), dt.timedelta(days=1, microseconds=3),
        Decimal("1.50"), uuid.UUID(int=5), Instant(7),
    ]  # fmt: skip
    return [encode(value) for value in [*plain, plain]]


def _check_delivery(_: int, data: bytes) -> None:
    found = decode_delivery(data)
    for table in (found.panes, found.late, found.errors):
        if table is not None:
            table.to_pydict()


@cache
def _deliveries() -> list[Delivery]:
    whole = with_everything()
    return [whole, Delivery(7, 1, 3, whole.panes.slice(0, 0))]


def _check_type(_: int, data: bytes) -> None:
    assert isinstance(type_from_bytes(data), pa.DataType)


_SCHEMA = pa.schema([("at", pa.int64()), ("name", pa.string()), ("list", pa.list_(pa.int32()))])


def _frame_samples() -> list[bytes]:
    batch = pa.record_batch(
        [pa.array([1, 2, None]), pa.array(["a", None, "c"]), pa.array([[1], [], None])],
        schema=_SCHEMA,
    )
    samples = []
    for kind, what, count in (
        (frame_format.Kind.SCHEMA, _SCHEMA, 0),
        (frame_format.Kind.RECORDS, batch, 3),
        (frame_format.Kind.SPARSE, frame_format.Sparse(7, np.array([0, 4, 5]), batch), 9),
        (frame_format.Kind.SPARSE, frame_format.Sparse(None, np.array([1, 2, 3]), batch), 4),
    ):
        if isinstance(what, frame_format.Sparse):
            payload = pa.py_buffer(frame_format.encode_sparse(what))
        else:
            payload = frame_format.encode_payload(what)
        samples.append(
            frame_format.encode_header(kind, 5, 6, count, payload) + payload.to_pybytes()
        )
        samples.append(payload.to_pybytes())
    return samples


def _check_frame(sample: int, data: bytes) -> None:
    """Look at frames as a log does, and at payloads behind a checksum that is right by chance."""
    if len(data) >= frame_format.HEADER_BYTES:
        header = frame_format.decode_header(data)
        if header is not None and len(data) >= header.size:
            frame_format.is_sound(header, data)
    payload = data if sample % 2 else data[frame_format.HEADER_BYTES :]
    if sample < 2:
        frame_format.decode_schema(payload)
    elif sample < 4:
        frame_format.decode_records(payload, _SCHEMA, 3).to_pydict()
    else:
        found = frame_format.decode_sparse(memoryview(payload), _SCHEMA, 9)
        assert len(found.places) == (0 if found.records is None else found.records.num_rows)
        assert all(0 <= place < 9 for place in found.places)
        if found.records is not None:
            found.records.to_pydict()


def _check_sequencer(_: int, data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "SEQUENCER").write_bytes(data)
        read_sequencer(Path(folder))


def _sequencer_samples() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder, RocksStore(folder):
        return [(Path(folder) / "SEQUENCER").read_bytes()]


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory()
    write_files(Path(folder.name) / "in")
    return folder


def _pipelines() -> list[Pipeline]:
    source = lw.read_parquet(
        Path(_folder().name) / "in",
        time="at",
        watermark=lw.BoundedDisorder("30s"),
        clock=lw.ArrivalClock("at", tick="10s"),
    )
    early = lw.AfterAny(lw.AfterCount(2), lw.AfterProcessingTime("20s"))
    return [
        source.deduplicate(id="value", within="1h")
        .key_by("key", "value")
        .window(
            lw.Sessions("15s"),
            trigger=lw.AfterWatermark(early=early, late=lw.AfterCount(1)),
            accumulation="retracting",
            allowed_lateness="1m",
        )
        .aggregate(n=lw.count(), values=lw.collect("value"), last=lw.last("key")),
        source.key_by("key")
        .window(lw.FixedWindows("40s"), allowed_lateness="30s", accumulation="discarding")
        .aggregate(mean=lw.mean("value"), least=lw.min("value"), keys=lw.collect_set("key")),
    ]


def _durable(pipeline: Pipeline) -> DurableRun:
    outcomes = Outcomes((pipeline._stage,), {"bundle_size": 10, "progress": False}, durable=True)
    every = CommitPolicy.of("bundle")
    place = str(Path(_folder().name) / "state")
    to = RunOutput(
        stage=0, keys=pipeline._stage.key_names, sinks=(), empty=pipeline._no_panes(),
        late_of=frozenset({0}),
    )  # fmt: skip
    return DurableRun(
        outcomes.local, place, (to,), every, outcomes.clock, outcomes.bundle_size, MemoryBudget()
    )


@cache
def _rows(which: int) -> list[tuple[bytes, bytes]]:
    """Return all rows of the state of a run that was stopped half way.

    From 2 on, windows that can be spared have left memory.
    """
    pipeline = _pipelines()[which % 2]
    with tempfile.TemporaryDirectory() as state:
        options: Any = {"bundle_size": 10, "commit_every": "bundle", "progress": False}
        if which >= 2:
            options["memory_limit"] = 1024
        with stopping("before forgetting", 14), mock.patch.object(_memory_budget, "_LEAST", 0):
            try:
                pipeline.write_to(Callback(str)).run(state=state, **options)
            except Stopped:
                pass
        with RocksStore(state, read_only=True) as store:
            return list(store.scan(b"", END))


def _state(which: int) -> Decoder:
    rows = _rows(which)
    samples = [part for row in rows for part in row]

    def check(sample: int, data: bytes) -> None:
        changed = dict(rows)
        key, value = rows[sample // 2]
        del changed[key]
        if sample % 2:
            changed[key] = data
        elif data < END:
            changed[data] = value
        store = MemoryStore()
        batch = Batch()
        batch.put(list(changed), list(changed.values()))
        store.commit(batch)
        refusals = []
        for read in (_take_up, _look_into):
            try:
                read(store, which)
            except REFUSALS as error:
                refusals.append(error)
        if refusals:
            raise refusals[0]

    return Decoder(f"state {which}", samples, check, one_store=True)


def _take_up(store: MemoryStore, which: int) -> None:
    """Go on with a run, up to where it would read on."""
    run = _durable(_pipelines()[which % 2])
    run._take_up(store)
    for reader in run._run.readers:
        next(run._beyond(reader), None)


def _look_into(store: MemoryStore, which: int) -> None:
    """Look at everything, as the command line does."""
    list(read_outbox(store))
    view = InspectedWindows(store, StoredPlace("stage 1", 0, KEY_GROUPS))
    view.verify()
    view.windows(["key", "value"][: 2 - which % 2])


def _processed(vectorised: bool, windowed: bool) -> Decoder:
    """Return what reads the state of a process."""

    def made() -> ProcessOperator:
        process: Any = (
            process_model.Scripted() if not vectorised else process_columns_model.Scripted()
        )
        windowing = process_columns_model.WINDOWS if windowed else None
        return ProcessOperator(process, windowing=windowing, watermark=0, clock=0)

    operator = made()
    operator.keep_in_store(StoredPlace("stage 0", 0, 4))
    if vectorised:
        process: Any = operator.definition.process
        process.windowed = windowed
        operator.step(process_columns_model.step([("a", 1, 2, 0, 20, 1), ("b", 12, 1, 2, 30, -1)]))
    else:
        acts: Any = (("add", 1), ("set", "once", 5, 1, (2, "x")), ("set", "wall", 9, None, None))
        operator.step(process_model.bundle([("a", 1, acts), ("b", 12, acts[:2])]))
    store = MemoryStore()
    batch = Batch()
    operator.save(batch)
    store.commit(batch)
    rows = list(store.scan(b"", END))
    samples = [part for row in rows for part in row]

    def check(sample: int, data: bytes) -> None:
        changed = dict(rows)
        key, value = rows[sample // 2]
        del changed[key]
        if sample % 2:
            changed[key] = data
        elif data < END:
            changed[data] = value
        other, batch = MemoryStore(), Batch()
        batch.put(list(changed), list(changed.values()))
        other.commit(batch)
        again = made()
        again.keep_in_store(StoredPlace("stage 0", 0, 4))
        if again.restore(other):
            again.hold()
            again.save(Batch())

    name = f"process{', columns' * vectorised}{', windows' * windowed}"
    return Decoder(name, samples, check, one_store=True)


MAKERS: Mapping[str, Callable[[], Decoder]] = {
    "values": lambda: Decoder("values", _value_samples(), _check_value),
    "deliveries": lambda: Decoder(
        "deliveries", [encode_delivery(each) for each in _deliveries()], _check_delivery
    ),
    "types": lambda: Decoder(
        "types", [type_to_bytes(kind) or b"" for kind in (*_SCHEMA.types, pa.null())], _check_type
    ),
    "frames": lambda: Decoder("frames", _frame_samples(), _check_frame),
    "sequencers": lambda: Decoder("sequencers", _sequencer_samples(), _check_sequencer),
    **{f"state {which}": partial(_state, which) for which in range(4)},
    **{
        f"process{', columns' * vectorised}{', windows' * windowed}": partial(
            _processed, vectorised, windowed
        )
        for vectorised, windowed in product((False, True), repeat=2)
    },
}
"""What makes each decoder: its samples, which it reads without complaint, take time."""


@cache
def decoder_named(name: str) -> Decoder:
    """Return a decoder, made at the first call."""
    decoder = MAKERS[name]()
    assert decoder.name == name
    return decoder


def mutated(data: bytes, choices: np.random.Generator) -> bytes:
    """Return bytes changed in one or a few places."""
    content = bytearray(data)
    for _ in range(int(choices.integers(1, 4))):
        at = int(choices.integers(0, len(content) + 1))
        length = int(choices.choice([1, 1, 1, 2, 4, 8, 40]))
        match int(choices.integers(0, 6)):
            case 0:
                content[at : at + 1] = bytes([int(choices.integers(0, 256))])
            case 1:
                del content[at : at + length]
            case 2:
                content[at:at] = choices.bytes(length)
            case 3:
                content[at : at + length] = choices.choice([b"\0", b"\xff", b"\x7f"]) * length
            case 4:
                del content[at:]
            case _:
                other = int(choices.integers(0, len(content) + 1))
                content[at : at + length] = content[other : other + length]
    return bytes(content)
