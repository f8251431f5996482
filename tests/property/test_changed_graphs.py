"""Random graphs that gain and lose sources, stages and outputs at restarts, killed at any step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import compress
from typing import Any

import hypothesis.strategies as st
from hypothesis import assume, event, given

import lowwater as lw
from lowwater.engine.graph.graph import Graph
from lowwater.engine.local.run_record import read_run
from lowwater.state.memory import MemoryContents, MemoryStore
from tests.examples import examples
from tests.property.graphs import BASE, Drawn, drawn
from tests.property.killed_runs import LastingSink, attempt, run_killed

EXAMPLES = examples(0.7)
Step = tuple[list[bool], int]
"""Which ends besides the first ones a run has, and after how many steps it dies."""


@st.composite
def cases(draw: st.DrawFn, *, kind: str = "", least: int = 2) -> Drawn:
    """Pipelines of several ends, all of whose parts have names.

    Of several runs only the clock is the same for what has nothing else in common, so it stands.
    """
    case = draw(drawn(idle=False))
    assume(len(case.ends) >= least)
    graph = Graph.of([end._stage for end in case.ends])
    for what, parts in (("source", graph.reads), ("stage", graph.stages)):
        for at, part in enumerate(parts):
            object.__setattr__(part, "name", f"{kind}{what} {'abcdefghijkl'[at]}")
    return replace(case, clock=lw.ManualClock(BASE))


def only(case: Drawn, ends: Sequence[Any]) -> Drawn:
    return replace(case, ends=tuple(ends))


@given(
    cases(),
    st.data(),
    st.sampled_from(["bundle", "bundle", 3]),
)
@EXAMPLES
def test_what_is_there_all_the_time_comes_out_as_if_nothing_had_changed(
    case: Drawn, data: st.DataObject, commit_every: Any
) -> None:
    core = case.ends[: data.draw(st.integers(1, len(case.ends) - 1))]
    others = case.ends[len(core) :]
    several = st.lists(st.booleans(), min_size=len(others), max_size=len(others))
    schedule: list[Step] = data.draw(
        st.lists(st.tuples(several, st.integers(0, 60)), min_size=1, max_size=4)
    )
    contents = MemoryContents()
    sinks: dict[Any, LastingSink] = {}
    ends: list[Any] = []

    def run(steps: int | None) -> None:
        sinks.update({end: LastingSink() for end in ends if end not in sinks})
        attempt(
            contents, only(case, ends), [sinks[end] for end in ends], steps, commit_every,
            remove=absent(case, ends), drop_undelivered=True,
        )  # fmt: skip

    for chosen, steps in schedule:
        wanted = [*core, *compress(others, chosen)]
        ends = [end for end in ends if end in wanted]
        ends += [end for end in wanted if end not in ends]
        sinks = {end: sink for end, sink in sinks.items() if end in ends}
        if is_complete(contents):
            break  # nothing new could get anything
        refusal = ""
        try:
            run(steps)
        except lw.StateError as error:
            refusal = error.what
            event("refused")
            ends = list(core)
            run(steps)
        assert not refusal or "retracts: it would get" in refusal
    ends = list(core)
    run(None)
    for end, whole in zip(core, run_killed(only(case, core), [], commit_every), strict=True):
        assert sinks[end].rows == whole.rows
        assert sinks[end].late == whole.late


def absent(case: Drawn, ends: Sequence[Any]) -> list[str]:
    """Return the names of all that a run with some of the ends does not have."""
    whole = Graph.of([end._stage for end in case.ends])
    there = Graph.of([end._stage for end in ends]).names
    outputs = {whole.name_of(end._stage) for end in case.ends}
    outputs -= {whole.name_of(end._stage) for end in ends}
    return sorted({*outputs, *(name for name in whole.names if name not in there)})


@given(
    cases(least=1), cases(kind="new ", least=1), st.integers(0, 40), st.lists(st.integers(0, 40))
)
@EXAMPLES
def test_what_is_new_with_its_sources_comes_out_whole(
    case: Drawn, new: Drawn, before: int, kills: list[int]
) -> None:
    """It begins at the start of its sources, whatever the others have done by then."""
    contents, sinks = MemoryContents(), [LastingSink() for _ in (*case.ends, *new.ends)]
    attempt(contents, case, sinks[: len(case.ends)], before, "bundle")
    assume(not is_complete(contents))
    both = only(case, [*case.ends, *new.ends])
    for steps in (*kills[:3], None):
        attempt(contents, both, sinks, steps, "bundle")
    whole = run_killed(case, [], "bundle")
    whole += run_killed(replace(new, options=case.options), [], "bundle")
    for sink, one in zip(sinks, whole, strict=True):
        assert sink.rows == one.rows


def is_complete(contents: MemoryContents) -> bool:
    """Whether a run over a store has come to its end."""
    with MemoryStore(contents) as store:
        record = read_run(store, "state")
    return record is not None and record["run"] is not None and record["run"]["ended"]
