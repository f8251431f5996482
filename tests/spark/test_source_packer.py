"""Workers place keys in groups by the hash that every runner uses, of the keys as admitted."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lowwater as lw
from lowwater.engine.graph.graph import Flow, Graph, Read, Stage
from lowwater.engine.records.columns import Column
from lowwater.engine.records.expressions import Expressions
from lowwater.engine.records.key_hash import key_groups
from lowwater.engine.records.stateless import Filter, WithColumns
from lowwater.engine.records.stepping import Step
from lowwater.engine.stages.windowed import Windowed
from lowwater.io.log.conform import partitions_of
from lowwater.io.parquet import ParquetSource
from lowwater.io.paths import files_at
from lowwater.spark.levels import Elsewhere, Levels
from lowwater.spark.messages import Elements, Message
from lowwater.spark.reading import names_of_files
from lowwater.spark.signals import NoSignals
from lowwater.spark.source_packer import NOW, PackedRecords, SourcePacker

GROUPS = 8
NOON = dt.datetime(2000, 1, 1, 12, tzinfo=dt.UTC)
KEYS: dict[str, pa.Array] = {
    "text": pa.array([f"user-{at}" for at in range(100)]),
    "ints": pa.array(range(100), pa.int16()),
    "floats": pa.array([at / 2 for at in range(100)]),
    "decimals": pa.array([Decimal(at) / 4 for at in range(100)]),
    "dates": pa.array([dt.date(2000, 1, 1) + dt.timedelta(at) for at in range(100)]),
    "instants": pa.array([NOON + dt.timedelta(seconds=at) for at in range(100)]),
}


def packer(
    *keys: str,
    steps: tuple[Step, ...] = (),
    watermark: Any = None,
    keep_records: bool = False,
) -> SourcePacker:
    """Return a packer for one stage that counts."""
    read = Read(Elsewhere(), "at", watermark=watermark or lw.Ascending())
    work = Windowed(lw.Windowing(windows=lw.FixedWindows("1m")), {"n": lw.count()})
    stage = Stage((Flow(read, steps, "at"),), keys, keys, work)
    levels = Levels(Graph.of([stage]))
    return SourcePacker(levels, 0, NoSignals(), GROUPS, "dead_letter", keep_records)


def sent(packed: PackedRecords) -> dict[int, Message]:
    """Return the message to each key group, as it arrives there."""
    found: dict[int, Message] = {}
    for level, group, message in packed.messages:
        assert level == 1
        assert found.setdefault(group, Message.of_bytes(message.to_bytes())).source == 0
    assert set(found) == set(range(GROUPS))
    return found


def placed(batch: pa.RecordBatch, *keys: str, steps: tuple[Step, ...] = ()) -> dict[Any, int]:
    """Return the group that each key of a batch is sent to."""
    (packed,) = packer(*keys, steps=steps).pack([batch], 0)
    found: dict[Any, int] = {}
    for group, message in sent(packed).items():
        for table in message.elements.values():
            columns = [column.to_list() for column in Elements.of_tables([table]).bundle.keys]
            for key in zip(*columns, strict=True):
                assert found.setdefault(key, group) == group
    return found


def batch_of(**columns: pa.Array) -> pa.RecordBatch:
    length = len(next(iter(columns.values())))
    return pa.record_batch({"at": pa.array([NOON] * length), **columns})


@pytest.mark.parametrize("name", KEYS)
def test_a_key_is_in_the_group_of_its_hash(name: str) -> None:
    keys = KEYS[name]
    found = placed(batch_of(key=keys), "key")
    expected = key_groups([Column.from_arrow(keys)], GROUPS).tolist()
    assert found == {(key,): group for key, group in zip(keys.to_pylist(), expected, strict=True)}
    assert len(set(expected)) == GROUPS


def test_keys_of_several_columns_and_logs_with_as_many_partitions() -> None:
    batch = batch_of(a=KEYS["text"], b=KEYS["ints"])
    found = placed(batch, "a", "b")
    keys = zip(KEYS["text"].to_pylist(), KEYS["ints"].to_pylist(), strict=True)
    expected = partitions_of(batch, ["a", "b"], GROUPS).tolist()
    assert found == dict(zip(keys, expected, strict=True))


def test_the_type_of_a_column_does_not_move_its_keys() -> None:
    kinds = (pa.int16(), pa.int64(), pa.float64(), pa.decimal128(30, 2))
    found = [placed(batch_of(key=pa.array(range(100)).cast(kind)), "key") for kind in kinds]
    assert all(one == found[0] for one in found)


def test_dead_letters_do_not_shift_the_groups_of_others() -> None:
    keys = pa.array([None if at % 3 == 0 else f"user-{at}" for at in range(100)])
    whole = placed(batch_of(key=KEYS["text"]), "key")
    found = placed(batch_of(key=keys), "key")
    assert found == {key: group for key, group in whole.items() if key[0] in keys.to_pylist()}


def test_keys_that_steps_make_are_placed_as_they_come_out() -> None:
    step = WithColumns(Expressions(named={"key": lw.col("key").str.to_uppercase()}))
    found = placed(batch_of(key=KEYS["text"]), "key", steps=(step,))
    made = pa.array([key.upper() for key in KEYS["text"].to_pylist()])
    expected = key_groups([Column.from_arrow(made)], GROUPS).tolist()
    assert found == dict(zip([(key,) for key in made.to_pylist()], expected, strict=True))


def test_a_partition_without_records_tells_all_groups() -> None:
    """So that each of them hears of every partition in each micro-batch."""
    for batches in ([], [batch_of(key=pa.array([], pa.string()))]):
        (packed,) = packer("key").pack(batches, 3)
        assert packed.events == 0
        for message in sent(packed).values():
            assert (message.part, message.elements, message.observed) == (3, {}, None)


def test_all_groups_observe_the_same() -> None:
    """Each computes the watermark for itself: from all records, those of other groups included."""
    batch = batch_of(key=KEYS["text"])
    (packed,) = packer("key").pack([batch], 0)
    observed = [message.observed for message in sent(packed).values()]
    assert all(one == observed[0] for one in observed)
    assert observed[0] is not None
    assert observed[0].num_rows < len(batch)  # the latest is enough
    every = lw.Quantile(0.9)
    (packed,) = packer("key", watermark=every).pack([batch], 0)
    (first, *_) = sent(packed).values()
    assert first.observed is not None
    assert first.observed.num_rows == len(batch)


def test_records_that_a_filter_drops_are_observed() -> None:
    """The source's time goes on, though nothing of it arrives."""
    (packed,) = packer("key", steps=(Filter(lw.col("key") == "none"),)).pack(
        [batch_of(key=KEYS["text"])], 0
    )
    for message in sent(packed).values():
        assert message.elements == {}
        assert message.observed is not None
    assert packed.events == 100


def test_the_time_of_the_micro_batch_is_sent_and_is_no_column() -> None:
    batch = batch_of(key=KEYS["text"], **{NOW: pa.array([77] * 100, pa.int64())})
    (packed,) = packer("key", keep_records=True).pack([batch], 0)
    for message in sent(packed).values():
        assert message.now == 77
        for table in message.elements.values():
            assert set(Elements.of_tables([table]).records.columns) == {"at", "key"}


def test_records_go_along_only_where_they_are_needed() -> None:
    (packed,) = packer("key").pack([batch_of(key=KEYS["text"])], 0)
    for message in sent(packed).values():
        for table in message.elements.values():
            assert Elements.of_tables([table]).records.columns == {}


def test_invalid_records_are_counted_and_set_aside() -> None:
    keys = pa.array(["a", None, "b"])
    (packed,) = packer("key").pack([batch_of(key=keys)], 0)
    assert packed.events == 3
    assert [letter.reason for letter in packed.dead_letters] == ["null_key"]


@pytest.mark.parametrize(
    ("paths", "file"),
    [
        ("in", "in/a b.parquet"),
        ("in/", "in/below/1.parquet"),
        ("in/1.parquet", "in/1.parquet"),
        ("in/*.parquet", "in/1.parquet"),
        ("*/1.parquet", "in/1.parquet"),
        ("{here}/in", "{here}/in/1.parquet"),
        ("{here}/in/?.parquet", "{here}/in/1.parquet"),
    ],
)
@pytest.mark.parametrize("slashes", ["/", "///"])
def test_files_are_called_as_the_source_calls_them(
    paths: str, file: str, slashes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark writes their whole URI; what a watermark knows of files names them as embedded."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in" / "below").mkdir(parents=True)
    for name in ("1.parquet", "a b.parquet", "below/1.parquet"):
        pq.write_table(pa.table({"at": [NOON]}), tmp_path / "in" / name)
    here, wanted = paths.format(here=tmp_path), file.format(here=tmp_path)
    source = ParquetSource((here,))
    assert wanted in map(str, files_at(here, (".parquet",)))
    uri = "file:" + slashes + quote(str(tmp_path / wanted).lstrip("/"))
    made = replace(packer("key"), files=names_of_files(source))
    assert made._names(Column.from_arrow(pa.array([uri, uri]))).to_list() == [wanted, wanted]
