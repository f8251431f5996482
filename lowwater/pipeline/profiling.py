"""Profiles the disorder of recorded data, without running a pipeline."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lowwater.engine.graph.graph import Read
from lowwater.engine.records.admission import Admission
from lowwater.engine.records.admit_times import TimeUnit, event_times
from lowwater.engine.records.keys import KeyDictionary
from lowwater.engine.records.problems import Problems
from lowwater.engine.records.stateless import require_names
from lowwater.engine.records.steps import key_values
from lowwater.errors import InvalidArgument, describe, explained
from lowwater.explain.disorder import DisorderGroup, DisorderProfile, group_of, lags_of
from lowwater.pipeline.fluent import Stream
from lowwater.pipeline.readers import from_arrow, from_frame, from_iterable, read_parquet
from lowwater.time import DurationLike, Int64Array


@explained()
def profile(
    frame: Any,
    *,
    time: str,
    arrived: str | None = None,
    by: str | Sequence[str] = (),
    delays: Sequence[DurationLike] | None = None,
    bundle_size: int = 1,
    timezone: str | None = None,
    unit: TimeUnit | None = None,
) -> DisorderProfile:
    """Measure how far out of order recorded data is, to choose a watermark without a run.

    A record is late (S-T3) if its event time is below the watermark that it meets. With
    ``BoundedDisorder(delay)`` this is the latest event time of the bundles before, less the delay.
    The profile counts exactly the records that are late in a run over the same records in the same
    bundles. A window drops fewer: a late record only if its window has expired.

    Args:
        frame: A DataFrame of any library that :func:`from_frame` reads, Arrow data, a mapping of
            column names to arrays, or the path of Parquet files.
        time: The column of event times.
        arrived: The column of the times of arrival, of the same types as event times; records are
            sorted by it, ties in their order. Without it the order of the rows is that of arrival.
        by: A column, or several, such as a partition: tells too how far out of order the records of
            each value are among themselves, as ``PerPartition`` needs it.
        delays: The watermark delays to try; by default quantiles of the disorder.
        bundle_size: The most records of a bundle, as in a run. With 1, the default, each record
            meets a watermark that all before it have advanced; with larger bundles fewer are late.
        timezone: The time zone of times that have none.
        unit: The unit of times that are plain numbers; microseconds by default.

    Raises:
        InvalidArgument: A column is missing, or an argument makes no sense.

    O(n log n) in time; holds two numbers per record.

    >>> import lowwater as lw
    >>> taps = {"at": [10, 12, 11, 20, 14], "card": ["a", "a", "a", "b", "b"]}
    >>> lw.profile(taps, time="at", unit="s", delays=["0s", "1s", "10s"])
    5 records, 2 of them (40.00 %) behind an earlier one
    lag: p50 0s, p90 6s, p99 6s, p99.9 6s, max 6s
    delay  late  share
    0s        2  40.00 %
    1s        1  20.00 %
    10s       0  0.00 %
    suggestion: watermark=BoundedDisorder('6s'): 0 late (0.00 %)
    """
    names = (by,) if isinstance(by, str) else tuple(by)
    _check(time, arrived, names, bundle_size)
    read = _read(frame, time, (*(() if arrived is None else (arrived,)), *names), timezone, unit)
    rows = _Rows(read, arrived, names, bundle_size)
    times, begins = rows.times, rows.begins
    if arrived is not None:
        order = np.argsort(rows.arrivals, kind="stable")
        times = times[order]
        rows.codes = rows.codes[order]
        begins = np.arange(len(times)) // bundle_size * bundle_size
    return DisorderProfile.of(
        lags_of(times, begins),
        invalid=rows.invalid,
        bundle_size=bundle_size,
        groups=list(rows.groups(times)) if names else (),
        delays=delays,
    )


def _check(time: object, arrived: object, by: tuple[object, ...], bundle_size: object) -> None:
    for name, column in (("time", time), ("arrived", arrived), *(("by", each) for each in by)):
        if not isinstance(column, str) and not (name == "arrived" and column is None):
            raise InvalidArgument(
                f"{describe(name, column)} is not the name of a column",
                where="profile",
                hint='Write, say, time="departed", arrived="landed"',
            )
    if isinstance(bundle_size, bool) or not isinstance(bundle_size, int) or bundle_size < 1:
        raise InvalidArgument(
            f"{describe('bundle_size', bundle_size)} must be an int of at least 1",
            where="profile",
            hint="Use 1 to judge each record individually, or the bundle_size= of the run",
        )


def _read(
    frame: Any, time: str, more: tuple[str, ...], timezone: str | None, unit: TimeUnit | None
) -> Read:
    """Return the source of the records, which has the columns."""
    stream: Stream
    if isinstance(frame, (str, os.PathLike)):
        stream = read_parquet(frame, time=time, columns=more, timezone=timezone, unit=unit)
    else:
        stream = stream_of(frame, time, timezone=timezone, unit=unit)
    read = stream._flows[0].origin
    assert isinstance(read, Read)
    schema = read.source.schema
    if schema is not None:
        require_names(more, schema.names, "profile(arrived=, by=)")
    return read


def stream_of(
    records: Any, time: str, *, timezone: str | None = None, unit: TimeUnit | None = None
) -> Stream:
    """Return recorded data as a stream.

    Args:
        records: A DataFrame, Arrow data, a mapping of column names to arrays, the path of Parquet
            files, or a list or another iterable of mappings.
        time: The column of event times.
        timezone: The time zone of times that have none.
        unit: The unit of times that are plain numbers.
    """
    if isinstance(records, (str, os.PathLike)):
        return read_parquet(records, time=time, timezone=timezone, unit=unit)
    if isinstance(records, Mapping):
        return from_arrow(_table(records), time=time, timezone=timezone, unit=unit)
    if isinstance(records, (list, tuple, Iterator)):
        return from_iterable(records, time=time, timezone=timezone, unit=unit)
    return from_frame(records, time=time, timezone=timezone, unit=unit)


def _table(columns: Mapping[Any, Any]) -> pa.Table:
    try:
        return pa.table(dict(columns))
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError) as error:
        raise InvalidArgument(
            f"the mapping is not one of column names to arrays of one length: {error}",
            where="profile",
            hint='Write, say, {"at": [...], "arrived": [...]}',
        ) from error


class _Rows:
    """The valid records in the order of the rows, as columns.

    Args:
        read: The source.
        arrived: The column of the times of arrival.
        by: The columns of the group.
        size: The most records of a bundle.

    ``begins`` is the row at which the bundle of each record begins. As in a run, each batch that
    the source delivers is split into bundles of valid records.
    """

    def __init__(self, read: Read, arrived: str | None, by: tuple[str, ...], size: int) -> None:
        self.invalid: Counter[str] = Counter()
        self._keys = KeyDictionary(len(by)) if by else None
        admission = Admission(time=read.time, keys=by, needs={}, times=read.times)
        parts: list[tuple[Int64Array, Int64Array, Int64Array, Int64Array]] = []
        count = 0
        for records in read.source.batches(size, by):
            self.invalid.update(error.reason for error in records.unreadable)
            admitted = admission.admit(records)
            self.invalid.update(error.reason for error in admitted.errors)
            times = admitted.bundle.times
            kept = np.arange(len(times)) if admitted.kept is None else admitted.kept
            came = times
            if arrived is not None:
                problems = Problems()
                came = event_times(records.columns[arrived], arrived, problems, read.times)[kept]
                bad = (
                    np.isin(kept, problems.rows()) if problems.found else np.zeros(len(kept), bool)
                )
                if bad.any():
                    self.invalid["invalid_arrival"] += int(bad.sum())
                times, came, kept = times[~bad], came[~bad], kept[~bad]
            codes = np.zeros(len(times), dtype=np.int64)
            if self._keys is not None:
                codes = self._keys.encode(tuple(key.take(kept) for key in _columns(records, by)))
            begins = np.arange(len(times)) // size * size + count
            parts.append((times, came, codes, begins))
            count += len(times)
        none = np.zeros(0, dtype=np.int64)
        self.times, self.arrivals, self.codes, self.begins = (
            np.concatenate([none, *columns])
            for columns in (zip(*parts, strict=True) if parts else ((),) * 4)
        )

    def groups(self, times: Int64Array) -> Iterator[DisorderGroup]:
        """Yield the groups of records, whose times are in order of arrival like ``codes``."""
        assert self._keys is not None
        if not len(times):
            return
        order = np.argsort(self.codes, kind="stable")
        codes, starts = np.unique(self.codes[order], return_index=True)
        names = key_values(self._keys.decode(codes))
        for name, part in zip(names, np.split(times[order], starts[1:]), strict=True):
            yield group_of(name, part)


def _columns(records: Any, names: tuple[str, ...]) -> Iterator[Any]:
    return (records.columns[name] for name in names)
