"""What is doubtful about a pipeline, found without running it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, cycle, repeat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.io.sinks import JsonLinesFolder, SqliteTable


def following(path: Path, **options: Any) -> Any:
    return lw.read_jsonl(path, time="at", follow=True, **options)


def windowed(stream: Any, windows: Any = None, **how: Any) -> lw.Pipeline:
    keyed = stream.key_by(lambda record: record["k"])
    made: lw.Pipeline = keyed.window(windows or lw.FixedWindows("1m"), **how).aggregate(
        n=lw.count()
    )
    return made


ASCENDING = lw.Ascending()


def bounded(watermark: Any = ASCENDING) -> Any:
    return lw.from_iterable([{"at": 0, "k": "a"}], time="at", watermark=watermark)


def test_a_sound_pipeline_has_no_findings() -> None:
    found = lw.check(windowed(bounded()))
    assert not found
    assert repr(found) == "no problems found"


@pytest.mark.parametrize(
    ("how", "severity", "what"),
    [
        ({"trigger": lw.Never()}, "warning", "never fires"),
        (
            {"trigger": lw.AfterCount(3), "allow_data_loss": "three are enough"},
            "warning",
            "three are enough",
        ),
        (
            {
                "trigger": lw.AfterWatermark(early=lw.AfterCount(1), late=lw.AfterCount(1)),
                "accumulation": "accumulating",
            },
            "warning",
            "because allowed_lateness is 0s",
        ),
        (
            {"trigger": lw.Repeatedly(lw.AfterCount(3)), "accumulation": "discarding"},
            "note",
            "ignores the watermark",
        ),
        ({"accumulation": "discarding", "allowed_lateness": "1h"}, "note", "in separate panes"),
        ({"windows": lw.GlobalWindow()}, "note", "fires only when the input ends"),
    ],
)
def test_doubtful_windowings(how: dict[str, Any], severity: str, what: str) -> None:
    (finding,) = lw.check(windowed(bounded(), **how))
    assert finding.severity == severity
    assert what in finding.what
    assert finding.where == "stage 1"
    assert str(finding).startswith(f"{severity}: stage 1: ")


def generated() -> Iterator[dict[str, Any]]:
    yield {"at": 0, "k": "a"}


@pytest.mark.parametrize(
    ("items", "ends"),
    [
        (generated(), None),
        (map(str, count()), None),
        (zip(range(3), count(), strict=False), None),
        (iter([1, 2]), True),
        (range(3), True),
        (range(10**30), True),
        ({1, 2}, True),
        (repeat(1, 3), True),
        (repeat(1), False),
        (count(), False),
        (cycle([1]), False),
    ],
)
def test_whether_elements_end_is_said_as_far_as_it_is_known(items: Any, ends: bool | None) -> None:
    found = lw.check(windowed(lw.from_iterable(items, time="value")))
    assert found[0].severity == ("error" if ends is False else "note")
    assert ("which may be endless" in found[0].what) == (ends is None)
    assert ("which may never happen" in found[0].what) == (ends is False)
    assert not lw.check(windowed(lw.from_iterable(items, time="value", watermark=ASCENDING)))


def test_a_reader_of_batches_does_not_say_how_many_there_are() -> None:
    table = pa.table({"at": [0], "k": ["a"]})
    (note,) = lw.check(windowed(lw.from_arrow(table, time="at")))
    assert note.severity == "note"
    assert "right for a batch" in note.hint
    (note,) = lw.check(windowed(lw.from_arrow(table.to_reader(), time="at")))
    assert note.severity == "note"
    assert "Pass a list or a table if the input ends" in note.hint


def test_sources_without_end(tmp_path: Path) -> None:
    assert [f.severity for f in lw.check(windowed(bounded(None)))] == ["note"]
    found = lw.check(windowed(following(tmp_path)))
    assert [finding.severity for finding in found] == ["error", "warning"]
    assert "no window expires" in repr(found)
    assert not lw.check(windowed(following(tmp_path, watermark=lw.Ascending())))
    sessions = lw.check(windowed(following(tmp_path), lw.Sessions("1m")))
    assert [finding.severity for finding in sessions] == ["error", "error"]
    everything = following(tmp_path, watermark=lw.Ascending())
    assert lw.check(windowed(everything, lw.GlobalWindow()))[0].severity == "error"
    repeated = lw.check(
        windowed(
            everything, lw.GlobalWindow(), trigger=lw.Repeatedly(lw.AfterCount(9)),
            accumulation="discarding",
        )
    )  # fmt: skip
    assert [finding.severity for finding in repeated] == ["note"]


def test_ids_that_are_never_forgotten(tmp_path: Path) -> None:
    stream = following(tmp_path).deduplicate(id="id", within="1h")
    assert "keeps ids until" in repr(lw.check(windowed(stream)))


def test_sources_that_wait_for_one_another(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()

    def both(**options: Any) -> lw.Findings:
        a, b = (
            following(tmp_path / name, watermark=lw.Ascending(), **options) for name in ("a", "b")
        )
        return lw.check(windowed(a | b))

    assert [finding.where for finding in both()] == ["source 1", "source 2"]
    assert "idle_after" in both()[0].hint
    assert not both(idle_after="1m")


def test_panes_that_are_counted_twice(tmp_path: Path) -> None:
    first = windowed(
        bounded(),
        trigger=lw.AfterWatermark(early=lw.AfterCount(1)),
        accumulation="accumulating",
    )
    assert not lw.check(first)
    for doubtful in (
        first.write_jsonl(tmp_path / "out.jsonl"),
        first.write_parquet(tmp_path / "out"),
        first.write_to(JsonLinesFolder(str(tmp_path / "out"))),
    ):
        assert "more than once" in repr(lw.check(doubtful))
    assert not lw.check(first.write_to(SqliteTable(str(tmp_path / "out.sqlite"), "counts")))


def test_only_pipelines_are_checked() -> None:
    with pytest.raises(lw.InvalidArgument, match="is not a pipeline"):
        lw.check(bounded())
