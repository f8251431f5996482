"""State directories that are divided by sources, and put together again."""

from __future__ import annotations

import shutil
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import lowwater as lw
from lowwater.cli.main import main
from lowwater.errors import InvalidArgument, StateError
from lowwater.io.sinks import Callback
from lowwater.pipeline import state_parts
from lowwater.pipeline.state_parts import merge_states, split_state
from lowwater.pipeline.state_tools import state_info, verify_state
from tests.examples import sampled
from tests.unit.engine.local.durable_runs import Stopped, stopping, write_file

CLOCK = lw.ManualClock(0)
NAMES = ("one", "two", "three")


def ends(folder: Path, *names: str) -> list[Any]:
    """Return for each name a source, a stage, one behind it, and the outputs of both."""
    found = []
    for name in names:
        number = NAMES.index(name)
        if not (folder / name).exists():
            for file in range(2 + number):
                write_file(folder / name / f"{file}.parquet", file)
        read = lw.read_parquet(
            folder / name, time="at", watermark=lw.BoundedDisorder("5s"), clock=CLOCK, unit="us"
        ).named(name)
        windows = read.key_by("key").window(lw.FixedWindows(f"{20 + number}s"))
        sums = windows.aggregate(total=lw.sum("value")).named(f"{name} sums")
        behind = sums.to_stream().key_by("key").window(lw.FixedWindows("100s"))
        most = behind.aggregate(most=lw.max("total")).named(f"{name} most")
        found += [
            end.write_jsonl(folder / "out" / f"{name} {kind}")
            for kind, end in (("sums", sums), ("most", most))
        ]
    return found


def run(folder: Path, state: str, *names: str, **options: Any) -> lw.Metrics:
    options = {"commit_every": "bundle", "bundle_size": 20, "progress": False, **options}
    return lw.run(*ends(folder, *names), state=folder / state, **options)


def stopped(folder: Path, state: str, *names: str, commits: int, at: str = "") -> None:
    with stopping(at or "before forgetting", commits), pytest.raises(Stopped):
        run(folder, state, *names)


def output(folder: Path) -> dict[str, list[str]]:
    """Return all lines that were written, by output and kind, in order."""
    found: dict[str, list[str]] = {}
    for file in sorted((folder / "out").rglob("*.jsonl")):
        name = f"{file.parent.name} {file.name.split('-')[0]}"
        found.setdefault(name, []).extend(file.read_text().splitlines())
    return found


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    folder = tmp_path_factory.mktemp("whole")
    run(folder, "state", *NAMES)
    return output(folder)


POINTS = ("before forgetting", "before publishing")


@pytest.mark.parametrize(
    ("commits", "at"),
    sampled([pytest.param(*case) for case in product([1, 8, 20], POINTS)], every=3),
)
def test_parts_and_what_they_are_merged_into_go_on_exactly_once(
    commits: int, at: str, wanted: dict[str, list[str]], tmp_path: Path
) -> None:
    stopped(tmp_path, "state", *NAMES, commits=commits, at=at)
    parts = {tmp_path / "a": ["two"], tmp_path / "b": ["one most", "three sums"]}
    found = split_state(tmp_path / "state", parts)
    assert found[str(tmp_path / "a")] == ["two", "two sums", "two most"]
    for name in "ab":
        verify_state(tmp_path / name)
    with pytest.raises(StateError, match="was split or merged into"):
        run(tmp_path, "state", *NAMES)
    stopped(tmp_path, "a", "two", commits=3, at=at)
    stopped(tmp_path, "b", "one", "three", commits=6)
    names = merge_states([tmp_path / "b", tmp_path / "a"], tmp_path / "again")
    assert sorted(names) == sorted(f"{n}{of}" for n in NAMES for of in ("", " sums", " most"))
    verify_state(tmp_path / "again")
    with pytest.raises(StateError, match="was split or merged into"):
        run(tmp_path, "a", "two")
    metrics = run(tmp_path, "again", *NAMES)
    assert output(tmp_path) == wanted
    assert metrics.events == 900


def test_a_part_may_end_before_the_others(tmp_path: Path, wanted: dict[str, list[str]]) -> None:
    stopped(tmp_path, "state", *NAMES, commits=9)
    split_state(tmp_path / "state", {tmp_path / "a": ["one"], tmp_path / "b": ["two", "three"]})
    run(tmp_path, "a", "one")
    merge_states([tmp_path / "a", tmp_path / "b"], tmp_path / "again")
    run(tmp_path, "again", *NAMES)
    assert output(tmp_path) == wanted


@pytest.mark.long(reason="resumes each part of a state")
@pytest.mark.parametrize(
    ("point", "count", "after"),
    [
        ("_mark", 1, True),
        ("_mark", 2, False),
        ("_prepared", 1, True),
        ("_prepared", 2, False),
        ("_write_record", 1, False),
        ("_publish", 1, False),
        ("_publish", 1, True),
        ("_publish", 2, False),
    ],
)
def test_a_command_that_dies_is_finished_by_the_same_command(
    point: str, count: int, after: bool, wanted: dict[str, list[str]], tmp_path: Path
) -> None:
    """At no time can a run go on over the former directory and over a new one."""

    def dying(calls: int) -> Any:
        real, left = getattr(state_parts, point), calls

        def die(*arguments: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0 and not after:
                raise Stopped(point)
            result = real(*arguments)
            if left == 0:
                if point == "_prepared":
                    result.close()
                raise Stopped(point)
            return result

        return mock.patch.object(state_parts, point, die)

    refusals: set[str] = set()

    def is_open(name: str, *names: str) -> bool:
        """Whether a run may begin over a directory; nothing is done."""
        with stopping("after the announcement", 1):
            try:
                run(tmp_path, name, *names)
            except Stopped:
                return True
            except StateError as error:
                refusals.add(error.what.partition(" into ")[0])
        return False

    def check(former: dict[str, tuple[str, ...]], new: dict[str, tuple[str, ...]]) -> None:
        there = {name: of for name, of in new.items() if (tmp_path / name).exists()}
        runs = {name: is_open(name, *of) for name, of in {**former, **there}.items()}
        assert not (any(runs[name] for name in former) and any(runs[name] for name in there))

    stopped(tmp_path, "state", *NAMES, commits=9)
    parts = {tmp_path / "a": ["one"], tmp_path / "b": ["two", "three"]}
    divided = {"a": ("one",), "b": ("two", "three")}
    with dying(count):
        try:
            split_state(tmp_path / "state", parts)
        except Stopped:
            check({"state": NAMES}, divided)
    split_state(tmp_path / "state", parts)
    assert split_state(tmp_path / "state", parts)  # once more does nothing
    check({"state": NAMES}, divided)
    several = [tmp_path / "a", tmp_path / "b"]
    with dying(count):
        try:
            merge_states(several, tmp_path / "again")
        except Stopped:
            if (tmp_path / "again").exists():
                check(divided, {"again": NAMES})
    merge_states(several, tmp_path / "again")
    check(divided, {"again": NAMES})
    run(tmp_path, "again", *NAMES)
    assert output(tmp_path) == wanted
    assert not list(tmp_path.glob(".*"))
    assert refusals == {"what was stored here was split or merged"}


def test_a_split_that_published_nothing_may_become_another_one(tmp_path: Path) -> None:
    stopped(tmp_path, "state", *NAMES, commits=5)
    a, b = tmp_path / "a", tmp_path / "b"
    with (
        mock.patch.object(state_parts, "_publish", side_effect=Stopped),
        pytest.raises(Stopped),
    ):
        split_state(tmp_path / "state", {a: ["one"], b: ["two", "three"]})
    split_state(tmp_path / "state", {a: ["two", "three"], b: ["one"]})
    verify_state(a)  # nothing is left in it of what it would have been
    verify_state(b)


def test_what_cannot_be_divided_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    stopped(tmp_path, "state", *NAMES, commits=5)
    state, a, b = tmp_path / "state", tmp_path / "a", tmp_path / "b"
    rest = ["two", "three"]
    with pytest.raises(InvalidArgument, match="'one sums' cannot be apart from what is named for"):
        split_state(state, {a: ["one"], b: ["one sums", *rest]})
    with pytest.raises(InvalidArgument, match="no directory gets 'three', 'three sums'"):
        split_state(state, {a: ["one"], b: ["two"]})
    with pytest.raises(InvalidArgument, match="gets no sources or stages"):
        split_state(state, {a: [], b: ["one", *rest]})
    with pytest.raises(StateError, match="no source or stage 'four'"):
        split_state(state, {a: ["four"], b: ["one", *rest]})
    with pytest.raises(StateError, match="one lies in the other"):
        split_state(state, {state / "a": ["one"], b: rest})
    b.mkdir()
    with pytest.raises(StateError, match="is there already"):
        split_state(state, {a: ["one"], b: rest})
    b.rmdir()
    split_state(state, {a: ["one"], b: rest})
    with pytest.raises(StateError, match="was split or merged into"):
        split_state(state, {tmp_path / "c": ["one"], tmp_path / "d": rest})


def test_what_cannot_be_merged_is_refused(tmp_path: Path) -> None:
    stopped(tmp_path, "state", *NAMES, commits=5)
    a, b, again = tmp_path / "a", tmp_path / "b", tmp_path / "again"
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    split_state(tmp_path / "state", {a: ["one"], b: ["two", "three"]})
    with pytest.raises(StateError, match="'one', 'one most', 'one sums' is in another"):
        merge_states([a, tmp_path / "copy"], again)
    other = tmp_path / "other"
    stopped(other, "state", "one", commits=2)
    with pytest.raises(StateError, match="not a part of the same state"):
        merge_states([other / "state", b], again)
    with pytest.raises(InvalidArgument, match="at least two directories"):
        merge_states([a, a], again)
    fresh = tmp_path / "fresh"
    stopped(fresh, "state", "one", commits=1, at="after the announcement")
    with pytest.raises(StateError, match="nothing was committed"):
        split_state(fresh / "state", {fresh / "a": ["one"]})
    stopped(tmp_path, "a", "one", commits=1)


def test_parts_without_names_are_refused(tmp_path: Path) -> None:
    write_file(tmp_path / "in" / "0.parquet", 0)
    read = lw.read_parquet(tmp_path / "in", time="at", unit="us")
    end = read.key_by("key").window(lw.FixedWindows("20s")).aggregate(n=lw.count())
    end.write_jsonl(tmp_path / "out").run(state=tmp_path / "state", progress=False)
    with pytest.raises(StateError, match=r"no names of their own.*'source 1', 'stage 1'"):
        split_state(tmp_path / "state", {tmp_path / "a": ["source 1"]})


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stopped(tmp_path, "state", *NAMES, commits=5)
    state, a, b, again = (str(tmp_path / name) for name in ("state", "a", "b", "again"))
    assert main(["state", "split", state, "--into", a, "one", "--into", b, "two", "three"]) == 0
    assert f"{a}: one, one sums, one most" in capsys.readouterr().out
    assert state_info(state).moved == (a, b)
    assert "moved to" in state_info(state).to_text()
    assert main(["state", "merge", again, a, b]) == 0
    assert f"{again}: one, two, three, " in capsys.readouterr().out
    assert main(["state", "merge", again, a]) == 2


def twice(tag: str) -> Any:
    """Return a process that emits each record to its main output and to another one."""

    class Twice:
        def on_record(self, record: Any, ctx: Any) -> None:
            ctx.emit({"v": record["value"]})
            ctx.emit({"v": record["value"]}, tag=tag)

    setattr(Twice, tag, lw.output())
    return Twice()


ODD_NAMES = [
    ("p", "q"), ("p", "p[a]"), ("p[\'odd", "p"), ("a.b/c", "a"), ("p", 'p["odd"]'), ("a\nb", "a"),
    ("p", "p[\'odd\'] "), ("p" * 1_000, "p"), ("source", "stage"), ("*", "["), ("\x1b[2J", "p"),
]  # fmt: skip


@pytest.mark.parametrize("names", ODD_NAMES)
def test_every_output_goes_with_its_stage_whatever_it_is_called(
    names: tuple[str, str], tmp_path: Path
) -> None:
    """None is lost, none is with another part."""
    outputs = []
    for at, name in enumerate(names):
        write_file(tmp_path / f"in{at}" / "0.parquet", at)
        read = lw.read_parquet(tmp_path / f"in{at}", time="at", clock=CLOCK, unit="us")
        process = read.named(f"source of {at}").key_by("key").process(twice("odd")).named(name)
        outputs += [process.write_jsonl(tmp_path / f"{at}-main")]
        outputs += [process.output("odd").write_jsonl(tmp_path / f"{at}-odd")]
    lw.run(*outputs, state=tmp_path / "state", progress=False)
    split_state(tmp_path / "state", {tmp_path / "a": [names[0]], tmp_path / "b": [names[1]]})
    for part, name in zip("ab", names, strict=True):
        stored = state_info(tmp_path / part).description["outputs"]
        assert stored == [name, f"{name}['odd']"]
    merged = merge_states([tmp_path / "a", tmp_path / "b"], tmp_path / "again")
    assert {*names} <= {*merged}
    lw.run(*outputs, state=tmp_path / "again", progress=False)


def test_a_stage_is_not_called_like_an_output_of_another() -> None:
    """Nobody could tell which of the two is meant: neither ``remove=`` nor a split."""
    rows = [{"at": 1, "key": "a", "value": 1}]
    stream = lw.from_iterable(rows, time="at", unit="s")
    process = stream.key_by("key").process(twice("odd")).named("p")
    windows = stream.key_by("key").window(lw.FixedWindows("1m"))
    sums = windows.aggregate(n=lw.count()).named("p['odd']")
    with pytest.raises(InvalidArgument, match=r"named \"p\['odd'\]\", which is what the output"):
        lw.run(process.output("odd").write_to(Callback(print)), sums.write_to(Callback(print)))


@pytest.mark.parametrize("tag", ["p['odd']", "", "a.b", "a/b", "a b", "1st", "a\nb"])
def test_an_output_is_called_as_python_can(tag: str) -> None:
    stream = lw.from_iterable([{"at": 1, "key": "a"}], time="at", unit="s")
    with pytest.raises(InvalidArgument, match="cannot be the name of a cell, timer or output"):
        stream.key_by("key").process(twice(tag))


@pytest.mark.parametrize("name", ["", "p" * 1_001, 3, None])
def test_a_name_is_text_of_some_length(name: Any) -> None:
    stream = lw.from_iterable([{"at": 1, "key": "a"}], time="at", unit="s")
    with pytest.raises(InvalidArgument, match="name="):
        stream.named(name)
    with pytest.raises(InvalidArgument, match="name="):
        stream.key_by("key").window(lw.FixedWindows("1m")).group().named(name)


def test_a_state_of_an_older_version_with_such_names_is_refused_in_words() -> None:
    """Its outputs cannot be told apart."""
    stages = {"p": {"outputs": ["main", "odd"]}, "p['odd']": {}}
    record: Any = {"description": {"stages": stages}}
    with pytest.raises(StateError, match=r"cannot be told which part the output .*p.*odd"):
        state_parts._is_of_part("p['odd']", record, ["p"])
    assert state_parts._is_of_part("p['odd']", record, ["p", "p['odd']"])
    assert not state_parts._is_of_part("p", record, ["p['odd']"])
    with pytest.raises(StateError, match="no stage"):
        state_parts._is_of_part("gone", record, ["p"])


@pytest.mark.parametrize("name", ["\ud800", "a\udfffb"])
def test_a_name_that_cannot_be_stored_is_refused_by_durable_runs(name: str, tmp_path: Path) -> None:
    write_file(tmp_path / "in" / "0.parquet", 0)
    read = lw.read_parquet(tmp_path / "in", time="at", unit="us").key_by("key")
    counts = read.window(lw.FixedWindows("1m")).aggregate(n=lw.count()).named(name)
    assert counts.collect().panes
    with pytest.raises(InvalidArgument, match="half of a surrogate pair, so it cannot be stored"):
        counts.write_to(Callback(print)).run(state=tmp_path / "state", progress=False)
