"""A search of stored queries, a document at a time: an oracle for J-15 to J-17."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, final

from lowwater.time import END_OF_TIME, START_OF_TIME

Side: TypeAlias = Literal["documents", "queries"]


@final
@dataclass(frozen=True)
class Listed:
    """A document, or a version of a query.

    Args:
        id: Of the document, or of the query.
        time: Its event time.
        words: Its words; some may be null, or all of them.
        sign: +1 for an insert, -1 for a retraction.
    """

    id: Any
    time: int
    words: tuple[Any, ...] | None
    sign: int = 1

    @property
    def known(self) -> set[Any]:
        """The words that count."""
        return {word for word in self.words or () if word is not None}


Found: TypeAlias = tuple[Listed, Listed]
"""A document and the version that it matches."""


@final
@dataclass
class SearchRun:
    """Looks at all versions for each document.

    Args:
        match: Whether a document must have all words of a query, or any.
        corrects: Whether late versions correct what was emitted.
        keep: How far back documents and versions are remembered, in microseconds.
    """

    match: Literal["all", "any"]
    corrects: bool
    keep: int
    watermark: int = START_OF_TIME
    queries_watermark: int = START_OF_TIME
    documents: list[Listed] = field(default_factory=list)
    versions: list[Listed] = field(default_factory=list)
    late: int = 0

    def take(self, side: Side, elements: Sequence[Listed]) -> Counter[Found]:
        """Take a bundle of one side; return what it changes."""
        changes: Counter[Found] = Counter()
        for one in elements:
            if one.time < self.watermark - self.keep:
                self.late += 1
            elif side == "queries":
                before = self._standing()
                self._apply(self.versions, one)
                if self.corrects:
                    changes.update(self._standing())
                    changes.subtract(before)
            else:
                self._apply(self.documents, one)
                if one.time < self.queries_watermark:
                    plain = Listed(one.id, one.time, one.words)
                    for found in self._found(plain):
                        changes[found] += one.sign
        self._release()
        return Counter({found: count for found, count in changes.items() if count})

    def advance(self, to: int, right: int) -> Counter[Found]:
        """Advance the watermarks; return what comes out."""
        was, self.queries_watermark = self.queries_watermark, max(self.queries_watermark, right)
        self.watermark = max(self.watermark, to)
        changes: Counter[Found] = Counter()
        for one in self.documents:
            if was <= one.time < self.queries_watermark:
                changes.update(self._found(one))
        self._release()
        return changes

    def _apply(self, held: list[Listed], one: Listed) -> None:
        if one.sign > 0:
            held.append(one)
        else:
            held.remove(Listed(one.id, one.time, one.words))

    def _standing(self) -> Counter[Found]:
        return Counter(
            found
            for one in self.documents
            if one.time < self.queries_watermark
            for found in self._found(one)
        )

    def _found(self, document: Listed) -> list[Found]:
        newest: dict[Any, Listed] = {}
        for version in sorted(self.versions, key=lambda one: one.time):  # stable: by arrival
            if version.time <= document.time:
                newest[version.id] = version
        return [
            (document, version) for version in newest.values() if self._matches(document, version)
        ]

    def _matches(self, document: Listed, version: Listed) -> bool:
        if self.match == "any":
            return bool(document.known & version.known)
        return bool(version.known) and version.known <= document.known

    def _release(self) -> None:
        if self.watermark == END_OF_TIME:
            self.documents, self.versions = [], []
            return
        lowest = self.watermark - self.keep
        out = self.queries_watermark
        self.documents = [
            one
            for one in self.documents
            if one.time >= out or (self.corrects and one.time >= lowest)
        ]
        kept: list[Listed] = []
        newest: dict[Any, Listed] = {}
        for version in sorted(self.versions, key=lambda one: one.time):
            if version.time < lowest:
                newest[version.id] = version
        for version in self.versions:
            is_newest = newest.get(version.id) is version and bool(version.known)
            if version.time >= lowest or is_newest:
                kept.append(version)
        self.versions = kept
