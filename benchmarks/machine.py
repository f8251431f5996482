"""What a benchmark ran on: the processor, its load, and the versions of packages."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def machine(*packages: str) -> str:
    """Return the processor, the number of cores, and the versions of Python and of packages."""
    parts = [f"{_processor()}, {os.cpu_count()} cores", f"Python {platform.python_version()}"]
    return ", ".join([*parts, *map(_versioned, packages)])


def load() -> float:
    """Return how many processes ran or waited for a core, on average over the last minute."""
    return os.getloadavg()[0]


def resident_bytes() -> int:
    """Return how much memory of this process is resident."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _processor() -> str:
    known = Path("/proc/cpuinfo")
    lines = known.read_text().splitlines() if known.exists() else []
    models = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor())


def _versioned(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"no {package}"
