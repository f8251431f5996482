"""The test in Python that repeats what a window emitted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

from lowwater.display.text import counted
from lowwater.engine.graph.graph import Graph, Stage
from lowwater.engine.records.panes import Pane
from lowwater.engine.window.windowing import Windowing
from lowwater.explain.literals import Literals
from lowwater.testing._drive import Aggregates
from lowwater.testing._moments import show
from lowwater.testing._selected import Selected, Selection
from lowwater.testing._text import call_parts
from lowwater.testing.scenario import Scenario

_WIDTH = 96
_ONE = "    "


@final
@dataclass(frozen=True, slots=True)
class Call:
    """How the test runs its scenario.

    Args:
        code: What is called on ``scenario``, lines of code.
        imports: The lines that it needs.
        parameters: What the test is to be given.
        about: What these are, a sentence.
    """

    code: tuple[str, ...]
    imports: frozenset[str] = frozenset()
    parameters: tuple[str, ...] = ()
    about: str = ""


GIVEN = Call(
    ("run_pipeline(pipeline)",),
    parameters=("pipeline",),
    about="`pipeline` is what was run: import it, and leave the parameter out.",
)
"""Runs a pipeline of the user's that cannot be written as code."""


def imported(place: str) -> Call:
    """Return the call for a pipeline that is imported: ``module:name`` or ``module:function()``."""
    module, _, name = place.rpartition(":")
    line = f"from {module} import {name.removesuffix('()')}"
    return Call((f"run_pipeline({name})",), frozenset({line}))


def windowed(stage: Stage) -> Call | None:
    """Return the call for windows right behind a source; ``None`` if they have no code."""
    graph = Graph.of([stage])
    literals = Literals()
    if len(graph.reads) != 1 or len(graph.stages) != 1 or len(stage.keys) != 1:
        return None
    windowing = stage.windowing
    if windowing is None or not stage.work.emits_panes or stage.deduplication is not None:
        return None
    if any(flow.steps or flow.time != graph.reads[0].time for flow in stage.inputs):
        return None
    specs = {
        name: spec
        for name, spec in stage.work.aggregates.items()
        if windowing.fill is None or name != "is_filled"
    }
    how, what = _windowing(windowing, literals), _named(specs, literals)
    if how is None or what is None:
        return None
    lines = _call(f"{_ONE}.window", how) + _call(f"{_ONE}.aggregate", what)
    head = f"{_ONE}lambda records: records.key_by('key')"
    return Call(("run_pipeline(", head, *lines, ")"), frozenset(literals.imports))


def windows(windowing: Windowing, aggregate: Aggregates | None) -> Call:
    """Return the call for the windows of ``Scenario.run``."""
    literals = Literals()
    how = _windowing(windowing, literals)
    if aggregate is None:
        what: list[str] | None = []
    elif isinstance(aggregate, dict):
        named = _named(aggregate, literals, plain=False)
        what = None if named is None else [f"aggregate={{{', '.join(named)}}}"]
    else:
        code = literals.public(aggregate)
        what = None if code is None else [f"aggregate={code}"]
    if how is None or what is None:
        return Call(
            ("run_windowing(windowing, aggregate=aggregate)",),
            parameters=("windowing", "aggregate"),
            about="`windowing` is the lw.Windowing of what was run, and `aggregate` what it "
            "aggregates.",
        )
    return Call(tuple(_call("run", [*how, *what])), frozenset(literals.imports))


def program(
    scenario: Scenario,
    call: Call,
    selection: Selection,
    found: Selected,
    *,
    is_alone: tuple[bool, bool],
    before: int,
) -> str:
    """Return the test.

    Args:
        scenario: The scenario.
        call: How it is run.
        selection: What is asked about.
        found: What the scenario gives of it.
        is_alone: Whether it gives no other outputs, and no other late records.
        before: How many records there were before it was shrunk.
    """
    literals = Literals()
    literals.imports |= {"from lowwater.testing import Scenario", *call.imports}
    has_clock = any(step.at is not None for step in scenario.steps)
    body = ["scenario = (", *(_ONE + line for line in _scenario(scenario, literals)), ")"]
    head, *rest = call.code
    body += [f"run = scenario.{head}", *rest]
    emits_panes = not found.outputs or isinstance(found.outputs[0], Pane)
    if found.outputs:
        name = "panes" if emits_panes else "elements"
        checked = "run" if is_alone[0] else selection.filter(f"run.{name}", literals)
        fields, rows = _expected(found.outputs, literals, has_clock=has_clock)
        body += _assertion(f"assert_{name}", checked, fields, rows)
        literals.imports.add(f"from lowwater.testing import assert_{name}")
    if found.late:
        checked = "run" if is_alone[1] else selection.filter("run.late", literals, time="time")
        rows = [
            f"({show(one.time)!r}, {_window(one.window)}, {one.reason!r})" for one in found.late
        ]
        body += _assertion("assert_late", checked, ("time", "window", "reason"), rows)
        literals.imports.add("from lowwater.testing import assert_late")
    what = counted(len(scenario.elements), "element")
    comments = [f"# {selection}: {what} of the {before:,} that arrived."]
    comments += [f"# {call.about}"] if call.about else []
    return "\n".join(
        [
            *_import_lines(literals.imports),
            "",
            "",
            *comments,
            f"def test_incident({', '.join(call.parameters)}):",
            *(_ONE + line for line in body),
            "",
        ]
    )


def _import_lines(lines: Iterable[str]) -> list[str]:
    """Return import lines in the usual order, with one for each module."""
    names: dict[str, set[str]] = {}
    whole: set[str] = set()
    for line in lines:
        if line.startswith("from "):
            module, name = line.removeprefix("from ").split(" import ")
            names.setdefault(module, set()).add(name)
        else:
            whole.add(line)
    froms = {
        module: f"from {module} import {', '.join(sorted(some))}" for module, some in names.items()
    }
    std = [line for line in sorted(whole) if "lowwater" not in line]
    std += [froms.pop(name) for name in ("decimal", "uuid") if name in froms]
    own = [line for line in sorted(whole) if "lowwater" in line]
    own.append(froms.pop("lowwater.testing"))
    groups = [std, own, sorted(froms.values())]
    return "\n\n".join("\n".join(group) for group in groups if group).split("\n")


def _scenario(scenario: Scenario, literals: Literals) -> list[str]:
    first, *steps = call_parts(scenario, literals.value)
    default = f"start={show(Scenario().start)!r}"
    head = first[0], [argument for argument in first[1] if argument != default]
    return [line for name, arguments in (head, *steps) for line in _call(name, arguments)]


def _call(name: str, arguments: Sequence[str]) -> list[str]:
    """Return a call on one line if it is short, else with a line for each argument."""
    line = f"{name}({', '.join(arguments)})"
    if len(line) + 2 * len(_ONE) <= _WIDTH or not arguments:
        return [line]
    indent = name[: len(name) - len(name.lstrip())]
    return [f"{name}(", *(f"{indent}{_ONE}{one}," for one in arguments), f"{indent})"]


def _assertion(name: str, checked: str, fields: Sequence[str], rows: Sequence[str]) -> list[str]:
    expected = [f"[{', '.join(rows)}]"]
    if len(rows) > 1 or len(expected[0]) > _WIDTH - 3 * len(_ONE):
        expected = ["[", *(f"{_ONE}{row}," for row in rows), "]"]
    expected[-1] += ","
    names = ", ".join(map(repr, fields))
    return [
        f"{name}(",
        f"{_ONE}{checked},",
        *(_ONE + line for line in expected),
        f"{_ONE}fields=({names}),",
        ")",
    ]


def _expected(
    outputs: Sequence[Any], literals: Literals, *, has_clock: bool
) -> tuple[tuple[str, ...], list[str]]:
    """Return the fields to compare, and the expected tuples as code."""
    kinds = ("kind",) if any(one.kind != "insert" for one in outputs) else ()
    if not isinstance(outputs[0], Pane):
        fields: tuple[str, ...] = ("timestamp", "key", "value", *kinds)
    else:
        value = "value" if all(len(one.values) == 1 for one in outputs) else "values"
        clock = ("emitted_at",) if has_clock else ()
        fields = (*clock, "window", value, "timing", "index", *kinds)
    rows = [
        f"({', '.join(_field(name, getattr(one, name), literals) for name in fields)})"
        for one in outputs
    ]
    return fields, rows


def _field(name: str, value: Any, literals: Literals) -> str:
    if name in ("emitted_at", "timestamp"):
        return repr(show(value))
    return _window(value) if name == "window" else literals.value(value)


def _window(window: Any) -> str:
    return "None" if window is None else f"({show(window.start)!r}, {show(window.end)!r})"


def _windowing(windowing: Windowing, literals: Literals) -> list[str] | None:
    """Return the arguments of ``window(...)``, the windows first."""
    code = literals.public(windowing)
    if code is None:
        return None
    return literals.arguments(code)


def _named(specs: Any, literals: Literals, *, plain: bool = True) -> list[str] | None:
    """Return aggregates as keyword arguments, or as items of a dict."""
    found = []
    for name, spec in specs.items():
        code = literals.public(spec)
        if code is None or (plain and not name.isidentifier()):
            return None
        found.append(f"{name}={code}" if plain else f"{name!r}: {code}")
    return found
