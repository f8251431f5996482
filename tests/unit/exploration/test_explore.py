"""Explorations: what may be explored, what the page has, and what is refused."""

from __future__ import annotations

import html
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lowwater as lw
from lowwater.exploration import exploration
from lowwater.viz.picture import lay_out_panel
from lowwater.viz.svg import shape_texts

HOSTILE = "</script><b>\"'&"
TRIGGERS = {"late": lw.AfterWatermark(late=lw.AfterCount(1)), "never": lw.AfterWatermark()}
MINUTE = {"a minute": lw.FixedWindows("1m")}


def table(count: int = 500, keys: tuple[Any, ...] = ("a", "b", HOSTILE)) -> pa.Table:
    random = np.random.default_rng(3)
    at = np.arange(count) * 1_000_000 - random.integers(0, 90, count) * 1_000_000 + 10**9
    return pa.table(
        {
            "at": pa.array(at, pa.timestamp("us", "UTC")),
            "key": [keys[n % len(keys)] for n in range(count)],
            "value": random.integers(0, 9, count),
        }
    )


def pipeline(data: pa.Table | None = None) -> lw.Pipeline:
    return (
        lw.from_arrow(table() if data is None else data, time="at", watermark=lw.Ascending())
        .key_by("key")
        .window(lw.FixedWindows("1m"), accumulation="retracting")
        .aggregate(total=lw.sum("value"))
    )


def data_of(page: str) -> Any:
    found = re.search(r"var data=(\{.*?\}),pool=data\.pool", page, re.DOTALL)
    assert found is not None
    return json.loads(found.group(1))


def texts(pool: list[str], runs: list[int]) -> list[str]:
    return [pool[first + n] for first, many in zip(runs[::2], runs[1::2], strict=True)
            for n in range(many)]  # fmt: skip


def test_the_page_has_each_frame_as_it_is_drawn() -> None:
    found = lw.explore(
        pipeline(), delay=["0s", "1m"], lateness=["0s", "5m"],
        trigger={"late": TRIGGERS["late"], HOSTILE: lw.AfterWatermark(late=lw.AfterCount(3))},
        bundle_size=20, draw=HOSTILE,
    )  # fmt: skip
    page = found._repr_html_()
    assert page.count("</script>") == 1
    assert HOSTILE not in page
    data = data_of(page)
    assert data["axes"] == [1, 2, 2, 2]
    assert len(data["frames"]) == len(found.points) == 8
    runs = exploration._Runs(found.grid, 20)
    for frame, own in zip(data["frames"], runs.frames(HOSTILE, None), strict=True):
        drawn, panes, dropped, numbers, code, shares, _ = frame
        assert texts(data["pool"], drawn) == shape_texts(lay_out_panel(own.scene, 420))
        rows = [re.findall("<td>(.*?)</td>", row) for row in texts(data["pool"], panes)]
        assert [tuple(map(html.unescape, row)) for row in rows] == list(own.panes)
        assert len(texts(data["pool"], dropped)) == len(own.dropped)
        assert texts(data["pool"], numbers)[0] == f"{own.point.on_time:,}"
        said = html.unescape(texts(data["pool"], code)[0])
        assert said == found.code(own.point)
        assert shares == sorted(shares)
        assert len(shares) == len(data["latencies"])


def test_code_is_the_pipeline_of_its_point() -> None:
    late = lw.AfterWatermark(late=lw.AfterAny(lw.AfterCount(3), lw.AfterProcessingTime("1m")))
    found = lw.explore(pipeline(), delay=["90s"], lateness=["5m"], trigger={"late": late})
    (point,) = found.points
    code = found.code(point).replace("watermark=lw.", "watermark = lw.", 1)
    watermark, window = code.split("\n\n")
    scope: dict[str, Any] = {"lw": lw}
    exec(watermark, scope)
    data = table()
    keyed = lw.from_arrow(data, time="at", watermark=scope["watermark"]).key_by("key")
    scope["keyed"] = keyed
    windowed = eval(f"keyed{window}", scope)
    runs = [
        one.collect(bundle_size=10, clock=lw.ManualClock(0), progress=False).panes
        for one in (windowed.aggregate(total=lw.sum("value")), found.pipeline(point))
    ]
    assert runs[0] == runs[1] != []


def numbers(found: lw.Exploration) -> list[tuple[int, ...]]:
    return [(p.records, p.on_time, p.dropped, p.emitted) for p in found.points]


@cache
def expected() -> list[tuple[int, ...]]:
    one = lw.explore(pipeline(table(200)), delay=["0s", "1m"], bundle_size=10, windows=MINUTE)
    return numbers(one)


@pytest.mark.parametrize("kind", ["rows", "columns", "arrow", "pandas", "parquet", "iterator"])
def test_records_of_every_kind(kind: str, tmp_path: Path) -> None:
    data = table(200)
    pq.write_table(data, tmp_path / "data.parquet")
    records: Any = {
        "rows": data.to_pylist,
        "columns": data.to_pydict,
        "arrow": lambda: data,
        "pandas": lambda: pd.DataFrame(data.to_pydict()),
        "parquet": lambda: str(tmp_path / "data.parquet"),
        "iterator": lambda: iter(data.to_pylist()),
    }[kind]()
    found = lw.explore(
        records, time="at", key="key", windows=MINUTE, delay=["0s", "1m"], bundle_size=10,
        aggregates={"total": lw.sum("value")},
    )  # fmt: skip
    assert numbers(found) == expected()
    assert found.points[0].dropped > found.points[1].dropped


def test_records_without_a_key_are_one_group() -> None:
    found = lw.explore(table(), time="at", windows=MINUTE, delay=["2m"])
    (point,) = found.points
    assert (point.records, point.complete) == (500, 1)


def test_pages_do_not_grow_with_the_input() -> None:
    sizes = [
        len(lw.explore(pipeline(table(count)), delay=["0s", "1m"])._repr_html_())
        for count in (8_000, 32_000)
    ]
    assert sizes[1] < 1.5 * sizes[0] < 250_000


def test_a_source_is_read_once() -> None:
    reads = []

    class Counted:
        schema = None

        def batches(self, size: int, keys: tuple[str, ...]) -> Any:
            reads.append(size)
            yield lw.Records.from_arrow(pa.table({"at": list(range(10)), "key": ["a"] * 10}))

    stream = lw.from_source(Counted(), time="at", watermark=lw.Ascending())
    counts = stream.key_by("key").window(lw.FixedWindows("1s")).aggregate(n=lw.count())
    lw.explore(counts, delay=["0s", "1s", "2s"])
    assert len(reads) == 1


def test_a_clock_of_the_source_measures_the_waits() -> None:
    at = [0, 1, 2, 3, 60, 61, 130]
    data = pa.table(
        {
            "at": pa.array([n * 1_000_000 for n in at], pa.timestamp("us", "UTC")),
            "came": pa.array([n * 1_000_000 + 10_000_000 for n in at], pa.timestamp("us", "UTC")),
        }
    )
    found = lw.explore(
        lw.from_arrow(
            data, time="at", watermark=lw.Ascending(), clock=lw.ArrivalClock("came", tick="1s")
        )
        .with_columns(all=lw.lit(1))
        .key_by("all")
        .window(lw.FixedWindows("1m"))
        .aggregate(n=lw.count()),
    )
    (point,) = found.points
    # The window to 01:00 is complete when the record of 01:00 came, in the tick up to 01:11.
    assert point.median_wait == 11_000_000
    assert "waits are measured by the clock" in found._repr_html_()
    assert "processing time" in found._repr_html_()


def test_points_are_found_by_their_settings(tmp_path: Path) -> None:
    found = lw.explore(pipeline(), delay=["0s", "30s"], lateness=["0s", "1m"])
    assert found.point(delay="30s", lateness="1m").settings.delay == 30_000_000
    with pytest.raises(lw.InvalidArgument, match="several points have delay='30s'"):
        found.point(delay="30s")
    with pytest.raises(lw.InvalidArgument, match="no point has delay='31s'"):
        found.point(delay="31s")
    frame = found.to_frame()
    assert frame["complete"].tolist() == [point.complete for point in found.points]
    assert frame["delay"].tolist()[:2] == [pd.Timedelta(0), pd.Timedelta("30s")]
    found.save(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert found._repr_html_() in text
    with pytest.raises(lw.InvalidArgument, match=r"does not end in \.html"):
        found.save(tmp_path / "page.svg")


def test_code_has_all_options_of_the_pipeline() -> None:
    keyed = lw.from_arrow(table(), time="at", watermark=lw.Ascending()).key_by("key")
    for options in (
        {"closing": "always", "on_time": "if_new", "timestamps": "latest"},
        {"fill": "2 windows"},
        {"fill": lw.until_idle("5m")},
        {"trigger": lw.AfterCount(2), "allow_data_loss": "Only (the first) two"},
    ):
        windowed = keyed.window(lw.FixedWindows("1m"), **options)
        found = lw.explore(windowed.aggregate(n=lw.count()))
        window = found.code(found.points[0]).partition("\n\n")[2]
        of_code = eval(f"keyed{window}", {"keyed": keyed, "lw": lw}).aggregate(n=lw.count())
        assert of_code._stage.windowing == found.pipeline(found.points[0])._stage.windowing


class ByTwos:
    """Fires at every second element; its text has two lines."""

    def __repr__(self) -> str:
        return "two\nlines"

    def on_element(self, context: Any, at: int) -> None:
        context.state = (context.state or 0) + 1

    def ready(self, context: Any) -> bool:
        return bool(context.state and context.state >= 2)

    def on_fire(self, context: Any) -> bool:
        context.state = None
        return False


def test_code_has_variables_for_what_has_no_code() -> None:
    keyed = lw.from_arrow(table(), time="at", watermark=lw.Ascending()).key_by("key")
    tens = lw.CustomWindows(lambda t: [(t - t % 10**7, t - t % 10**7 + 10**7)], name="tens")
    by_twos: Any = ByTwos()  # without on_merge
    trigger = lw.AfterWatermark(early=lw.CustomTrigger(by_twos))
    options: dict[str, Any] = {"trigger": trigger, "accumulation": "discarding"}
    found = lw.explore(keyed.window(tens, **options).aggregate(n=lw.count()))
    window = found.code(found.points[0]).partition("\n\n")[2]
    names = {"keyed": keyed, "lw": lw, "windows": tens, "trigger": trigger}
    of_code = eval(f"keyed{window}", names).aggregate(n=lw.count())
    assert of_code._stage.windowing == found.pipeline(found.points[0])._stage.windowing


def test_records_that_an_earlier_stage_drops_are_counted() -> None:
    """The last stage cannot know of them: all that reached it may be in its answer."""
    chain = (
        lw.from_arrow(table(), time="at", watermark=lw.Ascending())
        .key_by("key")
        .window(lw.FixedWindows("10s"))
        .aggregate(total=lw.sum("value"))
        .key_by("key")
        .window(lw.FixedWindows("1m"))
        .aggregate(total=lw.sum("total"))
    )
    found = lw.explore(chain, delay=["0s", "2m"], bundle_size=20)
    for point in found.points:
        result = found.pipeline(point).collect(
            bundle_size=20, clock=lw.ManualClock(0), progress=False
        )
        assert point.dropped_before == sum(result.metrics.late.values())
    lost, whole = found.points
    assert (lost.complete, lost.dropped, lost.dropped_before > 100) == (1, 0, True)
    assert whole.dropped_before == 0
    assert f"<b>{lost.dropped_before}</b> dropped before" in found._repr_html_()
    assert "dropped before" in repr(found)
    assert found.to_frame()["dropped_before"].tolist() == [lost.dropped_before, 0]
    single = lw.explore(pipeline(), delay=["0s"])
    assert "dropped before" not in single._repr_html_() + repr(single)


def test_windows_without_end_have_no_wait() -> None:
    windows: dict[str, Any] = {"a minute": lw.FixedWindows("1m"), "all": lw.GlobalWindow()}
    found = lw.explore(pipeline(), windows=windows, delay=["0s", "1m"], bundle_size=20)
    ended, endless = (
        found.point(windows="a minute", delay="1m"),
        found.point(windows="all", delay="1m"),
    )
    assert (endless.median_wait, endless.p99_wait, endless.complete) == (None, None, 1)
    alone = lw.explore(pipeline(), delay=["0s", "1m"], bundle_size=20)
    assert ended.median_wait == alone.point(delay="1m").median_wait
    data, of_alone = data_of(found._repr_html_()), data_of(alone._repr_html_())
    assert data["latencies"] == of_alone["latencies"]  # the curve has room for what has an end
    assert data["frames"][0][5] == of_alone["frames"][0][5]
    assert set(data["frames"][2][5]) == {0}


def test_elements_that_no_window_contains_are_dropped() -> None:
    windows: dict[str, Any] = {"none": lw.CustomWindows(lambda t: [], name="none")}
    found = lw.explore(pipeline(), windows=windows, bundle_size=20)
    (point,) = found.points
    assert (point.dropped, point.expected, point.emitted) == (500, 0, 0)
    assert "no window contains its event time" in found._repr_html_()


def test_a_lateness_that_the_stage_would_refuse_is_refused() -> None:
    first = (
        lw.from_arrow(table(), time="at")
        .key_by("key")
        .window(lw.FixedWindows("10s"), trigger=TRIGGERS["late"], accumulation="discarding",
                allowed_lateness="1m")
        .aggregate(total=lw.sum("value"))
    )  # fmt: skip
    chain = (
        first.key_by("key")
        .window(lw.FixedWindows("1m"), trigger=TRIGGERS["late"], accumulation="discarding")
        .aggregate(total=lw.sum("total"))
    )
    assert lw.explore(chain).points[0].settings.lateness == 60_000_000
    with pytest.raises(lw.InvalidArgument, match="shorter than that of the upstream stage"):
        lw.explore(chain, lateness=["1m", "59s"])


def test_pictures_have_no_heading_for_it_would_be_cut() -> None:
    page = lw.explore(pipeline(), draw="a")._repr_html_()
    assert 'class="head"' not in page


def test_what_has_the_focus_has_a_name() -> None:
    page = lw.explore(pipeline(), delay=["0s", "1m"])._repr_html_()
    for tag in re.findall(r'<[^>]* tabindex="0"[^>]*>', page):
        assert re.search(r'role="region"\saria-label="', tag)


def test_bad_records_are_counted_and_said_once() -> None:
    rows = [{"at": f"2024-05-01T12:{n:02}:00Z", "key": "a", "value": 2**53 + 1} for n in range(9)]
    bad: list[dict[str, Any]] = [
        {"at": "nonsense", "key": "a", "value": 1},
        {"at": "2024-05-01T12:10:00Z", "key": None, "value": 1},
        {"at": "2024-05-01T12:11:00Z", "key": "a", "value": float("nan")},
    ]
    windows = {"2m": lw.FixedWindows("2m")}
    with pytest.warns(lw.DataWarning) as said:
        found = lw.explore(
            rows + bad, time="at", key="key", windows=windows, delay=["0s", "1m", "2m"],
            aggregates={"total": lw.sum("value")}, bundle_size=2,
        )  # fmt: skip
    assert len(said) == 1
    dead = {point.dead for point in found.points}
    with pytest.warns(lw.DataWarning):
        result = found.pipeline(found.points[0]).collect(bundle_size=2, progress=False)
    assert dead == {len(result.errors)}
    assert found.points[0].records + len(result.errors) == 12
    assert f"<b>{len(result.errors)}</b> dead letters" in found._repr_html_()
    assert f"total = {2**54 + 2}" in found._repr_html_()


def test_nothing_to_draw() -> None:
    empty = pipeline(table(0))
    found = lw.explore(empty, delay=["0s"])
    assert found.points[0].records == 0
    assert found.points[0].complete == 1
    assert "no elements" in found._repr_html_()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delay": ["-1s"]}, "has a negative duration"),
        ({"delay": "1s"}, "is not a list of durations"),
        ({"lateness": []}, "is not a list of durations"),
        ({"trigger": {}}, "is not a mapping of names"),
        ({"trigger": [lw.AfterWatermark()]}, "is not a mapping of names"),
        ({"trigger": {"a": lw.FixedWindows("1m")}}, "is no trigger"),
        ({"windows": {"a": "1m"}}, "is no window function"),
        ({"delay": [f"{n}s" for n in range(401)]}, "401 combinations are more than"),
        ({"draw": "z"}, "is no key of the input"),
        ({"column": "z"}, "has no aggregate 'z'"),
        ({"time": "at"}, "are of records"),
        ({"theme": "blue"}, "is none of"),
    ],
)
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(lw.InvalidArgument, match=message):
        lw.explore(pipeline(), **options)


def test_what_cannot_be_explored() -> None:
    with pytest.raises(lw.InvalidArgument, match="need time= and windows="):
        lw.explore([1, 2])
    counted = lw.from_arrow(table(), time="at").key_by("key").window(lw.CountWindows(5))
    with pytest.raises(lw.InvalidArgument, match="not one with windows of time"):
        lw.explore(counted.aggregate(n=lw.count()))
    with pytest.raises(lw.UnsafeTrigger):
        lw.explore(pipeline(), lateness=["1m"], trigger={"once": lw.AfterCount(1)})
