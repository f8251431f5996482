"""Whatever happens to a durable run's files, directory or pipeline: told, or as if it had not."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.engine.local.commit_policy import CommitPolicy
from lowwater.errors import DataError, InvalidArgument, LowwaterError, StateError
from lowwater.io.sinks import Callback, SqliteTable
from lowwater.pipeline.state_tools import state_info
from tests.children import run_code
from tests.examples import sampled
from tests.unit.engine.local.durable_runs import (
    KEYS,
    ROWS,
    SECOND,
    Stopped,
    output,
    pipeline,
    run,
    stopped,
    stopping,
    write_file,
    write_files,
)

pytestmark = pytest.mark.slow(reason="faults of a disk at every write")


@pytest.fixture(scope="module")
def stopped_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a folder with a run that was stopped in the second of three files, and its copy."""
    folder, copy = (tmp_path_factory.mktemp(name) for name in ("stopped", "copy"))
    stopped(pipeline(write_files(folder / "in")), folder)
    shutil.copytree(folder, copy, dirs_exist_ok=True)
    return folder, copy


@pytest.fixture
def folder(stopped_run: tuple[Path, Path]) -> Path:
    """Return the folder as it was when the run was stopped: a state knows files by their paths."""
    folder, copy = stopped_run
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)
    return folder


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Return what an undisturbed run gives."""
    folder = tmp_path_factory.mktemp("whole")
    run(pipeline(write_files(folder / "in")), folder)
    found = output(folder)
    assert found["part"]
    assert found["late"]
    return found


def same(folder: Path, wanted: dict[str, list[Any]]) -> None:
    """Check that a run came to the same end as an undisturbed one."""
    found = output(folder)
    assert found["part"] == wanted["part"]
    assert found["late"] == wanted["late"]


def finish(folder: Path, wanted: dict[str, list[Any]]) -> None:
    """Run to the end with few commits, and check that it is that of an undisturbed run."""
    run(pipeline(folder / "in"), folder, commit_every="1h")
    same(folder, wanted)


def put_right(folder: Path, wanted: dict[str, list[Any]]) -> None:
    """Check that a run over a folder, once its files are put right, loses nothing."""
    shutil.rmtree(folder / "in")
    write_files(folder / "in")
    finish(folder, wanted)


def refused(folder: Path, error: type[LowwaterError], match: str, **changes: Any) -> None:
    """Check that a run is refused with what is wrong and the hint, and does no harm."""
    before = output(folder)
    with pytest.raises(error, match=match) as caught:
        run(pipeline(folder / "in", **changes), folder)
    assert caught.value.hint
    assert output(folder) == before


# ------------------------------------------------------------------------------- the source's files


def test_a_file_that_shrank_while_it_was_being_read(folder: Path, wanted: Any) -> None:
    os.truncate(folder / "in/1.parquet", (folder / "in/1.parquet").stat().st_size - 10)
    refused(folder, DataError, r"had \d+ bytes when it was read, and now has \d+ .*1\.parquet")
    put_right(folder, wanted)


def test_a_file_that_grew_while_it_was_being_read(folder: Path, wanted: Any) -> None:
    write_file(folder / "in/1.parquet", 1, ROWS + 20)
    refused(folder, DataError, r"had \d+ bytes when it was read, and now has \d+ .*1\.parquet")
    put_right(folder, wanted)


def test_a_file_that_vanished_while_it_was_being_read(folder: Path, wanted: Any) -> None:
    (folder / "in/1.parquet").unlink()
    refused(folder, DataError, r"vanished while it was being read .*1\.parquet.*Put it back")
    put_right(folder, wanted)


@pytest.mark.parametrize("rows", [ROWS // 2, ROWS + 20])
def test_a_file_that_changed_after_it_was_read_whole(rows: int, folder: Path, wanted: Any) -> None:
    write_file(folder / "in/0.parquet", 0, rows)
    refused(folder, DataError, r"had \d+ bytes when it was read, and now has \d+ .*0\.parquet")
    put_right(folder, wanted)


def test_a_file_may_go_once_it_was_read_whole(folder: Path, wanted: Any) -> None:
    (folder / "in/0.parquet").unlink()
    finish(folder, wanted)


def test_the_last_file_may_go_once_the_run_is_complete(folder: Path, wanted: Any) -> None:
    run(pipeline(folder / "in"), folder)
    (folder / "in/2.parquet").unlink()
    finish(folder, wanted)


def test_a_file_that_is_no_longer_what_it_was_inside(folder: Path, wanted: Any) -> None:
    path = folder / "in/1.parquet"
    path.write_bytes(bytes(path.stat().st_size))
    refused(folder, DataError, r"still has \d+ bytes, but others")
    put_right(folder, wanted)


def test_a_file_that_shrinks_during_the_run(tmp_path: Path, wanted: Any) -> None:
    path = write_files(tmp_path / "in") / "1.parquet"

    def shrink() -> None:
        os.truncate(path, path.stat().st_size // 2)

    with stopping("after the write", 12, shrink), pytest.raises(DataError, match=r"1\.parquet"):
        run(pipeline(tmp_path / "in"), tmp_path)
    put_right(tmp_path, wanted)


def lines(path: Path, first: int, count: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        for at in range(first, first + count):
            file.write(json.dumps({"at": at * SECOND, "key": "k", "value": at}) + "\n")


def test_lines_added_while_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "in/lines.jsonl"
    lines(path, 0, 50)
    counts = (
        lw.read_jsonl(path, time="at", clock=lw.ManualClock(0), watermark=lw.Ascending())
        .key_by("key")
        .window(lw.FixedWindows("10s"))
        .aggregate(n=lw.count())
    )
    whole = path.read_bytes()
    with (
        stopping("after the write", 2, lambda: lines(path, 50, 50)),
        pytest.raises(DataError, match=r"lines\.jsonl.*add what is new as another file"),
    ):
        run(counts, tmp_path)
    assert not state_info(tmp_path / "state").complete
    path.write_bytes(whole)
    metrics = run(counts, tmp_path)
    assert metrics.events == 50
    assert sum(row["n"] for row in output(tmp_path)["part"]) == 50


def test_files_that_come_after_the_end_are_not_passed_over(folder: Path, wanted: Any) -> None:
    run(pipeline(folder / "in"), folder)
    write_file(folder / "in/3.parquet", 3)
    refused(folder, StateError, r"is complete, but there is more to read now: .*3\.parquet")
    (folder / "in/3.parquet").unlink()
    finish(folder, wanted)


def test_further_paths_can_be_read(folder: Path) -> None:
    write_file(folder / "more/3.parquet", 3)
    metrics = run(pipeline([folder / "in", folder / "more"]), folder)  # type: ignore[arg-type]
    assert metrics.events == 4 * ROWS
    whole = folder / "whole"
    run(pipeline([folder / "in", folder / "more"]), whole)  # type: ignore[arg-type]
    assert output(folder) == output(whole)


# ---------------------------------------------------------------------------- a source of one's own


@dataclass(frozen=True)
class Numbers:
    """Elements a second apart, in batches of five; it has no option to follow."""

    count: int = field(repr=False)

    schema: ClassVar[pa.Schema] = pa.schema([("at", pa.int64()), ("value", pa.int64())])

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[lw.Records]:
        return (records for records, _ in self.batches_from(None, size, keys))

    def batches_from(
        self, position: dict[str, Any] | None, size: int, keys: tuple[str, ...]
    ) -> Iterator[tuple[lw.Records, dict[str, Any]]]:
        for first in range(0 if position is None else position["next"], self.count, 5):
            value = np.arange(first, first + 5)
            batch = pa.record_batch([value * SECOND, value], schema=self.schema)
            yield lw.Records.from_arrow(batch), {"next": first + 5}


class FollowedNumbers:
    """The same with an option of this name, in a class that is no dataclass."""

    schema = Numbers.schema
    follow = True

    def __init__(self, count: int) -> None:
        numbers = Numbers(count)
        self.batches, self.batches_from = numbers.batches, numbers.batches_from


def test_a_position_that_is_no_dict_is_refused(tmp_path: Path) -> None:
    class Counting(FollowedNumbers):
        def __init__(self, count: int) -> None:
            super().__init__(count)
            inner = self.batches_from
            self.batches_from = lambda *given: ((r, p["next"]) for r, p in inner(*given))

    stream = lw.from_source(Counting(20), time="at", watermark=lw.Ascending())
    sums = stream.key_by(k=lw.lit("k")).window(lw.FixedWindows("10s")).aggregate(n=lw.count())
    with pytest.raises(
        lw.InvalidArgument,
        match=r"Counting.batches_from gave position=5 \(int\), which is not a dict",
    ):
        run(sums, tmp_path)


@pytest.mark.parametrize("source", [Numbers, FollowedNumbers])
def test_a_source_of_ones_own_is_resumed(
    source: type[Numbers] | type[FollowedNumbers], tmp_path: Path
) -> None:
    def sums(count: int) -> lw.Pipeline:
        stream = lw.from_source(
            source(count), time="at", clock=lw.ManualClock(0), watermark=lw.Ascending()
        )
        return (
            stream.key_by(k=lw.lit("k"))
            .window(lw.FixedWindows("10s"))
            .aggregate(total=lw.sum("value"))
        )

    stopped(sums(40), tmp_path, commits=5)
    for _ in range(2):
        run(sums(40), tmp_path)
        totals = [row["total"] for row in output(tmp_path)["part"]]
        assert sorted(totals) == [45, 145, 245, 345]
    with pytest.raises(StateError, match="is complete, but there is more to read now"):
        run(sums(45), tmp_path)


# ------------------------------------------------------------------------------ the state directory


def biggest(folder: Path, pattern: str) -> Path:
    return max((folder / "state").rglob(pattern), key=lambda path: path.stat().st_size)


def flip(path: Path, share: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(len(content) * share)] ^= 0xFF
    path.write_bytes(content)


@pytest.mark.parametrize("share", sampled([0.02, 0.3, 0.6, 0.97], every=2))
def test_a_flipped_byte_in_a_table(share: float, folder: Path, wanted: Any) -> None:
    """Told at once; or of no effect, as a run may not need the block that it is in."""
    shutil.copytree(folder / "state", folder / "copy")
    flip(biggest(folder, "*.sst"), share)
    before = output(folder)
    told = None
    try:
        run(pipeline(folder / "in"), folder)
    except StateError as error:
        told = str(error)
    if told is not None:
        assert "damaged" in told
        assert "from a copy" in told
        assert output(folder) == before
        shutil.rmtree(folder / "state")
        (folder / "copy").rename(folder / "state")
        run(pipeline(folder / "in"), folder)
    assert output(folder) == wanted


KILLED = """
import os, sys
from pathlib import Path
from tests.unit.engine.local.durable_runs import pipeline, run, stopping
folder = Path(sys.argv[1])
with stopping("after the write", 12, lambda: os._exit(9)):
    run(pipeline(folder / "in"), folder)
"""


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """Return a folder with a run that died: its last commits are in the log alone."""
    write_files(tmp_path / "in")
    assert run_code(KILLED, tmp_path).returncode == 9
    return tmp_path


def test_a_run_that_died_goes_on(killed: Path, wanted: Any) -> None:
    finish(killed, wanted)


@pytest.mark.parametrize("left", [0.0, 0.4, 0.95])
def test_a_log_cut_short(left: float, killed: Path, wanted: Any) -> None:
    log = biggest(killed, "*.log")
    whole = log.read_bytes()
    os.truncate(log, int(len(whole) * left))
    refused(killed, StateError, "commits were lost that had been acknowledged.*from a copy")
    log.write_bytes(whole)
    finish(killed, wanted)


@pytest.mark.parametrize("pattern", ["*.sst", "CURRENT", "MANIFEST-*", "SEQUENCER"])
def test_a_file_of_the_state_that_is_gone(pattern: str, folder: Path) -> None:
    biggest(folder, pattern).unlink()
    refused(folder, StateError, r"missing|lost|No such file")


def test_a_state_path_that_is_a_file(tmp_path: Path) -> None:
    write_files(tmp_path / "in")
    (tmp_path / "state").write_text("mine")
    refused(tmp_path, StateError, "not a directory")
    assert (tmp_path / "state").read_text() == "mine"


def test_a_state_path_with_other_things_in_it(tmp_path: Path) -> None:
    write_files(tmp_path / "in")
    (tmp_path / "state").mkdir()
    (tmp_path / "state/notes.txt").write_text("mine")
    refused(tmp_path, StateError, "not empty, and what is in it is not state")
    assert (tmp_path / "state/notes.txt").read_text() == "mine"


READ_ONLY = """
import os, sys
from pathlib import Path
# Before the rights are gone: another user may not be able to read the modules.
import lowwater.engine.local.durable, lowwater.io.sinks.folders
from concurrent.futures import ThreadPoolExecutor
from lowwater.errors import LowwaterError
from tests.unit.engine.local.durable_runs import pipeline, run
folder = Path(sys.argv[1])
if os.getuid() == 0:  # who may write anywhere
    os.setgid(65534), os.setuid(65534)
try:
    run(pipeline(folder / "in"), folder)
except LowwaterError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("there", [False, True], ids=["new", "old"])
def test_a_state_path_that_cannot_be_written(there: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder / "in")
        if there:
            stopped(pipeline(folder / "in"), folder)
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        done = run_code(READ_ONLY, folder)
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("StateError")
    assert "cannot be written" in done.stdout
    assert "right to write" in done.stdout


FULL = """
import resource, signal, sys
from pathlib import Path
from lowwater.errors import LowwaterError
from tests.unit.engine.local.durable_runs import pipeline, run
folder, limit = Path(sys.argv[1]), int(sys.argv[2])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    run(pipeline(folder / "in"), folder)
    print("complete")
except LowwaterError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("limit", sampled([3_000, 8_000, 40_000, 64_000], every=2))
def test_a_disk_that_is_full(limit: int, tmp_path: Path, wanted: Any) -> None:
    write_files(tmp_path / "in")
    done = run_code(FULL, tmp_path, limit)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(("StateError", "DataError"))
    assert "full" in done.stdout or "too large" in done.stdout
    assert "room" in done.stdout or "start again" in done.stdout
    finish(tmp_path, wanted)


def test_a_second_live_run_is_refused(tmp_path: Path, wanted: Any) -> None:
    write_files(tmp_path / "in")
    seen: list[str] = []

    def second() -> None:
        with pytest.raises(StateError, match="already open in this process"):
            run(pipeline(tmp_path / "in"), tmp_path)
        done = run_code(
            "import sys\nfrom pathlib import Path\n"
            "from tests.unit.engine.local.durable_runs import pipeline, run\n"
            "run(pipeline(Path(sys.argv[1]) / 'in'), Path(sys.argv[1]))",
            tmp_path,
        )
        seen.append(done.stderr)

    with stopping("after the write", 3, second):
        run(pipeline(tmp_path / "in"), tmp_path)
    assert len(seen) == 1
    assert "StateError: the state is in use by another process" in seen[0]
    same(tmp_path, wanted)


# ------------------------------------------------------------------------------------- the pipeline


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"windows": lw.FixedWindows("10s")}, r"windows was .*'20s'.* and is .*'10s'"),
        ({"windows": lw.Sessions("10s")}, r"windows was .*FixedWindows.* and is .*Sessions"),
        ({"lateness": "5s"}, r"allowed_lateness was 10s and is 5s, shorter"),
        ({"accumulation": "discarding"}, r"accumulation was 'accumulating' and is 'discarding'"),
        ({"value": "at"}, r"aggregates was .*sum\(\).* and is .*'at'"),
        ({"timezone": "UTC"}, r"timezone was None and is 'UTC'"),
        ({"columns": ["key", "value"]}, r"source was .*columns=None.* and is .*columns="),
    ],
)
def test_a_changed_pipeline_is_refused(
    changes: dict[str, Any], match: str, folder: Path, wanted: Any
) -> None:
    refused(folder, StateError, f"belongs to another pipeline: {match}", **changes)
    finish(folder, wanted)


def test_everything_that_differs_is_named(folder: Path) -> None:
    with pytest.raises(StateError, match="bundle_size was 10 and is 20") as caught:
        run(pipeline(folder / "in", lateness="1s"), folder, bundle_size=20)
    assert "allowed_lateness was 10s and is 1s" in str(caught.value)
    assert "reset" in str(caught.value)


@pytest.mark.parametrize("size", [1, 9, 11, 50_000])
def test_another_bundle_size_is_refused(size: int, folder: Path) -> None:
    with pytest.raises(StateError, match=f"bundle_size was 10 and is {size}"):
        run(pipeline(folder / "in"), folder, bundle_size=size)


@pytest.mark.parametrize(
    "clock", [lw.ArrivalClock("at", tick="5s"), lw.ArrivalClock("at", tick="7s")], ids=str
)
def test_another_way_to_cut_bundles_is_refused(clock: lw.ArrivalClock, folder: Path) -> None:
    with pytest.raises(StateError, match=r"clock was .* and is .*ArrivalClock"):
        run(pipeline(folder / "in"), folder, clock=clock)


def test_other_paths_are_refused(folder: Path, wanted: Any) -> None:
    shutil.copytree(folder / "in", folder / "copy")
    with pytest.raises(StateError, match=r"the source no longer reads '.*in'"):
        run(pipeline(folder / "copy"), folder)
    finish(folder, wanted)


def test_the_order_of_paths(tmp_path: Path) -> None:
    """The files of one are read before those of the other."""
    for number, name in enumerate("abc"):
        write_file(tmp_path / name / f"{number}.parquet", number)
    a, b, c = (str(tmp_path / name) for name in "abc")
    stopped(pipeline([a, b]), tmp_path)  # type: ignore[arg-type]
    before = output(tmp_path)
    with pytest.raises(StateError, match=r"paths came in the order .*a', '.*b' and come in .*b', "):
        run(pipeline([b, a]), tmp_path)  # type: ignore[arg-type]
    with pytest.raises(StateError, match=r"came in the order"):
        run(pipeline([b, c, a]), tmp_path)  # type: ignore[arg-type]
    assert output(tmp_path) == before
    metrics = run(pipeline([a, c, b]), tmp_path)  # type: ignore[arg-type]
    assert metrics.events == 3 * ROWS


class Scaled:
    """A combiner with an argument."""

    def __init__(self, factor: int, *, above: Any = None) -> None:
        self._factor = factor
        self.above = above

    def create_accumulator(self) -> int:
        return 0

    def add_input(self, accumulator: int, value: int) -> int:
        return accumulator + self._factor * value

    def merge_accumulators(self, accumulators: Any) -> int:
        return sum(accumulators)

    def extract_output(self, accumulator: int) -> int:
        return accumulator


def combined(folder: Path, combiner: Any, **options: Any) -> lw.Pipeline:
    return (
        lw.read_parquet(folder / "in", time="at", clock=lw.ManualClock(0))
        .key_by("key")
        .window(lw.FixedWindows("20s"), **options)
        .aggregate(total=lw.combine(combiner, "value"))
    )


def test_the_arguments_of_a_combiner(folder: Path) -> None:
    place = folder / "other"
    with stopping("after the write", 5), pytest.raises(Stopped):
        run(combined(folder, Scaled(2, above={"x", "y", "z"})), place)
    for combiner, match in (
        (Scaled(3, above={"x", "y", "z"}), r"_factor=2.* and is .*_factor=3"),
        (Scaled(2, above={"x", "y"}), r"above={'x', 'y', 'z'}.* and is .*above={'x', 'y'}"),
    ):
        with pytest.raises(StateError, match=f"aggregates was .*{match}"):
            run(combined(folder, combiner), place)
    run(combined(folder, Scaled(2, above={"z", "y", "x"})), place)


@pytest.mark.parametrize(
    ("name", "value"), [("closing", "always"), ("on_time", "if_new"), ("timestamps", "latest")]
)
def test_the_other_options_of_windows(name: str, value: str, folder: Path) -> None:
    place = folder / "other"
    with stopping("after the write", 5), pytest.raises(Stopped):
        run(combined(folder, Scaled(2)), place)
    with pytest.raises(StateError, match=rf"{name} was '\w+' and is '{value}'"):
        run(combined(folder, Scaled(2), **{name: value}), place)
    run(combined(folder, Scaled(2)), place)


class Totals:
    """A process whose state has an argument."""

    total = lw.combining_cell(Scaled(2))

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        ctx.total.add(record["value"])
        ctx.emit({"total": ctx.total.get()})


class TotalsOfThree(Totals):
    total = lw.combining_cell(Scaled(3))


def test_the_arguments_of_the_combiner_of_a_cell(folder: Path) -> None:
    TotalsOfThree.__name__ = "Totals"
    stream = lw.read_parquet(folder / "in", time="at", clock=lw.ManualClock(0)).key_by("key")
    place = folder / "other"
    with stopping("after the write", 5), pytest.raises(Stopped):
        run(stream.process(Totals()), place)  # type: ignore[arg-type]
    with pytest.raises(StateError, match=r"cells was .*_factor=2.* and is .*_factor=3"):
        run(stream.process(TotalsOfThree()), place)  # type: ignore[arg-type]
    run(stream.process(Totals()), place)  # type: ignore[arg-type]


def test_other_steps_and_keys_are_refused(folder: Path) -> None:
    stream = lw.read_parquet(folder / "in", time="at", clock=lw.ManualClock(0))

    def built(keyed: Any) -> Any:
        return keyed.window(lw.FixedWindows("20s")).aggregate(n=lw.count())

    place = folder / "other"
    with stopping("after the write", 5), pytest.raises(Stopped):
        run(built(stream.filter(lw.col("value") > 3).key_by("key")), place)
    for other, match in (
        (stream.filter(lw.col("value") > 4).key_by("key"), "reads was"),
        (stream.key_by("key"), "reads was"),
        (stream.filter(lw.col("value") > 3).key_by("value"), "keys was"),
    ):
        with pytest.raises(StateError, match=match):
            run(built(other), place)
    run(built(stream.filter(lw.col("value") > 3).key_by("key")), place)


def test_another_watermark_estimator_is_taken(folder: Path) -> None:
    metrics = run(pipeline(folder / "in", watermark=lw.BoundedDisorder("90s")), folder)
    assert metrics.events == 3 * ROWS
    late = sum(1 for row in output(folder)["late"] if row["record"]["value"] >= 2 * ROWS)
    assert late == 0


def test_other_sinks_are_taken(folder: Path, wanted: Any) -> None:
    told: list[str] = []
    made = pipeline(folder / "in")
    metrics = made.write_to(
        SqliteTable(str(folder / "panes.sqlite"), "panes"),
        Callback(lambda delivery: told.append(delivery.id)),
    ).run(state=folder / "state", bundle_size=10, commit_every="bundle", progress=False)
    assert metrics.events == 3 * ROWS
    assert told == sorted(set(told))
    assert (folder / "panes.sqlite").exists()
    shown = sum(metrics.panes.values())
    assert shown == len(wanted["part"])


# ---------------------------------------------------------------------------------- longer lateness


def late_file(folder: Path) -> None:
    """Write a file that is in time but for its end: records for the windows it began with."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    at = [*range(200), *([1] * 20), *range(200, 240), *([81] * 20), *([181] * 20)]
    pq.write_table(
        pa.table(
            {
                "at": [second * SECOND for second in at],
                "key": ["k"] * len(at),
                "value": list(range(len(at))),
            }
        ),
        folder / "0.parquet",
    )


@pytest.mark.parametrize("commits", [12, 14, 16])
def test_a_longer_lateness_is_applied_to_windows_that_are_stored(
    commits: int, tmp_path: Path
) -> None:
    """Rows under their former expiry must not go when the watermark passes that."""
    (tmp_path / "in").mkdir()
    late_file(tmp_path / "in")
    stopped(pipeline(tmp_path / "in", lateness="60s"), tmp_path, commits)
    known = {row["window_start"] for row in output(tmp_path)["part"] if row["timing"] == "ON_TIME"}
    longer = pipeline(tmp_path / "in", lateness="300s")
    with stopping("before forgetting", 8), pytest.raises(Stopped):  # the rest, but in two runs
        run(longer, tmp_path)
    run(longer, tmp_path)
    rows = [row for row in output(tmp_path)["part"] if row["timing"] == "LATE"]
    assert known
    start = "1970-01-01T00:01:20Z"  # it expired when there were elements of 165 s, and now does not
    last = max((row for row in rows if row["window_start"] == start), key=lambda row: row["index"])
    assert last["n"] == 40
    assert last["index"] > 0


def test_what_had_expired_stays_expired_under_a_longer_lateness(tmp_path: Path) -> None:
    """Else a window would begin again without what it had, and replace what was shown of it."""
    (tmp_path / "in").mkdir()
    late_file(tmp_path / "in")
    stopped(pipeline(tmp_path / "in", lateness="10s"), tmp_path, 20)
    metrics = run(pipeline(tmp_path / "in", lateness="1000s"), tmp_path)
    assert metrics.late["expired"] == 40  # the first window, and that of 80 s
    starts = [row["window_start"] for row in output(tmp_path)["part"] if row["timing"] == "LATE"]
    assert all("00:03" in start for start in starts)
    assert starts


# ------------------------------------------------------------------------------------ how it is run


@pytest.mark.parametrize(
    ("every", "least", "most"),
    [
        *((every, 2, 4) for every in (1_000, "1h")),
        (50, 6, 12),
        ("0s", 31, 80),
        *(pytest.param(every, 31, 36, marks=pytest.mark.long) for every in ("bundle", 1)),
    ],
)
def test_commit_every(every: Any, least: int, most: int, tmp_path: Path, wanted: Any) -> None:
    run(pipeline(write_files(tmp_path / "in")), tmp_path, commit_every=every)
    same(tmp_path, wanted)
    assert least <= state_info(tmp_path / "state").epoch <= most


@pytest.mark.parametrize(
    ("every", "as_well"),
    [
        (dt.timedelta(milliseconds=1_500), "1500ms"),
        (np.timedelta64(2, "s"), "2s"),
        (np.int64(70), 70),
        (np.uint8(1), "bundle"),
    ],
)
def test_commit_every_in_other_types(every: Any, as_well: Any) -> None:
    assert CommitPolicy.of(every) == CommitPolicy.of(as_well)


@pytest.mark.parametrize(
    "every",
    [0, -1, True, 1.5, "soon", "-1s", None, np.int64(0), np.bool_(True), dt.timedelta(-1),
     np.timedelta64(1, "M")],
)  # fmt: skip
def test_commit_every_that_makes_no_sense(every: Any) -> None:
    with pytest.raises(InvalidArgument, match="commit_every"):
        CommitPolicy.of(every)


@pytest.mark.parametrize(
    ("first", "then"),
    sampled(
        [pytest.param(*pair) for pair in product(["1h", "bundle", 50], ["bundle", 30])], every=3
    ),
)
def test_commit_every_may_change(first: Any, then: Any, tmp_path: Path, wanted: Any) -> None:
    write_files(tmp_path / "in")
    with stopping("after the write", 3 if first != "1h" else 1), pytest.raises(Stopped):
        run(pipeline(tmp_path / "in"), tmp_path, commit_every=first)
    run(pipeline(tmp_path / "in"), tmp_path, commit_every=then)
    same(tmp_path, wanted)


@pytest.mark.parametrize("kind", ["from_iterable", "from_arrow", "from_pandas"])
def test_what_cannot_be_read_again_is_refused(kind: str, tmp_path: Path) -> None:
    import pyarrow as pa

    table = pa.table({"at": [1, 2], "key": ["a", "b"]})
    makers: dict[str, Callable[[], Any]] = {
        "from_iterable": lambda: lw.from_iterable(table.to_pylist(), time="at"),
        "from_arrow": lambda: lw.from_arrow(table, time="at"),
        "from_pandas": lambda: lw.from_pandas(table.to_pandas(), time="at"),
    }
    made = makers[kind]().key_by("key").window(lw.FixedWindows("1m")).aggregate(n=lw.count())
    with pytest.raises(InvalidArgument, match=r"cannot be read again.*files.*read_parquet"):
        run(made, tmp_path)
    assert not (tmp_path / "state").exists()
    assert not (tmp_path / "out").exists()


def test_a_complete_run_can_be_run_again_without_effect(folder: Path, wanted: Any) -> None:
    first = run(pipeline(folder / "in"), folder)
    same(folder, wanted)
    files = {p: p.stat().st_mtime_ns for p in (folder / "out").glob("*.jsonl")}
    for _ in range(2):
        again = run(pipeline(folder / "in"), folder)
        assert (again.events, again.panes, again.late) == (first.events, first.panes, first.late)
    assert {p: p.stat().st_mtime_ns for p in (folder / "out").glob("*.jsonl")} == files


def test_callbacks_after_a_restart(tmp_path: Path, wanted: Any) -> None:
    """They see each record at least once: those after the last commit come again."""
    write_files(tmp_path / "in")
    seen: list[int] = []
    options: dict[str, Any] = {"on_late": lambda late: seen.append(late.value["value"])}
    with stopping("before the write", 14), pytest.raises(Stopped):
        run(pipeline(tmp_path / "in"), tmp_path, **options)
    before = list(seen)
    run(pipeline(tmp_path / "in"), tmp_path, **options)
    expected = [row["record"]["value"] for row in wanted["late"]]
    assert set(seen) == set(expected)
    assert before
    assert len(seen) - len(expected) <= 1  # what was in the bundle that was not committed
    same(tmp_path, wanted)


def test_dead_letters_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "in/lines.jsonl"
    lines(path, 0, 30)
    with path.open("a") as file:
        file.write("no json\n")
        file.write('{"at": null, "key": "k", "value": 1}\n')
    lines(path, 30, 30)
    counts = (
        lw.read_jsonl(path, time="at", clock=lw.ManualClock(0), watermark=lw.Ascending())
        .key_by("key")
        .window(lw.FixedWindows("10s"))
        .aggregate(n=lw.count())
    )
    told: list[str] = []
    options: dict[str, Any] = {"on_dead_letter": lambda error: told.append(error.reason)}
    for count in (1, 3):
        with stopping("after the write", count), pytest.raises(Stopped):
            run(counts, tmp_path, **options)
    metrics = run(counts, tmp_path, **options)
    assert set(told) == {"malformed_json", "null_time"}
    assert dict(metrics.errors) == {"malformed_json": 1, "null_time": 1}
    assert len(output(tmp_path)["errors"]) == 2
    assert sum(row["n"] for row in output(tmp_path)["part"]) == 60


def test_a_failing_sink_loses_nothing(tmp_path: Path, wanted: Any) -> None:
    write_files(tmp_path / "in")
    taken: list[str] = []

    def take(delivery: Any) -> None:
        if len(taken) == 3:
            taken.append("failed")
            raise OSError("no connection")
        taken.append(delivery.id)

    ends = pipeline(tmp_path / "in").write_to(Callback(take))
    options: dict[str, Any] = {"bundle_size": 10, "commit_every": "bundle", "progress": False}
    with pytest.raises(OSError, match="no connection"):
        ends.run(state=tmp_path / "state", **options)
    metrics = ends.run(state=tmp_path / "state", **options)
    ids = [each for each in taken if each != "failed"]
    assert ids == sorted(set(ids))
    assert sum(metrics.panes.values()) == len(wanted["part"])


def test_ctrl_c_leaves_a_state_to_go_on_with(tmp_path: Path, wanted: Any) -> None:
    write_files(tmp_path / "in")
    for point in ("before the write", "after the write", "before publishing", "before forgetting"):
        with (
            stopping(point, 4, lambda: signal.raise_signal(signal.SIGINT)),
            pytest.raises(KeyboardInterrupt),
        ):
            run(pipeline(tmp_path / "in"), tmp_path)
    assert state_info(tmp_path / "state").keys == KEYS
    finish(tmp_path, wanted)


def test_a_file_that_grows_when_all_was_read_is_told_before_the_run_is_complete(
    tmp_path: Path,
) -> None:
    path, line = tmp_path / "in.jsonl", '{{"t": {}}}\n'
    path.write_text("".join(line.format(t) for t in range(5)))
    grows = True

    class Last:
        count = lw.value_cell(0)

        def on_record(self, record: dict[str, Any], ctx: lw.ProcessContext) -> None:
            ctx.count.set(ctx.count.get() + 1)

        def on_end(self, ctx: lw.ProcessContext) -> None:
            if grows:
                with path.open("a") as file:
                    file.write(line.format(5))
            ctx.emit({"count": ctx.count.get()})

    def go() -> None:
        read = lw.read_jsonl(path, time="t", unit="s", watermark=lw.Ascending())
        counted = read.key_by(all=lw.lit("all")).process(Last())
        counted.write_jsonl(tmp_path / "out").run(state=tmp_path / "state", progress=False)

    with pytest.raises(DataError, match=r"had 45 bytes when it was read, and now has 54"):
        go()
    assert not list(tmp_path.glob("out/*.jsonl"))
    grows = False
    path.write_text("".join(line.format(t) for t in range(5)))
    go()
    (part,) = tmp_path.glob("out/*.jsonl")
    assert json.loads(part.read_text())["count"] == 5
