"""A log after a crash, or with damage: its tail is cut or an error is clear, never wrong data."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.io import Log
from lowwater.io.log.frame_format import HEADER_BYTES, encode_payload
from lowwater.io.log.segment_files import segments_in
from tests.examples import is_campaign

ROWS: list[list[dict[str, Any]]] = [
    [{"v": 1, "s": "a"}, {"v": 2, "s": None}],
    [{"v": 3, "s": "żółw"}],
    [{"v": 4, "s": ""}],
]
FLAT = [row for rows in ROWS for row in rows]
STEP = 1 if is_campaign() else 3
"""From one byte to the next that is cut off or flipped; the fields of a header have four."""
HELD = [0, 2, 3, 4]
"""How many records are held before each append and after the last."""


@pytest.fixture(autouse=True, scope="module")
def no_waiting_for_the_disk() -> Iterator[None]:
    """What is durable no test can see without pulling the plug."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda descriptor: None)
        patched.setattr(os, "fdatasync", lambda descriptor: None)
        yield


@pytest.fixture
def log_of_one_segment(tmp_path: Path) -> tuple[Path, list[int]]:
    """A log and its only segment's length before each append, and after the last."""
    path, ends = tmp_path / "log", [0]
    with Log(path) as log:
        for rows in ROWS:
            log.append(rows)
            ends.append(segments_of(path)[0].stat().st_size)
    return path, ends


@pytest.fixture
def log_of_segments(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    with Log(path, segment_bytes=1) as log:
        for rows in ROWS:
            log.append(rows)
    assert len(segments_of(path)) == 3
    return path


def segments_of(path: Path) -> list[Path]:
    return [segment.path for segment in segments_in(path / "partition-00000")]


def values(path: Path, **arguments: Any) -> list[dict[str, Any]]:
    with (
        Log(path, read_only=True) as log,
        log.reader(**arguments) as reader,
    ):
        return [row for batch in reader for row in batch.records.to_pylist()]


def copies(path: Path) -> Iterator[Path]:
    while True:
        copy = path.with_name("copy")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(path, copy)
        yield copy


@pytest.mark.slow(reason="faults of a disk at every write")
def test_a_tail_cut_anywhere(log_of_one_segment: tuple[Path, list[int]]) -> None:
    original, ends = log_of_one_segment
    schema = HEADER_BYTES + len(encode_payload(pa.schema([("v", pa.int64()), ("s", pa.string())])))
    sizes = [*ends, schema, *range(0, ends[-2], 3 * STEP), *range(ends[-2], ends[-1], STEP)]
    for size, path in zip(sizes, copies(original), strict=False):
        segment = segments_of(path)[0]
        with segment.open("r+b") as file:
            file.truncate(size)
        whole = max(at for at, end in enumerate(ends) if end <= size)
        kept = FLAT[: HELD[whole]]
        assert values(path) == kept  # a reader does not see the torn frame
        with Log(path) as log:
            if size in (*ends, schema):
                assert log.recovered == ()
            else:
                (cut,) = log.recovered
                assert cut.position == (schema if schema < size < ends[1] else ends[whole])
                assert cut.cut == size - cut.position
                assert cut.offset == HELD[whole]
                assert cut.kept is None
                assert cut.file == str(segment)
            assert log.latest == {0: len(kept)}
            log.append(FLAT[len(kept) :])
        assert values(path) == FLAT
        with Log(path) as log:
            assert log.recovered == ()


@pytest.mark.slow(reason="faults of a disk at every write")
@pytest.mark.parametrize("write", [False, True])
def test_a_flipped_byte_anywhere(log_of_one_segment: tuple[Path, list[int]], write: bool) -> None:
    original, ends = log_of_one_segment
    for at, path in zip(range(0, ends[-1], 2 * STEP - 1), copies(original), strict=False):
        segment = segments_of(path)[0]
        data = bytearray(segment.read_bytes())
        data[at] ^= 0x40
        segment.write_bytes(data)
        sound = FLAT[: HELD[max(n for n, end in enumerate(ends) if end <= at)]]
        last = at >= ends[-2]
        if not write:
            if last:  # it cannot be told from a write that is not finished
                assert values(path) == sound
            else:
                with pytest.raises(lw.DataError, match=r"damaged.*segment, byte \d+.*Put the"):
                    values(path)
            continue
        with Log(path) as log:
            (cut,) = log.recovered
            assert cut.offset == len(sound)
            if last:
                assert cut.kept is None
            else:  # sound frames that had to go are kept aside
                assert cut.kept is not None
                assert Path(cut.kept).read_bytes() == data[cut.position :]
        assert values(path) == sound


def test_a_flipped_byte_in_a_sealed_segment(log_of_segments: Path) -> None:
    for at, path in zip(range(0, 10_000, STEP), copies(log_of_segments), strict=False):
        segment = segments_of(path)[1]
        data = bytearray(segment.read_bytes())
        if at >= len(data):
            break
        data[at] ^= 1
        segment.write_bytes(data)
        with Log(path) as log:  # opening for writing leaves it as it is
            assert log.recovered == ()
            log.append([{"v": 5, "s": "e"}])
        assert segment.read_bytes() == data
        with (
            Log(path, read_only=True) as log,
            log.reader() as reader,
        ):
            seen: list[Any] = []
            with pytest.raises(lw.DataError, match=rf"damaged.*record 2 .*{segment.name}, byte"):
                seen.extend(row for batch in reader for row in batch.records.to_pylist())
            with pytest.raises(lw.DataError, match="damaged"):  # and again: it does not go on
                reader.read()
            assert reader.position == {"0": 2}
            reader.seek(3)  # behind the damage
            assert [row["v"] for batch in reader for row in batch.records.to_pylist()] == [4, 5]


def test_a_sealed_segment_that_is_too_short(log_of_segments: Path) -> None:
    size = segments_of(log_of_segments)[1].stat().st_size
    for cut, path in zip(range(0, size, 3 * STEP - 2), copies(log_of_segments), strict=False):
        with segments_of(path)[1].open("r+b") as file:
            file.truncate(cut)
        with pytest.raises(lw.DataError, match="damaged"):
            values(path)


def test_a_missing_segment(log_of_segments: Path) -> None:
    segments_of(log_of_segments)[1].unlink()
    with pytest.raises(lw.DataError, match=r"damaged.*record 2 was to come"):
        values(log_of_segments)
    assert values(log_of_segments, start=3) == FLAT[3:]


def test_a_lost_tail_is_noticed_by_those_who_had_read_it(log_of_segments: Path) -> None:
    with Log(log_of_segments) as log, log.reader(name="bill") as reader:
        list(reader)
        reader.commit()
    segments_of(log_of_segments)[-1].unlink()
    with Log(log_of_segments) as log:
        with pytest.raises(lw.DataError, match=r"no record 4: the next one will be 3"):
            log.reader(name="bill")
        with pytest.raises(lw.DataError, match="no record 9"):
            log.reader(start=9)


def test_a_file_that_shrinks_while_it_is_read(log_of_one_segment: tuple[Path, list[int]]) -> None:
    path, ends = log_of_one_segment
    with Log(path, read_only=True) as log, log.reader() as reader:
        reader.read()
        with segments_of(path)[0].open("r+b") as file:
            file.truncate(ends[1])
        with pytest.raises(lw.DataError, match="has become shorter"):
            reader.read()


@given(st.data())
def test_any_damage_gives_a_part_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("log")
    with Log(path, segment_bytes=data.draw(st.sampled_from([1, 1000, 10_000])), fsync=0) as log:
        for rows in ROWS * 2:
            log.append(rows)
    for _ in range(data.draw(st.integers(1, 3))):
        segment = data.draw(st.sampled_from(segments_of(path)))
        content = bytearray(segment.read_bytes())
        start = data.draw(st.integers(0, len(content)))
        stop = data.draw(st.integers(start, len(content)))
        content[start:stop] = data.draw(st.binary(max_size=40) | st.just(bytes(stop - start)))
        segment.write_bytes(content)
    write = data.draw(st.booleans())
    try:
        if write:
            Log(path).close()
        found = values(path)
    except lw.DataError:
        return
    assert found == (FLAT * 2)[: len(found)]


@pytest.mark.parametrize("name", ["log.json", "readers/bill.json"])
def test_damage_to_what_a_log_says_of_itself(tmp_path: Path, name: str) -> None:
    with Log(tmp_path / "log", partitions=2) as log, log.reader(name="bill") as reader:
        log.append(ROWS[0])
        list(reader)
        reader.commit()
    original = (tmp_path / "log" / name).read_bytes()
    for at, path in zip(range(len(original)), copies(tmp_path / "log"), strict=False):
        flipped = bytearray(original)
        flipped[at] ^= 1
        (path / name).write_bytes(flipped)
        try:
            with Log(path, read_only=True) as log:
                assert log.partitions == 2
                with log.reader(name="bill") as reader:
                    assert reader.position == {"0": 2, "1": 0}
        except lw.StateError as error:
            told = str(error)
        else:
            continue
        assert name in told
        assert "Put it back" in told


def test_segments_without_the_file_that_describes_them(log_of_segments: Path) -> None:
    (log_of_segments / "log.json").unlink()
    with pytest.raises(lw.StateError, match="has segments, but not the file"):
        Log(log_of_segments)


@pytest.mark.parametrize("layout", [1, 4])
def test_a_log_of_another_version(tmp_path: Path, layout: int) -> None:
    """In layout 1 keys were placed by another hash: appending to it would split them."""
    from lowwater.io.log._files import write_checked

    write_checked(tmp_path / "log.json", {"layout": layout, "partitions": 1})
    with pytest.raises(
        lw.StateError, match=f"layout {layout}, and this version reads 2 and 3"
    ) as caught:
        Log(tmp_path)
    assert "append its records to a new log" in (caught.value.hint or "")


def test_partitions_of_different_logs(tmp_path: Path) -> None:
    Log(tmp_path / "a", partitions=2).append([{"v": 1}], partition=0)
    Log(tmp_path / "b", partitions=2).append([{"w": 1}], partition=1)
    shutil.copytree(
        tmp_path / "b" / "partition-00001", tmp_path / "a" / "partition-00001", dirs_exist_ok=True
    )
    with pytest.raises(lw.DataError, match="partition 1 has another schema than partition 0"):
        Log(tmp_path / "a")


def test_a_crash_between_a_segment_and_its_first_batch(log_of_segments: Path) -> None:
    (log_of_segments / "partition-00000" / f"{4:020d}.segment").touch()
    assert values(log_of_segments) == FLAT
    with Log(log_of_segments) as log:
        assert log.recovered == ()
        assert log.schema is not None
        with pytest.raises(lw.DataError, match="'w' is new"):
            log.append([{"w": 1}])
        log.append([{"v": 5, "s": "e"}])
    assert [row["v"] for row in values(log_of_segments)] == [1, 2, 3, 4, 5]
