"""Outputs of real runs as Python objects are what constructors make, for every kind of stage."""

from __future__ import annotations

from typing import Any

import pytest

from lowwater.pipeline.forms import ElementForm
from tests.examples import is_campaign
from tests.property import bundled
from tests.property.bundled import arrivals, run
from tests.property.by_constructors import assert_same, made_elements, made_late, made_panes
from tests.property.every_operator import CASES
from tests.property.operator_parts import Case

SHORT = [case for case in CASES.values() if case.is_short]


@pytest.mark.parametrize("case", SHORT if is_campaign() else SHORT[::4], ids=str)
def test_outputs_are_what_constructors_make(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = 0
    add = bundled._Taken._add

    def checked(taken: Any, outcome: Any) -> None:
        nonlocal seen
        if outcome.late is not None:
            assert_same(outcome.late.to_records(), made_late(outcome.late))
            seen += len(outcome.late)
        if outcome.panes is not None:
            assert_same(list(outcome.panes), made_panes(outcome.panes))
            seen += len(outcome.panes)
        for output, batch in outcome.emitted.items():
            form = ElementForm(("k",), output)
            assert_same(list(form.items(batch)), made_elements(form, batch))
            seen += len(batch)
        add(taken, outcome)

    monkeypatch.setattr(bundled._Taken, "_add", checked)
    run(case.build, arrivals(200, case.inputs, case.written), 80, content=case.content)
    assert seen
