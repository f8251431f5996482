"""What a probe is: a small pipeline that tests one feature."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final


@final
@dataclass(frozen=True)
class Probe:
    """One feature to test.

    Args:
        area: The section of the table.
        name: What users call it.
        pipeline: Makes the pipeline, or several outputs of one, given a folder to write to.
        options: Further options of ``to_spark``; a function of the folder where they name it.
        chains: Whether it is tried with ``configure(chains=True)``, which is faster.
    """

    area: str
    name: str
    pipeline: Callable[[Path], Any]
    options: Mapping[str, Any] | Callable[[Path], Mapping[str, Any]] = field(default_factory=dict)
    chains: bool = False

    def outputs(self, folder: Path) -> tuple[Any, ...]:
        """Return the outputs of its pipeline."""
        made = self.pipeline(folder)
        return made if isinstance(made, tuple) else (made,)

    def options_in(self, folder: Path) -> Mapping[str, Any]:
        """Return the options of ``to_spark``."""
        return self.options(folder) if callable(self.options) else self.options
