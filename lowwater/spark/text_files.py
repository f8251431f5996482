"""Files of JSON lines and CSV on Spark: Spark splits them, and the embedded readers read them.

Spark hands over lines, or fields of CSV, as text. What a text means is said by the readers of
:mod:`lowwater.io`, in the task that packs the records, so that a value is the same, or the same
dead letter, in both runners. One thing is different: what leaves a query has types that Spark
knows beforehand. So a column has the type that its first values show as strictly as if ``types=``
had named it, but for floats, beside which integers are kept exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lowwater.engine.records.batch import HIDDEN, Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.panes import ErrorRecord
from lowwater.io.csv_values import convert
from lowwater.io.json_blocks import JsonBlocks, with_odd

TEXT = HIDDEN + "text"
"""The column of whole lines, binary."""
CORRUPT = HIDDEN + "corrupt"
"""The column in which Spark reports rows that have more or fewer fields than the header, text."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_HINT = "; types= can name another"
_Types: TypeAlias = tuple[tuple[str, pa.DataType], ...]


class FileText(Protocol):
    """What the text of a source's files means; a value that Spark ships to the workers."""

    def reader(self) -> TextReader:
        """Return what reads one partition."""
        ...


class TextReader(Protocol):
    """Reads the text of one partition."""

    def read(self, batch: pa.RecordBatch) -> Records:
        """Return the records, beside the columns that Spark adds, and dead letters for the rest."""
        ...


@final
@dataclass(frozen=True, slots=True)
class JsonText:
    """Lines of JSON.

    Args:
        types: The types of the fields.
        given: The fields whose types the user gave.
        time: The field of event times.
        fractions: Whether event times may be floats.
        only: Which fields are read; ``None`` for all.
    """

    types: _Types
    given: Sequence[str]
    time: str
    fractions: bool
    only: Sequence[str] | None

    def reader(self) -> TextReader:
        return _LinesReader(self)


@final
class _LinesReader:
    def __init__(self, text: JsonText) -> None:
        self._types = dict(text.types)
        self._given = text.given
        self._blocks = JsonBlocks(
            text.time,
            text.fractions,
            skips_blank=True,
            only=None if text.only is None else frozenset(text.only),
            given={
                name: kind
                for name, kind in text.types
                if name in text.given or not pa.types.is_float64(kind)
            },
            is_settled=True,
        )
        self._blocks.types.update(self._types)

    def read(self, batch: pa.RecordBatch) -> Records:
        ended = pc.binary_join_element_wise(batch.column(TEXT), b"\n", b"")
        lines: list[bytes] = [line.removeprefix(_BYTE_ORDER_MARK) for line in ended.to_pylist()]
        found = self._blocks.parse(lines, lambda _: "")
        letters = [self._told(letter) for letter in found.letters]
        others = batch.drop_columns([TEXT])
        if found.batch is None:
            nothing = Records.from_arrow(others.slice(0, 0))
            return replace(nothing, unreadable=letters)
        records = with_odd(Records.from_arrow(found.batch), found.odd)
        if found.lines is not None:
            others = others.take(pa.array(found.lines))
        columns, details = self._fitted(records)
        if details:
            rows = np.array(sorted(details))
            for row, record in zip(rows.tolist(), records.rows(rows), strict=True):
                letters.append(ErrorRecord(record, "wrong_type", details[row] + _HINT))
            kept = np.setdiff1d(np.arange(records.length), rows)
            columns = {name: column.take(kept) for name, column in columns.items()}
            others = others.take(pa.array(kept))
        return _beside(columns, others, letters)

    def _fitted(self, records: Records) -> tuple[dict[str, Column], dict[int, str]]:
        """Return columns of the types that Spark knows, and what is not of them by row.

        A part of a value that its type has no place for is left out, as Spark leaves it out.
        """
        columns: dict[str, Column] = {}
        details: dict[int, str] = {}
        for name, column in records.columns.items():
            kind = self._types.get(name)
            is_nested = kind is not None and pa.types.is_nested(kind)
            if not is_nested or (column.arrow is not None and column.arrow.type == kind):
                columns[name] = column
                continue
            values = []
            for row, value in enumerate(column.to_list(exact=True)):
                try:
                    values.append(pa.array([value], kind))
                except (pa.ArrowException, OverflowError, TypeError, ValueError):
                    values.append(pa.nulls(1, kind))
                    details.setdefault(row, f"{name}={value!r} is not {kind}")
            columns[name] = Column.from_arrow(pa.concat_arrays(values))
        return columns, details

    def _told(self, letter: ErrorRecord) -> ErrorRecord:
        """Return a dead letter that names no place, and an option if it helps."""
        named = letter.detail.partition("=")[0] in self._given
        helps = letter.reason == "wrong_type" and not named
        return replace(letter, detail=letter.detail + _HINT if helps else letter.detail, where=None)


@final
@dataclass(frozen=True, slots=True)
class CsvText:
    """Fields of CSV, null where a field is empty and not quoted.

    Args:
        types: The types of the columns.
        given: The columns whose types the user gave.
    """

    types: _Types
    given: Sequence[str]

    def reader(self) -> TextReader:
        return self

    def read(self, batch: pa.RecordBatch) -> Records:
        letters: list[ErrorRecord] = []
        broken = batch.column(CORRUPT)
        if broken.null_count < len(broken):
            letters += [
                ErrorRecord(text, "malformed_csv", "not as many fields as in the header")
                for text in broken.drop_null().to_pylist()
            ]
            batch = batch.filter(broken.is_null())
        batch = batch.drop_columns([CORRUPT])
        types = {name: kind for name, kind in self.types if name in batch.schema.names}
        details: dict[int, str] = {}
        columns: dict[str, Column] = {}
        for name, kind in types.items():
            raw = batch.column(name)
            made, wrong = convert(
                raw, kind, strict=name in self.given or not pa.types.is_float64(kind)
            )
            is_odd = isinstance(made, list)
            columns[name] = Column.of_objects(made) if is_odd else Column.from_arrow(made)
            for row in wrong.tolist():
                shown = (raw[row].as_py() or b"").decode(errors="replace")
                detail = f"{name}={shown!r} is not {kind}"
                details.setdefault(row, detail if name in self.given else detail + _HINT)
        others = batch.drop_columns(list(types))
        if details:
            rows = sorted(details)
            texts = batch.select(list(types)).take(pa.array(rows)).to_pylist()
            for row, fields in zip(rows, texts, strict=True):
                shown_fields = {
                    name: None if text is None else text.decode(errors="replace")
                    for name, text in fields.items()
                }
                letters.append(ErrorRecord(shown_fields, "wrong_type", details[row]))
            kept = np.setdiff1d(np.arange(batch.num_rows), np.array(rows))
            columns = {name: column.take(kept) for name, column in columns.items()}
            others = others.take(pa.array(kept))
        return _beside(columns, others, letters)


def _beside(
    columns: Mapping[str, Column],
    others: pa.RecordBatch,
    letters: Sequence[ErrorRecord],
) -> Records:
    """Return records with what Spark adds to them: columns of paths, and hidden ones."""
    added = Records.from_arrow(others)
    return Records({**columns, **added.columns}, others.num_rows, unreadable=letters)
