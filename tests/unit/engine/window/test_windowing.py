"""The value that says where, when and how: what it checks and what it fills in."""

from __future__ import annotations

from typing import Any

import pytest

from lowwater.engine.window.windowing import Windowing
from lowwater.errors import InvalidArgument, UnsafeTrigger
from lowwater.testing import Scenario
from lowwater.time import Int64Array
from lowwater.triggers import (
    AfterCount,
    AfterEach,
    AfterWatermark,
    CustomTrigger,
    Default,
    Never,
    Repeatedly,
    Trigger,
    TriggerContext,
)
from lowwater.windows import Assignment, CustomWindows, FixedWindows, Merged, Sessions
from tests.unit.triggers.test_values import EveryOther

MINUTE = FixedWindows("1m")


@pytest.mark.parametrize(
    ("trigger", "lateness"),
    [
        (Default(), "1m"),
        (AfterWatermark(early=AfterCount(1)), "0s"),
        (Repeatedly(AfterCount(1)), "0s"),
        # What comes after the only firing is emitted at expiry (S-O6).
        (AfterWatermark(late=Never()), "1m"),
        (AfterEach(AfterCount(1), Never()), "0s"),
    ],
)
def test_accumulation_must_be_named_if_a_window_may_fire_more_than_once(
    trigger: Trigger, lateness: str
) -> None:
    """S-A1 to S-A3: no default would be right for everyone."""
    with pytest.raises(InvalidArgument, match="accumulation= is required") as caught:
        Windowing(windows=MINUTE, trigger=trigger, allowed_lateness=lateness)
    assert caught.value.hint is not None
    for mode in ("discarding", "accumulating", "retracting"):
        assert mode in caught.value.hint
        named = Windowing(
            windows=MINUTE,
            trigger=trigger,
            allowed_lateness=lateness,
            accumulation=mode,
        )
        assert named.mode == mode
        assert named.shows_differences == (mode == "discarding")


@pytest.mark.parametrize(
    "trigger", [Default(), AfterWatermark(), AfterWatermark(late=Never()), Never()]
)
def test_accumulation_may_be_left_out_if_a_window_fires_once(trigger: Trigger) -> None:
    assert Windowing(windows=MINUTE, trigger=trigger).mode == "discarding"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"windows": "1m"}, r"windows='1m' \(str\) is not a window function"),
        ({"windows": FixedWindows}, "is not a window function"),
        ({"trigger": "Default"}, "trigger='Default'"),
        ({"trigger": None}, "trigger=None"),
        ({"accumulation": "adding"}, "accumulation='adding'"),
        ({"allowed_lateness": "-1s"}, "must not be negative"),
        ({"allowed_lateness": "soon"}, "allowed_lateness='soon'"),
        ({"closing": "never"}, "closing='never'"),
        ({"on_time": True}, "on_time=True"),
        ({"timestamps": "start"}, "timestamps='start'"),
        ({"allow_data_loss": True}, "must be a reason in words"),
        ({"allow_data_loss": " "}, "must be a reason in words"),
    ],
)
def test_each_field_is_checked_by_name(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        Windowing(**{"windows": MINUTE, **changes})


def test_a_change_is_checked_again() -> None:
    """S-R3."""
    once = Windowing(windows=MINUTE, trigger=AfterWatermark())
    assert once.with_(closing="always").closing == "always"
    with pytest.raises(UnsafeTrigger):
        once.with_(allowed_lateness="1m")


def test_lateness_is_kept_in_microseconds() -> None:
    made = Windowing(windows=MINUTE, allowed_lateness="1m", accumulation="accumulating")
    assert made.lateness_us == made.allowed_lateness == 60_000_000


def test_a_windowing_is_a_value() -> None:
    assert Windowing(windows=MINUTE) == Windowing(windows=FixedWindows("60s"))
    assert hash(Windowing(windows=MINUTE)) == hash(Windowing(windows=FixedWindows("60s")))
    made = Windowing(windows=Sessions("1m"), trigger=Never(), timestamps="earliest")
    assert eval(repr(made)) == made


def test_only_merging_windows_say_how_they_merge() -> None:
    """S-W6."""
    sessions = Sessions("1m")
    assert Windowing(windows=MINUTE).merging is None
    assert Windowing(windows=sessions).merging is sessions
    assert Windowing(windows=CustomWindows(lambda t: [(t, t + 1)])).merging is None


class WithoutMerge:
    """Says that it merges, but not how."""

    columns = ()
    merge_scope: Any = "overlapping"

    def assign(self, times: Int64Array, columns: Any) -> Assignment:
        return Assignment(times, times + 1)


def test_windows_that_merge_must_say_how() -> None:
    """S-W6."""
    with pytest.raises(InvalidArgument, match="has no method merge"):
        Windowing(windows=WithoutMerge())
    wrong = WithoutMerge()
    wrong.merge_scope = "sometimes"
    with pytest.raises(InvalidArgument, match="merge_scope='sometimes'"):
        Windowing(windows=wrong)


class Typed:
    """Windows of a minute whose methods return arrays of some dtype."""

    columns = ()

    def __init__(self, dtype: str, *, merges: bool) -> None:
        self._dtype = dtype
        self._merges = merges
        self.merge_scope: Any = "overlapping" if merges else "none"

    def assign(self, times: Int64Array, columns: Any) -> Assignment:
        start = times - times % 60_000_000
        dtype = "int64" if self._merges else self._dtype
        return Assignment(start, (start + 60_000_000).astype(dtype))

    def merge(self, keys: Int64Array, start: Int64Array, end: Int64Array) -> Merged:
        merged = Sessions("1m").merge(keys, start, end)
        return Merged(merged.group, merged.start, merged.end.astype(self._dtype))


@pytest.mark.parametrize("merges", [False, True])
@pytest.mark.parametrize("dtype", ["int32", "uint64", "float64", "datetime64[us]", ">i8"])
def test_windows_must_be_int64(dtype: str, merges: bool) -> None:
    """Floats round, and compiled kernels take int64 alone."""
    given = Scenario().add((1, "00:00:10", "a"), (2, "00:01:20", "b")).end()
    method = "merge" if merges else "assign"
    with pytest.raises(InvalidArgument, match=rf"Typed\.{method} returned .* not int64"):
        given.run_windowing(Windowing(windows=Typed(dtype, merges=merges)))
    assert given.run_windowing(Windowing(windows=Typed("int64", merges=merges))).panes


class NoMerge:
    """Custom trigger logic without on_merge."""

    def on_element(self, context: TriggerContext, at: int) -> None: ...

    def ready(self, context: TriggerContext) -> bool:
        return False

    def on_fire(self, context: TriggerContext) -> bool:
        return False


@pytest.mark.parametrize("wrap", [lambda t: t, Repeatedly, lambda t: AfterWatermark(late=t)])
def test_a_custom_trigger_needs_on_merge_where_windows_merge(wrap: Any) -> None:
    """The table of triggers: custom logic must say how it merges, wherever it stands."""
    logic: Any = NoMerge()
    trigger = wrap(CustomTrigger(logic))
    Windowing(windows=MINUTE, trigger=trigger, accumulation="discarding")
    with pytest.raises(InvalidArgument, match="has no on_merge"):
        Windowing(windows=Sessions("1m"), trigger=trigger, accumulation="discarding")
    whole = wrap(CustomTrigger(EveryOther()))
    Windowing(windows=Sessions("1m"), trigger=whole, accumulation="discarding")
