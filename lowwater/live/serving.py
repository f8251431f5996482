"""Shows one run from its beginning to its end: watches it, and serves what is seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, final

from lowwater.engine.graph.metrics import Metrics
from lowwater.engine.local.health.late_line import LateTally
from lowwater.engine.local.runner import LocalRun
from lowwater.live.guard import Address
from lowwater.live.questions import RunQuestions
from lowwater.live.server import PageServer
from lowwater.live.snapshot import RunState
from lowwater.live.watch import Watch

if TYPE_CHECKING:
    from lowwater.engine.local.pieces import RunOutput
    from lowwater.engine.local.recorder import Recorder
    from lowwater.io.paths import PathLike


@final
class Serving:
    """Serves a run that has not begun; an observer of it.

    It listens at once, so that the link is known, and answers from the first bundle on: worker
    processes are forked before, and threads must not run then.

    Args:
        address: Where to listen.
        local: The run.
        tally: Counts the late records of the run.
        recorder: Records its trace; ``None``: there is none.
        workers: The number of its worker processes.

    Raises:
        InvalidArgument: It cannot listen there.
    """

    def __init__(
        self,
        address: Address,
        local: LocalRun,
        tally: LateTally,
        recorder: Recorder | None,
        workers: int,
    ) -> None:
        self.watch = Watch(local.graph, local, tally, recorder, workers)
        self._questions = RunQuestions(self.watch)
        self._server = PageServer(address, self.watch.feed, self._questions)
        self._waits_for_workers = workers > 0
        self._is_closed = False

    @property
    def link(self) -> str:
        """The link to the page."""
        return self._server.link

    def writes(self, outputs: Sequence[RunOutput], state: str | None) -> None:
        """Take the outputs of the run, and its state directory, if it has one."""
        self.watch.writes(outputs, state)

    def begin(self) -> None:
        """Note that the run begins."""
        self.watch.begin()
        if not self._waits_for_workers:
            self._server.start()

    def __call__(self, metrics: Metrics) -> None:
        """Handle the end of a bundle, or of a poll without one."""
        if self._waits_for_workers:
            self._waits_for_workers = False
            self._server.start()
        self.watch(metrics)

    def end(self, state: RunState, error: BaseException | None = None) -> None:
        """Show how the run has ended, and stop serving."""
        if not self._is_closed:
            self._is_closed = True
            try:
                self.watch.end(state, error)
            finally:
                self._server.close()

    def report(self, path: PathLike) -> None:
        """Write the page as it is now to a file; see :func:`lowwater.live.report.write_report`."""
        # Imported on use: few runs are reported.
        from lowwater.live.report import write_report

        write_report(self.watch, path, where="RunHandle.report")

    def close(self) -> None:
        """Do nothing: how the run has ended is known later, and told to :meth:`end`."""
