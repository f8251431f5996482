"""What can be asked of a traced run: why, what other settings would have given, and a drawing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lowwater.engine.graph.trace import Trace
from lowwater.errors import explained, explains
from lowwater.time import DurationLike

if TYPE_CHECKING:
    import pandas as pd

    from lowwater.display.palette import Theme
    from lowwater.explain import Explanation, LatenessProfile
    from lowwater.explain.window import WindowLike
    from lowwater.viz import Diagram
    from lowwater.viz.compose import Between


@explains
class Traced(ABC):
    """Explains and draws a run from its trace; all methods need ``trace=True``."""

    __slots__ = ()

    @property
    @abstractmethod
    def trace(self) -> Trace:
        """What the run did, step by step; needs ``trace=True``."""

    @explained()
    def explain(self, key: Any, window: WindowLike, *, stage: str | None = None) -> Explanation:
        """Explain why a window fired or did not, or what matched; needs ``trace=True``.

        Args:
            key: The key: a plain value, or a tuple for several key columns.
            window: The window, a ``(start, end)`` pair, or an instant inside. Of ``match``: the
                ``match_start``, or another instant; or a pair, for what begins there.
            stage: The name of the stage; the last one by default.
        """
        from lowwater.explain import explain

        return explain(self.trace, key, window, stage=stage)

    @explained(record="element", row="element")
    def why(self, element: Any, *, stage: str | None = None) -> Explanation:
        """Explain where an element went; needs ``trace=True``.

        Args:
            element: A record as the source read it, some of its fields, a function that returns
                true for it, or a ``TracedElement``.
            stage: The only stage to look at; all by default.
        """
        from lowwater.explain import why

        return why(self.trace, element, stage=stage)

    def lateness_profile(
        self,
        *,
        delays: Sequence[DurationLike] | None = None,
        lateness: Sequence[DurationLike] | None = None,
        stage: str | None = None,
    ) -> LatenessProfile:
        """Evaluate other watermark delays and allowed latenesses; needs ``trace=True``.

        Args:
            delays: The watermark delays to try; by default chosen from the disorder in the trace.
            lateness: The allowed latenesses to try; by default chosen in the same way.
            stage: The name of the stage; by default the last one that reads a source.
        """
        from lowwater.explain import lateness_profile

        return lateness_profile(self.trace, delays=delays, lateness=lateness, stage=stage)

    def diagram(
        self,
        *,
        key: Any = None,
        stage: str | None = None,
        column: str | None = None,
        between: Between | None = None,
        theme: Theme = "auto",
    ) -> Diagram:
        """Draw event time against processing time; needs ``trace=True``.

        Args:
            key: The key to draw, or a list of keys; by default the six with the most events.
            stage: The name of the stage; the last one by default.
            column: The aggregate to draw; the first by default.
            between: The first event time to draw, and the end (exclusive); all by default.
            theme: ``light``, ``dark``, or ``auto``, which follows the system of the reader.
        """
        from lowwater.viz import Diagram

        return Diagram.of(
            self.trace, key=key, stage=stage, column=column, between=between, theme=theme
        )

    def to_frame(self) -> pd.DataFrame:
        """Return the trace as a tidy pandas DataFrame; needs ``trace=True``.

        It has a row for each element, pane, merge and watermark advance; the column ``what`` names
        the kind.
        """
        from lowwater.explain import to_frame

        return to_frame(self.trace)
