"""Exports the measures of a run through OpenTelemetry."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, final
from weakref import WeakKeyDictionary

from lowwater.engine.graph.metrics import Metrics
from lowwater.errors import load_extra
from lowwater.live.measures import MEASURES, Distribution, Measure
from lowwater.live.snapshot import (
    PartSnapshot,
    Snapshot,
    add_counts,
    marks_by_name,
    source_part,
    without_run,
)
from lowwater.time import END_OF_TIME
from lowwater.watermark import StageWatermark

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation

_EVERY_S = 1.0
_SHARE = 50
"""Reading the watermarks may take a fiftieth of the time of a run."""
# Metrics do not say how a run ended or whether it has workers.
_UNKNOWN = ("run_state", "workers")


@final
class OpenTelemetryMetrics:
    """Exports a run through OpenTelemetry: ``run(progress=OpenTelemetryMetrics())``.

    The names are those of ``/metrics`` in OpenTelemetry's form: ``lowwater.watermark_lag`` with the
    unit ``s`` arrives in Prometheus as ``lowwater_watermark_lag_seconds``. Commits, outputs, idle
    sources, workers and the state of the run are not exported: only ``serve=`` measures them.

    Counters include what is not committed yet. So after a crash a durable run counts the records
    that it repeats a second time, unlike ``/metrics``. Needs ``pip install "lowwater[otel]"``.

    Args:
        meter: Where to register the instruments; ``None``: the meter ``lowwater`` of the global
            meter provider.
        attributes: Attributes of every measure, to tell the runs of a process apart. Of two objects
            with the same meter and attributes, the newer one replaces the older.

    Raises:
        InvalidArgument: OpenTelemetry is not installed.
    """

    def __init__(
        self, meter: Meter | None = None, *, attributes: Mapping[str, str] | None = None
    ) -> None:
        load_extra("opentelemetry.metrics", extra="otel", purpose="OpenTelemetryMetrics")
        self._attributes = {} if attributes is None else dict(attributes)
        self._began = time.time()
        self._next = float("-inf")
        self._marks: list[StageWatermark] = []
        # The run's thread replaces it and never changes it, so the exporter's needs no lock.
        self._snapshot: Snapshot | None = None
        _instruments_of(_global_meter() if meter is None else meter).add(self)

    def __call__(self, metrics: Metrics) -> None:
        """Keep the metrics of the run, after a bundle, for the next export."""
        now = time.monotonic()
        # Watermarks take O(windows), so not after every bundle; but always after the last one.
        if now >= self._next or metrics.watermark == END_OF_TIME:
            self._marks = metrics.watermarks()
            after = time.monotonic()
            self._next = after + max(_EVERY_S, _SHARE * (after - now))
        self._snapshot = _snapshot_of(metrics, self._marks, self._began)


@final
class _Instruments:
    """The instruments of a meter, which all runs share.

    A meter ignores the callbacks of a second instrument with the same name.
    """

    def __init__(self, meter: Meter) -> None:
        self._runs: dict[frozenset[tuple[str, str]], OpenTelemetryMetrics] = {}
        for measure in MEASURES:
            if measure.kind == "histogram" or measure.name in _UNKNOWN:
                continue
            name = f"lowwater.{measure.name}" + ("_info" if measure.kind == "info" else "")
            create = (
                meter.create_observable_counter
                if measure.kind == "counter"
                else meter.create_observable_gauge
            )
            create(name, [self._observer(measure)], measure.unit, measure.help)

    def add(self, run: OpenTelemetryMetrics) -> None:
        # Kept after the run has ended: its last values may be exported later.
        self._runs[frozenset(run._attributes.items())] = run

    def _observer(self, measure: Measure) -> Callable[[CallbackOptions], Iterable[Observation]]:
        from opentelemetry.metrics import Observation

        def observe(_options: CallbackOptions) -> Iterable[Observation]:
            for run in tuple(self._runs.values()):
                if run._snapshot is None:
                    continue
                for labels, value in measure.samples(run._snapshot):
                    assert not isinstance(value, Distribution)
                    pairs = zip(measure.labels, labels, strict=True)
                    attributes = {name: label for name, label in pairs if label}
                    yield Observation(value, {**run._attributes, **attributes})

        return observe


_INSTRUMENTS: WeakKeyDictionary[Meter, _Instruments] = WeakKeyDictionary()


def _instruments_of(meter: Meter) -> _Instruments:
    if meter not in _INSTRUMENTS:
        _INSTRUMENTS[meter] = _Instruments(meter)
    return _INSTRUMENTS[meter]


@cache
def _global_meter() -> Meter:
    """Return one meter, also before there is a provider: each call would make another proxy."""
    from opentelemetry.metrics import get_meter

    return get_meter("lowwater")


def _snapshot_of(metrics: Metrics, marks: list[StageWatermark], began: float) -> Snapshot:
    """Return a snapshot with what metrics tell of a run, and nothing else."""
    by_name = marks_by_name(marks)
    parts: list[PartSnapshot] = [
        source_part(name, "", mark) for name, mark in by_name.items() if name not in metrics.stages
    ]
    for name, stage in metrics.stages.items():
        part = source_part(name, "", by_name.get(name))
        part["kind"] = "stage"
        add_counts(part, stage)
        parts.append(part)
    ends = [part["name"] for part in (*parts[:1], *parts[-1:])]
    title = " → ".join(ends)
    return without_run(title, metrics, parts, began=began, elapsed=metrics.elapsed)
