"""The aggregates of an operator whose elements may be taken back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import pyarrow as pa
from numpy.typing import DTypeLike

from lowwater.engine.aggregates._base import Aggregate, AggregateSpec, Needs
from lowwater.engine.aggregates._retractable import Retractable
from lowwater.errors import InvalidArgument


@final
@dataclass(frozen=True, slots=True)
class Signed:
    """An aggregate that takes signs: one that subtracts if there is, or else its inputs are kept.

    Args:
        plain: What the user wrote.
    """

    plain: AggregateSpec

    @property
    def column(self) -> str | None:
        """The column it reads."""
        return self.plain.column

    @property
    def needs(self) -> Needs:
        """What values it takes."""
        return self.plain.needs

    @property
    def name(self) -> str:
        """The output's default name."""
        return self.plain.name

    def bind(self, type: pa.DataType | None, dtype: DTypeLike) -> Aggregate:
        """Return the aggregate for a column of this Arrow type and dtype."""
        if (make := getattr(self.plain, "make_signed", None)) is not None:
            subtracts: Aggregate = make(type, dtype)
            return subtracts
        valued = self.plain.column is not None and self.plain.needs not in ("nothing", "presence")
        return Retractable(dtype, lambda: self.plain.bind(type, dtype), valued=valued)


def signed_specs(
    aggregates: Mapping[str, AggregateSpec], *, differences: bool
) -> dict[str, AggregateSpec]:
    """Return aggregates that can take elements back, by output name (S-C4).

    Args:
        aggregates: What panes show, by output name.
        differences: Whether panes may show only what changed since the last one.

    Raises:
        InvalidArgument: They may, and there is an aggregate of which a change is no difference
            (S-C5).
    """
    for name, spec in aggregates.items():
        if differences and not getattr(spec, "differs", False):
            raise InvalidArgument(
                f"{name}={spec!r} cannot show only what is new: elements may be taken back here, "
                "and what a pane showed before cannot be fixed by one that shows the rest",
                where="window(accumulation='discarding')",
                hint='Use accumulation="retracting" or "accumulating", or only count() and sum()',
            )
    return {name: Signed(spec) for name, spec in aggregates.items()}
