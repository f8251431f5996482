"""The queries of Nexmark against what Polars answers: in order, out of order, and late."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from benchmarks.nexmark import __main__ as command
from benchmarks.nexmark.answers import compare, run
from benchmarks.nexmark.events import AUCTION, BID, PERSON, Events
from benchmarks.nexmark.measuring import lines_of, streams_of
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.references import REFERENCES, Frames
from tests.examples import sampled

around_midnight = partial(Events, 5_000, per_second=100, start="2015-07-14T23:59:30Z")
"""Events that fill several windows, and two days."""
MODES = {
    "in order": around_midnight(),
    "out of order": around_midnight(seed=2, out_of_order="5s"),
    "late": around_midnight(seed=3, out_of_order="2s", late=0.05, later="20s"),
}


class Made(NamedTuple):
    """Events, and what they are to Polars."""

    events: Events
    table: pa.Table
    frames: Frames


# Late events need all that events in order, and out of order, need.
@pytest.fixture(scope="module", params=sampled(["late", "in order", "out of order"], every=3))
def made(request: pytest.FixtureRequest) -> Made:
    events = MODES[request.param]
    table = events.table()
    return Made(events, table, Frames(table))


@pytest.mark.filterwarnings("ignore::lowwater.DataWarning")
@pytest.mark.parametrize("name", QUERIES)
def test_answer(name: str, made: Made, tmp_path: Path) -> None:
    folder = str(tmp_path)
    answer = QUERIES[name](streams_of(made.events, made.table, folder))
    found = run(answer, 500, folder)
    compared = compare(found, REFERENCES[name](made.frames))
    assert compared.problem == ""
    assert compared.rows > 1


@pytest.mark.parametrize("name", ["q7", "q8"])
def test_late_events_correct_what_was_emitted(name: str, tmp_path: Path) -> None:
    events = MODES["late"]
    found = run(QUERIES[name](streams_of(events, events.table(), str(tmp_path))), 50, "")
    kinds = pc.value_counts(found["kind"].cast(pa.string())).to_pylist()
    assert {one["values"] for one in kinds} == {"insert", "retract"}


# ------------------------------------------------------------------------------------- the events


def test_events_are_the_same_each_time() -> None:
    for events in MODES.values():
        assert events.table().equals(events.table())
    other = around_midnight(seed=4)
    assert not other.table().equals(MODES["in order"].table())


def test_of_fifty_events_one_is_a_person_and_three_are_auctions() -> None:
    table = Events(5_000).table()
    kinds = pl.DataFrame(table.select(["event_type"]))["event_type"].value_counts().rows()
    assert dict(kinds) == {PERSON: 100, AUCTION: 300, BID: 4_600}
    for name, kind in {"person": PERSON, "auction": AUCTION, "bid": BID}.items():
        assert table[name].is_valid().equals(pc.equal(table["event_type"], kind))


def test_half_of_the_bids_are_for_a_hot_auction() -> None:
    bids = Frames(Events(100_000).table()).bids
    hot = bids.select((pl.col("auction") % 100 == 0).mean(), (pl.col("bidder") % 100 == 1).mean())
    auctions, bidders = hot.row(0)
    assert 0.5 < auctions < 0.52
    assert 0.75 < bidders < 0.76


@pytest.mark.parametrize(
    ("events", "least", "most"),
    [
        (MODES["in order"], 0, 0),
        (MODES["out of order"], 0, 0),
        (MODES["late"], 150, 350),
    ],
    ids=MODES,
)
def test_events_are_as_late_as_is_said(events: Events, least: int, most: int) -> None:
    frame = pl.DataFrame(events.table().select(["date_time", "arrival"]))
    assert frame["arrival"].is_sorted()
    bound = pl.duration(seconds=int(events.out_of_order.rstrip("s")))
    behind = pl.col("date_time") < pl.col("date_time").cum_max() - bound
    late = frame.filter(behind).height
    assert least <= late <= most
    assert frame["date_time"].is_sorted() == (events.out_of_order == "0s")


# --------------------------------------------------------------------------- comparing and printing


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ({"a": [1, 2, 2]}, ""),
        ({"a": [2, 1, 2]}, ""),
        ({"a": [1, 2]}, "1 rows differ, such as {'a': 2, '__weight': -1}"),
        ({"a": [1, 2, 2, 3], "kind": ["insert", "insert", "insert", "retract"]}, "1 rows differ"),
        ({"a": [1, 2, 2, 3, 3], "kind": ["insert"] * 4 + ["retract"]}, ""),
        ({"a": [1.0, 2.0, 2.0]}, "a is double, not int64"),
        ({"b": [1, 2, 2]}, "no column a"),
    ],
)
def test_comparison_finds_what_differs(rows: dict[str, list[object]], problem: str) -> None:
    compared = compare(pa.table(rows), pl.DataFrame({"a": [1, 2, 2]}))
    assert compared.problem.startswith(problem)
    assert bool(compared.problem) == bool(problem)


def test_lines_are_those_of_the_query_and_of_what_it_shares() -> None:
    lines = {name: lines_of(name) for name in QUERIES}
    assert (lines["q0"], lines["q4"]) == (1, lines["q9"])
    assert max(lines.values()) <= 8


def test_command_prints_a_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ["q2", "q5", "--events", "2000", "--rate", "100", "--late", "--bundle", "100"]
    assert command.main(given) == 0
    printed = capsys.readouterr().out
    assert "up to 1s out of order, 1% late by up to 5s" in printed
    assert [line.split("|")[1:3] for line in printed.splitlines() if line.startswith("| q")] == [
        [" query ", " answer "],
        [" q2 ", " right "],
        [" q5 ", " right "],
    ]
    monkeypatch.setitem(REFERENCES, "q2", REFERENCES["q0"])
    assert command.main(given) == 1
    assert "q2 is wrong: no column bidder" in capsys.readouterr().out
