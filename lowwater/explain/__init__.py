"""Explains runs from their traces, and finds likely mistakes in pipelines without running them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowwater._on_use import on_use

if TYPE_CHECKING:
    from lowwater.engine.graph.finding import Finding as Finding
    from lowwater.explain.difference import Difference as Difference
    from lowwater.explain.difference import PaneDifference as PaneDifference
    from lowwater.explain.difference import diff as diff
    from lowwater.explain.disorder import DelayRow as DelayRow
    from lowwater.explain.disorder import DisorderGroup as DisorderGroup
    from lowwater.explain.disorder import DisorderProfile as DisorderProfile
    from lowwater.explain.element import why as why
    from lowwater.explain.findings import Findings as Findings
    from lowwater.explain.findings import check as check
    from lowwater.explain.frame import to_frame as to_frame
    from lowwater.explain.lateness import LatenessProfile as LatenessProfile
    from lowwater.explain.lateness import LatenessRow as LatenessRow
    from lowwater.explain.lateness import lateness_profile as lateness_profile
    from lowwater.explain.text import Explanation as Explanation
    from lowwater.explain.window import explain as explain

_PLACES = {
    "lowwater.explain.difference": "Difference PaneDifference diff",
    "lowwater.explain.disorder": "DelayRow DisorderGroup DisorderProfile",
    "lowwater.explain.element": "why",
    "lowwater.engine.graph.finding": "Finding",
    "lowwater.explain.findings": "Findings check",
    "lowwater.explain.frame": "to_frame",
    "lowwater.explain.lateness": "LatenessProfile LatenessRow lateness_profile",
    "lowwater.explain.text": "Explanation",
    "lowwater.explain.window": "explain",
}


if not TYPE_CHECKING:  # or a type checker would take every name to be there
    __getattr__, __dir__ = on_use(__name__, _PLACES)
