"""Where the repository is, and how its files are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

# libyaml is ten times as fast as Python's own loader; builds without it lack the name.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

ROOT = Path(__file__).parents[1]


def read_yaml(path: Path) -> Any:
    """Return what a YAML file says."""
    return yaml.load(path.read_text(encoding="utf-8"), _LOADER)  # a safe loader
