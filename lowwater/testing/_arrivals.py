"""What arrives when, as values: bundles of elements, moves of the clock and of the watermark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias, final

from lowwater.errors import InvalidArgument, describe, nearest
from lowwater.testing._moments import MomentLike, moment, readable, show
from lowwater.time import Instant

ElementLike: TypeAlias = tuple[Any, Any, Any] | tuple[Any, Any, Any, Mapping[str, Any]]
"""``(value, event time, key)``, optionally with a mapping of more columns."""


@final
@dataclass(frozen=True, slots=True)
class ScenarioElement:
    """One element of a scenario.

    Args:
        value: Its value, read by aggregates that name no column.
        time: Its event time; anything but an ``Instant`` is an unreadable one (S-B1).
        key: Its key.
        columns: More columns by name.
    """

    value: Any
    time: Any
    key: Any
    columns: Mapping[str, Any]

    @property
    def record(self) -> Any:
        """What late records and dead letters hold: the value, or all columns when it has more."""
        return {"value": self.value, **self.columns} if self.columns else self.value

    @property
    def parts(self) -> tuple[Any, ...]:
        """The tuple that :meth:`Scenario.add` takes."""
        at = show(self.time) if isinstance(self.time, Instant) else self.time
        columns = (dict(self.columns),) if self.columns else ()
        return (self.value, at, self.key, *columns)


@final
@dataclass(frozen=True, slots=True)
class Add:
    """A bundle arrives at the input ``of``; the clock moves to ``at`` first.

    In the same turn, once the bundle is in, the watermark of the input moves to ``watermark``.
    """

    elements: tuple[ScenarioElement, ...]
    at: Instant | None = None
    of: str | None = None
    watermark: Instant | None = None


@final
@dataclass(frozen=True, slots=True)
class WatermarkMove:
    """The watermark moves; the clock moves to ``at`` first. ``of`` names the input; else of all."""

    to: Instant
    at: Instant | None = None
    of: str | None = None


@final
@dataclass(frozen=True, slots=True)
class ClockMove:
    """The clock moves."""

    at: Instant


@final
@dataclass(frozen=True, slots=True)
class InputEnd:
    """The input ends: the watermark moves to the end of time; the clock moves first.

    ``of`` names the input; else all end.
    """

    at: Instant | None = None
    of: str | None = None


Step: TypeAlias = Add | WatermarkMove | ClockMove | InputEnd


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Arrivals:
    """Steps in order, and where clock and watermark stand before the first."""

    inputs: tuple[str, ...]
    start: Instant
    watermark_at_start: Instant
    steps: tuple[Step, ...]

    def __init__(
        self, *inputs: str, start: MomentLike = "00:00:00", watermark: MomentLike = "-inf"
    ) -> None:
        object.__setattr__(self, "inputs", _checked_inputs(inputs))
        object.__setattr__(self, "start", moment(start, name="start"))
        object.__setattr__(self, "watermark_at_start", moment(watermark, name="watermark"))
        object.__setattr__(self, "steps", ())

    def add(
        self,
        *elements: ElementLike,
        at: MomentLike | None = None,
        to: str | None = None,
        watermark: MomentLike | None = None,
    ) -> Self:
        """Return the scenario with one more bundle of ``(value, event time, key)`` elements.

        Args:
            *elements: The elements. A value that is a mapping has a column for each field.
            at: Where the clock moves first.
            to: The input that they come to, in a scenario of several inputs.
            watermark: Where the input's watermark moves in the same turn, once they are in, as an
                estimator does that has seen them. By :meth:`watermark` it moves in a turn of its
                own, and what the bundle and the watermark have a stage emit reaches the next stage
                in two bundles.

        Raises:
            InvalidArgument: There are no elements, or one is not such a tuple; or there is no such
                input. An element with an unreadable event time is allowed: it becomes a dead letter
                (S-B1).
        """
        if not elements:
            raise InvalidArgument(
                "add() takes at least one element",
                hint='Write .add((5, "12:00:26", "A")), or .clock(...) to advance only the clock',
            )
        if to is None and len(self.inputs) > 1:
            raise InvalidArgument(
                f"the scenario has the inputs {_listed(self.inputs)}, and this bundle names none",
                where="Scenario.add",
                hint=f'Say which it comes to: .add(..., to="{self.inputs[0]}")',
            )
        self._check_input(to, "to", "add")
        mark = None if watermark is None else moment(watermark, name="watermark")
        return self._with(Add(tuple(map(_element, elements)), _maybe(at), to, mark))

    def watermark(
        self, to: MomentLike, *, at: MomentLike | None = None, of: str | None = None
    ) -> Self:
        """Return the scenario with one more advance of the watermark.

        Args:
            to: Where it moves; an earlier instant than before changes nothing (S-T3).
            at: Where the clock moves first.
            of: The input whose watermark moves; that of every input if left out.
        """
        self._check_input(of, "of", "watermark")
        return self._with(WatermarkMove(moment(to, name="watermark"), _maybe(at), of))

    def clock(self, to: MomentLike) -> Self:
        """Return the scenario with one more advance of the clock."""
        return self._with(ClockMove(moment(to, name="clock")))

    def end(self, *, at: MomentLike | None = None, of: str | None = None) -> Self:
        """Return the scenario with the end of input: the watermark advances to the end of time.

        Args:
            at: Where the clock moves first.
            of: The input that ends; every input if left out.
        """
        self._check_input(of, "of", "end")
        return self._with(InputEnd(_maybe(at), of))

    def apart(self) -> Self:
        """Return the scenario with each advance of the watermark as a step of its own."""
        if not any(isinstance(step, Add) and step.watermark is not None for step in self.steps):
            return self
        steps: list[Step] = []
        for step in self.steps:
            if isinstance(step, Add) and step.watermark is not None:
                steps.append(replace(step, watermark=None))
                steps.append(WatermarkMove(step.watermark, of=step.of))
            else:
                steps.append(step)
        same = type(self)(*self.inputs, start=self.start, watermark=self.watermark_at_start)
        object.__setattr__(same, "steps", tuple(steps))
        return same

    @property
    def elements(self) -> tuple[ScenarioElement, ...]:
        """All elements, in order of arrival."""
        return tuple(e for step in self.steps if isinstance(step, Add) for e in step.elements)

    def elements_of(self, name: str | None) -> tuple[ScenarioElement, ...]:
        """Return the elements of one input, in order of arrival."""
        adds = (step for step in self.steps if isinstance(step, Add) and step.of in (None, name))
        return tuple(element for step in adds for element in step.elements)

    def _check_input(self, name: str | None, argument: str, method: str) -> None:
        if name is not None and name not in self.inputs:
            raise InvalidArgument(
                f"the scenario has no input {name!r}",
                where=f"Scenario.{method}({argument}=)",
                hint=nearest(str(name), self.inputs)
                if self.inputs
                else f'Name the inputs first: Scenario("{name}", "other")',
            )

    def _with(self, step: Step) -> Self:
        longer = type(self)(*self.inputs, start=self.start, watermark=self.watermark_at_start)
        object.__setattr__(longer, "steps", (*self.steps, step))
        return longer


def _checked_inputs(inputs: tuple[str, ...]) -> tuple[str, ...]:
    for name in inputs:
        if not isinstance(name, str) or not name.isidentifier():
            raise InvalidArgument(
                f"{describe('input', name)} is not the name of an input",
                where="Scenario",
                hint='Name inputs like Python variables: Scenario("orders", "payments")',
            )
    if len(set(inputs)) < len(inputs):
        raise InvalidArgument(
            f"two inputs have one name: {_listed(inputs)}",
            where="Scenario",
            hint='Name them apart: Scenario("left", "right")',
        )
    return inputs


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names))


def _element(parts: ElementLike) -> ScenarioElement:
    if not isinstance(parts, (tuple, list)) or len(parts) not in (3, 4):
        raise InvalidArgument(
            f"{describe('element', parts)} is not (value, event time, key)",
            hint='Write .add((5, "12:00:26", "A"))',
        )
    columns = dict(parts[3]) if len(parts) == 4 else {}
    return ScenarioElement(parts[0], readable(parts[1]), parts[2], columns)


def _maybe(at: MomentLike | None) -> Instant | None:
    return None if at is None else moment(at, name="at")
