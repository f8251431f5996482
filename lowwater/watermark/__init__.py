"""Watermarks: how far event time is known to be complete."""

from lowwater.watermark.estimators import Ascending as Ascending
from lowwater.watermark.estimators import BoundedDisorder as BoundedDisorder
from lowwater.watermark.estimators import EstimatorState as EstimatorState
from lowwater.watermark.estimators import Holder as Holder
from lowwater.watermark.estimators import WatermarkEstimator as WatermarkEstimator
from lowwater.watermark.estimators import columns_read as columns_read
from lowwater.watermark.estimators import holder_of as holder_of
from lowwater.watermark.external import External as External
from lowwater.watermark.external import ManualWatermark as ManualWatermark
from lowwater.watermark.punctuated import Punctuated as Punctuated
from lowwater.watermark.quantile import Quantile as Quantile
from lowwater.watermark.seen import ColumnLike as ColumnLike
from lowwater.watermark.seen import Seen as Seen
