"""Both state stores keep what the Protocol promises, and equal a plain dict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater.errors import InvalidArgument, StateError
from lowwater.state import key_layout as layout
from lowwater.state.memory import MemoryContents, MemoryStore
from lowwater.state.rocks import RocksStore, Tuning
from lowwater.state.store import Batch, Delete, DeleteRange, Put, StateStore
from lowwater.testing.conformance import check_state_store, everything, put

Change = Put | Delete | DeleteRange
# Few bytes and short keys: so that keys meet again, and begin with one another.
KEYS = st.lists(st.sampled_from([0, 1, 0x7F, 0x80, 0xFE]), max_size=3).map(bytes)
VALUES = st.binary(max_size=20)
ROWS = st.lists(st.tuples(KEYS, VALUES), max_size=5)
PUTS = ROWS.map(lambda rows: Put([key for key, _ in rows], [value for _, value in rows]))
CHANGES = st.one_of(
    PUTS,
    st.lists(KEYS, max_size=4).map(Delete),
    st.tuples(KEYS, KEYS).map(lambda ends: DeleteRange(*ends)),
)
COMMITS = st.lists(st.lists(CHANGES, max_size=4), max_size=4)


def memory_stores() -> Callable[[str], StateStore]:
    held: dict[str, MemoryContents] = defaultdict(MemoryContents)
    return lambda name: MemoryStore(held[name])


def rocks_stores(directory: Path) -> Callable[[str], StateStore]:
    # The smallest memtable there is: so that rows come from tables, too, and are compacted.
    tuning = Tuning(memtable_bytes=64 << 10)
    return lambda name: RocksStore(directory / name, tuning=tuning)


def test_the_memory_store_conforms() -> None:
    check_state_store(memory_stores())


def test_the_rocks_store_conforms(tmp_path: Path) -> None:
    check_state_store(rocks_stores(tmp_path))


def test_a_store_that_breaks_a_promise_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    right = MemoryStore.scan

    def inclusive(self: MemoryStore, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        return right(self, start, stop + b"\0")

    monkeypatch.setattr(MemoryStore, "scan", inclusive)
    with pytest.raises(AssertionError, match="includes start and excludes stop"):
        check_state_store(memory_stores())


def batch_of(changes: list[Change]) -> Batch:
    batch = Batch()
    for change in changes:
        match change:
            case Put(keys, values):
                batch.put(keys, values)
            case Delete(keys):
                batch.delete(keys)
            case DeleteRange(start, stop):
                batch.delete_range(start, stop)
    return batch


def change_model(model: dict[bytes, bytes], changes: list[Change]) -> None:
    for change in changes:
        match change:
            case Put(keys, values):
                model.update(zip(keys, values, strict=True))
            case Delete(keys):
                for key in keys:
                    model.pop(key, None)
            case DeleteRange(start, stop):
                for key in [key for key in model if start <= key < stop]:
                    del model[key]


def check_against_a_dict(
    make_store: Callable[[str], StateStore], commits: list[list[Change]], start: bytes, stop: bytes
) -> None:
    model: dict[bytes, bytes] = {}
    store = make_store("model")
    for number, changes in enumerate(commits):
        store.commit(batch_of(changes))
        change_model(model, changes)
        expected = sorted(model.items())
        assert everything(store) == expected
        assert list(store.scan(start, stop)) == [r for r in expected if start <= r[0] < stop]
        asked = [start, *model, stop]
        assert store.get(asked) == [model.get(key) for key in asked]
        if number % 2:
            store.close()
            store = make_store("model")
            assert everything(store) == expected
    store.close()


@given(COMMITS, KEYS, KEYS)
def test_the_memory_store_is_a_dict(commits: list[list[Change]], start: bytes, stop: bytes) -> None:
    check_against_a_dict(memory_stores(), commits, start, stop)


@pytest.mark.slow(reason="faults of a disk at every write")
@given(COMMITS, KEYS, KEYS)
def test_the_rocks_store_is_a_dict(commits: list[list[Change]], start: bytes, stop: bytes) -> None:
    with TemporaryDirectory() as directory:
        check_against_a_dict(rocks_stores(Path(directory)), commits, start, stop)


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_int64_sorts_as_its_bytes(values: list[int]) -> None:
    encoded = layout.encode_int64(np.array(values, dtype=np.int64))
    assert encoded.shape == (len(values), 8)
    rows = [row.tobytes() for row in encoded]
    assert sorted(rows) == [rows[at] for at in sorted(range(len(rows)), key=values.__getitem__)]
    assert layout.decode_int64(encoded).tolist() == values


@given(st.binary(max_size=4), st.binary(max_size=6))
def test_a_prefix_range_holds_what_begins_with_it(prefix: bytes, key: bytes) -> None:
    start, stop = layout.prefix_range(prefix)
    if key < layout.END:
        assert (start <= key < stop) == key.startswith(prefix)


def test_what_expired_is_a_range() -> None:
    instants = np.array([-5, 3, 7, 2**62], dtype=np.int64)
    prefix = layout.table_prefix("stage 1", 2, 3)
    with MemoryStore() as store:
        batch = Batch()
        batch.put_columns(prefix, layout.encode_int64(instants), np.zeros((4, 1), dtype=np.uint8))
        batch.delete_range(*layout.below(prefix, 7))
        store.commit(batch)
        keys = np.array(
            [list(key[layout.HEAD_BYTES :]) for key, _ in everything(store)], dtype=np.uint8
        )
    assert layout.decode_int64(keys).tolist() == [7, 2**62]


@pytest.mark.parametrize("numbers", [(0x10000, 0), (-1, 0), (0, 256), (0, -1)])
def test_numbers_that_do_not_fit_a_key_are_refused(numbers: tuple[int, int]) -> None:
    with pytest.raises(InvalidArgument, match="must be from 0 to"):
        layout.table_prefix("stage 1", *numbers)


def test_a_batch_refuses_what_no_store_takes() -> None:
    batch = Batch()
    square = np.zeros((2, 2), dtype=np.uint8)
    with pytest.raises(InvalidArgument, match="1 keys do not go with 0 values"):
        batch.put([b"a"], [])
    with pytest.raises(InvalidArgument, match="values must be bytes, not str"):
        batch.put([b"a"], ["a"])  # type: ignore[list-item]
    with pytest.raises(InvalidArgument, match="2 keys do not go with 1 values"):
        batch.put_columns(b"", square, square[:1])
    with pytest.raises(InvalidArgument, match=r"keys must be uint8 of shape \(n, width\)"):
        batch.put_columns(b"", square[0], square)
    with pytest.raises(InvalidArgument, match="values must be uint8"):
        batch.put_columns(b"", square, square.astype(np.int64))
    edge = np.array([[0], [255]], dtype=np.uint8)
    refused: list[Callable[[], None]] = [
        lambda: batch.put([b"a", b"\xff\xff"], [b"", b""]),
        lambda: batch.delete([b"\xff\xff\x00"]),
        lambda: batch.delete_range(b"a", b"\xff\xff\x00"),
        lambda: batch.put_columns(b"\xff", edge, square),
    ]
    for change in refused:
        with pytest.raises(InvalidArgument, match="the store's own"):
            change()
    assert len(batch) == 0
    assert batch.size_bytes == 0


def test_columns_may_change_once_they_are_in_a_batch() -> None:
    keys, values = np.zeros((1, 1), dtype=np.uint8), np.zeros((1, 1), dtype=np.uint8)
    batch = Batch()
    batch.put_columns(b"", keys, values)
    keys[:], values[:] = 9, 9
    assert list(batch.changes()) == [Put([b"\0"], [b"\0"])]


def test_a_reader_looks_beside_the_owner(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="there is no state"):
        RocksStore(tmp_path / "none", read_only=True)
    assert not (tmp_path / "none").exists()
    with RocksStore(tmp_path / "s") as store:
        put(store, [(b"a", b"1")])
        with RocksStore(tmp_path / "s", read_only=True) as reader:
            put(store, [(b"b", b"2")])
            assert everything(reader) == [(b"a", b"1")]
            with pytest.raises(StateError, match="for reading only"):
                put(reader, [(b"c", b"3")])
        assert store.sequencer == 1
        assert store.last_commit == 3
        assert store.verify() == 2


def test_scans_keep_to_their_bounds_whatever_becomes_of_memory(tmp_path: Path) -> None:
    """The database's iterators keep a bare pointer to their bound: the store keeps it alive."""
    with RocksStore(tmp_path) as store:
        put(store, [(b"%04d" % n, b"") for n in range(2_000)])
        scans = [store.scan(b"%04d" % n, b"%04d" % (n + 700)) for n in range(0, 1_000, 10)]
        assert [sum(1 for _ in scan) for scan in scans] == [700] * 100


def test_ranges_deleted_by_the_thousand_go_to_a_table(tmp_path: Path) -> None:
    """Reads would slow down with the number of those in memory."""
    with RocksStore(tmp_path) as store:
        put(store, [(b"%04d" % n, b"") for n in range(3_000)])
        for part in range(0, 2_000, 500):
            batch = Batch()
            for n in range(part, part + 500):
                batch.delete_range(b"%04d" % n, b"%04d\xff" % n)
            store.commit(batch)
        assert [key for key, _ in everything(store)] == [b"%04d" % n for n in range(2_000, 3_000)]
        assert store.get([b"1999", b"2000"]) == [None, b""]


def test_rows_are_kept_as_they_are(tmp_path: Path) -> None:
    """No value is encoded, least of all as a pickle: the bytes of the log are the user's."""
    store = RocksStore(tmp_path)
    put(store, [(b"the key", b"the value that was put")])
    log = b"".join(path.read_bytes() for path in tmp_path.rglob("*.log"))
    store.close()
    assert b"the key\x16the value that was put" in log


def test_rows_deleted_by_columns() -> None:
    store = MemoryStore()
    keys = np.arange(6, dtype=np.uint8).reshape(3, 2)
    batch = Batch()
    batch.put_columns(b"k", keys, np.zeros((3, 1), dtype=np.uint8))
    batch.delete_columns(b"k", keys[1:])
    batch.delete_columns(b"k", np.zeros((0, 2), dtype=np.uint8))
    store.commit(batch)
    assert [key for key, _ in store.scan(b"", b"z")] == [b"k\x00\x01"]
