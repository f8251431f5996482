"""``lookup`` adds the columns of a fixed table: against a dict, at size, over restarts (J-13)."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

import lowwater as lw
from lowwater.engine.records import lookup as room

KEYS = st.none() | st.integers(-3, 3) | st.sampled_from([2**53 + 1, 2**53, -(2**63)])
ODD = KEYS | st.sampled_from(["a", "", 1.0, 1.5, True, Decimal("2.0"), float("nan"), "é"])


def looked_up(values: list[Any], table: pa.Table, **options: Any) -> list[Any]:
    rows = [{"at": at, "n": at, "key": value} for at, value in enumerate(values)]
    stream = lw.from_iterable(rows, time="at").lookup(table, on={"key": "id"}, **options)
    return [(row["n"], row["name"]) for row in stream.collect().values()]


@given(st.lists(ODD, max_size=12), st.lists(KEYS, max_size=8, unique=True))
def test_it_finds_what_a_dict_finds(values: list[Any], ids: list[int | None]) -> None:
    names = [f"name {n}" for n in range(len(ids))]
    table = pa.table({"id": pa.array(ids, pa.int64()), "name": pa.array(names, pa.string())})
    known = {key: name for key, name in zip(ids, names, strict=True) if key is not None}
    wanted = [(at, known.get(value)) for at, value in enumerate(values)]
    assert looked_up(values, table) == wanted
    found = [each for each in wanted if each[1] is not None]
    assert looked_up(values, table, how="inner") == found


def test_keys_of_one_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "hash_keys", lambda keys: np.zeros(len(keys[0]), dtype=np.uint64))
    table = pa.table({"id": [3, 1, 2], "name": ["c", "a", "b"]})
    assert looked_up([1, 2, 3, 4, None], table) == [
        (0, "a"), (1, "b"), (2, "c"), (3, None), (4, None),
    ]  # fmt: skip
    twice = pa.table({"id": [3, 1, 3], "name": ["c", "a", "b"]})
    with pytest.raises(lw.InvalidArgument, match="several rows for the key"):
        looked_up([1], twice)


def test_a_value_that_cannot_be_a_key_is_equal_to_none() -> None:
    table = pa.table({"id": [1], "name": ["a"]})
    assert looked_up([[1], 1, {"a": 1}], table) == [(0, None), (1, "a"), (2, None)]


@pytest.mark.parametrize("bundle_size", [1_000, 100_000])
def test_several_columns_and_many_records(bundle_size: int) -> None:
    random = np.random.default_rng(1)
    count = 70_000
    shops, items = random.integers(0, 300, count), random.integers(0, 400, count)
    every = np.stack(np.meshgrid(np.arange(200), np.arange(350)), -1).reshape(-1, 2)
    random.shuffle(every)
    table = pa.table(
        {"shop": every[:, 0].astype("U8"), "item": every[:, 1], "price": every @ [1_000, 1]}
    )
    records = pa.table({"at": np.arange(count), "shop": shops.astype("U8"), "item": items})
    stream = lw.from_arrow(records, time="at").lookup(table, on=["shop", "item"])
    found = stream.to_arrow(bundle_size=bundle_size)
    prices = np.where((shops < 200) & (items < 350), shops * 1_000 + items, -1)
    assert found["price"].fill_null(-1).to_pylist() == prices.tolist()


def test_tables_of_other_libraries() -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    columns = {"id": [1, 2], "name": ["a", "b"]}
    for table in (
        pandas.DataFrame(columns),
        polars.DataFrame(columns),
        polars.LazyFrame(columns),
        pa.table(columns).to_batches()[0],
    ):
        assert looked_up([2, 3], table) == [(0, "b"), (1, None)]


def test_an_empty_table_and_no_records() -> None:
    table = pa.table({"id": pa.array([], pa.int64()), "name": pa.array([], pa.string())})
    assert looked_up([1, None], table) == [(0, None), (1, None)]
    assert looked_up([], pa.table({"id": [1], "name": ["a"]})) == []


def test_dictionaries_times_and_decimals() -> None:
    ids = pa.array(["a", "b", "a"]).dictionary_encode().take(pa.array([0, 1]))
    table = pa.table({"id": ids, "name": pa.array([Decimal("1.5"), None])})
    assert looked_up(["a", "b", "c"], table) == [(0, Decimal("1.5")), (1, None), (2, None)]
    days = pa.array([0, 86_400_000_000], pa.timestamp("us", "Europe/Oslo"))
    table = pa.table({"id": days, "name": ["first", "second"]})
    values = pa.array([86_400_000_000_000, 1], pa.timestamp("ns", "UTC"))
    records = pa.table({"at": [0, 1], "id": values})
    found = lw.from_arrow(records, time="at").lookup(table, on="id").to_arrow()
    assert found["name"].to_pylist() == ["second", None]


def test_the_step_can_be_sent_to_a_worker() -> None:
    table = pa.table({"id": [1, 2], "name": ["a", "b"]})
    fixed = lw.from_iterable([], time="at").lookup(table, on={"key": "id"})._flows[0].steps[0]
    again = pickle.loads(pickle.dumps(fixed))  # our own bytes
    assert repr(again) == repr(fixed)
    assert len(again.table) == 2


def stream() -> lw.Stream:
    columns = {"at": [0], "key": [1], "v": [2]}
    return lw.from_arrow(pa.table(columns), time="at")


NAMES = pa.table({"key": [1, 2], "name": ["a", "b"]})
REFUSED: dict[str, tuple[str, Callable[[], Any]]] = {
    "how": ("how='outer'", lambda: stream().lookup(NAMES, "key", how="outer")),  # type: ignore[arg-type]
    "reload": ("neither True nor False", lambda: stream().lookup(NAMES, "key", reload=1)),  # type: ignore[arg-type]
    "on": ("does not name columns", lambda: stream().lookup(NAMES, 3)),  # type: ignore[arg-type]
    "nothing": ("does not name columns", lambda: stream().lookup(NAMES, [])),
    "no column": ("'keys'", lambda: stream().lookup(NAMES, {"keys": "key"})),
    "no column there": ("'keys'", lambda: stream().lookup(NAMES, {"key": "keys"})),
    "no table": ("is not a table", lambda: stream().lookup({"key": [1]}, "key")),
    "a list as the key": ("cannot be a key", lambda: stream().lookup(
        pa.table({"key": [[1]], "name": ["a"]}), "key")),
    "a series": ("is not a table", lambda: stream().lookup(
        pytest.importorskip("polars").Series([1]), "key")),
    "keys alone": ("no columns beside", lambda: stream().lookup(NAMES.select(["key"]), "key")),
    "taken": ("column 'v' already", lambda: stream().lookup(
        pa.table({"key": [1], "v": [2]}), "key")),
    "twice": ("several rows for the key {'key': 1}", lambda: stream().lookup(
        pa.table({"key": [1, 1], "name": ["a", "b"]}), "key")),
    "retractions": ("may be retracted", lambda: stream().key_by("key").window(
        lw.FixedWindows("1m"), accumulation="retracting", allowed_lateness="1h").aggregate(
        n=lw.count()).lookup(NAMES, "key", reload=True)),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    text, build = REFUSED[name]
    with pytest.raises(lw.InvalidArgument, match=text) as caught:
        build()
    assert caught.value.hint


def test_a_column_that_turns_out_to_be_there() -> None:
    rows = lw.from_iterable(iter([{"at": 0, "key": 1, "name": "x"}]), time="at").map(dict)
    with pytest.raises(lw.InvalidArgument, match="column 'name' already"):
        rows.lookup(NAMES, "key").collect()


def test_a_durable_run_belongs_to_the_content(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()

    def run(number: int, table: pa.Table, **options: Any) -> list[Any]:
        at = pa.array([number], pa.timestamp("s", "UTC"))
        pq.write_table(pa.table({"at": at, "key": [1]}), tmp_path / "in" / f"{number}.parquet")
        events = lw.read_parquet(str(tmp_path / "in" / "*.parquet"), time="at")
        named = events.lookup(table, "key", **options)
        named.write_parquet(tmp_path / "out").run(state=tmp_path / "state", until="available")
        return sorted(pq.read_table(tmp_path / "out")["name"].to_pylist())

    assert run(0, NAMES) == ["a"]
    shuffled = pa.concat_tables([NAMES.slice(1), NAMES.slice(0, 1)])
    assert run(1, shuffled) == ["a", "a"]
    other = pa.table({"key": [1, 2], "name": ["z", "b"]})
    with pytest.raises(lw.StateError, match="a table of lookup has other content"):
        run(2, other)
    assert run(3, other, reload=True) == ["a", "a", "z", "z"]


def test_text_and_names() -> None:
    named = stream().lookup(NAMES, "key", how="inner")
    assert "lookup(name, on='key', how='inner')" in repr(named)
    assert named.columns == ("at", "key", "v", "name")


def test_types_that_arrow_cannot_take_rows_of() -> None:
    names = pa.chunked_array([pa.array(["a", "b"], pa.string_view())])
    assert looked_up([2], pa.table({"id": [1, 2], "name": names})) == [(0, "b")]
    names = pa.chunked_array([pa.compute.run_end_encode(pa.array(["a", "a"]))])
    assert looked_up([2], pa.table({"id": [1, 2], "name": names})) == [(0, "a")]


def test_one_of_two_tables_is_reloaded(tmp_path: Path) -> None:
    at = pa.array([0], pa.timestamp("s", "UTC"))
    pq.write_table(pa.table({"at": at, "key": [1]}), tmp_path / "in.parquet")
    other = NAMES.rename_columns(["key", "other"])
    for reload in (False, True):
        events = lw.read_parquet(str(tmp_path / "in.parquet"), time="at")
        named = events.lookup(NAMES, "key").lookup(other, "key", reload=reload)
        named.write_parquet(tmp_path / "out").run(state=tmp_path / "state", until="available")
    assert pq.read_table(tmp_path / "out").num_rows == 1
