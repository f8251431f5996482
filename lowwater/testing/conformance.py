"""The conformance check for implementations of the state store protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from lowwater.errors import StateError
from lowwater.state.key_layout import END, HEAD_BYTES, group_range, prefix_range, table_prefix
from lowwater.state.store import Batch, StateStore

Rows = list[tuple[bytes, bytes]]
_ASCENDING = [
    b"",
    b"\0",
    b"\0\0",
    b"\0\xff",
    b"a",
    b"a\0",
    b"a\xff",
    b"b",
    b"\x7f",
    b"\x80",
    b"\xff",
]


def check_state_store(make_store: Callable[[str], StateStore]) -> None:
    """Check that a store fulfils :class:`~lowwater.state.store.StateStore`, except for durability.

    Durability, which means that a commit survives a killed process, cannot be checked from inside
    that process: test it yourself.

    Args:
        make_store: Opens the store of a given name: empty the first time, later with its contents.

    Raises:
        AssertionError: A check failed; the message names it.

    >>> from collections import defaultdict
    >>> from lowwater.state.memory import MemoryContents, MemoryStore
    >>> held = defaultdict(MemoryContents)
    >>> check_state_store(lambda name: MemoryStore(held[name]))
    """
    for check in (
        _starts_empty,
        _keeps_order,
        _gets_in_the_order_asked,
        _scans_half_open_ranges,
        _last_change_counts,
        _deletes_ranges,
        _writes_columns,
        _keeps_key_groups_apart,
        _holds_values_of_any_size,
        _refuses_keys_that_are_its_own,
        _changes_nothing_by_a_batch_that_is_empty,
        _scans_are_of_one_moment,
        _reopens_with_what_it_held,
        _is_closed_when_closed,
        _has_one_owner,
    ):
        check(make_store)


def put(store: StateStore, rows: Iterable[tuple[bytes, bytes]]) -> None:
    """Commit rows."""
    keys, values = [], []
    for key, value in rows:
        keys.append(key)
        values.append(value)
    batch = Batch()
    batch.put(keys, values)
    store.commit(batch)


def everything(store: StateStore) -> Rows:
    """Return all rows of a store."""
    return list(store.scan(b"", END))


def _starts_empty(make_store: Callable[[str], StateStore]) -> None:
    with make_store("empty") as store:
        assert everything(store) == [], "a new store must be empty"
        assert store.get([b"a", b""]) == [None, None], "get returns None for a missing key"
        assert store.get([]) == [], "get of no keys returns no values"


def _keeps_order(make_store: Callable[[str], StateStore]) -> None:
    with make_store("order") as store:
        put(store, [(key, key[::-1]) for key in reversed(_ASCENDING)])
        expected = [(key, key[::-1]) for key in sorted(_ASCENDING)]
        assert everything(store) == expected, "keys must sort as bytes do, unsigned"


def _gets_in_the_order_asked(make_store: Callable[[str], StateStore]) -> None:
    with make_store("get") as store:
        put(store, [(b"a", b"1"), (b"b", b"2"), (b"", b"3")])
        found = store.get([b"b", b"x", b"", b"b", b"a"])
        assert found == [b"2", None, b"3", b"2", b"1"], "get: one value per key, as asked"


def _scans_half_open_ranges(make_store: Callable[[str], StateStore]) -> None:
    with make_store("ranges") as store:
        rows = [(key, b"") for key in sorted(_ASCENDING)]
        put(store, rows)
        bounds = [*sorted(_ASCENDING), b"aa", b"\xfe", END]
        for start in bounds:
            for stop in bounds:
                expected = [row for row in rows if start <= row[0] < stop]
                found = list(store.scan(start, stop))
                assert found == expected, (
                    f"scan({start!r}, {stop!r}) includes start and excludes stop"
                )


def _last_change_counts(make_store: Callable[[str], StateStore]) -> None:
    with make_store("changes") as store:
        batch = Batch()
        batch.put([b"a", b"a", b"b", b"c"], [b"1", b"2", b"3", b"4"])
        batch.delete([b"b", b"not there"])
        batch.put([b"c"], [b"5"])
        batch.delete([b"d"])
        batch.put([b"d"], [b"6"])
        store.commit(batch)
        expected = [(b"a", b"2"), (b"c", b"5"), (b"d", b"6")]
        assert everything(store) == expected, "changes count in the order they were added"
        store.commit(batch)
        assert everything(store) == expected, "a batch may be committed again"


def _deletes_ranges(make_store: Callable[[str], StateStore]) -> None:
    with make_store("delete range") as store:
        put(store, [(bytes([n]), b"old") for n in range(10)])
        batch = Batch()
        batch.put([b"\x04\x01"], [b"goes too"])
        batch.delete_range(b"\x02", b"\x07")
        batch.put([b"\x03"], [b"new"])
        batch.delete_range(b"\x09", b"\x08")
        store.commit(batch)
        expected = [(bytes([n]), b"old") for n in (0, 1, 7, 8, 9)] + [(b"\x03", b"new")]
        assert everything(store) == sorted(expected), "a range is deleted in the order of the batch"
        assert store.get([b"\x02", b"\x06", b"\x07"]) == [None, None, b"old"], "half-open"
        put(store, [(b"\x05", b"again")])
        assert store.get([b"\x05"]) == [b"again"], "a later write is not deleted"


def _writes_columns(make_store: Callable[[str], StateStore]) -> None:
    with make_store("columns") as store:
        count = 20_000
        numbers = np.arange(count, dtype=">u4")
        keys = numbers.view(np.uint8).reshape(count, 4)
        values = np.repeat(keys[:, ::-1], 3, axis=1)
        batch = Batch()
        batch.put_columns(b"c", keys, values)
        batch.put_columns(b"v", numbers[:2].view("V4"), np.zeros((2, 0), dtype=np.uint8))
        assert batch.size_bytes == count * 17 + 10, "size_bytes counts keys and values"
        store.commit(batch)
        expected = [(b"c" + k.tobytes(), v.tobytes()) for k, v in zip(keys, values, strict=True)]
        expected += [(b"v\0\0\0\0", b""), (b"v\0\0\0\1", b"")]
        assert everything(store) == expected, "put_columns writes the same rows as put"
        again = np.array([[1, 0], [0, 9], [1, 0], [0, 9], [0, 0]], dtype=np.uint8)
        batch = Batch()
        batch.put_columns(b"", again, np.arange(5, dtype=np.uint8).reshape(5, 1))
        batch.put_columns(b"w", np.zeros((2, 0), dtype=np.uint8), again[:2])
        store.commit(batch)
        found = store.get([b"\1\0", b"\0\x09", b"\0\0", b"w"])
        assert found == [b"\2", b"\3", b"\4", b"\0\x09"], "the last of equal keys wins"


def _keeps_key_groups_apart(make_store: Callable[[str], StateStore]) -> None:
    with make_store("groups") as store:
        places = [(s, g, t) for s in ("a", "b", "c") for g in (0, 0xFF, 0xFFFF) for t in (0, 0xFF)]
        put(store, [(table_prefix(*place) + b"\xff\xff", b"") for place in places])
        batch = Batch()
        batch.delete_range(*group_range("b", 0xFF))
        batch.delete_range(*prefix_range(table_prefix("c", 0xFFFF, 0xFF)))
        store.commit(batch)
        left = [p for p in places if p[:2] != ("b", 0xFF) and p != ("c", 0xFFFF, 0xFF)]
        found = [key[:HEAD_BYTES] for key, _ in everything(store)]
        assert found == sorted(table_prefix(*place) for place in left), (
            "dropping a key group leaves the others"
        )


def _holds_values_of_any_size(make_store: Callable[[str], StateStore]) -> None:
    rows = [(b"0", b""), (b"1", b"\0" * 100_000), (b"2", bytes(range(256)) * 20_000)]
    rows += [(b"3" + bytes(range(256)) * 8, b"long key")]
    with make_store("sizes") as store:
        put(store, rows)
        assert store.get([b"0"]) == [b""], "an empty value is not None"
    with make_store("sizes") as store:
        assert everything(store) == rows, "values of 0 B to 5 MB, and long keys, are read back"


def _refuses_keys_that_are_its_own(make_store: Callable[[str], StateStore]) -> None:
    with make_store("own") as store:
        put(store, [(b"\xff\xfe\xff", b"")])
        assert list(store.scan(b"", b"\xff\xff\xff\xff")) == [(b"\xff\xfe\xff", b"")], (
            "stops at END"
        )
        _raises(ValueError, lambda: store.get([END]), "get of a key from END on")


def _changes_nothing_by_a_batch_that_is_empty(make_store: Callable[[str], StateStore]) -> None:
    with make_store("nothing") as store:
        put(store, [(b"a", b"1")])
        put(store, [])
        assert everything(store) == [(b"a", b"1")], "an empty batch changes nothing"


def _scans_are_of_one_moment(make_store: Callable[[str], StateStore]) -> None:
    with make_store("moment") as store:
        before = [(b"%04d" % n, b"x" * 100) for n in range(2_000)]
        put(store, before)
        first, untouched = store.scan(b"", END), store.scan(b"", END)
        seen = [next(first) for _ in range(3)]
        batch = Batch()
        batch.delete_range(b"", b"1500")
        batch.put([b"0500", b"1900", b"9"], [b"new", b"new", b"new"])
        store.commit(batch)
        seen.extend(first)
        assert seen == before, "a scan that has begun does not see later commits"
        assert list(untouched) == before, "nor does a scan that has not been read yet"
        assert len(everything(store)) == 502, "a new scan sees later commits"


def _reopens_with_what_it_held(make_store: Callable[[str], StateStore]) -> None:
    expected: Rows = []
    for n in range(3):
        with make_store("again") as store:
            assert everything(store) == expected, "a reopened store has what was committed"
            put(store, [(b"%d" % n, b"%d" % n)])
        expected.append((b"%d" % n, b"%d" % n))


def _is_closed_when_closed(make_store: Callable[[str], StateStore]) -> None:
    store = make_store("closed")
    put(store, [(b"%06d" % n, b"x" * 100) for n in range(20_000)])
    scan = store.scan(b"", END)
    next(scan)
    store.close()
    store.close()
    for use in (lambda: store.get([b"a"]), lambda: store.scan(b"", END), lambda: put(store, [])):
        _raises(StateError, use, "use of a closed store")
    try:
        rest = sum(1 for _ in scan)
    except StateError:
        pass
    else:
        assert rest == 19_999, "after close a scan continues or raises: it must not end early"
    with make_store("closed") as again:
        assert len(everything(again)) == 20_000, "close releases the store, even with open scans"


def _has_one_owner(make_store: Callable[[str], StateStore]) -> None:
    with make_store("owner") as former:
        put(former, [(b"a", b"former")])
        try:
            latter = make_store("owner")
        except StateError:
            put(former, [(b"b", b"former")])
            assert len(everything(former)) == 2, "a refused opener must not disturb the owner"
            return
        with latter:
            put(latter, [(b"a", b"latter")])
            _raises(
                StateError, lambda: put(former, [(b"a", b"zombie")]), "a commit of a fenced owner"
            )
            assert everything(latter) == [(b"a", b"latter")], "a refused commit changes nothing"


def _raises(error: type[Exception], use: Callable[[], object], what: str) -> None:
    try:
        use()
    except error:
        return
    raise AssertionError(f"{what} must raise {error.__name__}")
