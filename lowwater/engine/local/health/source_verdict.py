"""Judges the records of a run: whether many of them, or all, are dead letters.

The counts are those of the sources and of the stages' admissions, which a state directory stores.
A run that resumes continues with the stored counts, and does not judge again what was judged
before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, final

from lowwater.engine.local.health.dead_letter_fixes import fix_for
from lowwater.engine.local.source_reader import SourceReader
from lowwater.engine.local.stage_input import StageAdmission
from lowwater.engine.records.problems import JUDGED, Tally
from lowwater.errors import DataError, DataWarning, warn

_PER_CENT = 1
_IGNORE = 'Or run with on_error="dead_letter" to set them aside'
_EMPTY = ", so the result would be empty"

_Failed: TypeAlias = Mapping[str, tuple[int, str]]


@final
class RunVerdict:
    """Judges each source and each input of a stage, once it had 1,000 records or has ended.

    All records that were read until then count. More than 1 % of dead letters among them give a
    ``DataWarning``. A ``DataError`` stops the run only if its output would be empty: all that its
    sources delivered until they were judged are dead letters, for one reason each.

    Args:
        readers: The readers of the sources.
        between: The inputs of downstream stages, by the number of the stage that they read.
        sources: The names of the sources.
        stages: The names of the stages.
        is_judged: Whether dead letters are judged: not if the user said how to handle them.
        place: Where to find the dead letters, as a sentence.
    """

    def __init__(
        self,
        readers: Sequence[SourceReader],
        between: Iterable[Sequence[StageAdmission]],
        *,
        sources: Sequence[str],
        stages: Sequence[str],
        is_judged: bool,
        place: str,
    ) -> None:
        self._is_judged = is_judged
        self._sources = {
            reader: _SourceVerdict(reader, name, stages, place)
            for reader, name in zip(readers, sources, strict=True)
        }
        self._between = [
            [
                _StreamVerdict(entry.admission.tally, f"{name} → {stages[entry.stage]}", place)
                for entry in entries
            ]
            for name, entries in zip(stages, between, strict=True)
        ]

    def resume(self) -> None:
        """Close what an earlier run has judged; call it once the counts are restored."""
        for source in self._sources.values():
            source.resume()
        for stream in self._streams_between():
            stream.resume()

    def judge_source(self, reader: SourceReader, *, quiet: bool = False) -> None:
        """Judge a source, if it is time; O(1) otherwise. Call it between batches only.

        Args:
            reader: Its reader.
            quiet: Whether an earlier run has judged the batch already.

        Raises:
            DataError: Nothing of any source was admitted.
        """
        if not self._is_judged:
            return
        source = self._sources[reader]
        if source.is_settled:
            return
        # A source that nothing was read of yet may well be sound, so the error waits for it.
        if source.close():
            is_empty = not any(one.is_open or one.admitted for one in self._sources.values())
            errors = (one.error for one in self._sources.values() if one.error is not None)
            error = next(errors, None) if is_empty and not quiet else None
            if error is not None:
                raise error
            source.warn(quiet=quiet, effect=_EMPTY if is_empty and reader.ended else "")
        source.warn_of_stages(quiet=quiet)

    def judge_output(self, stage: int) -> None:
        """Judge the inputs that read a stage, if it is time; O(inputs)."""
        if self._is_judged:
            for stream in self._between[stage]:
                stream.warn(ended=False)

    def judge_rest(self) -> None:
        """Judge what is left when the input has ended and all output was emitted."""
        if self._is_judged:
            for stream in self._streams_between():
                stream.warn(ended=True)

    def _streams_between(self) -> Iterable[_StreamVerdict]:
        return (stream for streams in self._between for stream in streams)


@final
class _SourceVerdict:
    """Judges one source, and what each stage reads of it."""

    def __init__(self, reader: SourceReader, name: str, stages: Sequence[str], place: str) -> None:
        self._reader = reader
        self._name = name
        self._place = place
        self._shared, per_stage = reader.tallies()
        self._per_stage = [tally for _, tally in per_stage]
        alone = len(per_stage) == 1
        self._streams = [
            _StreamVerdict(tally, name if alone else f"{name} → {stages[stage]}", place)
            for stage, tally in per_stage
        ]
        # A single stage's dead letters count with those in front of it: together they may be many.
        self._counted = [*self._shared, *self._per_stage] if alone else self._shared
        self._alone = alone
        self._is_warned_about = False
        # Whether nothing is left to judge, of the source or of what stages read of it.
        self.is_settled = False
        self.is_open = True
        self.error: DataError | None = None

    @property
    def admitted(self) -> int:
        """How many records the stages that read the source have admitted."""
        return sum(tally.admitted for tally in self._per_stage)

    def resume(self) -> None:
        if self._reader.ended or self._reader.tally.seen >= JUDGED:
            self._close()
        for stream in self._streams:
            stream.resume()

    def close(self) -> bool:
        """Decide on the source if it is time; return whether this was the time."""
        if not self.is_open or not (self._reader.ended or self._reader.tally.seen >= JUDGED):
            return False
        self._close()
        delivered = self._reader.tally.seen
        tallies = [*self._shared, *self._per_stage]
        bad = sum(tally.bad for tally in tallies)
        failed = _merged(tallies)
        if not self.admitted and bad >= delivered and len(failed) == 1:
            ((reason, (_, example)),) = failed.items()
            self.error = DataError(
                f"{_all(delivered, ended=self._reader.ended)} ({reason}){_EMPTY}; "
                f"the first: {example}",
                where=self._name,
                hint=f"{fix_for(reason, example, self._reader.read.time)}. {_IGNORE}",
            )
        return True

    def warn(self, *, quiet: bool, effect: str) -> None:
        """Warn of the source if it was closed just now and too many are dead letters."""
        if quiet or self._is_warned_about:
            self._is_warned_about = True
            return
        bad = sum(tally.bad for tally in self._counted)
        seen = self._reader.tally.seen
        if self._alone:  # a flat_map may give a stage more records than there were
            seen = max(seen, sum(tally.bad for tally in self._shared) + self._per_stage[0].seen)
        self._is_warned_about = _warn_of_many(
            _merged(self._counted), bad, seen, ended=self._reader.ended, where=self._name,
            place=self._place, effect=effect, time=self._reader.read.time,
        )  # fmt: skip

    def warn_of_stages(self, *, quiet: bool) -> None:
        """Warn of what stages read of the source, where it is time."""
        for stream in self._streams:
            known = quiet or (self._alone and self._is_warned_about)
            if stream.warn(ended=self._reader.ended, quiet=known):
                self._is_warned_about |= self._alone
        self.is_settled = not (self.is_open or any(stream.is_open for stream in self._streams))

    def _close(self) -> None:
        self.is_open = False
        for tally in self._shared:
            tally.close()


@final
class _StreamVerdict:
    """Judges what one stage reads of one source or stage."""

    def __init__(self, tally: Tally, where: str, place: str) -> None:
        self._tally = tally
        self._where = where
        self._place = place
        self.is_open = True

    def resume(self) -> None:
        if self._tally.seen >= JUDGED:
            self.is_open = False
            self._tally.close()

    def warn(self, *, ended: bool, quiet: bool = False) -> bool:
        """Warn of many dead letters if it is time; return whether it did."""
        tally = self._tally
        if not self.is_open or not (ended or tally.seen >= JUDGED):
            return False
        self.is_open = False
        tally.close()
        return not quiet and _warn_of_many(
            tally.failed, tally.bad, tally.seen, ended=ended and tally.seen < JUDGED,
            where=self._where, place=self._place,
            effect="" if tally.admitted else ", so this stage has nothing to work on",
        )  # fmt: skip


def _warn_of_many(
    failed: _Failed,
    bad: int,
    seen: int,
    *,
    ended: bool,
    where: str,
    place: str,
    effect: str,
    time: str = "",
) -> bool:
    """Warn if more than 1 % of the records are dead letters; return whether they are."""
    if bad * 100 <= seen * _PER_CENT or not failed:
        return False
    reason = max(failed, key=lambda name: failed[name][0])
    count, example = failed[reason]
    which = f"{seen:,}" if ended else f"the first {seen:,}"
    if bad == seen == 1:
        what = f"{_all(seen, ended=ended)} ({reason}){effect}: {example}"
    else:
        what = (
            f"{bad:,} of {which} records are dead letters, {count:,} of them {reason}{effect}; "
            f"the first of these: {example}"
        )
    warn(DataWarning, what, where=where, hint=f"{fix_for(reason, example, time)}. {place}")
    return True


def _merged(tallies: Iterable[Tally]) -> _Failed:
    """Add up counts by reason; the first example of each stays."""
    found: dict[str, tuple[int, str]] = {}
    for tally in tallies:
        for reason, (count, example) in tally.failed.items():
            before, first = found.get(reason, (0, example))
            found[reason] = (before + count, first)
    return found


def _all(records: int, *, ended: bool) -> str:
    if records == 1:
        return "the only record is a dead letter" if ended else "the first record is a dead letter"
    return (
        f"all {records:,} records are dead letters"
        if ended
        else (f"all of the first {records:,} records are dead letters")
    )
