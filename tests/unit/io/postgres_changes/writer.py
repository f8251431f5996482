"""A writer of random transactions, and what the table was after each."""

from __future__ import annotations

import random
from typing import Any

import psycopg

View = dict[tuple[Any, ...], dict[str, Any]]

COLUMNS = ("id", "part", "n", "body")


class Writer:
    """Writes to a table with the primary key (id, part) over two connections.

    Attributes:
        states: The table after each commit, from the first on.
    """

    def __init__(self, connect: Any, table: str, chance: random.Random, *, truncates: bool) -> None:
        self._table, self._chance, self._truncates = table, chance, truncates
        self._connections = [connect(), connect()]
        for connection in self._connections:
            connection.execute("SET lock_timeout = '5s'")
        self._look = connect()
        self._open: list[int] = []
        self._is_locked = False
        self.states = [self.now()]

    def now(self) -> View:
        """Return the table as it is."""
        rows = self._look.execute(f"SELECT {', '.join(COLUMNS)} FROM {self._table}").fetchall()
        return {row[:2]: dict(zip(COLUMNS, row, strict=True)) for row in rows}

    def step(self) -> None:
        """Begin or end a transaction, or write in one."""
        which = self._chance.randrange(2)
        connection = self._connections[which]
        if which not in self._open:
            connection.execute("BEGIN")
            self._open.append(which)
        for _ in range(self._chance.choice([1, 1, 2, 4, 12])):
            self._write(connection, which)
        if self._is_locked or self._chance.random() < 0.7:
            self._end(which)

    def finish(self) -> None:
        """End all transactions."""
        for which in list(self._open):
            self._end(which)

    def close(self) -> None:
        """Disconnect."""
        for connection in (*self._connections, self._look):
            connection.close()

    def _end(self, which: int) -> None:
        self._open.remove(which)
        self._is_locked = False
        if self._chance.random() < 0.2:
            self._connections[which].execute("ROLLBACK")
            return
        self._connections[which].execute("COMMIT")
        self.states.append(self.now())

    def _write(self, connection: Any, which: int) -> None:
        """Write rows with ids of this connection's own, so that neither waits for the other."""
        chance, table = self._chance, self._table
        id_, part = chance.randrange(6) * 2 + which, chance.choice(["", "b'", "c,\n"])
        match chance.choices(range(7), [6, 4, 3, 3, 2, 1, 0.3])[0]:
            case 0:
                large = chance.random() < 0.3
                body = f"{chance.getrandbits(20_000):x}" if large else chance.choice(["", None])
                connection.execute(
                    f"INSERT INTO {table} VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING",
                    (id_, part, chance.randrange(9), body),
                )
            case 1:
                connection.execute(f"UPDATE {table} SET n = n + 1 WHERE id = %s", (id_,))
            case 2:  # another primary key
                connection.execute(
                    f"UPDATE {table} SET part = part || 'x', n = -1 WHERE id = %s", (id_,)
                )
            case 3:
                connection.execute(f"DELETE FROM {table} WHERE id = %s", (id_,))
            case 4:
                connection.execute("SAVEPOINT here")
                connection.execute(f"DELETE FROM {table} WHERE id %% 2 = %s", (which,))
                connection.execute(f"{chance.choice(['ROLLBACK TO', 'RELEASE'])} SAVEPOINT here")
            case 5:
                connection.execute(
                    f"UPDATE {table} SET body = left(md5(body), 4) WHERE id = %s", (id_,)
                )
            case 6:
                if self._truncates and len(self._open) == 1:
                    self._truncate(connection)

    def _truncate(self, connection: Any) -> None:
        """Truncate the table unless a snapshot is read; the others need not wait for it."""
        connection.execute("SAVEPOINT before")
        try:
            connection.execute("SET LOCAL lock_timeout = '20ms'")
            connection.execute(f"TRUNCATE {self._table}")
        except psycopg.errors.LockNotAvailable:
            connection.execute("ROLLBACK TO SAVEPOINT before")
        else:
            self._is_locked = True
