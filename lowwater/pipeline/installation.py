"""What is installed, and what a run would use: for reports of problems, and for the curious."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib import metadata
from typing import final

from lowwater.kernels import is_installed, kernels, outlook

_REQUIRED = ("numpy", "pyarrow", "rocksdict", "sortedcontainers")
_MISSING = "is not installed"
_EXTRAS = {
    "fast": "numba",
    "kafka": "confluent-kafka",
    "pandas": "pandas",
    "polars": "polars",
    "postgres": "psycopg",
    "spark": "pyspark",
    "testing": "hypothesis",
    "viz": "matplotlib",
}


@final
@dataclass(frozen=True, slots=True)
class Info:
    """Versions, and which kernels this process uses. ``print(lw.info())`` shows all.

    Args:
        lowwater: The version of this library.
        python: The version of Python.
        platform: The operating system and processor.
        kernels: The kernels in use: ``"numpy"``, or ``"numba"`` for the compiled ones.
        outlook: Why these, and when the compiled ones come.
        compiled_available: Whether what compiles kernels is installed (``lowwater[fast]``).
        packages: The versions of required packages and of those of extras that are installed.
    """

    lowwater: str
    python: str
    platform: str
    kernels: str
    outlook: str
    compiled_available: bool
    packages: dict[str, str]

    def __str__(self) -> str:
        lines = [
            f"lowwater {self.lowwater}, Python {self.python}, {self.platform}",
            f"kernels: {self.kernels} ({self.outlook})",
        ]
        lines += [f"{name} {self.packages.get(name, _MISSING)}" for name in _REQUIRED]
        for extra, package in _EXTRAS.items():
            found = self.packages.get(package, _MISSING)
            lines.append(f"{package} {found} (extra {extra})")
        return "\n".join(lines)


def info() -> Info:
    """Return what is installed, and which kernels this process uses. Loads no package.

    >>> info().kernels in {"numpy", "numba"}
    True
    """
    return Info(
        _version("lowwater") or "not installed",
        platform.python_version(),
        platform.platform(terse=True),
        kernels().NAME,
        outlook(),
        is_installed(),
        {name: found for name in (*_REQUIRED, *_EXTRAS.values()) if (found := _version(name))},
    )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
