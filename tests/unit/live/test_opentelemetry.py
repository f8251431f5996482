"""OpenTelemetry: what its SDK collects from a run."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import Gauge, InMemoryMetricReader, Sum

import lowwater as lw
from lowwater.engine.graph.metrics import Metrics, StageMetrics
from lowwater.live.measures import MEASURES
from lowwater.live.opentelemetry import OpenTelemetryMetrics, _global_meter
from lowwater.time import END_OF_TIME, Instant
from lowwater.watermark import StageWatermark
from tests.unit.live.hand_made import HOSTILE


@pytest.fixture
def reader() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
def provider(reader: InMemoryMetricReader) -> MeterProvider:
    return MeterProvider([reader])


def metrics_in(reader: InMemoryMetricReader) -> dict[str, Any]:
    data = reader.get_metrics_data()
    if data is None:
        return {}
    return {
        metric.name: metric
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def values_in(reader: InMemoryMetricReader) -> dict[str, dict[frozenset[tuple[str, Any]], float]]:
    """Return the values of each metric by its attributes."""
    return {
        name: {
            frozenset((point.attributes or {}).items()): point.value
            for point in metric.data.data_points
        }
        for name, metric in metrics_in(reader).items()
    }


def labels(**attributes: str) -> frozenset[tuple[str, Any]]:
    return frozenset(attributes.items())


def counts(*, bad: bool = False) -> lw.Pipeline:
    records = [{"at": n if n % 10 or not bad else None, "shop": n % 3} for n in range(1_000)]
    delay = lw.BoundedDisorder("30s")
    orders = lw.from_iterable(records, time="at", unit="s", watermark=delay)
    return orders.key_by("shop").window(lw.FixedWindows("1m")).aggregate(n=lw.count())


def test_a_run_is_collected(provider: MeterProvider, reader: InMemoryMetricReader) -> None:
    export = OpenTelemetryMetrics(provider.get_meter("test"))
    assert values_in(reader) == {}
    result = counts(bad=True).collect(progress=export, bundle_size=100, on_error="dead_letter")
    values = values_in(reader)
    assert values["lowwater.records"] == {labels(): 1_000}
    assert values["lowwater.bundles"] == {labels(): 10}
    assert values["lowwater.invalid_records"] == {labels(): 100}
    assert values["lowwater.dead_letters"] == {labels(reason="null_time"): 100}
    panes = values["lowwater.panes"]
    assert panes[labels(stage="stage 1", timing="ON_TIME")] == result.metrics.panes["ON_TIME"]
    assert values["lowwater.run_info"] == {labels(title="source 1 → stage 1"): 1}
    assert "lowwater.watermark_lag" not in values  # it has ended
    assert "lowwater.held_by_info" not in values


def test_watermarks_are_collected_while_it_goes_on(
    provider: MeterProvider, reader: InMemoryMetricReader
) -> None:
    export = OpenTelemetryMetrics(provider.get_meter("test"))
    collected = []

    def see(metrics: Metrics) -> None:
        export(metrics)
        collected.append(values_in(reader))

    counts().collect(progress=see, bundle_size=100)
    lag = collected[1]["lowwater.watermark_lag"]
    assert lag.keys() == {labels(source="source 1"), labels(stage="stage 1")}
    assert min(lag.values()) > 0
    holders = collected[1]["lowwater.held_by_info"]
    assert holders == {labels(stage="stage 1", held_by="source 1"): 1}
    records = [values["lowwater.records"][labels()] for values in collected]
    assert records == sorted(records)


def test_instruments_have_units_and_kinds(
    provider: MeterProvider, reader: InMemoryMetricReader
) -> None:
    export = OpenTelemetryMetrics(provider.get_meter("test"))
    marks = [StageWatermark("clicks", Instant(0), Instant(0), 5_000_000, "clicks: its latest")]
    stage = StageMetrics(open_windows=4)
    export(Metrics(events=3, stages={"counts": stage}, reporter=lambda: marks))
    metrics = metrics_in(reader)
    expected = {
        f"lowwater.{of.name}" + "_info" * (of.kind == "info"): of
        for of in MEASURES
        if of.kind != "histogram"
    }
    assert metrics.keys() <= expected.keys()
    for name, metric in metrics.items():
        of = expected[name]
        assert (metric.unit, metric.description) == (of.unit, of.help)
        assert isinstance(metric.data, Sum if of.kind == "counter" else Gauge)
        if isinstance(metric.data, Sum):
            assert metric.data.is_monotonic
    assert values_in(reader)["lowwater.watermark_lag"] == {labels(source="clicks"): 5.0}
    assert values_in(reader)["lowwater.open_windows"] == {labels(stage="counts"): 4}


def test_hostile_names_and_attributes_of_the_run(
    provider: MeterProvider, reader: InMemoryMetricReader
) -> None:
    export = OpenTelemetryMetrics(provider.get_meter("test"), attributes={"run": "r1"})
    export(Metrics(stages={HOSTILE: StageMetrics(arrived=2)}))
    assert values_in(reader)["lowwater.arrived"] == {labels(stage=HOSTILE, run="r1"): 2}
    assert values_in(reader)["lowwater.records"] == {labels(run="r1"): 0}


def test_runs_of_a_process_are_told_apart_by_attributes(
    provider: MeterProvider, reader: InMemoryMetricReader
) -> None:
    first, second, again = (
        OpenTelemetryMetrics(provider.get_meter("test"), attributes={"run": name})
        for name in ("a", "b", "a")
    )
    first(Metrics(events=1))
    second(Metrics(events=2))
    assert values_in(reader)["lowwater.records"] == {labels(run="b"): 2}
    again(Metrics(events=3))
    assert values_in(reader)["lowwater.records"] == {labels(run="a"): 3, labels(run="b"): 2}


def test_without_a_meter_it_is_the_global_one(
    provider: MeterProvider, reader: InMemoryMetricReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def get_meter(name: str) -> Meter:
        asked.append(name)
        return provider.get_meter(name)

    monkeypatch.setattr("opentelemetry.metrics.get_meter", get_meter)
    _global_meter.cache_clear()
    try:
        OpenTelemetryMetrics(attributes={"run": "a"})(Metrics(events=1))
        OpenTelemetryMetrics(attributes={"run": "b"})(Metrics(events=2))
    finally:
        _global_meter.cache_clear()
    assert asked == ["lowwater"]
    assert values_in(reader)["lowwater.records"] == {labels(run="a"): 1, labels(run="b"): 2}


def test_watermarks_are_read_once_a_second_and_at_the_end(provider: MeterProvider) -> None:
    asked: list[int] = []

    def report() -> list[StageWatermark]:
        asked.append(1)
        return []

    export = OpenTelemetryMetrics(provider.get_meter("test"))
    for _ in range(50):
        export(Metrics(reporter=report))
    before = len(asked)
    assert before < 50
    export(Metrics(watermark=Instant(END_OF_TIME), reporter=report))
    assert len(asked) == before + 1


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.metrics", None)
    with pytest.raises(lw.InvalidArgument) as raised:
        OpenTelemetryMetrics()
    assert 'pip install "lowwater[otel]"' in str(raised.value)
    assert "OpenTelemetryMetrics needs opentelemetry" in str(raised.value)
