"""The types of what a stage reads, as far as they are known before a run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import final

import pyarrow as pa

from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.columns import Types


@final
@dataclass(frozen=True, slots=True)
class InputTypes:
    """The types of a stage's input columns, and those that the user has said.

    Args:
        left: The columns of its inputs, of a join those on the left; none if some are not known.
        right: The columns of a join's inputs on the right, likewise.
        given: Types that the user has said, by name; they count before others.
    """

    left: Types
    right: Types
    given: Mapping[str, pa.DataType]

    def visible(self, columns: Types, keys: Collection[str] = ()) -> dict[str, pa.DataType | None]:
        """Return columns but for keys and those that users never see, with their types."""
        return {
            name: self.given.get(name) or kind
            for name, kind in columns.items()
            if not name.startswith(HIDDEN) and name not in keys
        }
