"""Explains runs from their traces, and finds likely mistakes in pipelines without running them."""

from lowwater.explain.difference import Difference as Difference
from lowwater.explain.difference import PaneDifference as PaneDifference
from lowwater.explain.difference import diff as diff
from lowwater.explain.disorder import DelayRow as DelayRow
from lowwater.explain.disorder import DisorderGroup as DisorderGroup
from lowwater.explain.disorder import DisorderProfile as DisorderProfile
from lowwater.explain.element import why as why
from lowwater.explain.finding import Finding as Finding
from lowwater.explain.findings import Findings as Findings
from lowwater.explain.findings import check as check
from lowwater.explain.frame import to_frame as to_frame
from lowwater.explain.lateness import LatenessProfile as LatenessProfile
from lowwater.explain.lateness import LatenessRow as LatenessRow
from lowwater.explain.lateness import lateness_profile as lateness_profile
from lowwater.explain.text import Explanation as Explanation
from lowwater.explain.window import explain as explain
