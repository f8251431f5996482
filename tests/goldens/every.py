"""All goldens, in one list: the program that writes them and the test that reads them import it."""

from __future__ import annotations

from collections.abc import Mapping

from tests.goldens import (
    counted,
    edges,
    joins,
    matches,
    numbers,
    over,
    processes,
    ranked,
    topics,
    windows,
)
from tests.goldens.golden import Golden

GOLDENS: Mapping[str, Golden] = {
    golden.name: golden
    for module in (
        windows,
        ranked,
        numbers,
        joins,
        matches,
        over,
        counted,
        processes,
        edges,
        topics,
    )
    for golden in module.GOLDENS
}
