"""A source's watermark is that of its records, whatever its readers leave of them (S-T3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import narwhals as nw
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lowwater as lw
from lowwater.pipeline.fluent import Stream

SECOND = 1_000_000
WINDOW = lw.FixedWindows("10s")


def counted(stream: Stream) -> lw.Pipeline:
    windowed = stream.key_by("k").window(
        WINDOW,
        trigger=lw.AfterWatermark(early=lw.AfterCount(2), late=lw.AfterCount(1)),
        accumulation="accumulating",
        allowed_lateness="5s",
    )
    return windowed.aggregate(n=lw.count(), total=lw.sum("v"))


def halved(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pa.array([value % 2 == 0 for value in batch["v"].to_pylist()]))


CHAINS: dict[str, Callable[[Stream], Stream]] = {
    "none": lambda s: s,
    "nothing left": lambda s: s.filter(lw.col("v") > 1_000),
    "some left": lambda s: s.filter(lw.col("v") > 4),
    "a function": lambda s: s.map(lambda r: {**r, "v": -r["v"]}).filter(lambda r: r["v"] < -4),
    "several": lambda s: s.flat_map(lambda r: [r] * (r["v"] % 3)),
    "items": lambda s: s.with_columns(w=nw.list("v", "v")).explode("w"),
    "batches": lambda s: s.map_batches(halved),
    "select": lambda s: s.select("k", "v").filter(lw.col("k") == "a"),
    "columns": lambda s: s.with_columns(w=lw.col("v") * 2).filter(lw.col("w") > 8),
}

records = st.lists(
    st.fixed_dictionaries(
        {
            "at": st.integers(0, 40).map(lambda second: second * SECOND),
            "k": st.sampled_from("ab"),
            "v": st.integers(0, 9),
        }
    ),
    min_size=1,
    max_size=30,
)
estimators = st.sampled_from(
    [
        lw.Ascending(),
        lw.BoundedDisorder("5s"),
        lw.PerPartition(lw.Ascending(), by="k", expected=["a"]),
    ]
)
clocks = st.sampled_from([lw.ManualClock(0), lw.ArrivalClock("at", tick="10s")])


@settings(deadline=None)
@given(
    records,
    estimators,
    clocks,
    st.sampled_from(sorted(CHAINS)),
    st.sampled_from(sorted(CHAINS)),
    st.integers(1, 7),
)
def test_an_end_alone_gives_what_it_gives_beside_others(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[dict[str, Any]],
    watermark: Any,
    clock: Any,
    one: str,
    other: str,
    size: int,
) -> None:
    folder = tmp_path_factory.mktemp("ends")

    def written(*names: str) -> list[str]:
        source = lw.from_iterable(rows, time="at", watermark=watermark, clock=clock)
        paths = [folder / f"{number}.jsonl" for number in range(len(names))]
        ends = [
            counted(CHAINS[name](source)).write_jsonl(path, overwrite=True)
            for name, path in zip(names, paths, strict=True)
        ]
        lw.run(*ends, bundle_size=size, progress=False)
        return [path.read_text() for path in paths]

    assert written(one, other) == [*written(one), *written(other)]


def test_a_source_of_which_nothing_is_left_keeps_up_with_max_skew() -> None:
    def opened(filtered: bool) -> list[str]:
        def source(key: str) -> Stream:
            rows = [{"at": i * SECOND, "k": key, "v": i} for i in range(60)]
            return lw.from_iterable(rows, time="at", watermark=lw.Ascending())

        one = source("a").filter(lw.col("v") < 0) if filtered else source("a")
        at: list[str] = []
        counted(one | source("b")).collect(
            bundle_size=10,
            max_skew="5s",
            clock=lw.ManualClock(0),
            progress=lambda metrics: at.append(str(metrics.watermark)),
        )
        return at

    assert opened(True) == opened(False)


def test_event_times_may_be_made_by_a_step() -> None:
    lines = ["", "1 a", "12 a", "", "25 a"]

    def parsed(line: str) -> dict[str, Any]:
        second, key = line.split()
        return {"at": int(second) * SECOND, "k": key, "v": 1}

    source = lw.from_iterable(lines, time="at", watermark=lw.Ascending())
    panes = counted(source.filter(bool).map(parsed)).collect(bundle_size=1).panes
    assert [(pane.window.start // SECOND, pane.values["n"]) for pane in panes] == [
        (0, 1), (10, 1), (20, 1),
    ]  # fmt: skip
    assert panes[0].timing == "ON_TIME"


def test_event_times_may_be_mended_before_a_filter() -> None:
    rows = [{"at": f"second {second}", "k": "a", "v": second} for second in (1, 12, 25)]

    def fixed(record: dict[str, Any]) -> dict[str, Any]:
        return {**record, "at": int(record["at"].split()[1]) * SECOND}

    source = lw.from_iterable(rows, time="at", watermark=lw.Ascending()).map(fixed)
    few = counted(source.filter(lw.col("v") > 20)).collect(bundle_size=1)
    assert not few.errors
    assert [pane.window.start // SECOND for pane in few.panes] == [20]


def test_columns_of_an_estimator_need_not_reach_the_window() -> None:
    rows = [{"at": i * SECOND, "k": "a", "v": i, "sensor": "xy"[i % 2]} for i in range(30)]
    watermark = lw.PerPartition(lw.Ascending(), by="sensor")
    source = lw.from_iterable(rows, time="at", watermark=watermark)
    assert counted(source.select("k", "v")).collect(bundle_size=1).panes
