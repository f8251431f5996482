"""What can be asked of any run that recorded a trace, whoever holds it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lowwater.engine.graph.trace import Trace
from lowwater.time import DurationLike

if TYPE_CHECKING:
    import pandas as pd

    from lowwater.explain import Explanation, LatenessProfile
    from lowwater.explain.window import WindowLike
    from lowwater.viz import Diagram
    from lowwater.viz.compose import Between


class Traced(ABC):
    """A run, or what it gave, with its trace; all of this needs ``trace=True``."""

    __slots__ = ()

    @property
    @abstractmethod
    def trace(self) -> Trace:
        """What the run did, step by step; needs ``trace=True``."""

    def explain(self, key: Any, window: WindowLike, *, stage: str | None = None) -> Explanation:
        """Return line by line why a window fired, or has not; needs ``trace=True``.

        Args:
            key: The key: a plain value, or a tuple for several key columns.
            window: The window, a ``(start, end)`` pair, or an instant inside.
            stage: The name of the stage; the last one unless given.
        """
        from lowwater.explain import explain

        return explain(self.trace, key, window, stage=stage)

    def why(self, element: Any, *, stage: str | None = None) -> Explanation:
        """Return where an element went; needs ``trace=True``.

        Args:
            element: A record as its source gave it, fields of one, a function that is true for it,
                or a ``TracedElement``.
            stage: Look at this stage alone.
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
        """Return what other watermark delays and latenesses would do; needs ``trace=True``.

        Args:
            delays: The watermark delays to try; chosen from the disorder unless given.
            lateness: The allowed latenesses to try; chosen likewise.
            stage: The name of the stage; the last one that reads a source unless given.
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
    ) -> Diagram:
        """Return the picture of event time by processing time; needs ``trace=True``.

        Args:
            key: The key to show, or a list of keys; the busiest six unless given.
            stage: The name of the stage; the last one unless given.
            column: Which aggregate panes show; the first unless given.
            between: First event time shown, and the first that is not; all unless given.
        """
        from lowwater.viz import Diagram

        return Diagram.of(self.trace, key=key, stage=stage, column=column, between=between)

    def to_frame(self) -> pd.DataFrame:
        """Return the trace as a tidy pandas DataFrame; needs ``trace=True``.

        A row for each element, pane, merge and move of a watermark, told apart by ``what``.
        """
        from lowwater.explain import to_frame

        return to_frame(self.trace)
