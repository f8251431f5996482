"""What a search decided, and the output that follows from it (P-6, P-7, P-10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from lowwater.engine.keyed.records import KeyedRecords
from lowwater.engine.match.key_rows import KeyRows
from lowwater.engine.match.measures import Measures
from lowwater.engine.match.rules import END, START, VARIABLE, Matching
from lowwater.engine.match.shown import Shown, Wanted, content_of
from lowwater.engine.match.taken import Taken, Values
from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.columns import Column
from lowwater.engine.records.keys import KeyDictionary
from lowwater.engine.records.pane_table import MICROS_UTC
from lowwater.engine.records.stage_output import Emitted
from lowwater.kernels.positions import as_positions, repeated
from lowwater.state.arrays import expand_ranges, mixed
from lowwater.time import Int64Array, saturating_add_array


@final
@dataclass(frozen=True, slots=True)
class Decided:
    """What is decided of some keys; places are among their rows.

    Args:
        settled: The place of the first row of each key at which a match may still begin, or its
            last row's plus one, int64, shape (k,).
        open_: The place of each key's first undecided start, -1 for none.
        due: The watermark at which something about each key is decided next, int64.
        key: The key of each match, by place, int64, shape (m,), rising.
        start: The place of the first row of each match.
        stop: The place behind its last row.
        decided_at: The watermark at which it is decided.
        labels: The numbers of the variables of all their rows, match by match; -1 in a gap.
    """

    settled: Int64Array
    open_: Int64Array
    due: Int64Array
    key: Int64Array
    start: Int64Array
    stop: Int64Array
    decided_at: Int64Array
    labels: NDArray[np.integer[Any]]

    def taken(self) -> Taken:
        """Return the rows of the matches."""
        places, match = expand_ranges(self.start, self.stop - self.start)
        return Taken(len(self.start), match, places, self.labels)


@final
class Output:
    """Makes the records that come out, and compares them with what is out.

    Args:
        rules: The rules.
        labels: The number of each variable.
    """

    def __init__(self, rules: Matching, labels: Mapping[str, int]) -> None:
        self._rules = rules
        self._measures = Measures(rules.measures)
        self._names = np.array([*labels, None], dtype=object)
        # Rows tell what comes out of them, unless a measure reads others.
        self._by_rows = not self._measures.reads_before

    def changed(
        self,
        rows: KeyRows,
        values: Values,
        decided: Decided,
        records: KeyedRecords,
        shown: Shown,
        keys: KeyDictionary,
        *,
        in_turn: bool,
        signed: bool,
    ) -> Emitted | None:
        """Return what is to be taken back and what is new, and note what is out from now on.

        Args:
            rows: The rows of some keys.
            values: Computes over them.
            decided: What is decided of them.
            records: The records that the rows are.
            shown: What is out and may be taken back.
            keys: The keys.
            in_turn: Whether all comes in the order in which it is decided, not key by key.
            signed: Whether to say which records are taken back.
        """
        out, of = shown.of_keys(rows.keys)
        taken = decided.taken()
        wanted = self._wanted(rows, decided, taken, records)
        new = np.arange(len(wanted.key), dtype=np.int64)
        if out.size and self._by_rows:
            same, there = shown.same_rows(out, of, wanted)
            out, of, new = out[~same], of[~same], new[~there]
        columns: dict[str, Column] = {}
        if new.size:
            columns = self._columns(rows, values, decided, taken, wanted, new)
        content = None
        if new.size and (out.size or wanted.stays[new].any()):
            content = content_of(wanted.times[new], columns)
        if out.size and content is not None:
            same, there = shown.same_content(out, of, wanted, new, content)
            left = np.flatnonzero(~there)
            out, of, new, content = out[~same], of[~same], new[left], content[left]
            columns = {name: column.take(left) for name, column in columns.items()}
        if content is not None and (stays := np.flatnonzero(wanted.stays[new])).size:
            at = new[stays]
            some = {name: column.take(stays) for name, column in columns.items()}
            shown.add(rows.keys[wanted.key[at]], wanted, at, some, content[stays])
        if not out.size and not new.size:
            return None
        back = shown.records.kept.take(out) if out.size else {}
        table = shown.records.table
        shown.records.remove(out)
        if in_turn:
            order = self._in_turn(rows, decided, taken, new, records)
            order = np.concatenate((np.arange(len(out)), len(out) + order))
        else:
            key = np.concatenate((of, wanted.key[new]))
            sign = repeated(np.array([0, 1]), [len(out), len(new)])
            begun = np.concatenate((table["begun"][out], wanted.begun[new]))
            order = np.lexsort((begun, sign, key))
        times = np.concatenate((table["start"][out], wanted.times[new]))
        owner = np.concatenate((table["key"][out], rows.keys[wanted.key[new]]))
        signs = repeated(np.array([-1, 1], dtype=np.int8), [len(out), len(new)])
        parts = [part for part, count in ((back, len(out)), (columns, len(new))) if count]
        found = {
            name: Column.concat([part[name] for part in parts]).take(order) for name in parts[-1]
        }
        return Emitted(
            times[order], keys.decode(owner[order]), found, signs=signs[order] if signed else None
        )

    def _wanted(
        self, rows: KeyRows, decided: Decided, taken: Taken, records: KeyedRecords
    ) -> Wanted:
        """Return what should be out."""
        born = records.table["born"][rows.rows]
        of_rows = mixed([born[taken.places], taken.labels.astype(np.int64)]).view(np.int64)
        begin = np.cumsum(decided.stop - decided.start) - (decided.stop - decided.start)
        sums = np.add.reduceat(of_rows, as_positions(begin)) if len(begin) else of_rows
        identity = mixed([sums, born[decided.start], decided.stop - decided.start]).view(np.int64)
        stays = decided.start >= decided.settled[decided.key]
        begun = rows.times[decided.start]
        if self._rules.rows == "one":
            times = rows.times[decided.stop - 1]
            if self._rules.absence is not None:
                times = saturating_add_array(times, self._rules.absence.within_us)
            return Wanted(decided.key, times, begun, identity, stays)
        match = taken.match
        identity = mixed([identity[match], taken.places - decided.start[match]]).view(np.int64)
        return Wanted(
            decided.key[match], rows.times[taken.places], begun[match], identity, stays[match]
        )

    def _columns(
        self,
        rows: KeyRows,
        values: Values,
        decided: Decided,
        taken: Taken,
        wanted: Wanted,
        at: Int64Array,
    ) -> dict[str, Column]:
        """Return the columns of some of the records that should be out."""
        begun = Column(wanted.begun[at], None, MICROS_UTC)
        if self._rules.rows == "one":
            some = _some(taken, decided, at)
            ends = Column(rows.times[decided.stop[at] - 1], None, MICROS_UTC)
            return {START: begun, END: ends, **self._measures.of_matches(values, some)}
        # Running values of a match are computed for all of its rows.
        matches = np.unique(taken.match[at])
        some = _some(taken, decided, matches)
        place = np.full(len(taken.match), -1, dtype=np.int64)
        place[np.flatnonzero(np.isin(taken.match, matches))] = np.arange(len(some.match))
        chosen = place[at]
        measures = self._measures.of_rows(values, some)
        names = self._names[taken.labels[at]]
        seen = [
            name
            for name in rows.names
            if not name.startswith(HIDDEN) and name not in self._rules.keys
        ]
        return {
            START: begun,
            VARIABLE: Column(names, names != None),  # noqa: E711  # of each object
            **{name: rows.column(name).take(taken.places[at]) for name in seen},
            **{name: column.take(chosen) for name, column in measures.items()},
        }

    def _in_turn(
        self,
        rows: KeyRows,
        decided: Decided,
        taken: Taken,
        new: Int64Array,
        records: KeyedRecords,
    ) -> Int64Array:
        """Return the order in which new records are decided; what arrived first goes first."""
        match = new if self._rules.rows == "one" else taken.match[new]
        born = records.table["born"][rows.rows[decided.start[match]]]
        return np.lexsort((np.arange(len(new)), born, decided.decided_at[match]))


def _some(taken: Taken, decided: Decided, matches: Int64Array) -> Taken:
    """Return the rows of some of the matches, which are rising."""
    if len(matches) == taken.count:
        return taken
    counts = decided.stop - decided.start
    begin = np.cumsum(counts) - counts
    at, match = expand_ranges(begin[matches], counts[matches])
    return Taken(len(matches), match, taken.places[at], taken.labels[at])
