"""Shows a streaming query of Spark on the page of an embedded run, from its progress reports."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from typing import Any, Literal, NoReturn, final

from lowwater.display.palette import Theme
from lowwater.engine.graph.metrics import Metrics, StageMetrics
from lowwater.errors import InvalidArgument, UnsupportedByRunner, describe
from lowwater.io.terminal import say
from lowwater.live.feed import Feed
from lowwater.live.guard import Address
from lowwater.live.history import History
from lowwater.live.server import PageServer
from lowwater.live.snapshot import (
    PartSnapshot,
    RunState,
    Snapshot,
    add_counts,
    for_people,
    marks_by_name,
    source_part,
    without_run,
)
from lowwater.spark.observed_counts import METRICS
from lowwater.spark.query_progress import of_reports

_EVERY_S = 1.0
_RATES = 5


@final
class ServedQuery:
    """Shows a query until it ends, or until :meth:`close`; a context manager.

    A thread reads the query's progress reports each second. Counts begin with the first report that
    Spark still has when it begins; it keeps the last 100.

    Args:
        query: What ``writeStream...start()`` returned, of a DataFrame that ``to_spark`` made.
        at: Where: see :func:`lowwater.spark.serve`.

    Raises:
        InvalidArgument: It is no streaming query, or there is no such address.
    """

    def __init__(self, query: Any, at: bool | int | str = True) -> None:
        if getattr(query, "recentProgress", None) is None:
            raise InvalidArgument(
                f"{describe('query', query)} is not a streaming query",
                where="serve",
                hint="Give what writeStream...start() returned",
            )
        address = Address.of(at)
        if address is None:
            raise InvalidArgument(
                "at=False shows nothing", where="serve", hint="Leave it out, or name a port"
            )
        self._query = query
        self._title = query.name or f"query {query.id}"  # cannot be asked once the session is gone
        self._feed = Feed()
        self._metrics = Metrics()
        self._seen = -1
        self._began, self._began_at = time.time(), time.monotonic()
        self._history = History()
        self._recent: list[tuple[float, int]] = []
        self._stopping = threading.Event()
        self._server = PageServer(address, self._feed, _NoQuestions())
        self._server.start()
        self._thread = threading.Thread(target=self._follow, name="lowwater query", daemon=True)
        self._thread.start()
        say(f"lowwater: the query is shown at {self.link}", file=sys.stderr)

    @property
    def link(self) -> str:
        """The link to the page."""
        return self._server.link

    def close(self) -> None:
        """Stop showing the query, which goes on."""
        self._stopping.set()
        self._thread.join()

    def __enter__(self) -> ServedQuery:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<the page of a query, {self.link}>"

    def _follow(self) -> None:
        state: RunState = "running"
        error: str | None = None
        while state == "running":
            is_closed = self._stopping.wait(_EVERY_S)
            try:
                is_active = self._query.isActive
                self._take(self._query.recentProgress)
                status = getattr(self._query, "status", None) or {}
                if status.get("isTriggerActive") is False:  # it waits for data, and is well
                    self._feed.seen_at = time.monotonic()
                failure = None if is_active else self._query.exception()
            except Exception as lost:  # the session is gone: shown, as it cannot be raised anywhere
                is_active, failure = False, lost
            if not is_active:
                state = "ended" if failure is None else "failed"
                error = None if failure is None else for_people(str(failure))
            elif is_closed:
                state = "stopped"
            self._feed.put(self._snapshot(state, error), last=state != "running")
        self._server.close()

    def _take(self, reports: Any) -> None:
        """Add the reports of micro-batches that were not seen before."""
        new = [
            report
            for report in reports
            if METRICS in report["observedMetrics"] and report["batchId"] > self._seen
        ]
        if not new:
            if self._seen < 0:
                of_reports(reports)  # refuses a query without a pipeline of this library
            return
        self._seen = max(report["batchId"] for report in new)
        self._feed.seen_at = time.monotonic()
        metrics = of_reports(new)
        _add_earlier(metrics, self._metrics)
        self._metrics = metrics

    def _snapshot(self, state: RunState, error: str | None) -> Snapshot:
        metrics, now = self._metrics, time.monotonic()
        parts = self._parts()
        self._recent = [*self._recent[1 - _RATES :], (now, metrics.events)]
        since, before = self._recent[0]
        rate = round((metrics.events - before) / (now - since), 1) if now > since else 0.0
        elapsed = now - self._began_at
        found = without_run(self._title, metrics, parts, began=self._began, elapsed=elapsed)
        found["state"], found["error"], found["totals"]["rate"] = state, error, rate
        behind = parts[-1]["behind"] if parts else None
        late, dead = metrics.late.total(), metrics.errors.total()
        self._history.add([found["at"], metrics.events, rate, late, dead, behind])
        found["history"] = self._history.points()
        return found

    def _parts(self) -> list[PartSnapshot]:
        stages = self._metrics.stages
        parts = []
        for name, mark in marks_by_name(self._metrics.watermarks()).items():
            kind: Literal["source", "stage"] = "stage" if name in stages else "source"
            part = source_part(name, "", mark)
            part["kind"], part["lines"] = kind, []
            if name in stages:
                add_counts(part, stages[name])
            parts.append(part)
        return parts


def _add_earlier(metrics: Metrics, earlier: Metrics) -> None:
    """Add the counts of earlier reports to those of later ones; the rest is that of the later."""
    for name in ("events", "bundles", "retractions", "emitted", "duplicates", "superseded"):
        setattr(metrics, name, getattr(metrics, name) + getattr(earlier, name))
    for name in ("admitted", "dropped"):
        setattr(metrics, name, getattr(metrics, name) + getattr(earlier, name))
    metrics.elapsed += earlier.elapsed
    metrics.panes = metrics.panes + earlier.panes
    metrics.late = metrics.late + earlier.late
    metrics.errors = metrics.errors + earlier.errors
    metrics.watermark = max(metrics.watermark, earlier.watermark)
    for name, before in earlier.stages.items():
        of = metrics.stages.setdefault(name, StageMetrics())
        _add_stage(of, before)


def _add_stage(of: StageMetrics, before: StageMetrics) -> None:
    for name in ("retractions", "duplicates", "superseded", "arrived", "admitted", "dropped"):
        setattr(of, name, getattr(of, name) + getattr(before, name))
    counters: tuple[tuple[Counter[str], Counter[str]], ...] = (
        (of.panes, before.panes), (of.late, before.late), (of.emitted, before.emitted),
    )  # fmt: skip
    for counter, more in counters:
        counter.update(more)
    of.watermark = max(of.watermark, before.watermark)
    of.output_watermark = max(of.output_watermark, before.output_watermark)


@final
class _NoQuestions:
    """Answers nothing: a query has no trace, and its graph is on the workers of Spark."""

    def graph(self, theme: Theme) -> NoReturn:
        """Raise: it is not known."""
        raise _unknown()

    def keys(self, stage: str) -> NoReturn:
        """Raise: there is no trace."""
        raise _unknown()

    def diagram(self, stage: str, key: str, theme: Theme) -> NoReturn:
        """Raise: there is no trace."""
        raise _unknown()

    def explain(self, stage: str, key: str, at: str) -> NoReturn:
        """Raise: there is no trace."""
        raise _unknown()


def _unknown() -> UnsupportedByRunner:
    return UnsupportedByRunner(
        "a query on Spark has no trace and no graph to ask about",
        where="lowwater.spark.serve",
        hint="Run the pipeline embedded with serve=True, trace=True",
    )
