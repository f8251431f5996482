"""How records are cut into bundles changes nothing (J-2, S-K1, S-W7): for every operator and step.

One bundle, many bundles and bundles of one record give equal net content, equal late records and
equal dead letters, with the same advances of watermark and clock between the same records. So do
chunks of three rows inside the engine, restarts, a limit of memory, and workers.

Exempt are: how often a window fires where its trigger looks at its elements, as triggers are
evaluated once per bundle (S-O1), and with it what a trigger that finishes then drops (S-R3); hooks
of vectorised processes, which get whole bundles (S-K9); sessions of a process in order of arrival,
which merge before the records of a bundle are processed (S-K8); the windows that early panes of
sessions leave downstream (S-C3); the time of a table's group (T-3);
and the order of lists that collect from several keys of another stage (S-K1).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice
from typing import Any

import pytest

from lowwater.engine.local.health.conservation import is_strict
from tests.examples import is_campaign, sampled
from tests.property.bundled import Given, arrivals, run
from tests.property.every_operator import CASES
from tests.property.operator_parts import Case
from tests.property.small_chunks import small_chunks

WHOLE = 10**6
SHORT = [case for case in CASES.values() if case.is_short]
LARGE = [case for case in CASES.values() if case.is_large]
DURABLE: dict[str, dict[str, Any]] = {
    "restarts": {"restarts": 2},
    "memory": {"memory": 4_000},
    "memory and restarts": {"memory": 4_000, "restarts": 3},
    "workers": {"workers": 2},
    "workers and restarts": {"workers": 3, "restarts": 2},
}
IN_SMALL_CHUNKS: dict[str, dict[str, Any]] = {
    "bundles of one": {"size": 1},
    "restarts": {"size": 1, "restarts": 8},
    "memory": {"size": WHOLE, "memory": 1},
    "memory and restarts": {"size": 1, "memory": 1_000, "restarts": 8},
    "restarts amid batches": {"size": 8, "batch": WHOLE, "restarts": 2},
    "workers": {"size": WHOLE, "workers": 2},
    "workers and restarts": {"size": 1, "workers": 3, "restarts": 8},
}
"""How few records are processed, to be compared with a plain run in other bundles."""


def ways(case: Case, among: dict[str, dict[str, Any]]) -> list[str]:
    """Return how a case can be run."""
    return [how for how in among if case.has_workers or "workers" not in how]


def some(among: Sequence[Any], nth: int) -> list[Any]:
    """Return every ``nth`` of the cases; ``make nightly`` tries all of them."""
    return list(among) if is_campaign() else list(among)[::nth]


def given(case: Case, rows: int, size: int, **options: Any) -> Given:
    """Return what a case gives over a number of records in bundles of a size."""
    what = arrivals(rows, case.inputs, case.written)
    return run(case.build, what, size, content=case.content, **options)


@pytest.mark.parametrize(
    ("case", "how"),
    sampled(
        [
            pytest.param(case, how, id=f"{case}, {how}")
            for at, case in enumerate(SHORT)
            for how in islice(cycle(ways(case, IN_SMALL_CHUNKS)), at, at + 1)
        ],
        every=2,
    ),
)
def test_few_records(case: Case, how: str) -> None:
    """One by one or all at once, compared with the other in small chunks, restarts and more.

    A record that is nowhere stops a run (S-B2).
    """
    assert is_strict()
    # As many as have values of all sorts, and pass several chunks of three.
    rows = 20 if case.written == "arrow" else 36
    options = IN_SMALL_CHUNKS[how]
    expected = given(case, rows, WHOLE if options["size"] == 1 else 1)
    with small_chunks():
        expected.check_equal(given(case, rows, **options), stood="memory" not in how)


@pytest.mark.parametrize("case", some(LARGE, 8), ids=str)
def test_many_records_at_once(case: Case) -> None:
    """One advance passes more records than a chunk has; ``make long`` has more of them."""
    rows = 6_000 // case.inputs
    given(case, rows, WHOLE).check_equal(given(case, rows, 1_000))


@pytest.mark.long(reason="every operator, in every way to cut bundles")
@pytest.mark.parametrize("case", CASES.values() if is_campaign() else LARGE, ids=str)
def test_every_case_in_bundles(case: Case) -> None:
    rows = 20_000 if is_campaign() else 12_000
    whole = given(case, rows, WHOLE)
    whole.check_equal(given(case, rows, 1_000))
    if is_campaign():
        whole.check_equal(given(case, rows, 4_096))
        # A batch of a reader that the run cuts, at other places than the batches.
        whole.check_equal(given(case, rows, 700, batch=WHOLE))


@pytest.mark.long(reason="every operator, in every way to cut bundles")
@pytest.mark.parametrize("case", some(list(CASES.values()), 4), ids=str)
def test_every_case_in_small_chunks(case: Case) -> None:
    rows = 300 if is_campaign() else 120
    whole = given(case, rows, WHOLE)
    with small_chunks():
        for size in (WHOLE, 7, 1):
            whole.check_equal(given(case, rows, size))


@pytest.mark.long(reason="every operator, in every way to cut bundles")
@pytest.mark.parametrize(
    ("case", "how"),
    some(
        [
            pytest.param(case, how, id=f"{case}, {how}")
            for case in CASES.values()
            for how in ways(case, DURABLE)
        ],
        29,
    ),
)
def test_every_case_elsewhere(case: Case, how: str) -> None:
    rows = 2_000 if is_campaign() else 500
    whole = given(case, rows, WHOLE)
    whole.check_equal(given(case, rows, 190, **DURABLE[how]), stood=False)
    whole = given(case, 300, WHOLE)
    with small_chunks():
        whole.check_equal(given(case, 300, 40, **DURABLE[how]), stood=False)


@pytest.mark.long(reason="every operator, in every way to cut bundles")
@pytest.mark.parametrize("case", some(list(CASES.values()), 12), ids=str)
def test_every_record_is_a_bundle(case: Case) -> None:
    rows = 20_000 if is_campaign() else 400
    given(case, rows, WHOLE).check_equal(given(case, rows, 1))
