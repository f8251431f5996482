"""Runs tests with either kind of kernels, whatever the process has loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from itertools import cycle
from typing import Any, cast

from lowwater.kernels import Kernels, kernels, plain, use
from tests.timing import not_counted

BOTH = ("numpy", "numba")


class _Compiled:
    """The compiled kernels, imported when a test uses one.

    The import compiles them where numba's cache is empty, for half a minute. It must not be part of
    collecting tests, which each worker does.
    """

    NAME = "numba"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # pytest looks for some in each parameter
            raise AttributeError(name)
        with not_counted():
            module = import_module("lowwater.kernels.compiled")
        return getattr(module, name)


compiled = cast("Kernels", _Compiled())
KINDS: tuple[Kernels, Kernels] = (plain, compiled)


@contextmanager
def using(name: str) -> Iterator[None]:
    """Use the kernels of a name within a block."""
    before = kernels().NAME
    with not_counted():  # the first use may compile
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
