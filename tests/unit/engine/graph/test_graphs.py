"""Pipelines of several sources, stages and ends, as users write them."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.errors import InvalidArgument
from tests.property.graphs import BASE, SECOND, Batches, Row

EARLY = lw.AfterWatermark(early=lw.AfterCount(1), late=lw.AfterCount(1))


def rides(*rows: tuple[float, str, int], watermark: Any = None, **options: Any) -> lw.Stream:
    """Return records of (second, team, points)."""
    items = [{"at": int(at * SECOND), "team": team, "points": v} for at, team, v in rows]
    watermark = lw.Ascending() if watermark is None else watermark
    options = {"clock": lw.ManualClock(0), **options}
    return lw.from_iterable(items, time="at", watermark=watermark, **options)


def per_team(stream: lw.Stream, **options: Any) -> lw.Pipeline:
    """Sum points per team and ten seconds."""
    options = {"trigger": EARLY, "accumulation": "retracting", "allowed_lateness": "5s", **options}
    return (
        stream.key_by("team")
        .window(lw.FixedWindows("10s"), **options)
        .aggregate(points=lw.sum("points"), n=lw.count())
    )


def each(pipeline: lw.Pipeline, **options: Any) -> list[Any]:
    """Return the panes of a run of bundles of one: second of the window, value, timing, kind."""
    options = {"bundle_size": 1, **options}
    return [
        (pane.window.start // SECOND, *pane.values.values(), pane.timing, pane.kind)
        for pane in pipeline.collect(**options).panes
    ]


# ----------------------------------------------------------------------------- stages behind stages

ROWS = ((1, "A", 5), (2, "B", 7), (3, "A", 1), (12, "B", 2), (4, "A", 30), (23, "A", 4))


def total(chain: lw.Pipeline, mode: str = "retracting", **aggregates: Any) -> lw.Pipeline:
    """Bring all teams together, per twenty seconds."""
    aggregates = aggregates or {"points": lw.sum("points")}
    return (
        chain.key_by(all=lw.lit("all"))
        .window(lw.FixedWindows("20s"), trigger=EARLY, accumulation=mode)  # type: ignore[arg-type]  # a mode
        .aggregate(**aggregates)
    )


def test_a_global_total_over_sums_per_team_is_right_at_every_moment() -> None:
    """S-C4: the next stage subtracts what is taken back; no pane stands for what is not there."""
    panes = total(per_team(rides(*ROWS))).collect(bundle_size=1).panes
    standing: dict[Any, Any] = {}
    seen = []
    for pane in panes:
        assert pane.key == "all"
        if pane.kind == "retract":
            assert standing.pop(pane.window) == pane.values
        else:
            standing[pane.window] = pane.values
            seen += [pane.values["points"]] * (pane.window.start == 0)
    # Each record in turn, the 30 points late; a window that is complete is shown again.
    assert [value for value, _ in groupby(seen)] == [5, 12, 13, 15, 45]
    assert {int(w.start) // SECOND: v["points"] for w, v in standing.items()} == {0: 45, 20: 4}


@pytest.mark.parametrize("mode", ["discarding", "retracting"])
@pytest.mark.parametrize("upstream", ["discarding", "retracting"])
def test_counts_sums_and_means_of_a_chain(upstream: str, mode: str) -> None:
    """S-C4, S-C5: differences add up; answers replace one another."""
    chain = per_team(rides(*ROWS), accumulation=upstream)
    aggregates: dict[str, Any] = {"teams": lw.count(), "sum": lw.sum("points")}
    if mode == "retracting":
        aggregates["mean"] = lw.mean("points")
    panes = total(chain, mode, **aggregates).collect(bundle_size=1).panes
    first: Counter[str] = Counter()
    for pane in panes:
        if pane.window.start == 0:
            sign = -1 if pane.kind == "retract" else 1
            for name, value in pane.values.items():
                first[name] += sign * (value or 0)
    assert first["sum"] == 45
    if upstream == "retracting":  # of discarding, each pane counts
        assert first["teams"] == 3  # A and B until 10 s, B until 20 s
        assert mode == "discarding" or first["mean"] == pytest.approx(15)


def test_late_panes_are_admitted_downstream_by_the_inherited_lateness() -> None:
    """S-C7: a stage that names none has that of the stage before it, over all sources behind it."""
    upstream = per_team(rides((1, "A", 5), (12, "A", 1), (2, "A", 30)), allowed_lateness="5s")
    chain = total(upstream)
    assert chain._stage.lateness_us == 5 * SECOND
    result = chain.collect(bundle_size=1)
    assert result.late == []
    assert [p.value for p in result.panes if p.kind == "insert"][-1] == 36
    further = total(chain, n=lw.count())
    assert further._stage.lateness_us == 5 * SECOND


def test_a_shorter_lateness_than_upstream_is_refused() -> None:
    """S-C7."""
    keyed = per_team(rides(), allowed_lateness="5s").key_by("team")
    with pytest.raises(InvalidArgument, match="shorter than that of the upstream stage") as caught:
        keyed.window(lw.FixedWindows("10s"), allowed_lateness="4s", accumulation="retracting")
    assert "Leave it out" in str(caught.value)
    keyed.window(lw.FixedWindows("10s"), allowed_lateness="6s", accumulation="retracting")


@pytest.mark.parametrize("timestamps", ["earliest", "latest"])
def test_panes_taken_back_at_other_times_than_the_end_are_refused_downstream(
    timestamps: Any,
) -> None:
    """S-C7: the hold of a pane is gone once it is shown; so might be the window it fell into."""
    keyed = per_team(rides(*ROWS), timestamps=timestamps).key_by("team")
    with pytest.raises(InvalidArgument, match=r"retracts panes.*Use timestamps=\"end\""):
        keyed.window(lw.FixedWindows("10s"), accumulation="retracting")
    once: Any = {"trigger": lw.AfterWatermark(), "allowed_lateness": 0}
    per_team(rides(*ROWS), timestamps=timestamps, **once).key_by("team").window(
        lw.FixedWindows("10s")
    )


def test_accumulating_panes_that_come_again_are_refused_downstream() -> None:
    """S-C8: what they hold would count again."""
    keyed = per_team(rides(), accumulation="accumulating").key_by("team")
    with pytest.raises(
        InvalidArgument, match=r"would count them more than once.*retracting.*discarding"
    ):
        keyed.window(lw.FixedWindows("10s"), accumulation="retracting").aggregate(n=lw.count())
    once = per_team(
        rides(*ROWS), accumulation="accumulating", trigger=lw.AfterWatermark(), allowed_lateness=0
    )
    assert each(total(once))[-1][:2] == (20, 4)


def test_differences_of_what_cannot_be_subtracted_are_refused() -> None:
    """S-C5: before anything runs."""
    windowed = (
        per_team(rides())
        .key_by("team")
        .window(lw.FixedWindows("20s"), trigger=EARLY, accumulation="discarding")
    )
    with pytest.raises(InvalidArgument, match="max"):
        windowed.aggregate(most=lw.max("points"))
    total(per_team(rides()), "retracting", most=lw.max("points"))


def test_earliest_timestamps_hold_the_stage_behind() -> None:
    """S-H2: the next stage's window waits for elements that no pane has emitted."""
    upstream = (
        rides((1, "A", 1), (25, "A", 1), (61, "A", 1))
        .key_by("team")
        .window(lw.FixedWindows("1m"), timestamps="earliest")
        .aggregate(n=lw.count())
    )
    chain = upstream.key_by("team").window(lw.FixedWindows("10s")).aggregate(n=lw.sum("n"))
    marks = []
    result = chain.collect(
        bundle_size=1,
        progress=lambda metrics: marks.append(
            [(s.watermark, s.output_watermark) for s in metrics.stages.values()]
        ),
    )
    assert [(p.window.start // SECOND, p.value, p.timing) for p in result.panes] == [
        (0, 2, "ON_TIME"),
        (60, 1, "ON_TIME"),
    ]
    assert result.late == []
    first = [[int(at) for at in stage] for stage in marks[1]]
    assert first == [[25 * SECOND, SECOND], [SECOND, SECOND]]  # held at the first element
    third = [[int(at) for at in stage] for stage in marks[2]]
    assert third == [[61 * SECOND, 61 * SECOND], [61 * SECOND, 61 * SECOND]]


# ------------------------------------------------------------------------- several sources and ends


def source(*batches: list[Row], watermark: Any, **options: Any) -> lw.Stream:
    return lw.from_source(Batches(batches), time="at", watermark=watermark, **options)


def row(at: int, key: int = 0, v: int = 1, part: str = "p", arrived: int = 0) -> Row:
    return (BASE + at * SECOND, key, v, 1, part, BASE + arrived * SECOND)


def counted(stream: lw.Stream) -> lw.Pipeline:
    return stream.key_by("key").window(lw.FixedWindows("10s")).aggregate(n=lw.count())


def test_the_watermark_behind_a_union_is_the_lowest() -> None:
    """S-H3."""
    quick = source([row(0), row(50)], watermark=lw.Ascending())
    slow = source([row(1)], [row(2)], [row(60)], watermark=lw.BoundedDisorder("1s"))
    marks: list[int] = []
    result = counted(quick | slow).collect(
        bundle_size=1,
        clock=lw.ManualClock(BASE),
        progress=lambda metrics: marks.append((metrics.watermark - BASE) // SECOND),
    )
    assert result.late == []
    assert [p.value for p in result.panes] == [3, 1, 1]
    # Slow, at the start of time, is read as soon as quick's first batch is done.
    assert [mark for mark in marks if mark > -1000][:2] == [0, 1]


def test_both_ends_of_a_branch_and_late_elements_at_the_first_behind_them(tmp_path: Path) -> None:
    stream = rides((1, "A", 5), (25, "B", 7), (2, "A", 1), (3, "B", 2))
    odd = stream.filter(lw.col("points") % 2 == 1)
    first = per_team(odd, allowed_lateness=0).write_jsonl(tmp_path / "odd.jsonl")
    second = per_team(stream, allowed_lateness=0).write_jsonl(tmp_path / "all.jsonl")
    metrics = lw.run(first, second, bundle_size=1, progress=False)
    assert metrics.events == 4
    assert len((tmp_path / "odd.late.jsonl").read_text().splitlines()) == 1
    assert len((tmp_path / "all.late.jsonl").read_text().splitlines()) == 2
    assert '"points":5' in (tmp_path / "all.jsonl").read_text().replace(" ", "")


@pytest.mark.parametrize("skew", [None, "20s"])
def test_the_source_that_is_ahead_waits(skew: str | None) -> None:
    """With ``max_skew``: so what waits for the other, which has nothing now, is bounded."""
    ahead = source(*([row(at)] for at in range(0, 100, 10)), watermark=lw.Ascending())
    slow = Batches([[row(0)], [], [row(99)]], rest_seconds=1_000.0)
    behind = lw.from_source(slow, time="at", watermark=lw.Ascending())
    opened: list[int] = []
    result = counted(ahead | behind).collect(
        bundle_size=1, max_skew=skew, clock=lw.ManualClock(BASE),
        progress=lambda metrics: opened.append(metrics.open_windows),
    )  # fmt: skip
    assert sum(pane.value for pane in result.panes) == 12
    assert result.late == []
    assert max(opened) == (10 if skew is None else 4)


def test_a_source_that_is_idle_is_not_waited_for() -> None:
    """Once it was asked and had nothing for so long."""
    silent = source([row(0)], [], [], [], watermark=lw.Ascending(), idle_after="5s")
    speaks = source(*([row(at, arrived=at)] for at in range(0, 60, 10)), watermark=lw.Ascending())
    marks = []
    result = counted(silent | speaks).collect(
        bundle_size=1,
        clock=lw.ArrivalClock("arrived", tick="1s"),
        progress=lambda metrics: marks.append((metrics.watermark - BASE) // SECOND),
    )
    assert result.late == []
    assert [p.value for p in result.panes] == [2, 1, 1, 1, 1, 1]


def test_a_source_that_is_not_asked_is_not_idle() -> None:
    """While a long batch of another one is read, however far that moves the clock."""
    for clock in (lw.ArrivalClock("arrived", tick="1s"), lw.WallClock()):
        one, other = (
            source([row(0), row(100, arrived=90)], watermark=lw.Ascending(), idle_after="3s")
            for _ in range(2)
        )
        result = counted(one | other).collect(bundle_size=1, clock=clock)
        assert result.late == []
        assert [p.value for p in result.panes] == [2, 2]


@pytest.mark.parametrize("how", ["select", "filter"])
def test_partitions_are_seen_before_steps_take_them_away(how: str) -> None:
    stream = source(
        [row(0, part="p"), row(40, part="p"), row(1, part="q"), row(50, part="q")],
        watermark=lw.PerPartition(lw.Ascending(), by="part", expected=["p", "q"]),
    )
    stream = stream.select("key") if how == "select" else stream.filter(lw.col("part") == "q")
    result = counted(stream).collect(bundle_size=1, clock=lw.ManualClock(BASE))
    assert result.late == []
    assert sum(p.value for p in result.panes) == (4 if how == "select" else 2)


# ------------------------------------------------------------------------------------------ clocks


def arrived(**options: Any) -> lw.Stream:
    """Return records that may say when they arrived."""
    rows = [{"at": at * SECOND, "came": (at + 60) * SECOND, "team": "A"} for at in range(3)]
    return lw.from_arrow(pa.Table.from_pylist(rows), time="at", **options)


ARRIVAL = lw.ArrivalClock("came", tick="1s")


@pytest.mark.parametrize("swapped", [True, False])
def test_the_clock_of_a_union_is_that_of_the_one_that_has_one(swapped: bool) -> None:
    streams = [arrived(clock=ARRIVAL), arrived()]
    one, other = reversed(streams) if swapped else streams
    united = (one | other).select("team")  # keeps the column of arrivals
    counted = united.key_by("team").window(lw.FixedWindows("1m")).aggregate(n=lw.count())
    result = counted.collect()
    assert result.metrics.clock == lw.Instant(63 * SECOND)
    assert [pane.value for pane in result.panes] == [6]


def test_clocks_that_differ_are_refused_unless_the_run_has_its_own(tmp_path: Path) -> None:
    one, other = arrived(clock=ARRIVAL), arrived(clock=lw.ArrivalClock("at"))

    def counts(stream: lw.Stream) -> lw.Pipeline:
        return stream.key_by("team").window(lw.FixedWindows("1m")).aggregate(n=lw.count())

    with pytest.raises(InvalidArgument, match=r"different clocks(.|\n)*run\(clock=\.\.\.\)"):
        counts(one | other).collect()
    ends = [counts(s).write_jsonl(tmp_path / str(n)) for n, s in enumerate((one, other))]
    with pytest.raises(InvalidArgument, match="different clocks"):
        lw.run(*ends)
    assert lw.run(*ends, clock=ARRIVAL).clock == lw.Instant(63 * SECOND)
    same = counts(one | arrived(clock=lw.ArrivalClock("came", tick="1s")))
    assert same.collect().metrics.clock == lw.Instant(63 * SECOND)


def test_an_arrival_clock_needs_its_column_in_all_sources(tmp_path: Path) -> None:
    lacking = lw.from_arrow(pa.table({"at": [1], "team": ["A"]}), time="at").named("lacking")
    ends = [
        stream.key_by("team").window(lw.FixedWindows("1m")).aggregate(n=lw.count())
        for stream in (lacking, arrived(clock=ARRIVAL))
    ]
    with pytest.raises(
        InvalidArgument, match=r"lacking has no column 'came'(.|\n)*run\(clock=\.\."
    ):
        lw.run(*(end.write_jsonl(tmp_path / str(n)) for n, end in enumerate(ends)))
