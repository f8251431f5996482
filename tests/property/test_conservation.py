"""Every record is somewhere (S-B2): every operator and step conserves, in every kind of run.

A run compares what arrived with what became of it, at each boundary, commit, restart and at the
end, and raises; here it does so for every case of ``every_operator``.
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
SHORT = [case for case in CASES.values() if case.is_short]


def conserves(case: Case, kind: str, rows: int, size: int) -> None:
    assert is_strict()
    options = {"batch": size, **KINDS[kind]}
    run(
        case.build, arrivals(rows, case.inputs, case.written), size, content=case.content, **options
    )


@pytest.mark.parametrize(
    ("case", "kind"),
    [(case, list(KINDS)[at % len(KINDS)]) for at, case in enumerate(SHORT)],
    ids=str,
)
def test_each_case_in_one_kind_of_run(case: Case, kind: str) -> None:
    conserves(case, kind, 60, 20)


EVERY = [(case, kind) for case in CASES.values() for kind in KINDS]


@pytest.mark.long
@pytest.mark.parametrize(
    ("case", "kind"), EVERY if is_campaign() else EVERY[:: 3 * len(KINDS) + 1], ids=str
)
def test_every_case_in_every_kind_of_run(case: Case, kind: str) -> None:
    rows = 2_000 if is_campaign() else 500
    conserves(case, kind, rows, rows // 5)
