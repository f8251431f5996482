"""The low watermark of every stage of a graph, and what holds it (S-H3).

MillWheel (Akidau et al., VLDB 2013, section 4.2) defines it as ``min(oldest work of A, low
watermark of C : C outputs to A)``. The oldest work is the earliest of the stage's queued input, its
stored state with a hold, and its output that is not delivered yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, final

from lowwater.errors import InvalidArgument, nearest
from lowwater.time import END_OF_TIME, START_OF_TIME, Instant

_ENDED = "nothing: the input has ended"


@final
@dataclass(frozen=True, slots=True)
class Hold:
    """Something that keeps a watermark from passing an instant.

    Args:
        at: The instant, int microseconds.
        what: What it is, in words: ``"key 'a', window [12:00, 12:01)"``.
    """

    at: int
    what: str


@final
@dataclass(frozen=True, slots=True)
class StageWatermark:
    """The watermarks of a stage, and what holds its output.

    Args:
        stage: The stage's name.
        input: The input watermark: no further element is expected to arrive below it.
        output: The output watermark: no further output is expected below it.
        gap_us: How far ``output`` is behind the clock, microseconds (negative: ahead of it);
            ``None`` while either is unknown, and once the input has ended.
        held_by: What holds ``output``, in words, with the name of the stage that holds it.
        due: The input watermark at which the stage emits or releases anything next, if nothing more
            arrives; ``None`` if there is nothing before the end of input. Always ``None`` of a
            source, and on Spark, which does not report it.
        due_at_clock: The same by processing time.
    """

    stage: str
    input: Instant
    output: Instant
    gap_us: int | None
    held_by: str
    due: Instant | None = None
    due_at_clock: Instant | None = None


def lowest(holds: Iterable[Hold]) -> Hold:
    """Return the earliest hold, the first of equals; the end of time if there is none."""
    return min(holds, key=lambda hold: hold.at, default=Hold(END_OF_TIME, _ENDED))


@final
class LowWatermarks:
    """The input and output watermark of each stage of a graph.

    For each stage in topological order, a run calls :meth:`enter` and, once the stage has
    processed the advance, :meth:`leave`. Then these invariants hold (S-H3):

    - no watermark goes back;
    - a stage's output watermark is at most its input watermark, and at most each of its holds;
    - its input watermark is at most the output watermark of every upstream stage, and at most its
      queued input;

    except that work which appears below a watermark (it is late) does not move the watermark back.
    ``tests/property/test_low_watermarks.py`` checks them.

    Args:
        inputs: The upstream stages of each stage; sources have none.

    Raises:
        InvalidArgument: An upstream stage does not exist, or the graph has a cycle.

    >>> low = LowWatermarks({"clicks": [], "counts": ["clicks"]})
    >>> low.enter("clicks", [Hold(60, "partition 1 is behind the others")])
    60
    >>> low.leave("clicks"), low.enter("counts")
    (60, 60)
    >>> low.leave("counts", [Hold(15, "key 'a'")])
    15
    >>> [report.held_by for report in low.report(100)]
    ['clicks: partition 1 is behind the others', "counts: key 'a'"]
    """

    def __init__(self, inputs: Mapping[str, Iterable[str]]) -> None:
        self._before = {stage: tuple(before) for stage, before in inputs.items()}
        self.stages = _in_order(self._before)
        self.reset()

    def reset(self) -> None:
        """Forget all watermarks and holds, as if nothing had been entered."""
        self._input = dict.fromkeys(self.stages, START_OF_TIME)
        self._output = dict.fromkeys(self.stages, START_OF_TIME)
        # What holds each watermark: an upstream stage (by name), or a hold of the stage itself.
        nothing = Hold(START_OF_TIME, "it has not started")
        self._holds_input: dict[str, str | Hold] = dict.fromkeys(self.stages, nothing)
        self._holds_output: dict[str, Hold | None] = dict.fromkeys(self.stages)

    def enter(self, stage: str, waiting: Iterable[Hold] = ()) -> int:
        """Advance a stage's input watermark as far as possible; return it (int microseconds).

        Args:
            stage: The stage.
            waiting: Holds of its queued input, at the elements' event times. A source needs at
                least one hold: its estimate.
        """
        before = self._before[self._known(stage)]
        own = tuple(waiting)
        if not before and not own:
            raise InvalidArgument(
                f"the source {stage!r} has no watermark",
                hint="Give its estimate as a Hold; the end of time once it has ended",
            )
        bound = lowest(own)
        holder: str | Hold = bound
        # Ties: report the first upstream stage, and prefer a stage over queued input, because
        # the stage is what the user has to look at next.
        for name in reversed(before):
            if self._output[name] <= bound.at:
                bound, holder = Hold(self._output[name], ""), name
        self._holds_input[stage] = holder
        self._input[stage] = max(self._input[stage], bound.at)
        return self._input[stage]

    def leave(self, stage: str, holds: Iterable[Hold] = ()) -> int:
        """Advance a stage's output watermark as far as possible; return it (int microseconds).

        Args:
            stage: The stage; it has already processed its input watermark.
            holds: Holds of its stored state and of output that is not delivered yet.
        """
        bound = lowest(holds)
        come = self._input[self._known(stage)]
        self._holds_output[stage] = bound if bound.at < come else None
        self._output[stage] = max(self._output[stage], min(bound.at, come))
        return self._output[stage]

    def input_of(self, stage: str) -> int:
        """Return a stage's input watermark, int microseconds."""
        return self._input[self._known(stage)]

    def output_of(self, stage: str) -> int:
        """Return a stage's output watermark, int microseconds."""
        return self._output[self._known(stage)]

    def chain(self, stage: str) -> tuple[str, ...]:
        """Return the path from this stage upstream to the one that holds its output watermark."""
        return tuple(name for name, _ in self._chain(self._known(stage)))

    def report(self, clock: int) -> list[StageWatermark]:
        """Report the watermarks of every stage, in topological order. O(stages squared) at worst.

        Args:
            clock: The clock now, int microseconds.
        """
        return [
            StageWatermark(
                stage,
                Instant(self._input[stage]),
                Instant(self._output[stage]),
                _gap(self._output[stage], clock),
                self._held_by(stage),
            )
            for stage in self.stages
        ]

    def remember(self) -> Any:
        """Return all watermarks as plain values, to be stored."""
        return {stage: [self._input[stage], self._output[stage]] for stage in self.stages}

    def resume(self, known: Mapping[str, Any]) -> None:
        """Restore the watermarks of an earlier run; ignore stages that no longer exist."""
        for stage in self.stages:
            if stage in known:
                come, gone = known[stage]
                self._input[stage] = max(self._input[stage], come)
                self._output[stage] = max(self._output[stage], gone)

    def _held_by(self, stage: str) -> str:
        chain = self._chain(stage)
        name, hold = chain[-1]
        if hold.at == END_OF_TIME:
            return _ENDED
        through = [name for name, _ in reversed(chain[1:-1])]
        return f"{name}: {hold.what}" + (f" (through {', '.join(through)})" if through else "")

    def _chain(self, stage: str) -> list[tuple[str, Hold]]:
        """Return the path upstream to the holding stage, with the hold at each step."""
        chain: list[tuple[str, Hold]] = []
        while True:
            own = self._holds_output[stage]
            holder = self._holds_input[stage] if own is None else own
            if isinstance(holder, Hold):
                return [*chain, (stage, holder)]
            chain.append((stage, Hold(self._input[stage], "")))
            stage = holder

    def _known(self, stage: str) -> str:
        if stage not in self._before:
            raise InvalidArgument(f"there is no stage {stage!r}", hint=nearest(stage, self._before))
        return stage


def _in_order(before: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the stages in topological order. O(stages + edges)."""
    after: dict[str, list[str]] = {stage: [] for stage in before}
    for stage, names in before.items():
        for name in names:
            if name not in before:
                raise InvalidArgument(
                    f"there is no stage {name!r} before {stage!r}", hint=nearest(name, before)
                )
            after[name].append(stage)
    missing = {stage: len(names) for stage, names in before.items()}
    order = [stage for stage, count in missing.items() if not count]
    for stage in order:  # Kahn's algorithm: the list grows while it is iterated
        for later in after[stage]:
            missing[later] -= 1
            if not missing[later]:
                order.append(later)
    if len(order) < len(before):
        rest = ", ".join(repr(stage) for stage in before if missing[stage])
        raise InvalidArgument(
            f"some of these stages come before themselves: {rest}",
            hint="A graph of stages has no cycles: remove one of the inputs",
        )
    return tuple(order)


def _gap(at: int, clock: int) -> int | None:
    unknown = START_OF_TIME in (at, clock) or END_OF_TIME in (at, clock)
    return None if unknown else clock - at
