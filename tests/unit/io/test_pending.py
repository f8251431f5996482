"""What collects is the only copy: published however its output ends, and missed when it is gone."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from itertools import product, starmap
from pathlib import Path
from typing import Any

import fsspec
import pytest

import lowwater as lw
from lowwater.errors import PipelineWarning, StateError
from lowwater.io.sinks import Compaction, JsonLinesFolder, ParquetFolder, SqliteTable
from lowwater.pipeline.relocation import relocate_state
from lowwater.pipeline.state_parts import merge_states, split_state
from lowwater.pipeline.state_tools import state_info, verify_state
from tests.examples import is_campaign, sampled
from tests.unit.engine.local.durable_runs import Stopped, stopping
from tests.unit.io.collecting_runs import (
    BUNDLE,
    NEVER,
    ROWS,
    die,
    numbers,
    panes_of,
    run,
    waiting,
    write_input,
)
from tests.unit.io.watched_s3 import running_s3

ALL = list(range(ROWS))
KINDS = (ParquetFolder, JsonLinesFolder)
FOLDERS = pytest.mark.parametrize("kind", sampled(KINDS, every=2))
POINTS = ("after the write", "before publishing", "before forgetting")
DEATHS = pytest.mark.parametrize(
    ("point", "kind"), sampled(starmap(pytest.param, product(POINTS, KINDS)), every=3)
)
Folder = type[ParquetFolder] | type[JsonLinesFolder]


@pytest.fixture(autouse=True)
def _input(tmp_path: Path) -> None:
    write_input(tmp_path / "in")


def ends(tmp_path: Path, kind: Folder, *places: str, compact: Any = NEVER) -> list[Any]:
    """Return an output to each place, of a stage that is named by the first part of its name."""
    names = [place.split("-")[0] for place in places]
    made = panes_of(tmp_path, *names)
    return [
        one.write_to(kind(str(tmp_path / place), compact=compact))
        for one, place in zip(made, places, strict=True)
    ]


# ---- the ends of an output ----


@DEATHS
def test_removed(kind: Folder, point: str, tmp_path: Path) -> None:
    """What its sink took is published; what it had not taken is dropped, with a count."""
    die(tmp_path, *ends(tmp_path, kind, "main", "extra"), at=point, count=13)
    taken = len(waiting(tmp_path / "extra")) * BUNDLE
    assert taken > 50
    run(tmp_path, *ends(tmp_path, kind, "main"), remove=["extra"], drop_undelivered=True)
    assert numbers(tmp_path / "extra") == ALL[:taken]
    assert numbers(tmp_path / "main") == ALL
    assert not waiting(tmp_path / "extra")


def test_removed_with_counts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    die(tmp_path, *ends(tmp_path, ParquetFolder, "main", "extra"), at="after the write", count=9)
    caplog.set_level(logging.INFO, "lowwater")
    run(tmp_path, *ends(tmp_path, ParquetFolder, "main"), remove="extra", drop_undelivered=True)
    assert "the 80 rows that had collected there are published" in caplog.text
    assert f"10 rows had not been delivered to {str(tmp_path / 'extra')!r}" in caplog.text


@DEATHS
def test_another_place(kind: Folder, point: str, tmp_path: Path) -> None:
    """The former place gets all up to the last commit, and the new one exactly what follows."""
    die(tmp_path, *ends(tmp_path, kind, "main"), at=point, count=13)
    run(tmp_path, *ends(tmp_path, kind, "main-2"))
    before = numbers(tmp_path / "main")
    assert before == ALL[: len(before)]
    assert len(before) >= 120
    assert numbers(tmp_path / "main-2") == ALL[len(before) :]
    assert not waiting(tmp_path / "main")


@FOLDERS
def test_moved_by_its_user(kind: Folder, tmp_path: Path) -> None:
    """A folder is known wherever it is, whether or not the state was told."""
    for number in range(1, 4):
        name = f"main-{number}"
        die(tmp_path, *ends(tmp_path, kind, name), count=5)
        (tmp_path / name).rename(tmp_path / f"main-{number + 1}")
        if number == 2:
            relocate_state(tmp_path / "state", tmp_path / name, tmp_path / "main-3")
    run(tmp_path, *ends(tmp_path, kind, "main-4"))
    assert numbers(tmp_path / "main-4") == ALL


@pytest.mark.parametrize(
    "compact", sampled([Compaction(size=1), Compaction(age="1us"), None, NEVER], every=2)
)
def test_another_compaction_or_none(compact: Compaction | None, tmp_path: Path) -> None:
    die(tmp_path, *ends(tmp_path, ParquetFolder, "main"), count=12)
    run(tmp_path, *ends(tmp_path, ParquetFolder, "main", compact=compact))
    assert numbers(tmp_path / "main") == ALL


def test_another_sink(tmp_path: Path) -> None:
    """A table in place of a folder, a folder of another form, and both beside the former one."""
    (made,) = panes_of(tmp_path, "main")
    die(tmp_path, made.write_parquet(tmp_path / "first", compact=NEVER), count=8)
    die(tmp_path, made.write_jsonl(tmp_path / "second", compact=NEVER), count=8)
    die(tmp_path, made.write_to(SqliteTable(str(tmp_path / "t.sqlite"), "numbers")), count=3)
    places = [tmp_path / name for name in ("first", "second")]
    found = numbers(*places)
    assert found == ALL[: len(found)]
    assert all(not waiting(place) for place in places)
    assert 130 <= len(found) < ROWS


def test_the_same_folder_by_another_path(tmp_path: Path, monkeypatch: Any) -> None:
    (made,) = panes_of(tmp_path, "main")
    die(tmp_path, made.write_jsonl(tmp_path / "out", compact=NEVER), count=8)
    monkeypatch.chdir(tmp_path)
    die(tmp_path, made.write_jsonl("out", compact=NEVER), count=4)
    (tmp_path / "link").symlink_to(tmp_path / "out")
    run(tmp_path, made.write_jsonl(tmp_path / "link", compact=NEVER))
    assert numbers(tmp_path / "out") == ALL


@FOLDERS
def test_one_of_two_sinks_goes(kind: Folder, tmp_path: Path) -> None:
    (made,) = panes_of(tmp_path, "main")

    def sinks(*names: str) -> Any:
        return made.write_to(*(kind(str(tmp_path / name), compact=NEVER) for name in names))

    die(tmp_path, sinks("a", "b"), count=9)
    run(tmp_path, sinks("a"))
    assert numbers(tmp_path / "a") == ALL
    assert numbers(tmp_path / "b") == ALL[: len(numbers(tmp_path / "b"))] != []
    assert not waiting(tmp_path / "b")


def test_a_complete_run_that_died_before_it_published(tmp_path: Path) -> None:
    """What had collected is published by a run that has nothing more to read."""
    last = ROWS // BUNDLE + 2
    die(tmp_path, *ends(tmp_path, JsonLinesFolder, "main", "extra"), count=last)
    assert not numbers(tmp_path / "main")
    run(tmp_path, *ends(tmp_path, JsonLinesFolder, "main"), remove=["extra"])
    assert numbers(tmp_path / "main") == ALL
    assert numbers(tmp_path / "extra") == ALL


def test_an_output_that_was_left_is_not_taken_up_again(tmp_path: Path) -> None:
    """It lacks what was delivered meanwhile."""
    (made,) = panes_of(tmp_path, "main")

    def sinks(*names: str) -> Any:
        return made.write_to(
            *(JsonLinesFolder(str(tmp_path / name), compact=NEVER) for name in names)
        )

    die(tmp_path, sinks("a", "b"), count=9)
    die(tmp_path, sinks("a"), count=5)
    with pytest.raises(StateError, match="left out of a run"):
        run(tmp_path, sinks("a", "b"))


@pytest.mark.parametrize(
    "point",
    ["after the announcement", "before the write", "after the write"]
    if is_campaign()
    else ["before the write"],
)
def test_dying_while_a_place_is_left(point: str, tmp_path: Path) -> None:
    """Again and again: the state knows the place until it has committed without it."""
    both = ends(tmp_path, ParquetFolder, "main", "extra")
    die(tmp_path, *both, count=9)
    taken = len(waiting(tmp_path / "extra")) * BUNDLE
    gone: Any = {"remove": ["extra"], "drop_undelivered": True}
    for _ in range(3):
        die(tmp_path, *ends(tmp_path, ParquetFolder, "main"), at=point, count=1, **gone)
    run(tmp_path, *ends(tmp_path, ParquetFolder, "main"), **gone)
    assert numbers(tmp_path / "main") == ALL
    assert numbers(tmp_path / "extra") == ALL[:taken]


# ---- what is gone or different ----


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def swap(one: Path) -> None:
    other = waiting(one.parents[1])[1]
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "folder gone": lambda path: shutil.rmtree(path.parent),
    "file gone": Path.unlink,
    "bit flipped": flip,
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-5]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"{}\n"),
    "empty": lambda path: path.write_bytes(b""),
    "swapped": swap,
}
LOST = {"folder gone": 110, "swapped": 20}
MOST = pytest.mark.parametrize(
    "damage",
    sampled(["folder gone", "bit flipped", "file gone", "longer", "cut", "empty", "swapped"], 3),
)
SOME = pytest.mark.parametrize("damage", [*DAMAGE] if is_campaign() else ["folder gone", "swapped"])


@MOST
def test_refused_by_name(damage: str, tmp_path: Path) -> None:
    """Nothing is changed; put back as it was, all rows come out."""
    kind = ParquetFolder
    out, copy = tmp_path / "main", tmp_path / "copy"
    die(tmp_path, *ends(tmp_path, kind, "main"), count=12)
    shutil.copytree(out, copy)
    path = waiting(out)[0]
    DAMAGE[damage](path)
    marker = (out / ".lowwater.json").read_bytes()
    with pytest.raises(StateError, match=r"rows that wait in .*\.pending") as caught:
        run(tmp_path, *ends(tmp_path, kind, "main"))
    assert path.name in caught.value.what
    assert "copy of the folder" in (caught.value.hint or "")
    assert (out / ".lowwater.json").read_bytes() == marker
    shutil.rmtree(out)
    copy.rename(out)
    run(tmp_path, *ends(tmp_path, kind, "main"))
    assert numbers(out) == ALL


@SOME
def test_refused_by_name_as_the_output_moves(damage: str, tmp_path: Path) -> None:
    die(tmp_path, *ends(tmp_path, JsonLinesFolder, "main"), count=12)
    path = waiting(tmp_path / "main")[0]
    DAMAGE[damage](path)
    with pytest.raises(StateError, match=f"110 rows wait unpublished in .*{path.name}"):
        run(tmp_path, *ends(tmp_path, JsonLinesFolder, "main-2"))
    with pytest.warns(PipelineWarning, match=r"rows that wait in .* their rows are dropped"):
        run(tmp_path, *ends(tmp_path, JsonLinesFolder, "main-2"), drop_undelivered=True)
    lost = LOST.get(damage, 10)
    assert numbers(tmp_path / "main", tmp_path / "main-2") == ALL[lost:]


@SOME
def test_dropped_on_request(damage: str, tmp_path: Path) -> None:
    """With the number of rows; what is sound is published."""
    die(tmp_path, *ends(tmp_path, ParquetFolder, "main"), count=12)
    DAMAGE[damage](waiting(tmp_path / "main")[0])
    lost = LOST.get(damage, 10)
    with pytest.warns(PipelineWarning, match=f"^{lost} rows that wait in"):
        run(tmp_path, *ends(tmp_path, ParquetFolder, "main"), drop_undelivered=True)
    assert numbers(tmp_path / "main") == ALL[lost:]


def test_newer_files_than_the_list_come_again(tmp_path: Path) -> None:
    """Whatever has become of them."""
    die(tmp_path, *ends(tmp_path, ParquetFolder, "main"), count=9)
    newest = waiting(tmp_path / "main")[-1]
    flip(newest)
    die(tmp_path, *ends(tmp_path, ParquetFolder, "main"), count=4)
    waiting(tmp_path / "main")[-1].unlink()
    run(tmp_path, *ends(tmp_path, ParquetFolder, "main"))
    assert numbers(tmp_path / "main") == ALL


def test_a_file_that_nobody_delivered(tmp_path: Path) -> None:
    """One that was put back after it was published, say, would be published twice."""
    die(tmp_path, *ends(tmp_path, JsonLinesFolder, "main"), count=12)
    first = waiting(tmp_path / "main")[0]
    strange = first.with_name("part-000000000004-000-000001.jsonl")
    shutil.copy(first, strange)
    with pytest.raises(StateError, match=r"'part-000000000004-000-000001.jsonl' is in .* has not"):
        run(tmp_path, *ends(tmp_path, JsonLinesFolder, "main"))
    strange.unlink()
    run(tmp_path, *ends(tmp_path, JsonLinesFolder, "main"))
    assert numbers(tmp_path / "main") == ALL


def test_a_file_that_was_published_by_hand(tmp_path: Path) -> None:
    """Those before it would look as if they had been published, and be removed."""
    die(tmp_path, *ends(tmp_path, JsonLinesFolder, "main"), count=12)
    path = waiting(tmp_path / "main")[5]
    path.rename(tmp_path / "main" / path.name)
    with pytest.raises(StateError, match=f"'{path.name}' is in .* which comes before it, waits"):
        run(tmp_path, *ends(tmp_path, JsonLinesFolder, "main"))
    (tmp_path / "main" / path.name).rename(path)
    run(tmp_path, *ends(tmp_path, JsonLinesFolder, "main"))
    assert numbers(tmp_path / "main") == ALL


@SOME
def test_refused_by_name_while_it_runs(damage: str, tmp_path: Path) -> None:
    """When it is published: nothing of it is, and what stayed sound is there."""
    out = tmp_path / "main"

    def harm() -> None:
        DAMAGE[damage](waiting(out)[0])

    with (
        stopping("before publishing", 10, harm),
        pytest.raises(StateError, match=r"rows that wait in .* are lost or damaged"),
    ):
        run(tmp_path, *ends(tmp_path, JsonLinesFolder, "main"))
    assert not numbers(out)


def test_a_place_that_is_gone_with_what_waits_in_it(tmp_path: Path) -> None:
    die(tmp_path, *ends(tmp_path, JsonLinesFolder, "main"), count=12)
    (tmp_path / "main").rename(tmp_path / "elsewhere")
    match = r"110 rows wait unpublished in .* no longer the folder"
    with pytest.raises(StateError, match=match):
        run(tmp_path, *ends(tmp_path, JsonLinesFolder, "main-2"))
    with pytest.warns(PipelineWarning, match=f"{match}.* they are dropped"):
        run(tmp_path, *ends(tmp_path, JsonLinesFolder, "main-2"), drop_undelivered=True)
    assert numbers(tmp_path / "main-2") == ALL[110:]


# ---- copies, and older versions ----


def test_an_older_state_and_new_places(tmp_path: Path) -> None:
    """The later state owns what waits; if it has published it, nothing is missing."""
    out = tmp_path / "main"
    die(tmp_path, *ends(tmp_path, JsonLinesFolder, "main"), count=8)
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    die(tmp_path, *ends(tmp_path, JsonLinesFolder, "main"), count=8)
    (made,) = panes_of(tmp_path, "main")
    options: Any = {"bundle_size": BUNDLE, "progress": False, "state": tmp_path / "copy"}
    with pytest.raises(StateError, match=r"70 rows wait unpublished in .* last written by opening"):
        made.write_jsonl(tmp_path / "rest").run(**options)
    run(tmp_path, *ends(tmp_path, JsonLinesFolder, "main"))
    assert numbers(out) == ALL
    made.write_jsonl(tmp_path / "rest").run(**options)
    assert numbers(tmp_path / "rest") == ALL[70:]


def test_a_copy_of_a_folder_as_a_second_sink(tmp_path: Path) -> None:
    (made,) = panes_of(tmp_path, "main")
    die(tmp_path, made.write_jsonl(tmp_path / "a", compact=NEVER), count=8)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    both = [JsonLinesFolder(str(tmp_path / name), compact=NEVER) for name in "ab"]
    with pytest.raises(StateError, match="is a copy of"):
        run(tmp_path, made.write_to(*both))


def as_before(folder: Path) -> None:
    """Take from a folder and its state what versions without a list did not store."""
    from lowwater.engine.local.run_record import HELD, RUN
    from lowwater.state.codec import decode, encode
    from lowwater.state.key_layout import prefix_range
    from lowwater.state.rocks import RocksStore
    from lowwater.state.store import Batch

    with RocksStore(folder / "state") as store:
        (data,) = store.get([RUN])
        assert data is not None
        record = decode(data)
        del record["held"]
        batch = Batch()
        batch.put([RUN], [encode(record)])
        batch.delete_range(*prefix_range(HELD))
        store.commit(batch)
    for path in folder.glob("*/.lowwater.json"):
        known = json.loads(path.read_text())
        del known["folder"], known["sum"]
        path.write_text(json.dumps(known))


@FOLDERS
def test_a_state_without_a_list(
    kind: Folder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What is found is taken as it is, and in the list from the first commit on."""
    die(tmp_path, *ends(tmp_path, kind, "main"), count=8)
    as_before(tmp_path)
    die(tmp_path, *ends(tmp_path, kind, "main"), count=3)
    assert "8 files with 80 rows wait there, and the state directory has no list" in caplog.text
    first = waiting(tmp_path / "main")[0]
    data = first.read_bytes()
    flip(first)
    with pytest.raises(StateError, match=first.name):
        run(tmp_path, *ends(tmp_path, kind, "main"))
    first.write_bytes(data)
    run(tmp_path, *ends(tmp_path, kind, "main"))
    assert numbers(tmp_path / "main") == ALL


@pytest.mark.parametrize("how", ["removed", "another place"])
def test_a_state_without_a_list_whose_output_ends(how: str, tmp_path: Path) -> None:
    """The folder says itself what it is."""
    die(tmp_path, *ends(tmp_path, ParquetFolder, "main", "extra"), count=8)
    as_before(tmp_path)
    if how == "removed":
        gone: Any = {"remove": ["extra"], "drop_undelivered": True}
        run(tmp_path, *ends(tmp_path, ParquetFolder, "main"), **gone)
        assert numbers(tmp_path / "extra") == ALL[:80]
    else:
        run(tmp_path, *ends(tmp_path, ParquetFolder, "main", "extra-2"))
        assert numbers(tmp_path / "extra", tmp_path / "extra-2") == ALL
        assert numbers(tmp_path / "extra")
    assert numbers(tmp_path / "main") == ALL
    assert not waiting(tmp_path / "extra")


def test_a_stop_publishes_and_a_restart_misses_nothing(tmp_path: Path) -> None:
    """Also where programs move away what was published."""
    out, moved = tmp_path / "main", tmp_path / "moved"
    moved.mkdir()
    for count in (5, 4, 4):
        with stopping("before forgetting", count), pytest.raises(Stopped):
            run(tmp_path, *ends(tmp_path, JsonLinesFolder, "main"))
        assert not waiting(out)
        for path in out.glob("part-*"):
            path.rename(moved / path.name)
    run(tmp_path, *ends(tmp_path, JsonLinesFolder, "main"))
    found = numbers(out, moved)
    assert [*dict.fromkeys(found)] == ALL


# ---- state tools ----


def test_what_waits_goes_with_the_parts_of_a_state(tmp_path: Path) -> None:
    """Of a split and a merge, each way; and it is shown."""
    write_input(tmp_path / "a" / "in")
    write_input(tmp_path / "b" / "in")

    def output(side: str) -> Any:
        (made,) = panes_of(tmp_path / side, f"stage {side}", source=f"source {side}")
        return made.write_jsonl(tmp_path / side / "out", compact=NEVER)

    die(tmp_path, output("a"), output("b"), count=ROWS // BUNDLE + 6)
    before = {side: len(waiting(tmp_path / side / "out")) for side in "ab"}
    told = state_info(tmp_path / "state").to_text()
    assert "rows in" in told
    assert f"files of {tmp_path / 'a' / 'out'}, if not published since" in told
    assert verify_state(tmp_path / "state")
    split_state(tmp_path / "state", {tmp_path / f"part-{side}": [f"stage {side}"] for side in "ab"})
    first = waiting(tmp_path / "a" / "out")[0]
    first.rename(tmp_path / "kept")
    options: Any = {"bundle_size": BUNDLE, "commit_every": "bundle", "progress": False}
    with pytest.raises(StateError, match=first.name):
        output("a").run(state=tmp_path / "part-a", **options)
    merge_states([tmp_path / "part-a", tmp_path / "part-b"], tmp_path / "again")
    with pytest.raises(StateError, match=first.name):
        lw.run(output("a"), output("b"), state=tmp_path / "again", **options)
    (tmp_path / "kept").rename(first)
    lw.run(output("a"), output("b"), state=tmp_path / "again", **options)
    assert min(before.values()) > 2, before
    for side in "ab":
        assert numbers(tmp_path / side / "out") == ALL


def test_places_that_move_while_rows_wait(tmp_path: Path) -> None:
    """The state is told where they are; a run without the output finds them there."""
    die(tmp_path, *ends(tmp_path, JsonLinesFolder, "main", "extra"), count=9)
    taken = len(waiting(tmp_path / "extra")) * BUNDLE
    (tmp_path / "extra").rename(tmp_path / "moved")
    relocate_state(tmp_path / "state", tmp_path / "extra", tmp_path / "moved")
    gone: Any = {"remove": ["extra"], "drop_undelivered": True}
    die(tmp_path, *ends(tmp_path, JsonLinesFolder, "main"), count=2, **gone)
    assert numbers(tmp_path / "moved") == ALL[:taken]


@pytest.mark.parametrize("digit", sampled(["epoch in it", "published", "output"], every=2))
def test_a_flipped_digit_in_the_marker(digit: str, tmp_path: Path) -> None:
    """It says up to where files were published: what waits would be removed as published."""
    out = tmp_path / "main"
    compact = Compaction(size=4000, age="1000d")
    die(tmp_path, *ends(tmp_path, JsonLinesFolder, "main", compact=compact), count=11)
    marker = out / ".lowwater.json"
    sound = marker.read_text()
    known = json.loads(sound)
    last = known["published"]["part"]
    assert last < waiting(out)[0].name.split("-", 1)[1]
    if digit == "output":
        known["output"] = 1
    else:
        later = waiting(out)[-1].name.removeprefix("part-").removesuffix(".jsonl")
        known["published"]["part"] = later
        if digit == "published":
            known["published"] = {}
    marker.write_text(json.dumps(known))
    with pytest.raises(StateError, match="its checksum does not match"):
        run(tmp_path, *ends(tmp_path, JsonLinesFolder, "main", compact=compact))
    # Of a version that notes no checksum, but its opening.
    marker.write_text(json.dumps({**json.loads(sound), "sum": ["another opening", 1]}))
    run(tmp_path, *ends(tmp_path, JsonLinesFolder, "main", compact=compact))
    assert numbers(out) == ALL


# ---- remote stores ----


def test_in_a_store(tmp_path: Path) -> None:
    """As in a local folder: refused by name, removed, and moved to another place."""
    filesystem = fsspec.filesystem("memory")
    (main, extra) = panes_of(tmp_path, "main", "extra")
    root = f"pending-{tmp_path.name}"

    def at(name: str) -> str:
        return f"memory://{root}/{name}"

    def seen(name: str) -> list[int]:
        found = filesystem.glob(f"/{root}/{name}/part-*")
        return sorted(
            json.loads(line)["n"] for one in found for line in filesystem.cat(one).splitlines()
        )

    def both() -> list[Any]:
        named = {"main": main, "extra": extra}
        return [one.write_jsonl(at(name), compact=NEVER) for name, one in named.items()]

    die(tmp_path, *both(), count=9)
    first = min(filesystem.glob(f"/{root}/main/.pending/part-*"))
    data = filesystem.cat(first)
    for harm in (b"", data[:-1], data.replace(b"1", b"5", 1)):
        filesystem.pipe_file(first, harm)
        with pytest.raises(StateError, match=first.rpartition("/")[2]):
            run(tmp_path, *both())
    filesystem.pipe_file(first, data)
    gone: Any = {"remove": "extra", "drop_undelivered": True}
    run(tmp_path, main.write_jsonl(at("main-2"), compact=NEVER), **gone)
    assert seen("extra") == ALL[: len(seen("extra"))]
    assert len(seen("extra")) == 90
    assert [*seen("main"), *seen("main-2")] == ALL
    assert not filesystem.glob(f"/{root}/*/.pending/part-*")


@pytest.mark.long(reason="requests to a server that is not there")
def test_in_a_store_that_needs_options(tmp_path: Path, monkeypatch: Any) -> None:
    """The state does not know them, so it cannot open the former place, unless others say them."""
    with running_s3() as server:
        (made,) = panes_of(tmp_path, "main")
        die(tmp_path, made.write_jsonl(server.uri("main"), compact=NEVER), count=6)
        options = server.uri("main").partition("?")[2]
        endpoint = dict(one.split("=") for one in options.split("&"))["endpoint_override"]
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        match = "50 rows wait unpublished in 'JsonLinesFolder s3://bucket/main'"
        with pytest.raises(StateError, match=match):
            run(tmp_path, made.write_jsonl(tmp_path / "rest"))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{endpoint.replace('%3A', ':')}")
        run(tmp_path, made.write_jsonl(tmp_path / "rest"))
        found = [
            json.loads(line)["n"]
            for name, data in server.objects("main").items()
            if name.startswith("part-")
            for line in data.splitlines()
        ]
    assert sorted(found) == ALL[:60]
    assert numbers(tmp_path / "rest") == ALL[60:]
