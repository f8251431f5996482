"""The table of measures: what each has of a snapshot, and what is left out."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
import yaml
from hypothesis import given

import lowwater as lw
from lowwater.engine.graph.metrics import Metrics
from lowwater.live.measures import MEASURES, Distribution
from lowwater.live.snapshot import Snapshot, counters_of
from tests.paths import ROOT
from tests.unit.live.hand_made import COMMITS, part, snapshot, snapshots, whole

NAMES = {measure.name: measure for measure in MEASURES}
SERVICE = ROOT / "examples" / "service"
HOWTO = ROOT / "docs" / "howto" / "monitor.md"


def values(name: str, of: Snapshot) -> Mapping[tuple[str, ...], Any]:
    """Return the values of a measure by their labels."""
    samples = [*NAMES[name].samples(of)]
    known = dict(samples)
    assert len(known) == len(samples)
    return known


def test_each_measure_of_a_whole_snapshot() -> None:
    found = {
        name: known[()] if known.keys() == {()} else known
        for name in NAMES
        if (known := dict(values(name, whole())))
    }
    reasons = ("expired", "closed", "unwindowed", "too_late", "refused")
    assert found == {
        "run": {("clicks → counts",): 1},
        "run_state": {
            ("running",): 1, ("ended",): 0, ("stopped",): 0, ("available",): 0, ("failed",): 0,
        },
        "run_start_timestamp": 900.0,
        "snapshot_timestamp": 1_000.5,
        "workers": 2,
        "records": 100,
        "bundles": 10,
        "invalid_records": 10,
        "dead_letters": {("null_time",): 6, ("wrong_type",): 4},
        "arrived": {("counts",): 90},
        "admitted": {("counts",): 80},
        "dropped": {("counts",): 4},
        "late": {("counts", reason): 4 * (reason == "closed") for reason in reasons},
        "duplicates": {("counts",): 5},
        "superseded": {("counts",): 1},
        "panes": {("counts", "EARLY"): 0, ("counts", "ON_TIME"): 6, ("counts", "LATE"): 0},
        "retractions": {("counts",): 2},
        "emitted": {("counts", "main"): 11},
        "waiting_records": {("counts",): 7},
        "open_windows": {("counts",): 8},
        "state_rows": {("counts",): 9},
        "watermark_lag": {("clicks", ""): 12.5, ("", "counts"): 60.0},
        "held_by": {("counts", "clicks"): 1},
        "source_idle": {("clicks",): 3.0},
        "source_read": {("clicks",): 0.25},
        "commits": 3,
        "commit": Distribution([(0.1, 1), (0.5, 2), (1.0, 3)], 3, 0.75),
        "last_commit_timestamp": 998.0,
        "state": 4096,
        "delivered_rows": {("counts",): 42},
    }  # fmt: skip
    assert found.keys() == NAMES.keys()


def test_what_is_not_known_is_left_out() -> None:
    of = snapshot(parts=[part("clicks", "source"), part("counts")])
    unknown = {name for name in NAMES if not values(name, of)}
    assert unknown == {
        "dead_letters", "arrived", "admitted", "dropped", "late", "duplicates", "superseded",
        "panes", "retractions", "emitted", "state_rows", "watermark_lag", "held_by", "source_idle",
        "source_read", "commits", "commit", "last_commit_timestamp", "state", "delivered_rows",
    }  # fmt: skip


def test_rows_of_state_are_known_after_a_commit() -> None:
    young: Any = {**COMMITS, "count": 0, "ago": None, "state_bytes": None}
    of = snapshot(parts=[part("new"), part("resumed", rows=5)], commits=young)
    assert values("state_rows", of) == {("resumed",): 5}
    assert values("commits", of) == {(): 0}
    assert not values("last_commit_timestamp", of)
    assert not values("state", of)


@pytest.mark.parametrize(
    ("text", "holder"),
    [
        ("clicks: partition 'user 7' has not been seen", "clicks"),
        ("clicks: x: key 'ann', window [12:00, 12:01) (through b)", "clicks: x"),
        ("clicks", None),
        ("", None),
        ("nothing: the input has ended", None),
    ],
)
def test_holders_are_names_and_no_keys(text: str, holder: str | None) -> None:
    parts = [part("clicks", "source", held_by=text), part("clicks: x"), part("b", held_by=text)]
    known = values("held_by", snapshot(parts=parts))
    assert known == ({} if holder is None else {("b", holder): 1})


def test_an_ended_stage_is_held_by_nothing() -> None:
    parts = [
        part("nothing", "source"),
        part("b", held_by="nothing: the input has ended", ended=True),
    ]
    assert values("held_by", snapshot(parts=parts)) == {}


@given(snapshots())
def test_labels_are_unique_and_values_are_numbers(of: Snapshot) -> None:
    for name, measure in NAMES.items():
        for labels, value in values(name, of).items():
            assert len(labels) == len(measure.labels)
            assert isinstance(value, Distribution) or value == value, name


def test_counters_of_a_run_never_decrease() -> None:
    seen: list[Snapshot] = []

    def see(metrics: Metrics) -> None:
        seen.append(snapshot(counters=counters_of(metrics)))

    records = [{"at": n % 7 * 60 if n % 5 else None, "key": n % 3} for n in range(200)]
    stream = lw.from_iterable(records, time="at", unit="s", watermark=lw.Ascending()).key_by("key")
    counts = stream.window(lw.FixedWindows("1m"), accumulation="accumulating")
    counts.aggregate(n=lw.count()).collect(bundle_size=10, progress=see, on_error="dead_letter")
    counted = {name: values(name, seen[-1]) for name, of in NAMES.items() if of.kind == "counter"}
    assert counted["records"] == {(): 200}
    assert counted["dead_letters"] == {("null_time",): 40}
    assert sum(counted["late"].values()) > 0
    for name in counted:
        for before, after in pairwise(seen):
            then, now = values(name, before), values(name, after)
            assert all(now[labels] >= number for labels, number in then.items())


# -- what the example and the page say of them ----------------------------------------------------


def names_in(text: str) -> set[str]:
    """Return the measures that a text names."""
    names = set(re.findall(r"\blowwater_\w+\b", text))
    return {re.sub(r"(commit_seconds)_(bucket|sum|count)$", r"\1", name) for name in names}


KNOWN = {measure.metric for measure in MEASURES}


def labels_in(text: str) -> set[str]:
    """Return the labels by which expressions select and group."""
    grouped = re.findall(r"\b(?:by|on|without)\s*\(([^)]*)\)", text)
    return {
        label.strip()
        for group in [*grouped, *re.findall(r"(\w+)\s*(?:=~|!=|=)\s*\"", text)]
        for label in group.split(",")
    }


def expressions() -> list[str]:
    """Return the expressions of the dashboard and of the alerts."""
    board = json.loads((SERVICE / "grafana.json").read_text())
    rules = yaml.safe_load((SERVICE / "alerts.yml").read_text())
    return [
        *(target["expr"] for panel in board["panels"] for target in panel.get("targets", [])),
        *(rule["expr"] for group in rules["groups"] for rule in group["rules"]),
    ]


@pytest.mark.parametrize("expression", expressions())
def test_the_example_reads_what_is_measured(expression: str) -> None:
    named = names_in(expression)
    assert named <= KNOWN
    assert named or expression.startswith("up{")
    labels = {label for measure in MEASURES for label in measure.labels if measure.metric in named}
    assert labels_in(expression) <= labels | {"job", "instance", "le"}


def test_the_dashboard_finds_its_data_by_variables() -> None:
    board = json.loads((SERVICE / "grafana.json").read_text())
    variables = {each["name"] for each in board["templating"]["list"]}
    assert variables == {"datasource", "job"}
    assert board["id"] is None
    places: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        if panel["type"] != "row":
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            assert all('job=~"$job"' in target["expr"] for target in panel["targets"])
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not places & cells, panel["title"]
        assert max(x for x, _ in cells) < 24
        places |= cells
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_prometheus_reads_the_alerts_of_the_example() -> None:
    config = yaml.safe_load((SERVICE / "prometheus.yml").read_text())
    assert config["rule_files"] == ["alerts.yml"]
    assert [each["job_name"] for each in config["scrape_configs"]] == ["lowwater"]


def test_the_page_lists_all_measures() -> None:
    assert names_in(HOWTO.read_text()) == KNOWN
