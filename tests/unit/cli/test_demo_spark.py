"""The demo on Spark tells equal results from others; Spark itself is not here."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lowwater.cli import demo, demo_spark
from lowwater.cli.demo_spark import compare, embedded, graph, standing


@pytest.fixture(scope="module")
def panes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    """Return what the graph gives embedded over two weeks, in a file for each."""
    place = tmp_path_factory.mktemp("demo")
    flights = demo_spark.departed(demo.load_flights()).slice(0, 8_000)
    assert demo_spark._write_files(flights, place / "flights") == 2
    return embedded(graph(place / "flights"), place / "out")


def test_only_departed_flights_of_thirteen_weeks_are_read() -> None:
    flights = demo_spark.departed(demo.load_flights())
    assert len(flights) == 79_110
    assert flights["departed"].null_count == 0


def test_the_busiest_airport_follows_from_the_departures(panes: dict[str, pa.Table]) -> None:
    counts = standing(panes["departures"]).to_pylist()
    wanted: dict[Any, tuple[int, str]] = {}
    for row in sorted(counts, key=lambda one: one["origin"], reverse=True):
        best = wanted.get(row["window_start"], (0, ""))
        if row["departures"] >= best[0]:
            wanted[row["window_start"]] = (row["departures"], row["origin"])
    found = {
        row["window_start"]: (row["most"], row["airport"])
        for row in standing(panes["busiest"]).to_pylist()
    }
    assert found == wanted
    assert len(panes["busiest"]) > len(found)  # it retracts


def test_how_panes_came_about_does_not_count(panes: dict[str, pa.Table]) -> None:
    """Another order, and panes that are retracted again: only what stands is compared."""
    there = {name: table.take(list(reversed(range(len(table))))) for name, table in panes.items()}
    counts = panes["departures"]
    on_time = counts.filter(pc.equal(counts["kind"].cast(pa.string()), "insert")).slice(0, 2)
    kinds = pa.array(["insert", "retract"]).cast(on_time["kind"].type)
    both = [on_time.slice(0, 1), on_time.slice(0, 1)]
    again = pa.concat_tables(both).set_column(on_time.column_names.index("kind"), "kind", kinds)
    there["departures"] = pa.concat_tables([there["departures"], again])
    out = io.StringIO()
    assert compare(out, there, panes)
    assert out.getvalue().count("equal in every value") == 3


@pytest.mark.parametrize("output", ["departures", "busiest", "duty"])
@pytest.mark.parametrize("fault", ["value", "missing", "not retracted"])
def test_what_differs_is_seen(panes: dict[str, pa.Table], output: str, fault: str) -> None:
    table = panes[output]
    kinds = table["kind"].cast(pa.string())
    if fault == "value":
        at = table.column_names.index({"busiest": "most", "duty": "flights"}.get(output, output))
        wrong = table.set_column(at, table.column_names[at], pc.add(table.column(at), 1))
    elif fault == "missing":
        wrong = table.slice(1)
    elif pc.any(pc.equal(kinds, "retract")).as_py():
        wrong = table.filter(pc.equal(kinds, "insert"))
    else:
        wrong = pa.concat_tables([table, table.slice(0, 1)])
    out = io.StringIO()
    assert not compare(out, {**panes, output: wrong}, panes)
    assert out.getvalue().count("DIFFERENT") == 1


def test_it_fails_where_results_differ(
    panes: dict[str, pa.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = demo.load_flights().slice(0, 3_000)
    monkeypatch.setattr(demo_spark, "load_flights", lambda: first)
    wrong = {**panes, "duty": panes["duty"].slice(1)}
    monkeypatch.setattr(demo_spark, "streamed", lambda *_: (wrong, 1.0))
    monkeypatch.setattr(demo_spark, "embedded", lambda *_: panes)
    out = io.StringIO()
    session: Any = object()
    assert not demo_spark.demo_spark(out, session)
    assert "DIFFERENT" in out.getvalue()


def test_ties_go_to_the_first_name() -> None:
    leader = demo_spark.Leader()
    state = leader.create_accumulator()
    for value in ([3, "LGA"], [4, "JFK"], [4, "EWR"]):
        state = leader.add_input(state, value)
    assert leader.extract_output(leader.merge_accumulators([state, [4, "LGA"]])) == "EWR"
