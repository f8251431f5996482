"""Cumulative windows (S-W8)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lowwater as lw
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import Bundle, EndOfInput, WatermarkAdvance
from lowwater.engine.window import window_state
from lowwater.engine.window.operator import WindowOperator
from lowwater.engine.window.placement import nested_windows
from lowwater.engine.window.windowing import Windowing
from lowwater.errors import InvalidArgument
from lowwater.testing import Scenario, check_window_function
from lowwater.time import END_OF_TIME, LAST_EVENT_TIME, START_OF_TIME, instant
from lowwater.windows import CumulativeWindows

HOUR = 3_600_000_000


def assign(windows: CumulativeWindows, *times: int) -> list[list[tuple[int, int]]]:
    """Return each element's windows, in the order given."""
    given = windows.assign(np.array(times, dtype=np.int64), {})
    found: list[list[tuple[int, int]]] = [[] for _ in times]
    element = np.arange(len(times)) if given.element is None else given.element
    rows = zip(element.tolist(), given.start.tolist(), given.end.tolist(), strict=True)
    for number, start, end in rows:
        found[number].append((start, end))
    return found


class Summing:
    """Adds up in lists, which accumulators must not share."""

    def create_accumulator(self) -> list[int]:
        return [0]

    def add_input(self, accumulator: list[int], value: int) -> list[int]:
        accumulator[0] += value
        return accumulator

    def merge_accumulators(self, accumulators: Any) -> list[int]:
        return [sum(one[0] for one in accumulators)]

    def extract_output(self, accumulator: list[int]) -> int:
        return accumulator[0]


def ends(windows: CumulativeWindows, at: str) -> list[float]:
    """Return the ends of all windows of the day of an instant, in hours since its start."""
    start = int(windows.shortest(np.array([int(instant(at))])).start[0])
    return [(end - start) / HOUR for end in windows.ends(start).tolist()]


def test_an_element_falls_in_each_window_of_its_day_that_ends_after_it() -> None:
    """S-W8."""
    #      4     10  15      20
    #   0 [*-----)
    #   0 [*-----*---*------)      20: of the next day
    #  20                   [*-----)
    #  20                   [*------------)
    #    0      10         20     30     40
    assert assign(CumulativeWindows(20, 10), 4, 10, 15, 20, -1) == [
        [(0, 10), (0, 20)],
        [(0, 20)],
        [(0, 20)],
        [(20, 30), (20, 40)],
        [(-20, 0)],
    ]


def test_the_last_window_ends_with_the_day() -> None:
    """S-W8: also if the step does not divide it."""
    #  3 [-------) 10
    #  3 [--------------) 17
    #  3 [-----------------) 20
    assert assign(CumulativeWindows(17, 7, offset=3), 3, 17) == [
        [(3, 10), (3, 17), (3, 20)],
        [(3, 20)],
    ]


@pytest.mark.parametrize(
    ("day", "hours"), [("2024-03-31", 23), ("2024-10-27", 25), ("2024-06-01", 24)]
)
def test_a_day_has_as_many_hours_as_the_clocks_make_it(day: str, hours: int) -> None:
    """S-W8, S-W5."""
    windows = CumulativeWindows("1d", step="1h", timezone="Europe/Berlin")
    assert ends(windows, f"{day}T12:00:00Z") == list(range(1, hours + 1))
    by_four = CumulativeWindows("1d", step="4h", timezone="Europe/Berlin")
    assert ends(by_four, f"{day}T12:00:00Z") == [*range(4, hours, 4), hours]


def test_the_offset_is_on_the_clock_of_the_time_zone() -> None:
    """S-W8: the day starts at 6, whatever the clocks did before."""
    windows = CumulativeWindows("1d", step="1h", offset="6h", timezone="Europe/Berlin")
    for day, utc in (("2024-03-30", 5), ("2024-03-31", 4), ("2024-10-27", 5)):
        at = np.array([int(instant(f"{day}T10:00:00Z"))])
        assert int(windows.shortest(at).start[0]) == instant(f"{day}T0{utc}:00:00Z")


def test_outside_of_calendars_an_element_is_unwindowed() -> None:
    """S-W8, S-W5."""
    windows = CumulativeWindows("1d", step="1h", timezone="UTC")
    times = np.array([START_OF_TIME + 1, 0, LAST_EVENT_TIME])
    for given in (windows.assign(times, {}), windows.shortest(times)):
        assert given.unwindowed is not None
        assert given.unwindowed.tolist() == [0, 2]
        assert given.element is not None
        assert set(given.element.tolist()) == {1}


@pytest.mark.parametrize("size", ["1d", 1_000, 2**62])
def test_windows_are_cut_off_where_time_ends(size: Any) -> None:
    """S-T1."""
    windows = CumulativeWindows(size, step=size)
    times = [START_OF_TIME + 1, -1, 0, LAST_EVENT_TIME]
    check_window_function(windows, times=times)
    for time, made in zip(times, assign(windows, *times), strict=True):
        assert all(START_OF_TIME <= start <= time < end <= END_OF_TIME for start, end in made)


@pytest.mark.parametrize(
    "windows",
    [
        CumulativeWindows("1d", "1h"),
        CumulativeWindows("1m", "7s", offset="3s"),
        CumulativeWindows("1d", "1h", timezone="Europe/Berlin", offset="2h30m"),
        CumulativeWindows("7d", "12h", timezone="America/Sao_Paulo", offset="2d1h"),
    ],
)
def test_it_is_a_window_function(windows: CumulativeWindows) -> None:
    check_window_function(windows)
    assert eval(repr(windows)) == windows


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": "1h", "step": "1d"}, "is longer than size='1h'"),
        ({"size": "1d", "step": 0}, "step=0 .* longer than zero"),
        ({"size": "1d", "step": "1s"}, "up to 86,400 windows"),
        ({"size": "36h", "step": "1h", "timezone": "Europe/Berlin"}, "not a number of whole days"),
        ({"size": "1d", "step": "1h", "timezone": "Berlin"}, "not an IANA time zone"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        CumulativeWindows(**arguments)


# -- what is kept --------------------------------------------------------------------------------


def test_a_record_may_be_late_for_the_first_windows_and_admitted_to_the_rest() -> None:
    """S-W8, S-O3."""
    #     W = 25, L = 0
    #  0 [--2--) 10         expired
    #  0 [--2-------) 20    expired
    #  0 [--2-----|------) 30   admitted
    scenario = (
        Scenario(start=0)
        .add((1, 12, "a"))
        .watermark(25)
        .add((2, 2, "a"))
        .end()
    )  # fmt: skip
    run = scenario.run_windowing(Windowing(windows=CumulativeWindows(30, 10)), aggregate=lw.sum())
    assert [(pane.window.end, pane.value) for pane in run.panes] == [(20, 1), (30, 3)]
    assert [(late.window.end, late.reason) for late in run.late if late.window] == [
        (10, "expired"),
        (20, "expired"),
    ]


def bundle(*times: int) -> Bundle:
    """Return elements of one key."""
    at = np.array(times, dtype=np.int64)
    ones = Column(np.ones(len(at), dtype=np.int64))
    return Bundle(at, (Column(np.zeros(len(at), dtype=np.int64)),), {"v": ones})


def test_a_record_is_kept_once() -> None:
    """S-W8: one row of state for a key, however many windows there are."""
    operator = WindowOperator(
        Windowing(windows=CumulativeWindows(1_000, 10)), {"n": lw.count(), "all": lw.collect("v")}
    )
    operator.step(bundle(*range(10)))
    assert operator.state_rows == 1
    panes = operator.step(WatermarkAdvance(505)).panes
    assert panes is not None
    assert len(panes) == 50
    assert operator.state_rows == 1
    operator.step(bundle(3, 507))  # one of them is late, and in no window before 510
    assert operator.state_rows == 1
    panes = operator.step(EndOfInput()).panes
    assert panes is not None
    assert panes.values["n"].to_list() == [12] * 50
    assert operator.state_rows == 0


@pytest.mark.parametrize(
    ("trigger", "aggregate", "once"),
    [
        (lw.AfterWatermark(late=lw.AfterCount(2)), lw.sum("v"), True),
        (lw.Default(), lw.collect("v"), True),
        (lw.AfterWatermark(early=lw.AfterCount(1)), lw.sum("v"), False),
        (lw.Repeatedly(lw.AfterWatermark()), lw.sum("v"), False),
        (lw.Default(), lw.combine(Summing(), "v"), False),
    ],
)
def test_where_windows_fire_early_each_has_state_of_its_own(
    trigger: lw.Trigger, aggregate: Any, once: bool
) -> None:
    """S-W8."""
    windowing = Windowing(
        windows=CumulativeWindows(1_000, 10), trigger=trigger, accumulation="accumulating",
        allowed_lateness=20, allow_data_loss="a test",
    )  # fmt: skip
    assert (nested_windows(windowing, {"x": aggregate}) is not None) == once
    operator = WindowOperator(windowing, {"x": aggregate})
    operator.step(bundle(*range(10)))
    assert operator.state_rows == (1 if once else 100)


def test_days_of_23_and_25_hours_give_what_windows_with_state_of_their_own_give(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S-W8: across both changes of the clocks, with keys that pause for days."""
    windows = CumulativeWindows("1d", step="5h", timezone="Europe/Berlin", offset="2h30m")
    random = np.random.default_rng(7)
    start = int(instant("2024-03-29T00:00:00Z"))
    times = start + np.sort(random.integers(0, 220 * 24 * HOUR, 3_000))
    keys = random.integers(0, 9, len(times))

    def shown() -> list[Any]:
        operator = WindowOperator(
            Windowing(windows=windows, allowed_lateness="3h", accumulation="retracting"),
            {"n": lw.sum("v"), "mean": lw.mean("v"), "all": lw.collect("v")},
        )
        found: list[Any] = []
        for low in range(0, len(times), 100):
            some = slice(low, low + 100)
            at = random_order(times[some])
            values = Column(np.arange(low, low + len(at), dtype=np.int64))
            outputs = [
                operator.step(Bundle(at, (Column(keys[some]),), {"v": values})),
                operator.step(WatermarkAdvance(int(times[some][-1]) - 7 * HOUR)),
            ]
            found += [pane for one in outputs for pane in one.panes or ()]
            operator._check()
        found += list(operator.step(EndOfInput()).panes or ())
        assert operator.state_rows == 0
        return found

    once = shown()
    monkeypatch.setattr(window_state, "nested_windows", lambda *_: None)
    assert once == shown()
    assert len(once) > 5_000


def random_order(times: np.ndarray[Any, np.dtype[np.int64]]) -> Any:
    """Return times in another order, the same each time."""
    return np.random.default_rng(len(times)).permutation(times)
