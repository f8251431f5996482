"""The cases of ``every_operator`` use every operator and step that the package has."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from functools import cache
from itertools import product
from types import ModuleType
from typing import Any, get_args

import pytest

import lowwater
from lowwater.engine import aggregates
from lowwater.engine.aggregates import filled, ranked_specs
from lowwater.engine.aggregates.specs import BuiltIn
from lowwater.engine.graph.graph import Stage
from lowwater.engine.process.cells import CELLS
from lowwater.engine.process.declarations import Cell, Timer
from lowwater.engine.stages.computed import Computed
from lowwater.triggers import Trigger
from tests.property.bundled import graph_of
from tests.property.every_operator import CASES
from tests.property.small_chunks import CHUNKS, KEPT, chunks_in_the_package
from tests.stage_kinds import every_kind


@cache
def stages() -> dict[str, tuple[Stage, ...]]:
    """Return the stages of each case."""
    return {name: graph_of(case.build, case.inputs).stages for name, case in CASES.items()}


def every_stage() -> Iterator[Stage]:
    for some in stages().values():
        yield from some


@cache
def modules() -> list[ModuleType]:
    """Return the modules of the engine, of windows and of triggers."""
    return [
        importlib.import_module(each.name)
        for room in ("engine", "windows", "triggers")
        for each in pkgutil.walk_packages([f"{lowwater.__path__[0]}/{room}"], f"lowwater.{room}.")
    ]


def classes() -> Iterator[type]:
    for module in modules():
        for _, each in inspect.getmembers(module, inspect.isclass):
            if each.__module__ == module.__name__:
                yield each


def test_every_kind_of_stage_has_a_case() -> None:
    assert {type(stage.work) for stage in every_stage()} == every_kind()
    assert any(stage.deduplication is not None for stage in every_stage())


def test_every_step_has_a_case() -> None:
    used = {type(step) for stage in every_stage() for flow in stage.inputs for step in flow.steps}
    known = {
        each
        for each in classes()
        if {"vectorised", "apply"} <= set(dir(each)) and not getattr(each, "_is_protocol", False)
    }
    assert len(known) > 8
    assert used == known


def test_every_aggregate_has_a_case() -> None:
    used = {
        spec.name
        for stage in every_stage()
        for spec in stage.work.aggregates.values()
        if isinstance(spec, BuiltIn)
    }
    known = {
        name
        for module in (aggregates, ranked_specs, filled)
        for name, each in inspect.getmembers(module, inspect.isfunction)
        if inspect.signature(each).return_annotation == "BuiltIn" and not name.startswith("_")
    }
    assert len(known) > 15
    assert used == known


def test_every_window_function_has_a_case() -> None:
    used = {type(s.windowing.windows) for s in every_stage() if s.windowing is not None}
    known = {
        each
        for each in classes()
        if each.__module__.startswith("lowwater.windows")
        and {"assign", "merge_scope"} <= set(dir(each))
        and not getattr(each, "_is_protocol", False)
    }
    assert used == known


def test_every_trigger_has_a_case() -> None:
    used: set[type] = set()

    def look(trigger: Any) -> None:
        used.add(type(trigger))
        for name in getattr(trigger, "__slots__", ()):
            part = getattr(trigger, name)
            for each in part if isinstance(part, tuple) else (part,):
                if type(each) in get_args(Trigger):
                    look(each)

    for stage in every_stage():
        if stage.windowing is not None:
            look(stage.windowing.trigger)
    assert used == set(get_args(Trigger))


def test_every_cell_and_timer_has_a_case() -> None:
    processes = [
        type(stage.work.process) for stage in every_stage() if isinstance(stage.work, Computed)
    ]
    declared = [each for process in processes for each in vars(process).values()]
    assert {each.kind for each in declared if isinstance(each, Cell)} == set(CELLS)
    assert {each.domain for each in declared if isinstance(each, Timer)} == {"event", "processing"}
    hooks = {name for process in processes for name in dir(process) if name.startswith("on_")}
    assert hooks == {
        "on_record", "on_timer", "on_window_expired", "on_end",
        "on_records", "on_timers", "on_windows_expired", "on_keys_end",
    }  # fmt: skip
    orders = {stage.work.order for stage in every_stage() if isinstance(stage.work, Computed)}
    assert orders == {"arrival", "event_time"}


@pytest.mark.parametrize("of", ["joining", "how"])
def test_every_join_has_a_case(of: str) -> None:
    from lowwater.engine.join.joining import (
        AS_OF_HOWS,
        DIRECTIONS,
        HOWS,
        UNMATCHED,
        AsOf,
        Joining,
    )
    from lowwater.engine.stages.window_joined import WindowJoined

    works = [stage.work for stage in every_stage()]
    if of == "how":
        within = {work.how for work in works if isinstance(work, WindowJoined)}
        assert within == set(HOWS)
        return
    rules = [work.join_rules for work in works if work.join_rules is not None]
    by_time = {
        (rule.how, rule.unmatched)
        for rule in rules
        if isinstance(rule, Joining) and rule.within is not None
    }
    alone = {how for how in HOWS if how not in ("inner", "semi")}
    assert {(how, unmatched) for how in alone for unmatched in UNMATCHED} <= by_time
    tables = {rule.how for rule in rules if isinstance(rule, Joining) and rule.within is None}
    assert tables == set(HOWS)
    histories = [rule for rule in rules if isinstance(rule, AsOf)]
    assert {rule.how for rule in histories} == set(AS_OF_HOWS)
    ways = {(rule.direction, rule.allow_equal, rule.retracts) for rule in histories}
    assert ways == set(product(DIRECTIONS, (True, False), (True, False)))


def test_every_chunk_is_made_small_or_has_a_reason_not_to_be() -> None:
    small = {f"{module}: {name}" for module, names in CHUNKS.items() for name in names}
    assert small | set(KEPT) == chunks_in_the_package()
