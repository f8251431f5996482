"""Tools to test pipelines: scenarios, assertions on panes, and a slow, obvious second engine."""

from lowwater.testing.assertions import assert_late as assert_late
from lowwater.testing.assertions import assert_panes as assert_panes
from lowwater.testing.conformance import check_state_store as check_state_store
from lowwater.testing.scenario import Scenario as Scenario
from lowwater.testing.scenario import ScenarioRun as ScenarioRun
