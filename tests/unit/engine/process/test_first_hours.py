"""What users do with processes in their first hours, and what tells them so."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import lowwater as lw
from lowwater.time import duration

ROWS = [{"at": f"2024-01-01T12:{minute}:00Z", "device": "a"} for minute in ("00", "01", "30", "31")]


def stream() -> Any:
    return lw.from_iterable(ROWS, time="at", watermark=lw.Ascending()).key_by("device")


class Silent:
    """Emits when nothing came from a device for ten minutes."""

    alarm = lw.timer()

    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.alarm.set(ctx.time + duration("10m"))

    def on_timer(self, timer: Any, ctx: Any) -> None:
        ctx.emit(f"{lw.Instant(ctx.time):%H:%M}")


def test_a_timer_that_records_set_again_loses_alarms_of_recorded_data() -> None:
    assert stream().process(Silent()).collect(progress=False).values() == ["12:41"]
    in_order = stream().process(Silent(), order="event_time")
    assert in_order.collect(progress=False).values() == ["12:11", "12:41"]
    notes = [f.what for f in lw.check(stream().process(Silent())) if f.severity == "note"]
    assert any("the timer 'alarm'" in note and "loses alarms" in note for note in notes)
    assert not any("loses alarms" in finding.what for finding in lw.check(in_order))


def test_explain_knows_timers() -> None:
    assert "timer alarm, of event time" in stream().process(Silent()).explain()


@pytest.mark.parametrize(
    ("ahead", "warns"), [(600, True), (3600, True), (1_000, False), (0, False)]
)
def test_seconds_for_microseconds(ahead: int, warns: bool) -> None:
    class Soon(Silent):
        def on_record(self, record: Any, ctx: Any) -> None:
            ctx.alarm.set(ctx.time + ahead)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        stream().process(Soon()).collect(progress=False)
    units = [str(one.message) for one in caught if one.category is lw.UnitWarning]
    assert bool(units) == warns
    if warns:
        assert f'ctx.time + lw.duration("{ahead}s")' in units[0]


@pytest.mark.parametrize("field", [None, "x"])
def test_a_cell_in_the_place_of_its_value(field: str | None) -> None:
    class Forgets:
        last = lw.value_cell(0)

        def on_record(self, record: Any, ctx: Any) -> None:
            ctx.emit(ctx.last if field is None else {field: ctx.last})

    result = stream().process(Forgets()).collect(progress=False, on_error="dead_letter")
    assert len(result.errors) == 4
    assert "emit ctx.last.get()" in str(result.errors[0].detail)


def warned_of(process: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        stream().process(process).collect(progress=False)
    return [str(one.message) for one in caught if one.category is lw.PipelineWarning]


def test_state_in_self_is_warned_of_once() -> None:
    class Counts:
        def __init__(self) -> None:
            self.seen = 0
            self.all: list[Any] = []

        def on_record(self, record: Any, ctx: Any) -> None:
            self.seen += 1
            self.all.append(record)
            self.first = "x"

    (text,) = warned_of(Counts())
    assert "keeps state in self.seen and self.all and self.first" in text
    assert "ctx.seen" in text


def test_options_and_clients_in_self_are_no_state() -> None:
    class Looks:
        def __init__(self) -> None:
            self.limit = 3
            self.names = ["a"]
            self.client: Any = None

        def on_record(self, record: Any, ctx: Any) -> None:
            self.client = self.client or object()
            ctx.emit(self.limit)

    assert warned_of(Looks()) == []
