"""The loops over arrays that operators spend their time in, behind one protocol.

``plain`` has them in numpy, and is the reference. ``compiled`` has them as loops that numba
compiles, from the extra ``fast``; their results are equal to the bit. So a process may change from
one to the other at any time, and does: the compiled ones cost about a second to load, and are
loaded once a process has seen so much that they will have saved that, at ``WORTH_LOADING`` records
or sooner in small bundles. ``LOWWATER_KERNELS`` in the environment decides otherwise: ``numba``
loads them before the first record, ``numpy`` never.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lowwater.errors import InvalidArgument, PipelineWarning, warn
from lowwater.kernels import plain
from lowwater.kernels.pattern_tables import Matches, Program, Search
from lowwater.kernels.plain import Arrived, Claims
from lowwater.kernels.plain_merging import Gathered, MergedRows
from lowwater.time import Int64Array

WORTH_LOADING = 4_000_000
"""After so many records the compiled kernels are loaded, if they are installed.

They save 0.2 microseconds a record in windows and sessions, and almost a millisecond a bundle."""
BUNDLE_COUNTS = 4_000
"""A bundle counts as so many records, and those in it."""

_VARIABLE = "LOWWATER_KERNELS"


class Kernels(Protocol):
    """What both kinds of kernels do.

    Slots of a hash index are int32, a power of two of them, at most half of them in use. A slot
    holds a row number, ``EMPTY``, ``DELETED`` or, within an insertion, a claim. Probing is linear,
    from the high bits of :meth:`mixed` on. Columns are int64 and indexed by row, values int64 of
    shape (n,); there is a value per column.
    """

    @property
    def NAME(self) -> str:  # noqa: N802 (a constant of a module)
        """``"numpy"`` or ``"numba"``."""

    def mixed(self, values: Sequence[Int64Array]) -> NDArray[np.uint64]:
        """Return a 64-bit hash of each tuple of values; its high bits are mixed best."""

    def find(
        self, slots: NDArray[np.int32], columns: Sequence[Int64Array], values: Sequence[Int64Array]
    ) -> Int64Array:
        """Return the row of each tuple of values, ``EMPTY`` where there is none. O(n) expected."""

    def find_or_claim(
        self, slots: NDArray[np.int32], columns: Sequence[Int64Array], values: Sequence[Int64Array]
    ) -> Claims:
        """Find the row of each tuple of values, and claim a slot for each that has none.

        Returns:
            The rows, and the claims. The caller writes row numbers into the claimed slots, and into
            ``rows`` at ``missing``.
        """

    def place(
        self, slots: NDArray[np.int32], columns: Sequence[Int64Array], rows: Int64Array
    ) -> NDArray[np.int32]:
        """Write rows, distinct and none of them there yet, into slots; return the slot of each."""

    def unique(self, stamp: Int64Array, rows: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the distinct rows, in order of first place, and each row's place therein. O(n).

        Args:
            stamp: Scratch space indexed by row, which may hold anything.
            rows: Row numbers, int64, shape (n,).
        """

    def argsort(self, values: Int64Array) -> Int64Array:
        """Return the stable order that sorts int64 values. O(n) where they span few bits."""

    def add_at(self, target: NDArray[Any], rows: Int64Array, values: NDArray[Any] | int) -> None:
        """Add each value to its row of a column, one after the other, as ``np.add.at`` does."""

    def max_at(self, target: NDArray[Any], rows: Int64Array, values: NDArray[Any]) -> None:
        """Set each row to the largest of its values and what it holds; NaN is largest."""

    def min_at(self, target: NDArray[Any], rows: Int64Array, values: NDArray[Any]) -> None:
        """Set each row to the smallest of its values and what it holds; NaN is smallest."""

    def merge_overlapping(
        self, keys: Int64Array, start: Int64Array, end: Int64Array, touching: bool
    ) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Merge overlapping intervals of each key. O(n).

        Args:
            keys: Key of each interval, int64, shape (n,), sorted, n > 0.
            start: First instant of each, int64, sorted within a key.
            end: First instant after each, int64, after its start.
            touching: Also merge two intervals if one ends exactly where the next starts.

        Returns:
            (the merged interval of each, start of each merged interval, its end).
        """

    def count_below(
        self,
        pool: Int64Array,
        at: Int64Array,
        count: Int64Array,
        column: Int64Array,
        bound: Int64Array,
        or_equal: bool,
    ) -> Int64Array:
        """Return how many rows of each segment lie below (or at) a bound, by binary search.

        Args:
            pool: Row numbers, segment by segment, each sorted by ``column``.
            at: Where each segment begins, int64, shape (n,).
            count: How many rows it has.
            column: What rows are sorted by, indexed by row.
            bound: The bound of each segment.
            or_equal: Whether rows at the bound count.
        """

    def gather(
        self,
        keys: Int64Array,
        start: Int64Array,
        end: Int64Array,
        touching: bool,
        pool: Int64Array,
        at: Int64Array,
        count: Int64Array,
        key_of: Int64Array,
        starts: Int64Array,
        ends: Int64Array,
    ) -> Gathered:
        """Merge new intervals with each other, and with the open ones of their keys.

        Groups are numbered in order of key, then start. An open interval that only touches is there
        in any case, in a group of its own perhaps. O(n log n), and O(log open ones) for each.

        Args:
            keys: Key of each new interval, int64, shape (n,), n > 0, in any order.
            start: First instant of each, int64.
            end: First instant after each, int64, after its start.
            touching: Also merge two intervals if one ends exactly where the next starts.
            pool: Rows of open intervals, key by key; those of a key are disjoint, sorted by start.
            at: Where each key's rows begin, indexed by key.
            count: How many each key has.
            key_of: Key of each open interval, indexed by row.
            starts: First instant of each.
            ends: First instant after each.
        """

    def merge_rows(
        self,
        rows: Int64Array,
        group: Int64Array,
        starts: Int64Array,
        ends: Int64Array,
        start: Int64Array,
        end: Int64Array,
    ) -> MergedRows:
        """Return into which rows open intervals merge. O(n).

        Args:
            rows: Their rows, int64, shape (n,), n > 0, sorted by group, start and end.
            group: The group of each.
            starts: First instant of each, indexed by row.
            ends: First instant after each, indexed by row.
            start: First instant of each group.
            end: First instant after each group.
        """

    def arrive(
        self,
        stamp: Int64Array,
        rows: Int64Array,
        sizes: Int64Array | None,
        others: Int64Array,
        ends: Int64Array,
        new: Int64Array,
        on_time: NDArray[np.bool_],
        watermark: int,
    ) -> Arrived:
        """Count the elements that arrive in intervals, and mark those that get one in time. O(n).

        Args:
            stamp: Scratch space indexed by row, which may hold anything.
            rows: Row of the interval that each element is in, int64, shape (n,).
            sizes: How many elements each stands for, int64, shape (n,); ``None`` for one each.
            others: Rows that are touched too, but get nothing, int64, shape (m,).
            ends: First instant after each interval, indexed by row.
            new: The counts, indexed by row, to be added to.
            on_time: The marks, indexed by row: set where the interval ends after the watermark.
            watermark: The watermark.
        """

    def bring_forward(
        self, column: Int64Array, rows: Int64Array, times: Int64Array, ends: bool
    ) -> tuple[Int64Array, Int64Array]:
        """Write into a column the instants that are before the ones there. O(n).

        Args:
            column: Instants, indexed by row; the end of time where there is none.
            rows: Distinct rows, int64, shape (n,).
            times: An instant for each.
            ends: Whether the end of time is written, too, where there is none.

        Returns:
            The rows that were written, and their instants.
        """

    def expand_ranges(self, start: Int64Array, count: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return all integers of the ranges ``[start, start + count)``, and each one's range."""

    def follow_pieces(
        self,
        head: Int64Array,
        follows: Int64Array,
        start: Int64Array,
        count: Int64Array,
        held: Int64Array,
    ) -> tuple[Int64Array, Int64Array, int]:
        """Follow chains of pieces, each a stretch of places, from their first pieces.

        Args:
            head: The first piece of each chain, int64, shape (n,); -1 for none.
            follows: The piece after each piece; -1 for none.
            start: Where each piece begins.
            count: How many places each piece has.
            held: How many places each chain has, int64, shape (n,).

        Returns:
            (the places, one chain after another; the chain of each; the pieces of the longest).
        """

    def time_ranges(
        self,
        times: Int64Array,
        begin: Int64Array,
        end: Int64Array,
        places: Int64Array,
        length: int,
    ) -> tuple[Int64Array, Int64Array]:
        """Return which rows of a key are in ``(t - length, t]`` of some of its rows. O(rows).

        Args:
            times: The instants of rows, key by key, rising within a key.
            begin: Where the rows of the key of each place begin, int64, shape (n,).
            end: Where they end.
            places: Places of rows, int64, shape (n,), rising.
            length: Length of a range, positive.

        Returns:
            (the first row of each range, the row behind it).
        """

    def range_sums(
        self, values: NDArray[np.float64], low: Int64Array, high: Int64Array
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return the sums of ranges, rounded once, and which of them are surely that.

        A sum is carried as two floats, and what even these lose is bounded (Knuth's sum of two
        floats, twice). Where the bound leaves open to which side the exact sum rounds, or the sum
        is not finite, the caller has to find it in another way. O(rows of all ranges).

        Args:
            values: The values.
            low: The first place of each range, int64, shape (n,).
            high: The place behind it.
        """

    def find_matches(
        self,
        program: Program,
        search: Search,
        begin: Int64Array,
        first: Int64Array,
        times: Int64Array,
        bits: NDArray[np.uint64],
    ) -> Matches:
        """Search the rows of keys for a row pattern. O(rows x states + rows of matches).

        Attempts are made in turn, from ``first`` on, up to the first one that is undecided, whose
        match is not returned: one whose reach is at or behind the horizon. At the end of time all
        are decided. With ``TO_NEXT`` an attempt is made at every row, and all matches are returned.

        Args:
            program: The states of the search.
            search: Its bounds.
            begin: Where the rows of each key begin, and the end of the last, int64, (keys + 1,).
            first: The first row of each key that may begin a match, int64, shape (keys,).
            times: The instant of each row, before the end of time; never falls within a key.
            bits: The conditions that are true of each row, uint64.
        """

    def hash_bytes(
        self, data: NDArray[np.uint8], starts: Int64Array, lengths: Int64Array, seed: int
    ) -> NDArray[np.uint64]:
        """Return the XXH64 of each of several stretches of a buffer. O(bytes)."""

    def sort_hashes(self, hashes: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], Int64Array]:
        """Return hashes sorted, and the stable order that sorts them.

        O(n) expected where they are spread evenly over 64 bits.
        """

    def add_to_filter(self, words: NDArray[np.uint64], hashes: NDArray[np.uint64]) -> None:
        """Set the bits of each hash in a Bloom filter. O(n).

        A hash has its bits in one word (Putze, Sanders and Singler, "Cache-, Hash- and
        Space-Efficient Bloom Filters", 2007). Its upper half, scaled, says which word, and its
        lowest 30 bits which five bits of it: so sorted hashes meet the words in order.
        """

    def may_be_in_filter(
        self, words: NDArray[np.uint64], hashes: NDArray[np.uint64]
    ) -> NDArray[np.bool_]:
        """Return which hashes have all their bits in a filter; bool, shape (n,). O(n)."""


_LONG_TEXT = 1 << 16
_BYTES_OF_RECORD = 2


class _Choice:
    """Which kernels this process uses."""

    def __init__(self) -> None:
        self.active: Kernels = plain
        self.is_final = False
        self.is_broken = False
        self.records = 0


_CHOICE = _Choice()


def kernels() -> Kernels:
    """Return the kernels in use. Ask in each step, as they may change."""
    return _CHOICE.active


def check_choice() -> None:
    """Check ``LOWWATER_KERNELS`` before a run writes anything. Loads nothing.

    Raises:
        InvalidArgument: It names no kernels, or some that are not installed.
    """
    wanted = _wanted()
    if wanted != "auto" and not _CHOICE.is_final:
        _require(wanted)


def count_records(records: int) -> None:
    """Count records; load the compiled kernels once enough have been seen.

    Compiled kernels that are there but cannot be loaded are a warning, as the others do the same.

    Raises:
        InvalidArgument: ``LOWWATER_KERNELS`` names no kernels, or some that cannot be loaded.
    """
    choice = _CHOICE
    if choice.is_final:
        return
    choice.records += records
    wanted = _wanted()
    if wanted != "auto":
        use(wanted)
    elif choice.records >= WORTH_LOADING:
        use_best()


def count_bundle(records: int) -> None:
    """Count a bundle of so many records, as :func:`count_records` does."""
    if not _CHOICE.is_final:
        count_records(BUNDLE_COUNTS + records)


def count_bytes(size: int) -> None:
    """Count long texts that are hashed: one costs as much as thousands of records.

    Otherwise a run over few records, of a megabyte each, would never load what hashes them in a
    hundredth of the time.
    """
    if size >= _LONG_TEXT:
        count_records(size // _BYTES_OF_RECORD)


def use_best() -> None:
    """Use the compiled kernels in this process, if they are installed and can be loaded."""
    if is_installed():
        try:
            return use("numba")
        except InvalidArgument as error:
            use("numpy")
            _CHOICE.is_broken = True
            warn(
                PipelineWarning,
                f"the run goes on without compiled kernels: {error.what}",
                hint=f"Reinstall lowwater[fast], or set {_VARIABLE}=numpy to do without",
            )
    return use("numpy")


def use(name: str) -> None:
    """Use the kernels of a name, ``"numpy"`` or ``"numba"``, in this process from now on.

    Raises:
        InvalidArgument: There are none of this name, or they are not installed or do not load.
    """
    _require(name)
    _CHOICE.active = plain if name == "numpy" else _load()
    _CHOICE.is_final = True


def outlook() -> str:
    """Return why this process uses its kernels, and when the compiled ones come."""
    wanted = _wanted()
    if kernels().NAME == "numba":
        return "compiled"
    if not is_installed():
        return "install lowwater[fast] for compiled ones"
    if _CHOICE.is_broken:
        return "the compiled ones do not load"
    if _CHOICE.is_final or wanted not in {"auto", "numba"}:
        return f"{_VARIABLE}={wanted}"
    if wanted == "numba":
        return "the compiled ones are loaded before the first record"
    return f"the compiled ones are loaded after {WORTH_LOADING:,} records, sooner in small bundles"


def is_installed() -> bool:
    """Whether numba, which compiles the kernels, is installed. Loads nothing."""
    return find_spec("numba") is not None


def _wanted() -> str:
    return os.environ.get(_VARIABLE) or "auto"


def _require(name: str) -> None:
    """Raise if there are no kernels of a name, or they are not installed."""
    if name not in {"numpy", "numba"}:
        raise InvalidArgument(
            f"{_VARIABLE}={name!r} names no kernels", hint="Set it to auto, numba or numpy"
        )
    if name == "numba" and not is_installed():
        raise InvalidArgument(
            f"{_VARIABLE}={name!r}, but numba is not installed",
            hint="Install lowwater[fast], or set it to auto or numpy",
        )


def _load() -> Kernels:
    try:
        from lowwater.kernels import compiled
    except Exception as error:  # whatever numba, LLVM or a cache on disk raises
        raise InvalidArgument(
            f"numba is installed but does not load: {type(error).__name__}: "
            + str(error).rstrip("."),
            hint=f"Reinstall lowwater[fast], or set {_VARIABLE} to auto or numpy",
        ) from error
    if not compiled.IS_CACHED:
        warn(
            PipelineWarning,
            "numba finds no folder that it may write to, so each process compiles the kernels "
            "anew, which takes some seconds",
            hint=f"Set NUMBA_CACHE_DIR to such a folder, or {_VARIABLE}=numpy to do without",
        )
    return compiled
