"""Whatever happens to a directory of state, nothing is lost without a word.

Commits in a child that ends without closing leave their rows in the log alone.
"""

from __future__ import annotations

import atexit
import os
import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

import pytest
import rocksdict
from hypothesis import given
from hypothesis import strategies as st

from lowwater.errors import StateError
from lowwater.state import rocks
from lowwater.state.key_layout import END
from lowwater.state.ownership import read_sequencer
from lowwater.state.rocks import RocksStore
from lowwater.state.store import Batch
from lowwater.testing.conformance import everything, put
from tests.children import run_code

pytestmark = pytest.mark.slow(reason="faults of a disk at every write")  # left to `make test`

_COMMITS = 5
_PRELUDE = """
import os, sys
from lowwater.errors import StateError
from lowwater.state.rocks import RocksStore
from lowwater.testing.conformance import put
def rows(commit): return [(b"%d-%04d" % (commit, n), bytes([commit]) * 40) for n in range(500)]
"""
_FILL = f"""
store = RocksStore(sys.argv[1])
for commit in range({_COMMITS}): put(store, rows(commit))
"""


def run_child(code: str, *arguments: object) -> str:
    """Run code in a process of its own that ends without closing anything; return its output."""
    done = run_code(f"{_PRELUDE}{code}\nsys.stdout.flush()\nos._exit(0)", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows_of(*commits: int) -> list[tuple[bytes, bytes]]:
    return [(b"%d-%04d" % (c, n), bytes([c]) * 40) for c in commits for n in range(500)]


@cache
def _left_by(code: str) -> Path:
    """Return the state that a process with some code leaves; nobody changes it."""
    directory = Path(mkdtemp())
    atexit.register(shutil.rmtree, directory)
    run_child(code, directory / "state")
    return directory / "state"


def crash(place: Path) -> Path:
    """Return state whose commits are in the log, as a process that was killed leaves it."""
    return shutil.copytree(_left_by(_FILL), place / "state")


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    return crash(tmp_path)


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """Return state whose commits are in a table, as a process that ended well leaves it."""
    return shutil.copytree(_left_by(f"{_FILL}\nstore.close()"), tmp_path / "state")


def only(directory: Path, pattern: str) -> Path:
    """Return the one file of a pattern that is not empty."""
    (found,) = [file for file in directory.rglob(pattern) if file.stat().st_size]
    return found


def flip(file: Path, at: int) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 0xFF
    file.write_bytes(content)


def snapshot(directory: Path) -> dict[str, bytes]:
    """Return the files that hold data."""
    kept = [*directory.rglob("*.log"), *directory.rglob("*.sst"), *directory.rglob("MANIFEST*")]
    return {file.name: file.read_bytes() for file in [*kept, directory / "SEQUENCER"]}


def test_a_killed_process_loses_nothing_it_committed(crashed: Path) -> None:
    with RocksStore(crashed) as store:
        assert everything(store) == rows_of(*range(_COMMITS))
        assert store.sequencer == 2


@pytest.mark.parametrize("left", [0.0, 0.1, 0.5, 0.95, 0.9999])
def test_a_log_cut_short_is_refused_and_left_as_it_is(crashed: Path, left: float) -> None:
    log = only(crashed, "*.log")
    whole = log.read_bytes()
    os.truncate(log, int(len(whole) * left))
    before = snapshot(crashed)
    for _ in range(2):
        with pytest.raises(
            StateError, match=r"commits were lost .*acknowledged.*of 6.*from a copy"
        ):
            RocksStore(crashed)
    with pytest.raises(StateError, match="commits were lost"):
        RocksStore(crashed, read_only=True)
    assert snapshot(crashed) == before
    log.write_bytes(whole)
    with RocksStore(crashed) as store:
        assert everything(store) == rows_of(*range(_COMMITS))


def test_a_log_that_is_gone_is_noticed(crashed: Path) -> None:
    only(crashed, "*.log").unlink()
    with pytest.raises(StateError, match="commits were lost that had been acknowledged: 1 to 6"):
        RocksStore(crashed)


@pytest.mark.parametrize("place", [0.001, 0.3, 0.6, 0.999])
def test_a_flipped_byte_in_the_log_is_noticed(crashed: Path, place: float) -> None:
    log = only(crashed, "*.log")
    flip(log, int(log.stat().st_size * place))
    with pytest.raises(StateError, match="commits were lost"):
        RocksStore(crashed)


@pytest.mark.parametrize(
    "tail",
    [b"\x93\x01\xfe" * 300, bytes(70_000), b"\1", bytes(7)],
    ids=["garbage", "zeros", "one byte", "a header"],
)
def test_a_torn_tail_was_never_acknowledged(crashed: Path, tail: bytes) -> None:
    log = only(crashed, "*.log")
    log.write_bytes(log.read_bytes() + tail)
    with RocksStore(crashed) as store:
        assert everything(store) == rows_of(*range(_COMMITS))
        put(store, [(b"a", b"")])
    with RocksStore(crashed) as store:
        assert len(everything(store)) == 500 * _COMMITS + 1


@pytest.mark.parametrize("kind", [5, 6, 7, 8, 11])
@pytest.mark.parametrize("pattern", ["*.log", "MANIFEST-*"])
def test_a_log_that_rocksdb_would_read_for_ever_is_refused(
    crashed: Path, pattern: str, kind: int
) -> None:
    """A bit of a record's type flipped: one of those that only re-used logs have."""
    log = only(crashed, pattern)
    content = bytearray(log.read_bytes())
    first = int.from_bytes(content[4:6], "little")
    assert content[7 + first + 6] in {1, 2}, "the second record's type"
    content[7 + first + 6] = kind
    log.write_bytes(content)
    for read_only in (False, True):
        with pytest.raises(
            StateError, match=rf"damaged: byte {7 + first} .*{log.name}.*from a copy"
        ):
            RocksStore(crashed, read_only=read_only)


@given(at=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_no_flipped_bit_of_a_log_goes_unnoticed(at: float, bit: int) -> None:
    with TemporaryDirectory() as directory:
        state = crash(Path(directory))
        log = only(state, "*.log")
        content = bytearray(log.read_bytes())
        content[int(at * len(content))] ^= 1 << bit
        log.write_bytes(content)
        with pytest.raises(StateError, match=r"damaged|lost"):
            RocksStore(state)


_UNTOLD = (
    _FILL
    + """
from lowwater.state.ownership import Ownership
Ownership.acknowledge = lambda self, commit: None  # killed before it
put(store, rows(9))
"""
)


@pytest.mark.parametrize("cut_bytes", [1, 10, 5_000, 20_000])
def test_a_commit_that_never_returned_may_be_cut_off(tmp_path: Path, cut_bytes: int) -> None:
    state = shutil.copytree(_left_by(_UNTOLD), tmp_path / "state")
    log = only(state, "*.log")
    os.truncate(log, log.stat().st_size - cut_bytes)
    with RocksStore(state) as store:
        assert everything(store) == rows_of(*range(_COMMITS))


def test_a_commit_that_never_returned_may_be_there_whole(tmp_path: Path) -> None:
    state = shutil.copytree(_left_by(_UNTOLD), tmp_path / "state")
    with RocksStore(state) as store:
        assert everything(store) == rows_of(*range(_COMMITS), 9)
    with RocksStore(state) as store:
        assert store.last_commit == 1 + _COMMITS + 1 + 2


def test_a_hole_between_commits_is_noticed(closed: Path) -> None:
    """As where two logs were alive, and the older one ends early: RocksDB sees nothing amiss."""
    database = rocksdict.Rdict(str(closed / "rocksdb-1"), rocksdict.Options(raw_mode=True))
    del database[END + b"c\0\3"]
    database.close()
    with pytest.raises(StateError, match="commits were lost that had been acknowledged: 3 of 6"):
        RocksStore(closed)


@pytest.mark.parametrize("place", [0.0, 0.3, 0.6, 0.95, 0.99, 0.9999])
def test_a_flipped_byte_in_a_table_is_never_read(closed: Path, place: float) -> None:
    table = only(closed, "*.sst")
    flip(table, int(table.stat().st_size * place))
    with pytest.raises(StateError, match=r"it is damaged .*\.sst"), RocksStore(closed) as store:
        store.verify()


def test_a_damaged_row_is_an_error_of_every_read_that_meets_it(closed: Path) -> None:
    table = only(closed, "*.sst")
    flip(table, table.stat().st_size // 2)
    with RocksStore(closed) as store:
        seen: list[tuple[bytes, bytes]] = []
        with pytest.raises(StateError, match="rows cannot be read: it is damaged"):
            seen.extend(store.scan(b"", END))
        with pytest.raises(StateError, match="rows cannot be read: it is damaged"):
            store.get([key for key, _ in rows_of(*range(_COMMITS))])
        assert store.get([b"0-0000"]) == [bytes(40)]


@pytest.mark.parametrize("pattern", ["*.sst", "CURRENT", "MANIFEST-*", "SEQUENCER"])
def test_a_file_that_is_gone_is_named(closed: Path, pattern: str) -> None:
    gone = only(closed, pattern)
    gone.unlink()
    for read_only in (False, True):
        with pytest.raises(StateError, match=rf"missing.*{gone.name}|{gone.name} is missing"):
            RocksStore(closed, read_only=read_only)


def test_a_manifest_cut_short_is_refused_and_its_tables_stay(closed: Path) -> None:
    manifest = only(closed, "MANIFEST-*")
    os.truncate(manifest, manifest.stat().st_size // 2)
    before = snapshot(closed)
    with pytest.raises(StateError, match="commits were lost"):
        RocksStore(closed)
    assert snapshot(closed) == before


@pytest.mark.parametrize("at", [0, 12, 20, 27])
def test_a_damaged_sequencer_is_refused(closed: Path, at: int) -> None:
    flip(closed / "SEQUENCER", at)
    with pytest.raises(StateError, match=r"the file is damaged .*SEQUENCER"):
        RocksStore(closed)


def test_what_is_not_state_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("...")
    with pytest.raises(StateError, match="not empty, and what is in it is not state"):
        RocksStore(tmp_path)
    with pytest.raises(StateError, match="not empty, and what is in it is not state"):
        RocksStore(tmp_path, read_only=True)
    with pytest.raises(StateError, match="this is not a directory"):
        RocksStore(tmp_path / "thesis.tex")
    with pytest.raises(StateError, match="this is not a directory"):
        RocksStore(tmp_path / "thesis.tex" / "state")
    assert (tmp_path / "thesis.tex").read_text() == "..."


def test_a_directory_that_cannot_be_written_is_said_so(tmp_path: Path) -> None:
    """Permissions do not bind root: a directory where a file must go does."""
    (tmp_path / "OWNER").mkdir()
    with pytest.raises(StateError, match="the state cannot be opened"):
        RocksStore(tmp_path)


def test_the_system_says_it_is_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(StateError, match=r"it cannot be written .*Give this process the right"):
            RocksStore(tmp_path)


@pytest.mark.parametrize("left_behind", [["OWNER"], ["OWNER", "SEQUENCER.new"]])
def test_an_opening_cut_off_before_it_began_is_no_state(
    tmp_path: Path, left_behind: list[str]
) -> None:
    for name in left_behind:
        (tmp_path / name).write_bytes(b"lowwater"[:4])
    with RocksStore(tmp_path) as store:
        assert everything(store) == []


@pytest.mark.parametrize("call", ["_rdict", "_write"])
def test_an_opening_killed_on_its_way_is_done_again(tmp_path: Path, call: str) -> None:
    for moment in ("before", "after"):
        state = tmp_path / moment
        code = f"""
real = RocksStore.{call}
def killed(*arguments, **options):
    if {moment == "after"}: real(*arguments, **options)
    os._exit(0)
RocksStore.{call} = killed
RocksStore(sys.argv[1])
"""
        run_child(code, state)
        with RocksStore(state) as store:
            put(store, [(b"a", b"1")])
        run_child(code, state)
        with RocksStore(state) as store:
            assert everything(store) == [(b"a", b"1")]


def test_a_full_disk_fails_the_commit_and_no_other(tmp_path: Path) -> None:
    code = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
store = RocksStore(sys.argv[1])
for commit in range(100):
    try:
        put(store, rows(commit))
    except StateError as error:
        print(commit, error)
        break
try: put(store, rows(101))
except StateError as error: print(error)
print(len(store.get([b"0-0000"])))
store.close()
"""
    first, second, read = run_child(code, tmp_path).splitlines()
    committed = int(first.split()[0])
    assert 0 < committed < 100
    assert "a commit failed: the disk is full" in first
    assert "Make room and open the state again" in first
    assert "an earlier commit failed" in second
    assert read == "1"
    with RocksStore(tmp_path) as store:
        assert everything(store) == sorted(rows_of(*range(committed)))


def test_a_disk_too_full_to_open_is_said_so(crashed: Path) -> None:
    code = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
try: RocksStore(sys.argv[1])
except StateError as error: print(error)
"""
    assert "the disk is full" in run_child(code, crashed)
    with RocksStore(crashed) as store:
        assert everything(store) == rows_of(*range(_COMMITS))


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    code = """
try: RocksStore(sys.argv[1])
except StateError as error: print(error)
with RocksStore(sys.argv[1], read_only=True) as reader: print(reader.get([b"a"]))
"""
    with RocksStore(tmp_path) as store:
        put(store, [(b"a", b"1")])
        refused, read = run_child(code, tmp_path).splitlines()
        assert "the state is in use by another process" in refused
        assert read == "[b'1']"
        put(store, [(b"b", b"2")])
        # And by the database's own lock, where ours is not there.
        (tmp_path / "OWNER").unlink()
        code = "\ntry: RocksStore(sys.argv[1])\nexcept StateError as error: print(error)"
        assert "the state is in use by another process" in run_child(code, tmp_path)


def test_a_second_opening_in_one_process_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "state")
    with RocksStore(tmp_path / "state") as store:
        for name in ("state", "link"):
            with pytest.raises(StateError, match="already open in this process"):
                RocksStore(tmp_path / name)
        put(store, [(b"a", b"1")])


def test_a_zombie_is_fenced(tmp_path: Path) -> None:
    """The locks are lost, as on a network drive; another takes over; the first comes back."""
    zombie = RocksStore(tmp_path)
    put(zombie, rows_of(0))
    (tmp_path / "OWNER").unlink()
    (tmp_path / "rocksdb-1" / "LOCK").unlink()
    run_child("put(RocksStore(sys.argv[1]), rows(1))", tmp_path)
    for _ in range(2):
        with pytest.raises(StateError, match=r"fenced: .*opening 1, but opening 2 took it over"):
            put(zombie, rows_of(2))
    with pytest.raises(StateError, match="fenced"):
        put(zombie, [])
    zombie.close()
    del zombie
    with RocksStore(tmp_path) as store:
        assert everything(store) == rows_of(0, 1)
        assert store.sequencer == 3


def test_a_zombie_that_closes_harms_nothing(tmp_path: Path) -> None:
    """It does not know yet: left to itself, RocksDB would put its own list of files in place."""
    zombie = RocksStore(tmp_path)
    put(zombie, rows_of(0))
    (tmp_path / "OWNER").unlink()
    (tmp_path / "rocksdb-1" / "LOCK").unlink()
    run_child("put(RocksStore(sys.argv[1]), rows(1))", tmp_path)
    zombie.close()
    with RocksStore(tmp_path) as store:
        assert everything(store) == rows_of(0, 1)


def test_a_zombie_that_writes_at_last_does_not_say_it_committed(tmp_path: Path) -> None:
    """Taken over between looking and writing: what it wrote is in a log that nobody reads."""
    zombie = RocksStore(tmp_path)
    put(zombie, rows_of(0))
    (tmp_path / "OWNER").unlink()
    (tmp_path / "rocksdb-1" / "LOCK").unlink()
    real = RocksStore._write

    def taken_over(self: RocksStore, *arguments: object) -> None:
        run_child("put(RocksStore(sys.argv[1]), rows(1))", tmp_path)
        real(self, *arguments)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RocksStore, "_write", taken_over)
        with pytest.raises(StateError, match="fenced"):
            put(zombie, rows_of(2))
    zombie.close()
    with RocksStore(tmp_path) as store:
        assert everything(store) == rows_of(0, 1)


def test_state_that_was_taken_away_is_noticed(tmp_path: Path) -> None:
    store = RocksStore(tmp_path)
    (tmp_path / "SEQUENCER").unlink()
    with pytest.raises(StateError, match=r"fenced: .*its SEQUENCER is gone"):
        put(store, rows_of(0))
    store.close()


def test_a_newer_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(rocks, "FORMAT", 7)
        RocksStore(tmp_path).close()
    for read_only in (False, True):
        with pytest.raises(StateError, match="has format 7, but this version of lowwater knows 1"):
            RocksStore(tmp_path, read_only=read_only)


def test_the_sequencer_grows_with_each_opening(tmp_path: Path) -> None:
    for opening in range(1, 4):
        with RocksStore(tmp_path) as store:
            assert store.sequencer == opening
        found = read_sequencer(tmp_path)
        assert found is not None
        assert found[0] == opening


def test_what_a_reader_leaves_beside_the_database_is_removed(tmp_path: Path) -> None:
    """RocksDB makes the directory that it is to read, even if its owner has just renamed it."""
    path = tmp_path / "state"
    for value in (b"1", b"2"):
        with RocksStore(path) as store:
            batch = Batch()
            batch.put([b"key"], [value])
            store.commit(batch)
    (database,) = path.glob("rocksdb-*")
    left = path / "rocksdb-1"
    left.mkdir()
    (left / "rocksdict-config.json").write_text("{}")
    with RocksStore(path, read_only=True) as store:
        assert store.get([b"key"]) == [b"2"]
    assert left.exists()  # who only looks removes nothing
    with RocksStore(path) as store:
        assert store.get([b"key"]) == [b"2"]
    assert not left.exists()
    (now,) = path.glob("rocksdb-*")
    assert now != database
    (path / "rocksdb-1").mkdir()
    (path / "rocksdb-1" / "000007.sst").write_text("not mine to judge")
    with pytest.raises(StateError, match="two databases"):
        RocksStore(path)
