"""Every record is somewhere (S-B2): every operator and step conserves, in every kind of run.

A run compares what arrived with what became of it, at each boundary, commit, restart and at the
end, and raises; here it does so for every case of ``every_operator``. With few records it does in
``test_bundles_change_nothing``.
"""

from __future__ import annotations

from typing import Any

import pytest

from lowwater.engine.local.health.conservation import is_strict
from tests.examples import is_campaign
from tests.property.bundled import arrivals, run
from tests.property.every_operator import CASES
from tests.property.operator_parts import Case

KINDS: dict[str, dict[str, Any]] = {
    "in memory": {},
    "restarted": {"restarts": 2},
    "in little memory": {"memory": 1_000, "restarts": 5},
    "in workers": {"workers": 3},
    "restarted amid batches": {"batch": 60, "restarts": 3},
}
EVERY = [(case, kind) for case in CASES.values() for kind in KINDS]


@pytest.mark.long(reason="every operator, in every way to cut bundles")
@pytest.mark.parametrize(
    ("case", "kind"), EVERY if is_campaign() else EVERY[:: 3 * len(KINDS) + 1], ids=str
)
def test_every_case_in_every_kind_of_run(case: Case, kind: str) -> None:
    assert is_strict()
    rows = 2_000 if is_campaign() else 500
    options = {"batch": rows // 5, **KINDS[kind]}
    what = arrivals(rows, case.inputs, case.written)
    run(case.build, what, rows // 5, content=case.content, **options)
