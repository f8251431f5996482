"""How databases differ, as far as a table of panes is concerned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, final

from lowwater.errors import InvalidArgument, describe
from lowwater.io.sinks.column_kinds import Kind, Shape


class Cursor(Protocol):
    """The part of a DB-API cursor that is used."""

    def execute(self, statement: str, parameters: Sequence[Any], /) -> object:
        """Run a statement."""
        ...

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> object:
        """Run a statement for each row."""
        ...

    def fetchone(self) -> Any:
        """Return the next row of the answer, or ``None``."""
        ...


@final
@dataclass(frozen=True, slots=True)
class Dialect:
    """How one database differs from another.

    Args:
        mark: What stands for a parameter.
        begin: Begins a transaction.
        guard: Statement that lets one process at a time make tables; empty if ``begin`` does.
        lock: Follows a SELECT, to hold the row until the end of the transaction.
        named: Returns a table's name as it stands in a statement.
        quoted: Returns a column's name as it stands in a statement.
        schemas: Whether what stands before a dot in a table's name is a schema.
        exists: Query that has a row if there is a table of the name that is its parameter.
        name_type: The type of a column of names of tables.
        keys: Stands at the end of a CREATE TABLE with a primary key.
        types: The type of a column of each kind.
        shapes: How values are handed over, for kinds not taken as Python gives them.
        widen: Changes a column's type (``{table}``, ``{column}``, ``{type}``); empty where any
            column takes any number.
    """

    mark: str
    begin: str
    guard: str
    lock: str
    named: Callable[[str], str]
    quoted: Callable[[str], str]
    schemas: bool
    exists: str
    name_type: str
    keys: str
    types: Mapping[Kind, str]
    shapes: Mapping[Kind, Shape]
    widen: str


def double_quoted(name: str) -> str:
    """Return a name as SQL quotes it.

    >>> print(double_quoted('sum "the" total'))
    "sum ""the"" total"
    """
    return '"' + name.replace('"', '""') + '"'


def check_table(table: object) -> None:
    """Refuse what can be no table's name."""
    if not isinstance(table, str) or not table or "\0" in table or table != table.strip():
        raise InvalidArgument(
            f"{describe('table', table)} cannot name a table", hint='Use a name such as "counts"'
        )
