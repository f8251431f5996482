"""`lowwater bench` and `lowwater info`."""

from __future__ import annotations

import re
from typing import Any

import pytest

import lowwater as lw
from lowwater.cli import bench
from lowwater.cli.main import main
from lowwater.kernels import kernels
from lowwater.pipeline import installation


def test_bench_prints_each_table_and_leaves_the_kernels_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = kernels().NAME
    assert main(["bench", "--events", "2000", "--rounds", "1", "--keys", "7"]) == 0
    assert before == kernels().NAME
    printed = capsys.readouterr().out
    speeds = re.findall(r"bundles of +([\d,]+) +numpy +([\d.]+) M +numba +([\d.]+) M", printed)
    assert [size for size, _, _ in speeds] == ["50,000", "1,000", "50,000", "50,000"]
    assert all(float(speed) > 0 for row in speeds for speed in row[1:])
    found = re.search(r"p50 ([\d.]+) +p95 ([\d.]+)", printed)
    assert found is not None
    assert 0 < float(found[1]) <= float(found[2])
    bytes_each = re.findall(r"^  (?:fixed|sessions|sliding).* (\d+)$", printed, re.MULTILINE)
    assert len(bytes_each) == 3
    assert all(8 * 4 <= int(each) < 5_000 for each in bytes_each)


def test_each_bundle_is_committed_once() -> None:
    table = bench.events_in_memory(3_500, 5)
    source = bench._Arrivals(table)
    assert sum(len(records) for records, _ in source.batches_from(None, 10, ())) == 3_500
    assert [position for _, position in source.batches_from({"next": 2}, 10, ())] == [
        {"next": 3},
        {"next": 4},
    ]


@pytest.mark.parametrize("events", ["0", "-1", "many"])
def test_bench_needs_a_number(events: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["bench", "--events", events])
    assert stopped.value.code == 2
    assert "--events" in capsys.readouterr().err


def test_info(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = lw.info()
    assert found.kernels == kernels().NAME
    assert found.compiled_available
    assert {"numpy", "pyarrow", "numba"} <= set(found.packages)
    assert main(["info"]) == 0
    assert capsys.readouterr().out == f"{found}\n"

    def without_numba(name: str, *given: Any) -> Any:
        return None if name == "numba" else before(name)

    before = installation._version
    monkeypatch.setattr(installation, "_version", without_numba)
    monkeypatch.setattr(installation, "is_installed", lambda: False)
    text = str(lw.info())
    assert "kernels: numpy (install lowwater[fast] for compiled ones)" in text
    assert "numba is not installed (extra fast)" in text
