"""Runs without a state directory: outputs are delivered as they come out, and nothing is stored."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import final

from lowwater.engine.local.commit_policy import CommitPolicy, CommitTimer
from lowwater.engine.local.delivery import Delivery, Writer
from lowwater.engine.local.outcomes import Outcome
from lowwater.engine.local.pieces import Pieces, RunOutput, opened
from lowwater.engine.local.runner import LocalRun


@final
class DirectRun:
    """One run of a pipeline that delivers in the same epochs and pieces as a durable run.

    Full pieces are delivered at once, the rest of an epoch at its end: so what waits in memory is
    what came out since the last epoch, at most about a piece for each output. Nothing is committed:
    ``on_commit`` is never called.

    Args:
        run: The run.
        outputs: Where panes leave it.
        every: When to end an epoch.
    """

    def __init__(self, run: LocalRun, outputs: Sequence[RunOutput], every: CommitPolicy) -> None:
        self._run = run
        self.outputs = outputs
        self._every = every
        self.on_commit: Callable[[int, float, int], None] | None = None

    def deliveries(self, outcomes: Iterator[Outcome]) -> Generator[Delivery, None, None]:
        """Run to the end; yield what has been delivered to the sinks.

        Args:
            outcomes: The run's own outcomes, perhaps after callbacks have seen them.
        """
        pieces = Pieces(self.outputs)
        writer = Writer(id=uuid.uuid4().hex, output=0, resumes=False, opening=uuid.uuid4().hex)
        with opened(self.outputs, writer) as sinks:
            timer = CommitTimer(self._every, self._run)
            epoch, pending = 1, False
            pieces.begin(epoch)
            for outcome in outcomes:
                sinks.check_process()
                if not outcome.boundary:
                    pending = True
                    yield from self._deliver(pieces.add(outcome))
                    continue
                sinks.publish_due()
                if pieces.is_cut or timer.is_due(pending=pending):
                    yield from self._deliver(pieces.rest())
                    epoch, pending = epoch + 1, False
                    pieces.begin(epoch)
                    timer.restart()
            yield from self._deliver(pieces.rest())
            sinks.complete = self._run.ended

    def _deliver(self, deliveries: Iterator[Delivery]) -> Iterator[Delivery]:
        for delivery in deliveries:
            for sink in self.outputs[delivery.output].sinks:
                sink.deliver(delivery)
            yield delivery
