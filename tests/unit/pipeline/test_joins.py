"""What joins are before they run: their intervals, columns and text; and what a run tells of them.

``tests/mistakes/joins.toml`` has their error messages.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Literal

import pytest

import lowwater as lw
from lowwater.io.in_memory import IterableSource
from lowwater.pipeline.state_tools import verify_state
from lowwater.testing import Scenario
from tests.unit.engine.local.durable_runs import output, run, stopped, write_files

SEARCHES = [
    {"at": "2024-05-01T12:00:00Z", "id": "s1", "query": "boots", "page": 1},
    {"at": "2024-05-01T12:05:00Z", "id": "s2", "query": "tent", "page": 1},
]
CLICKS = [{"at": "2024-05-01T12:01:00Z", "id": "s1", "link": "boots.example", "page": 7}]


def searches() -> lw.Stream:
    return lw.from_iterable(SEARCHES, time="at", watermark=lw.Ascending())


def clicks() -> lw.Stream:
    return lw.from_iterable(CLICKS, time="at", watermark=lw.Ascending())


def test_intervals_that_are_equal_are_one_value() -> None:
    """J-1."""
    assert lw.between("60m", "2h") == lw.between("1h", "120m")
    assert repr(lw.between(0, "90s")) == "between('0s', '1m30s')"
    assert (lw.between("-5m", "1h").low_us, lw.between(0, "1s").high_us) == (-300_000_000, 10**6)


def test_a_number_is_warned_of_once() -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        joined = searches().join(clicks(), on="id", within=3600)
        joined.collect()
        assert joined.explain()
    assert [str(one.message)[:13] for one in warned] == ["within=3600 ("]


def test_columns_of_the_output() -> None:
    """The keys, then the left side, then the right; a name of both sides has a suffix."""

    def columns(**options: Any) -> str:
        joined = searches().join(clicks(), on="id", within="1h", **options)
        return " ".join(joined.to_stream().columns or ())

    assert columns() == "id at query page at_right link page_right"
    assert columns(suffixes=("_s", "_c")) == "id at_s query page_s at_c link page_c"
    assert columns(how="semi") == "id at query page"


def test_keys_have_the_names_of_the_left_side() -> None:
    renamed = clicks().select("link", search=lw.col("id"))
    joined = (
        searches().select("id", "query").join(renamed, left_on="id", right_on="search", within="1h")
    )
    (one,) = joined.collect().elements()
    assert (one.key, one.value["query"], one.value["link"]) == ("s1", "boots", "boots.example")
    assert "search" not in one.value


def test_after_map_the_columns_that_are_selected_are_known() -> None:
    mapped = searches().map(lambda one: {**one, "length": len(one["query"])})
    joined = mapped.select("id", "length").join(clicks(), on="id", within="1h")
    assert [one.value["length"] for one in joined.collect().elements()] == [5]


def test_an_unknown_key_of_a_file_is_found_before_the_run(tmp_path: Path) -> None:
    file = tmp_path / "clicks.csv"
    file.write_text("at,id\n2024-05-01T12:00:00Z,s1\n")
    with pytest.raises(lw.InvalidArgument, match=r"no column 'ids' \(at join\(right_on=\)\)"):
        searches().join(lw.read_csv(file, time="at"), left_on="id", right_on="ids", within="1h")


def test_null_keys_are_dead_letters() -> None:
    """J-1: also where the join would emit records without a partner."""
    nobody = lw.from_iterable([{**SEARCHES[0], "id": None}, SEARCHES[1]], time="at")
    found = nobody.join(clicks(), on="id", within="1h", how="left").collect(on_error="dead_letter")
    assert [one.key for one in found.elements()] == ["s2"]
    assert [error.reason for error in found.errors] == ["null_key"]


@pytest.mark.parametrize("name", ["join", "join_as_of"])
def test_each_side_drops_its_own_duplicates(name: str, tmp_path: Path) -> None:
    """S-D1: by ids of its own, which a restart remembers, and which are forgotten with time."""
    write_files(tmp_path / "in", 3)

    def made() -> Any:
        read = lw.read_parquet(tmp_path / "in", time="at", clock=lw.ManualClock(0)).with_columns(
            tens=lw.col("value") // 10, odd=lw.col("value") % 2
        )
        left = read.deduplicate(id=("tens", "odd"), within="1d")
        right = read.select("at", "key", "tens").deduplicate(id="tens", within="1d")
        if name == "join":
            return left.join(right, on="key", within=lw.between("-1h", "1h"))
        return left.join_as_of(right, on="key", how="inner")

    stopped(made(), tmp_path, 7)
    assert verify_state(tmp_path / "state") > 0
    run(made(), tmp_path)
    assert verify_state(tmp_path / "state") > 0
    keys = {value: f"k{value % 100 % 7}" for value in range(300)}
    left = [value for value in keys if value % 10 < 2]  # of each ten the first even and odd one
    met = [[at for at in range(0, 300, 10) if keys[at] == keys[value]] for value in left]
    if name == "join_as_of":
        met = [[at for at in ats if at <= value][-1:] for value, ats in zip(left, met, strict=True)]
    wanted = [(value, at // 10) for value, ats in zip(left, met, strict=True) for at in ats]
    found = [(row["value"], row["tens_right"]) for row in output(tmp_path)["part"]]
    assert sorted(found) == sorted(wanted)


def test_a_record_without_an_id_is_not_joined() -> None:
    some = lw.from_iterable([{**SEARCHES[0], "n": None}, {**SEARCHES[1], "n": 1}], time="at")
    once = some.deduplicate(id="n", within="1h")
    found = once.join(clicks(), on="id", within="1h", how="left").collect(on_error="dead_letter")
    assert [one.key for one in found.elements()] == ["s2"]
    assert [error.reason for error in found.errors] == ["null_id"]


@pytest.mark.parametrize("unmatched", ["final", "on_time"])
@pytest.mark.parametrize("at_once", [True, False])
def test_records_without_a_partner_come_by_when_they_are_due(
    unmatched: Literal["final", "on_time"], at_once: bool
) -> None:
    """Of both sides together: as if the watermark had passed one after the other (S-T4, J-4)."""
    sides = [
        lw.from_iterable(
            [{"at": f"2024-05-01T12:{minute:02}:00Z", "id": minute} for minute in minutes],
            time="at",
            watermark=lw.BoundedDisorder("1h" if at_once else "0s"),
        )
        for minutes in ((0, 20, 40), (10, 15, 30, 50))
    ]
    joined = sides[0].join(
        sides[1], on="id", within=lw.between("-1m", "15m"), how="outer", unmatched=unmatched
    )
    # A left record is due 15 minutes after its time, a right one 1 minute.
    assert [one.key for one in joined.run(bundle_size=1)] == [10, 0, 15, 30, 20, 50, 40]


def test_what_is_too_late() -> None:
    """J-1: it is in the late output with its reason, and a trace says so and no more."""
    late = {**SEARCHES[0], "id": "s3", "at": "2024-05-01T10:00:00Z"}
    stream = lw.from_iterable([*SEARCHES, late], time="at", watermark=lw.Ascending())
    joined = stream.join(stream, on="id", within="1m", how="semi", allowed_lateness="1h")
    found = joined.collect(bundle_size=1, trace=True)
    assert [one.key for one in found.elements()] == ["s1", "s2"]
    assert {one.reason for one in found.late} == {"too_late"}
    told = str(found.why({"id": "s3"}))
    assert (
        "dropped (too_late): it was '2h5m' below the watermark; '3h' would have admitted it" in told
    )
    assert "it was received" not in told
    assert "emitted once, for its first partner" in str(found.why({"id": "s1"}))
    assert "nothing comes out for the right side" in str(found.why({"id": "s1"}))


def test_text() -> None:
    joined = searches().join(
        clicks(), on="id", within="1h", how="left", unmatched="early", allowed_lateness="1m"
    )
    shown = joined.named("clicked").explain()
    assert "left join within between('0s', '1h')" in shown
    assert "unmatched early" in shown
    assert "how='left', unmatched='early', allowed_lateness='1m'" in repr(joined)
    as_of = searches().join_as_of(clicks(), on="id", late_versions="correct", tolerance="1d")
    assert "as of event time, late versions correct" in as_of.explain()
    assert "remembers 1h" in as_of.explain()
    assert "tolerance='1d', late_versions='correct', keep='1h'" in repr(as_of)
    ahead = searches().join_as_of(
        clicks(), on="id", direction="nearest", allow_equal=False, tolerance="5m"
    )
    assert "left join with the nearest version, late versions ignore" in ahead.explain()
    assert "a fact waits for 5m at most" in ahead.explain()
    assert "direction='nearest', allow_equal=False, tolerance='5m', late_vers" in repr(ahead)


def test_kinds_of_a_join_that_retracts() -> None:
    """J-5: only where it may retract is there a column that says which records do."""
    plain = searches().join(clicks(), on="id", within="1h", how="left")
    assert "kind" not in plain.collect().to_arrow().column_names
    early = searches().join(clicks(), on="id", within="1h", how="left", unmatched="early")
    found = early.collect(bundle_size=1)
    assert [(one.key, one.kind) for one in found.elements()] == [
        ("s1", "insert"),
        ("s1", "retract"),
        ("s1", "insert"),
        ("s2", "insert"),
    ]
    kinds = found.to_arrow().column("kind").to_pylist()
    assert kinds == ["insert", "retract", "insert", "insert"]


def test_a_column_may_be_called_kind_where_nothing_is_retracted() -> None:
    of_kinds = clicks().with_columns(kind=lw.lit("paid"))
    joined = searches().join(of_kinds, on="id", within="1h", how="left")
    assert joined.collect().to_arrow().column("kind").to_pylist() == ["paid", None]
    behind = searches().join(
        of_kinds, on="id", within="1h", how="semi", unmatched="final", allowed_lateness="1h"
    )
    assert "kind" not in behind.collect().to_arrow().column_names


def test_the_timestamp_of_a_pane_takes_the_place_of_the_event_time() -> None:
    """As a field of that name that a process emits does; the element has the event time."""
    panes = searches().key_by("id").window(lw.FixedWindows("1m")).aggregate(n=lw.count())
    joined = panes.select("id", "n").join(clicks(), on="id", within="1h")
    found = joined.collect()
    assert found.to_arrow().column_names.count("timestamp") == 1
    assert [str(one.timestamp) for one in found.elements()] == ["2024-05-01T12:01:00Z"]


@pytest.mark.parametrize("value", ["x", 2**70, {"nested": 1}, object(), "\ud800"])
def test_values_that_have_no_type_in_common_have_no_known_type(value: Any) -> None:
    kinds: list[Any] = [1, value]
    source = IterableSource([{"k": kind} for kind in kinds], {})
    assert source.looked_at() == {"k": None}


def test_text_and_numbers_in_one_list_of_keys() -> None:
    """Only keys that are known to differ in type are refused."""
    at = "2024-05-01T12:00:00Z"
    mixed = lw.from_iterable([{"at": at, "id": 1}, {"at": at, "id": "s1"}], time="at")
    joined = mixed.join(clicks(), on="id", within="1h")
    assert [one.key for one in joined.collect().elements()] == ["s1"]


def test_an_empty_list_has_a_join_too() -> None:
    nothing = lw.from_iterable([], time="at")
    assert len(nothing.join(clicks(), on="id", within="1h").collect().elements()) == 0
    found = searches().join(nothing, on="id", within="1h", how="left").collect()
    assert [one.key for one in found.elements()] == ["s1", "s2"]


@pytest.mark.parametrize(("late_versions", "lateness"), [("correct", "15m"), ("ignore", "5m")])
def test_corrections_of_facts_that_look_ahead_are_not_late_downstream(
    late_versions: Any, lateness: str
) -> None:
    """J-12: a version that is late by keep corrects facts that are older by up to the tolerance."""

    def totals(orders: lw.Stream, fills: lw.Stream) -> Any:
        joined = orders.join_as_of(
            fills, on="key", direction="forward", tolerance="10m", keep="5m",
            late_versions=late_versions,
        )  # fmt: skip
        trigger = lw.AfterWatermark(late=lw.Always())
        windowed = joined.key_by("key").window(
            lw.FixedWindows("1m"), trigger=trigger, accumulation="retracting"
        )
        return windowed.aggregate(total=lw.sum("value_right"))

    scenario = (
        Scenario("orders", "fills", start="12:00")
        .add((1, "12:01", "eur"), to="orders")
        .add((70, "12:10:50", "eur"), to="fills")
        .watermark("12:15")
        .add((60, "12:10", "eur"), to="fills")
        .end()
    )
    run = scenario.run_pipeline(totals)
    assert not run.late
    panes = [(pane.kind, pane.value) for step in run.steps for pane in step.outputs]
    corrected = [("retract", 70), ("insert", 60)] if late_versions == "correct" else []
    assert panes == [("insert", 70), *corrected]
    inputs = (clicks().select("at", key=lw.col("id"), value=lw.col("page")) for _ in range(2))
    built = totals(*inputs)
    assert f"allowed_lateness='{lateness}'" in repr(built)
