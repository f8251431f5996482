"""Beam: fixed and session windows with a combiner on its local Python runner (FnApiRunner).

The source is bounded, which is the faster of the ways this runner has: its watermark moves once,
at the end, so that no window is emitted before. The runner stays within the process.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.window import FixedWindows, Sessions, TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from benchmarks.peers.job import Answer, Timed
from benchmarks.peers.stopwatch import Stopwatch

DISTRIBUTION = "apache-beam"


def run(path: Path, windows: str) -> Timed:
    """Sum per key and window."""
    kinds = {"fixed": FixedWindows(60), "sessions": Sessions(30)}
    pipeline = beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions([]))
    metrics = beam.metrics.Metrics
    counters = [metrics.counter("sums", name) for name in ("windows", "total", "squares")]

    def count(sums: Any) -> None:
        total = sums[1]
        for counter, add in zip(counters, (1, total, total * total), strict=True):
            counter.inc(add)

    (
        pipeline
        | beam.io.ReadFromParquetBatched(str(path))
        | beam.FlatMap(_events)
        | beam.WindowInto(kinds[windows])
        | beam.CombinePerKey(sum)
        | beam.Map(count)
    )
    with Stopwatch() as watch:
        result = pipeline.run()
        result.wait_until_finish()
    found = {
        counter.key.metric.name: counter.result
        for counter in result.metrics().query(beam.metrics.MetricsFilter())["counters"]
    }
    return Timed(
        Answer(*(found[name] for name in ("windows", "total", "squares"))), watch.seconds, watch.cpu
    )


def _events(table: pa.Table) -> Iterator[Any]:
    at = table["at"].cast("int64")
    columns = (column.to_pylist() for column in (table["key"], table["value"], at))
    for key, value, instant in zip(*columns, strict=True):
        yield TimestampedValue((key, value), Timestamp(micros=instant))
