"""The options of windows as users give them, to ``window`` and to a join within windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from lowwater.engine.graph.graph import Flow
from lowwater.engine.window.windowing import Accumulation, Closing, OnTime, TimestampRule, Windowing
from lowwater.errors import InvalidArgument
from lowwater.pipeline.checks import (
    check_lateness,
    check_no_table,
    check_retracted_in_time,
    inherited_lateness,
)
from lowwater.time import DurationLike
from lowwater.triggers import Default, Trigger
from lowwater.windows import WindowFunction

if TYPE_CHECKING:
    from lowwater.engine.window.fill import Fill


@final
@dataclass(frozen=True, slots=True)
class WindowOptions:
    """How windows fire, as a user has said; see ``KeyedStream.window``."""

    trigger: Trigger | None = None
    accumulation: Accumulation | None = None
    allowed_lateness: DurationLike | None = None
    closing: Closing = "if_new"
    on_time: OnTime = "always"
    timestamps: TimestampRule = "end"
    allow_data_loss: str | None = None
    fill: Fill | None = None

    def given(self) -> list[str]:
        """Return the names of those that differ from their defaults."""
        default = WindowOptions()
        return [name for name in self.__slots__ if getattr(self, name) != getattr(default, name)]

    def refuse_beside_interval(self) -> None:
        """Raise if a join by time is given what only windows have."""
        for name in self.given():
            if name != "allowed_lateness":
                raise InvalidArgument(
                    f"{name}= says when windows fire, and a join by time has none",
                    where=f"join({name}=)",
                    hint='Leave it out, or join within windows: within=lw.FixedWindows("10m")',
                )

    def leaves_open(self, windows: WindowFunction | Windowing) -> bool:
        """Whether neither a trigger nor an accumulation was given.

        A process needs neither, so what the default trigger demands waits until an aggregate uses
        the windows.
        """
        whole = isinstance(windows, Windowing)
        return not whole and self.trigger is None and self.accumulation is None

    def windowing(
        self,
        windows: WindowFunction | Windowing,
        flows: tuple[Flow, ...],
        where: str,
        *,
        open_: bool = False,
    ) -> Windowing:
        """Return the windowing of what some flows bring, checked.

        Args:
            windows: The windows; or a whole windowing, without other options.
            flows: The inputs of the stage.
            where: The method, for messages.
            open_: Whether what was left open (:meth:`leaves_open`) is not demanded yet.

        Raises:
            InvalidArgument: An option is wrong, or does not go with what is upstream.
        """
        if isinstance(windows, Windowing):
            if given := self.given():
                raise InvalidArgument(
                    f"{where} takes either a Windowing or {given[0]}=, not both",
                    hint=f"Use windowing.with_({given[0]}=...)",
                )
            windowing = windows
        else:
            options: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
            options["trigger"] = Default() if self.trigger is None else self.trigger
            if self.allowed_lateness is None:
                options["allowed_lateness"] = inherited_lateness(flows)
            if open_ and self.leaves_open(windows):
                options["accumulation"] = "discarding"
            windowing = Windowing(windows=windows, **options)
        check_lateness(windowing.lateness_us, flows, where)
        check_retracted_in_time(flows)
        check_no_table(flows, where)
        return windowing
