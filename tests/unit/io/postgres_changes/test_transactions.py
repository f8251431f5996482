"""Messages are cut into batches at the ends of transactions."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater.errors import DataError
from lowwater.io.postgres_changes.pgoutput import COMMIT
from lowwater.io.postgres_changes.table_definition import TableColumn, TableDefinition
from lowwater.io.postgres_changes.transactions import ChangePart, ChangePlace, TransactionCutter
from tests.examples import examples
from tests.unit.io.postgres_changes import pgoutput

TABLE = TableDefinition("public", "items", (TableColumn("id", 23, "integer", pa.int32()),))
START = 50


def messages_of(transactions: list[list[str]]) -> list[list[bytes]]:
    """Return the messages of transactions; each change holds its number."""
    made, number = [], 0
    for nth, changes in enumerate(transactions, 1):
        one = [pgoutput.begin(nth * 100, 0, nth)]
        if nth == 1:
            one.append(pgoutput.relation(7, "others", [("id", 23)]))
            one.append(pgoutput.relation(5, "items", [("id", 23)]))
        for change in changes:
            number += 1
            row = [str(number).encode()]
            one.append(
                {
                    "c": pgoutput.insert(5, row),
                    "u": pgoutput.update(5, row, row, b"K"),
                    "d": pgoutput.delete(5, row, b"K"),
                    "t": pgoutput.truncate(5),
                    "o": pgoutput.insert(7, row),
                }[change]
            )
        one.append(pgoutput.commit(nth * 100, nth * 100 + 50, 0))
        made.append(one)
    return made


def weight(message: bytes) -> int:
    return {"I": 1, "D": 1, "T": 1, "U": 2}.get(chr(message[0]), 0) * (b"\0\0\0\5" in message)


def changes_of(parts: list[ChangePart]) -> list[bytes]:
    return [one for part in parts for one in part.content if weight(one)]


def cut(
    blocks: list[list[bytes]], size: int, at: int = START, ends: tuple[ChangePlace, ...] = ()
) -> list[ChangePart]:
    cutter = TransactionCutter(TABLE, size, at, ends)
    parts = []
    for block in blocks:
        cutter.feed(block)
        parts += cutter.parts(final=False)
    return [*parts, *cutter.parts(final=True)]


@examples(3)
@given(st.data(), st.integers(1, 6))
def test_parts(data: st.DataObject, size: int) -> None:
    transactions = data.draw(st.lists(st.lists(st.sampled_from("ccudto"), max_size=9), max_size=6))
    whole = messages_of(transactions)
    flat = [message for one in whole for message in one]
    places = sorted(data.draw(st.lists(st.integers(0, len(flat)), max_size=4)))
    blocks = [flat[a:b] for a, b in zip([0, *places], [*places, len(flat)], strict=True)]
    parts = cut(blocks, size)
    assert changes_of(parts) == [one for one in flat if weight(one)]
    place = ChangePlace(START, 0)
    for part in parts:
        assert part.content[0][:1] == b"B"
        assert all(weight(one) or one[:1] in (b"B", b"C", b"R") for one in part.content)
        weights = [one for one in map(weight, part.content) if one]
        assert sum(weights) <= size or len(weights) == 1
        if part.content[-1][0] == COMMIT:
            assert part.end == ChangePlace(int.from_bytes(part.content[-1][10:18]), 0)
        else:  # only where a transaction alone is longer
            (one,) = [one for one in whole if one[0] == part.content[0]]
            assert sum(map(weight, one)) > size
            assert part.end == ChangePlace(place.lsn, place.within + len(weights))
        place = part.end
    # From any place on, a part that was fixed comes again, however the messages come.
    for before, part in zip(
        [ChangePlace(START, 0), *(one.end for one in parts)], parts, strict=False
    ):
        later = [one for one in whole if int.from_bytes(one[-1][10:18]) > before.lsn]
        again = [message for one in later for message in one]
        if before.lsn > START:
            again[1:1] = whole[0][1:3]  # each call begins with the layouts
        skipped = (before,) if before.within else ()
        found = cut([again[:3], again[3:]], size + 3, before.lsn, (*skipped, part.end))
        nth = len(skipped)
        assert found[nth].end == part.end
        assert changes_of([found[nth]]) == changes_of([part])


def test_changes_that_are_gone() -> None:
    (first,) = messages_of([["c"]])
    with pytest.raises(DataError, match=r"the slot no longer has the changes up to 0/7B"):
        cut([first], 5, START, (ChangePlace(0x7B, 0),))
