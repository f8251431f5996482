"""Versions of a key group: whatever tasks do to each other, a version is what it was."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from lowwater.errors import InvalidArgument, StateError
from lowwater.state.key_layout import END
from lowwater.state.store import Batch
from lowwater.state.versions import history as versions_module
from lowwater.state.versions.database import close_shelves
from lowwater.state.versions.history import GroupStore, Versions
from lowwater.state.versions.manifest import (
    MANIFEST,
    Manifest,
    SharedTable,
    decode,
    new_version,
    number_of,
    successor,
)
from lowwater.state.versions.root import ArrowRoot, root_at
from tests.s3_server import S3Server

_ROOT = Path(versions_module.__file__).parents[2]
_GROUP = 3


@pytest.fixture(autouse=True)
def new_process() -> Iterator[None]:
    yield
    close_shelves()


@pytest.fixture
def local(tmp_path: Path) -> Versions:
    return Versions(tmp_path / "root", cache=tmp_path / "cache")


def batch_of(rows: dict[bytes, bytes | None]) -> Batch:
    batch = Batch()
    batch.put([k for k, v in rows.items() if v is not None], [v for v in rows.values() if v])
    batch.delete([k for k, v in rows.items() if v is None])
    return batch


def commit(
    versions: Versions, base: str | None, rows: dict[bytes, bytes | None], number: int | None = None
) -> str:
    with versions.open(_GROUP, base) as store:
        return store.commit(batch_of(rows), number)


def rows_at(versions: Versions, version: str | None) -> dict[bytes, bytes]:
    with versions.open(_GROUP, version) as store:
        return dict(store.scan(b"", END))


def files(versions: Versions) -> set[str]:
    folder = Path(versions.root) / f"group-{_GROUP:05d}"
    return {path.name for path in folder.iterdir()}


def tables(versions: Versions) -> list[Path]:
    return sorted((Path(versions.root) / f"group-{_GROUP:05d}").glob("*.sst"))


def manifest(versions: Versions, version: str) -> Path:
    return Path(versions.root) / f"group-{_GROUP:05d}" / (version + MANIFEST)


def tables_of(versions: Versions, manifests: set[str]) -> set[str]:
    """Return the names of the tables that some versions are made of."""
    found = set()
    for name in manifests:
        version = name.removesuffix(MANIFEST)
        path = manifest(versions, version)
        read = decode(path.read_bytes(), group=_GROUP, version=version, where=str(path))
        found |= {table.name for table in read.tables}
    return found


def elsewhere(versions: Versions) -> None:
    """Go on in a process of another machine: nothing open, an empty disk."""
    close_shelves()
    shutil.rmtree(str(versions.cache), ignore_errors=True)


def test_a_version_is_what_it_was_whatever_is_made_of_it(local: Versions) -> None:
    one = commit(local, None, {b"a": b"1", b"b": b"1"})
    two = commit(local, one, {b"a": b"2", b"b": None, b"c": b"2"})
    again = commit(local, one, {b"a": b"again"})
    assert rows_at(local, one) == {b"a": b"1", b"b": b"1"}
    assert rows_at(local, two) == {b"a": b"2", b"c": b"2"}
    assert rows_at(local, again) == {b"a": b"again", b"b": b"1"}
    assert [number_of(each) for each in (one, two, again)] == [0, 1, 1]
    elsewhere(local)
    assert rows_at(local, again) == {b"a": b"again", b"b": b"1"}
    assert rows_at(local, None) == {}


def test_reads_are_those_of_a_state_store(local: Versions) -> None:
    version = commit(local, None, {b"b": b"2", b"": b"0", b"a": b"1"})
    with local.open(_GROUP, version) as store:
        assert store.get([b"b", b"x", b"", b"b"]) == [b"2", None, b"0", b"2"]
        assert list(store.scan(b"a", b"b")) == [(b"a", b"1")]
        scan = store.scan(b"", END)
        store.commit(batch_of({b"c": b"3"}))
        assert [key for key, _ in scan] == [b"", b"a", b"b"], "a scan is of one moment"
        with pytest.raises(InvalidArgument, match="store's own"):
            store.get([END])


def test_scans_end_with_an_error_when_the_store_is_closed(local: Versions) -> None:
    store = local.open(_GROUP, commit(local, None, {b"a": b"1"}))
    scan = store.scan(b"", END)
    store.close()
    store.close()
    with pytest.raises(StateError, match="closed during a scan"):
        next(scan)
    with pytest.raises(StateError, match="closed"):
        store.get([b"a"])


def test_a_store_may_commit_several_times(local: Versions) -> None:
    with local.open(_GROUP, None) as store:
        assert store.version is None
        made = [store.commit(batch_of({b"a": b"%d" % n}), 10 * n) for n in range(1, 4)]
        assert store.version == made[-1]
    assert [number_of(version) for version in made] == [10, 20, 30]
    assert [rows_at(local, version)[b"a"] for version in made] == [b"1", b"2", b"3"]


def test_a_commit_of_nothing_changes_nothing(local: Versions) -> None:
    empty = commit(local, None, {})
    assert rows_at(local, empty) == {}
    one = commit(local, empty, {b"a": b"1"})
    before = files(local)
    assert commit(local, one, {}, 77) == one
    assert files(local) == before


def test_numbers_and_groups_and_names_that_make_no_sense(local: Versions) -> None:
    one = commit(local, None, {b"a": b"1"}, 5)
    with local.open(_GROUP, one) as store:
        for number in (-1, 5):
            with pytest.raises(InvalidArgument, match="not larger than that of version"):
                store.commit(batch_of({b"a": b"2"}), number)
        with pytest.raises(InvalidArgument, match="must be from 0"):
            store.commit(batch_of({b"a": b"2"}), 10**12)
        assert store.get([b"a"]) == [b"1"]
    with pytest.raises(InvalidArgument, match="group=65536"):
        local.open(65536, None)
    with pytest.raises(InvalidArgument, match="not the name of a version"):
        local.open(_GROUP, "../secrets")
    with pytest.raises(InvalidArgument, match="retain=-1"):
        Versions("x", retain=-1)


def test_key_groups_merge_their_tables_in_different_batches(local: Versions) -> None:
    """Key groups grow alike: if all merged in one micro-batch, it would take twice as long."""
    for group in range(8):
        with local.open(group, None) as store:
            store.commit(batch_of({b"a": b"1"}))
    settings = [path.read_text() for path in Path(str(local.cache)).rglob("OPTIONS-*")]
    after = [
        int(line.partition("=")[2])
        for text in settings
        for line in text.splitlines()
        if "level0_file_num_compaction_trigger=" in line
    ]
    assert sorted(after) == list(range(8, 16))


def test_only_new_tables_are_written(local: Versions) -> None:
    one = commit(local, None, {b"%05d" % n: bytes(50) for n in range(5_000)})
    (large,) = tables(local)
    two = commit(local, one, {b"x": b"1"})
    added = [table for table in tables(local) if table != large]
    assert [table.name[:45] for table in added] == [two]
    assert added[0].stat().st_size < 2_000


def test_attempts_at_one_batch_at_the_same_time(local: Versions) -> None:
    base = commit(local, None, {b"a": b"base"})
    with local.open(_GROUP, base) as first, local.open(_GROUP, base) as second:
        one = first.commit(batch_of({b"a": b"first"}), 1)
        two = second.commit(batch_of({b"a": b"second"}), 1)
        assert (first.get([b"a"]), second.get([b"a"])) == ([b"first"], [b"second"])
    assert rows_at(local, one) == {b"a": b"first"}
    assert rows_at(local, two) == {b"a": b"second"}
    elsewhere(local)
    assert rows_at(local, one) == {b"a": b"first"}
    assert rows_at(local, two) == {b"a": b"second"}


def test_processes_share_a_cache(local: Versions) -> None:
    one = commit(local, None, {b"a": b"1"})
    code = f"""
import os, sys
from lowwater.state.store import Batch
from lowwater.state.versions.history import Versions
store = Versions({str(local.root)!r}, cache={str(local.cache)!r}).open({_GROUP}, {one!r})
batch = Batch()
batch.put([b"b"], [b"2"])
print(store.commit(batch), flush=True)
os._exit(0)  # as a worker that is killed: nothing is closed
"""
    with local.open(_GROUP, one) as held:
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
        )
        assert done.returncode == 0, done.stderr
        other = done.stdout.strip()
        assert commit(local, one, {b"c": b"3"}) != other
        assert held.get([b"a", b"b"]) == [b"1", None]
    assert rows_at(local, other) == {b"a": b"1", b"b": b"2"}
    # Working directories of the dead are swept by whoever comes next; this one's stays.
    (work,) = Path(str(local.cache)).glob("*/work")
    assert len(list(work.glob("*.lock"))) == 2
    close_shelves()
    assert rows_at(local, other) == {b"a": b"1", b"b": b"2"}
    assert len(list(work.glob("*.lock"))) == 1
    assert len([path for path in work.iterdir() if path.is_dir()]) == 1


def test_values_travel_to_other_processes(local: Versions) -> None:
    one = commit(local, None, {b"a": b"1"})
    copy = pickle.loads(pickle.dumps(local))
    assert copy == local
    assert rows_at(copy, one) == {b"a": b"1"}


def test_the_next_batch_goes_on_with_what_is_open(
    local: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = commit(local, None, {b"a": b"1"})
    reading = "lowwater.state.versions.database.read_manifest"
    with monkeypatch.context() as patched:
        patched.setattr(reading, lambda *_: pytest.fail("it was opened anew"))
        two = commit(local, one, {b"a": b"2"})
        assert rows_at(local, two) == {b"a": b"2"}
    assert rows_at(local, one) == {b"a": b"1"}, "a retry opens the version it was told"


def test_few_groups_stay_open(tmp_path: Path) -> None:
    versions = Versions(tmp_path / "root", cache=tmp_path / "cache", most_open=2)
    made = {}
    for group in range(5):
        with versions.open(group, None) as store:
            made[group] = store.commit(batch_of({b"g": b"%d" % group}))
    (own,) = (path for path in tmp_path.glob("cache/*/work/*") if path.is_dir())
    assert len(list(own.iterdir())) == 2
    for group, version in made.items():
        with versions.open(group, version) as store:
            assert store.get([b"g"]) == [b"%d" % group]


def test_a_failed_commit_leaves_the_version_before(local: Versions) -> None:
    one = commit(local, None, {b"a": b"1"})
    folder = manifest(local, one).parent
    with local.open(_GROUP, one) as store:
        hidden = folder.rename(folder.with_name("hidden"))
        folder.write_bytes(b"")
        with pytest.raises(StateError, match="a version cannot be written") as failed:
            store.commit(batch_of({b"a": b"2"}))
        assert str(folder) in str(failed.value)
        for use in (lambda: store.get([b"a"]), lambda: store.commit(Batch())):
            with pytest.raises(StateError, match="an earlier commit failed"):
                use()
        folder.unlink()
        hidden.rename(folder)
    assert rows_at(local, one) == {b"a": b"1"}


def damage_flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.unlink()  # not in place: other names may be links to the same bytes
    path.write_bytes(data)


def damage_cut(path: Path) -> None:
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data[:-7])


@pytest.mark.parametrize(
    ("hurt", "which", "said"),
    [
        (Path.unlink, "table", "is missing"),
        (Path.unlink, "manifest", "is missing"),
        (damage_cut, "table", "is damaged: [0-9,]+ bytes, not [0-9,]+"),
        (damage_cut, "manifest", "damaged or cut short"),
        (damage_flip, "table", "its checksum is another"),
        (damage_flip, "manifest", "damaged or cut short"),
    ],
)
def test_damage_is_told(
    local: Versions, hurt: Callable[[Path], None], which: str, said: str
) -> None:
    one = commit(local, None, {b"%05d" % n: os.urandom(20) for n in range(500)})
    two = commit(local, one, {b"a": b"2"})
    hurt_file = tables(local)[0] if which == "table" else manifest(local, two)
    hurt(hurt_file)
    elsewhere(local)
    with pytest.raises(StateError, match=said) as raised:
        local.open(_GROUP, two)
    assert raised.value.where == str(hurt_file)
    assert raised.value.hint is not None
    if which == "manifest":
        assert len(rows_at(local, one)) == 500, "other versions are as they were"


def test_a_damaged_cache_is_filled_again(local: Versions) -> None:
    one = commit(local, None, {b"%05d" % n: b"1" for n in range(500)})
    close_shelves()
    (held,) = Path(str(local.cache)).rglob("tables/**/*.sst")
    for hurt in (damage_flip, damage_cut, Path.unlink):
        hurt(held)
        assert len(rows_at(local, one)) == 500
        close_shelves()
        assert held.read_bytes() == tables(local)[0].read_bytes()


def test_manifests_of_others_and_of_later_layouts(local: Versions) -> None:
    from zlib import crc32

    one = commit(local, None, {b"a": b"1"})
    two = commit(local, one, {b"a": b"2"})
    data = manifest(local, two).read_bytes()
    close_shelves()

    def write(old: bytes, new: bytes) -> None:
        line = data.partition(b"\n")[0].replace(old, new)
        manifest(local, two).write_bytes(b"%b\n%08x\n" % (line, crc32(line)))

    for old, new, said in (
        (b'"layout":1', b'"layout":2', "in layout 2 of state versions"),
        (b'"group":3', b'"group":4', "of key group 4"),
        (two.encode() + b'"', one.encode() + b'"', f"of version {one}"),
        (b'"CURRENT"', b'"../CURRENT"', "no version has: ../CURRENT"),
        (b'"tables"', b'"chairs"', "not a manifest"),
    ):
        write(old, new)
        with pytest.raises(StateError, match=said):
            local.open(_GROUP, two)


@given(data=st.binary(max_size=300), cut=st.integers(0, 2_000))
def test_any_bytes_as_a_manifest_are_refused(data: bytes, cut: int) -> None:
    for damaged in (data, data + b"\n00000000\n", data[:cut]):
        with pytest.raises(StateError):
            decode(damaged, group=0, version=new_version(0), where="there")


def test_collect_deletes_what_nothing_needs(tmp_path: Path) -> None:
    versions = Versions(tmp_path / "root", cache=tmp_path / "cache", retain=3)
    version: str | None = None
    line: list[str] = []
    lost = []
    for number in range(30):
        lost.append(commit(versions, version, {b"lost": b"%d" % number}, number))
        with versions.open(_GROUP, version) as store:
            before = version
            version = store.commit(batch_of({b"k%d" % (number % 7): b"%d" % number}), number)
            line.append(version)
            store.collect()
        names = {name for name in files(versions) if name.endswith(MANIFEST)}
        # Those of the batch at work stay, whoever wins; of those before, the line alone.
        opened = len(line) - 2
        wanted = {each + MANIFEST for each in line[max(0, opened - 3) : opened + 1]}
        assert names - {version + MANIFEST, lost[-1] + MANIFEST} == wanted, number
        # How many tables there are depends on when RocksDB has time to merge them; which, does not.
        assert {path.name for path in tables(versions)} == tables_of(versions, names), number
        assert before is None or rows_at(versions, before) is not None
    elsewhere(versions)
    for number in range(26, 30):
        held = rows_at(versions, line[number])
        assert held == {b"k%d" % (n % 7): b"%d" % n for n in range(number - 6, number + 1)}


def test_a_table_is_kept_as_long_as_a_version_that_has_it() -> None:
    """::

    batch     0   1   2   3   4   5   6   7
    old.sst   |-----------|
    versions  v0      v2      v4      v6 v7     each is the state until the next one
    """

    def made(base: Manifest | None, number: int, name: str) -> Manifest:
        table = SharedTable(f"{new_version(0)}-{name}", name, 1, 1)
        return successor(
            base, group=0, version=new_version(number), tables=[table], small={}, retain=3
        )

    line: list[Manifest] = [made(None, 0, "1.sst")]
    for number, name in ((2, "2.sst"), (4, "3.sst"), (6, "4.sst"), (7, "5.sst")):
        line.append(made(line[-1], number, name))
    numbers = [[number_of(version) for version in each.ancestors] for each in line]
    # At 4, batch 2 may be run again: from v0. At 6, batch 4 may be: from v2, and none from v0.
    assert numbers == [[], [0], [0, 2], [2, 4], [4, 6]]
    names = [[dropped.name[46:] for dropped in each.dropped] for each in line]
    assert names == [[], ["1.sst"], ["1.sst", "2.sst"], ["2.sst", "3.sst"], ["3.sst", "4.sst"]]


def test_collect_leaves_what_others_are_writing(local: Versions) -> None:
    versions = Versions(local.root, cache=local.cache, retain=0)
    one = commit(versions, None, {b"a": b"1"})
    two = commit(versions, one, {b"a": b"2"})
    rival = commit(versions, two, {b"a": b"rival"})
    with versions.open(_GROUP, two) as store:
        assert store.collect() == 1  # the manifest of one: its table is still in use
        three = store.commit(batch_of({b"a": b"3"}))
        assert store.collect() == 0, "what counts is the version opened, not the one written"
    (manifest(versions, three).parent / "notes.txt").write_text("not ours")
    with versions.open(_GROUP, rival) as store:
        store.collect()
    assert rows_at(versions, rival) == {b"a": b"rival"}
    assert "notes.txt" in files(versions)
    assert not manifest(versions, three).exists()
    with pytest.raises(StateError, match="is missing"):
        versions.open(_GROUP, one)


def test_collect_spares_the_latest_of_other_attempts(local: Versions) -> None:
    """For bookkeeping that may take any attempt's version, and a while later another one's."""
    last: str | None = None
    others = []
    for number in range(6):
        rows: dict[bytes, bytes | None] = {b"a": str(number).encode()}
        others.append(commit(local, last, rows))
        last = commit(local, last, rows)
    with local.open(_GROUP, last) as store:
        store.collect(spare=2)
    assert [rows_at(local, other) for other in others[4:]] == [{b"a": b"4"}, {b"a": b"5"}]
    with pytest.raises(StateError, match="is missing"):
        local.open(_GROUP, others[3])


def test_collect_lets_go_of_the_cache_too(tmp_path: Path) -> None:
    versions = Versions(tmp_path / "root", cache=tmp_path / "cache", retain=0)
    version = None
    for number in range(40):
        before = version
        with versions.open(_GROUP, version) as store:
            version = store.commit(batch_of({b"a": b"%d" % number}))
            store.collect()
        held = {path.name for path in (tmp_path / "cache").rglob("tables/**/*.sst")}
        assert held == tables_of(versions, {each + MANIFEST for each in (before, version) if each})


def places(tmp_path: Path, server: S3Server) -> list[Versions]:
    cache, disk = tmp_path / "cache", fs.LocalFileSystem()
    return [
        Versions((tmp_path / "with space %").as_uri(), cache=cache),
        Versions(f"file:{tmp_path}/short", cache=cache),
        Versions("memory://bucket/state", cache=cache),
        Versions("mocked/state", cache=cache, filesystem=fs._MockFileSystem()),
        Versions("given", cache=cache, filesystem=fs.SubTreeFileSystem(str(tmp_path), disk)),
        Versions(server.uri(f"{server.bucket()}/state"), cache=cache),
    ]


S3 = "a server of S3's protocol in Python"


@pytest.mark.parametrize("which", [*range(5), pytest.param(5, marks=pytest.mark.long(reason=S3))])
def test_any_filesystem_will_do(tmp_path: Path, which: int, s3_server: S3Server) -> None:
    versions = places(tmp_path, s3_server)[which]
    version = None
    made = []
    for number in range(12):
        with versions.open(_GROUP, version) as store:
            version = store.commit(batch_of({b"k%d" % number: b"%d" % number}))
            made.append(version)
    elsewhere(versions)
    for at, each in enumerate(made):
        assert rows_at(versions, each) == {b"k%d" % n: b"%d" % n for n in range(at + 1)}
    small = Versions(versions.root, versions.cache, versions.filesystem, retain=1)
    with small.open(_GROUP, version) as store:
        version = store.commit(batch_of({b"k": b"1"}))
    with small.open(_GROUP, version) as store:
        assert store.collect() > 0
    elsewhere(versions)
    assert len(rows_at(versions, version)) == 13
    with pytest.raises(StateError, match="is missing") as raised:
        versions.open(_GROUP, made[0])
    assert raised.value.where is not None
    assert made[0] in raised.value.where


def test_damage_is_told_on_any_filesystem(tmp_path: Path) -> None:
    mock = fs._MockFileSystem()
    versions = Versions("damaged", cache=tmp_path / "cache", filesystem=mock)
    one = commit(versions, None, {b"a": b"1"})
    elsewhere(versions)
    (table,) = (
        info.path
        for info in mock.get_file_info(fs.FileSelector("damaged", recursive=True))
        if info.path.endswith(".sst")
    )
    with mock.open_input_stream(table) as source:
        data = bytearray(source.read())
    data[40] ^= 1
    with mock.open_output_stream(table) as target:
        target.write(bytes(data))
    with pytest.raises(StateError, match="its checksum is another") as raised:
        versions.open(_GROUP, one)
    assert raised.value.where == f"mock:{table}"
    mock.delete_file(table)
    with pytest.raises(StateError, match="is missing"):
        versions.open(_GROUP, one)


class HalfWritten:
    """An object of which half is written when its task dies; it is closed nevertheless."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __enter__(self) -> HalfWritten:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, data: bytes) -> None:
        self._file.write(data[: len(data) // 2])
        raise OSError("no more power")


def test_a_task_that_dies_while_it_writes_objects(
    tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it leaves belongs to no version, and other versions are as they were."""
    versions = Versions(s3_server.uri(f"{s3_server.bucket()}/state"), cache=tmp_path / "cache")
    rows: dict[bytes, bytes | None] = {b"%05d" % n: os.urandom(50) for n in range(200)}
    one = commit(versions, None, {b"a": b"1"})
    root, directory = root_at(versions.root), f"group-{_GROUP:05d}"
    before = root.sizes(directory)
    output = ArrowRoot._output
    with monkeypatch.context() as patched:
        patched.setattr(ArrowRoot, "_output", lambda *which: HalfWritten(output(*which)))
        with pytest.raises(StateError, match=r"cannot be written.*no more power") as raised:
            commit(versions, one, rows)
    assert "endpoint_override" not in str(raised.value)
    half = root.sizes(directory)
    assert len(half) == len(before) + 1
    two = commit(versions, one, rows)
    for version, count in ((one, 1), (two, 201)):
        elsewhere(versions)
        assert len(rows_at(versions, version)) == count
    (name,) = {*half} - {*before}
    root.delete(directory, [name, name])
    assert root.sizes(directory).keys() >= before.keys()
    with pytest.raises(StateError, match="a file is missing") as raised:
        root.read(directory, name)
    assert str(raised.value.where).endswith(f"{directory}/{name}")


def test_filesystems_that_nobody_knows(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="neither Arrow nor fsspec"):
        root_at("nowhere://bucket/state")


def test_secrets_of_a_location_are_not_shown() -> None:
    for uri in ("s3://key:$ecret@bucket/state?nonsense=$ecret", "s4://key:$ecret@bucket/state"):
        with pytest.raises(InvalidArgument) as raised:
            root_at(uri)
        assert "ecret" not in str(raised.value)
        assert "bucket/state" in str(raised.value)


def test_a_root_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "root").write_bytes(b"a file")
    versions = Versions(tmp_path / "root", cache=tmp_path / "cache")
    with pytest.raises(StateError, match="a version cannot be written") as raised:
        commit(versions, None, {b"a": b"1"})
    assert raised.value.hint is not None


def test_a_cache_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "cache").write_bytes(b"a file")
    with pytest.raises(StateError, match="the local cache of state cannot be used"):
        Versions(tmp_path / "root", cache=tmp_path / "cache").open(_GROUP, None)


def test_the_default_cache_is_this_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    versions = Versions(tmp_path / "root")
    assert rows_at(versions, commit(versions, None, {b"a": b"1"})) == {b"a": b"1"}
    (own,) = tmp_path.glob("lowwater-*")
    assert own.stat().st_mode & 0o777 == 0o700


def test_rows_of_a_large_first_batch(local: Versions) -> None:
    """More than a memtable holds: tables come before the commit, and belong to it all the same."""
    rows: dict[bytes, Any] = {b"%06d" % n: bytes(1_000) for n in range(70_000)}
    version = commit(local, None, rows)
    elsewhere(local)
    with local.open(_GROUP, version) as store:
        assert sum(1 for _ in store.scan(b"", END)) == 70_000


def test_stores_satisfy_what_readers_ask_for(local: Versions) -> None:
    store: GroupStore = local.open(_GROUP, None)
    assert list(store.scan(b"", END)) == []
    store.close()
