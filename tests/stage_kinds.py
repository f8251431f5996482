"""The kinds of stage that the package has."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from dataclasses import is_dataclass

from lowwater.engine import stages
from lowwater.engine.stages.kind import StageKind


def every_kind() -> set[type]:
    """Return the kinds that a stage can be of: all the dataclasses of the room of stages."""
    modules = pkgutil.iter_modules(stages.__path__, f"{stages.__name__}.")
    return {
        kind
        for module in modules
        for _, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass)
        if issubclass(kind, StageKind) and is_dataclass(kind)
    }
