"""The text format of Prometheus, as its own parser reads it and its linter wants it."""

from __future__ import annotations

import math
import re
from collections import Counter

import pytest
from hypothesis import given
from prometheus_client.parser import text_string_to_metric_families

from lowwater.live.measures import MEASURES, Distribution
from lowwater.live.prometheus import CONTENT_TYPE, exposition
from lowwater.live.snapshot import Snapshot
from tests.unit.live.hand_made import HOSTILE, part, snapshot, snapshots, whole

Series = tuple[str, frozenset[tuple[str, str]]]


def parsed(text: str) -> dict[Series, float]:
    """Return the series of a text; none is there twice."""
    samples = [
        ((sample.name, frozenset(sample.labels.items())), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]
    series = dict(samples)
    assert len(series) == len(samples)
    return series


def measured(of: Snapshot) -> dict[Series, float]:
    """Return the same of the table of measures."""
    series: dict[Series, float] = {}
    for measure in MEASURES:
        for values, value in measure.samples(of):
            labels = {
                name: label for name, label in zip(measure.labels, values, strict=True) if label
            }
            if not isinstance(value, Distribution):
                series[measure.metric, frozenset(labels.items())] = value
                continue
            series[f"{measure.metric}_sum", frozenset(labels.items())] = value.total
            series[f"{measure.metric}_count", frozenset(labels.items())] = value.number
            for limit, number in [*value.buckets, (math.inf, value.number)]:
                le = "+Inf" if limit == math.inf else str(limit)
                series[f"{measure.metric}_bucket", frozenset({**labels, "le": le}.items())] = number
    return series


@pytest.mark.parametrize(
    "of",
    [
        whole(),
        whole(HOSTILE, HOSTILE[::-1]),
        whole("\\", '"'),
        snapshot(),
        snapshot(state="failed", error=HOSTILE),
        snapshot(state="ended", parts=[part("a", "source", ended=True), part("b", ended=True)]),
    ],
    ids=["whole", "hostile", "escapes", "empty", "failed", "ended"],
)
def test_what_is_written_is_read(of: Snapshot) -> None:
    assert parsed(exposition(of)) == measured(of)


@given(snapshots())
def test_any_snapshot_reads_back(of: Snapshot) -> None:
    assert parsed(exposition(of)) == measured(of)


def test_some_lines_as_they_are() -> None:
    lines = exposition(whole('a "b"\n', "c\\d")).splitlines()
    assert r'lowwater_watermark_lag_seconds{source="c\\d"} 12.5' in lines
    assert r'lowwater_held_by_info{stage="a \"b\"\n",held_by="c\\d"} 1' in lines
    assert "lowwater_records_total 100" in lines
    assert 'lowwater_commit_seconds_bucket{le="+Inf"} 3' in lines


def test_headers_stand_once_before_their_samples() -> None:
    text = exposition(whole())
    assert text.endswith("\n")
    heads = [line.split()[1:3] for line in text.splitlines() if line.startswith("#")]
    assert set(Counter(map(tuple, heads)).values()) == {1}
    families = [*text_string_to_metric_families(text)]
    kinds = {measure.kind for measure in MEASURES}
    assert {family.type for family in families} == kinds - {"info"}
    assert len(families) == len(MEASURES)
    assert all(family.documentation for family in families)


def test_a_lone_surrogate_is_replaced() -> None:
    text = exposition(snapshot(title="a\ud800b"))
    assert 'lowwater_run_info{title="a?b"} 1' in text
    text.encode()


def test_the_content_type_is_that_of_the_parser() -> None:
    assert CONTENT_TYPE.startswith("text/plain; version=0.0.4")


# The rules of `promtool check metrics` (client_golang, prometheus/testutil/promlint/validations).
# No maintained package for Python has them.
BASE_UNITS = {"seconds", "bytes"}
UNITS = re.compile(
    r"(pico|nano|micro|milli|centi|deci|deca|hecto|kilo|kibi|mega|mibi|giga|gibi|tera|tebi|peta|pebi)"
    r"?(amperes|bytes|celsius|grams|joules|kelvins?|meters|metres|seconds|volts|minutes|hours|days"
    r"|weeks|fahrenheit|rankine|inches|yards|miles|bits|calories|pounds|ounces)"
)
ABBREVIATIONS = {"s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d"}
TYPES = {"counter", "gauge", "summary", "histogram", "untyped"}


def problems(name: str, kind: str, description: str, labels: tuple[str, ...]) -> list[str]:
    """Return what the linter says about a measure."""
    words = name.split("_")
    rules = {
        "no help text": not description,
        "no _total": (kind == "counter") != name.endswith("_total"),
        "reserved suffix": words[-1] in {"bucket", "count", "sum"},
        "reserved label": bool({"le", "quantile"} & {*labels}),
        "type in the name": bool(TYPES & {*words}),
        "colon": ":" in name,
        "camel case": any(re.search("[a-z][A-Z]", text) for text in (name, *labels)),
        "abbreviated unit": bool(ABBREVIATIONS & {*words}),
        "no base unit": any(UNITS.fullmatch(word) for word in {*words} - BASE_UNITS),
        "not a name": not re.fullmatch(r"[a-z][a-z0-9_]*", name),
    }
    return [rule for rule, broken in rules.items() if broken]


@pytest.mark.parametrize("measure", MEASURES, ids=lambda measure: measure.name)
def test_the_linter_has_nothing_to_say(measure: object) -> None:
    (of,) = [one for one in MEASURES if one is measure]
    assert problems(of.metric, of.kind, of.help, of.labels) == []
    assert of.help.endswith(".")
    assert {"s": "_seconds", "By": "_bytes", "1": "_ratio"}.get(of.unit, "") in of.metric
    assert (of.kind == "info") == of.metric.endswith("_info")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("x", "counter"), ("x_total", "gauge"), ("x_count", "gauge"), ("x_gauge", "gauge"),
        ("a:b", "gauge"), ("aB", "gauge"), ("x_ms", "gauge"), ("x_milliseconds", "gauge"),
        ("x_minutes", "gauge"),
    ],
)  # fmt: skip
def test_the_linter_finds_what_it_should(name: str, kind: str) -> None:
    assert problems(name, kind, "Help.", ())
