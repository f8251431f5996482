"""Duplicates: what is dropped, for how long ids are remembered, and what is left of them (S-D1)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias
from unittest import mock
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.records.columns import Column
from lowwater.engine.records.deduplicate import IDS as ID_ROWS
from lowwater.engine.records.deduplicate import Deduplication, Deduplicator, id_bytes
from lowwater.io.sinks import JsonLinesFolder
from lowwater.state import id_columns, id_runs, id_set, xxh64
from lowwater.state.id_columns import IdColumns
from lowwater.state.id_runs import IdRun
from lowwater.state.key_layout import END, StoredPlace, prefix_range, table_prefix
from lowwater.state.memory import MemoryStore
from lowwater.state.store import Batch
from lowwater.time import END_OF_TIME, START_OF_TIME
from tests.examples import examples
from tests.kernels import alternating

WITHIN = 10
IDS = table_prefix("stage 2", 0, ID_ROWS)


class Driven:
    """A deduplicator, in memory or over a store, that can be thrown away and restored."""

    def __init__(self, *, stored: bool, columns: tuple[str, ...] = ("id",)) -> None:
        self.store = MemoryStore()
        self._stored = stored
        self._of = Deduplication(columns, WITHIN)
        self.own = Deduplicator(self._of)
        # A filter and runs that one kind of kernels made, the other reads.
        self.take = alternating(self.take)  # type: ignore[method-assign]
        if stored:
            self._take_up()

    def _take_up(self) -> None:
        self.own = Deduplicator(self._of)
        self.own.keep_in_store(StoredPlace("stage 2", 0, 4))
        self.own.restore(self.store)

    def take(self, *elements: tuple[Any, int]) -> list[bool]:
        """Return which (id, time) are kept; several columns come as tuples."""
        several = len(self._of.columns) > 1
        rows = [id if several else (id,) for id, _ in elements]
        columns = [_column(list(values)) for values in zip(*rows, strict=True)]
        times = np.array([at for _, at in elements], dtype=np.int64)
        return self.own.step(tuple(columns), times).tolist()

    def reborn(self) -> None:
        if self._stored:
            self.save()
            self._take_up()

    def save(self) -> None:
        batch = Batch()
        self.own.save(batch)
        self.store.commit(batch)

    def rows(self) -> int:
        return len(list(self.store.scan(*prefix_range(IDS))))


def _column(values: list[Any]) -> Column:
    if set(map(type, values)) <= {int} and max(values) < 2**63:
        return Column(np.array(values, dtype=np.int64))
    if set(map(type, values)) <= {str}:
        return Column.from_arrow(pa.array(values, pa.string()))
    return Column.of_objects(values)


Make: TypeAlias = Callable[..., Driven]


@pytest.fixture(params=["memory", "store"])
def make(request: pytest.FixtureRequest) -> Make:
    return lambda **options: Driven(stored=request.param == "store", **options)


def test_the_first_is_kept(make: Make) -> None:
    """S-D1: within a bundle, and from one to the next."""
    driven = make()
    assert driven.take((1, 5), (2, 5), (1, 5), (1, 9)) == [True, True, False, False]
    assert driven.take((2, 0), (3, 0)) == [False, True]


def test_an_id_is_remembered_until_the_watermark_reaches_its_time_and_within(make: Make) -> None:
    """S-D1: the time of the first record counts, not that of its copies."""
    driven = make()
    assert driven.take(("a", 5)) == [True]
    driven.own.advance(14)
    assert driven.take(("a", 900)) == [False]
    driven.own.advance(15)
    assert driven.take(("a", 20), ("a", 20)) == [True, False]


def test_what_is_too_late_is_kept_and_not_remembered(make: Make) -> None:
    driven = make()
    driven.own.advance(100)
    assert driven.take(("a", 90), ("a", 90), ("a", 91), ("a", 90)) == [True, True, True, False]
    assert driven.take(("a", 90)) == [False]


def test_watermarks_do_not_go_back(make: Make) -> None:
    driven = make()
    driven.take((1, 5))
    driven.own.advance(15)
    driven.own.advance(3)
    assert driven.own.watermark == 15
    assert driven.take((1, 6)) == [True]


def test_before_the_first_watermark_times_may_be_far_apart(make: Make) -> None:
    """S-D1: in one bundle, and in a later one long before it; until then nothing is forgotten."""
    driven = make()
    first = [(at, at * WITHIN) for at in range(9)]
    then = [(100 + at, -at * WITHIN) for at in (0, 30, 900)]
    for bundle in (first, then):
        assert driven.take(*bundle) == [True] * len(bundle)
        driven.reborn()
        assert driven.take(*bundle) == [False] * len(bundle)
    assert driven.take(*first) == [False] * len(first)
    driven.own.advance(4 * WITHIN)
    assert driven.take(*((id, 5 * WITHIN) for id, _ in first)) == [True] * 4 + [False] * 5


def test_times_at_the_ends_of_time(make: Make) -> None:
    driven = make()
    late, early = END_OF_TIME - 3, START_OF_TIME + 3
    assert driven.take((1, late), (2, early), (1, late), (2, early)) == [True, True, False, False]
    driven.own.advance(END_OF_TIME - 1)
    assert driven.take((1, late), (2, early)) == [False, True]
    driven.own.advance(END_OF_TIME)
    assert len(driven.own) == 0


def test_several_columns_make_one_id(make: Make) -> None:
    driven = make(columns=("a", "b"))
    assert driven.take((("x", 1), 0), (("x", 2), 0), (("y", 1), 0)) == [True, True, True]
    assert driven.take((("y", 2), 0), (("x", 2), 0)) == [True, False]
    driven.reborn()
    assert driven.take((("y", 2), 0), (("z", 2), 0)) == [False, True]


def test_ids_that_are_equal_in_python_are_one(make: Make) -> None:
    driven = make()
    assert driven.take((1, 0), (2, 0)) == [True, True]
    assert driven.take((1.0, 0), (True, 0), (Decimal(2), 0), ("1", 0)) == [False] * 3 + [True]
    assert driven.take((b"1", 0), (1.5, 0), (Decimal("1.50"), 0)) == [True, True, False]
    big = 2**70
    assert driven.take((big, 0), (float(big), 0), (-0.0, 0), (0, 0)) == [True, False, True, False]
    assert driven.take((float("inf"), 0), (float("-inf"), 0)) == [True, True]
    noon = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)
    there = noon.astimezone(dt.timezone(dt.timedelta(hours=2)))
    assert driven.take((noon, 0), (there, 0), (noon.date(), 0)) == [True, False, True]
    clock = dt.time(2, 30)
    same = clock.replace(fold=1), clock.replace(tzinfo=ZoneInfo("Europe/Amsterdam"))
    assert driven.take((clock, 0), *((each, 0) for each in same)) == [True, False, False]
    assert driven.take((clock.replace(tzinfo=dt.UTC), 0)) == [True]
    night = dt.datetime.combine(noon.date(), clock)
    assert driven.take((night, 0), (night.replace(fold=1), 0)) == [True, False]


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["a", "b"]),
        pa.array(["a", "b"], pa.large_string()),
        pa.array(["a", "b"]).dictionary_encode(),
        pa.array([b"a", b"b"]),
        pa.array([1, 2], pa.int8()),
        pa.array([1, 2**64 - 1], pa.uint64()),
        pa.array([1.5, 2.0], pa.float32()),
        pa.array([True, False]),
        pa.array([1, 2], pa.date32()),
        pa.array([1, 2], pa.date32()).cast(pa.date64()),
        pa.array([1, 2], pa.time64("us")),
        pa.array([1, 2], pa.duration("ms")),
        pa.array([-1, 2], pa.timestamp("ns")),
        pa.array([-1, 2], pa.timestamp("s", "Europe/Vienna")),
        pa.array([Decimal("1.5"), Decimal("2")]),
    ],
    ids=lambda values: str(values.type),
)
def test_columns_of_any_type(make: Make, values: pa.Array) -> None:
    driven = make()
    column = Column.from_arrow(values)
    times = np.zeros(2, dtype=np.int64)
    assert driven.own.step((column,), times).tolist() == [True, True]
    driven.reborn()
    assert driven.own.step((Column.from_arrow(values[1:]),), times[1:]).tolist() == [False]


def test_units_do_not_matter_to_stored_ids() -> None:
    for kinds in (
        [pa.timestamp("s"), pa.timestamp("ns")],
        [pa.duration("ms"), pa.duration("us")],
        [pa.date32(), pa.date64()],
    ):
        one = pa.array([86_400], pa.int64())
        if pa.types.is_date(kinds[0]):
            one = pa.array([1], pa.int32())
        plain = one.cast(kinds[0])
        assert id_bytes((Column.from_arrow(plain),)) == id_bytes(
            (Column.from_arrow(plain.cast(kinds[1])),)
        )


def test_parts_of_an_id_do_not_run_together() -> None:
    def joined(*parts: str) -> bytes:
        (made,) = id_bytes(tuple(_column([part]) for part in parts))
        return made

    assert joined("a", "bc") != joined("ab", "c")


# What is left of ids


def test_memory_is_given_back(make: Make) -> None:
    """S-D1: never much more than what is remembered is held, and in the end nothing."""
    driven = make()
    for turn in range(300):
        at = 10 * turn
        driven.take(*((f"{turn}-{n}", at + n % 10) for n in range(50)))
        driven.own.advance(at)
        # Remembered are the ids of the last 20 microseconds: 100.
        assert len(driven.own) <= 300
        if turn % 7 == 0:
            driven.reborn()
            assert driven.rows() <= 300
    driven.own.advance(END_OF_TIME)
    assert len(driven.own) == 0
    driven.reborn()
    assert driven.rows() == 0


def test_after_a_burst_memory_is_given_back(make: Make) -> None:
    driven = make()
    driven.take(*((n, 0) for n in range(5000)))
    driven.take((-1, 8), (-2, 1_000_000))
    for watermark in range(21):
        driven.own.advance(watermark)
    assert len(driven.own) <= 2
    assert driven.take((-1, 0), (-2, 0)) == [True, False]


def test_ids_far_apart_in_time_are_in_few_stretches() -> None:
    """However far event times lie apart, an id is looked for in few filters."""
    driven = Driven(stored=True)
    for n in range(2000):
        driven.take((n, n * 1000 * WITHIN))
    stored = driven.own._stored
    assert stored is not None
    assert len(stored._stretches) < 40
    driven.own.advance(1000 * 1000 * WITHIN)
    driven.reborn()
    assert driven.take((500, 0), (1500, 0)) == [True, False]
    driven.own.advance(END_OF_TIME)
    assert len(driven.own) == 0


def test_ids_that_come_and_expire_between_commits_are_never_written() -> None:
    driven = Driven(stored=True)
    driven.take((1, 0), (2, 50))
    driven.own.advance(20)
    driven.save()
    assert driven.rows() == 1


def test_a_commit_writes_only_what_changed() -> None:
    driven = Driven(stored=True)
    driven.take(*((n, 0) for n in range(1000)))
    driven.save()
    driven.take((1000, 0), (1, 0))
    batch = Batch()
    driven.own.save(batch)
    assert batch.size_bytes < 200


# Filters


def test_a_new_id_is_mostly_not_looked_up() -> None:
    driven = Driven(stored=True)
    stored = driven.own._stored
    assert stored is not None
    for first in range(0, 50_000, 5000):
        assert all(driven.take(*((n, 0) for n in range(first, first + 5000))))
        driven.save()
    assert stored.look_ups < 50_000 * 0.03
    assert stored.size_bytes < 50_000 * 6
    before = stored.look_ups
    assert not any(driven.take(*((n, 0) for n in range(5000))))
    assert stored.look_ups - before < 5000 * 1.1


def test_a_false_positive_costs_a_look_up_and_never_a_record() -> None:
    with mock.patch.object(id_columns, "BITS_PER_ID", 0.1):
        driven = Driven(stored=True)
        for first in range(0, 1000, 100):
            assert all(driven.take(*((n, 0) for n in range(first, first + 100))))
            driven.save()
        stored = driven.own._stored
        assert stored is not None
        assert stored.look_ups > 100


def test_damage_is_told() -> None:
    page = IDS + b"\0" * 17
    _, (whole,) = IdRun(IdColumns.of([b"a", b"bc"]), np.zeros(2, dtype=np.int64)).pages()
    for key, value in (
        (IDS + b"\0" * 9 + b"id", whole),
        (IDS + b"\0", bytes(8)),
        (page, b"no"),
        (page, b"short"),
        (page, bytes(4)),
        (page, whole[:-1]),
        (page, whole + b"x"),
    ):
        driven = Driven(stored=True)
        batch = Batch()
        batch.put([key], [value])
        driven.store.commit(batch)
        with pytest.raises(lw.StateError, match="record id"):
            driven.reborn()


# Against a dictionary

_TIMES = st.integers(-30, 60)
_ID = st.integers(0, 6)
_KINDS: dict[str, Callable[[int], Any]] = {
    "ints": lambda n: n,
    "text": lambda n: f"id{n}",
    "mixed": lambda n: [0, 1.5, "x", b"x", 2**70, dt.date(2024, 1, 1), (1, "y")][n],
}
_STEPS = st.lists(
    st.one_of(
        st.lists(st.tuples(_ID, _TIMES), min_size=1, max_size=8),
        st.integers(-30, 80),
        st.just("restore"),
        st.just("save"),
    ),
    max_size=30,
)


@given(_STEPS, st.booleans(), st.sampled_from(sorted(_KINDS)), st.sampled_from([12, 0.01]))
@examples(5)
def test_as_a_dictionary_would(steps: list[Any], stored: bool, kind: str, rate: float) -> None:
    """S-D1, at any watermark, cut into bundles and restored anyhow."""
    value = _KINDS[kind]
    with mock.patch.object(id_columns, "BITS_PER_ID", rate):
        driven = Driven(stored=stored)
        known: dict[int, int] = {}
        watermark = START_OF_TIME
        for step in steps:
            if step == "restore":
                driven.reborn()
            elif step == "save":
                driven.save() if stored else None
            elif isinstance(step, int):
                watermark = max(watermark, step)
                driven.own.advance(step)
            else:
                wanted = []
                for id, at in step:
                    wanted.append(known.get(id, START_OF_TIME) <= watermark)
                    if wanted[-1] and at + WITHIN > watermark:
                        known[id] = at + WITHIN
                assert driven.take(*((value(id), at) for id, at in step)) == wanted
            if driven.own._stored is not None:
                driven.own._stored._check()
        driven.own.advance(END_OF_TIME)
        driven.reborn()
        assert len(driven.own) == 0
        assert driven.rows() == 0


_COMMITS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 400), min_size=1, max_size=25),
        st.integers(0, 2),
        st.sampled_from(["save", "save", "save", "restore", "go on"]),
    ),
    min_size=20,
    max_size=60,
)


@given(_COMMITS, st.booleans(), st.sampled_from(["ints", "text"]))
@examples(2)
def test_many_small_commits(commits: list[Any], collide: bool, kind: str) -> None:
    """Runs are merged, and ids are told apart whatever their hashes are."""
    value = _KINDS[kind]
    real = xxh64.hash_bytes

    def few(*args: Any) -> Any:
        return real(*args) % np.uint64(5)

    with (
        mock.patch.object(id_columns, "hash_bytes", few if collide else real),
        mock.patch.object(id_runs, "PAGE", 4),
    ):
        driven = Driven(stored=True)
        known: dict[int, int] = {}
        watermark, most = START_OF_TIME, 0
        for at, (ids, step, then) in enumerate(commits):
            wanted = []
            for id in ids:
                wanted.append(known.get(id, START_OF_TIME) <= watermark)
                if wanted[-1] and at + WITHIN > watermark:
                    known[id] = at + WITHIN
            assert driven.take(*((value(id), at) for id in ids)) == wanted
            if step:
                watermark = max(watermark, at - 20 + step)
                driven.own.advance(watermark)
            if then == "restore":
                driven.reborn()
            elif then == "save":
                driven.save()
            stored = driven.own._stored
            assert stored is not None
            stored._check()
            most = max(most, *(len(one.runs) for one in stored._stretches.values()), 0)
        assert most <= 2 * id_set._MERGED


def test_runs_are_merged_and_keep_what_has_not_expired() -> None:
    driven = Driven(stored=True)
    for first in range(0, 300, 3):
        driven.take(*((n, 0) for n in range(first, first + 3)))
        driven.save()
    stored = driven.own._stored
    assert stored is not None
    (stretch,) = stored._stretches.values()
    assert len(stretch.runs) <= 2 * id_set._MERGED
    assert sum(map(len, stretch.runs)) == 300
    assert driven.rows() == len(stretch.runs)
    for _ in range(2):
        assert not any(driven.take(*((n, 5) for n in range(300))))
        driven.reborn()


def test_the_stored_form_of_a_page() -> None:
    """Ids are stored as they were: another layout would need a new version of the format."""
    ids, _ = IdColumns.of([b"a", b"bc", b"def", b"", b"ghij"]).sorted()
    run = IdRun(ids, np.arange(5, dtype=np.int64) - 2)
    with mock.patch.object(id_runs, "PAGE", 2):
        firsts, pages = run.pages()
    assert firsts.tolist() == ids.hashes[::2].tolist()
    for at, page in enumerate(pages):
        rows = range(2 * at, min(2 * at + 2, 5))
        assert page == b"".join(
            (
                len(rows).to_bytes(4, "little"),
                *(int(ids.hashes[row]).to_bytes(8, "little") for row in rows),
                *((row - 2).to_bytes(8, "little", signed=True) for row in rows),
                *(len(ids[row]).to_bytes(4, "little") for row in rows),
                *(ids[row] for row in rows),
            )
        )
        again = IdRun.from_bytes(page)
        assert [again.ids[n] for n in range(len(rows))] == [ids[row] for row in rows]


def test_a_page_that_is_gone_is_damage() -> None:
    driven = Driven(stored=True)
    driven.take((1, 0))
    driven.save()
    batch = Batch()
    batch.delete_range(*prefix_range(IDS))
    driven.store.commit(batch)
    with pytest.raises(lw.StateError, match="record id"):
        driven.take((1, 0))


# In a pipeline

TABLE = pa.table(
    {
        "t": pa.array([1, 2, 1, 4, 90, 1, 91], pa.int64()),
        "id": ["a", "b", "a", None, "c", "a", "c"],
        "k": ["x", "x", "x", "x", "x", "x", "x"],
        "v": [1, 2, 1, 4, 8, 1, 16],
    }
)


def summed(stream: lw.Stream) -> lw.Pipeline:
    return stream.key_by("k").window(lw.FixedWindows("50us")).aggregate(total=lw.sum("v"))


@pytest.mark.parametrize("bundle_size", [1, 2, 100])
def test_in_a_pipeline(bundle_size: int) -> None:
    """S-D1: duplicates are neither late nor errors."""
    stream = lw.from_arrow(TABLE, time="t", watermark=lw.BoundedDisorder("1us"))
    pipeline = summed(stream.deduplicate(id="id", within="1h"))
    result = pipeline.collect(bundle_size=bundle_size)
    assert [pane.value for pane in result.panes] == [3, 8]
    assert result.metrics.duplicates == 3
    assert result.metrics.events == 7
    assert [(e.reason, e.record["v"]) for e in result.errors] == [("null_id", 4)]
    assert result.late == []


def test_late_elements_are_the_right_ones() -> None:
    """Rows behind dropped duplicates keep their records."""
    table = pa.table(
        {
            "t": [200, 300, None, 300, 300, 1, 300, 2],
            "id": [*"abzbbcde"],
            "k": [*"xyzxyzxy"],
            "v": [0] * 8,
        }
    )
    stream = lw.from_arrow(table, time="t", watermark=lw.Ascending())
    result = summed(stream.deduplicate(id="id", within="10us")).collect(bundle_size=3)
    late = [(each.value["id"], each.time, each.key) for each in result.late]
    assert late == [("c", 1, "z"), ("e", 2, "y")]
    assert result.metrics.duplicates == 2


def test_duplicates_count_for_the_watermark() -> None:
    table = pa.table({"t": [1, 200, 2], "id": [1, 1, 2], "k": ["x"] * 3, "v": [1, 1, 1]})
    stream = lw.from_arrow(table, time="t", watermark=lw.Ascending())
    result = summed(stream.deduplicate(id="id", within="1h")).collect(bundle_size=1)
    assert [each.value["id"] for each in result.late] == [2]


def test_a_durable_run_finds_what_an_earlier_one_saw(tmp_path: Path) -> None:
    rows = TABLE.filter(pa.compute.is_valid(TABLE["id"]))
    for name in ("a", "b"):
        (tmp_path / "in").mkdir(exist_ok=True)
        pq.write_table(rows, tmp_path / "in" / f"{name}.parquet")

    def pipeline(within: str = "1h") -> Any:
        stream = lw.read_parquet(str(tmp_path / "in"), time="t", watermark=lw.BoundedDisorder("1s"))
        made = summed(stream.deduplicate(id="id", within=within))
        return made.write_to(JsonLinesFolder(str(tmp_path / "out")))

    options = {"state": tmp_path / "state", "commit_every": "bundle", "progress": False}
    run = pipeline().run

    class Stopped(Exception):
        pass

    def stop(metrics: Any) -> None:
        if metrics.bundles == 4:
            raise Stopped

    with pytest.raises(Stopped):
        run(**{**options, "progress": stop}, bundle_size=2)
    metrics = run(**options, bundle_size=2)
    assert metrics.duplicates == 9
    with pytest.raises(lw.StateError, match="deduplicate was"):
        pipeline("2h").run(**options, bundle_size=2)


def test_without_a_schema_ids_are_checked_as_they_come() -> None:
    items = [{"t": 1, "k": 1, "v": 1, "id": i} for i in (1, None, float("nan"), [1], 1, "1")]
    stream = lw.from_iterable(items, time="t").deduplicate(id="id", within="1h")
    result = summed(stream).collect()
    assert [e.reason for e in result.errors] == ["null_id", "null_id", "wrong_type"]
    assert result.metrics.duplicates == 1


def test_what_building_refuses() -> None:
    stream = lw.from_arrow(TABLE, time="t")
    once = stream.deduplicate(id=("id", "k"), within="1h")
    assert "deduplicate(id=('id', 'k'), within='1h') → key_by('k')" in repr(once.key_by("k"))
    with pytest.raises(lw.InvalidArgument, match="no column 'idd'"):
        stream.deduplicate(id="idd", within="1h")
    with pytest.raises(lw.InvalidArgument, match="longer than zero"):
        stream.deduplicate(id="id", within=0)
    for wrong in ((), ("id", "id"), 5, (1,)):
        with pytest.raises(lw.InvalidArgument, match="must name a column"):
            stream.deduplicate(id=wrong, within="1h")  # type: ignore[arg-type]
    with pytest.raises(lw.InvalidArgument, match="filter comes after deduplicate"):
        once.filter(lw.col("v") > 1)
    with pytest.raises(lw.InvalidArgument, match="deduplicate comes after deduplicate"):
        once.deduplicate(id="id", within="1h")
    nested = lw.from_arrow(pa.table({"t": [1], "id": [[1]], "k": [1], "v": [1]}), time="t")
    with pytest.raises(lw.InvalidArgument, match="the id column 'id' is list"):
        summed(nested.deduplicate(id="id", within="1h"))
    with pytest.raises(lw.InvalidArgument, match="before the records are keyed"):
        once.key_by("k").deduplicate(id="id", within="1h")  # type: ignore[attr-defined]


def test_a_deduplication_is_a_value() -> None:
    made = Deduplication("id", "90s")
    assert eval(repr(made)) == made == Deduplication(("id",), 90_000_000)
    assert hash(made) == hash(eval(repr(made)))


def test_nothing_else_is_written() -> None:
    driven = Driven(stored=True)
    driven.take((1, 0))
    driven.save()
    assert len(list(driven.store.scan(b"", END))) == 2
