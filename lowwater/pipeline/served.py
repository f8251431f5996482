"""The option ``serve=`` of a run: opens its page when it begins, and closes it at the end."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, final

from lowwater.engine.local.health.late_line import LateTally
from lowwater.engine.local.outcomes import LateElements, Outcome
from lowwater.engine.local.progress import Observer, Observers, ProgressLine
from lowwater.engine.local.runner import LocalRun
from lowwater.engine.records.panes import ErrorRecord
from lowwater.io.terminal import say

if TYPE_CHECKING:
    from lowwater.engine.local.pieces import RunOutput
    from lowwater.engine.local.recorder import Recorder
    from lowwater.live.guard import Address
    from lowwater.live.serving import Serving
    from lowwater.live.snapshot import RunState
    from lowwater.live.watch import Watch

_LOG = logging.getLogger("lowwater.pipeline")


@final
class ServedRun:
    """The page of one run.

    ``ending`` says how the run has ended, ``written`` what it writes, and its state directory.

    Args:
        address: Where to show it; ``None``: nowhere.
        progress: The observer of the run that its options ask for.
    """

    def __init__(self, address: Address | None, progress: Observer | None) -> None:
        self._address = address
        self._serving: Serving | None = None
        self.observer = progress
        if address is not None:
            self.observer = Observers(() if progress is None else (progress,))
        self.ending: RunState = "stopped"
        self.written: tuple[Sequence[RunOutput], str | None] | None = None

    @classmethod
    def of(cls, serve: object, progress: Observer | None) -> ServedRun:
        """Return what ``serve=`` asks for.

        Raises:
            InvalidArgument: It is no address.
        """
        if serve is False or serve is None:
            return cls(None, progress)
        # Imported on use: few runs are shown.
        from lowwater.live.guard import Address

        return cls(Address.of(serve), progress)

    @property
    def is_asked_for(self) -> bool:
        """Whether the run is to be shown."""
        return self._address is not None

    def open(
        self, run: LocalRun, tally: LateTally | None, recorder: Recorder | None, workers: int
    ) -> Serving | None:
        """Listen where the run is to be shown, if it is, and say where that is.

        Raises:
            InvalidArgument: It cannot be shown there.
        """
        if self._address is None or self._serving is not None:
            return self._serving
        from lowwater.live.serving import Serving

        serving = Serving(self._address, run, tally or LateTally(), recorder, workers)
        self._serving = serving
        if self.written is not None:
            serving.writes(*self.written)
        if isinstance(self.observer, Observers):
            for observer in self.observer.all:
                if isinstance(observer, ProgressLine):
                    observer.link = serving.link
            self.observer.all.append(serving)
        say(f"lowwater: the run is shown at {serving.link}", file=sys.stderr)
        _LOG.info("the run is shown")  # without the link, which may have a token
        return serving

    def close(self, failure: BaseException | None) -> None:
        """Show how the run has ended, and end the server.

        Args:
            failure: What made it fail; ``None``: nothing.
        """
        if self._serving is not None:
            self._serving.end("failed" if failure is not None else self.ending, failure)

    def watched(
        self,
        run: LocalRun,
        recorder: Recorder | None,
        workers: int,
        late: Sequence[LateElements],
        errors: Sequence[ErrorRecord],
    ) -> Watch:
        """Return what watched a run that has ended; one that nobody watched is looked at now.

        Args:
            run: The run.
            recorder: Has recorded its trace.
            workers: The number of its worker processes.
            late: The elements that it dropped.
            errors: Its dead letters.
        """
        if self._serving is not None:
            return self._serving.watch
        from lowwater.live.watch import Watch

        tally = LateTally()
        for one in late:
            tally.add(one)
        watch = Watch(run.graph, run, tally, recorder, workers)
        watch.see(Outcome(errors=errors))
        watch.end(self.ending, None)
        return watch
