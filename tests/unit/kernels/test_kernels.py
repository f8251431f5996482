"""The compiled kernels give what the reference gives, to the bit."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import lowwater as lw
import lowwater.kernels
from lowwater.errors import InvalidArgument, PipelineWarning
from lowwater.kernels import BUNDLE_COUNTS, Kernels, count_bundle, plain
from lowwater.kernels.plain import CLAIMED, DELETED, EMPTY
from lowwater.state.xxh64 import hash_bytes
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array
from tests.kernels import KINDS, compiled, using

SEEDS = st.integers(0, 2**32 - 1)
# Few values, so that they repeat; the ends of time, and powers of two.
SPECIAL = (0, 1, 2, -1, 1 << 32, 1 << 48, 1 << 62, START_OF_TIME, END_OF_TIME)
SIZES = st.sampled_from([1, 2, 7, 255, 256, 257, 900])


def tuples(random: np.random.Generator, width: int, size: int, spread: int) -> list[Int64Array]:
    """Return columns of values: some special ones, some from a range."""
    chosen = [random.choice(np.array(SPECIAL), size), random.integers(0, spread, size)]
    return [
        np.where(random.random(size) < 0.3, *(random.permutation(c) for c in chosen))
        for _ in range(width)
    ]


def ints(random: np.random.Generator, size: int, below: int) -> Int64Array:
    return random.integers(0, below, size)


@given(SEEDS, st.integers(1, 5), SIZES)
def test_hashes(seed: int, width: int, size: int) -> None:
    columns = tuples(np.random.default_rng(seed), width, size, 50)
    assert plain.mixed(columns).tolist() == compiled.mixed(columns).tolist()
    assert compiled.mixed([c[::2] for c in columns]).tolist() == (
        plain.mixed([c[::2] for c in columns]).tolist()
    )


@given(SEEDS, st.integers(1, 4), st.lists(SIZES, min_size=1, max_size=4))
def test_an_index_filled_and_emptied_by_either_is_read_by_both(
    seed: int, width: int, sizes: list[int]
) -> None:
    random = np.random.default_rng(seed)
    room = 4_096
    slots = np.full(room, EMPTY, dtype=np.int32)
    columns: list[Int64Array] = [np.zeros(room, dtype=np.int64) for _ in range(width)]
    model: dict[tuple[int, ...], int] = {}
    slot_of: dict[int, int] = {}
    top = 0
    for size in sizes:
        values = tuples(random, width, min(size, 500), 400)
        given_ = list(zip(*(v.tolist() for v in values), strict=True))
        wanted = [model.get(each, EMPTY) for each in given_]
        for kind in KINDS:
            assert kind.find(slots, columns, values).tolist() == wanted
        chosen = KINDS[int(random.integers(2))]
        rows, missing, which, first, slot = chosen.find_or_claim(slots, columns, values)
        fresh = list(dict.fromkeys(each for each in given_ if each not in model))
        assert sorted(given_[at] for at in first.tolist()) == sorted(fresh)
        assert (slots[slot] <= CLAIMED).all()
        assert len({*slot.tolist()}) == len(first) == np.count_nonzero(slots <= CLAIMED)
        new = np.arange(top, top + len(first))
        top += len(first)
        slots[slot] = new.astype(np.int32)
        for column, value in zip(columns, values, strict=True):
            column[new] = value[first]
        model |= {given_[at]: row for at, row in zip(first.tolist(), new.tolist(), strict=True)}
        slot_of |= dict(zip(new.tolist(), slot.tolist(), strict=True))
        assert missing.tolist() == [at for at, row in enumerate(wanted) if row == EMPTY]
        rows[missing] = new[which]
        assert rows.tolist() == [model[each] for each in given_]
        for each in [key for key in model if random.random() < 0.4]:
            slots[slot_of.pop(model.pop(each))] = DELETED


@given(SEEDS, st.integers(1, 4), st.sampled_from([1, 3, 300]))
def test_placing_rows(seed: int, width: int, size: int) -> None:
    random = np.random.default_rng(seed)
    drawn = tuples(random, width, size, 10_000)
    distinct = sorted({*zip(*(c.tolist() for c in drawn), strict=True)})
    columns = [np.array(c) for c in zip(*distinct, strict=True)]
    rows = random.permutation(len(distinct))
    for kind in KINDS:
        slots = np.full(1_024, EMPTY, dtype=np.int32)
        slot = kind.place(slots, columns, rows)
        assert slots[slot].tolist() == rows.tolist()
        assert np.count_nonzero(slots != EMPTY) == len(rows)
        for other in KINDS:
            assert other.find(slots, columns, [c[rows] for c in columns]).tolist() == rows.tolist()


@given(SEEDS, st.lists(SIZES, min_size=1, max_size=4))
def test_distinct_rows(seed: int, sizes: list[int]) -> None:
    random = np.random.default_rng(seed)
    stamps = [random.integers(-(2**62), 2**62, 64) for _ in KINDS]  # whatever was there
    for size in sizes:
        rows = ints(random, size, 64)
        found = [kind.unique(stamp, rows) for kind, stamp in zip(KINDS, stamps, strict=True)]
        for distinct, place in found:
            assert distinct.tolist() == list(dict.fromkeys(rows.tolist()))
            assert distinct[place].tolist() == rows.tolist()


@given(SEEDS, st.sampled_from([0, *range(1, 4), 300, 2_000]), st.integers(0, 63), st.booleans())
def test_sorting_is_stable(seed: int, size: int, bits: int, sorted_already: bool) -> None:
    random = np.random.default_rng(seed)
    low = random.integers(-(2**63), 2**63 - 2**bits)
    values = low + random.integers(0, 2**bits, size)
    if sorted_already:
        values.sort()
    wanted = sorted(range(size), key=values.tolist().__getitem__)
    for kind in KINDS:
        before = values.copy()
        assert kind.argsort(values).tolist() == wanted
        turned = np.argsort(values[::-1], kind="stable")
        assert kind.argsort(values[::-1]).tolist() == turned.tolist()
        assert (values == before).all()


FLOATS = np.array([0.0, -0.0, 1.5, -2.5, np.nan, np.inf, -np.inf, 1e308, 5e-324])


def drawn(random: np.random.Generator, dtype: str, size: int) -> NDArray[Any]:
    if dtype == "float64":
        return random.choice(FLOATS, size)
    if dtype == "int64":
        return random.choice(np.array([*SPECIAL, -(2**63), 2**63 - 1]), size)
    return random.integers(-1, 2, size).astype(dtype)


@pytest.mark.parametrize("dtypes", ["int64 int64", "float64 float64", "int64 int8", "int64 bool"])
@pytest.mark.parametrize("what", ["add_at", "max_at", "min_at"])
@given(SEEDS, SIZES)
def test_accumulation_is_equal_to_the_bit(what: str, dtypes: str, seed: int, size: int) -> None:
    target, of = dtypes.split()
    random = np.random.default_rng(seed)
    before = drawn(random, target, 8)
    rows, values = ints(random, 2 * size, 8)[::2], drawn(random, of, 2 * size)[::2]
    after = []
    for kind in KINDS:
        held = before.copy()
        # Sums say to their callers that they overflow; NaN as an extreme is no reason to warn.
        with np.errstate(all="ignore") if what == "add_at" else nullcontext():
            getattr(kind, what)(held, rows, values)
        after.append(held.view(np.int64).tolist())
    # All NaN are one value: which bits one has is not defined.
    if target == "float64":
        after = [[repr(x) for x in np.array(each).view(np.float64)] for each in after]
    assert after[0] == after[1]


@pytest.mark.parametrize("dtype", ["int64", "int32", "float64"])
@pytest.mark.parametrize("step", [1, -1])
def test_counting(dtype: str, step: int) -> None:
    rows = np.array([3, 1, 3, 3])
    for kind in KINDS:
        held = np.zeros(5, dtype=dtype)
        kind.add_at(held, rows, step)
        assert held.tolist() == [0, step, 0, 3 * step, 0]


@pytest.mark.parametrize("dtype", ["int64", "float64"])
@pytest.mark.parametrize("what", ["add_at", "max_at", "min_at"])
@pytest.mark.parametrize("kind", KINDS, ids=["plain", "compiled"])
def test_one_value_is_for_all_rows_and_other_numbers_are_refused(
    kind: Kernels, what: str, dtype: str
) -> None:
    rows = np.array([3, 1, 3, 3])
    for one in (np.array(5, dtype), np.array([5], dtype)):
        held, wanted = np.zeros(5, dtype), np.zeros(5, dtype)
        getattr(kind, what)(held, rows, one)
        getattr(kind, what)(wanted, rows, np.full(4, 5, dtype))
        assert held.tolist() == wanted.tolist()
    for size in (0, 2, 3, 5):
        with pytest.raises(ValueError, match="broadcast"):
            getattr(kind, what)(np.zeros(5, dtype), rows, np.ones(size, dtype))


@given(SEEDS, SIZES, st.booleans())
def test_merging_intervals(seed: int, size: int, touching: bool) -> None:
    random = np.random.default_rng(seed)
    keys, start = ints(random, size, 3), ints(random, size, 4 * size)
    order = np.lexsort((start, keys))
    keys, start = keys[order], start[order]
    end = start + 1 + ints(random, size, 9)
    one, other = (kind.merge_overlapping(keys, start, end, touching) for kind in KINDS)
    for each, twin in zip(one, other, strict=True):
        assert each.tolist() == twin.tolist()


@given(SEEDS, st.lists(st.integers(0, 9), min_size=2, max_size=40), st.booleans())
def test_searching_segments(seed: int, counts: list[int], or_equal: bool) -> None:
    random = np.random.default_rng(seed)
    count = np.array(counts)
    at = np.cumsum(count) - count
    column = ints(random, int(count.sum()) + 1, 12)
    parts = np.split(random.permutation(int(count.sum())), np.cumsum(count)[:-1])
    pool = np.concatenate([part[np.argsort(column[part], kind="stable")] for part in parts])
    pool = pool.astype(np.int64)
    bound = ints(random, len(count), 14)
    for kind in KINDS:
        below = kind.count_below(pool, at, count, column, bound, or_equal)
        wanted = [
            int(np.count_nonzero((column[p] <= b) if or_equal else (column[p] < b)))
            for p, b in zip(parts, bound.tolist(), strict=True)
        ]
        assert below.tolist() == wanted


Spans = list[tuple[int, int, int]]


def merged_one_by_one(spans: Spans, touching: bool) -> Spans:
    """Return the (key, start, end) that intervals merge into."""
    merged: Spans = []
    for key, start, end in sorted(spans):
        if merged and merged[-1][0] == key and start < merged[-1][2] + touching:
            merged[-1] = key, merged[-1][1], max(end, merged[-1][2])
        else:
            merged.append((key, start, end))
    return merged


@given(SEEDS, st.integers(1, 30), st.integers(0, 30), st.integers(1, 12), st.booleans())
def test_gathering_what_merges(
    seed: int, size: int, there: int, longest: int, touching: bool
) -> None:
    random = np.random.default_rng(seed)

    def drawn_spans(count: int) -> Spans:
        keys, start = random.integers(0, 4, count), random.integers(0, 60, count)
        end = start + 1 + random.integers(0, longest, count)
        return list(zip(keys.tolist(), start.tolist(), end.tolist(), strict=True))

    new, old = drawn_spans(size), merged_one_by_one(drawn_spans(there), touching)
    rows = random.permutation(40)[: len(old)]
    key_of, starts, ends = np.zeros((3, 40), dtype=np.int64)
    for row, (key, begin, stop) in zip(rows.tolist(), old, strict=True):
        key_of[row], starts[row], ends[row] = key, begin, stop
    count = np.bincount(key_of[rows], minlength=4)
    pool = np.concatenate((rows, random.integers(0, 40, 5)))  # more than is in use
    keys, start, end = (np.array(each) for each in zip(*new, strict=True))
    found = [
        kind.gather(
            keys, start, end, touching, pool, np.cumsum(count) - count, count, key_of, starts, ends
        )
        for kind in KINDS
    ]
    assert [each.tolist() for each in found[0]] == [each.tolist() for each in found[1]]

    of, key, begin, stop, hit, row_group = (each.tolist() for each in found[0])
    groups = list(zip(key, begin, stop, strict=True))
    near = [
        (row, span)
        for row, span in zip(rows.tolist(), old, strict=True)
        if any(k == span[0] and a <= span[2] and span[1] <= b for k, a, b in new)
    ]
    assert hit == [row for row, _ in near]
    assert groups == merged_one_by_one([*new, *(span for _, span in near)], touching)
    for (k, a, b), at in zip([*new, *(span for _, span in near)], of + row_group, strict=True):
        assert (k, True, True) == (groups[at][0], groups[at][1] <= a, b <= groups[at][2])


@given(SEEDS, st.lists(st.integers(0, 4), min_size=1, max_size=12))
def test_joining_rows(seed: int, sizes: list[int]) -> None:
    random = np.random.default_rng(seed)
    start, end = random.integers(0, 2, (2, len(sizes))) + np.array([[0], [5]])
    group = np.repeat(np.arange(len(sizes)), sizes)
    if not len(group):
        return
    rows = random.permutation(60)[: len(group)]
    starts, ends = random.integers(0, 2, (2, 60)) + np.array([[0], [5]])
    order = np.lexsort((ends[rows], starts[rows], group))
    rows = rows[order]
    found = [kind.merge_rows(rows, group, starts, ends, start, end) for kind in KINDS]
    assert [each.tolist() for each in found[0]] == [each.tolist() for each in found[1]]

    joined = found[0]
    members = np.split(joined.members, joined.first[1:]) if len(joined.changed) else []
    merging = dict(zip(joined.changed.tolist(), members, strict=True))
    renewed = dict(zip(joined.changed.tolist(), joined.renewed.tolist(), strict=True))
    into: dict[int, int] = {}
    for at, size in enumerate(sizes):
        own = rows[group == at].tolist()
        equal = [row for row in own if (starts[row], ends[row]) == (start[at], end[at])]
        goes_on = joined.into[at]
        assert goes_on in (equal or own or [-1])
        assert (at in merging) == (size > 1 or (size == 1 and not equal))
        if at in merging:
            assert merging[at].tolist() == own
            assert renewed[at] == (not equal)
            into |= {row: goes_on for row in own if row != goes_on}
    assert dict(zip(joined.leaving.tolist(), joined.target.tolist(), strict=True)) == into


@given(SEEDS, st.sampled_from([0, 1, 2, 200]), st.sampled_from([0, 1, 2, 200]), st.booleans())
def test_counting_what_arrives(seed: int, size: int, more: int, is_sized: bool) -> None:
    random = np.random.default_rng(seed)
    rows, others = ints(random, size, 64), ints(random, more, 64)
    sizes = ints(random, size, 9) if is_sized else None
    counts = dict.fromkeys([*rows.tolist(), *others.tolist()], 0)
    for row, by in zip(rows.tolist(), [1] * size if sizes is None else sizes.tolist(), strict=True):
        counts[row] += by
    ends, new, on_time = ints(random, 64, 9), ints(random, 64, 9), ints(random, 64, 2) > 0
    watermark = int(random.integers(0, 9))
    wanted = [n + counts.get(row, 0) for row, n in enumerate(new.tolist())]
    marked = [
        mark or (counts.get(row, 0) > 0 and end > watermark)
        for row, (mark, end) in enumerate(zip(on_time.tolist(), ends.tolist(), strict=True))
    ]
    for kind in KINDS:
        stamp = random.integers(-(2**62), 2**62, 64)
        after, marks = new.copy(), on_time.copy()
        arrived = kind.arrive(stamp, rows, sizes, others, ends, after, marks, watermark)
        assert arrived.touched.tolist() == list(counts)
        assert arrived.counts.tolist() == list(counts.values())
        assert arrived.complete.tolist() == [bool(ends[row] <= watermark) for row in counts]
        assert (after.tolist(), marks.tolist()) == (wanted, marked)


@given(SEEDS, SIZES, st.booleans())
def test_bringing_forward(seed: int, size: int, ends: bool) -> None:
    random = np.random.default_rng(seed)
    special = np.array([START_OF_TIME, 3, 4, 5, END_OF_TIME])
    before, times = random.choice(special, 1_000), random.choice(special, size)
    rows = random.permutation(1_000)[:size]
    for kind in KINDS:
        column = before.copy()
        written, at = kind.bring_forward(column, rows, times, ends)
        sooner = [
            (row, time)
            for row, time in zip(rows.tolist(), times.tolist(), strict=True)
            if time < before[row] or (ends and time == before[row] == END_OF_TIME)
        ]
        assert list(zip(written.tolist(), at.tolist(), strict=True)) == sooner
        wanted = before.tolist()
        for row, time in sooner:
            wanted[row] = time
        assert column.tolist() == wanted


@given(st.lists(st.tuples(st.integers(-5, 50), st.integers(0, 300)), max_size=12))
def test_expanding_ranges(ranges: list[tuple[int, int]]) -> None:
    start = np.array([s for s, _ in ranges], dtype=np.int64)
    count = np.array([c for _, c in ranges], dtype=np.int64)
    for kind in KINDS:
        places, which = kind.expand_ranges(start, count)
        assert places.tolist() == [s + i for s, c in ranges for i in range(c)]
        assert which.tolist() == [at for at, (_, c) in enumerate(ranges) for _ in range(c)]


@given(SEEDS, st.integers(0, 60), st.integers(1, 9))
def test_following_pieces(seed: int, pieces: int, chains: int) -> None:
    """Chains of any number of pieces, in any order of places, and rows without any."""
    random = np.random.default_rng(seed)
    count = random.integers(1, 4, pieces)
    start = np.empty(pieces, dtype=np.int64)
    chain_of, order = ints(random, pieces, chains), random.permutation(pieces)
    start[order] = np.arange(pieces) * 4
    follows, head = np.full(pieces, -1), np.full(chains, -1)
    wanted: list[list[int]] = [[] for _ in range(chains)]
    last = np.full(chains, -1)
    for piece in range(pieces):
        chain = chain_of[piece]
        if head[chain] < 0:
            head[chain] = piece
        else:
            follows[last[chain]] = piece
        last[chain] = piece
        wanted[chain] += [int(start[piece]) + at for at in range(count[piece])]
    rows = random.permutation(chains)[: random.integers(0, chains + 1)]
    held = np.array([len(wanted[row]) for row in rows], dtype=np.int64)
    for kind in KINDS:
        places, which, depth = kind.follow_pieces(head[rows], follows, start, count, held)
        assert places.tolist() == [place for row in rows for place in wanted[row]]
        assert which.tolist() == np.repeat(np.arange(len(rows)), held).tolist()
        assert depth == max((int((chain_of == row).sum()) for row in rows), default=0)


def test_read_only_and_strided_columns_are_taken() -> None:
    rows = np.arange(20)[::2] % 3
    rows.flags.writeable = False
    held = np.zeros(3, dtype=np.int64)
    values = np.ones(10, dtype=np.int64)
    values.flags.writeable = False
    compiled.add_at(held, rows, values)
    assert held.sum() == 10


PROGRAM = """
import sys
from lowwater.kernels import WORTH_LOADING, count_records, kernels
names = []
for records in (1, WORTH_LOADING - 2, 1):
    count_records(records)
    names.append(kernels().NAME)
print(*names, "numba" in sys.modules)
"""


@pytest.mark.parametrize(
    ("wanted", "printed"),
    [
        ("auto", "numpy numpy numba True"),
        ("", "numpy numpy numba True"),
        ("numba", "numba numba numba True"),
        ("numpy", "numpy numpy numpy False"),
    ],
)
def test_when_they_are_loaded(wanted: str, printed: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True,
        env={**os.environ, "LOWWATER_KERNELS": wanted},
    )  # fmt: skip
    assert run.stdout.strip() == printed


def test_unknown_kernels_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="LOWWATER_KERNELS='cython' names no kernels"):
        lowwater.kernels.use("cython")


def test_kernels_that_are_not_installed_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lowwater.kernels, "find_spec", lambda name: None)
    with pytest.raises(InvalidArgument, match=r"numba is not installed.*lowwater\[fast\]"):
        lowwater.kernels.use("numba")
    assert not lowwater.kernels.is_installed()


@pytest.mark.parametrize("wanted", ["cython", "numba"])
def test_a_run_without_its_kernels_is_refused_before_it_writes(
    wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lowwater.kernels, "_CHOICE", lowwater.kernels._Choice())
    monkeypatch.setattr(lowwater.kernels, "find_spec", lambda name: None)
    monkeypatch.setenv("LOWWATER_KERNELS", wanted)
    counts = (
        lw.from_iterable([{"t": 1, "k": "a"}], time="t")
        .key_by("k")
        .window(lw.FixedWindows("1m"))
        .aggregate(n=lw.count())
    )
    with pytest.raises(InvalidArgument, match=f"LOWWATER_KERNELS='{wanted}'"):
        counts.write_jsonl(tmp_path / "out").run(progress=False)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("wanted", ["auto", "numba"])
def test_a_numba_that_does_not_load(wanted: str, tmp_path: Path) -> None:
    """Nobody asked for compiled kernels by name: then the run goes on without, and says so."""
    (tmp_path / "numba.py").write_text("raise ImportError('Numba needs NumPy 2.2 or less.')")
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False,
        env={
            **os.environ, "LOWWATER_KERNELS": wanted,
            "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
        },
    )  # fmt: skip
    why = "numba is installed but does not load: ImportError: Numba needs NumPy 2.2 or less. "
    assert why in run.stderr
    if wanted == "auto":
        assert run.stdout.strip() == "numpy numpy numpy False"
        assert run.stderr.count("PipelineWarning: the run goes on without compiled kernels") == 1
    else:
        assert run.returncode == 1
        assert "InvalidArgument: numba is installed but" in run.stderr


def test_kernels_that_nobody_can_keep_are_compiled_with_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from lowwater.kernels import compiled, compiler

    assert compiler._is_cacheable()

    def uncached(**options: Any) -> Any:
        def refuse(loop: Any) -> Any:
            raise RuntimeError("cannot cache function: no locator available")

        return refuse

    monkeypatch.setattr(compiler, "njit", uncached)
    assert not compiler._is_cacheable()
    monkeypatch.setattr(compiled, "IS_CACHED", False)
    with using("numpy"), pytest.warns(PipelineWarning, match="Set NUMBA_CACHE_DIR"):
        lowwater.kernels.use("numba")


def test_a_bundle_counts_for_many_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small bundles gain more from a record: what a loop saves is saved once a bundle."""
    counted: list[int] = []
    monkeypatch.setattr(lowwater.kernels, "count_records", counted.append)
    monkeypatch.setattr(lowwater.kernels._CHOICE, "is_final", False)
    for records in (0, 1, 50_000):
        count_bundle(records)
    assert counted == [BUNDLE_COUNTS, BUNDLE_COUNTS + 1, BUNDLE_COUNTS + 50_000]
    monkeypatch.setattr(lowwater.kernels._CHOICE, "is_final", True)
    count_bundle(1)
    assert len(counted) == 3


def test_long_texts_count_for_many_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few of a megabyte are worth loading what hashes them; short ones count for nothing."""
    counted: list[int] = []
    monkeypatch.setattr(lowwater.kernels, "count_records", counted.append)
    starts = np.array([0, 0], dtype=np.int64)
    for length in (0, 100, 65_535):
        hash_bytes(b"x" * 65_535, starts, np.array([length, 1], dtype=np.int64))
    assert counted == []
    hash_bytes(b"x" * 1_000_000, starts, np.array([1, 1_000_000], dtype=np.int64))
    assert counted == [500_000]
