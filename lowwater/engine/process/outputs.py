"""What one step of a process emits: records by output, with their event times and keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, final

import numpy as np

from lowwater.engine.process.key_parts import SHIFT
from lowwater.engine.records.columns import Column
from lowwater.engine.records.stage_output import Emitted
from lowwater.engine.records.steps import KINDS
from lowwater.errors import InvalidArgument, describe
from lowwater.time import Int64Array

Order: TypeAlias = Literal["arrival", "event_time"]
"""In which order a process gets its records (S-K13)."""


@final
class OutputBuffer:
    """Collects what hooks emit to one output during a step.

    ``signs`` are kept where the process retracts only. ``odd`` has the output's tag while there are
    values of types that perhaps cannot be held.

    Args:
        signed: Whether it does.
    """

    __slots__ = ("odd", "places", "scopes", "signed", "signs", "times", "values")

    def __init__(self, *, signed: bool) -> None:
        self.signed = signed
        self.odd: set[str] = set()
        self.scopes: list[int] = []
        self.places: list[int] = []
        self.times: list[int] = []
        self.values: list[Any] = []
        self.signs: list[int] = []

    def drain(self, describe: Callable[[Int64Array], _Scoped], *, parted: bool) -> Emitted | None:
        """Return what was emitted since the last call, if anything.

        Args:
            describe: Returns key columns, starts and ends for the scopes emitted from.
            parted: Whether keys are in parts.
        """
        if not self.times:
            return None
        scopes = np.array(self.scopes, dtype=np.int64)
        keys, start, end = describe(scopes)
        times = np.array(self.times, dtype=np.int64)
        signs = np.array(self.signs, dtype=np.int8) if self.signed else None
        places = np.array(self.places, dtype=np.int64)
        parts = scopes >> SHIFT if parted else None
        values = self.values
        emitted = Emitted(
            times, keys, values, start, end, signs,
            places=places, parts=parts, is_odd=bool(self.odd),
        )  # fmt: skip
        self.odd.clear()
        self.scopes, self.places, self.times, self.values, self.signs = [], [], [], [], []
        return emitted


_Scoped = tuple[tuple[Column, ...], Int64Array | None, Int64Array | None]


def sign_of(kind: object, *, signed: bool, place: str) -> int:
    """Return +1 for an insert and -1 for a retraction (S-K12); ``None`` is an insert.

    Args:
        kind: What the hook said.
        signed: Whether the process declares that it retracts.
        place: The process, in words.

    Raises:
        InvalidArgument: It does not, or the kind is none.
    """
    if kind is None:
        return 1
    if not signed:
        raise InvalidArgument(
            f"{describe('kind', kind)} is for a process that declares that it retracts",
            where=f"emit of {place}",
            hint="Write retracts = True in the body of the class",
        )
    if kind not in KINDS:
        raise InvalidArgument(
            f"{describe('kind', kind)} is not known",
            where=f"emit of {place}",
            hint='Use "insert" or "retract"',
        )
    return 1 if kind == "insert" else -1
