"""Streams that begin with a Spark DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from lowwater.errors import UnsupportedByRunner
from lowwater.pipeline.fluent import Stream
from lowwater.pipeline.readers import _stream
from lowwater.time import DurationLike
from lowwater.watermark import BoundedDisorder, WatermarkEstimator

if TYPE_CHECKING:
    from lowwater.spark.signals import CarriedTime


def from_spark(
    df: Any,
    *,
    time: str,
    watermark: DurationLike | WatermarkEstimator | CarriedTime | None = None,
    timezone: str | None = None,
) -> Stream:
    """Begin with a Spark DataFrame, streaming or static; end with ``to_spark(spark)``.

    Args:
        df: The DataFrame. A watermark of its own (``withWatermark``) plays no part.
        time: The column of event times.
        watermark: How the watermark is guessed: a duration stands for ``BoundedDisorder``; or
            :class:`lowwater.spark.CarriedTime`. Left out, there is none until the input
            ends.
        timezone: What times without a time zone mean, e.g. ``"UTC"``; else they are refused.
    """
    try:
        from lowwater.spark.source import spark_source
    except ImportError as error:
        raise UnsupportedByRunner(
            f"pyspark cannot be imported: {error}", hint="pip install 'lowwater[spark]'"
        ) from error
    if watermark is not None and not hasattr(watermark, "start"):
        watermark = BoundedDisorder(watermark)
    return _stream(spark_source(df), time, cast(Any, watermark), timezone, None)
