"""``why`` names the timers that a record set, and what became of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lowwater as lw

MINUTE = 60_000_000


class Silent:
    """Sets its alarm again at each record; a record of 0 clears it."""

    alarm = lw.timer()

    def on_record(self, record: Any, ctx: Any) -> None:
        if record["n"] == 0:
            ctx.alarm.clear()
        else:
            ctx.alarm.set(ctx.time + 10 * MINUTE)

    def on_timer(self, timer: str, ctx: Any) -> None:
        ctx.emit({"silent": True})


class SilentColumns:
    """The same by columns."""

    alarm = lw.timer()

    def on_records(self, batch: Any, ctx: Any) -> None:
        zero = batch["n"] == 0
        ctx.alarm.clear(batch.ids[zero])
        ctx.alarm.set(batch.ids[~zero], batch.times[~zero] + 10 * MINUTE)

    def on_timers(self, batch: Any, ctx: Any) -> None:
        ctx.emit({"silent": np.ones(len(batch), dtype=bool)}, ids=batch.ids, times=batch.times)


def _events(*minutes: tuple[int, int]) -> list[dict[str, Any]]:
    return [{"t": f"2024-01-01T12:{at:02}:00Z", "d": "x", "n": n} for at, n in minutes]


def _result(process: Any, events: list[dict[str, Any]], **options: Any) -> Any:
    stream = lw.from_iterable(events, time="t", watermark=lw.BoundedDisorder("1m"))
    keyed: Any = stream.key_by("d")
    return keyed.process(process, **options).collect(trace=True, bundle_size=1)


def _lines(result: Any, event: Any) -> list[str]:
    """Return what is said of timers, without the clock."""
    lines = str(result.why(event)).splitlines()[2:]
    return [line.strip().split("  ")[-1] for line in lines]


EVENTS = _events((0, 1), (1, 2), (30, 3), (31, 4), (33, 0))


@pytest.mark.parametrize("process", [Silent, SilentColumns])
def test_a_timer_that_moves_on_before_it_fires_is_told_of(process: Any) -> None:
    result = _result(process(), EVENTS)
    assert _lines(result, EVENTS[0]) == [
        "it set timer `alarm` to 12:10:00",
        "it was set anew by what came at 12:01:00, to 12:11:00, before it fired",
    ]
    # The alarm of 12:11 that is lost in order of arrival.
    assert _lines(result, EVENTS[1]) == [
        "it set timer `alarm` to 12:11:00",
        "it was set anew by what came at 12:30:00, to 12:40:00, before it fired",
    ]
    assert _lines(result, EVENTS[3]) == [
        "it set timer `alarm` to 12:41:00",
        "it was cleared by what came at 12:33:00, before it fired",
    ]
    assert _lines(result, EVENTS[4]) == ["it cleared timer `alarm`, which was set to 12:41:00"]


@pytest.mark.parametrize("process", [Silent, SilentColumns])
def test_in_order_of_event_time_it_fires(process: Any) -> None:
    events = EVENTS[:4]
    result = _result(process(), events, order="event_time")
    assert len(result.elements()) == 2
    assert _lines(result, events[1]) == [
        "it set timer `alarm` to 12:11:00",
        "it fired, with the watermark at 12:11:00",
    ]
    assert _lines(result, events[3])[-1] == "it fired, with the watermark at the end of time"


class Tagged:
    one = lw.timer()

    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.one.set(ctx.time + MINUTE, tag=record["n"])

    def on_timer(self, timer: str, ctx: Any) -> None:
        ctx.emit({"tag": ctx.tag})


def test_tags_are_timers_of_their_own() -> None:
    events = _events((0, 1), (0, 2))
    result = _result(Tagged(), events)
    assert _lines(result, events[0])[0] == "it set timer `one` with tag 1 to 12:01:00"
    assert _lines(result, events[0])[1].startswith("it fired")


@pytest.mark.parametrize("process", [Silent, SilentColumns])
def test_what_is_traced_is_what_happened(process: Any) -> None:
    random = np.random.default_rng(1)
    events = [
        {
            "t": int(at) * MINUTE + 1_704_110_400_000_000,
            "d": "abc"[int(random.integers(3))],
            "n": int(random.integers(4)),
        }
        for at in np.sort(random.integers(0, 3_000, 500))
    ]
    stream = lw.from_iterable(events, time="t", unit="us", watermark=lw.Ascending())
    keyed: Any = stream.key_by("d")
    result = keyed.process(process()).collect(trace=True, bundle_size=7)
    timers = result.trace.stage().timers
    held: dict[Any, Any] = {}
    fired = []
    for one in timers:
        if one.what == "set":
            held[one.key] = one.at
        else:
            assert held.pop(one.key) == one.at
            if one.what == "fired":
                fired.append((one.key, one.time))
    assert fired == [(each.key, each.timestamp) for each in result.elements()]
    assert not held  # the end of the input has fired the rest
    assert len(fired) > 20


def test_beyond_the_limit_the_timers_of_some_keys_are_kept() -> None:
    events = [
        {"t": 1_704_110_400_000_000 + at, "d": f"key {at % 50}", "n": 1} for at in range(3_000)
    ]
    stream = lw.from_iterable(events, time="t", unit="us", watermark=lw.Ascending())
    keyed: Any = stream.key_by("d")
    result = keyed.process(Silent()).collect(trace=lw.Tracing(limit=400), bundle_size=100)
    timers = result.trace.stage().timers
    kept = {one.key for one in timers}
    assert 0 < len(kept) < 50
    assert len(timers) <= 400
    assert len(timers) == len(kept) * (3_000 // 50 + 1)  # each set, and fired once at the end
