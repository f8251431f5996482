"""A trigger that can lose data is an error when the pipeline is built (S-R3)."""

from __future__ import annotations

import pytest

from lowwater.engine.window.windowing import Windowing
from lowwater.errors import UnsafeTrigger
from lowwater.triggers import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterProcessingTime,
    AfterWatermark,
    Always,
    CustomTrigger,
    Default,
    Moment,
    Never,
    OrFinally,
    Outlook,
    Repeatedly,
    Trigger,
    outlook,
)
from lowwater.windows import FixedWindows
from tests.unit.triggers.test_values import EveryOther

NEVER, AT_COMPLETION, ANYTIME = Moment.NEVER, Moment.AT_COMPLETION, Moment.ANYTIME
COUNT = AfterCount(1)
DELAY = AfterProcessingTime("1m")
DONE = AfterWatermark()

# trigger; when it may first fire; when it may finish; firings without and with late elements
CASES: list[tuple[Trigger, Moment, Moment, int, int]] = [
    (COUNT, ANYTIME, ANYTIME, 1, 1),
    (DELAY, ANYTIME, ANYTIME, 1, 1),
    (Never(), NEVER, NEVER, 0, 0),
    (Always(), ANYTIME, NEVER, 2, 2),
    (Default(), AT_COMPLETION, NEVER, 1, 2),
    (DONE, AT_COMPLETION, AT_COMPLETION, 1, 1),
    (AfterWatermark(early=COUNT), ANYTIME, AT_COMPLETION, 2, 2),
    (AfterWatermark(early=Never()), AT_COMPLETION, AT_COMPLETION, 1, 1),
    (AfterWatermark(late=COUNT), AT_COMPLETION, NEVER, 1, 2),
    (AfterWatermark(late=Never()), AT_COMPLETION, NEVER, 1, 1),
    (AfterAny(COUNT, DONE), ANYTIME, ANYTIME, 1, 1),
    (AfterAny(Never(), DONE), AT_COMPLETION, AT_COMPLETION, 1, 1),
    (AfterAny(Never(), Never()), NEVER, NEVER, 0, 0),
    (AfterAny(Repeatedly(COUNT), DONE), ANYTIME, ANYTIME, 1, 1),
    (AfterAll(COUNT, DELAY), ANYTIME, ANYTIME, 1, 1),
    (AfterAll(COUNT, DONE), AT_COMPLETION, AT_COMPLETION, 1, 1),
    (AfterAll(COUNT, Never()), NEVER, NEVER, 0, 0),
    (AfterEach(COUNT, COUNT), ANYTIME, ANYTIME, 2, 2),
    (AfterEach(COUNT, DONE), ANYTIME, AT_COMPLETION, 2, 2),
    (AfterEach(COUNT, Repeatedly(COUNT)), ANYTIME, NEVER, 2, 2),
    (AfterEach(COUNT, Never()), ANYTIME, NEVER, 1, 1),
    (AfterEach(Never(), COUNT), NEVER, NEVER, 0, 0),
    (Repeatedly(COUNT), ANYTIME, NEVER, 2, 2),
    (Repeatedly(DONE), AT_COMPLETION, NEVER, 1, 2),
    (Repeatedly(AfterWatermark(early=COUNT)), ANYTIME, NEVER, 2, 2),
    (Repeatedly(Never()), NEVER, NEVER, 0, 0),
    (OrFinally(Repeatedly(COUNT), DONE), ANYTIME, AT_COMPLETION, 2, 2),
    (OrFinally(Repeatedly(COUNT), DELAY), ANYTIME, ANYTIME, 2, 2),
    (OrFinally(COUNT, Never()), ANYTIME, ANYTIME, 1, 1),
    (OrFinally(Repeatedly(COUNT), Never()), ANYTIME, NEVER, 2, 2),
    (CustomTrigger(EveryOther()), ANYTIME, NEVER, 2, 2),
    (CustomTrigger(EveryOther(), "at_completion"), ANYTIME, AT_COMPLETION, 2, 2),
    (CustomTrigger(EveryOther(), "anytime"), ANYTIME, ANYTIME, 2, 2),
]


@pytest.mark.parametrize(("trigger", "fires", "finishes", "on_time", "late"), CASES)
def test_what_a_trigger_may_do(
    trigger: Trigger, fires: Moment, finishes: Moment, on_time: int, late: int
) -> None:
    """S-R3."""
    assert outlook(trigger, late_possible=False) == Outlook(fires, finishes, on_time)
    assert outlook(trigger, late_possible=True) == Outlook(fires, finishes, late)


@pytest.mark.parametrize("lateness", ["0s", "1m"])
@pytest.mark.parametrize(("trigger", "finishes"), [(case[0], case[2]) for case in CASES])
def test_a_trigger_is_refused_if_it_may_finish_while_elements_are_admitted(
    trigger: Trigger, finishes: Moment, lateness: str
) -> None:
    """S-R3: elements are admitted until completion, and beyond it as lateness allows."""

    def build(why: str | None = None) -> Windowing:
        return Windowing(
            windows=FixedWindows("1m"),
            trigger=trigger,
            accumulation="discarding",
            allowed_lateness=lateness,
            allow_data_loss=why,
        )

    if finishes is ANYTIME or (finishes is AT_COMPLETION and lateness != "0s"):
        with pytest.raises(UnsafeTrigger, match="closed"):
            build()
    else:
        build()
    assert build("the first will do").allow_data_loss == "the first will do"


def test_the_error_names_the_trigger_the_loss_and_the_mend() -> None:
    """S-R3."""
    with pytest.raises(UnsafeTrigger) as caught:
        Windowing(windows=FixedWindows("1m"), trigger=AfterCount(5))
    assert "AfterCount(5) may finish" in caught.value.what
    assert "dropped as 'closed'" in caught.value.what
    assert caught.value.where == "window(trigger=)"
    assert caught.value.hint is not None
    assert "Repeatedly(AfterCount(5))" in caught.value.hint
    assert "allow_data_loss=" in caught.value.hint


def test_the_error_for_late_elements_names_the_lateness() -> None:
    """S-R3."""
    with pytest.raises(UnsafeTrigger) as caught:
        Windowing(windows=FixedWindows("1m"), trigger=DONE, allowed_lateness="90s")
    assert "1m30s of lateness" in caught.value.what
    assert caught.value.hint is not None
    assert "late=AfterCount(1)" in caught.value.hint
