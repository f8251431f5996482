"""`lowwater bench` and `lowwater info`."""

from __future__ import annotations

import os
import re
from typing import Any

import pytest

import lowwater as lw
import lowwater.kernels
from lowwater.cli import bench
from lowwater.cli.main import main
from lowwater.kernels import kernels
from lowwater.pipeline import installation
from tests.kernels import using


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
    hooks = re.findall(r"hooks: (in the run|\d+ workers) +\d+ k", printed)
    assert hooks[0] == "in the run"
    assert [int(each.split()[0]) for each in hooks[1:]] == bench._numbers_of_workers()[1:]
    found = re.search(r"p50 ([\d.]+) +p95 ([\d.]+)", printed)
    assert found is not None
    assert 0 < float(found[1]) <= float(found[2])
    found_each = re.findall(r"^  \w+ .* (\d+) +\(([\d,]+) windows\)$", printed, re.MULTILINE)
    assert [count for _, count in found_each] == ["50,000", "50,000", "300,000"]
    assert all(8 * 4 <= int(each) < 5_000 for each, _ in found_each)


def test_bench_where_nobody_knows_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    assert re.search(r"minute: [\d.]+$", bench._load())
    monkeypatch.delattr(os, "getloadavg")
    assert bench._load().endswith("minute: unknown")


def test_bench_without_kernels_that_load(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> Any:
        raise lw.InvalidArgument("numba is installed but does not load: ImportError")

    monkeypatch.setattr(lowwater.kernels, "_load", broken)
    monkeypatch.setattr(lowwater.kernels, "_CHOICE", lowwater.kernels._Choice())
    with using("numpy"), pytest.warns(lw.PipelineWarning, match="without compiled kernels: numba"):
        assert main(["bench", "--events", "10", "--rounds", "1", "--keys", "2"]) == 0
    assert "M   numba" not in capsys.readouterr().out
    assert lw.info().outlook == "the compiled ones do not load"


def test_each_bundle_is_committed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    table = bench.events_in_memory(3_500, 5)
    made: list[Any] = []

    class Kept(bench._Arrivals):
        def __init__(self, table: Any) -> None:
            super().__init__(table)
            made.append(self)

    monkeypatch.setattr(bench, "_Arrivals", Kept)
    bench.latencies(table)
    assert len(made[0].seconds) == 4
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

    def without(name: str, *given: Any) -> Any:
        return None if name in {"numba", "rocksdict"} else before(name)

    before = installation._version
    monkeypatch.setattr(installation, "_version", without)
    text = str(lw.info())
    assert "numba is not installed (extra fast)" in text
    assert "rocksdict is not installed\n" in text


@pytest.mark.parametrize(
    ("wanted", "installed", "said"),
    [
        (None, False, "install lowwater[fast] for compiled ones"),
        (
            None,
            True,
            "the compiled ones are loaded after 4,000,000 records, sooner in small bundles",
        ),
        ("", True, "the compiled ones are loaded after 4,000,000 records, sooner in small bundles"),
        ("numba", True, "the compiled ones are loaded before the first record"),
        ("numba", False, "install lowwater[fast] for compiled ones"),
        ("numpy", True, "LOWWATER_KERNELS=numpy"),
        ("cython", True, "LOWWATER_KERNELS=cython"),
    ],
)
def test_info_says_why_these_kernels(
    wanted: str | None, installed: bool, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    choice = lowwater.kernels._Choice()
    monkeypatch.setattr(lowwater.kernels, "_CHOICE", choice)
    monkeypatch.setattr(lowwater.kernels, "is_installed", lambda: installed)
    monkeypatch.delenv("LOWWATER_KERNELS", raising=False)
    if wanted is not None:
        monkeypatch.setenv("LOWWATER_KERNELS", wanted)
    assert f"kernels: numpy ({said})\n" in str(lw.info())
    lowwater.kernels.use("numba" if said.startswith("the") else "numpy")
    assert lw.info().kernels == ("numba" if said.startswith("the") else "numpy")
    assert lw.info().outlook == {True: "compiled", False: said}[said.startswith("the")]
