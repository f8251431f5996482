"""Objects of any name and size: each is read, or told of by its name with the true reason.

Stores take any text as a key. One that cannot be opened costs no other object its records.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import lowwater as lw
from lowwater.errors import DataError, InvalidArgument
from lowwater.io.input_files import input_files
from lowwater.io.stores import store_failed
from tests.examples import is_campaign, sampled
from tests.s3_server import S3Server
from tests.unit.engine.local.durable_runs import Stopped, stopping

Put = Callable[[str, bytes], None]

LONG = "/".join(["L" * 200] * 5)[:1_010]
READ = [
    "sp ace", "per%20cent", "per%2Fcent", "hash#x", "q?x=1", "ü中🙂", "back\\slash", "plus+",
    "amp&",
    "semi;colon", "quote'", 'double"', "comma,", "at@", "colon:", "[x]", "star*", "a/b/c", "dot./c",
    "a/b.c/d..e/f..", "esc\x1b[31m", "trail ", " lead", LONG,
]  # fmt: skip
REFUSED = ["a//b", "/lead", "//two", "a///b", "x/./b", "x/../b", "./b", "../b"]
HIDDEN = ["_x", ".x", "a/_b/c", "a/.b/c"]


def lines(*values: int) -> bytes:
    rows = ({"t": value, "k": "k", "v": value} for value in values)
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@pytest.fixture
def bucket(s3_server: S3Server) -> str:
    return s3_server.bucket()


@pytest.fixture
def put(s3_server: S3Server, bucket: str) -> Put:
    """Return what puts an object under any key; Arrow's filesystems take only some."""
    client = import_module("boto3").client(
        "s3", endpoint_url=s3_server.endpoint, region_name="us-east-1"
    )

    def put(key: str, data: bytes) -> None:
        client.put_object(Bucket=bucket, Key=key, Body=data)
        found = client.list_objects_v2(Bucket=bucket, Prefix=key)["Contents"]
        assert key in [one["Key"] for one in found]

    return put


def run(paths: Any, **options: Any) -> tuple[list[int], list[str]]:
    """Return the values that were read, sorted, and the places of the dead letters."""
    stream = lw.read_jsonl(paths, time="t", unit="s", **options)
    pipeline = stream.key_by("k").window(lw.GlobalWindow()).aggregate(lw.collect("v"))
    result = pipeline.collect(on_error="dead_letter")
    values = [value for pane in result.panes for value in pane.value]
    assert {error.reason for error in result.errors} <= {"unreadable_object"}
    return sorted(values), [str(error.where) for error in result.errors]


def test_each_object_of_a_folder(s3_server: S3Server, bucket: str, put: Put) -> None:
    """All keys beside one another: those that can be opened are read, the others are named."""
    names = [f"in/{name}.jsonl" for name in (*READ, *REFUSED, *HIDDEN)]
    for number, key in enumerate(names):
        put(key, lines(number))
    put("in/", b"")
    put("in/folder.jsonl/", b"")
    put("in/zero.jsonl", b"")
    wanted = list(range(len(READ)))
    for path in ("in/", *["in"] * is_campaign()):
        values, places = run(s3_server.uri(f"{bucket}/{path}"))
        assert values == wanted
        assert sorted(places) == sorted(f"s3://{bucket}/in/{name}.jsonl" for name in REFUSED)


@pytest.mark.parametrize("key", sampled(REFUSED, every=3))
def test_a_key_at_the_top_of_a_bucket(key: str, s3_server: S3Server, bucket: str, put: Put) -> None:
    put(f"{key}.jsonl", lines(1))
    put("plain.jsonl", lines(2))
    assert run(s3_server.uri(bucket)) == ([2], [f"s3://{bucket}/{key}.jsonl"])
    with pytest.raises(InvalidArgument, match=r"names no object that can be read|has '\.\.?' as a"):
        run(s3_server.uri(f"{bucket}/{key}.jsonl"))


def test_a_folder_of_nothing_else(s3_server: S3Server, bucket: str, put: Put) -> None:
    put("a//b.jsonl", lines(1))
    assert run(s3_server.uri(bucket)) == ([], [f"s3://{bucket}/a//b.jsonl"])
    stream = lw.read_jsonl(s3_server.uri(bucket), time="t", unit="s").key_by("k")
    with pytest.raises(DataError, match="its key has an empty part") as raised:
        stream.window(lw.GlobalWindow()).aggregate(lw.count()).collect()
    assert "credentials" not in str(raised.value)


def test_on_error_raise_names_the_object(s3_server: S3Server, bucket: str, put: Put) -> None:
    put("a//b.jsonl", lines(1))
    put("b.jsonl", lines(1))
    stream = lw.read_jsonl(s3_server.uri(bucket), time="t", unit="s")
    pipeline = stream.key_by("k").window(lw.GlobalWindow()).aggregate(lw.count())
    with pytest.raises(DataError, match="its key has an empty part") as raised:
        pipeline.collect(on_error="raise")
    assert f"s3://{bucket}/a//b.jsonl" in str(raised.value)
    assert "credentials" not in str(raised.value)


@pytest.mark.parametrize("number", sampled(range(1, 8), every=6))
def test_a_durable_run_tells_of_it_once(
    number: int, s3_server: S3Server, bucket: str, put: Put, tmp_path: Path
) -> None:
    """Killed wherever it is, the object is one dead letter, and the others are read once."""
    for at, key in enumerate(("a", "b//c", "d", "e/../f", "g")):
        put(f"in/{key}.jsonl", lines(*range(10 * at, 10 * at + 10)))

    def go() -> None:
        stream = lw.read_jsonl(s3_server.uri(f"{bucket}/in"), time="t", unit="s")
        pipeline = stream.key_by("v").window(lw.GlobalWindow()).aggregate(n=lw.count())
        pipeline.write_jsonl(tmp_path / "out").run(
            state=tmp_path / "state", bundle_size=7, commit_every="bundle", progress=False
        )

    with stopping("after the write", number), pytest.raises(Stopped):
        go()
    go()
    go()

    def rows(name: str) -> list[Any]:
        files = sorted((tmp_path / "out").glob(f"{name}-*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    assert sorted(row["v"] for row in rows("part")) == [*range(10), *range(20, 30), *range(40, 50)]
    assert sorted(row["where"] for row in rows("errors")) == [
        f"s3://{bucket}/in/b//c.jsonl", f"s3://{bucket}/in/e/../f.jsonl",
    ]  # fmt: skip


def test_followed(s3_server: S3Server, bucket: str, put: Put) -> None:
    """It is told of when it is found, and the run goes on to what comes later."""
    put("in/a.jsonl", lines(1))
    looks = iter(range(4))

    def stop() -> bool:
        match next(looks):
            case 1:
                put("in/b//c.jsonl", lines(2))
            case 2:
                put("in/d.jsonl", lines(3))
            case 3:
                return True
        return False

    follow = {"follow": True, "poll_every": "1ms", "stop": stop}
    place = f"s3://{bucket}/in/b//c.jsonl"
    assert run(s3_server.uri(f"{bucket}/in"), **follow) == ([1, 3], [place])


def test_a_folder_marker_with_content(s3_server: S3Server, bucket: str, put: Put) -> None:
    """Arrow lists its key without the slash, and then finds no object of that name."""
    put("folder.jsonl/", lines(1))
    put("plain.jsonl", lines(2))
    with pytest.raises(DataError, match="key ends in a slash cannot be opened") as raised:
        run(s3_server.uri(bucket))
    assert raised.value.where == f"s3://{bucket}/folder.jsonl"
    assert "credentials" not in str(raised.value)


@pytest.mark.parametrize("reader", [lw.read_parquet, lw.read_csv])
def test_other_formats(reader: Any, s3_server: S3Server, bucket: str, put: Put) -> None:
    table = pa.Table.from_pylist([{"t": 1, "k": "k", "v": 5}])
    made = io.BytesIO()
    suffix = "csv" if reader is lw.read_csv else "parquet"
    write: Any = pa.csv.write_csv if suffix == "csv" else pa.parquet.write_table
    write(table, made)
    for key in ("a//b", "plain", "_hidden//x", "./y"):
        put(f"in/{key}.{suffix}", made.getvalue())
    stream = reader(s3_server.uri(f"{bucket}/in"), time="t", unit="s")
    result = stream.key_by("k").window(lw.GlobalWindow()).aggregate(v=lw.sum("v")).collect()
    assert [pane.value for pane in result.panes] == [5]
    places = [f"s3://{bucket}/in/{key}.{suffix}" for key in ("./y", "a//b")]
    assert sorted(str(error.where) for error in result.errors) == places
    if suffix == "csv":
        put("zero/empty.csv", b"")
        put("zero/plain.csv", made.getvalue())
        stream = reader(s3_server.uri(f"{bucket}/zero"), time="t", unit="s")
        pipeline = stream.key_by("k").window(lw.GlobalWindow()).aggregate(v=lw.sum("v"))
        assert [pane.value for pane in pipeline.collect().panes] == [5]


def test_an_empty_parquet_object_is_named(s3_server: S3Server, bucket: str, put: Put) -> None:
    put("zero/empty.parquet", b"")
    with pytest.raises(DataError) as raised:
        lw.read_parquet(s3_server.uri(f"{bucket}/zero"), time="t").key_by("k")
    assert raised.value.where == f"s3://{bucket}/zero/empty.parquet"
    assert "credentials" not in str(raised.value)


def test_filesystems_of_fsspec_open_what_they_list() -> None:
    """What Arrow's filesystems refuse is no rule of theirs."""
    import fsspec

    fsspec.filesystem("memory").pipe({"/named/a b/[c].jsonl": lines(1)})
    assert run("memory://named") == ([1], [])
    assert all(input_files("memory://named").readable((".jsonl",)))


@pytest.mark.parametrize(
    ("error", "blames"),
    [
        (OSError("AWS Error ACCESS_DENIED during HeadObject operation: No response body."), True),
        (OSError("AWS Error UNKNOWN (HTTP status 403) during GetObject"), True),
        (PermissionError("no"), True),
        (OSError("AWS Error NETWORK_CONNECTION during ListObjectsV2: curlCode: 7"), True),
        (TimeoutError("timed out"), True),
        (pa.ArrowInvalid("Empty path component in path bucket/a//b"), False),
        (OSError("AWS Error INVALID_OBJECT_STATE during GetObject: it is archived"), False),
        (OSError("AWS Error NO_SUCH_KEY during GetObject"), False),
        (ValueError("embedded null byte"), False),
        (OSError("AWS Error SLOW_DOWN during GetObject"), False),
    ],
)
def test_only_errors_of_access_blame_credentials(error: Exception, blames: bool) -> None:
    said = store_failed("s3://bucket/a", error)
    assert ("credentials" in str(said.hint)) == blames
    assert said.where == "s3://bucket/a"
