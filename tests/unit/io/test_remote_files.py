"""Files in object stores are read as local ones are: the same records, positions and refusals."""

from __future__ import annotations

import gzip
import io
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

import lowwater as lw
from lowwater.errors import DataError, InvalidArgument
from lowwater.io import follow
from lowwater.io.input_files import input_files
from lowwater.pipeline import Stream
from lowwater.pipeline.relocation import relocate_state
from tests.examples import is_campaign
from tests.s3_server import S3Server
from tests.unit.engine.local.durable_runs import Stopped, stopping
from tests.unit.engine.local.thirty_runs import rows_of, side_by_side, windows

SECOND = 1_000_000
OPTIONS: dict[str, Any] = {"bundle_size": 7, "commit_every": "bundle", "progress": False}
Rows = list[dict[str, Any]]
Write = Callable[[Rows], bytes]
Reader = Callable[..., Stream]


def parquet(rows: Rows) -> bytes:
    made = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), made)
    return made.getvalue()


def csv(rows: Rows) -> bytes:
    made = io.BytesIO()
    pa_csv.write_csv(pa.Table.from_pylist(rows), made)
    return made.getvalue()


def jsonl(rows: Rows) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


KINDS = [
    pytest.param(lw.read_parquet, parquet, "parquet", id="parquet"),
    pytest.param(lw.read_csv, csv, "csv", id="csv"),
    pytest.param(lw.read_jsonl, jsonl, "jsonl", id="jsonl"),
]


@dataclass(frozen=True)
class Place:
    """A folder somewhere.

    Args:
        filesystem: Where.
        path: The folder's path on it.
        name: What objects in it are called.
        uri: How a user names a path in it.
    """

    filesystem: Any
    path: str
    name: str
    uri: Callable[[str], str]

    def write(self, name: str, data: bytes) -> None:
        if not self.name.startswith("s3:"):  # there are no folders
            self.filesystem.create_dir(f"{self.path}/{name}".rpartition("/")[0], recursive=True)
        with self.filesystem.open_output_stream(f"{self.path}/{name}", compression=None) as file:
            file.write(data)

    def delete(self, name: str) -> None:
        self.filesystem.delete_file(f"{self.path}/{name}")


def memory() -> Place:
    from fsspec.implementations.memory import MemoryFileSystem

    root = f"memory://{uuid4().hex}"
    system = fs.PyFileSystem(fs.FSSpecHandler(MemoryFileSystem()))
    return Place(system, root.removeprefix("memory:/"), root, lambda path: f"{root}/{path}")


@pytest.fixture(
    params=["memory", pytest.param("s3", marks=pytest.mark.long(reason="needs a server"))]
)
def place(request: pytest.FixtureRequest) -> Place:
    if request.param == "memory":
        return memory()
    server: S3Server = request.getfixturevalue("s3_server")
    bucket = server.bucket()
    return Place(
        server.filesystem(), bucket, f"s3://{bucket}", lambda path: server.uri(f"{bucket}/{path}")
    )


def kinds_and_places(*marks: Any) -> list[Any]:
    """Return each format with a place; ``make nightly`` tries all pairs.

    Args:
        marks: Of what is in the server: a server does not see the format.
    """
    return [
        pytest.param(
            *kind.values, where, id=f"{kind.id}-{where}", marks=marks if where == "s3" else ()
        )
        for kind in KINDS
        for where in ("memory", "s3")
        if is_campaign() or where == "memory" or kind.id == "csv"
    ]


PAIRS = kinds_and_places(pytest.mark.long(reason="a server of S3's protocol in Python"))


def rows(*values: int) -> Rows:
    return [{"t": value * SECOND, "k": "a", "v": value} for value in values]


def collected(stream: Stream) -> list[int]:
    """Return the values in the order they were read."""
    windowed = stream.key_by("k").window(lw.GlobalWindow())
    panes = windowed.aggregate(lw.collect("v")).collect().panes
    return list(panes[0].value) if panes else []


def durable(stream: Stream, folder: Path) -> list[int]:
    """Run with a state directory; return what was ever emitted, in order."""
    windowed = stream.key_by(k=lw.lit("k")).window(
        lw.GlobalWindow(), trigger=lw.Repeatedly(lw.AfterCount(1)), accumulation="discarding"
    )
    writing = windowed.aggregate(values=lw.collect("v")).write_jsonl(folder / "out")
    writing.run(state=folder / "state", **OPTIONS)
    return emitted(folder)


def emitted(folder: Path) -> list[int]:
    parts = sorted((folder / "out").glob("part-*.jsonl"))
    lines = [json.loads(line) for part in parts for line in part.read_text().splitlines()]
    return [value for line in lines for value in line["values"]]


# ----------------------------------------------------------------------------------- what is read


@pytest.mark.parametrize(
    ("read", "write", "suffix", "place"), kinds_and_places(), indirect=["place"]
)
def test_objects_folders_and_globs(
    read: Reader, write: Write, suffix: str, place: Place, tmp_path: Path
) -> None:
    for name, value in (("a.b/x", 3), ("a/y", 1), ("a/z", 2), ("_a/x", 99), ("a/.x", 99)):
        place.write(f"in/{name}.{suffix}", write(rows(value)))
    place.write("in/a/notes.txt", b"no data")
    place.write(f"in/odd %20=ü/x.{suffix}", write(rows(4)))
    place.write(f"in/of[2].{suffix}", write(rows(6)))
    (tmp_path / f"local.{suffix}").write_bytes(write(rows(5)))
    for paths, expected in (
        ("in", [1, 2, 3, 4, 6]),
        ("in/", [1, 2, 3, 4, 6]),
        (f"in/a/z.{suffix}", [2]),
        (f"in/a/[yx].{suffix}", [1]),
        (f"in/*/x.{suffix}", [99, 3, 4]),
        (f"in/**/*z.{suffix}", [2]),
        ("in/odd %20=ü", [4]),
        (f"in/of[2].{suffix}", [6]),
        ([f"in/a/z.{suffix}", "in/a", f"in/*/*.{suffix}"], [2, 1, 99, 3, 4]),
    ):
        given = [paths] if isinstance(paths, str) else paths
        assert collected(read([place.uri(one) for one in given], time="t")) == expected, paths
    mixed = [tmp_path, place.uri("in/a")]
    assert collected(read(mixed, time="t")) == [5, 1, 2]
    bare = read(f"{place.path}/in/a", time="t", filesystem=place.filesystem)
    assert collected(bare) == [1, 2]
    assert place.path.strip("/") in repr(bare)


@pytest.mark.parametrize(("read", "write", "suffix"), KINDS[1:])
def test_compressed_objects(read: Reader, write: Write, suffix: str, place: Place) -> None:
    place.write(f"a.{suffix}.gz", gzip.compress(write(rows(*range(100)))))
    assert collected(read(place.uri(""), time="t")) == list(range(100))


def test_dead_letters_name_the_object(place: Place) -> None:
    place.write("in/a.jsonl", b'{"t": 1000000, "k": "a", "v": 1}\nnonsense\n')
    place.write("in/b.csv", b"t,k,v\n1000000,a,1\n1,2\n")
    for read, where in ((lw.read_jsonl, "a.jsonl:2"), (lw.read_csv, "b.csv:3")):
        stream = read(place.uri("in"), time="t").key_by("k").window(lw.GlobalWindow())
        (letter,) = stream.aggregate(lw.count()).collect().errors
        assert letter.where == f"{place.name}/in/{where}"


def test_what_is_not_there(place: Place) -> None:
    place.write("in/rides.csv", csv(rows(1)))
    for path, said in (
        ("in/ride.csv", "there is no file .*Did you mean 'rides.csv'"),
        ("in/*.parquet", "no file matches"),
        ("no/where", "there is no file"),
    ):
        with pytest.raises(InvalidArgument, match=said):
            lw.read_csv(place.uri(path), time="t")
    with pytest.raises(InvalidArgument, match="holds no files that end in"):
        lw.read_parquet(place.uri("in"), time="t")
    broken = f"{place.name}/in/b.parquet"
    place.write("in/b.parquet", b"PAR1 no")
    with pytest.raises(DataError, match="cannot be read as Parquet") as caught:
        lw.read_parquet(place.uri("in"), time="t")
    assert caught.value.where == broken


@pytest.mark.parametrize("options", [{}, {"follow": True}])
def test_a_bucket_that_is_not_there(options: Any, s3_server: S3Server) -> None:
    for path in ("nowhere/in", "nowhere/*.csv"):
        with pytest.raises(InvalidArgument, match="there is no 's3://nowhere'"):
            lw.read_csv(s3_server.uri(path), time="t", **options)


# --------------------------------------------------------------- objects that change, and restarts


@pytest.mark.parametrize(("read", "write", "suffix", "place"), PAIRS, indirect=["place"])
def test_stopped_and_run_again(
    read: Reader, write: Write, suffix: str, place: Place, tmp_path: Path
) -> None:
    for number in range(3):
        place.write(f"in/{number}.{suffix}", write(rows(*range(number * 30, number * 30 + 30))))
    stream = read(place.uri("in"), time="t", clock=lw.ManualClock(0))
    for commits in (2, 5):
        with stopping("before forgetting", commits), pytest.raises(Stopped):
            durable(stream, tmp_path)
    assert durable(stream, tmp_path) == list(range(90))
    assert durable(stream, tmp_path) == list(range(90))
    place.delete(f"in/1.{suffix}")  # read whole, it may go
    assert durable(stream, tmp_path) == list(range(90))


@pytest.mark.parametrize(
    ("number", "read_of_it", "place"),
    [
        pytest.param(number, read, place, id=f"{number}-{place}")
        for number, read in enumerate(["all of it was read", "batch 1 of"])
        for place in ("memory", "s3")
        if is_campaign() or (place == "s3") is (number == 1)
    ],
    indirect=["place"],
)
def test_an_object_that_was_replaced(
    number: int, read_of_it: str, place: Place, tmp_path: Path
) -> None:
    """Within the second in which it was written, and of the same size."""
    former = [jsonl(rows(*range(100 + n * 30, 130 + n * 30))) for n in range(3)]
    for at, data in enumerate(former):
        place.write(f"in/{at}.jsonl", data)
    stream = lw.read_jsonl(place.uri("in"), time="t", clock=lw.ManualClock(0))
    with stopping("before forgetting", 7), pytest.raises(Stopped):
        durable(stream, tmp_path)
    before = emitted(tmp_path)
    assert 30 < len(before) < 60
    place.write(f"in/{number}.jsonl", former[2])
    with pytest.raises(DataError, match=f"was replaced since it was read.*{read_of_it}") as caught:
        durable(stream, tmp_path)
    assert caught.value.where == f"{place.name}/in/{number}.jsonl"
    assert "Put the former file back" in str(caught.value.hint)
    place.write(f"in/{number}.jsonl", former[2][:-1])
    with pytest.raises(DataError, match="bytes when it was read, and now has"):
        durable(stream, tmp_path)
    assert emitted(tmp_path) == before
    place.write(f"in/{number}.jsonl", former[number])
    assert durable(stream, tmp_path) == list(range(100, 190))


def test_an_object_replaced_while_it_is_read_and_then_deleted(place: Place, tmp_path: Path) -> None:
    lines = jsonl(rows(*range(1_000, 1_060)))
    place.write("in/a.jsonl", lines)
    place.write("in/b.jsonl", jsonl(rows(1_060)))
    stream = lw.read_jsonl(place.uri("in"), time="t", clock=lw.ManualClock(0))
    replace = partial(place.write, "in/a.jsonl", lines.replace(b"1", b"2"))
    with (
        stopping("after the write", 2, replace),
        pytest.raises(DataError, match="was replaced since"),
    ):
        durable(stream, tmp_path)
    place.delete("in/a.jsonl")
    with pytest.raises(DataError, match="vanished while it was being read"):
        durable(stream, tmp_path)
    place.write("in/a.jsonl", lines)
    assert durable(stream, tmp_path) == list(range(1_000, 1_061))


# -------------------------------------------------------------------------------------- following


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """Return a list of what happens at each wait; then nothing does."""
    actions: list[Callable[[], object]] = []
    monkeypatch.setattr(follow, "wait", lambda _: actions.pop(0)() if actions else None)
    monkeypatch.setattr(follow, "stopwatch", lambda: 0.0)
    return actions


@pytest.mark.parametrize(("read", "write", "suffix", "place"), PAIRS, indirect=["place"])
@pytest.mark.parametrize("begin", ["empty", "object"] if is_campaign() else ["empty"])
def test_new_objects_are_read_as_they_appear(
    read: Reader,
    write: Write,
    suffix: str,
    begin: str,
    place: Place,
    waits: list[Callable[[], object]],
) -> None:
    place.write("elsewhere", b"")  # for a bucket in memory to be there
    if begin == "object":
        place.write(f"in/x.{suffix}", write(rows(1)))

    def two() -> None:
        place.write(f"in/y.{suffix}", write(rows(3)))
        place.write(f"in/b.{suffix}", write(rows(2)))
        place.write(f"in/.hidden.{suffix}", write(rows(99)))

    waits += [
        two,
        lambda: place.write(f"in/e.{suffix}", b""),
        lambda: place.write(f"in/e.{suffix}", write(rows(4))),
    ]
    stream = read(place.uri("in"), time="t", follow=True, max_idle="3s")
    assert collected(stream) == [1, 2, 3, 4][begin == "empty" :]


def test_an_object_replaced_after_it_was_read(
    place: Place, waits: list[Callable[[], object]], tmp_path: Path
) -> None:
    place.write("in/a.jsonl", jsonl(rows(1)))
    waits.append(lambda: place.write("in/a.jsonl", jsonl(rows(2))))
    stream = lw.read_jsonl(place.uri("in"), time="t", follow=True, max_idle="3s")
    with pytest.raises(DataError, match=r"was replaced since it was read.*all of it was read"):
        durable(stream, tmp_path)


# -------------------------------------------------------------------------- stores that do not work


class Flaky(fs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """A filesystem of another one that fails once, at some operation; and counts what is read.

    Args:
        of: The other one.
        fails_at: The number of the operation, or none.
    """

    def __init__(self, of: Any, fails_at: int | None = None) -> None:
        self.operations = self.read_bytes = self.listings = 0
        self._of = of
        self._fails_at = fails_at

    def passed(self) -> None:
        self.operations += 1
        if self.operations == self._fails_at:
            raise OSError("the line is dead")

    def get_type_name(self) -> str:
        return "flaky"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> Any:
        self.passed()
        return self._of.get_file_info(paths)

    def get_file_info_selector(self, selector: Any) -> Any:
        self.passed()
        self.listings += 1
        return self._of.get_file_info(selector)

    def open_input_file(self, path: str) -> Any:
        self.passed()
        return pa.PythonFile(_Opened(self, self._of.open_input_file(path)), mode="r")

    def _unused(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    open_input_stream = open_output_stream = open_append_stream = create_dir = _unused
    delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = _unused
    move = copy_file = _unused


class _Opened:
    def __init__(self, handler: Flaky, file: Any) -> None:
        self._handler = handler
        self._file = file
        self.closed = False

    def read(self, size: int | None = None) -> bytes:
        self._handler.passed()
        data: bytes = self._file.read(size)
        self._handler.read_bytes += len(data)
        return data

    def seek(self, *where: int) -> int:
        return int(self._file.seek(*where))

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(("read", "write", "suffix"), KINDS)
def test_a_store_that_fails_once_at_any_operation(
    read: Reader, write: Write, suffix: str, tmp_path: Path
) -> None:
    """The run ends with an error that names the object; and the next one goes on there."""
    disk = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    (tmp_path / "in").mkdir()
    for number in range(2):
        data = write(rows(*range(number * 20, number * 20 + 20)))
        (tmp_path / f"in/{number}.{suffix}").write_bytes(data)
        os.utime(tmp_path / f"in/{number}.{suffix}", (1e9, 1e9))  # settled

    def run(folder: Path, fails_at: int | None = None) -> Flaky:
        handler = Flaky(disk, fails_at)
        options: Any = {"time": "t", "filesystem": fs.PyFileSystem(handler)}
        found = durable(read("in", clock=lw.ManualClock(0), **options), folder)
        assert found == list(range(40))
        return handler

    whole = run(tmp_path / "whole")
    for number in range(1, whole.operations + 1, 1 if is_campaign() else 19):
        folder = tmp_path / str(number)
        with pytest.raises(DataError, match="the store failed: OSError: the line is dead") as fails:
            run(folder, number)
        assert str(fails.value.where).startswith("flaky://in"), number
        run(folder)


@pytest.mark.parametrize(("read", "write", "suffix"), KINDS)
def test_a_folder_is_listed_a_few_times(
    read: Reader, write: Write, suffix: str, tmp_path: Path
) -> None:
    """Stores charge for it: when the reader is made, at the start and at the end of a run."""
    disk = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    (tmp_path / "in").mkdir()
    for number in range(3):
        data = write(rows(*range(number * 20, number * 20 + 20)))
        (tmp_path / f"in/{number}.{suffix}").write_bytes(data)
    handler = Flaky(disk)
    system: Any = fs.PyFileSystem(handler)
    stream = read("in", time="t", clock=lw.ManualClock(0), filesystem=system)
    assert handler.listings == 1
    with stopping("before forgetting", 5), pytest.raises(Stopped):
        durable(stream, tmp_path)
    # What columns there are is looked up when the run begins, but for CSV, where one file says it.
    assert handler.listings == (2 if suffix == "csv" else 3)
    handler.listings = 0
    assert durable(stream, tmp_path) == list(range(60))
    assert handler.listings == 2


@pytest.mark.parametrize(("read", "write", "suffix"), KINDS)
def test_folders_of_a_store_name_columns_and_say_what_is_left_out(
    read: Reader, write: Write, suffix: str, tmp_path: Path
) -> None:
    disk = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    for city in ("Bonn", "Ulm"):
        (tmp_path / f"in/city={city}").mkdir(parents=True)
        (tmp_path / f"in/city={city}/a.{suffix}").write_bytes(write(rows(1, 2)))
    (tmp_path / f"in/city=Ulm/B.{suffix.upper()}").write_bytes(b"")
    system: Any = fs.PyFileSystem(Flaky(disk))
    with pytest.warns(
        lw.DataWarning, match=rf"not read in the folder .*in': 'city=Ulm/B.{suffix.upper()}"
    ):
        stream = read("in", time="t", filesystem=system)
    panes = (
        stream.key_by("city").window(lw.FixedWindows("1h")).aggregate(n=lw.count())
        .collect(progress=False).panes
    )  # fmt: skip
    assert {pane.key: pane.values["n"] for pane in panes} == {"Bonn": 2, "Ulm": 2}


def test_only_what_is_wanted_of_parquet_is_fetched(tmp_path: Path) -> None:
    wide = pa.table({"t": range(20_000)} | {f"c{n}": [n * 0.1] * 20_000 for n in range(9)})
    wide = wide.append_column("v", pa.array([uuid4().hex for _ in range(20_000)]))
    pq.write_table(wide, tmp_path / "a.parquet", row_group_size=2_000, use_dictionary=False)
    disk = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    read: dict[str, int] = {}
    for name, columns in (("some", ["c1"]), ("all", None)):
        handler = Flaky(disk)
        system: Any = fs.PyFileSystem(handler)
        stream = lw.read_parquet(
            "a.parquet", time="t", columns=columns, unit="us", filesystem=system
        )
        counted = stream.key_by("c1").window(lw.GlobalWindow()).aggregate(lw.count())
        assert counted.collect().panes[0].value == 20_000
        read[name] = handler.read_bytes
    size = (tmp_path / "a.parquet").stat().st_size
    assert read["some"] < 0.5 * size < 0.9 * size < read["all"]


def test_an_endpoint_that_does_not_answer(s3_server: S3Server) -> None:
    dead = fs.S3FileSystem(
        endpoint_override="127.0.0.1:9",
        scheme="http",
        region="us-east-1",
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=1),
    )
    with pytest.raises(DataError, match=r"the store failed.*connect") as caught:
        lw.read_csv("s3://bucket/in", time="t", filesystem=dead)
    assert caught.value.where == "s3://bucket/in"
    assert "credentials" in str(caught.value.hint)


# ------------------------------------------------------------------------------------------- names


def test_credentials_are_neither_shown_nor_stored(s3_server: S3Server, tmp_path: Path) -> None:
    bucket = s3_server.bucket()
    uri = s3_server.uri(f"{bucket}/in").replace("://", "://key-id:%24ecret@")
    filesystem = s3_server.filesystem()
    with filesystem.open_output_stream(f"{bucket}/in/a.jsonl") as file:
        file.write(jsonl(rows(*range(50))))
    stream = lw.read_jsonl(uri, time="t", clock=lw.ManualClock(0))
    with stopping("before forgetting", 4), pytest.raises(Stopped):
        durable(stream, tmp_path)
    again = s3_server.uri(f"{bucket}/in")  # with the credentials of the environment
    assert durable(lw.read_jsonl(again, time="t", clock=lw.ManualClock(0)), tmp_path) == list(
        range(50)
    )
    kept = b"".join(one.read_bytes() for one in tmp_path.rglob("*") if one.is_file())
    said = [repr(stream), repr(stream.key_by("k"))]
    for wrong in ("in/b", "no/*.x"):
        with pytest.raises(InvalidArgument) as caught:
            lw.read_jsonl(uri.replace("/in?", f"/{wrong}?"), time="t")
        said.append(str(caught.value))
    with pytest.raises(InvalidArgument, match="cannot be opened") as caught:
        lw.read_jsonl("s3://key-id:a/$ecret@bucket/in?nonsense=$ecret", time="t")
    said.append(str(caught.value))
    with pytest.raises(InvalidArgument, match="Unexpected query parameter") as caught:
        lw.read_jsonl("s3://key-id:$ecret@bucket/in?nonsense=$ecret", time="t")
    said.append(str(caught.value))
    for secret in ("key-id", "ecret", "endpoint_override"):
        assert secret.encode() not in kept
        assert not [one for one in said if secret in one]


def test_two_stores_of_one_name(s3_server: S3Server) -> None:
    one, other = "s3://b/x?region=us-east-1", "s3a://b/y?region=eu-west-1"
    with pytest.raises(InvalidArgument, match="name 's3://b' with other credentials or options"):
        lw.read_csv([one, other], time="t")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("nowhere://bucket/a.csv", "neither Arrow nor fsspec"),
        ("memory://bucket/a.csv?key=1", "has options .* which only Arrow's"),
        (Path("s3://bucket/a"), r"one slash.*Give it as text: 's3://bucket/a'"),
        ("file:///data/a.csv", "Write '/data/a.csv'"),
        ("simplecache::s3://bucket/a.csv", "is a chain of filesystems"),
        ("s3://bucket/out/../a.csv?region=eu-west-1", r"'s3://bucket/out/\.\./a.csv' has '\.\.'"),
    ],
)
def test_paths_that_lead_nowhere(path: Any, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        lw.read_csv(path, time="t")


def test_filesystems_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"filesystem='s3' \(str\) is not a filesystem"):
        lw.read_csv("a.csv", time="t", filesystem="s3")
    (tmp_path / "a.csv").write_bytes(csv(rows(1)))
    for local in (fs.LocalFileSystem(), _fsspec("file")):
        assert collected(lw.read_csv(tmp_path, time="t", filesystem=local)) == [1]
    (place := memory()).write("a.csv", csv(rows(1)))
    assert collected(lw.read_csv(place.uri("*"), time="t", filesystem=_fsspec("memory"))) == [1]


def _fsspec(name: str) -> Any:
    import fsspec

    return fsspec.filesystem(name)


def test_a_log_is_read_where_it_is(s3_server: S3Server) -> None:
    with pytest.raises(InvalidArgument, match="only local files"):
        lw.read_log(s3_server.uri("bucket/log"), time="t")


@pytest.mark.parametrize(
    ("paths", "name", "matches"),
    [
        ("s3://b/in", "s3://b/in/x/new.csv", True),
        ("s3://b/in", "s3://b/in2/new.csv", False),
        ("s3://b/in", "s3://b/in/_x/new.csv", False),
        ("s3://b/in", "s3://b/in/new.txt", False),
        ("s3://b", "s3://b/new.csv", True),
        ("s3://b/in/*.csv", "s3://b/in/new.csv", True),
        ("s3://b/in/*.csv", "s3://b/in/x/new.csv", False),
        ("s3://b/in/**", "s3://b/in/x/new.csv", True),
        ("s3://b/in", "in/new.csv", False),
        ("in", "s3://b/in/new.csv", False),
    ],
)
def test_what_would_be_read(paths: str, name: str, matches: bool, s3_server: S3Server) -> None:
    files = input_files(f"{paths}?region=us-east-1" if "://" in paths else paths)
    assert files.would_match((".csv",), name) is matches


@contextmanager
def _stopped() -> Iterator[None]:
    with stopping("before forgetting", 4), pytest.raises(Stopped):
        yield


def test_inputs_that_were_moved_to_a_store(place: Place, tmp_path: Path) -> None:
    """What was local is compared by its checksum: a store knows no other name for it."""
    data = [jsonl(rows(*range(n * 30, n * 30 + 30))) for n in range(2)]
    (tmp_path / "in").mkdir()
    for number, one in enumerate(data):
        (tmp_path / f"in/{number}.jsonl").write_bytes(one)
    with _stopped():
        durable(lw.read_jsonl(tmp_path / "in", time="t", clock=lw.ManualClock(0)), tmp_path)
    state, new = tmp_path / "state", place.uri("moved/in")
    with pytest.raises(InvalidArgument, match="there is nothing at") as caught:
        relocate_state(state, tmp_path / "in", new)
    assert "endpoint_override" not in str(caught.value)
    for number in range(2):
        place.write(f"moved/in/{number}.jsonl", data[1])
    assert relocate_state(state, tmp_path / "in", new) == {
        str(tmp_path / "in"): f"{place.name}/moved/in"
    }
    stream = lw.read_jsonl(new, time="t", clock=lw.ManualClock(0))
    with pytest.raises(DataError, match=r"(was replaced|now has)"):
        durable(stream, tmp_path)
    place.write("moved/in/0.jsonl", data[0])
    assert durable(stream, tmp_path) == list(range(60))


@pytest.mark.parametrize(
    "place",
    ["memory", pytest.param("s3", marks=pytest.mark.long(reason="needs a server"))],
    indirect=True,
)
def test_runs_with_kills_write_what_one_run_that_follows_writes(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In as many rounds as there are places to be killed, each for the first three times."""
    looks = threading.Semaphore(0)  # one for each round: no object is seen half written
    monkeypatch.setattr(follow, "wait", lambda _: looks.acquire())

    def written(which: str, folder: Path) -> Any:
        stream = lw.read_jsonl(
            place.uri(""), time="t", unit="us", filesystem=place.filesystem,
            watermark=lw.BoundedDisorder("5s"), clock=lw.ManualClock(0), follow=which == "one",
        )  # fmt: skip
        return windows(stream).write_jsonl(folder)

    def add(number: int) -> int:
        rows = rows_of(number)
        place.write(f"{number:03}.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())
        looks.release()
        return len(rows)

    place.write("none.txt", b"")  # so that the folder is there
    one, many = side_by_side(tmp_path, written, add, rounds=12, wake=looks.release)
    assert many == one
    assert len(one["part"]) > 5
    assert one["late"]


@pytest.mark.parametrize(("read", "write", "suffix", "place"), PAIRS, indirect=["place"])
def test_runs_up_to_what_is_there(
    read: Reader, write: Write, suffix: str, place: Place, tmp_path: Path
) -> None:
    for turn in range(3):
        place.write(f"{turn}.{suffix}", write(rows(*range(turn * 10, turn * 10 + 10))))
        stream = read(
            place.uri(""), time="t", filesystem=place.filesystem, watermark=lw.Ascending()
        )
        panes = stream.key_by("k").window(lw.FixedWindows("7s")).aggregate(values=lw.collect("v"))
        written = panes.write_jsonl(tmp_path / "out")
        metrics = written.run(state=tmp_path / "state", until="available", **OPTIONS)
        assert metrics.events == 10 * (turn + 1)
    assert emitted(tmp_path) == list(range(28))
