"""Spares the garbage collector of a Spark worker the objects that stay for as long as it runs."""

from __future__ import annotations

import gc
import sys

from lowwater.spark.level_call import LIVE

_MANY = 100
"""New modules that are worth setting aside: each has some hundred objects."""


class _Spared:
    """How many modules there were when objects were last set aside in this process."""

    modules = 0


def spare_the_collector() -> None:
    """Set aside all objects of the modules that are loaded; call it between two tasks.

    Spark's workers collect garbage after each task, which looks at every object of every module: 50
    ms of a processor, far more than a small task takes. What is set aside is not looked at again.
    Objects are set aside again once many more modules are there: the compiled kernels, which are
    loaded when a worker has seen enough records, are as many objects as all other modules together.
    """
    if len(sys.modules) < _Spared.modules + _MANY:
        return
    _Spared.modules = len(sys.modules)
    # What is set aside is freed no more if it refers to itself, as the state of a key group does.
    # A worker reads that again from its cell, as if another one had written it.
    LIVE.clear()
    gc.collect()  # what is garbage now would be kept
    gc.freeze()
