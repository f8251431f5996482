"""Watermarks: how far event time is known to be complete."""

from lowwater.watermark.estimators import Ascending as Ascending
from lowwater.watermark.estimators import BoundedDisorder as BoundedDisorder
from lowwater.watermark.estimators import EstimatorState as EstimatorState
from lowwater.watermark.estimators import Holder as Holder
from lowwater.watermark.estimators import Telling as Telling
from lowwater.watermark.estimators import WatermarkEstimator as WatermarkEstimator
from lowwater.watermark.estimators import announce_partitions as announce_partitions
from lowwater.watermark.estimators import columns_read as columns_read
from lowwater.watermark.estimators import count_silence as count_silence
from lowwater.watermark.estimators import excuse_silence as excuse_silence
from lowwater.watermark.estimators import holder_of as holder_of
from lowwater.watermark.estimators import telling as telling
from lowwater.watermark.external import External as External
from lowwater.watermark.external import ManualWatermark as ManualWatermark
from lowwater.watermark.finished import FinishedFiles as FinishedFiles
from lowwater.watermark.limits import too_far_ahead as too_far_ahead
from lowwater.watermark.limits import which_may_read as which_may_read
from lowwater.watermark.low import Hold as Hold
from lowwater.watermark.low import LowWatermarks as LowWatermarks
from lowwater.watermark.low import StageWatermark as StageWatermark
from lowwater.watermark.observed import ColumnLike as ColumnLike
from lowwater.watermark.observed import Observed as Observed
from lowwater.watermark.partitions import PerPartition as PerPartition
from lowwater.watermark.punctuated import Punctuated as Punctuated
from lowwater.watermark.quantile import Quantile as Quantile
