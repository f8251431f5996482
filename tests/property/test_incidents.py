"""A test that was made of what a run emitted passes, and fails once the engine emits otherwise."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from lowwater.engine.join.interval_join import JoinOperator
from lowwater.engine.match.measures import Measures
from lowwater.engine.process.cells import ValueState
from lowwater.engine.records.columns import Column
from lowwater.testing import Incident
from lowwater.testing._selected import Selected, Selection
from tests.examples import is_campaign
from tests.mutants.mutants import MUTANTS
from tests.property.incident_pipelines import PIPELINES, questions

RUNS, ASKED = (9, 3) if is_campaign() else (2, 1)
"""How many runs of each sort there are, and of how many windows of each a test is made."""


def run_code(code: str, pipeline: Any) -> None:
    """Run the test that a text is."""
    names: dict[str, Any] = {}
    exec(code, names)
    test = names["test_incident"]
    takes = test.__code__.co_argcount
    test(pipeline) if takes else test()


def size(taken: Selected) -> int:
    return len(taken.outputs) + len(taken.late)


@cache
def incidents(name: str) -> list[tuple[Any, Selection, Incident]]:
    """Return pipelines of a sort over random records, with what was asked, and made of it."""
    found: list[tuple[Any, Selection, Incident]] = []
    for run in range(RUNS):
        pick = random.Random(f"{name} {run}")
        pipeline = PIPELINES[name](pick)
        result = pipeline.collect(trace=True, bundle_size=pick.choice([1, 2, 5, 100]))
        outputs = result.panes if result._stage.work.emits_panes else result.elements()
        some = [
            (Selection.of(*asked, outputs, result.late), asked)
            for asked in questions(result, pick, 6)
        ]
        # Of what came out most: what shrinks to one element is changed by few bugs.
        some.sort(key=lambda one: -size(one[0].take(outputs, result.late)))
        found += [(pipeline, taken, result.scenario(*asked)) for taken, asked in some[:ASKED]]
    return found


@pytest.mark.parametrize("name", PIPELINES)
def test_each_passes_as_it_is_printed(name: str) -> None:
    """A few of each sort; ``make nightly`` makes 27."""
    for pipeline, _, incident in incidents(name):
        run_code(str(incident), pipeline)
        assert incident.outputs or incident.late
        assert len(incident.scenario.elements) <= 20  # of 60 or 120
    assert len(incidents(name)) >= 0.9 * RUNS * ASKED


def a_pair_is_emitted_twice(patch: pytest.MonkeyPatch) -> None:
    right = JoinOperator._emit

    def emit(self: Any, *pair: Any) -> None:
        right(self, *pair)
        right(self, *pair)

    patch.setattr(JoinOperator, "_emit", emit)


def a_cell_forgets(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ValueState, "get", lambda self: self._default)


def a_measure_counts_one_more(patch: pytest.MonkeyPatch) -> None:
    right = Measures.of_matches

    def of_matches(self: Any, values: Any, taken: Any) -> Any:
        found = right(self, values, taken)
        rows = found["rows"]
        return found | {"rows": Column(rows.data + 1, rows.valid, rows.type)}

    patch.setattr(Measures, "of_matches", of_matches)


BUGS: dict[str, list[Callable[[pytest.MonkeyPatch], None]]] = {
    "joined": [a_pair_is_emitted_twice],
    "process": [a_cell_forgets],
    "pattern": [a_measure_counts_one_more],
}
WINDOWED = [mutant.plant for mutant in MUTANTS if "has another value" not in mutant.name]
"""Without one that adds to a result of the name ``total``, which not all have as a number."""


@pytest.mark.parametrize("name", PIPELINES)
def test_each_fails_if_and_only_if_what_it_repeats_changes(name: str) -> None:
    """Of the planted bugs, at least one changes each kind of pipeline; most change several."""
    caught = 0
    for pipeline, asked, incident in incidents(name)[:4]:
        expected = Selected(incident.outputs, incident.late).essence
        for plant in BUGS.get(name, WINDOWED):
            with pytest.MonkeyPatch.context() as patch:
                plant(patch)
                run = incident.scenario.run_pipeline(pipeline)
                is_changed = asked.take(run.outputs, run.late).essence != expected
                try:
                    run_code(incident.code, pipeline)
                except AssertionError:
                    caught += 1
                    # A test of all that came out also fails for what came out beside it.
                    assert is_changed or len(run.outputs) > len(incident.outputs)
                else:
                    assert not is_changed
    assert caught
