"""Validates records: valid ones become a bundle, invalid ones become dead letters (S-B1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias, final

import numpy as np

from lowwater.display.text import repr_of
from lowwater.engine.records.admit_bounds import PartnerBounds, note_too_long, window_bounds
from lowwater.engine.records.admit_keys import check_key as check_key
from lowwater.engine.records.admit_times import (
    PLAIN,
    TimeFormat,
    event_times,
    gaps,
    note_far_ahead,
)
from lowwater.engine.records.admit_values import AGGREGATE, Needs, ValueAdmission
from lowwater.engine.records.batch import HIDDEN, ArrowColumns, shown_name
from lowwater.engine.records.batch import Records as Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.panes import ErrorRecord
from lowwater.engine.records.problems import AbsentColumns, Problems, Tally
from lowwater.engine.records.stepping import AppliedSteps
from lowwater.engine.records.steps import Bundle
from lowwater.engine.records.storable import note_unstorable, writable
from lowwater.errors import DataError, InvalidArgument, describe, nearest_column
from lowwater.time import Int64Array
from lowwater.windows import ColumnWindows, WindowFunction

OnError: TypeAlias = Literal["dead_letter", "raise"]
Check: TypeAlias = Callable[[Column, Problems], Column]
"""Records the invalid rows of a column, and returns it in the form in which it is used."""


@final
@dataclass(frozen=True, slots=True)
class Admitted:
    """The result of validating a batch of records.

    Args:
        bundle: The valid elements, in order.
        kept: Index of each valid element among the records, int64; ``None`` if all are valid.
        errors: Dead letters for the invalid records, in order.
        ids: The columns of record ids of the valid elements, if there are any.
    """

    bundle: Bundle
    kept: Int64Array | None
    errors: list[ErrorRecord]
    ids: tuple[Column, ...] = ()


@final
class Admission:
    """Validates one stream of records, batch by batch (S-B1).

    Whether a record is valid does not depend on how the stream is split into batches: the only
    state is the kind of values each column has held so far. ``tally`` counts the invalid ones.

    Args:
        time: Name of the column of event times.
        keys: Names of the key columns.
        needs: The kind of values that each aggregated column must have.
        windows: The windows; they may read columns that hold a duration per element (the gaps of
            sessions) or two instants.
        on_error: Whether an invalid record becomes a dead letter or stops the stream.
        times: How event times are written that do not say it themselves.
        partners: Which columns say between which instants the partners of a record are.
        ids: Names of the columns of record ids, which must not be null either.
        max_ahead_us: How far ahead of the clock an event time may be, microseconds. Records further
            ahead are invalid and do not move the watermark. ``None``: any distance.
        sound_keys: Key columns that are known to be valid and need no check.
        null_keys: Whether keys may be null, or a part of them.
        readers: What reads a column of ``needs``, in words, where it is no aggregate.
        orders: Columns that records are ordered by, and what orders them, in words. Their values
            must have an order among them.
        checks: How columns that stay as they are are checked beside, by name.
        is_whole: Whether whole records are kept, or passed on, and so must be storable.
    """

    def __init__(
        self,
        *,
        time: str,
        keys: tuple[str, ...],
        needs: Mapping[str, Needs],
        windows: WindowFunction | None = None,
        on_error: OnError = "dead_letter",
        times: TimeFormat = PLAIN,
        ids: tuple[str, ...] = (),
        partners: PartnerBounds | None = None,
        max_ahead_us: int | None = None,
        sound_keys: tuple[str, ...] = (),
        null_keys: bool = False,
        readers: Mapping[str, str] | None = None,
        orders: Mapping[str, str] | None = None,
        checks: Mapping[str, Check] | None = None,
        is_whole: bool = False,
    ) -> None:
        if on_error not in ("dead_letter", "raise"):
            raise InvalidArgument(
                f"{describe('on_error', on_error)} is not known",
                hint='Use "dead_letter" or "raise"',
            )
        self._time = time
        self._shown_time = shown_name(time)
        self._raise = on_error == "raise"
        self._format = times
        self._max_ahead = max_ahead_us
        self._columns = {
            name: ValueAdmission(name, need, (readers or {}).get(name, AGGREGATE))
            for name, need in needs.items()
        }
        self._orders = {
            name: ValueAdmission(name, "ordered", reader) for name, reader in (orders or {}).items()
        }
        self._rest: dict[str, Check] = {
            **{name: admission.noted for name, admission in self._orders.items()},
            **(checks or {}),
        }
        self._is_whole = is_whole
        # How each column of the key, of the id and of the windows is checked.
        self._key_checks: list[tuple[str, Check]] = [
            (
                name,
                _unchanged
                if name in sound_keys
                else partial(check_key, name=shown_name(name), nulls=null_keys),
            )
            for name in keys
        ]
        self._id_checks = [(n, partial(check_key, name=shown_name(n), noun="id")) for n in ids]
        self._partners = partners
        self._bounded = windows if isinstance(windows, ColumnWindows) else None
        self._window_checks: list[tuple[str, Check]] = [
            (
                name,
                partial(gaps, name=name)
                if self._bounded is None
                else partial(window_bounds, name=name, format=times),
            )
            for name in (() if windows is None else windows.columns)
        ]
        self._seen = 0
        # What the batch at hand lacks: columns, or values of a type that they may have.
        self._lacked: dict[str, InvalidArgument] = {}
        self._absent = AbsentColumns()
        self._absent_in_steps: list[AbsentColumns] = []
        self._is_beyond_steps = False
        self._required = frozenset((time, *keys, *ids))
        self.tally = Tally()

    def with_max_ahead(self, max_ahead_us: int | None) -> Admission:
        """Return an admission with another limit; both learn the kinds of values together."""
        other = copy(self)
        other._max_ahead = max_ahead_us
        return other

    def remember(self) -> dict[str, Any]:
        """Return the state to store, as plain values."""
        return {
            **self._remember_absent(),
            "seen": self._seen,
            "tally": self.tally.remember(),
            "columns": {name: admission.remember() for name, admission in self._columns.items()},
            "orders": {name: admission.remember() for name, admission in self._orders.items()},
        }

    def resume(self, known: Mapping[str, Any]) -> None:
        """Restore the state that an earlier run stored."""
        self._seen = known["seen"]
        self.tally.resume(known.get("tally"))
        if self._seen:
            self._absent.resume(known.get("absent"))
        for stored in known.get("absent in steps", ()):
            self._absent_in_step().resume(stored)
        # Nothing is stored where no column was absent, as by versions that refused the first.
        self._is_beyond_steps = self.tally.seen > 0 and "absent in steps" not in known
        for name, learned in known["columns"].items():
            self._columns[name].resume(learned)
        for name, learned in known.get("orders", {}).items():  # earlier versions stored none
            if name in self._orders:  # or took the ids of queries to be ordered
                self._orders[name].resume(learned)

    def admit(
        self,
        records: Records,
        where: str | None = None,
        *,
        clock: int | Int64Array | None = None,
    ) -> Admitted:
        """Return valid elements as a bundle and invalid ones as dead letters. O(n).

        Args:
            records: A batch of elements.
            where: Where they come from, if the records do not know it themselves.
            clock: The clock at arrival, int microseconds, or int64, shape (n,), for each element;
                ``None``: unknown, so that no event time is too far ahead.

        Raises:
            InvalidArgument: A column is missing from all of the first records, or its type in all
                of them can never be valid. What only some of them lack is null there, and values of
                such a type are dead letters.
            DataError: A column disappeared from the stream; or a record is invalid and
                ``on_error`` is ``"raise"``.
        """
        problems = Problems()
        self._lacked = {}
        times = self._checked(records, self._time, problems, self._as_times).data
        keys = tuple([self._checked(records, n, problems, check) for n, check in self._key_checks])
        ids = tuple([self._checked(records, n, problems, check) for n, check in self._id_checks])
        values = {
            name: self._checked(records, name, problems, admission.admit)
            for name, admission in self._columns.items()
        }
        for name, check in self._window_checks:
            values[name] = self._checked(records, name, problems, check)
        if self._bounded is not None:
            low, high = self._bounded.columns
            of_both = note_too_long(self._bounded, values[low], values[high], problems)
            values[low], values[high] = of_both
        if self._partners is not None:
            checked = partial(self._checked_in, records, problems)
            values |= self._partners.admit(times, checked, problems, self._format)
        self._check_rest(records, problems)
        if self._max_ahead is not None and clock is not None:
            note_far_ahead(times, clock, self._max_ahead, problems)
        first = self._seen
        self._seen += records.length
        self._absent.note(self._lacked, records.length)
        if not problems.found:
            self.tally.count(records.length, ())
            return Admitted(Bundle(times, keys, values), None, [], ids)
        if self._raise:
            self._absent.end(self._required)  # says more than that all of them are null
            self._stop(records, problems, first, where)
        bad = problems.rows()
        admitted = self._sift(records, Bundle(times, keys, values), ids, problems, bad, where)
        self.tally.count(records.length, admitted.errors)
        return admitted

    def reject(self, errors: Sequence[ErrorRecord]) -> list[ErrorRecord]:
        """Count the records of a batch that steps have rejected; call it before :meth:`admit`.

        Args:
            errors: Their dead letters, in order.

        Raises:
            DataError: ``on_error`` is ``"raise"``.
        """
        if self._raise and errors:
            first = errors[0]
            record = repr_of(first.record)
            raise DataError(
                f"a record is invalid ({first.reason}): {first.detail}; it is {record}",
                where=first.where,
                hint='Fix it, or use on_error="dead_letter" to set such records aside',
            )
        self.tally.count(len(errors), errors)
        return list(errors)

    @property
    def time_column(self) -> str:
        """The column of event times."""
        return self._time

    def require(self, stepped: AppliedSteps) -> None:
        """Raise if a step reads a column that none of its first 1,000 records has.

        In records that lack it, it is null, as in those beside others that have it.

        Args:
            stepped: What the steps did with a batch. A step that no record reached says nothing.
        """
        while len(self._absent_in_steps) < len(stepped.missing):
            columns = self._absent_in_step()
            if self._is_beyond_steps:
                columns.resume(None)
        steps = zip(stepped.missing, stepped.counts, strict=True)
        for known, (missing, count) in zip(self._absent_in_steps, steps, strict=False):
            known.note(missing, count.taken)

    def end(self) -> None:
        """Raise ``InvalidArgument`` if no record of the whole stream had a column that is read."""
        for columns in (*self._absent_in_steps, self._absent):
            columns.end()

    def _absent_in_step(self) -> AbsentColumns:
        """Add what the next step lacks."""
        self._absent_in_steps.append(AbsentColumns())
        return self._absent_in_steps[-1]

    def _remember_absent(self) -> dict[str, Any]:
        """Return what to store of absent columns: mostly nothing, as there are none."""
        told: dict[str, Any] = {}
        if self._absent.is_open:
            told["absent"] = self._absent.remember()
        if any(columns.is_open for columns in self._absent_in_steps):
            told["absent in steps"] = [columns.remember() for columns in self._absent_in_steps]
        return told

    def _as_times(self, column: Column, problems: Problems) -> Column:
        return Column(event_times(column, self._shown_time, problems, self._format))

    def _checked(self, records: Records, name: str, problems: Problems, check: Check) -> Column:
        """Check a column; reject its values if it has a type that it cannot have (S-B1)."""
        try:
            return check(self._column(records, name), problems)
        except InvalidArgument as error:
            wrong = InvalidArgument(
                error.what, where=error.where or records.origin, hint=error.hint
            )
            if not records.length or name not in records.columns:
                raise wrong from None
            if isinstance(records.columns, ArrowColumns):  # the type is that of a source
                if not self._seen:
                    raise wrong from None
                problems.add_all(np.arange(records.length), "wrong_type", error.what)
                return Column(np.zeros(records.length, dtype=np.int64))
            self._lacked[name] = wrong
            values = Column.of_objects(records.columns[name].to_list(exact=True))
            return check(values, problems)  # each as beside values of other types

    def _checked_in(self, records: Records, problems: Problems, name: str, check: Check) -> Column:
        return self._checked(records, name, problems, check)

    def _check_rest(self, records: Records, problems: Problems) -> None:
        """Check what is kept as it is: columns that a stage reads itself, and whole records."""
        for name, check in self._rest.items():
            if name in records.columns:
                self._checked(records, name, problems, check)
            elif records.length:  # it is null in all of them, if others have it
                self._column(records, name)
        if self._is_whole and not isinstance(records.columns, ArrowColumns):
            for name, column in records.columns.items():
                if not name.startswith(HIDDEN):
                    note_unstorable(column, name, problems)

    def _column(self, records: Records, name: str) -> Column:
        column = records.columns.get(name)
        if column is None:
            hint = nearest_column(name, records.names)
            if records.length and _is_made_by_python(records):
                # S-B1: these records alone lack a field that others may have.
                self._lacked[name] = InvalidArgument(f"there is no column {name!r}", hint=hint)
                return Column.of_objects([None] * records.length)
            # Files that disagree are bad data; a column missing from the start is a wrong name.
            if self._seen and records.origin is not None:
                what = f"there is no column {name!r}, but there was in earlier records"
                raise DataError(what, where=records.origin, hint=hint)
            raise InvalidArgument(f"there is no column {name!r}", where=records.origin, hint=hint)
        return column

    def _sift(
        self,
        records: Records,
        bundle: Bundle,
        ids: tuple[Column, ...],
        problems: Problems,
        bad: Int64Array,
        where: str | None,
    ) -> Admitted:
        sound = np.ones(records.length, dtype=np.bool_)
        sound[bad] = False
        kept = np.flatnonzero(sound)
        dead_letters = records.rows(bad, exact=True)
        errors = [
            ErrorRecord(writable(record), *problems.found[row], records.place(row) or where)
            for record, row in zip(dead_letters, bad.tolist(), strict=True)
        ]
        return Admitted(bundle.take(kept), kept, errors, tuple(column.take(kept) for column in ids))

    def _stop(self, records: Records, problems: Problems, first: int, where: str | None) -> None:
        row = int(problems.rows()[0])
        reason, detail = problems.found[row]
        record = repr_of(records.row(row))
        raise DataError(
            f"record {first + row} is invalid ({reason}): {detail}; it is {record}",
            where=records.place(row) or where,
            hint='Fix the record, or use on_error="dead_letter" to set such records aside',
        )


def _unchanged(column: Column, _: Problems) -> Column:
    return column


def _is_made_by_python(records: Records) -> bool:
    """Whether some columns are no more than the fields that these records have.

    Others may be computed from them. A source in memory knows what fields any of its elements had:
    one that none had is a mistake.
    """
    if getattr(records.columns, "knows_names", False):
        return False
    every = [records.columns[name] for name in records.names]
    return not every or any(one.type is None and one.data.dtype == object for one in every)
