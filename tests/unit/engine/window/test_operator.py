"""The window operator as such: what it keeps, what it promises, in which order, at what cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import (
    Bundle,
    ClockAdvance,
    EndOfInput,
    StepInput,
    WatermarkAdvance,
)
from lowwater.engine.window.operator import WindowOperator
from lowwater.engine.window.schedule import WatermarkHolds
from lowwater.state.arrays import Scratch
from lowwater.state.bag import Bag
from lowwater.state.deadlines import Deadlines
from lowwater.state.table import Index
from lowwater.time import END_OF_TIME, START_OF_TIME

LATE = lw.AfterWatermark(early=lw.AfterCount(2), late=lw.AfterCount(1))
SPECS = {"n": lw.count(), "all": lw.collect("v"), "set": lw.count_distinct("v"), "sum": lw.sum("v")}
OPTIONS: list[dict[str, Any]] = [
    {"allowed_lateness": 15, "timestamps": "earliest"},
    {"allowed_lateness": 15, "timestamps": "latest", "closing": "always"},
]
MODES: list[Any] = ["discarding", "accumulating", "retracting"]
WINDOWS = [
    lw.Windowing(windows=windows, trigger=trigger, accumulation=accumulation, **options)
    for windows in (lw.FixedWindows(10), lw.SlidingWindows(10, 4), lw.Sessions(6))
    for trigger in (LATE, lw.Repeatedly(lw.AfterCount(3)))
    for accumulation in MODES
    for options in OPTIONS
]


def operator(windows: Any, *, start: int = START_OF_TIME, **options: Any) -> WindowOperator:
    windowing = windows if isinstance(windows, lw.Windowing) else lw.Windowing(
        windows=windows, **options
    )  # fmt: skip
    return WindowOperator(windowing, SPECS, watermark=start)


def bundle(
    times: Sequence[int], keys: Sequence[Any], values: Sequence[int] | None = None
) -> Bundle:
    values = list(range(len(times))) if values is None else values
    return Bundle(
        np.array(times, dtype=np.int64),
        (Column.from_arrow(pa.array(keys)),),
        {"v": Column(np.array(values, dtype=np.int64))},
    )


def elements(*pairs: tuple[int, Any]) -> Bundle:
    return bundle([t for t, _ in pairs], [k for _, k in pairs])


def panes(stage: WindowOperator, step: StepInput) -> list[lw.Pane]:
    shown = stage.step(step).panes
    return [] if shown is None else list(shown)


def seen(stage: WindowOperator, step: StepInput) -> list[tuple[Any, int, int]]:
    return [(p.key, int(p.window.start), int(p.window.end)) for p in panes(stage, step)]


def disorder(seed: int, count: int = 300) -> Iterator[StepInput]:
    """Bundles of a few keys out of order, some of them late, between watermarks that move on."""
    random = np.random.default_rng(seed)
    arrived = 0
    for now in range(0, count, 5):
        size = int(random.integers(1, 9))
        times = random.integers(max(0, now - 40), now + 30, size)
        keys = random.choice(list("abcdef"), size)
        yield bundle(times.tolist(), keys.tolist(), range(arrived, arrived + size))
        arrived += size
        if random.random() < 0.6:
            yield WatermarkAdvance(now)
        yield ClockAdvance(now)


# ----------------------------------------------------------------------------- state is released


def bags_of(stage: WindowOperator) -> list[Bag]:
    return [bag for part in stage._state.aggregation._parts for bag in part.bags.values()]


def queues(stage: WindowOperator) -> tuple[Sized, ...]:
    schedule = stage._schedule
    return schedule.by_watermark, schedule.by_clock, schedule.holds


def assert_empty(stage: WindowOperator) -> None:
    state = stage._state
    assert (stage.open_windows, stage.state_rows, state.finished_rows) == (0, 0, 0)
    assert len(state.index) == 0
    assert state.segments is None or len(state.segments) == 0
    assert state.shown is None or len(state.shown) == 0
    assert [len(bag) for bag in bags_of(stage)] == [0, 0]
    assert state._live_keys == 0
    assert not state._key_rows.any()


def test_after_finishing_only_the_fact_is_kept() -> None:
    """S-O7: the values are let go at once, the row at expiry."""
    for windows in (lw.FixedWindows(10), lw.Sessions(10)):
        stage = operator(
            windows,
            trigger=lw.AfterCount(2),
            accumulation="retracting",
            allowed_lateness=5,
            allow_data_loss="the first two are enough",
        )
        assert len(panes(stage, elements((1, "a"), (1, "a"), (1, "b")))) == 1
        assert (stage.open_windows, stage.state_rows) == (1, 2)
        state = stage._state
        assert state.shown is not None
        assert len(state.shown) == 0
        assert [len(bag) for bag in bags_of(stage)] == [1, 1]
        stage.step(WatermarkAdvance(16))
        assert_empty(stage)


def test_discarding_lets_go_of_what_was_shown() -> None:
    """S-A1: a window that never ends holds no more than one pane's worth."""
    stage = operator(
        lw.GlobalWindow(), trigger=lw.Repeatedly(lw.AfterCount(10)), accumulation="discarding"
    )
    for at in range(0, 2_000, 10):
        stage.step(bundle(range(at, at + 10), ["a"] * 10))
        for bag in bags_of(stage):
            assert (len(bag), len(bag._values)) == (0, 256)


@pytest.mark.parametrize("typed", [pa.int64(), pa.string()])
@pytest.mark.parametrize("windows", [lw.FixedWindows(10), lw.Sessions(5)])
def test_keys_that_pass_by_are_forgotten(windows: Any, typed: pa.DataType) -> None:
    """150 000 keys, each seen once: the dictionary stays near the constant it may waste."""
    stage = WindowOperator(lw.Windowing(windows=windows), {"n": lw.count()})
    size, most = 10_000, 0
    for turn in range(15):
        numbers = np.arange(turn * size, (turn + 1) * size)
        keys = Column.from_arrow(pa.array(numbers).cast(typed))
        stage.step(Bundle(np.full(size, 10 * turn, dtype=np.int64), (keys,), {}))
        shown = stage.step(WatermarkAdvance(10 * turn + 10)).panes
        assert shown is not None
        assert shown.keys[0].to_list() == keys.to_list()
        assert stage._state.keys is not None
        most = max(most, len(stage._state.keys))
    assert most <= (1 << 16) + 2 * size
    assert stage._state.keys is not None
    assert stage._state.keys.capacity <= 2 * ((1 << 16) + 2 * size)
    assert stage._state.table.capacity <= 2 * size
    assert len(stage._state._key_rows) <= 4 * ((1 << 16) + 2 * size)


def test_keys_of_dropped_elements_are_forgotten_too() -> None:
    stage = WindowOperator(lw.Windowing(windows=lw.FixedWindows(10)), {"n": lw.count()})
    stage.step(WatermarkAdvance(1_000))
    for turn in range(10):
        keys = Column(np.arange(turn * 20_000, (turn + 1) * 20_000))
        times = np.zeros(20_000, dtype=np.int64)
        times[0] = 2_000  # so that not all of the bundle is late
        output = stage.step(Bundle(times, (keys,), {}))
        assert output.late is not None
        assert len(output.late) == 19_999
    assert stage._state.keys is not None
    assert len(stage._state.keys) <= (1 << 16) + 20_000 + 10


def test_queues_stay_near_what_is_open() -> None:
    """S-H2: the holds of windows that are gone are let go, whether anyone asks for them or not."""
    stage = operator(lw.FixedWindows(10), timestamps="earliest")
    for at in range(0, 1_500, 2):
        stage.step(elements((at, "a"), (at + 1, "b")))
        stage.step(WatermarkAdvance(at))
    for queue in queues(stage):
        assert len(queue) < 100


# ---------------------------------------------------------------------------- reports of merges


def test_merges_are_reported_but_those_into_a_finished_window() -> None:
    """S-O4: what would give a window that has finished does not merge.

    ::

        a  [0 [5 10) 15)                   shown, finished
        a  [0 [5 10) 15)                   would be the same window again
        b                [20 [25 30) 35)
    """
    stage = operator(
        lw.Sessions(10),
        trigger=lw.AfterCount(2),
        accumulation="discarding",
        allow_data_loss="the first two are enough",
    )
    stage.report_to_trace()

    def merges(*pairs: tuple[int, Any]) -> list[tuple[Any, int, int, int, int]]:
        reported = stage.step(elements(*pairs)).merges
        assert reported is not None
        parts = (reported.group.tolist(), reported.part_start.tolist(), reported.part_end.tolist())
        keys = reported.keys[0].to_list()
        return [
            (keys[group], start, end, int(reported.start[group]), int(reported.end[group]))
            for group, start, end in zip(*parts, strict=True)
        ]

    assert merges((0, "a")) == [("a", 0, 10, 0, 10)]
    assert merges((5, "a")) == [("a", 5, 15, 0, 15), ("a", 0, 10, 0, 15)]
    assert merges((0, "a"), (5, "a"), (20, "b"), (25, "b")) == [
        ("b", 20, 30, 20, 35),
        ("b", 25, 35, 20, 35),
    ]


# ------------------------------------------------------------------------------ output watermark


def test_end_holds_only_what_is_complete() -> None:
    """S-H2: with timestamps="end" an open window holds at its last instant, beyond the input's."""
    stage = operator(lw.FixedWindows(10))
    assert stage.output_watermark == START_OF_TIME
    stage.step(elements((3, "a")))
    stage.step(WatermarkAdvance(8))
    assert stage.output_watermark == 8
    stage.step(WatermarkAdvance(10))
    assert stage.output_watermark == 10


@pytest.mark.parametrize(
    "trigger",
    [lw.Never(), lw.Repeatedly(lw.AfterCount(3)), lw.Repeatedly(lw.AfterProcessingTime(9))],
)
def test_a_trigger_that_waits_beyond_completion_holds(trigger: lw.Trigger) -> None:
    """S-H2: a pane that comes at expiry, at its window's end, must not be late downstream."""
    stage = operator(
        lw.FixedWindows(10), trigger=trigger, accumulation="discarding", allowed_lateness=50
    )
    stage.step(elements((3, "a")))
    stage.step(WatermarkAdvance(30))
    assert stage.output_watermark == 9
    stage.step(WatermarkAdvance(59))
    assert stage.output_watermark == 9
    (pane,) = panes(stage, WatermarkAdvance(60))
    assert pane.timestamp == 9
    assert stage.output_watermark == 60


def test_the_check_finds_that_a_hold_is_not_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window holds once the watermark is at its end, and it still has elements to show."""
    stage = operator(
        lw.FixedWindows(10),
        trigger=lw.Repeatedly(lw.AfterAll(lw.AfterWatermark(), lw.AfterCount(2))),
        accumulation="discarding",
        allowed_lateness=50,
    )
    monkeypatch.setattr(WatermarkHolds, "note", lambda self, rows: None)
    stage.step(elements((3, "a")))
    stage.step(WatermarkAdvance(9))
    stage._check()
    stage.step(WatermarkAdvance(10))
    with pytest.raises(AssertionError, match="hold: a row would be handled too late"):
        stage._check()


def test_the_hold_of_a_session_that_another_one_absorbs() -> None:
    """
    ::

        a  [0 shown 10)
        b                [12  unshown  22)        watermark 25: holds at 21
        late         [8        18)                joins them to [0, 22): holds at 21 still
    """
    stage = operator(
        lw.Sessions(10),
        trigger=lw.Repeatedly(lw.AfterCount(2)),
        accumulation="accumulating",
        allowed_lateness=50,
    )
    assert len(panes(stage, elements((0, "k"), (0, "k")))) == 1
    assert not panes(stage, elements((12, "k")))
    stage.step(WatermarkAdvance(25))
    assert stage.output_watermark == 21
    (pane,) = panes(stage, elements((8, "k")))
    assert (pane.window.start, pane.window.end, pane.timestamp) == (0, 22, 21)
    assert stage.output_watermark == 25


def test_earliest_holds_at_the_first_unshown_element() -> None:
    stage = operator(
        lw.FixedWindows(100),
        trigger=lw.Repeatedly(lw.AfterCount(2)),
        accumulation="discarding",
        timestamps="earliest",
        start=0,
    )
    stage.step(elements((30, "a")))
    stage.step(WatermarkAdvance(10))
    assert stage.output_watermark == 10
    stage.step(elements((20, "b")))
    stage.step(WatermarkAdvance(50))
    assert stage.output_watermark == 20  # b's, the lowest
    assert [p.timestamp for p in panes(stage, elements((60, "b")))] == [20]
    assert stage.output_watermark == 30  # a's is next
    assert [p.timestamp for p in panes(stage, elements((55, "a")))] == [30]
    assert stage.output_watermark == 50


def test_latest_holds_at_the_last_unshown_element() -> None:
    stage = operator(
        lw.FixedWindows(100),
        trigger=lw.Repeatedly(lw.AfterCount(3)),
        accumulation="discarding",
        timestamps="latest",
        start=0,
    )
    stage.step(elements((20, "a")))
    stage.step(elements((40, "a")))
    stage.step(WatermarkAdvance(30))
    assert stage.output_watermark == 30
    stage.step(WatermarkAdvance(45))
    assert stage.output_watermark == 40
    assert [p.timestamp for p in panes(stage, elements((60, "a")))] == [60]
    assert stage.output_watermark == 45


def test_late_elements_do_not_hold_where_they_are() -> None:
    """S-H1, S-H2: an element that was late when it came has no say in the pane's time."""
    stage = operator(
        lw.FixedWindows(100),
        trigger=lw.Repeatedly(lw.AfterCount(2)),
        accumulation="discarding",
        timestamps="earliest",
        start=50,
    )
    stage.step(elements((20, "a")))
    assert stage.output_watermark == 50
    stage.step(WatermarkAdvance(60))
    assert stage.output_watermark == 60
    assert [p.timestamp for p in panes(stage, elements((80, "a")))] == [80]


def test_accumulating_panes_keep_the_earliest_of_all() -> None:
    stage = operator(
        lw.FixedWindows(100),
        trigger=lw.Repeatedly(lw.AfterCount(1)),
        accumulation="accumulating",
        timestamps="earliest",
        start=0,
    )
    assert [p.timestamp for p in panes(stage, elements((20, "a")))] == [20]
    stage.step(WatermarkAdvance(40))
    assert stage.output_watermark == 40
    assert [p.timestamp for p in panes(stage, elements((60, "a")))] == [20]
    assert stage.output_watermark == 40  # never back


def test_a_pane_at_expiry_releases_the_hold() -> None:
    stage = operator(lw.FixedWindows(100), trigger=lw.Never(), timestamps="earliest", start=0)
    stage.step(elements((20, "a")))
    stage.step(WatermarkAdvance(99))
    assert stage.output_watermark == 20
    assert len(panes(stage, EndOfInput())) == 1
    assert stage.output_watermark == END_OF_TIME


Shown = list[tuple[list[lw.Pane], Any]]


def promised(windowing: lw.Windowing, seed: int, count: int) -> Shown:
    """Return the panes and late elements of a run, which keeps its promise and is empty then."""
    stage = operator(windowing)
    before = stage.output_watermark
    timely: set[int] = set()
    outputs: Shown = []
    for step in [*disorder(seed, count), EndOfInput()]:
        if isinstance(step, Bundle):
            timely.update(step.values["v"].data[step.times >= stage.watermark].tolist())
        if isinstance(step, EndOfInput):
            assert stage.state_rows > 0
        output = stage.step(step)
        late = output.late
        shown = [] if output.panes is None else list(output.panes)
        outputs.append(
            (shown, None if late is None else (late.element.tolist(), late.reason.tolist()))
        )
        for pane in shown:
            # What was shown before may come again in later panes: its hold has been released.
            if windowing.mode == "discarding" and timely.intersection(pane.values["all"]):
                assert pane.timestamp >= before
        assert before <= stage.output_watermark <= stage.watermark
        before = stage.output_watermark
    assert before == END_OF_TIME
    assert_empty(stage)
    assert [len(queue) for queue in queues(stage)] == [0, 0, 0]
    return outputs


@pytest.mark.parametrize(
    ("seed", "count"),
    [
        (2, 100),
        *(
            pytest.param(
                seed, 300, marks=pytest.mark.long(reason="repeats a proof with other data")
            )
            for seed in (3, 4)
        ),
    ],
)
@pytest.mark.parametrize("windowing", WINDOWS, ids=lambda w: f"{w.windows}-{w.accumulation}")
def test_the_promise_is_kept(windowing: lw.Windowing, seed: int, count: int) -> None:
    """S-H2, S-H3: never back, never beyond the input's; nothing that was timely comes below it.

    S-O7: at the end nothing is held. S-T4: two runs give the same in the same order.
    """
    assert promised(windowing, seed, count) == promised(windowing, seed, count)


# ---------------------------------------------------------------------------------- determinism


def test_what_ids_keys_get_does_not_show() -> None:
    """S-T4: a key's type, and what else was in the dictionary before, change no order."""
    orders = []
    for make in (lambda k: k, lambda k: int(k) * 7_919, lambda k: float(k) / 3, lambda k: (k,)):
        stage = operator(lw.FixedWindows(10))
        names = [str((at * 37) % 101) for at in range(101)]
        keys = Column.of_objects([make(name) for name in names])
        if not isinstance(make("1"), tuple):
            keys = Column.from_arrow(pa.array(keys.to_list()))
        stage.step(Bundle(np.zeros(101, np.int64), (keys,), {"v": Column(np.arange(101))}))
        back = {make(name): name for name in names}
        orders.append([back[p.key] for p in panes(stage, EndOfInput())])
        assert orders[-1] == names
    assert orders[0] == orders[1] == orders[2] == orders[3]


# ------------------------------------------------------------------------------------ the order


def test_a_bundle_fires_by_end_then_start_then_first_seen_key() -> None:
    """S-O2."""
    stage = operator(
        lw.SlidingWindows(10, 5), trigger=lw.Repeatedly(lw.AfterCount(1)), accumulation="discarding"
    )
    assert seen(stage, elements((12, "z"), (3, "a"), (12, "a"))) == [
        ("a", -5, 5),
        ("a", 0, 10),
        ("z", 5, 15),
        ("a", 5, 15),
        ("z", 10, 20),
        ("a", 10, 20),
    ]
    assert seen(stage, elements((12, "a"), (12, "new"), (12, "z")))[:3] == [
        ("z", 5, 15),
        ("a", 5, 15),
        ("new", 5, 15),
    ]


def test_sessions_of_one_end_fire_by_start() -> None:
    """S-O2: (end, start, first-seen key)."""
    stage = operator(
        lw.Sessions(10), trigger=lw.Repeatedly(lw.AfterCount(1)), accumulation="discarding"
    )
    order = seen(stage, elements((9, "late start"), (9, "b"), (2, "b"), (1, "c"), (0, "c")))
    assert order == [("c", 0, 11), ("b", 2, 19), ("late start", 9, 19)]


def test_a_watermark_shows_windows_by_due_time_first() -> None:
    """S-O5: (due time, end, start, first-seen key), whatever came in which bundle."""
    stage = operator(lw.FixedWindows(10))
    stage.step(elements((35, "d"), (5, "d")))
    stage.step(elements((5, "a"), (15, "c"), (15, "a")))
    assert seen(stage, WatermarkAdvance(30)) == [
        ("d", 0, 10),
        ("a", 0, 10),
        ("a", 10, 20),
        ("c", 10, 20),
    ]
    assert seen(stage, EndOfInput()) == [("d", 30, 40)]


def test_expiry_is_a_due_time_of_its_own() -> None:
    """S-O5: a window that expires at 15 comes before one that completes at 20, after one at 10."""
    stage = operator(
        lw.FixedWindows(10),
        trigger=lw.AfterWatermark(late=lw.AfterCount(2)),
        accumulation="discarding",
        allowed_lateness=5,
    )
    stage.step(elements((1, "a")))
    stage.step(WatermarkAdvance(10))
    stage.step(elements((2, "a"), (12, "b")))
    order = [(p.key, int(p.window.end), p.timing) for p in panes(stage, WatermarkAdvance(20))]
    assert order == [("a", 10, "LATE"), ("b", 20, "ON_TIME")]


def test_a_key_keeps_its_place_while_it_has_windows() -> None:
    """S-O2, S-O5: first seen is first, as long as the key has state."""
    stage = operator(lw.FixedWindows(10))
    stage.step(elements((5, "a"), (5, "b"), (15, "b")))
    assert seen(stage, WatermarkAdvance(10)) == [("a", 0, 10), ("b", 0, 10)]
    stage.step(elements((15, "a"), (15, "c")))
    assert seen(stage, WatermarkAdvance(20)) == [("b", 10, 20), ("a", 10, 20), ("c", 10, 20)]


def test_late_elements_come_in_their_order() -> None:
    """S-O3: by element, then window, with the window they were judged by."""
    stage = operator(lw.SlidingWindows(10, 5), start=100)
    late = stage.step(elements((12, "a"), (200, "a"), (3, "b"))).late
    assert late is not None
    assert late.element.tolist() == [0, 0, 2, 2]
    assert late.start.tolist() == [5, 10, -5, 0]
    assert late.end.tolist() == [15, 20, 5, 10]


def test_timers_fire_in_time_order_each_at_its_own_clock() -> None:
    """S-O8."""
    stage = operator(
        lw.FixedWindows(100),
        trigger=lw.Repeatedly(lw.AfterProcessingTime(10)),
        accumulation="discarding",
    )
    stage.step(ClockAdvance(0))
    stage.step(elements((1, "z")))
    stage.step(ClockAdvance(3))
    stage.step(elements((1, "a"), (101, "a")))
    shown = panes(stage, ClockAdvance(1_000))
    assert [(p.key, int(p.window.end), int(p.emitted_at)) for p in shown] == [
        ("z", 100, 10),
        ("a", 100, 13),
        ("a", 200, 13),
    ]


def test_the_clock_may_go_to_the_end_of_time() -> None:
    stage = operator(
        lw.FixedWindows(100),
        trigger=lw.Repeatedly(lw.AfterProcessingTime(10)),
        accumulation="discarding",
    )
    stage.step(ClockAdvance(0))
    stage.step(elements((1, "a")))
    assert len(panes(stage, ClockAdvance(END_OF_TIME))) == 1
    assert panes(stage, ClockAdvance(END_OF_TIME)) == []


def test_a_timer_beyond_the_end_of_time_fires_just_before_it() -> None:
    stage = operator(
        lw.FixedWindows(100),
        trigger=lw.Repeatedly(lw.AfterProcessingTime(10)),
        accumulation="discarding",
    )
    stage.step(ClockAdvance(END_OF_TIME - 5))
    stage.step(elements((1, "a")))
    assert panes(stage, ClockAdvance(END_OF_TIME - 2)) == []
    (pane,) = panes(stage, ClockAdvance(END_OF_TIME))
    assert int(pane.emitted_at) == END_OF_TIME - 1


# -------------------------------------------------------------------------------- what a step costs


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Count rows that go through the places every step's rows go through."""
    work = {"unique": 0, "popped": 0, "probed": 0}
    unique, pop = Scratch.unique, Deadlines.pop
    find, insert = Index.find, Index.find_or_insert

    def counting_unique(self: Scratch, rows: Any, capacity: int) -> Any:
        work["unique"] += len(rows)
        return unique(self, rows, capacity)

    def counting_pop(self: Deadlines, upto: int) -> Any:
        times, rows = pop(self, upto)
        work["popped"] += len(rows)
        return times, rows

    def counting_find(self: Index, *values: Any) -> Any:
        work["probed"] += len(values[0])
        return find(self, *values)

    def counting_insert(self: Index, *values: Any) -> Any:
        work["probed"] += len(values[0])
        return insert(self, *values)

    with monkeypatch.context() as patch:
        patch.setattr(Scratch, "unique", counting_unique)
        patch.setattr(Deadlines, "pop", counting_pop)
        patch.setattr(Index, "find", counting_find)
        patch.setattr(Index, "find_or_insert", counting_insert)
        yield work


OPEN = 200_000


@pytest.mark.parametrize("windows", [lw.FixedWindows(10), lw.Sessions(10)])
@pytest.mark.parametrize("accumulation", ["discarding", "retracting"])
def test_a_step_touches_what_it_touches(
    windows: Any, accumulation: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among 200 000 open windows an element costs its own window, a watermark those due."""
    windowing = lw.Windowing(
        windows=windows,
        trigger=lw.AfterWatermark(early=lw.AfterCount(2), late=lw.AfterCount(1)),
        accumulation=accumulation,
        allowed_lateness=100,
    )
    stage = WindowOperator(windowing, {"n": lw.count(), "v": lw.sum("v")})
    ids = np.arange(OPEN)
    stage.step(Bundle(20 * ids, (Column(ids % 50_000),), {"v": Column(ids)}))
    assert stage.open_windows == OPEN

    def one(at: int) -> Bundle:
        key = Column(np.array([at % 50_000]))
        return Bundle(np.array([20 * at]), (key,), {"v": Column(np.array([1]))})

    with counted(monkeypatch) as work:
        (first,) = panes(stage, one(77_777))
        assert first.timing == "EARLY"
        for at in range(50):
            stage.step(one(100_000 + at))
        stage.step(WatermarkAdvance(20 * 40))
        assert [stage.step(WatermarkAdvance(20 * 40 + at)).panes for at in range(1, 5)] == [
            None
        ] * 4
        late = panes(stage, one(39))
        assert [p.timing for p in late if p.kind == "insert"] == ["LATE"]
        assert stage.output_watermark == 20 * 40 + 4
    assert work["unique"] < 1_000
    assert work["popped"] < 500
    assert work["probed"] < 500
    assert stage.open_windows > OPEN - 50


def test_clock_steps_touch_what_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    windowing = lw.Windowing(
        windows=lw.FixedWindows(10),
        trigger=lw.Repeatedly(lw.AfterProcessingTime(5)),
        accumulation="discarding",
    )
    stage = WindowOperator(windowing, {"n": lw.count()})
    stage.step(ClockAdvance(1_000))
    ids = np.arange(OPEN)
    stage.step(Bundle(np.zeros(OPEN, np.int64), (Column(ids),), {}))
    stage.step(ClockAdvance(1_002))
    stage.step(Bundle(np.full(10, 20), (Column(np.arange(10)),), {}))
    shown = stage.step(ClockAdvance(1_005)).panes
    assert shown is not None
    assert len(shown) == OPEN
    with counted(monkeypatch) as work:
        assert len(panes(stage, ClockAdvance(1_007))) == 10
        assert panes(stage, ClockAdvance(2_000)) == []
    assert work["popped"] <= 20
