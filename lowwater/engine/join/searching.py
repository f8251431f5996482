"""The rules of a search of stored queries for documents (J-15 to J-17)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, final

from lowwater.engine.join.joining import LateVersions

Match: TypeAlias = Literal["all", "any"]
MATCHES: tuple[Match, ...] = ("all", "any")


@final
@dataclass(frozen=True, slots=True)
class Searching:
    """The rules of a search of stored queries for documents (J-15 to J-17).

    Args:
        words: The column of both sides with lists of words.
        query: The column of the queries that says of which query a record is a version.
        match: Whether a document must have all words of a query, or any.
        late_versions: Whether a late version corrects what was emitted.
        keep_us: How far back versions and documents are remembered, in microseconds.
    """

    words: str
    query: str
    match: Match = "all"
    late_versions: LateVersions = "ignore"
    keep_us: int = 0

    @property
    def retracts(self) -> bool:
        """Whether it retracts what it emitted."""
        return self.late_versions == "correct"
