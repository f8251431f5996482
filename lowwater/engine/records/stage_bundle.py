"""A bundle on its way into a stage, with the batch of records that its elements come from."""

from __future__ import annotations

from collections.abc import Collection, Set
from dataclasses import dataclass, replace
from typing import final

from lowwater.engine.records.admission import Admitted
from lowwater.engine.records.batch import HIDDEN, Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import Bundle
from lowwater.time import Int64Array


@final
@dataclass(frozen=True, slots=True)
class StageBundle:
    """A bundle addressed to a stage, with the batch that its elements come from.

    Args:
        stage: Number of the stage.
        bundle: The elements.
        start: Index of the bundle's first element among the batch's admitted elements.
        records: The batch.
        admitted: The result of validating the batch.
        nth: Which input of the stage they came by.
    """

    stage: int
    bundle: Bundle
    start: int
    records: Records
    admitted: Admitted
    nth: int = 0

    def ids(self) -> tuple[Column, ...]:
        """Return the columns of the elements' ids; none where duplicates are not dropped."""
        stop = self.start + len(self.bundle)
        return tuple(column.slice(self.start, stop) for column in self.admitted.ids)

    def columns(
        self, without: Collection[str] = (), hidden: Set[str] = frozenset()
    ) -> dict[str, Column]:
        """Return the columns of the elements' records.

        Args:
            without: Columns that are left out.
            hidden: Columns that users never see, and which are to be among them.
        """
        start, stop = self.start, self.start + len(self.bundle)
        kept = self.admitted.kept
        return {
            name: (column if kept is None else column.take(kept)).slice(start, stop)
            for name, column in self.records.columns.items()
            if (not name.startswith(HIDDEN) or name in hidden) and name not in without
        }

    def with_values(self, values: dict[str, Column], kept: Int64Array | None) -> Bundle:
        """Return the bundle with other values for the operator, but for duplicates.

        Args:
            values: The columns.
            kept: The places of the elements that are no duplicates; ``None`` for all.
        """
        bundle = replace(self.bundle, values=values)
        return bundle if kept is None else bundle.take(kept)
