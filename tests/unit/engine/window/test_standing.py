"""What stands of panes, case by case; ``tests/property/test_what_stands.py`` has it for any."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.pipeline import Pipeline
from lowwater.testing import Scenario, replay

MODES = ("accumulating", "retracting", "discarding")


def pipeline(mode: Any, windows: Any, *, lateness: str = "0s", **aggregates: Any) -> Any:
    def build(stream: lw.Stream) -> Pipeline:
        return (
            stream.key_by("key")
            .window(
                windows,
                trigger=lw.Repeatedly(lw.AfterCount(1)),
                accumulation=mode,
                allowed_lateness=lateness,
            )
            .aggregate(**(aggregates or {"total": lw.sum("value"), "each": lw.collect("value")}))
        )

    return build


def stands(build: Any, scenario: Scenario) -> list[tuple[str, int, int, Any]]:
    return [
        (pane.key, pane.window.start // 10**6, pane.window.end // 10**6, pane.values["total"])
        for pane in replay(build, scenario).final()
    ]


@pytest.mark.parametrize("mode", MODES)
def test_sessions_that_merge_twice(mode: Any) -> None:
    #      0    5   10   15   20   25   30   35
    # 1    [---------)
    # 2              [---------)                   only touches, and so stays apart
    # 3                             [---------)
    # 4         [---------)                        joins the first two
    # 5                       [---------)          joins all
    scenario = Scenario()
    for value, at in [(1, 0), (2, 10), (4, 25), (8, 5), (16, 19)]:
        scenario = scenario.add((value, lw.Instant(at * 10**6), "A"))
    build = pipeline(mode, lw.Sessions("10s"))
    assert stands(build, scenario) == [("A", 0, 35, 31)]
    assert sorted(replay(build, scenario).final().panes[0].values["each"]) == [1, 2, 4, 8, 16]


@pytest.mark.parametrize("mode", MODES)
def test_a_session_that_expired_stands_beside_one_that_overlaps_it(mode: Any) -> None:
    """The intervals of windows alone do not tell which of them merged."""
    build = pipeline(mode, lw.Sessions(gap_column="gap"))
    scenario = (
        Scenario()
        .add((1, lw.Instant(10 * 10**6), "A", {"gap": "5s"}))
        .watermark(lw.Instant(15 * 10**6))
        .add((2, lw.Instant(8 * 10**6), "A", {"gap": "20s"}))
    )
    assert stands(build, scenario) == [("A", 10, 15, 1), ("A", 8, 28, 2)]


@pytest.mark.parametrize("mode", MODES)
def test_nothing_at_all(mode: Any) -> None:
    result = replay(pipeline(mode, lw.FixedWindows("10s")), Scenario())
    assert result.final().panes == []
    assert result.to_arrow(final=True).num_rows == 0
    assert result.to_arrow(final=True).schema == result.to_arrow().schema


def test_discarding_panes_of_many_types() -> None:
    build = pipeline(
        "discarding",
        lw.FixedWindows("10s"),
        least=lw.min("value"),
        names=lw.collect_set("name"),
        mixed=lw.collect("mixed"),
        n=lw.count("name"),
        x=lw.sum("x"),
    )
    scenario = (
        Scenario()
        .add(({"value": None, "name": None, "mixed": 1, "x": 0.5}, lw.Instant(0), "A"))
        .add(({"value": 3, "name": "b", "mixed": "one", "x": 1}, lw.Instant(1), "A"))
        .add(({"value": 2, "name": "a", "mixed": None, "x": None}, lw.Instant(2), "A"))
        .add(({"value": 5, "name": "b", "mixed": (2,), "x": 2.5}, lw.Instant(3), "A"))
    )
    (pane,) = replay(build, scenario).final()
    assert pane.values == {
        "least": 2,
        "names": ["b", "a"],
        "mixed": [1, "one", (2,)],
        "n": 3,
        "x": 4.0,
    }
    assert (pane.index, pane.kind) == (3, "insert")


TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "timestamp": (pa.timestamp("ms"), [1, 10**9, 5, 77]),
    "date": (pa.date32(), [1, 9_000, 5, 77]),
    "duration": (pa.duration("s"), [1, 9, 5, 77]),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), ["b", "a", "a", "c"]),
    "decimal": (pa.decimal128(9, 2), [Decimal("1.25"), Decimal(7), Decimal(-3), Decimal(7)]),
    "unsigned": (pa.uint64(), [2**63 + 1, 1, 5, 2**64 - 1]),
    "binary": (pa.binary(), [b"b", b"", b"\xff", b"b"]),
    "list": (pa.list_(pa.int64()), [[1], [], [2, 3], [1]]),
    "struct": (pa.struct([("a", pa.int64())]), [{"a": 1}, {"a": None}, {"a": 3}, {"a": 1}]),
}


@pytest.mark.parametrize(("type", "values"), TYPES.values(), ids=TYPES)
def test_combined_results_have_the_types_of_whole_ones(type: Any, values: list[Any]) -> None:
    """Also after panes that contain nothing but nulls."""
    column = pa.array([None, None, *values, None], type)
    table = pa.table({"at": pa.array(range(7)), "k": ["a", "b"] * 3 + ["a"], "v": column})
    specs = {"n": lw.count("v"), "each": lw.collect("v")}
    if not pa.types.is_nested(type):
        specs |= {"least": lw.min("v"), "most": lw.max("v"), "set": lw.collect_set("v")}

    def final(mode: Any) -> pa.Table:
        windowed = (
            lw.from_arrow(table, time="at")
            .key_by("k")
            .window(
                lw.FixedWindows("1s"), trigger=lw.Repeatedly(lw.AfterCount(1)), accumulation=mode
            )
        )
        collected = windowed.aggregate(**specs).collect(bundle_size=1, clock=lw.ManualClock(0))
        return collected.to_arrow(final=True)

    whole, combined = final("accumulating"), final("discarding")
    assert combined.schema.equals(whole.schema)
    assert combined.to_pylist() == whole.to_pylist()


def test_sums_of_panes_do_not_wrap() -> None:
    scenario = Scenario().add((2**62, lw.Instant(0), "A")).add((2**62, lw.Instant(1), "A"))
    build = pipeline("discarding", lw.FixedWindows("10s"), total=lw.sum("value"))
    with pytest.raises(lw.DataError, match="does not fit 64 bits"):
        replay(build, scenario).final()


@pytest.mark.parametrize("spec", [lw.mean("value"), lw.first("value"), lw.count_distinct("value")])
def test_results_that_cannot_be_combined(spec: Any) -> None:
    build = pipeline("discarding", lw.FixedWindows("10s"), n=lw.count(), odd=spec)
    scenario = Scenario().add((1, lw.Instant(0), "A"))
    with pytest.raises(lw.InvalidArgument, match=r'odd=.*accumulation="accumulating"'):
        replay(build, scenario).to_pandas(final=True)
    build = pipeline("accumulating", lw.FixedWindows("10s"), n=lw.count(), odd=spec)
    assert len(replay(build, scenario).final()) == 1


def test_one_pane_per_window_needs_no_combining() -> None:
    rows = [{"at": 0, "k": "a", "v": 1}, {"at": 1, "k": "a", "v": 2}]
    built = lw.from_iterable(rows, time="at").key_by("k").window(lw.FixedWindows("1m"))
    (pane,) = built.aggregate(mean=lw.mean("v")).collect().final()
    assert pane.value == 1.5


def test_what_expiry_emits_is_a_pane_more() -> None:
    """S-O6: the trigger fires once, and the rest comes when the window expires."""

    def build(spec: Any) -> Any:
        trigger = lw.AfterEach(lw.AfterCount(1), lw.Never())
        return lambda stream: (
            stream.key_by("key")
            .window(lw.FixedWindows("10s"), trigger=trigger, accumulation="discarding")
            .aggregate(total=spec)
        )

    scenario = Scenario().add((1, lw.Instant(0), "A")).add((2, lw.Instant(1), "A"))
    assert len(replay(build(lw.sum("value")), scenario).panes) == 2
    assert stands(build(lw.sum("value")), scenario) == [("A", 0, 10, 3)]
    with pytest.raises(lw.InvalidArgument, match=r"mean.*cannot be combined"):
        replay(build(lw.mean("value")), scenario).final()


def test_a_window_that_was_emptied_stands_with_nothing_in_it() -> None:
    """S-C3: that it is now empty is what the stream says."""

    def build(stream: lw.Stream) -> Pipeline:
        first = pipeline("retracting", lw.Sessions("10s"))(stream)
        return (
            first.key_by("key")
            .window(
                lw.FixedWindows("20s"),
                trigger=lw.Repeatedly(lw.AfterCount(1)),
                accumulation="accumulating",
                allowed_lateness="1h",
            )
            .aggregate(total=lw.sum("total"))
        )

    scenario = Scenario().add((1, lw.Instant(0), "A")).add((2, lw.Instant(9 * 10**6), "A"))
    scenario = scenario.add((4, lw.Instant(18 * 10**6), "A"))
    assert stands(build, scenario) == [("A", 0, 20, 0), ("A", 20, 40, 7)]


@pytest.mark.parametrize("sizes", [(2, 1), (5, 2, 1), (1, 3, 2), (1, 1, 4)])
def test_lists_of_panes_are_in_order_of_arrival(sizes: tuple[int, ...]) -> None:
    """S-W7: whichever of the bundles that a window's panes come from is the longest."""

    def build(stream: lw.Stream) -> Pipeline:
        windows = stream.key_by("key").window(
            lw.FixedWindows("1h"), trigger=lw.Always(), accumulation="discarding"
        )
        return windows.aggregate(
            each=lw.collect("value"), kinds=lw.collect_set("value"), total=lw.sum("value")
        )

    scenario, number, wanted = Scenario(), 0, []
    for turn, size in enumerate(sizes):
        elements = [(number + at, lw.Instant(number + at), "A") for at in range(size)]
        if not turn:  # the other key's panes are longer, and come first
            elements = [(100 + at, lw.Instant(at), "B") for at in range(3)] + elements
        scenario = scenario.add(*elements)
        wanted += [number + at for at in range(size)]
        number += size
    found = {pane.key: pane.values for pane in replay(build, scenario).final()}
    assert found["A"]["each"] == wanted
    assert found["A"]["kinds"] == wanted
    assert found["A"]["total"] == sum(wanted)
    assert found["B"]["each"] == [100, 101, 102]
