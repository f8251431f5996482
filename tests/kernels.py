"""Runs tests with either kind of kernels, whatever the process has loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from itertools import cycle
from typing import Any

from lowwater.kernels import kernels, use

BOTH = ("numpy", "numba")


@contextmanager
def using(name: str) -> Iterator[None]:
    """Use the kernels of a name within a block."""
    before = kernels().NAME
    use(name)
    try:
        yield
    finally:
        use(before)


def alternating(step: Callable[..., Any]) -> Callable[..., Any]:
    """Have a function run with either kernels in turn: state that one wrote, the other reads."""
    kinds = cycle(BOTH)

    @wraps(step)
    def run(*arguments: Any, **named: Any) -> Any:
        with using(next(kinds)):
            return step(*arguments, **named)

    return run
