"""Collects the invalid rows of a batch, and counts those of a stream and the columns it lacks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, ClassVar, final

import numpy as np

from lowwater.display.text import repr_of
from lowwater.engine.records.panes import ErrorRecord
from lowwater.errors import InvalidArgument
from lowwater.time import Int64Array


@final
@dataclass(frozen=True, slots=True)
class FailedCall:
    """Stands for the event time or key of an element for which the user's function failed.

    Args:
        failure: The exception, in words.
    """

    failure: str

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # so that it is no valid key


@final
class Problems:
    """The invalid rows of a batch, each with the first reason found and a description."""

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found: dict[int, tuple[str, str]] = {}

    def add(self, row: int, reason: str, detail: str) -> None:
        """Record a row; the first reason recorded for it stays."""
        self.found.setdefault(row, (reason, detail))

    def add_all(self, rows: Int64Array, reason: str, detail: str) -> None:
        """Record many rows with the same reason."""
        for row in rows.tolist():
            self.found.setdefault(row, (reason, detail))

    def rows(self) -> Int64Array:
        """Return the rows, int64, sorted."""
        return np.array(sorted(self.found), dtype=np.int64)


@final
class AbsentColumns:
    """The columns that are read and that no record had so far: null, or mistakes.

    The first records may all lack a field that later ones have, and how many of them share a bundle
    must not matter. So a name is a mistake only if none of the first 1,000 records has it, or none
    of all that there are.
    """

    __slots__ = ("_absent", "_seen")

    def __init__(self) -> None:
        self._seen = 0
        self._absent: Mapping[str, InvalidArgument] = {}

    @property
    def is_open(self) -> bool:
        """Whether a column is still absent, so that more records matter."""
        return bool(self._absent)

    def note(self, absent: Mapping[str, InvalidArgument], length: int) -> None:
        """Count records, and what they all lack.

        Args:
            absent: What is wrong if no record ever has a column, by column.
            length: How many records there are.

        Raises:
            InvalidArgument: There were enough records, and none had a column.
        """
        if not length or (self._seen and not self._absent):
            return
        before = self._absent if self._seen else absent
        self._absent = {name: absent[name] for name in before if name in absent}
        self._seen += length
        if self._seen >= JUDGED:
            self.end()

    def end(self, names: Collection[str] | None = None) -> None:
        """Raise ``InvalidArgument`` if no more records are looked at, and none had a column.

        Args:
            names: The columns that matter; ``None`` for all.
        """
        for name, error in self._absent.items():
            if names is None or name in names:
                raise error

    def remember(self) -> list[Any]:
        """Return what to store, as plain values."""
        told = {name: [error.what, error.where, error.hint] for name, error in self._absent.items()}
        return [self._seen, told]

    def resume(self, stored: Sequence[Any] | None) -> None:
        """Restore what an earlier run stored; ``None``: its records lacked no column."""
        self._seen, told = (JUDGED, {}) if stored is None else stored
        self._absent = {
            name: InvalidArgument(what, where=where, hint=hint)
            for name, (what, where, hint) in told.items()
        }


JUDGED = 1_000
"""A stream is judged once it has had so many records, with all of the batch that reached them."""

_LONGEST_EXAMPLE = 400


@final
class Tally:
    """Counts the records of a stream and its dead letters.

    ``seen`` and ``bad`` count all of them. ``failed`` has, for each reason, the count and an
    example in words, until the tally is closed: what judges the stream closes it after a batch.
    Which rows of a batch are dead letters does not matter, because a source does not know where in
    a batch the lines were that it could not parse.
    """

    __slots__ = ("_is_open", "bad", "failed", "seen")

    def __init__(self) -> None:
        self.seen = 0
        self.bad = 0
        self.failed: dict[str, tuple[int, str]] = {}
        self._is_open = True

    @property
    def admitted(self) -> int:
        """How many records were no dead letters."""
        return self.seen - self.bad

    def count(self, length: int, errors: Sequence[ErrorRecord]) -> None:
        """Count records. O(dead letters); O(1) once the tally is closed.

        Args:
            length: How many there are, with the dead letters.
            errors: The dead letters among them, in order.
        """
        self.seen += length
        self.bad += len(errors)
        if not self._is_open:
            return
        for error in errors:
            count, example = self.failed.get(error.reason, (0, ""))
            if not count:
                example = f"{error.detail}; it is {repr_of(error.record)}"
                if len(example) > _LONGEST_EXAMPLE:
                    example = f"{example[:_LONGEST_EXAMPLE]}…"
            self.failed[error.reason] = (count + 1, example)

    def close(self) -> None:
        """Stop counting by reason: the stream was judged."""
        self._is_open = False

    def remember(self) -> dict[str, Any]:
        """Return the counts to store, as plain values."""
        failed = {reason: list(counted) for reason, counted in self.failed.items()}
        return {"seen": self.seen, "bad": self.bad, "failed": failed}

    def resume(self, known: Mapping[str, Any] | None) -> None:
        """Restore the counts that an earlier run stored; ``None``: it did not count."""
        if known is None:
            self.seen = JUDGED
            return
        failed = known["failed"].items()
        self.seen, self.bad = known["seen"], known["bad"]
        self.failed = {reason: (count, example) for reason, (count, example) in failed}


def is_nan(value: Any) -> bool:
    """Return whether a value is NaN or NaT.

    The types are checked first: ``!=`` of arbitrary objects may raise or return an array.
    """
    kind = type(value)  # what a proxy says of its class is not asked
    if issubclass(kind, Decimal):
        return bool(Decimal.is_nan(value))  # a signalling one raises where it is compared
    if not issubclass(kind, _MAY_BE_NAN):
        return False
    try:
        return bool(value != value)
    except Exception:  # a class derived from one of these
        return False


_MAY_BE_NAN = (float, np.floating, np.datetime64, np.timedelta64, datetime, timedelta)
