"""The page of a query on Spark, from reports that a test writes."""

from __future__ import annotations

import http.client
import json
import threading
from contextlib import closing
from typing import Any, ClassVar

import pytest

from lowwater.errors import InvalidArgument
from lowwater.live import spark_query
from lowwater.live.spark_query import ServedQuery
from lowwater.spark.rows import counted_bytes

KEPT = 5
"""How many reports the query keeps."""


class Query:
    """A query of a source ``s`` and a stage ``a``, whose session may go."""

    id = "an id"

    def __init__(self) -> None:
        self.reports: list[dict[str, Any]] = []
        self.is_lost = False
        self.is_over = False
        self.failure: Exception | None = None

    def work(self, batches: int) -> None:
        for _ in range(batches):
            number = len(self.reports)
            rows = [
                counted_bytes(-1, {"events": 3, "dead_letters": 1}, None),
                counted_bytes(0, {"events": 2, "on_time": 2, "open_windows": 4}, None),
            ]
            graph = {"places": [["s", -1, []], ["a", 0, ["s"]]], "ends": [0]}
            counted = {"counted": [row.decode() for row in rows], "graph": json.dumps(graph)}
            self.reports.append({
                "batchId": number, "observedMetrics": {"lowwater": counted},
                "durationMs": {"triggerExecution": 1_500},
            })  # fmt: skip

    def _alive(self) -> None:
        if self.is_lost:
            raise ConnectionError("the session is gone")

    @property
    def name(self) -> str:
        self._alive()
        return "orders"

    @property
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802  # as Spark calls it
        self._alive()
        return self.reports[-KEPT:]

    @property
    def isActive(self) -> bool:  # noqa: N802  # as Spark calls it
        self._alive()
        return not self.is_over

    def exception(self) -> Exception | None:
        return self.failure


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_query, "_EVERY_S", 0.005)


def wait_until(page: ServedQuery, events: int) -> dict[str, Any]:
    """Return the first snapshot that has so many events."""
    number = 0
    while True:
        found = page._feed.wait(number, 30)
        assert found is not None
        number = found.number
        if found.snapshot["totals"]["events"] == events:
            return dict(found.snapshot)
        assert found.snapshot["totals"]["events"] < events


def last(page: ServedQuery) -> dict[str, Any]:
    """Wait for the end; return what is shown last."""
    page._thread.join(30)
    assert not page._thread.is_alive()
    assert not [one for one in threading.enumerate() if one.name == "lowwater page"]
    found = page._feed.latest()
    assert found is not None
    return dict(found.snapshot)


def test_counts_do_not_fall_when_spark_drops_reports() -> None:
    query = Query()
    page = ServedQuery(query, 0)
    for round_ in range(1, 5):
        query.work(4)
        found = wait_until(page, 12 * round_)
        assert found["counters"]["stages"]["a"]["panes"] == {"ON_TIME": 8 * round_}
        assert found["totals"]["open_windows"] == 4
    query.is_over = True
    shown = last(page)
    assert (shown["state"], shown["title"], shown["totals"]["events"]) == ("ended", "orders", 48)
    json.dumps(shown, allow_nan=False)


def test_a_query_that_fails_says_why() -> None:
    query = Query()
    page = ServedQuery(query, 0)
    query.failure, query.is_over = ValueError("a task failed"), True
    shown = last(page)
    assert (shown["state"], shown["error"]) == ("failed", "a task failed")


def test_a_page_whose_session_is_gone_ends() -> None:
    """Else it would say for ever that the query runs."""
    query = Query()
    page = ServedQuery(query, 0)
    query.work(1)
    wait_until(page, 3)
    query.is_lost = True
    shown = last(page)
    assert (shown["state"], shown["error"]) == ("failed", "the session is gone")


def test_a_page_can_be_closed_before_the_query_ends() -> None:
    query = Query()
    with ServedQuery(query, 0) as page:
        host, port = page.link.split("/")[2].split(":")
        with closing(http.client.HTTPConnection(host, int(port), timeout=10)) as asked:
            asked.request("GET", "/health")
            assert json.loads(asked.getresponse().read())["healthy"] is True
    assert last(page)["state"] == "stopped"
    page.close()


def test_what_is_no_query_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="not a streaming query"):
        ServedQuery(7)
    with pytest.raises(InvalidArgument, match="shows nothing"):
        ServedQuery(Query(), at=False)


def test_a_query_without_a_pipeline_is_said_to_have_none() -> None:
    query = Query()
    query.reports.append({"batchId": 0, "observedMetrics": {}, "numInputRows": 5})
    shown = last(ServedQuery(query, 0))
    assert shown["state"] == "failed"
    assert "no pipeline of lowwater" in shown["error"]


def test_a_query_that_waits_for_data_is_well() -> None:
    class Waiting(Query):
        status: ClassVar = {"isTriggerActive": False}

    query = Waiting()
    with ServedQuery(query, 0) as page:
        before = page._feed.seen_at
        number = 0
        for _ in range(3):  # it looks again and again
            found = page._feed.wait(number, 30)
            assert found is not None
            number = found.number
        assert page._feed.seen_at > before
