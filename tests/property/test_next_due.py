"""Before the watermark at which a stage says that anything is due, an advance does nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lowwater.engine.local.outcomes import Outcome
from lowwater.engine.local.stage_run import StageRun
from lowwater.time import END_OF_TIME
from tests.property.bundled import arrivals, run
from tests.property.every_operator import CASES
from tests.property.operator_parts import Case

SHORT = [case for case in CASES.values() if case.is_short]
KINDS: tuple[dict[str, Any], ...] = ({}, {"memory": 1_000, "restarts": 5}, {"workers": 3})


@pytest.mark.parametrize(
    ("case", "options"),
    [(case, KINDS[at % len(KINDS)]) for at, case in enumerate(SHORT)],
    ids=lambda given: "" if isinstance(given, dict) else str(given),
)
def test_nothing_happens_before_it(
    case: Case, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    advance = StageRun.advance
    idle = busy = 0

    def watched(self: StageRun, to: int) -> Iterator[Outcome]:
        nonlocal idle, busy
        operator = self.operator
        due, rows = operator.next_due(), operator.state_rows
        is_early = to < due and not operator.is_advancing
        assert due == END_OF_TIME or rows
        outcomes = list(advance(self, to))
        if is_early:
            idle += 1
            assert not any(_holds_anything(outcome) for outcome in outcomes)
            assert operator.state_rows == rows
        else:
            busy += 1
        yield from outcomes

    monkeypatch.setattr(StageRun, "advance", watched)
    run(case.build, arrivals(120, case.inputs, case.written), 20, content=case.content, **options)
    assert idle + busy


def _holds_anything(outcome: Outcome) -> bool:
    return bool(outcome.outputs) or bool(outcome.errors) or outcome.late is not None
