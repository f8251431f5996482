"""Watermarks: how far event time is known to be complete."""

from lowwater.watermark.estimators import Ascending as Ascending
from lowwater.watermark.estimators import BoundedDisorder as BoundedDisorder
from lowwater.watermark.estimators import EstimatorState as EstimatorState
from lowwater.watermark.estimators import ManualWatermark as ManualWatermark
from lowwater.watermark.estimators import WatermarkEstimator as WatermarkEstimator
