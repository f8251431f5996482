"""Scenarios as text: Python, a Markdown table, YAML. Each reads back to an equal scenario."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, assert_never

from lowwater.errors import InvalidArgument, describe, load_extra
from lowwater.testing._arrivals import (
    Add,
    Arrivals,
    ClockMove,
    InputEnd,
    ScenarioElement,
    Step,
    WatermarkMove,
)
from lowwater.testing._moments import readable, show
from lowwater.time import Instant

ArrivalsT = TypeVar("ArrivalsT", bound=Arrivals)

_HEAD = ("at", "watermark", "value", "time", "key")
_INPUT = "input"  # a column in front of them, of scenarios that name their inputs
_SAME = "."
_END = "end"


# -- Python -------------------------------------------------------------------------------------


def to_code(scenario: Arrivals) -> str:
    """Return the expression that builds the scenario."""
    return "".join(calls_of(scenario))


def calls_of(scenario: Arrivals) -> list[str]:
    """Return the calls of the expression that builds the scenario: the first one, and each step."""
    return [f"{name}({', '.join(arguments)})" for name, arguments in call_parts(scenario)]


def call_parts(
    scenario: Arrivals, written: Callable[[Any], str] = repr
) -> Iterator[tuple[str, list[str]]]:
    """Yield what each call is to, and its arguments as code.

    Args:
        scenario: The scenario.
        written: Returns a value as code.
    """
    start, mark = show(scenario.start), show(scenario.watermark_at_start)
    given = [f"start={start!r}", *([f"watermark={mark!r}"] if mark != "-inf" else [])]
    yield "Scenario", [*map(repr, scenario.inputs), *given]
    for step in scenario.steps:
        name, arguments = _parts(step)
        texts = list(map(written, arguments))
        if step.at is not None and name != "clock":
            texts.append(f"at={show(step.at)!r}")
        if isinstance(step, Add) and step.watermark is not None:
            texts.append(f"watermark={show(step.watermark)!r}")
        texts += [f"{argument}={of!r}" for argument, of in _input_of(step).items()]
        yield f".{name}", texts


def _input_of(step: Step) -> dict[str, str]:
    """Return the argument that names the input of a step, if it names one."""
    match step:
        case Add(of=str(name)):
            return {"to": name}
        case WatermarkMove(of=str(name)) | InputEnd(of=str(name)):
            return {"of": name}
        case Add() | WatermarkMove() | ClockMove() | InputEnd():
            return {}
        case _:
            assert_never(step)


def _parts(step: Step) -> tuple[str, list[Any]]:
    match step:
        case Add(elements):
            return "add", [element.parts for element in elements]
        case WatermarkMove(to):
            return "watermark", [show(to)]
        case ClockMove(at):
            return "clock", [show(at)]
        case InputEnd():
            return _END, []
        case _:
            assert_never(step)


# -- Markdown -----------------------------------------------------------------------------------


def to_markdown(scenario: Arrivals) -> str:
    """Return a table of which the first row says where clock and watermark stand at first."""
    more = tuple(dict.fromkeys(name for e in scenario.elements for name in e.columns))
    head = (*_HEAD, *more)
    rows = [[str(show(scenario.start)), str(show(scenario.watermark_at_start))]]
    named = [", ".join(scenario.inputs)]
    for step in scenario.steps:
        parts = list(_step_rows(step, more))
        named += ["".join(_input_of(step).values()), *[""] * (len(parts) - 1)]
        rows.extend(parts)
    if scenario.inputs:
        head = (_INPUT, *head)
        rows = [[name, *row] for name, row in zip(named, rows, strict=True)]
    body = [[*row, *[""] * (len(head) - len(row))] for row in rows]
    widths = [max(len(row[at]) for row in (head, *body)) for at in range(len(head))]
    rule = ["-" * width for width in widths]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in (head, rule, *body)
    ]
    return "\n".join(lines) + "\n"


def _step_rows(step: Step, more: Sequence[str]) -> Iterator[list[str]]:
    name, arguments = _parts(step)
    at = _SAME if step.at is None else str(show(step.at))
    if name == "clock":
        yield [at]
    elif isinstance(step, Add):
        mark = "" if step.watermark is None else str(show(step.watermark))
        for element in step.elements:
            yield [at, mark, *_element_cells(element, more)]
            at = mark = ""
    else:
        yield [at, str(arguments[0]) if arguments else _END]


def _element_cells(element: ScenarioElement, more: Sequence[str]) -> list[str]:
    at = element.time
    time = str(show(at)) if isinstance(at, Instant) else json.dumps(at)
    extra = [_cell(element.columns[name]) if name in element.columns else "" for name in more]
    return [_cell(element.value), time, _cell(element.key), *extra]


def from_markdown(text: str, kind: type[ArrivalsT]) -> ArrivalsT:
    """Return the scenario of such a table; lines around it are ignored."""
    lines = [(n, line.strip()) for n, line in enumerate(text.splitlines(), 1)]
    table = [
        (n, [c.strip() for c in line[1:-1].split("|")]) for n, line in lines if line[:1] == "|"
    ]
    inputs: list[str] = []
    if table and table[0][1][0] == _INPUT:
        inputs = [cells[0] for _, cells in table]
        table = [(n, cells[1:]) for n, cells in table]
    if len(table) < 3 or tuple(table[0][1][: len(_HEAD)]) != _HEAD:
        raise InvalidArgument(
            "the text has no table of a scenario",
            hint=f"Begin it with | {' | '.join(_HEAD)} |, a rule and the row of the start",
        )
    more = table[0][1][len(_HEAD) :]
    return _from_rows(table[2:], inputs[2:], more, kind)


def _from_rows(
    rows: list[tuple[int, list[str]]], inputs: list[str], more: list[str], kind: type[ArrivalsT]
) -> ArrivalsT:
    first, cells = rows[0]
    if len(cells) < 2:
        raise InvalidArgument(
            "the first row says where clock and watermark are at the start, and has one cell",
            where=f"line {first}",
            hint="Write, say, | 12:00:00 | -inf | | | |",
        )
    start, mark = cells[:2]
    names = [name.strip() for name in inputs[0].split(",")] if inputs else []
    scenario = kind(*names, start=_time(start), watermark=_time(mark))
    bundle: list[Any] = []
    at: str = _SAME
    of: str | None = None
    mark = ""
    for row, (number, cells) in enumerate(rows[1:], 1):
        if len(cells) != len(_HEAD) + len(more):
            raise InvalidArgument(
                f"a row has {len(cells)} cells",
                where=f"line {number}",
                hint=f"Give it {len(_HEAD) + len(more)}, as the head has",
            )
        if cells[0] and bundle:
            scenario = scenario.add(*bundle, at=_at(at), to=of, watermark=_maybe_time(mark))
            bundle = []
        if cells[0]:
            at, of = cells[0], (inputs[row] or None) if inputs else None
            mark = cells[1] if cells[3] else ""
        if cells[3]:
            bundle.append(_element(cells, more))
        elif cells[1] == _END:
            scenario = scenario.end(at=_at(at), of=of)
        elif cells[1]:
            scenario = scenario.watermark(_time(cells[1]), at=_at(at), of=of)
        else:
            scenario = scenario.clock(_time(at))
    if not bundle:
        return scenario
    return scenario.add(*bundle, at=_at(at), to=of, watermark=_maybe_time(mark))


def _element(cells: list[str], more: list[str]) -> tuple[Any, ...]:
    value, time, key, *extra = cells[2:]
    columns = {name: _value(cell) for name, cell in zip(more, extra, strict=True) if cell}
    at = readable(_time(time))
    return (
        _value(value),
        at if isinstance(at, Instant) else _value(time),
        _key(_value(key)),
        columns,
    )


def _at(cell: str) -> Any:
    return None if cell == _SAME else _time(cell)


def _maybe_time(cell: str) -> Any:
    return _time(cell) if cell else None


def _time(cell: str) -> Any:
    """Return a time as it was written: an integer of microseconds, or text."""
    return int(cell) if cell.removeprefix("-").isdecimal() else cell


def _cell(value: Any) -> str:
    """Return a value as JSON, or bare text where JSON would not read it as something else."""
    if isinstance(value, str) and value == value.strip() and value.isprintable() and value:
        bare = "|" not in value and value[0] != '"'
        if bare and value not in ("NaN", "Infinity", "-Infinity") and _value(value) == value:
            return value
    return json.dumps(value).replace("|", "\\u007c")


def _value(cell: str) -> Any:
    try:
        return json.loads(cell)
    except (ValueError, RecursionError):
        return cell


def _key(value: Any) -> Any:
    return tuple(map(_key, value)) if isinstance(value, list) else value


# -- YAML ---------------------------------------------------------------------------------------


def to_yaml(scenario: Arrivals) -> str:
    """Return YAML: where clock and watermark start, then a list of steps."""
    data = {
        **({"inputs": list(scenario.inputs)} if scenario.inputs else {}),
        "start": show(scenario.start),
        "watermark": show(scenario.watermark_at_start),
        "steps": [_step_data(step) for step in scenario.steps],
    }
    text: str = _yaml().safe_dump(data, sort_keys=False, default_flow_style=None, width=100)
    return text


def _step_data(step: Step) -> dict[str, Any]:
    name, arguments = _parts(step)
    at: dict[str, Any] = {} if step.at is None or name == "clock" else {"at": show(step.at)}
    at |= _input_of(step)
    if isinstance(step, Add):
        mark = {} if step.watermark is None else {"watermark": show(step.watermark)}
        return {name: [_plain(element) for element in arguments], **at, **mark}
    return {name: arguments[0] if arguments else True, **at}


def from_yaml(text: str, kind: type[ArrivalsT]) -> ArrivalsT:
    """Return the scenario of such YAML."""
    yaml = _yaml()
    try:
        data = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _not_yaml(error) from error
    if not isinstance(data, dict) or not isinstance(data.get("steps"), list):
        raise InvalidArgument(
            "the YAML is not a scenario", hint="Give it start, watermark and a list of steps"
        )
    return from_data(data, kind)


def from_data(data: dict[str, Any], kind: type[ArrivalsT]) -> ArrivalsT:
    """Return the scenario of what YAML reads as."""
    inputs = data.get("inputs", [])
    if not isinstance(inputs, list):
        raise InvalidArgument(
            f"{describe('inputs', inputs)} is not a list",
            where="$.inputs",
            hint="Write, say, inputs: [left, right]",
        )
    scenario = kind(
        *inputs,
        start=data.get("start", "00:00:00"),
        watermark=data.get("watermark", "-inf"),
    )
    step: dict[str, Any]
    rest: dict[str, Any]
    for number, step in enumerate(data["steps"]):
        match step:
            case {"add": elements, **rest}:
                parts = [*_elements(elements, f"$.steps[{number}].add")]
                scenario = scenario.add(
                    *parts,
                    at=rest.get("at"),
                    to=rest.get("to"),
                    watermark=rest.get("watermark"),
                )
            case {"watermark": to, **rest}:
                scenario = scenario.watermark(to, at=rest.get("at"), of=rest.get("of"))
            case {"clock": to}:
                scenario = scenario.clock(to)
            case {"end": _, **rest}:
                scenario = scenario.end(at=rest.get("at"), of=rest.get("of"))
            case _:
                raise InvalidArgument(
                    f"{step!r} is not a step",
                    where=f"$.steps[{number}]",
                    hint="Write add, watermark, clock or end",
                )
    return scenario


def _elements(elements: object, where: str) -> Iterator[tuple[Any, ...]]:
    """Yield the elements that a step adds, with tuples for the lists that are keys."""
    for element in elements if isinstance(elements, list) else [elements]:
        if not isinstance(element, list) or not 2 <= len(element) <= 4:
            raise InvalidArgument(
                f"{describe('element', element)} is not a list of a value, its time, its key and "
                "perhaps more columns",
                where=where,
                hint='Write, say, add: [[5, "12:00:26", "A"]]',
            )
        yield (*element[:2], *map(_key, element[2:3]), *element[3:])


def _not_yaml(error: Exception) -> InvalidArgument:
    """Return the error for text that YAML cannot be read from, with the place if it is known."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    what = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    if isinstance(error, RecursionError):
        what = "it is nested too deeply"
    at = getattr(error, "position", None)
    where = None if at is None else f"character {at + 1}"
    if mark is not None:
        where = f"line {mark.line + 1}, column {mark.column + 1}"
    return InvalidArgument(
        f"the text is not YAML that can be read: {what}",
        where=where,
        hint="Correct it there; Scenario.to_yaml() writes what can be read",
    )


def _plain(value: Any) -> Any:
    """Return a value with lists for tuples, as safe YAML has no tuples."""
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value


def _yaml() -> Any:
    return load_extra("yaml", extra="testing", purpose="reading and writing YAML")
