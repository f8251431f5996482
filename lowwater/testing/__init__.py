"""Tools to test pipelines: scenarios, assertions on panes, laws, and a slow, obvious second engine.

The strategies for Hypothesis are in :mod:`lowwater.testing.strategies`, which needs the ``testing``
extra.
"""

from lowwater.testing.assertions import assert_elements as assert_elements
from lowwater.testing.assertions import assert_late as assert_late
from lowwater.testing.assertions import assert_panes as assert_panes
from lowwater.testing.conformance import check_state_store as check_state_store
from lowwater.testing.incidents import Incident as Incident
from lowwater.testing.incidents import incident as incident
from lowwater.testing.laws import check_batch_equal as check_batch_equal
from lowwater.testing.laws import check_bundle_insensitive as check_bundle_insensitive
from lowwater.testing.laws import check_match_equal_batch as check_match_equal_batch
from lowwater.testing.laws import check_merge_associative as check_merge_associative
from lowwater.testing.laws import check_no_loss as check_no_loss
from lowwater.testing.laws import check_order_insensitive as check_order_insensitive
from lowwater.testing.laws import check_over_equal_batch as check_over_equal_batch
from lowwater.testing.laws import check_pane_labels as check_pane_labels
from lowwater.testing.laws import check_retractions_telescope as check_retractions_telescope
from lowwater.testing.orders import rebundled as rebundled
from lowwater.testing.orders import reordered as reordered
from lowwater.testing.orders import waiting as waiting
from lowwater.testing.pipeline_run import PipelineRun as PipelineRun
from lowwater.testing.pipeline_run import StepRun as StepRun
from lowwater.testing.recordings import recorded as recorded
from lowwater.testing.replay import replay as replay
from lowwater.testing.runner_kit import check_runner as check_runner
from lowwater.testing.runner_kit import runner_cases as runner_cases
from lowwater.testing.scenario import Scenario as Scenario
from lowwater.testing.scenario import ScenarioRun as ScenarioRun
from lowwater.testing.sink_kit import check_sink as check_sink
from lowwater.testing.source_kit import check_source as check_source
from lowwater.testing.trigger_kit import check_trigger as check_trigger
from lowwater.testing.window_kit import check_window_function as check_window_function
