"""The hostile inputs of a seed: one for each line of the catalogues, then random ones."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from tests.hostile import table_inputs, text_inputs
from tests.hostile.hostile_input import HostileInput

_Maker: TypeAlias = Callable[[random.Random], HostileInput]

_RANDOM: tuple[_Maker, ...] = (
    text_inputs.json_lines, text_inputs.random_json_lines, text_inputs.damaged_json_lines,
    text_inputs.json_files, text_inputs.csv_rows, text_inputs.csv_files, table_inputs.tables,
    table_inputs.parquet_files, table_inputs.elements, table_inputs.odd_elements,
    table_inputs.frames,
)  # fmt: skip
_CATALOGUES: tuple[_Maker, ...] = (
    *(partial(text_inputs.json_line, title=title) for title in text_inputs.JSON_LINES),
    *(partial(text_inputs.json_file, title=title) for title in text_inputs.JSON_FILES),
    *(partial(text_inputs.csv_row, title=title) for title in text_inputs.CSV_ROWS),
    *(partial(text_inputs.csv_file, title=title) for title in text_inputs.CSV_FILES),
    *(partial(table_inputs.table_of, column=column) for column in table_inputs.COLUMNS),
    *(
        partial(table_inputs.element_with, number=number)
        for number in range(len(table_inputs.VALUES))
    ),
)


def hostile_input(seed: int, number: int) -> HostileInput:
    """Return an input, always the same for a seed and a number.

    Every one of the catalogues comes once before there are only random ones.
    """
    own = random.Random(f"{seed} {number}")
    if number >= len(_CATALOGUES):
        return _RANDOM[number % len(_RANDOM)](own)
    order = list(range(len(_CATALOGUES)))
    random.Random(seed).shuffle(order)
    return _CATALOGUES[order[number]](own)
