"""The examples of the page run against a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.docs.test_pages import run_page
from tests.unit.io.postgresql import running_server

psycopg = pytest.importorskip("psycopg", reason="needs the extra postgres")
pytestmark = pytest.mark.slow(reason="needs a server")


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    connect = psycopg.connect
    with running_server() as server:
        with connect(server, autocommit=True) as connection:
            connection.execute("CREATE DATABASE shop")
        shop = server.replace("dbname=postgres", "dbname=shop")

        def connected(dsn: str, **options: Any) -> Any:
            return connect(dsn.replace("host=db dbname=shop", shop), **options)

        with mock.patch.object(psycopg, "connect", connected):
            run_page("docs/howto/postgres-changes.md")
