"""Functions as they are sent to workers: by value, so that a worker that cannot run them says why.

Python sends an instance of a class by the class's name. A worker that has no lowwater, or another
version of it, would fail while it looks the name up, with an error that says nothing of what to do.
So what is sent is this module's code itself and the rest as bytes, which are read only when it is
known that they can be. For that reason nothing of lowwater is imported here at the top.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from pyspark import cloudpickle
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

_PACKAGES = ("pandas", "pyarrow", "numpy", "lowwater")


def shipped(function: Any) -> Callable[..., Any]:
    """Return a function of any arguments that calls another one in the worker."""
    data, versions = _packed(function)
    loaded: list[Any] = []

    def call(*arguments: Any) -> Any:
        if not loaded:
            loaded.append(unpacked(data, versions))
        return loaded[0](*arguments)

    return call


class ShippedProcessor(StatefulProcessor):
    """A stateful processor that another one stands for in the worker."""

    def __init__(self, processor: StatefulProcessor) -> None:
        self._data, self._versions = _packed(processor)

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._inner: Any = unpacked(self._data, self._versions)
        self._inner.init(handle)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803
        return self._inner.handleInputRows(key, rows, timerValues)

    def handleExpiredTimer(  # noqa: N802  # Spark calls it so
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Any:
        return self._inner.handleExpiredTimer(key, timerValues, expiredTimerInfo)

    def close(self) -> None:
        self._inner.close()


def unpacked(data: bytes, versions: dict[str, str]) -> Any:
    """Return what was sent.

    Args:
        data: What it was sent as.
        versions: The versions of the packages that sent it.

    Raises:
        RuntimeError: A package is not there, or lowwater is of another version.
    """
    import importlib
    import pickle

    fix = (
        "Install it in the Python of the workers, or name one that has it in the environment of "
        "the driver before the session starts: PYSPARK_PYTHON=/path/to/python"
    )
    for name, version in versions.items():
        try:
            package = importlib.import_module(name)
        except ImportError as error:
            raise RuntimeError(
                f"a Spark worker runs {sys.executable}, which has no {name} ({error}). {fix}"
            ) from None
        found = getattr(package, "__version__", "?")
        if name == "lowwater" and found != version:
            raise RuntimeError(
                f"a Spark worker runs {sys.executable}, which has lowwater {found}; the driver "
                f"has {version}. {fix}"
            )
    value = pickle.loads(data)  # noqa: S301  # Spark's driver sent it, as it sends all functions
    from lowwater.spark.worker_memory import spare_the_collector

    spare_the_collector()
    return value


def _packed(value: Any) -> tuple[bytes, dict[str, str]]:
    import importlib

    pickler: Any = cloudpickle  # which has no types
    pickler.register_pickle_by_value(sys.modules[__name__])
    versions = {name: importlib.import_module(name).__version__ for name in _PACKAGES}
    data: bytes = pickler.dumps(value)
    return data, versions
