"""What stands for a numpy of 32 bits answers as numpy 1.24 did on i386."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.browser.narrow import called

LONG = np.array([2, 0, 1], dtype=np.int64)
SHORT = LONG.astype(np.int32)
TRUE = LONG > 0
REALS = LONG.astype(np.float64)


@pytest.mark.parametrize(
    ("owner", "name", "arguments", "dtype"),
    [
        (np, "arange", (3,), "int32"),
        (np, "arange", (np.int64(3),), "int64"),
        (np, "arange", (3.0,), "float64"),
        (np, "argsort", (REALS,), "int32"),
        (LONG, "argsort", (), "int32"),
        (np, "array", ([1, 2],), "int32"),
        (np, "array", ([1, 2**40],), "int64"),
        (np, "array", ([np.int64(1), 2],), "int64"),
        (np, "array", ([True, 2],), "int32"),
        (np, "array", ([1.0, 2],), "float64"),
        (np, "bincount", (SHORT,), "int32"),
        (np, "concatenate", (([0], LONG),), "int64"),
        (np, "concatenate", (([0], SHORT),), "int32"),
        (np, "cumsum", (TRUE,), "int32"),
        (np, "cumsum", (LONG,), "int64"),
        (np, "cumsum", (TRUE.astype(np.uint8),), "uint32"),
        (TRUE, "sum", (), "int32"),
        (REALS, "sum", (), "float64"),
        (np, "flatnonzero", (TRUE,), "int32"),
        (np, "full", (3, 1), "int32"),
        (np, "full", (3, 2**40), "int64"),
        (np, "lexsort", ((REALS, LONG),), "int32"),
        (np, "repeat", (REALS, SHORT), "float64"),
        (np, "searchsorted", (LONG, LONG), "int32"),
        (np, "where", (TRUE, 1, 0), "int32"),
        (np, "where", (TRUE, LONG, 0), "int64"),
        (np.add, "reduceat", (TRUE, SHORT), "int32"),
        (np.add, "reduceat", (LONG, SHORT), "int64"),
    ],
)
def test_types(owner: Any, name: str, arguments: tuple[Any, ...], dtype: str) -> None:
    found = called(owner, name, *arguments)
    assert str(found.dtype) == dtype
    assert np.array_equal(found, getattr(owner, name)(*arguments))


@pytest.mark.parametrize(
    ("owner", "name", "arguments"),
    [
        (np, "repeat", (REALS, LONG)),
        (REALS, "repeat", (LONG,)),
        (np.add, "reduceat", (REALS, LONG)),
    ],
)
def test_numbers_of_elements_are_not_shortened(
    owner: Any, name: str, arguments: tuple[Any, ...]
) -> None:
    with pytest.raises(TypeError, match="according to the rule 'safe'"):
        called(owner, name, *arguments)


def test_what_is_not_of_numpy_is_called_as_it_is() -> None:
    assert called([3, 1], "sort") is None
    assert called("ab", "index", "b") == 1
