"""The conformance check for custom trigger logic."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from itertools import islice, permutations
from typing import Any, final

from lowwater.engine.window.windowing import Windowing
from lowwater.errors import InvalidArgument, LowwaterError, describe
from lowwater.state.codec import decode, encode
from lowwater.testing.runner_kit import Runner, check_runner, runner_cases
from lowwater.testing.scenario import Scenario
from lowwater.triggers import CustomTrigger, Repeatedly, Trigger, TriggerContext, TriggerLogic
from lowwater.windows import FixedWindows, GlobalWindow, Sessions, WindowFunction


def check_trigger(trigger: CustomTrigger | TriggerLogic, *, merging: bool | None = None) -> None:
    """Check that trigger logic fulfils :class:`~lowwater.triggers.TriggerLogic`.

    The checks: its value is hashable and equals a copy of itself. ``ready`` changes nothing, and
    returns the same when called twice. A state survives a round trip through a store. After a
    firing the logic starts from the beginning: it is not ready again at once. ``on_merge`` depends
    neither on the order of the states nor on the steps in which windows merge. It finishes only
    when ``finishes=`` says so. In scenarios with much disorder, alone and within ``Repeatedly``,
    the engine emits the same panes as the scalar oracle.

    Args:
        trigger: A ``CustomTrigger``, or the logic of one that never finishes.
        merging: Whether to try windows that merge; by default if the logic has ``on_merge``.

    Raises:
        AssertionError: A check failed; the message names it.
        InvalidArgument: ``trigger`` is neither, or it has no ``on_merge`` although ``merging``.
    """
    custom = trigger if isinstance(trigger, CustomTrigger) else CustomTrigger(trigger)
    has_merge = callable(getattr(custom.logic, "on_merge", None))
    if merging and not has_merge:
        raise InvalidArgument(
            f"{describe('logic', custom.logic)} has no on_merge",
            where="check_trigger",
            hint="Add on_merge, or pass merging=False",
        )
    twin = copy.deepcopy(custom)
    name = type(custom.logic).__name__
    by_value = (
        f"triggers are compared by value, so that a restart recognises its pipeline: put "
        f"@dataclass(frozen=True) above class {name}, or define __eq__ and __hash__"
    )
    assert custom == twin, f"{name} must equal a copy of itself, and does not; {by_value}"
    try:
        same_hash = hash(custom) == hash(twin)
    except TypeError as error:
        raise AssertionError(f"{name} must be hashable: {error}; {by_value}") from None
    assert same_hash, f"{name} must have the hash of a copy of itself; {by_value}"
    watched = CustomTrigger(_Watched(custom.logic), custom.finishes)
    both = has_merge if merging is None else merging
    windows: list[WindowFunction] = [FixedWindows("10s"), GlobalWindow()]
    windows += [Sessions("4s")] if both else []
    for tried in (watched, Repeatedly(watched)):
        for function in windows:
            _as_the_oracle(tried, function)


def _as_the_oracle(trigger: Trigger, windows: WindowFunction) -> None:
    import lowwater as lw

    def engine(scenario: Scenario, windowing: Windowing) -> Any:
        run = scenario.run_windowing(windowing, aggregate=lw.collect())
        return run.panes, run.late

    run: Runner = engine
    scenarios = {repr(scenario): scenario for scenario, _ in runner_cases()}
    for scenario in scenarios.values():
        windowing = Windowing(
            windows=windows,
            trigger=trigger,
            accumulation="accumulating",
            allowed_lateness="5s",
            allow_data_loss="to see what is dropped",
        )
        try:
            check_runner(run, [(scenario, windowing)])
        except LowwaterError as error:
            cause = error.__cause__
            if isinstance(cause, AssertionError):
                raise cause from None  # one of the checks below, in the midst of a run
            raise AssertionError(str(error)) from error


@final
@dataclass(frozen=True, slots=True)
class _Watched:
    """Wraps the user's logic and checks the protocol at every call."""

    logic: TriggerLogic

    def __repr__(self) -> str:
        return repr(self.logic)

    def on_element(self, context: TriggerContext, at: int) -> None:
        context.state = _stored(context.state)
        self.logic.on_element(context, at)

    def ready(self, context: TriggerContext) -> bool:
        before = context.state = _stored(context.state)
        asked = copy.deepcopy(before)
        says = bool(self.logic.ready(context))
        assert context.state == asked, (
            f"ready must change nothing, but the state was {asked!r} and is {context.state!r}"
        )
        assert bool(self.logic.ready(context)) == says, (
            "ready must return the same when called twice"
        )
        return says

    def on_fire(self, context: TriggerContext) -> bool:
        finished = bool(self.logic.on_fire(context))
        context.state = _stored(context.state)
        if not finished:
            assert not self.logic.ready(context), (
                "after a firing it must start from the beginning, but it is ready again at once; "
                f"its state is {context.state!r}"
            )
        return finished

    def on_merge(self, context: TriggerContext, states: list[Any]) -> None:
        orders = islice(permutations(states), 6)
        results = [self._merged(context, list(order)) for order in orders]
        assert all(result == results[0] for result in results), (
            f"on_merge must not depend on the order of the states {states!r}: {results!r}"
        )
        whole = results[0]
        for parts in ([whole], [self._merged(context, states[:1]), *states[1:]]):
            step = self._merged(context, parts)
            assert step == whole, (
                f"on_merge must give the same in one step and in several: {states!r} merged at "
                f"once into {whole!r}, but through {parts!r} into {step!r}"
            )
        context.state = whole

    def _merged(self, context: TriggerContext, states: list[Any]) -> Any:
        context.state = None
        self.logic.on_merge(context, copy.deepcopy(states))
        return _stored(context.state)


def _stored(state: Any) -> Any:
    """Return a state after a round trip through a store."""
    try:
        back = decode(encode(state))
    except LowwaterError as error:
        raise AssertionError(f"its state cannot be stored: {error}") from error
    assert back == state, f"its state {state!r} is restored from a store as {back!r}"
    return back
