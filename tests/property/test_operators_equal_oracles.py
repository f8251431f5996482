"""Operators emit at each step what their scalar oracles emit, however their state is kept."""

from __future__ import annotations

from contextlib import nullcontext

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.examples import examples
from tests.oracles.over_rows import Row
from tests.property import counted_runs, match_runs, over_runs, search_runs, top_runs
from tests.property.driven_joins import colliding
from tests.property.driven_over import Case
from tests.property.small_chunks import small_chunks
from tests.property.stepped import Run, check

RUNS = {
    "counted": counted_runs.runs(),
    "match": match_runs.runs(),
    "over": over_runs.runs(),
    "search": search_runs.runs(),
    "top": top_runs.runs(),
}
SUBJECTS = pytest.mark.parametrize("subject", RUNS)
_SOME = pytest.mark.slow(reason="an operator beside its oracle, with 80 to 200 examples")
_MORE = pytest.mark.long(reason="as many examples as found faults that were planted")


def amounts(some: int, more: int) -> pytest.MarkDecorator:
    """Have a property tried with some examples in ``make test``, and with more in ``make long``."""
    return pytest.mark.parametrize(
        "amount", [pytest.param(some, marks=_SOME), pytest.param(more, marks=_MORE)]
    )


@SUBJECTS
@amounts(20, 60)
def test_each_step_emits_what_the_oracle_emits(subject: str, amount: int) -> None:
    @given(RUNS[subject], st.sampled_from([None, None, 1, 3]))
    @examples(amount)
    def compare(run: Run, chunk: int | None) -> None:
        with nullcontext() if chunk is None else small_chunks(chunk):
            check(run)

    compare()


@SUBJECTS
@amounts(8, 20)
def test_state_comes_back_from_a_store(subject: str, amount: int) -> None:
    @given(RUNS[subject], st.sampled_from([1, 4]))
    @examples(amount)
    def compare(run: Run, groups: int) -> None:
        check(run, groups)

    compare()


@SUBJECTS
@pytest.mark.long(reason="each step is made twice, and what is stored is read")
def test_state_leaves_memory(subject: str) -> None:
    @given(RUNS[subject], st.sampled_from([0, 0, 1500]))
    @examples(20)
    def compare(run: Run, memory: int) -> None:
        with colliding():
            check(run, 4, spills=True, memory=memory)

    compare()


@pytest.mark.parametrize("spills", [False, True])
def test_of_two_equal_rows_one_may_get_the_result_of_the_other(spills: bool) -> None:
    rows = [Row(1, time, {"v": "z", "n": 0, "f": None, "o": 0}) for time in (15, 15, 12)]
    steps = [[rows[0]], [rows[1]], 16, [rows[2]]]
    check(over_runs.run_of(Case(rows=3, lateness=20), steps), 4, spills=spills)
