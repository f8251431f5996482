"""What a traced run recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from lowwater.engine.panes import Pane
from lowwater.engine.windowing import Windowing
from lowwater.time import Instant
from lowwater.windows import Window


@final
@dataclass(frozen=True, slots=True)
class TracedElement:
    """One element given to one stage."""

    key: Any
    time: Instant
    clock: Instant
    watermark: Instant
    values: Mapping[str, Any]
    fate: str
    reason: str | None
    windows: tuple[Window, ...]
    retract: bool


@final
@dataclass(frozen=True, slots=True)
class TracedMove:
    """Clock and watermarks of a stage after a turn."""

    clock: Instant
    input_watermark: Instant
    output_watermark: Instant
    held_by: str | None


@final
@dataclass(frozen=True, slots=True)
class TracedMerge:
    """Windows that became one."""

    clock: Instant
    key: Any
    into: Window
    of: tuple[Window, ...]


@final
@dataclass(frozen=True, slots=True)
class StageTrace:
    """What one stage was given and what it did."""

    name: str
    key_names: tuple[str, ...]
    windowing: Windowing
    aggregates: Mapping[str, Any]
    elements: list[TracedElement]
    moves: list[TracedMove]
    panes: list[Pane]
    merges: list[TracedMerge]
