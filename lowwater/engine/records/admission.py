"""The gate before a window operator: records become a sound bundle and dead letters (S-B1)."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, final

import numpy as np
import pyarrow as pa

from lowwater.engine.records.admit_times import event_times, gaps, note_far_ahead
from lowwater.engine.records.admit_values import Needs, ValueAdmission
from lowwater.engine.records.batch import Records as Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.panes import ErrorRecord
from lowwater.engine.records.problems import Problems, is_nan
from lowwater.engine.records.steps import Bundle
from lowwater.errors import DataError, InvalidArgument, describe, nearest
from lowwater.time import Int64Array

OnError: TypeAlias = Literal["dead_letter", "raise"]


@final
@dataclass(frozen=True, slots=True)
class Admitted:
    """What became of a batch of records.

    Args:
        bundle: The sound elements, in their order.
        kept: Index of each among the records, int64; ``None`` when all were kept.
        errors: The others, in their order.
        ids: The columns of record ids of the sound elements, if there are any.
    """

    bundle: Bundle
    kept: Int64Array | None
    errors: list[ErrorRecord]
    ids: tuple[Column, ...] = ()


@final
class Admission:
    """Turns records into bundles, one stream of them after another (S-B1).

    What becomes of a record does not depend on how the stream is cut into batches: all that is
    remembered is the kind of values a column has shown.

    Args:
        time: Name of the column of event times.
        keys: Names of the key columns.
        needs: What kind of values each aggregated column must have.
        durations: Names of columns that hold a duration per element (the gaps of sessions).
        on_error: Whether an unusable record is a dead letter or stops the stream.
        timezone: What event times without a time zone mean (an IANA name); they are refused
            without it.
        ids: Names of the columns of record ids, which must not be null either.
        max_ahead_us: How far ahead of the clock an event time may be, microseconds; those further
            ahead are unusable and do not move the watermark. ``None``: any distance.
        sound_keys: Key columns that are known to hold nothing but what can be a key.
    """

    def __init__(
        self,
        *,
        time: str,
        keys: tuple[str, ...],
        needs: Mapping[str, Needs],
        durations: tuple[str, ...] = (),
        on_error: OnError = "dead_letter",
        timezone: str | None = None,
        ids: tuple[str, ...] = (),
        max_ahead_us: int | None = None,
        sound_keys: tuple[str, ...] = (),
    ) -> None:
        if on_error not in ("dead_letter", "raise"):
            raise InvalidArgument(
                f"{describe('on_error', on_error)} is not known",
                hint='Use "dead_letter" or "raise"',
            )
        self._time = time
        self._keys = keys
        self._ids = ids
        self._durations = durations
        self._raise = on_error == "raise"
        self._timezone = timezone
        self._max_ahead = max_ahead_us
        self._columns = {name: ValueAdmission(name, need) for name, need in needs.items()}
        self._sound_keys = frozenset(sound_keys)
        self._seen = 0

    def remember(self) -> dict[str, Any]:
        """Return what it has learned of the stream so far, as plain values."""
        return {
            "seen": self._seen,
            "columns": {name: admission.remember() for name, admission in self._columns.items()},
        }

    def resume(self, known: Mapping[str, Any]) -> None:
        """Take up what another run's gate had learned."""
        self._seen = known["seen"]
        for name, learned in known["columns"].items():
            self._columns[name].resume(learned)

    def admit(
        self,
        records: Records,
        where: str | None = None,
        *,
        clock: int | Int64Array | None = None,
    ) -> Admitted:
        """Return the sound elements as a bundle, and the others as dead letters. O(n).

        Args:
            records: A batch of elements.
            where: Where they come from, if the records do not know it themselves.
            clock: The clock when they came, int microseconds, or int64, shape (n,), for each;
                ``None``: it is not known, and nothing is judged to be too far ahead of it.

        Raises:
            InvalidArgument: A column is missing, or of a type that can never do.
            DataError: A column is missing that was there before; or a record is unusable and
                ``on_error`` is ``"raise"``.
        """
        problems = Problems()
        times = event_times(self._column(records, self._time), self._time, self._timezone, problems)
        keys = tuple(self._key(records, name, problems) for name in self._keys)
        ids = tuple(check_key(self._column(records, k), k, problems, "id") for k in self._ids)
        values = {
            name: admission.admit(self._column(records, name), problems)
            for name, admission in self._columns.items()
        }
        for name in self._durations:
            values[name] = gaps(self._column(records, name), name, problems)
        if self._max_ahead is not None and clock is not None:
            note_far_ahead(times, clock, self._max_ahead, problems)
        first = self._seen
        self._seen += records.length
        if not problems.found:
            return Admitted(Bundle(times, keys, values), None, [], ids)
        if self._raise:
            self._stop(records, problems, first, where)
        return self._sift(records, Bundle(times, keys, values), ids, problems, where)

    def _key(self, records: Records, name: str, problems: Problems) -> Column:
        column = self._column(records, name)
        return column if name in self._sound_keys else check_key(column, name, problems)

    def _column(self, records: Records, name: str) -> Column:
        column = records.columns.get(name)
        if column is None:
            hint = nearest(name, records.names)
            if self._seen and records.origin is not None:  # it was in the files before
                what = f"there is no column {name!r} any more"
                raise DataError(what, where=records.origin, hint=hint)
            raise InvalidArgument(f"there is no column {name!r}", where=records.origin, hint=hint)
        return column

    def _sift(
        self,
        records: Records,
        bundle: Bundle,
        ids: tuple[Column, ...],
        problems: Problems,
        where: str | None,
    ) -> Admitted:
        bad = problems.rows()
        sound = np.ones(records.length, dtype=np.bool_)
        sound[bad] = False
        kept = np.flatnonzero(sound)
        letters = records.rows(bad)
        errors = [
            ErrorRecord(record, *problems.found[row], records.place(row) or where)
            for record, row in zip(letters, bad.tolist(), strict=True)
        ]
        return Admitted(bundle.take(kept), kept, errors, tuple(column.take(kept) for column in ids))

    def _stop(self, records: Records, problems: Problems, first: int, where: str | None) -> None:
        row = int(problems.rows()[0])
        reason, detail = problems.found[row]
        raise DataError(
            f"record {first + row} is invalid ({reason}): {detail}; it is {records.row(row)!r}",
            where=records.place(row) or where,
            hint='Fix the record, or use on_error="dead_letter" to set such records aside',
        )


_SOUND = frozenset({str, int, bytes, bool, dt.date, dt.datetime, dt.timedelta})


def check_key(column: Column, name: str, problems: Problems, noun: str = "key") -> Column:
    """Note the rows whose key is null, NaN or cannot be hashed; return the column as it is.

    Strings stay in Arrow's hands, dictionary-encoded or not. ``noun`` is what messages call it.

    Raises:
        InvalidArgument: The column's type can never be a key.
    """
    array = column.arrow
    if array is None and column.data.dtype == object:
        _check_objects(column.data.tolist(), name, problems, noun)
        return column
    kind = column.type
    if kind is not None:
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if pa.types.is_nested(kind):
            raise InvalidArgument(
                f"the {noun} column {name!r} is {kind}, which cannot be {_a(noun)}",
                hint="Use a column of plain values, such as integers or strings",
            )
        if pa.types.is_floating(kind):
            _check_floats(column, name, problems, noun)
    elif column.data.dtype == np.float64:
        _check_floats(column, name, problems, noun)
    _check_nulls(column, name, problems, noun)
    return column


def _check_nulls(column: Column, name: str, problems: Problems, noun: str) -> None:
    array = column.arrow
    reason, detail = f"null_{noun}", f"the {noun} {name!r} is null"
    if array is None:
        if column.valid is not None:
            problems.add_all(np.flatnonzero(~column.valid), reason, detail)
        return
    nested_null = pa.types.is_dictionary(array.type) and array.dictionary.null_count
    if array.null_count or nested_null:
        plain = array.dictionary_decode() if nested_null else array
        rows = np.flatnonzero(plain.is_null().to_numpy(zero_copy_only=False))
        problems.add_all(rows, reason, detail)


def _check_floats(column: Column, name: str, problems: Problems, noun: str) -> None:
    data = column.data
    if data.size and math.isnan(data.min()):
        rows = np.flatnonzero(np.isnan(data))
        problems.add_all(rows, f"null_{noun}", f"the {noun} {name!r} is NaN")


def _check_objects(values: list[Any], name: str, problems: Problems, noun: str) -> None:
    if set(map(type, values)) <= _SOUND:
        return
    for row, value in enumerate(values):
        if type(value) in _SOUND:
            continue
        if value is None:
            problems.add(row, f"null_{noun}", f"the {noun} {name!r} is null")
        elif is_nan(value):
            problems.add(row, f"null_{noun}", f"the {noun} {name!r} is {value!r}")
        else:
            try:
                hash(value)
            except TypeError:
                problems.add(row, "wrong_type", f"{describe(name, value)} cannot be {_a(noun)}")


def _a(noun: str) -> str:
    return f"an {noun}" if noun == "id" else f"a {noun}"
