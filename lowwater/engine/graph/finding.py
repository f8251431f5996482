"""One likely mistake in a pipeline, and what checks know of the sources behind a stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, final

from lowwater.display.text import printable

Severity: TypeAlias = Literal["error", "warning", "note"]


@final
@dataclass(frozen=True, slots=True)
class Finding:
    """One likely mistake.

    Args:
        severity: ``error``: results are lost or never emitted, and ``run`` refuses the pipeline;
            ``warning``: state may grow without bound, or results are delayed for long, and ``run``
            gives a ``PipelineWarning``; ``note``: a choice worth knowing about.
        what: The problem.
        where: The source or stage.
        hint: How to fix it.
    """

    severity: Severity
    what: str
    where: str
    hint: str

    def __str__(self) -> str:
        return printable(f"{self.severity}: {self.where}: {self.what}. {self.hint}.")


@final
@dataclass(frozen=True, slots=True)
class Upstream:
    """What is known of the sources behind an input of a stage.

    Args:
        is_endless: Whether one of them never ends by itself.
        is_blind: Whether one never ends and has no watermark, so that none ever passes.
    """

    is_endless: bool
    is_blind: bool
