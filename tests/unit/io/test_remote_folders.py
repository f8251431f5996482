"""Folders of output in remote stores: as local ones, without rename and without locks."""

from __future__ import annotations

import gc
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Protocol, final
from unittest import mock

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

import lowwater as lw
from lowwater.engine.graph.sources import Source
from lowwater.engine.local.pieces import place_names
from lowwater.errors import DataError, InvalidArgument, StateError
from lowwater.io.input_files import input_files
from lowwater.io.jsonl import JsonLinesSource
from lowwater.io.parquet import ParquetSource
from lowwater.io.sinks import (
    Compaction,
    JsonLinesFile,
    JsonLinesFolder,
    ParquetFolder,
    object_stores,
    remote_folder,
)
from lowwater.io.sinks.object_stores import ObjectStore, store_at
from lowwater.io.sinks.sink_conflicts import check_conflicts, check_inputs
from lowwater.pipeline.outputs import _dead_letters_in
from lowwater.pipeline.relocation import relocate_state
from tests.examples import is_campaign, sampled
from tests.paths import ROOT
from tests.unit.engine.local.durable_runs import Stopped, pipeline, stopping, write_files
from tests.unit.io.deliveries import (
    ANOTHER,
    NEXT_RUN,
    RUN,
    WRITER,
    Killed,
    Moments,
    deliver_all,
    files_in,
    message_of,
    with_everything,
)
from tests.unit.io.deliveries import encoded_once as encoded_once  # a fixture
from tests.unit.io.watched_s3 import S3, running_s3

pytestmark = pytest.mark.usefixtures("encoded_once")

DELIVERIES = [with_everything(epoch, add=epoch) for epoch in range(1, 6)]
FIRST, SECOND = DELIVERIES[:2]
Folder = type[ParquetFolder] | type[JsonLinesFolder]
BOTH = pytest.mark.parametrize("folder", [ParquetFolder, JsonLinesFolder])
NEVER = Compaction(size="1GB", age="1000d")
SMALL = Compaction(size=6_000, age="1000d")
MARKER = ".lowwater.json"
_numbers = count()


class Store(Protocol):
    """A remote store, seen from a test."""

    def uri(self, folder: str) -> str:
        """Return the URI of a folder."""

    def objects(self, folder: str) -> dict[str, bytes]:
        """Return all that is in a folder, and below it."""

    def write(self, path: str, data: bytes) -> None:
        """Write a file as another program would."""


@final
@dataclass
class Memory:
    """What fsspec keeps in the memory of this process."""

    place: str = field(default_factory=lambda: f"place-{next(_numbers)}")

    def uri(self, folder: str) -> str:
        return f"memory://{self.place}/{folder}"

    def objects(self, folder: str) -> dict[str, bytes]:
        filesystem = fsspec.filesystem("memory")
        root = f"/{self.place}/{folder}"
        return {name[len(root) + 1 :]: filesystem.cat(name) for name in filesystem.find(root)}

    def write(self, path: str, data: bytes) -> None:
        fsspec.filesystem("memory").pipe_file(f"/{self.place}/{path}", data)


class Moving(LocalFileSystem):  # type: ignore[misc]  # fsspec is not typed
    """A filesystem of a user's own, which shows files while they are written but can move them."""

    protocol: ClassVar[str] = "moving"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        stripped: str = LocalFileSystem._strip_protocol(path.replace("moving://", "file://"))
        return stripped


class Copying(MemoryFileSystem):  # type: ignore[misc]  # fsspec is not typed
    """A filesystem of a user's own, of which nothing is known."""

    protocol: ClassVar[str] = "copying"


@final
@dataclass
class Moved:
    """Local files, behind fsspec."""

    place: Path

    def uri(self, folder: str) -> str:
        return f"moving://{self.place}/{folder}"

    def objects(self, folder: str) -> dict[str, bytes]:
        root = self.place / folder
        return {
            str(path.relative_to(root)): path.read_bytes()
            for path in root.rglob("*")
            if path.is_file()
        }

    def write(self, path: str, data: bytes) -> None:
        (self.place / path).write_bytes(data)


@final
@dataclass
class InS3:
    """A folder of the server."""

    s3: S3
    place: str = field(default_factory=lambda: f"place-{next(_numbers)}")

    def uri(self, folder: str) -> str:
        return self.s3.uri(f"{self.place}/{folder}")

    def objects(self, folder: str) -> dict[str, bytes]:
        return self.s3.objects(f"{self.place}/{folder}")

    def write(self, path: str, data: bytes) -> None:
        store, root = store_at(self.s3.uri(self.place))
        store.put(f"{root}/{path}", data)


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with running_s3() as server:
        yield server


@pytest.fixture(
    params=["memory", "moving", pytest.param("s3", marks=pytest.mark.long(reason="needs a server"))]
)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    match request.param:
        case "memory":
            return Memory()
        case "moving":
            fsspec.register_implementation("moving", Moving, clobber=True)
            return Moved(tmp_path / "moving")
        case _:
            return InS3(request.getfixturevalue("s3"))


def visible(store: Store, folder: str) -> dict[str, bytes]:
    """Return what a reader of a folder sees."""
    found = store.objects(folder)
    return {name: data for name, data in found.items() if not name.startswith(".")}


@pytest.mark.parametrize(
    ("folder", "compact", "store"),
    [
        pytest.param(
            *kind,
            store,
            marks=[pytest.mark.long(reason="needs a server")] * (store == "s3" and number > 0),
        )
        for store in ("memory", "moving", "s3")
        for number, kind in enumerate(
            [
                (ParquetFolder, None),
                (JsonLinesFolder, None),
                (ParquetFolder, SMALL),
                (JsonLinesFolder, NEVER),
            ]
        )
    ],
    indirect=["store"],
)
def test_the_files_are_those_of_a_local_folder(
    folder: Folder, compact: Compaction | None, store: Store, tmp_path: Path
) -> None:
    """Byte for byte, and nothing else; a run that comes again changes nothing."""
    local = tmp_path / "local"
    for deliveries in (DELIVERIES[:3], DELIVERIES[2:]):  # the third one comes again
        deliver_all(folder(str(local), compact=compact), deliveries)
        deliver_all(folder(store.uri("out"), compact=compact), deliveries)
        assert visible(store, "out") == files_in(local)
    hidden = {name for name in store.objects("out") if name.startswith(".")}
    assert hidden == {MARKER}
    assert store.objects("out")[MARKER] == (local / MARKER).read_bytes()


def test_a_path_is_taken_as_it_is_written(s3: S3) -> None:
    """As readers take it."""
    store = InS3(s3)
    deliver_all(JsonLinesFolder(store.uri("a%20b#1+é")), [FIRST])
    assert len(visible(store, "a%20b#1+é")) == 3


def test_the_output_of_others_is_refused_or_replaced(store: Store) -> None:
    """Replaced is what a sink wrote, and nothing else."""
    deliver_all(ParquetFolder(store.uri("out")), [FIRST])
    before = store.objects("out")
    with pytest.raises(StateError, match=r"another state directory.*overwrite=True"):
        ParquetFolder(store.uri("out")).open(ANOTHER)
    with pytest.raises(StateError, match="holds output 0 of this run, and this is output 1"):
        ParquetFolder(store.uri("out")).open(replace(WRITER, output=1))
    with pytest.raises(StateError, match="holds epoch 1 of this state"):
        ParquetFolder(store.uri("out")).open(replace(WRITER, epoch=0))
    with pytest.raises(StateError, match="a folder of its own"):
        JsonLinesFolder(store.uri("out")).open(WRITER)
    assert store.objects("out") == before
    store.write("out/notes.txt", b"mine")
    deliver_all(ParquetFolder(store.uri("out"), overwrite=True), [SECOND], ANOTHER)
    deliver_all(ParquetFolder(store.uri("alone")), [SECOND], ANOTHER)
    assert store.objects("out") == store.objects("alone") | {"notes.txt": b"mine"}
    store.write("out/part-mine.parquet", b"mine")
    with pytest.raises(StateError, match=r"already holds 'part-mine.parquet'"):
        ParquetFolder(store.uri("out"), overwrite=True).open(NEXT_RUN)


def test_a_run_that_fails(store: Store) -> None:
    """Without a state directory it leaves what it published, marked; or nothing at all."""
    for delivers in (False, True):
        sink = JsonLinesFolder(store.uri("out"))
        sink.open(RUN)
        if delivers:
            sink.deliver(FIRST)
        sink.close(complete=False)
        assert bool(store.objects("out")) == delivers
    assert json.loads(store.objects("out")[MARKER])["complete"] is False
    with pytest.raises(StateError, match="another run, which did not complete"):
        JsonLinesFolder(store.uri("out")).open(NEXT_RUN)


def test_the_later_of_two_live_runs_has_the_folder(store: Store) -> None:
    """There is no lock: the earlier one finds out before its next delivery."""
    sink = JsonLinesFolder(store.uri("out"))
    sink.open(RUN)
    sink.deliver(FIRST)
    deliver_all(JsonLinesFolder(store.uri("out"), overwrite=True), [SECOND], NEXT_RUN)
    before = store.objects("out")
    with pytest.raises(StateError, match="taken over by another run"):
        sink.deliver(DELIVERIES[2])
    sink.close(complete=False)
    assert store.objects("out") == before


@pytest.mark.parametrize("store", ["memory", "moving", "s3"], indirect=True)
def test_a_file_is_no_folder(store: Store) -> None:
    deliver_all(JsonLinesFolder(store.uri("out")), [FIRST])
    for folder in (ParquetFolder, JsonLinesFolder):
        with pytest.raises(InvalidArgument, match="is a file, but output goes into a folder"):
            folder(store.uri(f"out/part-{FIRST.id}.jsonl")).open(WRITER)


@contextmanager
def dying(at: int, *, after: bool, look: Callable[[], object]) -> Iterator[Moments]:
    """Let the process die at the ``at``-th change of a store; look at the store around each."""
    moments = Moments(at, Killed, after=after)

    def looking(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any) -> Any:
            look()
            answer = function(*args)
            look()
            return answer

        return called

    def mortal(uri: str) -> tuple[ObjectStore, str]:
        store, path = store_at(uri)
        found: Any = mock.Mock(spec=["entries", "read", "put", "delete"])
        found.entries, found.read = store.entries, store.read
        found.put = moments.around(looking(store.put))
        found.delete = moments.around(looking(store.delete))
        return found, path

    with mock.patch.object(remote_folder, "store_at", mortal):
        yield moments


def rows_of(files: dict[str, bytes]) -> dict[str, list[bytes]]:
    """Return the lines of the files of each kind, in the order of the names."""
    found: dict[str, list[bytes]] = {"part": [], "late": [], "errors": []}
    for name, data in sorted(files.items()):
        found[name.split("-")[0]] += data.splitlines()
    return found


@pytest.mark.slow(reason="needs a server")
@pytest.mark.parametrize(("compact", "after"), [(None, False), (SMALL, True)])
def test_death_at_any_instant(compact: Compaction | None, after: bool) -> None:
    """No object is ever there in part or changes, no row is there twice, and none is lost."""
    store = Memory()
    deliveries = DELIVERIES[:3]
    deliver_all(JsonLinesFolder(store.uri("whole")), deliveries)
    whole = visible(store, "whole")
    for at in count():
        seen: dict[str, bytes] = {}

        def look(folder: str = str(at), seen: dict[str, bytes] = seen) -> None:
            now = visible(store, folder)
            assert all(seen.get(name, data) == data for name, data in now.items())
            assert seen.keys() <= now.keys()
            seen.update(now)
            if compact is None:
                assert now.items() <= whole.items()
            for kind, rows in rows_of(now).items():
                assert rows == rows_of(whole)[kind][: len(rows)]

        with dying(at, after=after, look=look) as moments:
            try:
                deliver_all(JsonLinesFolder(store.uri(str(at)), compact=compact), deliveries[:2])
            except Killed:
                pass
        if not moments.reached:
            break
        with dying(1_000_000, after=False, look=look):
            deliver_all(JsonLinesFolder(store.uri(str(at)), compact=compact), deliveries)
        assert rows_of(visible(store, str(at))) == rows_of(whole)
        if compact is None:
            assert visible(store, str(at)) == whole
        assert {name for name in store.objects(str(at)) if name.startswith(".")} == {MARKER}
    assert at > 7


@pytest.mark.slow(reason="needs a server")
@pytest.mark.parametrize("after", [False, True])
def test_death_while_it_replaces(after: bool) -> None:
    """The two runs never mix, and what was half removed does not say that it is complete."""
    store = Memory()
    deliver_all(ParquetFolder(store.uri("whole")), [SECOND])
    wanted = visible(store, "whole")
    for at in count():
        out = str(at)
        deliver_all(ParquetFolder(store.uri(out)), [FIRST], RUN)
        old = visible(store, out)
        with dying(at, after=after, look=lambda: None) as moments:
            try:
                deliver_all(ParquetFolder(store.uri(out), overwrite=True), [SECOND])
            except Killed:
                pass
        if not moments.reached:
            break
        seen = visible(store, out)
        assert seen.items() <= old.items() or seen.items() <= wanted.items()
        owner = json.loads(store.objects(out)[MARKER])
        if owner["complete"]:
            assert seen == (old if owner["writer"] == RUN.id else wanted)
        deliver_all(ParquetFolder(store.uri(out), overwrite=True), [SECOND])
        assert visible(store, out) == wanted
    assert at > 7


def test_what_a_dead_process_sent_arrives_late() -> None:
    """The next one has delivered and published it by then: it is not published again."""
    store = Memory()
    sink = JsonLinesFolder(store.uri("out"), compact=NEVER)
    sink.open(WRITER)
    sink.deliver(FIRST)
    waiting = store.objects("out")
    deliver_all(JsonLinesFolder(store.uri("out"), compact=NEVER), [FIRST], complete=False)
    sink = JsonLinesFolder(store.uri("out"), compact=NEVER)
    sink.open(WRITER)
    for name, data in waiting.items():
        if name.startswith(".pending/"):
            store.write(f"out/{name}", data)
    sink.deliver(SECOND)
    sink.close(complete=True)
    deliver_all(JsonLinesFolder(store.uri("whole")), [FIRST, SECOND])
    assert rows_of(visible(store, "out")) == rows_of(visible(store, "whole"))
    assert not any(name.startswith(".pending") for name in store.objects("out"))


@pytest.mark.parametrize("name", ["pipe_file", "mv"])
@pytest.mark.parametrize("after", [False, True])
def test_a_store_that_shows_half_a_file(name: str, after: bool, tmp_path: Path) -> None:
    """What a dead process was writing has another name until it is whole, and is removed later."""
    fsspec.register_implementation("moving", Moving, clobber=True)
    store = Moved(tmp_path)
    deliver_all(JsonLinesFolder(store.uri("whole")), [FIRST])
    whole = visible(store, "whole")
    for at in count():
        moments = Moments(at, Killed, after=after)
        with mock.patch.object(Moving, name, moments.around(getattr(Moving, name))):
            try:
                deliver_all(JsonLinesFolder(store.uri(str(at))), [FIRST])
            except Killed:
                pass
        assert visible(store, str(at)).items() <= whole.items()
        if not moments.reached:
            break
        deliver_all(JsonLinesFolder(store.uri(str(at))), [FIRST])
        assert visible(store, str(at)) == whole
        assert not [one for one in store.objects(str(at)) if one.startswith(".staging")]
    assert at > 3


@pytest.mark.parametrize(
    ("size", "failing"),
    [
        (10, "PUT"),
        *sampled(
            [pytest.param(12 << 20, f) for f in ("partNumber=2&", "POST", "partNumber=1&")], 3
        ),
    ],
)
def test_an_upload_that_fails_leaves_nothing(size: int, failing: str, s3: S3) -> None:
    """Also once the stream is gone: what closes it would complete the upload."""
    store = InS3(s3)
    opened, path = store_at(store.uri("out"))
    with (
        mock.patch.object(s3, "fails", lambda method, path: failing in f"{method} {path}"),
        pytest.raises(DataError, match=r"credentials.*with a state directory nothing is lost"),
    ):
        opened.put(f"{path}/part", b"x" * size)
    gc.collect()
    assert store.objects("out") == {}
    opened.put(f"{path}/part", b"x" * size)
    assert [len(one) for one in store.objects("out").values()] == [size]
    assert [*map(len, s3.versions[f"{store.place}/out/part"])] == [size]


_UPLOAD = """
import sys
from lowwater.io.sinks.object_stores import store_at
store, path = store_at(sys.argv[1])
store.put(f"{path}/part", b"x" * (12 << 20))
"""


@pytest.mark.slow(reason="needs a server")
@pytest.mark.parametrize("amid", ["POST .*uploadId=", *["partNumber=2&"] * is_campaign()])
def test_death_amid_an_upload_in_parts(amid: str, s3: S3) -> None:
    """Before the last part, and before all parts become an object."""
    store = InS3(s3)
    child = subprocess.Popen([sys.executable, "-c", _UPLOAD, store.uri("out")], cwd=ROOT)

    def dies(method: str, path: str) -> bool:
        is_due = re.search(amid, f"{method} {path}") is not None
        if is_due:
            child.kill()
        return is_due

    with mock.patch.object(s3, "fails", dies):
        assert child.wait() == -signal.SIGKILL
    assert store.objects("out") == {}
    deliver_all(JsonLinesFolder(store.uri("out")), [FIRST])
    assert len(visible(store, "out")) == 3


def test_control_c_amid_an_upload(s3: S3) -> None:
    """It waits: an object is there whole, or not at all."""
    store = InS3(s3)
    opened, path = store_at(store.uri("out"))
    submit = ThreadPoolExecutor.submit

    def interrupted(*args: Any) -> Any:
        submit(*args)
        raise KeyboardInterrupt

    with (
        mock.patch.object(ThreadPoolExecutor, "submit", interrupted),
        pytest.raises(KeyboardInterrupt),
    ):
        opened.put(f"{path}/part", b"whole")
    assert store.objects("out") == {"part": b"whole"}


def test_the_store_refuses_amid_a_delivery(s3: S3) -> None:
    """It is said, and the same sink can go on."""
    store = InS3(s3)
    deliver_all(ParquetFolder(store.uri("whole")), [FIRST])
    whole = visible(store, "whole")
    for name in ("errors-", "late-", "part-", MARKER):
        sink = ParquetFolder(store.uri(name))
        sink.open(WRITER)
        with mock.patch.object(s3, "fails", lambda method, path, name=name: f"/{name}" in path[9:]):
            said = message_of(sink, FIRST)
        assert said is not None
        assert "Give this process credentials" in said
        assert visible(store, name).items() < whole.items()
        sink.deliver(FIRST)
        assert visible(store, name) == whole
        sink.close(complete=True)


def test_no_bucket(s3: S3) -> None:
    with pytest.raises(DataError, match=r"'s3://nowhere/out' cannot be .*Make the bucket"):
        ParquetFolder(s3.uri("out", bucket="nowhere")).open(WRITER)


@pytest.mark.parametrize("silent", [False, True])
def test_a_server_that_does_not_answer(silent: bool, s3: S3) -> None:
    """It is said after some attempts: nobody waits for minutes."""
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))
        if silent:
            dead.listen()
        port = dead.getsockname()[1]
        uri = f"s3://bucket/out?endpoint_override=127.0.0.1%3A{port}&scheme=http&region=us-east-1"
        with (
            mock.patch.multiple(object_stores, _ATTEMPTS=1, _SILENT_S=0.1),
            pytest.raises(DataError, match=r"NETWORK_CONNECTION.*this machine reaches the store"),
        ):
            ParquetFolder(uri).open(WRITER)


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("s3://key:secret@bucket/out", "'s3://bucket/out' holds a password"),
        ("s3://", "names no place in a store"),
        ("s3://bucket/out/../in", r"has '\.\.' as a part"),
        ("s3a://bucket/./out?region=eu-west-1", r"'s3://bucket/\./out' has '\.' as a part"),
        ("s3://bucket/out//in", "two slashes in a row"),
        ("simplecache::s3://bucket/out", "is a chain of filesystems"),
        ("file:///out", "Write '/out'"),
    ],
)
@BOTH
def test_what_is_no_place(folder: Folder, uri: str, says: str) -> None:
    with pytest.raises(InvalidArgument, match=says) as caught:
        folder(uri)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("hdfs://host/out", r"\(hdfs\) where a reader could see half a file"),
        ("copying://out", r"\(copying\) where a reader could see half a file"),
        ("unheard-of://out", "neither Arrow nor fsspec can open it: Protocol not known"),
        ("local:///out", "is on this machine, not in a store. Write '/out'"),
    ],
)
def test_where_files_would_not_appear_whole(uri: str, says: str) -> None:
    fsspec.register_implementation("copying", Copying, clobber=True)
    with pytest.raises(InvalidArgument, match=says):
        ParquetFolder(uri).open(WRITER)


def test_a_file_that_would_have_to_grow() -> None:
    made = lw.from_iterable([{"t": 0, "k": 0}], time="t", key="k", unit="s")
    counted = made.window(lw.GlobalWindow()).aggregate(n=lw.count())
    for uri in ("memory://out/a.jsonl", "s3://bucket/a.jsonl?region=eu-west-1"):
        with pytest.raises(InvalidArgument, match=r"no file can grow. Name a folder"):
            counted.write_jsonl(uri)
    with pytest.raises(InvalidArgument, match=r"no file can grow. Name a folder"):
        JsonLinesFile("memory://out/a.jsonl")
    with pytest.raises(InvalidArgument, match="looks like a file"):
        counted.write_jsonl("s3://bucket/a.json")


def test_sinks_that_disturb_one_another() -> None:
    """A store's folder is the same whatever its URI has beside it; another server's is not."""
    one = ParquetFolder("s3://bucket/out?region=eu-west-1")
    for other in ("s3a://bucket/out/", "s3://bucket/out/below", "s3://bucket"):
        with pytest.raises(InvalidArgument, match="two outputs write to"):
            check_conflicts([[one], [JsonLinesFolder(other)]])
    for other in ("s3://bucket/out2", "gs://bucket/out", "s3://bucket/out?endpoint_override=a:1"):
        check_conflicts([[one], [JsonLinesFolder(other)]])
    check_conflicts([[one], [JsonLinesFolder("./s3:/bucket/out")]])  # a local path


@dataclass
class _Reads:
    paths: tuple[str, ...]


def test_what_is_written_is_not_read() -> None:
    sink = ParquetFolder("s3://bucket/out?endpoint_override=a:1")
    for path in ("s3://bucket/out", "s3://bucket/out/*.parquet", "s3://bucket/out/in/a.csv"):
        with pytest.raises(InvalidArgument, match="lies in the output folder 's3://bucket/out'"):
            check_inputs([[sink]], [_Reads((path,))])  # type: ignore[list-item]  # its paths do
    others = ("s3://bucket/in", "s3://bucket/out?endpoint_override=b:1", "out", "/out")
    check_inputs([[sink]], [_Reads(others)])  # type: ignore[list-item]


@pytest.mark.parametrize("folder", [ParquetFolder, JsonLinesFolder])
@pytest.mark.parametrize(
    ("reads", "writes", "refused"),
    [
        ("memory://shop/in", "memory://shop/in/out", True),
        ("memory:///shop/in/", "memory://shop/in/out/", True),
        ("memory://", "memory://shop/out", True),
        ("memory://shop/in/**", "memory://shop/in/out", True),
        ("memory://shop/*/*", "memory://shop/in", True),
        ("memory://shop/*/a*", "memory://shop/in", False),
        ("memory://shop/in", "memory://shop/in2", False),
        ("memory://shop/in", "memory://shop/in/_out", False),
        ("s3a://bucket/in?region=eu-west-1", "s3://bucket/in/out", True),
        ("s3://bucket/in?region=eu-west-1", "s3a://bucket/in/out?endpoint_override=a:1", True),
        ("s3://bucket/in?region=eu-west-1", "gs://bucket/in/out", False),
        ("gcs://anonymous@bucket/in", "gs://bucket/in/out", True),
    ],
)
def test_what_would_be_read_is_not_written(
    reads: str, writes: str, refused: bool, folder: Folder
) -> None:
    """As for local folders, however the store is called: what is written would be read."""
    files = input_files(reads)
    source: Source = ParquetSource(files.paths, stores=files.stores)
    if folder is JsonLinesFolder:
        source = JsonLinesSource(files.paths, "t", stores=files.stores)
    if not refused:
        check_inputs([[folder(writes)]], [source])
        return
    with pytest.raises(InvalidArgument, match=r"(lies where the run reads|lies in the output)"):
        check_inputs([[folder(writes)]], [source])


def test_a_server_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (
        ParquetFolder(f"s3://bucket/out{server}") for server in ("", "?endpoint_override=a%3A1")
    )
    check_conflicts([[one], [other]])
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://a:1/")
    with pytest.raises(InvalidArgument, match="two outputs write to"):
        check_conflicts([[one], [other]])


def test_what_a_state_directory_knows_a_store_by() -> None:
    """Neither a server's address nor other options: they may change while the place stays."""
    assert place_names(ParquetFolder("s3://bucket/out/?region=eu-west-1")) == [
        "ParquetFolder s3://bucket/out"
    ]
    places = [*ParquetFolder("s3://bucket/out?region=eu-west-1").places()]
    assert _dead_letters_in(places) == "'s3://bucket/out/errors-*'"
    assert eval(repr(ParquetFolder("s3://bucket/out"))) == ParquetFolder("s3://bucket/out")


@pytest.mark.parametrize("compact", [None, SMALL])
def test_a_run_that_is_stopped_and_resumed(compact: Compaction | None, tmp_path: Path) -> None:
    """Exactly once; and where its output has gone, that is said."""
    store = Memory()
    write_files(tmp_path / "in")
    made = pipeline(tmp_path / "in")
    options: Any = {"bundle_size": 25, "commit_every": "bundle", "progress": False}
    made.write_jsonl(tmp_path / "whole").run(**options)
    for point in ("after the write", "before publishing", "before forgetting"):
        with stopping(point, 2), pytest.raises(Stopped):
            made.write_jsonl(store.uri("out"), compact=compact).run(
                state=tmp_path / "state", **options
            )
    made.write_jsonl(store.uri("out"), compact=compact).run(state=tmp_path / "state", **options)
    wanted = files_in(tmp_path / "whole")
    assert rows_of(visible(store, "out")) == rows_of(wanted)
    if compact is None:
        assert visible(store, "out") == wanted
    else:
        assert len(visible(store, "out")) < len(wanted)
    fsspec.filesystem("memory").rm(f"/{store.place}/out", recursive=True)
    with pytest.raises(StateError, match=r"has delivered to .* which no longer holds it"):
        made.write_jsonl(store.uri("out"), compact=compact).run(state=tmp_path / "state", **options)


def test_outputs_that_were_moved_within_stores(tmp_path: Path) -> None:
    """The state is told where they are; to a local folder, or from one, they cannot move."""
    old, new = Memory(), Memory()
    write_files(tmp_path / "in")
    made, state = pipeline(tmp_path / "in"), tmp_path / "state"
    options: Any = {"bundle_size": 25, "commit_every": "bundle", "progress": False}
    with stopping("before forgetting", 4), pytest.raises(Stopped):
        lw.run(
            made.write_jsonl(old.uri("out")),
            made.write_jsonl(tmp_path / "b"),
            state=state,
            **options,
        )
    for before, after in ((old.uri("out"), tmp_path / "b"), (tmp_path / "b", old.uri("out"))):
        with pytest.raises(InvalidArgument, match=r"cannot move to .*: one is on this machine"):
            relocate_state(state, before, after)
    memory = fsspec.filesystem("memory")
    memory.mv(f"/{old.place}/out", f"/{new.place}/out", recursive=True)
    with pytest.raises(InvalidArgument, match="there is nothing at"):
        relocate_state(state, old.uri("out"), old.uri("elsewhere"))
    assert relocate_state(state, old.uri(""), new.uri("")) == {
        f"JsonLinesFolder {old.uri('out')}": f"JsonLinesFolder {new.uri('out')}"
    }
    lw.run(
        made.write_jsonl(new.uri("out")), made.write_jsonl(tmp_path / "b"), state=state, **options
    )
    assert rows_of(visible(new, "out"))["part"] == rows_of(files_in(tmp_path / "b"))["part"]
    assert not old.objects("out")
