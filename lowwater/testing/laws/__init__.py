"""Laws of the model that users can check on their own pipelines.

Each takes a pipeline and a scenario, runs the pipeline on it one or several times, and raises
``AssertionError`` with what differs, a scenario that shows it again, and a timeline. A pipeline
that a law does not apply to is refused with ``InvalidArgument``.
"""

from lowwater.testing.laws.arrival import check_batch_equal as check_batch_equal
from lowwater.testing.laws.arrival import check_bundle_insensitive as check_bundle_insensitive
from lowwater.testing.laws.arrival import check_order_insensitive as check_order_insensitive
from lowwater.testing.laws.combiners import check_merge_associative as check_merge_associative
from lowwater.testing.laws.labels import check_pane_labels as check_pane_labels
from lowwater.testing.laws.loss import check_no_loss as check_no_loss
from lowwater.testing.laws.retractions import (
    check_retractions_telescope as check_retractions_telescope,
)
