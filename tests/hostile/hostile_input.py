"""One hostile input: files or values for a reader, and how many records they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, final

TIME_US: Final = 1_714_564_800_000_000
"""2024-05-01T12:00:00Z."""


@final
@dataclass(frozen=True)
class HostileInput:
    """What to give to a reader.

    Args:
        reader: ``jsonl``, ``csv``, ``parquet``, ``log``, ``iterable``, ``arrow`` or ``pandas``.
        title: What is hostile about it.
        files: The contents of the files by name, for readers of files.
        data: The records, for the other readers.
        rows: How many records there are; ``None`` if that is open to interpretation.
        refusable: Whether a clear error will do. Otherwise every record must be counted.
        options: Options for the reader.
    """

    reader: str
    title: str
    files: Mapping[str, bytes] = field(default_factory=dict)
    data: Any = None
    rows: int | None = None
    refusable: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
