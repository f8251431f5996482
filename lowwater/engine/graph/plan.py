"""A pipeline of one source and one windowed stage: what a runner can take that knows no graphs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.aggregates._base import strictest_needs
from lowwater.engine.graph.graph import Computed, Flow, Read, Stage, Windowed
from lowwater.engine.graph.sources import Source
from lowwater.engine.records.admission import Admission, OnError
from lowwater.engine.records.deduplicate import Deduplication
from lowwater.engine.records.stateless import Filter, Step
from lowwater.engine.window.windowing import Windowing
from lowwater.errors import UnsupportedByRunner
from lowwater.watermark import WatermarkEstimator


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """One keyed stage, ready to run: a value that holds no state.

    Args:
        source: Where records come from.
        steps: What becomes of them before they are grouped.
        time: The column of event times.
        timezone: What times without a time zone mean.
        keys: The key columns.
        key_names: What panes call these.
        windowing: Windows, trigger and the rest.
        aggregates: What panes show, by name.
        watermark: How the watermark is guessed; ``None``: there is none until the input ends.
        deduplication: Which records are duplicates, before they are grouped; ``None``: none are.
        max_ahead_us: How far beyond the clock an event time may be; ``None``: as far as it likes.
    """

    source: Source
    steps: tuple[Step, ...]
    time: str
    timezone: str | None
    keys: tuple[str, ...]
    key_names: tuple[str, ...]
    windowing: Windowing
    aggregates: Mapping[str, AggregateSpec]
    watermark: WatermarkEstimator | None
    deduplication: Deduplication | None = None
    max_ahead_us: int | None = None

    @classmethod
    def of(cls, stage: Stage, runner: str) -> Plan:
        """Return the plan of a stage that is all there is to its pipeline.

        Args:
            stage: The stage.
            runner: What cannot run anything else, for the message.

        Raises:
            UnsupportedByRunner: There is more to it.
        """
        flow, *others = stage.inputs
        origin, work = flow.origin, stage.work
        if others or not isinstance(origin, Read) or not isinstance(work, Windowed):
            what = "a union" if others else "a stage behind another stage"
            if not isinstance(work, Windowed):
                what = "process()"
            raise UnsupportedByRunner(
                f"{runner} cannot run {what}",
                hint="Run the pipeline embedded, or write the panes of its first windowed stage "
                "to files or a table there, and read these with a pipeline of their own",
            )
        return cls(
            source=origin.source,
            steps=flow.steps,
            time=flow.time,
            timezone=flow.timezone,
            keys=stage.keys,
            key_names=stage.key_names,
            windowing=work.windowing,
            aggregates=work.aggregates,
            watermark=origin.watermark,
            deduplication=stage.deduplication,
            max_ahead_us=origin.max_ahead_us,
        )

    def admission(self, on_error: OnError, max_ahead_us: int | None = None) -> Admission:
        """Return the gate before the window operator."""
        return _admission(
            self.time, self.timezone, self.keys, Windowed(self.windowing, self.aggregates),
            self.deduplication, on_error, max_ahead_us,
        )  # fmt: skip


def admission_of(
    flow: Flow, stage: Stage, on_error: OnError, max_ahead_us: int | None = None
) -> Admission:
    """Return the gate before a stage, which knows what the stage can take.

    Args:
        flow: What comes through it.
        stage: The stage.
        on_error: What becomes of unusable records.
        max_ahead_us: How far beyond the clock an event time may be, in microseconds.
    """
    return _admission(
        flow.time, flow.timezone, stage.keys, stage.work, stage.deduplication, on_error,
        max_ahead_us, _sound_keys(flow),
    )  # fmt: skip


def _sound_keys(flow: Flow) -> tuple[str, ...]:
    """Return columns that were keys before, and that no step has touched: they can be keys."""
    origin = flow.origin
    if not isinstance(origin, Stage) or not isinstance(origin.work, Windowed):
        return ()
    return origin.key_names if all(isinstance(step, Filter) for step in flow.steps) else ()


def _admission(
    time: str,
    timezone: str | None,
    keys: tuple[str, ...],
    work: Windowed | Computed,
    deduplication: Deduplication | None,
    on_error: OnError,
    max_ahead_us: int | None,
    sound_keys: tuple[str, ...] = (),
) -> Admission:
    durations = () if work.windowing is None else work.windowing.windows.columns
    needs = strictest_needs(work.aggregates) if isinstance(work, Windowed) else {}
    return Admission(
        time=time,
        keys=keys,
        needs={name: need for name, need in needs.items() if name not in durations},
        durations=durations,
        on_error=on_error,
        timezone=timezone,
        ids=() if deduplication is None else deduplication.columns,
        max_ahead_us=max_ahead_us,
        sound_keys=sound_keys,
    )
