"""Spares the garbage collector of a Spark worker the objects that stay for as long as it runs."""

from __future__ import annotations

import gc
from functools import cache


@cache
def spare_the_collector() -> None:
    """Set aside, once in a process, all objects that are there: those of imported modules.

    Spark's workers collect garbage after each task, which looks at every object of every module: 50
    ms of a processor, far more than a small task takes. What is set aside is not looked at again.
    """
    gc.collect()  # what is garbage now would be kept
    gc.freeze()
