"""A view of a table is killed at any instant, and so is the server, while a writer works.

At every commit after the snapshot the view is the table as it was after some transaction; at the
end it is the table.
"""

from __future__ import annotations

import os
import random
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

import pytest

from tests.crash.killed_process import ANNOUNCED
from tests.crash.launcher import Launcher
from tests.protocol.traces import Announcements
from tests.unit.io.postgresql import Server, mortal_server

psycopg = pytest.importorskip("psycopg", reason="needs the extra postgres")

KILLS = int(os.environ.get("LOWWATER_KILLS", "6"))
LOOKS = 20  # at transactions of each view, at least
_SERVER_KILLS = max(1, KILLS // 5)
_ROWS = 120  # of the snapshot: twelve bundles
_DEATHS = 6  # of one view
_LEAD = 300  # transactions by which the writer is ahead of the view, at most
_EXACT = re.compile(r"those up to ([0-9A-F]+)/([0-9A-F]+),")
_POINTS = ("before the write", "after the write", "before publishing", "between sinks")

pytestmark = pytest.mark.long(reason="kills programs")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with mortal_server() as server:
        yield server


@final
class Writer:
    """Writes to a table, not too far ahead of the view, and compares the two all the time.

    The row (0, '') holds the number of the last transaction, and so names the state that a view
    has.

    Attributes:
        looks: At how many transactions after the snapshot the view was found equal to the table.
    """

    def __init__(self, server: Server, folder: Path, seed: int) -> None:
        self._server, self._folder, self._name = server, folder, folder.name
        self._chance = random.Random(seed)
        self._stop, self.looks, self.error = threading.Event(), 0, ""
        self._wanted, self._has_looked = -1, threading.Event()
        self._viewed = 0
        self._thread = threading.Thread(target=self._run)
        name = self._name
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute(
                f"CREATE TABLE source_{name} (id int, part text, n int, PRIMARY KEY (id, part))"
            )
            connection.execute(
                f"INSERT INTO source_{name} SELECT n, '', 0 FROM generate_series(0, {_ROWS}) n"
            )
            connection.execute(f"CREATE PUBLICATION published_{name} FOR TABLE source_{name}")
            self._rows: dict[tuple[int, str], int] = {(n, ""): 0 for n in range(_ROWS + 1)}
            self._states = {0: dict(self._rows)}
            self._lsns = {0: 0}

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            number = 0
            while not self._stop.is_set():
                try:
                    with psycopg.connect(self._server.dsn, autocommit=True) as connection:
                        number = self._known(connection)
                        while not self._stop.is_set():
                            if number < self._viewed + _LEAD:
                                number += 1
                                self._write(connection, number)
                            self._look(connection)
                except psycopg.OperationalError:
                    self._stop.wait(0.05)  # the server was killed
        except BaseException as error:
            self.error = f"{type(error).__name__}: {error}"
            self.stop_waiting()

    def expect(self) -> None:
        """Begin to count ``LOOKS`` more."""
        self._wanted = self.looks + LOOKS

    def wait(self) -> bool:
        """Return whether the looks that are expected came, or this writer failed."""
        self._has_looked.wait()
        return bool(self.error) or self.looks >= self._wanted

    def stop_waiting(self) -> None:
        """Let whoever waits go on."""
        self._has_looked.set()

    def _known(self, connection: Any) -> int:
        """Return the number of the last transaction: of one cut off nobody knows whether it was."""
        (number,) = connection.execute(
            f"SELECT n FROM source_{self._name} WHERE id = 0 AND part = ''"
        ).fetchone()
        self._rows = dict(self._states[number])
        (self._lsns[number],) = connection.execute(_LSN).fetchone()
        return int(number)

    def _write(self, connection: Any, number: int) -> None:
        table, chance, rows = f"source_{self._name}", self._chance, dict(self._rows)
        statements: list[tuple[str, tuple[Any, ...]]]
        statements = [(f"UPDATE {table} SET n = %s WHERE id = 0", (number,))]
        rows[0, ""] = number
        for _ in range(chance.randint(1, 4)):
            id_ = chance.randint(1, _ROWS)
            found = next((key for key in rows if key[0] == id_), (id_, ""))
            match chance.choice("unmd") if found in rows else "c":
                case "c":
                    statements.append((f"INSERT INTO {table} VALUES (%s, '', %s)", (id_, number)))
                    rows[found] = number
                case "d":
                    statements.append((f"DELETE FROM {table} WHERE id = %s", (id_,)))
                    del rows[found]
                case "m":  # another primary key
                    part = f"p{number % 3}"
                    statements.append(
                        (f"UPDATE {table} SET part = %s, n = %s WHERE id = %s", (part, number, id_))
                    )
                    del rows[found]
                    rows[id_, part] = number
                case _:
                    statements.append((f"UPDATE {table} SET n = %s WHERE id = %s", (number, id_)))
                    rows[found] = number
        self._states[number] = rows
        with connection.transaction():
            for statement, values in statements:
                connection.execute(statement, values)
        self._rows = rows
        (self._lsns[number],) = connection.execute(_LSN).fetchone()

    def _look(self, connection: Any) -> None:
        """Compare the view with the state whose number it has, if it is to have one."""
        log, view = self._folder / "log", f"view_{self._name}"
        found = _EXACT.findall(log.read_text()) if log.exists() else []
        if not found:
            return
        rows = _contents(connection, view)
        number = rows.get((0, ""))
        exact = int(found[-1][0], 16) << 32 | int(found[-1][1], 16)
        if number is None:
            return
        was, self._viewed = self._viewed, number
        if self._lsns[number] <= exact:
            return
        wanted = self._states[number]
        differs = rows.items() ^ wanted.items()
        assert not differs, f"{view} has transaction {number}, and differs in {differs}"
        self.looks += number != was
        if self.looks == self._wanted:
            self.stop_waiting()


_LSN = "SELECT (pg_current_wal_insert_lsn() - '0/0')::int8"


def _contents(connection: Any, table: str) -> dict[tuple[int, str], int]:
    rows = connection.execute(f"SELECT id, part, n FROM {table}").fetchall()
    return {(id_, part): n for id_, part, n in rows}


@final
class Killing:
    """Kills views and the server, and counts it."""

    def __init__(self, server: Server, place: Path, launcher: Launcher) -> None:
        self._server, self._place, self._launcher = server, place, launcher
        self.kills = self.server_kills = self.views = self.looks = 0
        self._announced = Announcements(place / "none")
        self.amid_rows = 0  # of the kills: before all rows of the snapshot were read

    def view(self, chance: random.Random, kills: int, server_kills: int) -> None:
        """Make a view, kill it so often and the server too, and compare it in the end."""
        self.views += 1
        folder = self._place / f"v{self.views}"
        folder.mkdir()
        (folder / "dsn").write_text(self._server.dsn)
        self._announced = Announcements(folder / ANNOUNCED)
        deaths = ["server"] * server_kills + ["run"] * kills
        chance.shuffle(deaths)
        with Writer(self._server, folder, self.views) as writer:
            for number, death in enumerate(deaths):
                if death == "server":
                    self._kill_server(folder, chance.uniform(0.1, 0.9))
                else:
                    self._kill_run(folder, chance, is_first=not number)
                assert not writer.error, writer.error
            self._kill_once_seen(folder, writer)
        assert not writer.error, writer.error
        self.looks += writer.looks
        self._finish(folder)

    def _kill_run(self, folder: Path, chance: random.Random, *, is_first: bool) -> None:
        how = f"alarm:{int(chance.uniform(0.02, 0.4 if is_first else 0.9) * 1e6)}"
        if chance.random() < 0.3:
            how = f"point:{chance.choice(_POINTS)}:{chance.randint(1, 20)}"
        code, errors = self._launcher.run("tests.crash.changes_to_kill", [str(folder), how])
        assert code < 0, f"{code}\n{errors}"
        self._announced.check(died=True)
        self.kills += 1
        log = folder / "log"
        self.amid_rows += not (log.exists() and _EXACT.search(log.read_text()))

    def _kill_once_seen(self, folder: Path, writer: Writer) -> None:
        """Kill a run when the view was compared often: the others may die before that."""

        def kill() -> None:
            if writer.wait():
                os.kill(int((folder / "pid").read_text()), signal.SIGKILL)

        killer = threading.Thread(target=kill)
        writer.expect()
        killer.start()
        code, errors = self._launcher.run("tests.crash.changes_to_kill", [str(folder), "none"])
        writer.stop_waiting()
        killer.join()
        assert code == -signal.SIGKILL, f"{code}\n{errors}"
        self._announced.check(died=True)
        self.kills += 1

    def _kill_server(self, folder: Path, seconds: float) -> None:
        killer = threading.Timer(seconds, self._server.kill)
        killer.start()
        code, errors = self._launcher.run("tests.crash.changes_to_kill", [str(folder), "none"])
        killer.join()
        self._server.recover()
        assert code == 1, f"{code}\n{errors}"
        assert "DataError" in errors, errors
        self._announced.check(died=True)
        self.server_kills += 1

    def _finish(self, folder: Path) -> None:
        name = folder.name
        with psycopg.connect(self._server.dsn, autocommit=True) as connection:
            (end,) = connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
            (folder / "end").write_text(end)
            code, errors = self._launcher.run("tests.crash.changes_to_kill", [str(folder), "none"])
            assert code == 0, errors
            self._announced.check(died=False)
            view = _contents(connection, f"view_{name}")
            assert view == _contents(connection, f"source_{name}")
            assert view[0, ""] > 0
            ahead = connection.execute(
                "SELECT confirmed_flush_lsn > %s::pg_lsn FROM pg_replication_slots "
                "WHERE slot_name = %s", (end, f"slot_{name}"),
            ).fetchone()  # fmt: skip
            assert ahead is not None
            connection.execute("SELECT pg_drop_replication_slot(%s)", (f"slot_{name}",))


def test_views_are_killed(
    server: Server, tmp_path_factory: pytest.TempPathFactory, launcher: Launcher
) -> None:
    place = tmp_path_factory.mktemp("views")
    killing, chance = Killing(server, place, launcher), random.Random(17)
    while killing.kills < KILLS or killing.server_kills < _SERVER_KILLS:
        runs = min(_DEATHS, max(0, KILLS - killing.kills))
        servers = min(1, _SERVER_KILLS - killing.server_kills)
        killing.view(chance, runs, servers)
    print(
        f"changes: {killing.kills} kills, {killing.amid_rows} of them before the rows were read; "
        f"{killing.server_kills} of the server; {killing.views} views, {killing.looks} looks"
    )
    assert killing.looks >= LOOKS * killing.views
