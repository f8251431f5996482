"""When the epochs of a run end: when it delivers and, with a state directory, commits."""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np

from lowwater.engine.local.runner import LocalRun
from lowwater.errors import InvalidArgument, describe
from lowwater.time import duration

MOVED_S = 30.0
"""How often to commit where nothing happened but that a source moved on which is told of commits.

A source may pass what does not concern the run, and what follows it keeps that until it is told:
the log of a database, for one."""

CommitEvery: TypeAlias = int | str | dt.timedelta | np.timedelta64 | np.integer


@final
@dataclass(frozen=True, slots=True)
class CommitPolicy:
    """When to commit: after so many elements, so much time, or every bundle.

    Args:
        elements: After this many elements, if not ``None``.
        seconds: After this much time, if not ``None``.
    """

    elements: int | None
    seconds: float | None

    @classmethod
    def of(cls, value: CommitEvery) -> CommitPolicy:
        """Return the policy that ``commit_every=`` stands for.

        Raises:
            InvalidArgument: It is not ``"bundle"``, a duration, or an int of at least 1.

        >>> CommitPolicy.of("100ms") == CommitPolicy.of(dt.timedelta(milliseconds=100))
        True
        """
        if isinstance(value, str) and value == "bundle":
            return cls(1, None)
        if isinstance(value, (str, dt.timedelta, np.timedelta64)):
            try:
                micros = duration(value, name="commit_every")
            except InvalidArgument as error:
                what = f'{error.what}, nor is it "bundle"'
                raise InvalidArgument(what, where=error.where, hint=error.hint) from None
            if micros >= 0:
                return cls(None, micros / 1e6)
        elif isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value >= 1:
            return cls(int(value), None)
        raise InvalidArgument(
            f"{describe('commit_every', value)} does not say when to commit",
            hint='Use "bundle", a number of elements of at least 1, or a duration such as "1s"',
        )


@final
class CommitTimer:
    """Tells at the boundaries of bundles whether the epoch is to end.

    There is no thread: time is looked at when the run passes a boundary, which a source that is
    followed brings about even while it has nothing to read.

    Args:
        policy: When to commit.
        run: The run.
    """

    def __init__(self, policy: CommitPolicy, run: LocalRun) -> None:
        self._policy = policy
        self._run = run
        self.restart()

    def restart(self) -> None:
        """Count from here on: an epoch begins."""
        self._done = self._progress()
        self._at = time.monotonic()

    def is_due(self, *, pending: bool) -> bool:
        """Whether to end the epoch; where nothing has happened in it, see ``MOVED_S``.

        Args:
            pending: Whether something came out in this epoch.
        """
        policy, done, last = self._policy, self._progress(), self._done
        if not pending and done == last:
            is_time = time.monotonic() - self._at >= MOVED_S
            return is_time and any(reader.has_moved for reader in self._run.readers)
        if policy.elements is None:
            return time.monotonic() - self._at >= (policy.seconds or 0)
        if policy.elements == 1:
            return pending or done[1] > last[1]
        return done[0] - last[0] >= policy.elements

    def _progress(self) -> tuple[int, int]:
        """Return how many elements and bundles this run has dealt with."""
        return self._run.taken, self._run.metrics.bundles
