"""Displays in notebooks: well-formed, alone, escaped, readable in light and dark."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import lowwater as lw
from lowwater.display import html
from lowwater.display.palette import DARK, LIGHT
from lowwater.engine.graph.metrics import Metrics
from lowwater.explain import Explanation, Finding, Findings
from lowwater.testing import PipelineRun, Scenario
from tests.unit.display.colours import contrast

EVIL = "</style></div><script>alert('1')</script>&\"]]>\x00\x1b\u202e\ud800`b`"
NAME = EVIL.replace("\ud800", "")
"""The same for names of columns, which must be Unicode."""
TAGS = {
    "div", "span", "style", "code", "details", "summary", "table", "thead", "tbody", "tr", "th",
    "td", "svg", "title", "rect", "path", "text",
}  # fmt: skip
ATTRIBUTES = {"class", "title"}
"""Those of HTML; pictures have their own tests."""


def orders(count: int = 30, *, shop: str = "a", field: str = "price") -> list[dict[str, Any]]:
    return [
        {
            "at": f"2024-05-01T12:{minute:02}:10Z",
            "came": f"2024-05-01T12:{minute:02}:30Z",
            "shop": shop,
            field: 0.1 * minute,
        }
        for minute in range(count)
    ]


def collected(
    rows: list[dict[str, Any]], *, key: str = "shop", field: str = "price", name: str = "sums"
) -> Any:
    stream = lw.from_iterable(
        rows, time="at", watermark=lw.BoundedDisorder("10s"), clock=lw.ArrivalClock("came")
    )
    windowed = stream.key_by(key).window(
        lw.FixedWindows("2m"),
        trigger=lw.AfterWatermark(early=lw.AfterCount(1)),
        accumulation="retracting",
    )
    pipeline = windowed.aggregate(**{f"last {field}": lw.last(field)}).named(name)
    return pipeline.collect(trace=True, bundle_size=1)


class Doubling:
    more = lw.output()

    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.emit({NAME: record[NAME], "twice": 2})
        ctx.emit(record[NAME], tag="more")


def _joined(text: str) -> PipelineRun:
    scenario = Scenario("left", "right").add((text, "12:00:00", text), to="left").end()
    return scenario.run_pipeline(
        lambda left, right: left.join(right, on="key", within="1m", how="left")
    )


def evil_displays(folder: Path) -> dict[str, str]:
    """Return each display, with names, keys, values and messages that try to break out."""
    rows = [
        {"at": at, "came": "2024-05-01T12:20:00Z", NAME: NAME}
        for at in ("2024-05-01T12:00:00Z", "2024-05-01T12:19:00Z", "2024-05-01T12:00:01Z", EVIL)
    ]
    result = collected(rows, key=NAME, field=NAME, name=EVIL)
    assert result.late
    assert result.errors
    keyed = lw.from_iterable(rows, time="at").key_by(NAME)
    process = keyed.process(Doubling())
    path = folder / '<script>alert(1)&".csv'
    path.write_text("at,k\n2024-05-01T12:00:00Z,1\n")
    read = lw.read_csv(path, time="at").key_by("k").window(lw.FixedWindows("1m"))
    scenario = Scenario(start="12:00").add((NAME, "12:00:10", NAME), at="12:01").end()
    return {
        "result": result._repr_html_(),
        "final": result.final()._repr_html_(),
        "process": process.collect()._repr_html_(),
        "scenario": scenario.run(windows=lw.FixedWindows("1m"))._repr_html_(),
        "scenario of a join": _joined(NAME)._repr_html_(),
        "pipeline": read.aggregate(n=lw.count()).named(EVIL)._repr_html_(),
        "process pipeline": process._repr_html_(),
        "output": process.write_jsonl(folder / "out")._repr_html_(),
        "metrics": result.metrics._repr_html_(),
        "explanation": result.explain(NAME, "2024-05-01T12:00:00Z")._repr_html_(),
        "why": result.why({NAME: NAME})._repr_html_(),
        "lines": Explanation((EVIL, f"  12:00  fired EARLY #0: {EVIL}", ""))._repr_html_(),
        "profile": result.lateness_profile()._repr_html_(),
        "findings": Findings((Finding("error", EVIL, EVIL, EVIL),))._repr_html_(),
        "difference": lw.diff(result, [])._repr_html_(),
    }


@pytest.fixture(scope="module")
def displays(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    found = evil_displays(tmp_path_factory.mktemp("displays"))
    empty = lw.from_iterable([], time="at").key_by("k").process(Doubling()).collect()
    return found | {
        "empty": collected([])._repr_html_(),
        "empty final": collected([]).final()._repr_html_(),
        "empty process": empty._repr_html_(),
        "empty metrics": Metrics()._repr_html_(),
        "empty explanation": Explanation(())._repr_html_(),
        "empty findings": Findings(())._repr_html_(),
        "no difference": lw.diff([], [])._repr_html_(),
        "empty profile": collected([]).lateness_profile()._repr_html_(),
    }


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, set[str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name for name, _ in attrs}))


def test_they_are_well_formed_and_escaped(displays: dict[str, str]) -> None:
    for name, text in displays.items():
        root = ET.fromstring(text)
        assert root.tag == "div", name
        reader = _Reader()
        reader.feed(text)
        reader.close()
        assert {tag for tag, _ in reader.found} <= TAGS, name
        for tag, attributes in reader.found:
            if tag not in {"svg", "title", "rect", "path", "text"}:
                assert attributes <= ATTRIBUTES, (name, tag)
        text.encode()  # which lone surrogates would not let through
        if "empty" not in name and name not in ("no difference", "profile"):
            assert "<script>alert" in "".join(root.itertext()), name


def test_they_load_nothing_and_run_nothing(displays: dict[str, str]) -> None:
    for name, text in displays.items():
        own = text.replace('xmlns="http://www.w3.org/2000/svg"', "")
        styles = "".join(re.findall(r"<style>(.*?)</style>", own, re.DOTALL))
        for sign in ("@import", "url(", "expression(", "javascript", "position:fixed"):
            assert sign not in styles, (name, sign)
        for sign in ("<script", "http", " href", " src=", "<link", "<img", "<iframe", " on"):
            assert sign not in re.sub(r">[^<]*<", "><", own), (name, sign)


def test_styles_stay_inside(displays: dict[str, str]) -> None:
    (style,) = re.findall(r"<style>(.*?)</style>", displays["metrics"])
    rules = re.sub(r"@media [^{]*\{([^}]*\})\}", r"\1", style)
    for selector in re.findall(r"([^{}]+)\{", rules):
        for one in selector.split(","):
            assert f".{html.SCOPE}" in one, one
    used = set(re.findall(r"var\((--lw-[a-z0-9-]+)\)", style))
    assert used <= set(re.findall(r"(--lw-[a-z0-9-]+):#", style))


def test_classes_have_rules(displays: dict[str, str]) -> None:
    style = re.findall(r"<style>(.*?)</style>", displays["metrics"])[0]
    plain = {"lw-part"}  # needs no rule
    for name, text in displays.items():
        without = re.sub(r"<svg.*?</svg>", "", text, flags=re.DOTALL)
        for classes in re.findall(r'class="([^"]*)"', without):
            for one in classes.split():
                kind = one.removeprefix("lw-")
                assert f".{one}" in style or one in plain or kind in html.KINDS, (name, one)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_text_stands_out(theme: dict[str, str]) -> None:
    style = html.display("", theme="dark" if theme is DARK else "light")
    colours = dict(re.findall(r"--lw-([a-z0-9-]+):(#[0-9a-f]{6})", style))
    assert contrast(colours["ink"], colours["paper"]) >= 7
    assert contrast(colours["quiet"], colours["paper"]) >= 4.5
    for kind in html.KINDS:
        assert contrast(colours["ink"], colours[f"{kind}-tint"]) >= 4.5, kind
    for heat in range(html.HEATS):
        assert contrast(colours["ink"], colours[f"heat{heat}"]) >= 4.5, heat


def test_light_and_dark() -> None:
    auto = html.display("x")
    assert "@media (prefers-color-scheme:dark)" in auto
    assert "[data-jp-theme-light=false] ." in auto
    assert LIGHT["paper"] in auto
    assert DARK["paper"] in auto
    dark = html.display("x", theme="dark")
    assert LIGHT["paper"] not in dark
    assert "@media" not in dark


def test_a_result_is_a_table_that_is_cut() -> None:
    result = collected(orders())
    text = result._repr_html_()
    assert f"Result of 30 events: {len(result.panes)} panes" in text
    assert text.count("<tr>") == 21
    assert f"… {len(result.panes) - 20} more panes" in text
    assert "windows start on 2024-05-01, in UTC" in text
    assert '<span class="lw-badge lw-ontime">ON_TIME #2</span>' in text
    assert '<span class="lw-badge lw-retract">30 retractions</span>' in text
    assert ">0.3<" in text
    assert "0.30000000000000004" not in text


def test_what_stands_and_a_run_are_displayed() -> None:
    result = collected(orders(30))
    stands = result.final()._repr_html_()
    assert f"{len(result.final())} panes" in stands
    assert "retract" not in re.sub("<style>.*?</style>", "", stands, flags=re.DOTALL)
    run = lw.from_iterable(orders(3), time="at").key_by("shop").window(lw.GlobalWindow())
    assert "events" in run.aggregate(n=lw.count()).run()._repr_html_()


def test_late_elements_and_dead_letters_are_counted_and_folded() -> None:
    late = [dict(orders(1)[0], came="2024-05-01T12:31:00Z") for _ in range(7)]
    null = [dict(orders(1)[0], at=None, came="2024-05-01T12:32:00Z")]
    text = collected(orders() + late + null)._repr_html_()
    assert "7 late: expired" in text
    assert "1 dead letter: null_time" in text
    assert '<summary class="lw-summary">late: 7</summary>' in text
    assert "… 2 more elements" in text


def test_a_process_has_a_table_for_each_output() -> None:
    rows = [{"at": "2024-05-01T12:00:00Z", "k": k, NAME: k} for k in range(22)]
    text = lw.from_iterable(rows, time="at").key_by("k").process(Doubling()).collect()
    root = ET.fromstring(text._repr_html_())
    heads = [
        [cell.findtext("div") for cell in row] for row in root.iter("tr") if row[0].tag == "th"
    ]
    assert [head[0] for head in heads] == ["k", "k"]
    assert [head[-2:] for head in heads] == [["twice", "event time"], ["value", "event time"]]
    assert "Result of 22 events: 44 elements" in "".join(root.itertext())


def test_the_present_choice_is_marked() -> None:
    profile = collected(orders()).lateness_profile(delays=["0s", "1m"], lateness=["0s", "5m"])
    assert profile.present is not None
    assert (profile.present.delay, profile.present.lateness) == (10_000_000, 0)
    assert {(row.delay, row.lateness) for row in profile.around} == {
        (10_000_000, 0), (10_000_000, 300_000_000),
    }  # fmt: skip
    assert len(profile.rows) == 4
    text = profile._repr_html_()
    assert text.count("lw-marked") == 2  # the cell, and the rule of the style
    marked = re.search(r'<td class="lw-heat0 lw-marked" title="([^"]*)"', text)
    assert marked is not None
    assert marked[1] == "watermark delay 10s, allowed lateness 0s"
    assert 'lw-badge lw-quiet">now<' in text


def test_a_profile_of_another_watermark_has_no_present_choice() -> None:
    rows = orders(3)
    stream = lw.from_iterable(rows, time="at").key_by("shop").window(lw.FixedWindows("1m"))
    profile = stream.aggregate(n=lw.count()).collect(trace=True).lateness_profile()
    assert profile.present is None
    assert profile.around == ()


def test_more_is_hotter() -> None:
    shades = [html.heat("", share / 20).style for share in range(21)]
    assert shades[0] == "lw-heat0"
    assert shades[1] == "lw-heat1"
    assert shades == sorted(shades)
    assert set(shades) == {f"lw-heat{at}" for at in range(html.HEATS)}


def test_numbers_are_on_the_right() -> None:
    root = ET.fromstring(html.table(["n", "text"], [[1, "a"], [2.5, "b"]]))
    flush = [cell.get("class") for cell in root.iter("td")]
    assert flush == ["lw-right", None, "lw-right", None]


def test_metrics_as_plain_values() -> None:
    result = collected(orders(3))
    found = json.loads(json.dumps(result.metrics.to_dict()))
    assert found["events"] == 3
    assert found["panes"] == {"EARLY": 3, "ON_TIME": 2}
    assert found["ended"] is True
    assert found["watermark"] is None
    assert found["clock"] == "2024-05-01T12:03:00Z"
    assert found["stages"]["sums"]["output_watermark"] is None
    assert found["stages"]["sums"]["retractions"] == found["retractions"] == 3
    before = Metrics().to_dict()
    assert (before["ended"], before["watermark"]) == (False, None)


def test_metrics_in_a_line() -> None:
    shown = repr(collected(orders(3)).metrics)
    assert shown == (
        "<Metrics: 3 events, panes: 3 EARLY, 2 ON_TIME, 3 retractions, late: none, "
        "dead letters: none, 0 open windows, watermark at the end>"
    )


def test_metrics_of_a_join_say_what_it_emitted() -> None:
    left, right = (lw.from_iterable([{"at": 0, "k": 1}], time="at") for _ in range(2))
    metrics = left.join(right, on="k", within="1s").collect(progress=False).metrics
    assert metrics.emitted == metrics.to_dict()["emitted"] == 1
    assert repr(metrics).startswith("<Metrics: 2 events, emitted: 1, late: none")
