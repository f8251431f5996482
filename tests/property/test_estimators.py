"""Watermark estimators: what holds of each of them, whatever comes (S-T3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lowwater.engine.local.estimator_input import ObservedBatch
from lowwater.engine.records.batch import Records
from lowwater.engine.records.columns import Column
from lowwater.state.codec import decode, encode
from lowwater.time import END_OF_TIME, LAST_EVENT_TIME, START_OF_TIME, duration
from lowwater.watermark import (
    Ascending,
    BoundedDisorder,
    EstimatorState,
    FinishedFiles,
    Observed,
    PerPartition,
    Punctuated,
    Quantile,
    WatermarkEstimator,
)

SMALL = st.integers(0, 60)
TIME = st.one_of(SMALL, SMALL, SMALL, st.integers(START_OF_TIME, LAST_EVENT_TIME))
PARTITION = st.sampled_from(["a", "b", "c", None])
ELEMENT = st.tuples(TIME, PARTITION, st.none() | st.integers(0, 40))
Element = tuple[int, str | None, int | None]
FILES = ["a", "b", "c", "d"]


@dataclass(frozen=True)
class Arrival:
    """Some elements at a time of the clock."""

    elements: list[Element]
    clock: int

    def observed(self) -> Observed:
        times = [time for time, _, _ in self.elements]
        parts = [part for _, part, _ in self.elements]
        marks = [mark for _, _, mark in self.elements]
        batch = pa.record_batch(
            {
                "part": pa.array(parts, pa.string()),
                "number": pa.array([None if p is None else ord(p) for p in parts], pa.int64()),
                "mark": pa.array(marks, pa.int64()),
            }
        )
        of_batch = ObservedBatch(Records.from_arrow(batch), None)
        return of_batch.bundle(np.array(times, dtype=np.int64), 0, self.clock)


def arrivals(elements: list[list[Element]], waits: list[int]) -> list[Arrival]:
    clocks = np.cumsum([0, *waits])[: len(elements)].tolist()
    clocks += [clocks[-1] if clocks else 0] * (len(elements) - len(clocks))
    return [Arrival(some, clock) for some, clock in zip(elements, clocks, strict=True)]


STREAM = st.builds(
    arrivals,
    st.lists(st.lists(ELEMENT, max_size=6), max_size=8),
    st.lists(st.integers(0, 9), max_size=8),
)
PLAIN: list[WatermarkEstimator] = [
    Ascending(),
    BoundedDisorder(5),
    BoundedDisorder(END_OF_TIME),
    Quantile(0.9, warm_up=3, memory=4),
    Quantile(0.5, warm_up=5, most=7, least=2),
    Punctuated("mark"),
    Punctuated(lambda record: record["mark"]),
]
ESTIMATOR = st.one_of(
    st.sampled_from(PLAIN),
    st.builds(
        PerPartition,
        st.sampled_from(PLAIN),
        by=st.sampled_from(["part", "number"]),
        expected=st.none() | st.sampled_from([("a", "b"), (97, 98), ("a", "zz")]),
        idle_after=st.none() | st.integers(1, 12),
    ),
)


def watermarks(state: EstimatorState, stream: Iterable[Arrival]) -> list[int]:
    found = []
    for arrival in stream:
        state.observe(arrival.observed())
        found.append(state.current(arrival.clock))
    return found


@given(ESTIMATOR, STREAM)
def test_no_watermark_goes_back(estimator: WatermarkEstimator, stream: list[Arrival]) -> None:
    """S-T3."""
    found = watermarks(estimator.start(), stream)
    assert found == sorted(found)
    assert all(START_OF_TIME <= at < END_OF_TIME for at in found)


@given(ESTIMATOR, STREAM, st.data())
def test_another_run_can_take_up_what_is_remembered(
    estimator: WatermarkEstimator, stream: list[Arrival], data: st.DataObject
) -> None:
    """A run stopped between any two bundles goes on as if nothing had happened."""
    stop = data.draw(st.integers(0, len(stream)))
    before = estimator.start()
    watermarks(before, stream[:stop])
    after = estimator.start()
    after.resume(decode(encode(before.remember())))
    assert watermarks(after, stream[stop:]) == watermarks(before, stream[stop:])
    assert after.remember() == before.remember()


@given(st.sampled_from(PLAIN), st.sampled_from(PLAIN), STREAM)
def test_what_another_estimator_knew_does_no_harm(
    old: WatermarkEstimator, new: WatermarkEstimator, stream: list[Arrival]
) -> None:
    before = PerPartition(old, by="part").start()
    watermarks(before, stream)
    after = PerPartition(new, by="part").start()
    after.resume(decode(encode(before.remember())))
    found = watermarks(after, stream)
    assert found == sorted(found)
    alone = new.start()
    alone.resume(before.remember())
    assert watermarks(alone, stream) == watermarks(new.start(), stream)


@given(st.sampled_from(PLAIN), st.lists(ELEMENT, min_size=1), st.data())
def test_cuts_into_bundles_make_no_difference_in_the_end(
    estimator: WatermarkEstimator, elements: list[Element], data: st.DataObject
) -> None:
    """Of what is learned; the watermarks on the way are as many as there are bundles."""
    cut = data.draw(st.integers(0, len(elements)))
    whole, parts = estimator.start(), estimator.start()
    whole.observe(Arrival(elements, 0).observed())
    for part in (elements[:cut], elements[cut:]):
        parts.observe(Arrival(part, 0).observed())
    assert parts.remember() == whole.remember()


class Model:
    """Per partition, one element after another, as the documentation says it."""

    def __init__(self, value: PerPartition, delay: int) -> None:
        self.value, self.delay = value, delay
        self.latest: dict[Any, int] = {}
        self.heard: dict[Any, int] = {}
        self.at = START_OF_TIME

    def step(self, arrival: Arrival) -> int:
        value = self.value
        for time, name, _ in arrival.elements:
            partition: Any = name
            if value.by == "number" and name is not None:
                partition = ord(name)
            if value.expected is None or partition in value.expected:
                self.latest[partition] = max(time, self.latest.get(partition, time))
                self.heard[partition] = arrival.clock
        wanted = list(self.latest) if value.expected is None else list(value.expected)
        if not wanted or any(partition not in self.latest for partition in wanted):
            return self.at
        last = max(self.heard[p] for p in wanted)
        counted = [
            max(self.latest[p] - self.delay, START_OF_TIME)
            for p in wanted
            if value.idle_after is None
            or arrival.clock - self.heard[p] < duration(value.idle_after)
            or self.heard[p] == last
        ]
        self.at = max(self.at, min(counted))
        return self.at


@dataclass(frozen=True)
class Plainly:
    """``BoundedDisorder`` that nobody knows how to hold as a column."""

    delay: int

    def start(self) -> EstimatorState:
        return BoundedDisorder(self.delay).start()


@given(
    STREAM,
    st.sampled_from(["part", "number"]),
    st.none() | st.sampled_from([("a", "b"), (97, 98), ("a",), (98, None)]),
    st.none() | st.integers(1, 12),
    st.integers(0, 9),
)
def test_partitions_equal_the_model(
    stream: list[Arrival], by: str, expected: Any, idle_after: int | None, delay: int
) -> None:
    fast = PerPartition(BoundedDisorder(delay), by=by, expected=expected, idle_after=idle_after)
    plain = PerPartition(Plainly(delay), by=by, expected=expected, idle_after=idle_after)
    model = Model(fast, delay)
    wanted = [model.step(arrival) for arrival in stream]
    assert watermarks(fast.start(), stream) == wanted
    assert watermarks(plain.start(), stream) == wanted


@given(st.lists(st.tuples(TIME, st.integers(-3, 3)), min_size=1), st.integers(1, 40))
def test_the_form_of_the_partitions_makes_no_difference(
    elements: list[tuple[int, int]], repeated: int
) -> None:
    """Runs, numbers far apart, floats, dictionaries, text and objects."""
    times = np.repeat(np.array([time for time, _ in elements]), repeated)
    numbers = np.repeat(np.array([part for _, part in elements]), repeated)
    texts = pa.array([str(part) for part in numbers.tolist()])
    forms: list[Column] = [
        Column(numbers),
        Column(numbers * 10**15),
        Column(numbers.astype(np.float64)),
        Column.of_objects(numbers.tolist()),
        Column(arrow=pa.array(numbers)),
        Column(arrow=texts),
        Column(arrow=texts.dictionary_encode()),
    ]
    found = set()
    for form in forms:
        columns: Mapping[str, Column] = {"p": form}
        whole = ObservedBatch(Records(columns, len(times)), None).bundle(times, 0, 0)
        for observed in (whole, Observed(times, columns, 0)):
            state = PerPartition(BoundedDisorder(1), by="p").start()
            state.observe(observed)
            found.add(state.current(0))
    latest = [max(t for t, p in elements if p == part) for part in {p for _, p in elements}]
    assert found == {max(min(latest) - 1, START_OF_TIME)}


@given(st.lists(TIME, min_size=1), st.floats(0.001, 1))
def test_a_quantile_is_learned_to_an_eighth(times: list[int], quantile: float) -> None:
    state = Quantile(quantile, warm_up=0).start()
    state.observe(Observed(np.array(times, dtype=np.int64), {}, 0))
    latest = np.maximum.accumulate(np.array(times)).tolist()
    lags = sorted(high - time for high, time in zip(latest, times, strict=True))
    exact = min(lags[max(1, ceil(quantile * len(lags))) - 1], END_OF_TIME)
    delay = max(times) - state.current(0)
    lowest_delay = min(exact, max(times) - START_OF_TIME)
    assert lowest_delay <= delay <= exact + exact // 8 + 1


@given(st.permutations(FILES), st.lists(st.integers(0, 9), min_size=4, max_size=4))
def test_no_element_of_finished_files_is_below_the_watermark(
    order: list[str], minima: list[int]
) -> None:
    known = dict(zip(order, minima, strict=True))
    state = FinishedFiles(known, by="file").start()
    for place, name in enumerate(order):
        assert state.current(0) <= min(minima[place:])
        column = Column.of_objects([name])
        state.observe(Observed(np.array([known[name]]), {"file": column}, 0))
        assert state.current(0) == max(min(minima[at:]) for at in range(place + 1))
