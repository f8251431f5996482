"""Laws of the model that users can check on their own pipelines.

Each law runs a pipeline on a scenario, once or several times. If the law is broken it raises
``AssertionError`` with the differences, a scenario that reproduces them, and a timeline. A pipeline
to which the law does not apply is refused with ``InvalidArgument``.
"""

from lowwater.testing.laws.arrival import check_batch_equal as check_batch_equal
from lowwater.testing.laws.arrival import check_bundle_insensitive as check_bundle_insensitive
from lowwater.testing.laws.arrival import check_order_insensitive as check_order_insensitive
from lowwater.testing.laws.combiners import check_merge_associative as check_merge_associative
from lowwater.testing.laws.equal_batch import check_match_equal_batch as check_match_equal_batch
from lowwater.testing.laws.equal_batch import check_over_equal_batch as check_over_equal_batch
from lowwater.testing.laws.labels import check_pane_labels as check_pane_labels
from lowwater.testing.laws.loss import check_no_loss as check_no_loss
from lowwater.testing.laws.retractions import (
    check_retractions_telescope as check_retractions_telescope,
)
