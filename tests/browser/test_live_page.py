"""The page of a run in a real Chromium: what it shows, by keyboard alone, and with hostile names.

Where there is no Chromium these are skipped; ``tests/allowed_skips.toml`` says why that may be.
"""

from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.engine.records.batch import Records
from lowwater.io.sinks import Callback
from tests.browser.chromium import Chromium, Page, find

pytestmark = [
    pytest.mark.long(reason="drives a browser"),
    pytest.mark.skipif(find() is None, reason="there is no Chromium: apt-get install chromium"),
]
WIDTHS = (400, 1280, 1600)
HOSTILE = "</script><img src=x onerror=window.hacked=1>\u202e'\"&<b>" + "n" * 300


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as found:
        yield found


@pytest.fixture
def source() -> Iterator[Told]:
    """Return a source that ends with the test, and so does the run that reads it."""
    told = Told()
    yield told
    told.end()


class Told:
    """A source that reads what a test tells it: batches of records, or polls without any."""

    schema = None

    def __init__(self) -> None:
        self._told: queue.Queue[list[dict[str, Any]] | None] = queue.Queue()
        self.clock = lw.ManualClock("2024-05-01T12:00:00Z")

    def tell(self, *records: dict[str, Any]) -> None:
        """Have records arrive; none: a poll returns nothing."""
        self._told.put(list(records))

    def end(self) -> None:
        """End the input."""
        self._told.put(None)

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Records]:
        """Yield what is told, and polls without records while nothing is."""
        del size, keys
        while True:
            try:
                records = self._told.get(timeout=0.05)
            except queue.Empty:
                records = []
            if records is None:
                return
            yield (
                Records.from_arrow(pa.RecordBatch.from_pylist(records))
                if records
                else Records({}, 0, rest_seconds=0.01)
            )

    def stream(self, delay: str = "5s") -> lw.Stream:
        """Return a stream of it."""
        return lw.from_source(
            self, time="at", watermark=lw.BoundedDisorder(delay), clock=self.clock
        )


def record(second: int, key: str = "a", **more: Any) -> dict[str, Any]:
    at = lw.instant("2024-05-01T12:00:00Z") + second * 1_000_000
    return {"at": at, "key": key, "n": 1, **more}


def counts(stream: lw.Stream) -> lw.Pipeline:
    return stream.key_by("key").window(lw.FixedWindows("1m")).aggregate(n=lw.count())


def started(pipeline: lw.Pipeline, **options: Any) -> lw.RunHandle:
    return pipeline.write_to(Callback(lambda _: None)).start(serve=0, progress=False, **options)


def opened(browser: Chromium, handle: lw.RunHandle, **options: Any) -> Page:
    assert handle.link is not None
    page = browser.open(handle.link, **options)
    page.wait("!document.querySelector('#main').hidden")
    return page


def text_of(page: Page, selector: str = "body") -> str:
    found: str = page.evaluate(f"document.querySelector({selector!r}).innerText")
    return found


def says(page: Page, selector: str, text: str) -> None:
    """Wait until an element has a text."""
    page.wait(f"document.querySelector({selector!r}).innerText.includes({text!r})", 20)


def test_it_says_what_holds_the_watermark_of_a_run_whose_source_is_silent(
    browser: Chromium, source: Told
) -> None:
    source.tell(*(record(second) for second in range(90)))
    handle = started(counts(source.stream().named("orders")).named("per minute"))
    page = opened(browser, handle)
    says(page, "#parts", "per minute")
    says(page, "#parts", "90")
    source.clock.advance_to("2024-05-01T12:11:30Z")  # ten minutes in which nothing comes
    says(page, "#holder", "orders: silent since 2024-05-01T12:00:00Z")
    says(page, "#tiles", "10 min")
    for at in WIDTHS:
        page.resize(at)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    source.end()
    handle.wait()
    says(page, "#state", "ended")
    assert page.problems == []


def test_it_follows_a_backlog_and_loads_nothing_from_elsewhere(
    browser: Chromium, source: Told
) -> None:
    source.tell(*(record(second) for second in range(100)))
    handle = started(counts(source.stream()))
    page = opened(browser, handle)
    for at in range(100, 1_000, 100):
        source.tell(*(record(second) for second in range(at, at + 100)))
    says(page, "#tiles", "1,000")
    assert page.requests
    assert all(url.startswith((handle.link or "", "data:")) for url in page.requests)
    source.end()
    handle.wait()
    says(page, "#state", "ended")
    assert page.problems == []


def test_hostile_names_keys_and_records_are_text(browser: Chromium, source: Told) -> None:
    bad = {"at": None, "key": HOSTILE, "n": 1}
    source.tell(*(record(second, HOSTILE) for second in range(90)), bad)
    pipeline = counts(source.stream().named(HOSTILE)).named(HOSTILE + "2")
    handle = started(pipeline, trace=True, on_error="dead_letter")
    page = opened(browser, handle)
    says(page, "#letters", "onerror")
    page.evaluate("document.querySelector('#trace').scrollIntoView()")  # else it asks nothing
    page.wait("document.querySelector('#trace-key').options.length > 0", 20)
    page.wait("document.querySelector('iframe') !== null", 20)
    assert page.evaluate("document.querySelectorAll('img[src=x], b b').length") == 0
    assert page.evaluate("window.hacked === undefined")
    page.resize(400)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    source.end()
    handle.wait()
    assert page.problems == []


def test_two_hundred_stages_and_ten_thousand_windows(browser: Chromium, source: Told) -> None:
    stream = source.stream("1d")
    keyed = stream.key_by("key")
    outputs = [
        keyed.window(lw.FixedWindows(f"{n + 1}m")).aggregate(n=lw.count()).named(f"stage {n}")
        .write_to(Callback(lambda _: None))
        for n in range(200)
    ]  # fmt: skip
    source.tell(*(record(n, f"key {n}") for n in range(10_000)))
    handle = lw.start(*outputs, serve=0, progress=False)
    page = opened(browser, handle)
    page.wait("document.querySelectorAll('#parts tbody tr').length === 201", 30)
    says(page, "#parts", "10,000")
    page.evaluate("document.querySelector('#filter').focus()")
    page.type("stage 17")
    shown = "[...document.querySelectorAll('#parts tbody tr')].filter(row => !row.hidden).length"
    page.wait(f"{shown} === 11")
    for at in WIDTHS:
        page.resize(at)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    handle.stop()
    handle.wait()
    says(page, "#state", "stopped")
    assert page.problems == []


def test_a_run_that_fails_says_why(browser: Chromium, source: Told) -> None:
    source.tell(*(record(second) for second in range(90)))

    def fails(row: dict[str, Any]) -> bool:
        if row["n"] == 13:
            raise ValueError("thirteen <b>is</b> unlucky")
        return True

    handle = started(counts(source.stream().filter(fails)))
    page = opened(browser, handle)
    source.tell(record(100, n=13))
    with pytest.raises(lw.DataError):
        handle.wait()
    says(page, "#state", "failed")
    says(page, "#error", "thirteen <b>is</b> unlucky")
    assert page.problems == []


def test_it_connects_again(browser: Chromium, source: Told) -> None:
    """A laptop that slept has a connection that is gone."""
    source.tell(*(record(second) for second in range(90)))
    handle = started(counts(source.stream()))
    page = opened(browser, handle)
    page.call(
        "Network.emulateNetworkConditions",
        {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0},
    )
    serving: Any = handle._serving
    for reader in list(serving._server._server.streams):
        reader.shutdown(2)  # both ways
    says(page, "#link", "lost")
    source.tell(*(record(second) for second in range(90, 180)))
    page.call(
        "Network.emulateNetworkConditions",
        {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1},
    )
    says(page, "#tiles", "180")
    source.end()
    handle.wait()
    says(page, "#state", "ended")


def test_all_of_it_can_be_used_by_keyboard(browser: Chromium, source: Told) -> None:
    source.tell(*(record(second, key) for second in range(90) for key in "ab"))
    handle = started(counts(source.stream().named("orders")).named("per minute"), trace=True)
    page = opened(browser, handle)
    page.evaluate("document.querySelector('#trace').scrollIntoView()")  # else it asks nothing
    page.wait("document.querySelector('#trace-key').options.length > 0", 20)
    page.evaluate("document.activeElement.blur()")
    reached = set()
    for _ in range(60):
        page.press("Tab")
        browser.pump(0.05)  # the frame of the diagram is another process
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.className"))
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        at = page.evaluate("document.activeElement.tagName")
        assert outline != "none" or at in ("BODY", "IFRAME"), "it can be seen where the focus is"
    for wanted in ("pause", "theme", "filter", "trace-stage", "trace-key", "explain-at"):
        assert wanted in reached
    page.evaluate("document.querySelector('#explain-at').focus()")
    page.type("2024-05-01T12:00:10Z")
    page.press("Enter")
    says(page, "#answer", "window")
    page.evaluate("document.querySelector('#pause').focus()")
    page.press(" ")
    assert page.evaluate("document.querySelector('#pause').ariaPressed") == "true"
    source.tell(*(record(second) for second in range(90, 180)))
    page.press(" ")
    says(page, "#tiles", "270")
    source.end()
    handle.wait()
    assert page.problems == []


@pytest.mark.parametrize("dark", [False, True])
def test_a_report_is_read_from_a_file(browser: Chromium, tmp_path: Path, dark: bool) -> None:
    rows = [record(second, key) for second in range(300) for key in ("a", HOSTILE)]
    stream = lw.from_iterable([*rows, record(0)], time="at", watermark=lw.BoundedDisorder("5s"))
    result = counts(stream).collect(trace=True, bundle_size=50, progress=False)
    path = tmp_path / "run.html"
    result.report(path)
    page = browser.open(f"file://{path}", dark=dark)
    page.wait("!document.querySelector('#main').hidden")
    says(page, "#state", "ended")
    says(page, "#late", "expired")
    assert page.evaluate("window.hacked === undefined")
    assert page.evaluate("document.querySelectorAll('iframe').length") >= 2
    assert all(url.startswith(("file:", "data:", "about:")) for url in page.requests)
    assert page.problems == []
