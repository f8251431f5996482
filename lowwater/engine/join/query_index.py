"""Finds the stored queries whose words a document has, for many documents at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Self, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lowwater.engine.join.searching import Match
from lowwater.engine.records.admit_words import is_word
from lowwater.engine.records.columns import Column
from lowwater.engine.records.value_hash import hash_values
from lowwater.kernels.positions import repeated
from lowwater.state.arrays import NONE, distinct, expand_ranges, run_starts
from lowwater.state.table import RowTable
from lowwater.time import Int64Array

_CELLS_AT_ONCE = 1 << 24
"""Documents are searched in portions: so many of them times the words of all queries, at most."""
_PAIRS_AT_ONCE = 1 << 22
"""So many pairs of a document and a version that may match it are looked at in a portion, about."""


@final
@dataclass(frozen=True, slots=True)
class Words:
    """The words of records: lists of hashes, one list after another.

    Args:
        hashes: The words of all records, int64.
        of: The record of each, int64, rising.
    """

    hashes: Int64Array
    of: Int64Array

    @classmethod
    def in_column(cls, column: Column) -> Self:
        """Return the words of a column of lists; null has none, and null words do not count."""
        array = column.arrow
        if array is None and column.type is not None:
            array = column.to_arrow()
        if array is None:
            return cls._of_objects(column)
        if pa.types.is_null(array.type):
            return cls(NONE, NONE)
        # A null may lie over items: they have no part in either of these.
        lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
        items, of = pc.list_flatten(array), repeated(np.arange(len(array)), lengths)
        no_word = items.is_null(nan_is_null=True)
        if no_word.true_count:
            some = pc.invert(no_word)
            items, of = items.filter(some), of[some.to_numpy(zero_copy_only=False)]
        return cls(_hashes(Column.from_arrow(items)), of)

    @classmethod
    def _of_objects(cls, column: Column) -> Self:
        values = column.to_list()
        counts = [0 if value is None else len(value) for value in values]
        items = list(chain.from_iterable(value or () for value in values))
        of = repeated(np.arange(len(values)), counts)
        some = np.fromiter(map(is_word, items), np.bool_, len(items))
        present = Column.of_objects(
            [item for item, is_one in zip(items, some, strict=True) if is_one]
        )
        return cls(_hashes(present), of[some])


@final
class QueryIndex:
    """Versions of queries, found by their words.

    With ``match="all"``, a version is found by the word of it that the fewest versions have, by
    ties the one of the least hash, so that a document looks only at versions of which it has that
    word; with ``"any"``, by each of its words.

    Args:
        rows: The versions, int64, shape (v,); their order is that of what :meth:`found` returns.
        words: The words of each.
        born: The rank of arrival of each: another one has its row once it is gone.
        match: Whether a document must have all words of a version, or any.
    """

    def __init__(self, rows: Int64Array, words: Words, born: Int64Array, match: Match) -> None:
        self._rows, self._born = rows, born
        self._known, codes, counts = np.unique(
            words.hashes, return_inverse=True, return_counts=True
        )
        # The distinct words of each version, the one that the fewest versions have first.
        many = max(len(self._known), 1)
        version, code = np.divmod(distinct(words.of * many + codes), many)
        order = np.lexsort((code, counts[code], version))
        version, code = version[order], code[order]
        self._lengths = np.bincount(version, minlength=len(rows))
        self._begins = np.cumsum(self._lengths) - self._lengths
        self._codes = code
        self._is_all = match == "all"
        if self._is_all and len(version):
            first = run_starts(version)
            version, code = version[first], code[first]
        order = np.lexsort((version, code))
        self._posted = version[order]
        self._first = np.searchsorted(code[order], np.arange(len(self._known) + 1))
        self._portion = max(1, _CELLS_AT_ONCE // many)
        # By document of a portion and known word: whether it has the word.
        self._has: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)

    def __len__(self) -> int:
        return len(self._rows)

    def found(
        self, words: Words, times: Int64Array, table: RowTable
    ) -> tuple[Int64Array, Int64Array]:
        """Return the versions that stand at the time of documents and that these match.

        Args:
            words: The words of the documents.
            times: Their event times, int64.
            table: The table of the versions, which says from when each stands, and until when.

        Returns:
            The documents, rising, and the row of the version of each pair.
        """
        many = len(self._known)
        if not many or not len(words.hashes):
            return NONE, NONE
        codes = np.minimum(np.searchsorted(self._known, words.hashes), many - 1)
        known = self._known[codes] == words.hashes
        held = distinct(words.of[known] * many + codes[known])
        parts = [
            self._pairs(held[low:high] - begin * many, times[begin:], begin, table)
            for begin, low, high in self._portions(held, len(times))
        ]
        pairs = np.concatenate(parts) if parts else NONE
        document, version = np.divmod(pairs, max(len(self), 1))
        return document, self._rows[version]

    def _portions(self, held: Int64Array, documents: int) -> Iterator[tuple[int, int, int]]:
        """Yield the first document of each portion, and the bounds of its known words.

        Args:
            held: The distinct known words of documents, which are counted from 0.
            documents: How many there are.
        """
        code = held % len(self._known)
        pairs = np.append(0, np.cumsum(self._first[code + 1] - self._first[code]))
        cuts = np.searchsorted(held, np.arange(documents + 1) * len(self._known))
        pairs = pairs[cuts]
        begin = 0
        while begin < documents:
            end = int(np.searchsorted(pairs, pairs[begin] + _PAIRS_AT_ONCE, side="right")) - 1
            end = max(begin + 1, min(end, begin + self._portion))
            if cuts[begin] < cuts[end]:
                yield begin, int(cuts[begin]), int(cuts[end])
            begin = end

    def _pairs(
        self, held: Int64Array, times: Int64Array, begin: int, table: RowTable
    ) -> Int64Array:
        """Return the pairs of some documents, as numbers that rise by document, then by version.

        Args:
            held: The distinct known words of documents, which are counted from 0.
            times: The times of these.
            begin: The number of the first of them.
            table: The table of the versions.
        """
        many = len(self._known)
        document, code = np.divmod(held, many)
        first = self._first[code]
        places, which = expand_ranges(first, self._first[code + 1] - first)
        version, document = self._posted[places], document[which]
        at, rows = times[document], self._rows[version]
        stands = (table["start"][rows] <= at) & (at < table["until"][rows])
        some = np.flatnonzero(stands & (table["born"][rows] == self._born[version]))
        version, document = version[some], document[some]
        if self._is_all:
            version, document = self._having_all(version, document, held)
        pairs = (document + begin) * len(self._rows) + version
        return np.sort(pairs) if self._is_all else distinct(pairs)

    def _having_all(
        self, version: Int64Array, document: Int64Array, held: Int64Array
    ) -> tuple[Int64Array, Int64Array]:
        """Return the pairs whose document has all words of the version.

        Args:
            version: The versions of pairs whose document has the first word.
            document: The documents.
            held: The known words of all documents, rising.
        """
        many = len(self._known)
        cells = (int(held[-1]) // many + 1) * many
        if len(self._has) < cells:
            size = max(cells, 2 * len(self._has))
            self._has = np.zeros(min(size, self._portion * many), dtype=np.bool_)
        self._has[held] = True
        for nth in range(1, int(self._lengths.max(initial=0))):
            more = self._lengths[version] > nth
            if not more.any():
                break
            code = self._codes[np.where(more, self._begins[version] + nth, 0)]
            kept = np.flatnonzero(~more | self._has[document * many + code])
            version, document = version[kept], document[kept]
        self._has[held] = False
        return version, document


def _hashes(items: Column) -> Int64Array:
    return hash_values([items]).view(np.int64) if len(items) else NONE
