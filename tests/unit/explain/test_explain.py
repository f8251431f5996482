"""Why windows fire, or do not: the usual puzzles, word by word."""

from __future__ import annotations

import re
from textwrap import dedent
from typing import Any

import pytest

import lowwater as lw
from lowwater.testing import Scenario
from tests.unit.explain.traced_runs import scripted

WINDOWS = lw.FixedWindows("2m")
AT = "2000-01-01T12:00:30Z"
TWO = Scenario(start="12:00").add((5, "12:00:26", "A"), at="12:05").add((9, "12:01:26", "A"))


def text(lines: str) -> str:
    """Return the lines of a golden text; long ones go on behind a backslash."""
    return re.sub(r"(?<=\S) {4,}", " ", dedent(lines).strip())


def counted(stream: Any, **how: Any) -> lw.Pipeline:
    made: lw.Pipeline = stream.key_by("k").window(WINDOWS, **how).aggregate(total=lw.sum("v"))
    return made


def two_sources(*, idle_after: int | None = None) -> lw.Pipeline:
    """Source b falls silent at 12:04; source a goes on until 12:10."""
    clock = lw.ManualClock()
    b = [("12:04", "A", "12:01:10", 1), ("12:05:30",)]
    a = [
        ("12:03", "A", "12:01:30", 2),
        ("12:07", "A", "12:09:00", 4),
        ("12:09", "B", "12:09:30", 8),
    ]
    return counted(
        scripted("a", clock, a, idle_after=idle_after)
        | scripted("b", clock, b, rest_seconds=3600.0, idle_after=idle_after)
    )


def test_an_idle_source_holds_the_watermark() -> None:
    result = two_sources().collect(trace=True, bundle_size=1)
    assert str(result.explain("A", AT)) == text("""
        key 'A', window [12:00:00, 12:02:00) on 2000-01-01, stage `stage 1`
          FixedWindows('2m'), allowed lateness 0s
          Default(), discarding
          12:03:00  element 2 at 12:01:30 arrived
          12:04:00  element 1 at 12:01:10 arrived
          12:09:00  fired ON_TIME #0: 3, because the input ended
          it is closed and emits no more panes
          before the input ended:
          the watermark, 12:01:10, is before the window's end, 12:02:00; source `b` holds it: \
            it has been idle since 12:04:00; set `idle_after=`
    """)


def test_an_idle_source_does_not_hold_it_for_ever() -> None:
    result = two_sources(idle_after=60_000_000).collect(trace=True, bundle_size=1)
    said = result.explain("A", AT)
    assert "holds it" not in said
    assert "fired ON_TIME #0: 3, because the watermark reached" in said


def test_the_watermark_is_behind() -> None:
    clock = lw.ManualClock()
    rows = [("12:05", "A", "12:00:26", 5), ("12:06", "A", "12:02:30", 9)]
    stream = scripted("clicks", clock, rows, watermark=lw.BoundedDisorder("80s"))
    result = counted(stream).collect(trace=True, bundle_size=1)
    assert str(result.explain("A", AT)) == text(
        """
        key 'A', window [12:00:00, 12:02:00) on 2000-01-01, stage `stage 1`
          FixedWindows('2m'), allowed lateness 0s
          Default(), discarding
          12:05:00  element 5 at 12:00:26 arrived
          12:06:00  fired ON_TIME #0: 5, because the input ended
          it is closed and emits no more panes
          before the input ended:
          the watermark, 12:01:10, is before the window's end, 12:02:00; source `clicks` holds it: \
        BoundedDisorder('1m20s') keeps it 1m20s behind the latest element, 12:02:30; wait for \
        later elements, or use a shorter delay
    """
    )


def test_the_trigger_is_never_ready() -> None:
    run = TWO.watermark("12:01:10", at="12:06").run(
        WINDOWS, trigger=lw.Repeatedly(lw.AfterCount(10)), accumulation="discarding", trace=True
    )
    assert str(run.explain("A", AT)) == text(
        """
        key 'A', window [12:00:00, 12:02:00) on 2000-01-01, stage `scenario`
          FixedWindows('2m'), allowed lateness 0s
          Repeatedly(AfterCount(10)), discarding
          12:05:00  element 5 at 12:00:26 arrived
          12:05:00  element 9 at 12:01:26 arrived
          it has not fired
          it is waiting for 10 elements since the last pane (so far 2), repeatedly
          the watermark, 12:01:10, is before the window's end, 12:02:00; nothing advances it; \
        advance it with Scenario(...).watermark(...)
          Repeatedly(AfterCount(10)) ignores the watermark: elements that it has not emitted are \
        emitted when the window expires, at 12:02:00; use AfterWatermark(early=..., late=...) to \
        emit them when the window is complete
    """
    )


def test_an_element_has_expired() -> None:
    late = (7, "12:01:59", "A")
    run = TWO.watermark("12:02:30", at="12:06").add(late, at="12:07").run(WINDOWS, trace=True)
    assert str(run.explain("A", AT)) == text(
        """
        key 'A', window [12:00:00, 12:02:00) on 2000-01-01, stage `scenario`
          FixedWindows('2m'), allowed lateness 0s
          Default(), discarding
          12:05:00  element 5 at 12:00:26 arrived
          12:05:00  element 9 at 12:01:26 arrived
          12:06:00  fired ON_TIME #0: [5, 9], because the watermark reached 12:02:30
          12:07:00  element 7 at 12:01:59 was dropped (expired): the watermark was 12:02:30, and \
        its window had expired at 12:02:00; allowed_lateness='31s' would have admitted it
          it is closed and emits no more panes
    """
    )
    assert str(run.why(7)) == text(
        """
        element 7 at 12:01:59 on 2000-01-01, key 'A'
          12:07:00  it reached stage `scenario`, where the watermark was 12:02:30
          dropped from [12:00:00, 12:02:00) (expired): with allowed_lateness='0s' it expired at \
        12:02:00; '31s' would have admitted the element
    """
    )


def test_the_lateness_that_is_named_would_have_taken_it() -> None:
    late = (7, "12:01:59", "A")
    scenario = TWO.watermark("12:02:30", at="12:06").add(late, at="12:07").end(at="12:08")
    run = scenario.run(WINDOWS, allowed_lateness="31s", trigger=lw.AfterWatermark(
        late=lw.AfterCount(1)), accumulation="accumulating", trace=True)  # fmt: skip
    said = run.explain("A", AT)
    assert not run.late
    assert "12:07:00  fired LATE #1: [5, 9, 7], because late elements arrived" in said
    assert [pane.index for pane in said.panes] == [0, 1]
    assert [element.values["value"] for element in said.elements] == [5, 9, 7]


def test_sessions_say_what_they_were_made_of() -> None:
    run = TWO.end(at="12:08").run(lw.Sessions("2m"), trace=True)
    said = run.explain("A", AT)
    assert "merged from [12:00:26, 12:02:26) and [12:01:26, 12:03:26)" in said
    gone = run.explain("A", ("2000-01-01T12:00:26Z", "2000-01-01T12:02:26Z"))
    assert "it merged into [12:00:26, 12:03:26): explain that window instead" in gone
    assert "which merged into [12:00:26, 12:03:26)" in run.why(5)


def test_panes_by_the_clock_say_so() -> None:
    trigger = lw.AfterWatermark(early=lw.AfterProcessingTime("1m"))
    run = TWO.clock("12:06").run(WINDOWS, trigger=trigger, accumulation="retracting", trace=True)
    said = run.explain("A", AT)
    assert "12:06:00  fired EARLY #0: [5, 9], because the clock reached 12:06:00" in said
    assert "or, for an early pane, the clock to be 1m past the arrival of its next element" in said


def sessions(**how: Any) -> Any:
    """Two elements of a session that merge when the second comes, late; the clock stands still."""
    scenario = (
        Scenario(start="12:30")
        .add((1, "12:00:10", "A"))
        .watermark("12:10")
        .add((3, "12:00:12", "A"))
    )
    trigger = lw.AfterWatermark(early=lw.AfterCount(1), late=lw.AfterCount(1))
    return scenario.run(
        lw.Sessions("30s"), trigger=trigger, accumulation="retracting", allowed_lateness="1h",
        aggregate=lw.sum(), trace=True, **how,
    )  # fmt: skip


def test_early_and_late_panes_of_sessions_come_by_their_elements() -> None:
    assert str(sessions().explain("A", "2000-01-01T12:00:20Z")) == text(
        """
        key 'A', window [12:00:10, 12:00:40) on 2000-01-01, 30s long, stage `scenario`
          Sessions('30s'), allowed lateness 1h
          AfterWatermark(early=AfterCount(1), late=AfterCount(1)), retracting
          12:30:00  element 1 at 12:00:10 arrived
          12:30:00  fired EARLY #0: 1, because these elements made its trigger ready
          12:30:00  retracted EARLY #0: 1
          12:30:00  fired ON_TIME #1: 1, because the watermark reached 12:10:00
          12:30:00  retracted ON_TIME #1: 1
          it merged into [12:00:10, 12:00:42): explain that window instead

        key 'A', window [12:00:10, 12:00:42) on 2000-01-01, 32s long, stage `scenario`
          Sessions('30s'), allowed lateness 1h
          AfterWatermark(early=AfterCount(1), late=AfterCount(1)), retracting
          12:30:00  element 1 at 12:00:10 arrived
          12:30:00  element 3 at 12:00:12 arrived
          12:30:00  merged from [12:00:10, 12:00:40) and [12:00:12, 12:00:42)
          12:30:00  fired LATE #0: 4, because late elements arrived
          it is waiting for late elements: 1 element since the last pane (so far 0)
    """
    )


@pytest.mark.parametrize("windows", [lw.Sessions("30s"), lw.FixedWindows("1m")])
@pytest.mark.parametrize("bundle_size", [1, 50])
def test_a_clock_that_stands_still_makes_no_pane(windows: Any, bundle_size: int) -> None:
    clock = lw.ManualClock("2000-01-01T12:30:00Z")
    times = ["12:00:10", "12:10:00", "12:00:12", "12:10:12"]
    rows = [{"k": "A", "v": 1, "at": f"2000-01-01T{at}Z"} for at in times]
    trigger = lw.AfterWatermark(early=lw.AfterCount(1), late=lw.AfterCount(1))
    result = (
        lw.from_iterable(rows, time="at", watermark=lw.BoundedDisorder("0s"), clock=clock)
        .key_by("k")
        .window(windows, trigger=trigger, accumulation="retracting", allowed_lateness="1h")
        .aggregate(total=lw.sum("v"))
        .collect(trace=True, bundle_size=bundle_size)
    )
    for pane in result.panes:
        assert "because the clock reached" not in result.explain("A", pane.window)


def test_what_expired_waits_for_nothing() -> None:
    gone = TWO.watermark("12:02:30", at="12:06").watermark("12:10", at="12:07")
    trigger = lw.AfterWatermark(late=lw.AfterCount(1))
    run = gone.run(
        WINDOWS, trigger=trigger, accumulation="accumulating", allowed_lateness="1m", trace=True
    )
    said = run.explain("A", AT)
    assert said.lines[-1] == "  it expired at 12:03:00 and emits no more panes"
    assert "it is waiting for" not in said


def test_a_trigger_that_finished_shows_nothing_at_expiry() -> None:
    more = TWO.add((7, "12:01:00", "A"), at="12:06").watermark("12:02", at="12:07")
    more = more.add((8, "12:01:00", "A"), at="12:08").end(at="12:09")
    run = more.run(
        WINDOWS, trigger=lw.AfterCount(1), allow_data_loss="as a test", trace=True,
        accumulation="accumulating",
    )  # fmt: skip
    said = run.explain("A", AT)
    assert "emitted when the window expires" not in said
    assert "use Repeatedly(AfterCount(1))" in said
    assert "element 7 at 12:01:00 was dropped (closed): the trigger had already finished" in said
    assert "its window had expired at 12:02:00; the trigger had already finished" in said


def test_a_window_without_elements() -> None:
    run = TWO.run(WINDOWS, trace=True)
    said = run.explain("B", AT)
    assert "no element of this key arrived for it" in said
    assert "no element has this key; the keys are 'A'" in said
    odd = run.explain("A", ("2000-01-01T12:00:01Z", "2000-01-01T12:00:02Z"))
    assert "the key has 1 window; nearest: [12:00:00, 12:02:00)" in odd


def test_elements_without_a_key_are_told_of() -> None:
    rows = [{"k": None, "v": 1, "at": AT}, {"k": "A", "v": 2, "at": AT}]
    made = counted(lw.from_iterable(rows, time="at"))
    said = made.collect(trace=True).explain(None, AT)
    assert "1 element without a key became dead letters" in said


def test_the_global_window_has_no_end() -> None:
    trigger = lw.Repeatedly(lw.AfterCount(1))
    run = TWO.end(at="12:08").run(
        lw.GlobalWindow(), trigger=trigger, accumulation="accumulating", trace=True
    )
    said = f"{run.explain('A', AT)}{run.why(5)}{lw.diff(run, [])}"
    assert "key 'A', window always, stage" in said
    assert "it was assigned to window always" in said
    assert "us)" not in said


def test_many_panes_are_cut_to_the_first_and_the_last() -> None:
    scenario = Scenario(start="12:05")
    for number in range(30):
        scenario = scenario.add((number, f"12:00:{number:02}", "A"))
    trigger = lw.Repeatedly(lw.AfterCount(1))
    run = scenario.run(
        WINDOWS, trigger=trigger, accumulation="accumulating", aggregate=lw.count(), trace=True
    )
    said = run.explain("A", AT)
    assert sum("fired" in line for line in said) == 20
    assert "… and 10 more panes" in said
    assert "fired EARLY #29: 30" in said
    assert len(said.panes) == 30


def test_scenarios_are_asked_by_times_of_day() -> None:
    run = TWO.run(WINDOWS, trace=True)
    assert str(run.explain("A", "12:00:30")) == str(run.explain("A", AT))
    assert str(run.explain("A", ("12:00", "12:02"))) == str(run.explain("A", AT))


def test_what_is_asked_must_be_there() -> None:
    run = TWO.run(WINDOWS, trace=True)
    with pytest.raises(lw.InvalidArgument, match="there is no stage 'b'"):
        run.explain("A", AT, stage="b")
    with pytest.raises(lw.InvalidArgument, match="is not \\(start, end\\)"):
        run.explain("A", (AT,))  # type: ignore[arg-type]
    with pytest.raises(lw.InvalidArgument, match="trace=True"):
        TWO.run(WINDOWS).explain("A", AT)
    with pytest.raises(lw.InvalidArgument, match="trace=True"):
        _ = two_sources().collect().trace
    with pytest.raises(lw.InvalidArgument, match="Write trace=True"):
        two_sources().run(trace="yes")  # type: ignore[arg-type]


def test_a_stage_before_holds_the_watermark() -> None:
    clock = lw.ManualClock()
    rows = [
        ("12:05", "A", "12:00:26", 5),
        ("12:06", "A", "12:03:30", 9),
        ("12:07", "A", "12:05", 1),
    ]
    first = scripted("clicks", clock, rows).key_by("k").window(
        lw.FixedWindows("2m"), trigger=lw.Never(), allowed_lateness="1d"
    ).aggregate(total=lw.sum("v")).named("first")  # fmt: skip
    second = (
        first.key_by("k")
        .window(lw.FixedWindows("1h"), accumulation="accumulating")
        .aggregate(all=lw.sum("total"))
    )
    result = second.named("second").collect(trace=True, bundle_size=1)
    assert [stage.name for stage in result.trace.stages] == ["first", "second"]
    said = result.explain("A", AT)
    assert "stage `first` holds it" in said
    assert "Never() never fires" in result.explain("A", AT, stage="first")
