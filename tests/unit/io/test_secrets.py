"""Nothing that a user may give as a secret is in an error, a warning, a repr, a log or a state."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import lowwater as lw
from lowwater.display.secrets import redacted, without
from lowwater.errors import DataError, InvalidArgument, StateError
from lowwater.io.sinks import (
    Callback,
    JsonLinesFile,
    JsonLinesFolder,
    KafkaTopic,
    ParquetFolder,
    PostgresTable,
    SqliteTable,
)
from lowwater.pipeline.state_tools import state_info

SECRET = "MaRk3r"

URIS = [
    f"s3://bucket/a?secret_key={SECRET}",
    f"s3://bucket/a?access_key=x&secret_key={SECRET}&region=eu-west-1",
    f"s3://bucket/*.csv?secret_key={SECRET}",
    f"s3://bucket/x%zz?secret_key={SECRET}",
    f"s3a://bucket/a.parquet?session_token={SECRET}",
    f"s3://id:{SECRET}@bucket/a.parquet",
    f"s3://id:a@{SECRET}@bucket/a",
    f"s3://id:a/{SECRET}@bucket/a",
    f"S3://id:{SECRET}@bucket/a",
    f"s3:/id:{SECRET}@bucket/a",
    f"s3//id:{SECRET}@bucket",
    f"s3://id:{SECRET}/a",
    f"zip::s3://id:{SECRET}@bucket/a",
    f"https://ann:{SECRET}@host/a.jsonl",
    f"https://{SECRET}@host/a.jsonl",
    f"http://host/a.csv?sig={SECRET}",
    f"hdfs://ann:{SECRET}@host:99999/a",
    f"abfs://c@account.dfs.core.windows.net/a?account_key={SECRET}",
    f"gs://bucket/a?token={SECRET}",
    f"file:///a?secret={SECRET}",
]
DSNS = [
    f"postgresql://ann:pa@{SECRET}@127.0.0.1:1/shop",
    f"postgresql://ann:{SECRET}@127.0.0.1:1/shop",
    f"postgresql://ann:{SECRET}/x@127.0.0.1:1/shop",
    f"postgresql://ann:a/{SECRET}@127.0.0.1:1/shop",
    f"postgresql://ann:a?{SECRET}@127.0.0.1:1/shop",
    f"postgresql://ann:a#{SECRET}@127.0.0.1:1/shop",
    f"postgresql://ann:a%zz{SECRET}@127.0.0.1:1/shop",
    f"postgresql://ann:{SECRET}@[::1/shop",
    f"postgresql://ann:{SECRET}@127.0.0.1:port/shop",
    f"postgresql://ann:{SECRET}@127.0.0.1:1{SECRET}/shop",
    f"postgresql://127.0.0.1:1/shop?password={SECRET}",
    f"postgresql://127.0.0.1:1/shop?pass={SECRET}",
    f"postgres//ann:{SECRET}@127.0.0.1/shop",
    f"postgresql:ann:{SECRET}@127.0.0.1:1/shop",
    f"host=127.0.0.1 port=1 password={SECRET}",
    f"host=127.0.0.1 port=1 password=my {SECRET}",
    f"host=127.0.0.1 port=1 password='{SECRET}",
    f"host=127.0.0.1 port=1 pasword={SECRET}",
    SECRET,
]


# To read from these would take a network.
UNREACHABLE = {f"s3://id:{SECRET}@bucket/a.parquet", f"S3://id:{SECRET}@bucket/a"}


class Quiet:
    """A sink with the places of a table in PostgreSQL, which writes nothing."""

    def __init__(self, dsn: str, table: str) -> None:
        self.table = PostgresTable(dsn, table)

    def places(self) -> Any:
        return [replace(place, identify=None) for place in self.table.places()]

    def open(self, writer: Any) -> None:
        """Connect to nothing."""

    def deliver(self, delivery: Any) -> None:
        """Write nothing."""

    def close(self, *, complete: bool) -> None:
        """Close nothing."""


def pipeline() -> lw.Pipeline:
    stream = lw.from_iterable([{"at": 1, "key": "a"}], time="at", unit="s").key_by("key")
    return stream.window(lw.FixedWindows("1m")).aggregate(n=lw.count())


def said(call: Callable[[], Any]) -> str:
    """Return all that a user sees of a call: a repr, or an error with those that it came from."""
    try:
        made = call()
    except (InvalidArgument, DataError, StateError) as error:
        lines = "".join(traceback.format_exception(error)).splitlines()
        code = ("    ", "  File ")  # of this test, which has the secret
        return "\n".join(line for line in lines if not line.startswith(code))
    return f"{made!r} {made}"


def calls(uri: str, folder: Path) -> dict[str, Callable[[], Any]]:
    state: Any = {"state": uri, "progress": False}
    return {
        "parquet": lambda: lw.read_parquet(uri, time="at"),
        "csv": lambda: lw.read_csv(uri, time="at"),
        "jsonl": lambda: lw.read_jsonl(uri, time="at"),
        "follow": lambda: lw.read_jsonl(uri, time="at", follow=True),
        "log": lambda: lw.read_log(uri, time="at"),
        "write_parquet": lambda: pipeline().write_parquet(uri),
        "write_jsonl": lambda: pipeline().write_jsonl(uri),
        "folder": lambda: ParquetFolder(uri),
        "lines": lambda: JsonLinesFolder(uri),
        "file": lambda: JsonLinesFile(uri),
        "sqlite": lambda: pipeline().write_to(SqliteTable(uri, "t")).run(progress=False),
        "state": lambda: pipeline().write_to(Callback(print)).run(**state),
        "info": lambda: state_info(uri),
    }


@pytest.fixture(autouse=True)
def nothing_is_logged(caplog: pytest.LogCaptureFixture) -> Any:
    with caplog.at_level(logging.DEBUG, logger="lowwater"):
        yield
    assert SECRET not in caplog.text


@pytest.mark.parametrize("uri", URIS)
def test_a_uri_keeps_its_secrets(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, call in calls(uri, tmp_path).items():
        if uri in UNREACHABLE and name in ("parquet", "csv", "jsonl", "follow"):
            continue
        assert SECRET not in said(call), name


@pytest.mark.parametrize("dsn", DSNS)
def test_a_connection_string_keeps_its_secrets(dsn: str) -> None:
    pytest.importorskip("psycopg")
    assert SECRET not in said(lambda: PostgresTable(dsn, "t"))
    write = said(lambda: pipeline().write_to(PostgresTable(dsn, "t")).run(progress=False))
    read = said(lambda: lw.read_postgres_changes(dsn, "t", publication="p", slot="s"))
    for text in (write, read):
        assert SECRET not in text
        assert "lowwater.errors" in text


@pytest.mark.parametrize("dsn", DSNS[:1] + DSNS[2:4])
def test_a_character_that_is_not_escaped_is_named(dsn: str) -> None:
    with pytest.raises(InvalidArgument, match=r"has to be escaped.*urllib\.parse\.quote"):
        PostgresTable(dsn, "t")


@pytest.mark.parametrize(
    ("servers", "config"),
    [
        (f"SASL_SSL://ann:{SECRET}@host:1", {}),
        (f"ann:{SECRET}@host:1", {}),
        ([f"ann:{SECRET}@host:1", "host:2"], {}),
        ("host:1", {"sasl.password": SECRET}),
        ("host:1", {"ssl.key.password": SECRET, "group.id": "mine"}),
        ("host:1", {"ssl.key.pem": SECRET, "security.protocol": "ssl"}),
        ("host:1", {"sasl.jaas.config": SECRET}),
        ("host:1", {"sasl.password": {"is": SECRET}}),
        ("host:1", f"sasl.password={SECRET}"),
    ],
)
def test_settings_of_kafka_keep_their_secrets(servers: Any, config: Any) -> None:
    pytest.importorskip("confluent_kafka")
    read: Any = {"time": "at", "timestamp": "at", "config": config, "end": "latest"}
    assert SECRET not in said(lambda: lw.read_kafka(servers, "t", **read))
    assert SECRET not in said(lambda: KafkaTopic(servers, "t", config=config))


@pytest.mark.parametrize(
    "config", [{"security.protocol": "no"}, {"no.such": "x"}, {"sasl.jaas.config": SECRET}]
)
def test_settings_that_the_client_refuses_are_told_in_words(config: Any) -> None:
    """Not as the library's own error."""
    pytest.importorskip("confluent_kafka")
    stream = lw.read_kafka(
        "127.0.0.1:1", "t", time="at", timestamp="at", config=config, end="latest"
    )
    text = said(lambda: list(stream.run(progress=False)))
    assert "Correct config=" in text
    assert SECRET not in text


def test_a_state_keeps_no_secrets_of_its_sinks(tmp_path: Path) -> None:
    """Neither what describes the run, nor the places that it remembers."""
    (tmp_path / "in.jsonl").write_text('{"at": 1, "key": "a"}\n')
    read = lw.read_jsonl(tmp_path / "in.jsonl", time="at", unit="s").key_by("key")
    counts = read.window(lw.FixedWindows("1m")).aggregate(n=lw.count())
    table = Quiet(f"postgresql://ann:{SECRET}@127.0.0.1:1/shop", "t")
    counts.write_to(table).run(state=tmp_path / "state", progress=False)
    shown = state_info(tmp_path / "state").to_text()
    assert "aggregate" in shown
    assert SECRET not in shown
    for file in (tmp_path / "state").rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://a:b@c/d", "postgresql://***@c/d"),
        ("s3://bucket/a@b/c.csv", "s3://bucket/a@b/c.csv"),
        ("http://host:8080/a", "http://host:8080/a"),
        ("{'aws_secret_access_key': 'x', 'region': 'eu'}",
         "{'aws_secret_access_key': ***, 'region': 'eu'}"),
        ('{"password": "a \\" b", "n": 1}', '{"password": ***, "n": 1}'),
        ("fs.s3a.secret.key=abc", "fs.s3a.secret.key=***"),
        ("Authorization=Bearer", "Authorization=***"),
        ("group_by('token'), keys=5, monkey=5", "group_by('token'), keys=5, monkey=5"),
        ("design=1, signal=2", "design=1, signal=2"),
        ("password=... and password=", "password=... and password="),
        ("no password: the server asks", "no password: the server asks"),
        ("primary_key=('a',)", "primary_key=('a',)"),
    ],
)  # fmt: skip
def test_what_is_hidden_of_a_text(text: str, shown: str) -> None:
    assert redacted(text) == shown
    assert redacted(shown) == shown  # hiding twice hides no more


def test_secrets_that_are_known_are_hidden_wherever_they_are() -> None:
    assert without("no host MaRk3r", ["MaRk3r"]) == "no host ***"
    assert without("no host a b", ["a%20b"]) == "no host ***"
    assert without("in a table", ["ab", "a"]) == "in *** table"


def test_an_error_shows_no_cause_that_quotes_a_secret() -> None:
    def fail() -> None:
        from lowwater.io.stores import told

        with told("s3://bucket"):
            raise OSError(f"cannot open s3://id:{SECRET}@bucket")

    assert SECRET not in said(fail)
    assert "***@bucket" in said(fail)
