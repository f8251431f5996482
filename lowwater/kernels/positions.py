"""Numbers of elements and positions as numpy takes them: integers of the machine's size.

Columns are int64 everywhere, and on machines of 64 bits so are positions. In a browser, which runs
WebAssembly, the machine's integers have 32 bits, and numpy refuses int64 in a few places.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def repeated(values: ArrayLike, counts: ArrayLike) -> NDArray[Any]:
    """Repeat each value as often as its count says: ``np.repeat``, on any machine.

    Args:
        values: One-dimensional.
        counts: Integers of any size, one per value.

    >>> repeated([5, 6], np.array([2, 1], dtype=np.int64)).tolist()
    [5, 5, 6]
    """
    return np.repeat(values, as_positions(counts))


def as_positions(values: ArrayLike) -> NDArray[np.intp]:
    """Return positions as ``reduceat`` takes them; where they are that already, no copy."""
    return np.asarray(values, dtype=np.intp)
