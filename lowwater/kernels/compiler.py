"""Has numba compile loops: how, and for which types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

_Loop = TypeVar("_Loop", bound=Callable[..., Any])


def array(dtype: Any, *, written: bool = False) -> Any:
    """Return the type of a column. One that is only read is declared so, which takes both kinds."""
    return types.Array(dtype, 1, "C", readonly=not written)


def several(dtype: Any, count: int) -> Any:
    """Return the type of so many values."""
    return types.UniTuple(dtype, count)  # type: ignore[no-untyped-call]


IN, OUT = array(types.int64), array(types.int64, written=True)
HASHES, HASHES_OUT = array(types.uint64), array(types.uint64, written=True)


def _is_cacheable() -> bool:
    """Whether numba has a folder to keep what it compiles in."""
    try:
        njit(cache=True)(_is_cacheable)
    except RuntimeError:
        return False
    return True


IS_CACHED = _is_cacheable()


def compiled(*signatures: Any) -> Callable[[_Loop], _Loop]:
    """Compile a loop for some signatures, or load what is in numba's cache on disk.

    The cache looks at the loop's own file only: what a loop calls has to stand in the same one, and
    where a constant of another file changes, so must this one.
    """
    options: Any = {"cache": IS_CACHED, "nogil": True, "error_model": "numpy"}
    return cast("Callable[[_Loop], _Loop]", njit(list(signatures), **options))


def whole(column: NDArray[Any]) -> NDArray[Any]:
    """Return a column whose values stand side by side, as the loops are declared for."""
    return column if column.flags.c_contiguous else np.ascontiguousarray(column)
