"""Answers what the page of a run asks: the graph, and of a traced run keys, diagrams, windows.

Diagrams are made in the thread of the one who asks, from a trace that the run hands over between
two bundles. All of it shares one processor with the run, so a trace that took long is used for as
long as fifty times that.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import TimeoutError as NotInTime
from typing import Any, final

import numpy as np

from lowwater.display.palette import Theme
from lowwater.display.text import shown
from lowwater.engine.graph.trace import StageTrace, Trace
from lowwater.engine.local.traced_columns import TraceColumns
from lowwater.errors import InvalidArgument
from lowwater.live.server import Busy
from lowwater.live.watch import Watch
from lowwater.time import instant
from lowwater.viz import Diagram, GraphDiagram

_KEYS = 50
_WAIT_S = 5.0
_LEAST_S = 4.0
_SHARE = 50


@final
class RunQuestions:
    """Answers questions about a run that is watched.

    Args:
        watch: Watches the run.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._one_at_a_time = threading.Lock()
        self._trace: Trace | None = None
        self._good_until = float("-inf")
        self._drawn: dict[tuple[str, str, Theme], tuple[float, str]] = {}

    def graph(self, theme: Theme) -> str:
        """Return the graph as SVG."""
        return GraphDiagram.of(self._watch.graph, theme=theme).to_svg()

    def keys(self, stage: str) -> list[dict[str, Any]]:
        """Return the keys of a stage with the most elements and panes, at most 50."""
        columns = TraceColumns.of(self._stage(stage))
        events = columns.events()
        busiest = np.argsort(-events, kind="stable")[:_KEYS].tolist()
        names = _names(columns)
        return [{"key": names[at], "count": int(events[at])} for at in busiest]

    def diagram(self, stage: str, key: str, theme: Theme) -> str:
        """Return the diagram of a key as an HTML document; one made lately may be returned."""
        asked = (stage, key, theme)
        with self._one_at_a_time:
            good_until, page = self._drawn.get(asked, (0.0, ""))
            if time.monotonic() < good_until:
                return page
        trace = self._now()
        began = time.monotonic()
        of = trace.stage(stage or None)
        found = Diagram.of(trace, key=_key(of, key), stage=of.name, theme=theme).to_html()
        until = time.monotonic() + max(_LEAST_S, _SHARE * (time.monotonic() - began))
        with self._one_at_a_time:
            self._drawn = {name: kept for name, kept in self._drawn.items() if kept[0] > began}
            self._drawn[asked] = until, found
        return found

    def explain(self, stage: str, key: str, at: str) -> str:
        """Explain the windows of a key around an instant."""
        # Imported on use: a page that nobody asks needs no explanations.
        from lowwater.explain import explain

        trace = self._now()
        of = trace.stage(stage or None)
        when = instant(at, name="at")
        return str(explain(trace, _key(of, key), when, stage=of.name))

    def _stage(self, name: str) -> StageTrace:
        return self._now().stage(name or None)

    def _now(self) -> Trace:
        """Return the trace as it is now, or was lately.

        Raises:
            Busy: The run does not hand it over in time.
            InvalidArgument: The run is not traced.
        """
        if not self._watch.is_traced:
            raise InvalidArgument(
                "the run is not traced", where="run", hint="Run it with trace=True"
            )
        with self._one_at_a_time:
            if self._trace is None or time.monotonic() > self._good_until:
                asked = self._watch.trace()
                try:
                    self._trace, seconds = asked.result(_WAIT_S)
                except NotInTime:
                    asked.cancel()
                    raise Busy(
                        "the run is in the middle of a bundle, or waits for its source: try again"
                    ) from None
                self._good_until = time.monotonic() + max(1.0, _SHARE * seconds)
            return self._trace


def _names(columns: TraceColumns) -> list[str]:
    """Return how the page writes keys: each in its own way, though texts are cut."""
    seen: Counter[str] = Counter()
    names = []
    for text in map(shown, columns.keys):
        seen[text] += 1
        names.append(text if seen[text] == 1 else f"{text} ({seen[text]})")
    return names


def _key(of: StageTrace, text: str) -> Any:
    """Return the key that the page writes like this.

    Raises:
        InvalidArgument: There is none.
    """
    columns = TraceColumns.of(of)
    names = _names(columns)
    if text in names:
        return columns.keys[names.index(text)]
    raise InvalidArgument(
        f"the key {text} does not occur in the trace of {of.name!r}",
        where="key",
        hint="Choose one of the list",
    )
