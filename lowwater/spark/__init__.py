"""The Spark runner: runs the engine's operators in Structured Streaming, a call per key group."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lowwater.spark.observed_counts import METRICS as METRICS
    from lowwater.spark.observed_counts import counts as counts
    from lowwater.spark.options import SparkOptions as SparkOptions
    from lowwater.spark.query_progress import progress as progress
    from lowwater.spark.serving import QueryPage as QueryPage
    from lowwater.spark.serving import serve as serve
    from lowwater.spark.session import configure as configure
    from lowwater.spark.session import recommended as recommended
    from lowwater.spark.signals import CarriedTime as CarriedTime
    from lowwater.spark.splitting import split as split
    from lowwater.spark.state_backends import GrowingBackend as GrowingBackend
    from lowwater.spark.state_backends import InlineBackend as InlineBackend
    from lowwater.spark.state_backends import KeptState as KeptState
    from lowwater.spark.state_backends import StateBackend as StateBackend
    from lowwater.spark.versioned import RocksBackend as RocksBackend

_PLACES = {
    "observed_counts": "METRICS counts",
    "options": "SparkOptions",
    "query_progress": "progress",
    "serving": "QueryPage serve",
    "session": "configure recommended",
    "signals": "CarriedTime",
    "splitting": "split",
    "state_backends": "GrowingBackend InlineBackend KeptState StateBackend",
    "versioned": "RocksBackend",
}
_PLACE_OF = {name: place for place, names in _PLACES.items() for name in names.split()}


if not TYPE_CHECKING:  # or a type checker would take every name to be there

    def __getattr__(name: str) -> Any:
        """Load a public name when it is first asked for: a worker needs few of these modules."""
        place = _PLACE_OF.get(name)
        if place is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = import_module(f"{__name__}.{place}")
        value = getattr(module, name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*_PLACE_OF, *(name for name in globals() if name.startswith("__"))})
