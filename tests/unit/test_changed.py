"""Which tests a change can break, in which order a run takes them, and what is recorded of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.changed import LAWS, chosen, importers
from tests.long_tests import listed
from tests.paths import ROOT
from tests.record import FILE, Recorded, recorded, write
from tests.scheduling import (
    SESSIONS,
    SPARK,
    file_of,
    group_of,
    seconds_by_group,
    spark_sessions,
)

TIME, WINDOWS = "lowwater/time.py", "lowwater/windows/sliding.py"
TEST, OTHER = "tests/unit/test_time.py", "tests/unit/test_changed.py"
RECORD = {
    TEST: Recorded(1.0, frozenset({TIME}), frozenset({"test_that_is_slow"})),
    OTHER: Recorded(1.0, frozenset({TIME, WINDOWS})),
}


def test_a_module_breaks_what_executed_it() -> None:
    assert chosen([TIME], RECORD, {}) == [OTHER, TEST]
    assert chosen([WINDOWS], RECORD, {}) == [OTHER]
    assert chosen([], RECORD, {}) == []


def test_a_module_that_nothing_executed_breaks_what_executed_its_importers() -> None:
    new, between = "lowwater/new.py", "lowwater/between.py"
    assert chosen([new], RECORD, {new: [between], between: [WINDOWS, new]}) == [OTHER]
    assert chosen([new], RECORD, {new: [TEST]}) == [TEST]
    assert chosen([new], RECORD, {new: [between]}) == []


def test_a_helper_breaks_the_tests_that_import_it() -> None:
    helper, wider = "tests/paths.py", "tests/kernels.py"
    by = {helper: [wider, TEST], wider: [OTHER, helper]}
    assert chosen([helper], RECORD, by) == [OTHER, TEST]
    assert chosen([OTHER], RECORD, {}) == [OTHER]
    assert chosen(["tests/unit/test_that_is_gone.py"], RECORD, {}) == []


def test_every_operator_runs_where_one_changes() -> None:
    assert chosen(["lowwater/engine/window/operator.py"], RECORD, {}) == sorted(LAWS)
    assert all((ROOT / law).exists() for law in LAWS)


def test_importers_are_those_of_the_sources() -> None:
    assert "tests/unit/test_changed.py" in importers()["tests/changed.py"]
    assert "lowwater/windows/fixed.py" in importers()["lowwater/time.py"]


def test_a_record_reads_back(tmp_path: Path) -> None:
    write(RECORD, tmp_path / "record.json")
    assert recorded.__wrapped__(tmp_path / "record.json") == RECORD
    write(recorded(), tmp_path / "whole.json")
    assert (tmp_path / "whole.json").read_text() == FILE.read_text()


def test_no_group_takes_longer_than_a_third_of_the_run() -> None:
    groups = seconds_by_group(recorded())
    assert max(groups.values()) < sum(groups.values()) / 3


def test_sessions_of_spark_take_about_as_long() -> None:
    groups = seconds_by_group(file for file in recorded() if file.startswith(SPARK))
    assert len(groups) == SESSIONS
    assert min(groups.values()) > 0.7 * max(groups.values())
    assert {group_of(file) for file in spark_sessions()} == set(groups)


def test_listed_tests_are_there() -> None:
    """A test that is renamed would come back to ``make test`` without a word."""
    sources = {file: (ROOT / file).read_text(encoding="utf-8") for file in _files(listed())}
    gone = [
        name
        for name in listed()
        if f"def {name.partition('::')[2].partition('[')[0]}(" not in sources[file_of(name)]
    ]
    assert gone == []
    assert all(listed().values())


def _files(names: Iterable[str]) -> set[str]:
    return {file_of(name) for name in names}
