"""The benchmarks of growth, variants and latency: what they run, and what their tables say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lowwater as lw
from benchmarks import __main__ as command
from benchmarks import growth, growth_picture, latency, variants
from benchmarks.events import events_file
from benchmarks.variants import VARIANTS, Variant
from lowwater.viz.svg import to_svg

pytestmark = pytest.mark.slow(reason="runs each benchmark")  # left to `make test`


@pytest.fixture(autouse=True)
def _tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of its own, small bundles and few keys, and no change of this process's kernels."""
    monkeypatch.setattr(command, "_DATA", tmp_path)
    monkeypatch.setattr(growth, "BUNDLE", 200)
    monkeypatch.setattr(growth, "count_records", lambda count: None)
    monkeypatch.setattr(variants, "MANY_KEYS", 1_000)
    monkeypatch.setattr(variants, "is_installed", lambda: True)
    monkeypatch.setattr(variants, "use", lambda name: None)


def rows(printed: str) -> Iterator[list[str]]:
    """The cells of each row of the tables, without their heads."""
    lines = [line for line in printed.splitlines() if line.startswith("|")]
    heads = {at - 1 for at, line in enumerate(lines) if line.startswith("|---")}
    for at, line in enumerate(lines):
        if at not in heads and not line.startswith("|---"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


# ------------------------------------------------------------------------------------- growth


def test_growth_has_a_line_for_each_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plot = tmp_path / "growth.svg"
    given = ["--only", "growth", "--events", "20000", "--rounds", "2", "--plot", str(plot)]
    command.main(given)
    printed = capsys.readouterr().out
    assert "numpy kernels, load " in printed or "numba kernels, load " in printed
    found: dict[str, list[str]] = {}
    for axis, size, time, spread, ratio, resident in rows(printed):
        found.setdefault(axis, []).append(size)
        least, most = (float(one.replace(",", "")) for one in spread.split(" to "))
        ns, unit = time.replace(",", "").split(" ", 1)
        assert least <= float(ns) <= most
        assert unit == ("ns an event and stage" if axis == "stages in a chain" else "ns an event")
        assert (ratio == "1.00") or len(found[axis]) > 1
        assert bool(resident) == (axis == "events so far: one run")
    assert found == {
        "events so far: one run": ["200", "666", "2,000", "6,666", "20,000"],
        "events so far: new runs then": ["200", "666", "2,000", "6,666", "20,000"],
        "open windows: all touched": ["1,000"],
        "open windows: 1,000 touched": ["1,000"],
        "keys, each with an open window: integers": ["10", "1,000"],
        "keys, each with an open window: strings": ["10", "1,000"],
        "stages in a chain": ["1", "2", "4", "8"],
        "partitions of the source": ["1", "10", "100", "1,000"],
    }
    svg = plot.read_text()
    assert svg.count("<title>") - 1 == sum(map(len, found.values()))  # a dot each
    assert " ".join(("python -m benchmarks", *given[:6])) in svg


@pytest.mark.parametrize("axis", growth.AXES[1:3], ids=lambda axis: axis.name)
def test_as_many_windows_are_open_as_is_said(
    axis: growth.Axis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What opens them is not counted, and what is counted opens none."""
    opened = []

    def looking(source: Any, watermark: Any, build: Any) -> list[float]:
        parts = [[batch.to_pylist() for batch in part] for part in source._parts]
        places = [
            {(row["key"], row["at"].timestamp() // 60) for batch in part for row in batch}
            for part in parts
        ]
        assert all(part <= places[0] for part in places[1:])
        assert all(0 < len(batch) <= growth.BUNDLE for part in parts for batch in part)
        assert {sum(map(len, part)) for part in parts[1:]} == {400}
        opened.append(len(places[0]))
        return [1.0] * len(parts)

    monkeypatch.setattr(growth, "_seconds", looking)
    sizes = [point.size for point in axis.measure(20_000)]
    assert opened == ([1_000] if axis.name == "open windows" else sizes)


def test_stages_pass_on_all_that_they_get(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a longer chain would have less to do per stage."""
    passed: list[list[int]] = []

    def looking(source: Any, watermark: Any, build: Any) -> list[float]:
        seen: list[lw.Metrics] = []
        chain = build(lw.from_source(source, time="at", watermark=watermark))
        with pytest.raises(growth._EnoughError):
            for _ in chain.run_batches(bundle_size=growth.BUNDLE, progress=seen.append):
                pass
        passed.append([sum(stage.panes.values()) for stage in seen[-1].stages.values()])
        return [1.0, 1.0]

    monkeypatch.setattr(growth, "_seconds", looking)
    assert [point.size for point in growth._stages(20_000)] == [1, 2, 4, 8]
    count = 2 * growth.BUNDLE + 20_000 // 50
    assert passed == [[count] * size for size in (1, 2, 4, 8)]


def test_making_the_events_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    batch = growth._batch(np.zeros(3, dtype=np.int64), pa.array([1, 2, 3]))

    def making(count: int) -> Iterator[pa.RecordBatch]:
        nonlocal now
        for _ in range(count):
            now += 100.0
            yield batch

    monkeypatch.setattr(growth, "time", SimpleNamespace(process_time=lambda: now))
    source = growth._Parts(batch.schema, making(2), making(3))
    with suppress(growth._EnoughError):
        for _ in source.batches(10, ()):
            now += 1.0
    assert np.diff(source.marks).tolist() == [2.0, 3.0]


def line(axis: growth.Axis, name: str, **rounds: list[float]) -> growth.Line:
    return growth.Line(axis, name, {int(size[1:]): ns for size, ns in rounds.items()}, {})


def test_figures_are_medians_and_ratios_are_taken_round_by_round() -> None:
    found = line(growth.AXES[0], "", s1=[100.0, 200.0, 400.0], s2=[150.0, 400.0, 200.0])
    assert found.medians == {1: 200.0, 2: 200.0}
    assert found.against_first == {1: 1.0, 2: 1.5}


def test_lines_of_an_axis_share_a_panel() -> None:
    windows, keys = growth.AXES[1:3]
    lines = [
        line(windows, "some", s10=[10.0, 30.0, 20.0], s1000=[40.0, 40.0, 40.0]),
        line(windows, "others", s10=[15.0, 15.0, 15.0], s1000=[5.0, 5.0, 5.0]),
        line(keys, "", s7=[300.0, 300.0, 300.0]),
    ]
    svg = to_svg(growth_picture.picture(lines, "how"))
    assert [svg.count(text) for text in ("open windows", ">some<", ">others<", ">how<")] == [1] * 4
    assert "10: 20 ns (10 to 30)" in svg
    assert svg.count('class="band"') == 2
    assert svg.count('class="dense"') == 2 + 1 + 1  # dots, and one in the legend
    assert {">0<", ">10<", ">20<", ">30<", ">40<"} <= {
        part for part in (f">{each.split('<')[0]}<" for each in svg.split(">")) if part
    }


# ------------------------------------------------------------------------------------- variants


def test_each_variant_is_run_with_both_kernels_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    used: list[str] = []
    monkeypatch.setattr(variants, "use", used.append)
    command.main(["--only", "variants", "--events", "2000", "--rounds", "1"])
    found = list(rows(capsys.readouterr().out))
    assert used[:4] == ["numpy", "numba", "numpy", "numba"]
    assert len(used) == 2 * len(found) + 1  # a round that does not count, and what it was
    assert len({(row[0], row[1]) for row in found}) == len(found) == 2 * len(VARIANTS) == 16
    for name, kernels, speed, *ratios, panes in found:
        assert kernels in {"numpy", "numba"}
        assert float(speed.removesuffix(" M")) > 0
        assert len(ratios) == 3
        few = name.startswith("100 ")
        path = events_file(
            2_000, tmp_path, keys=100 if few else 1_000, integer_keys="integers" in name
        )
        table = pq.read_table(path)
        minutes = (at.timestamp() // 60 for at in table["at"].to_pylist())
        places = set(zip(table["key"].to_pylist(), minutes, strict=True))
        assert int(panes.replace(",", "")) == len(places)
        assert table.schema.field("key").type == ("int64" if "integers" in name else "string")


def test_ratios_are_those_to_the_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    def run(self: Variant, path: Path) -> int:
        nonlocal now
        now += (8 if self.many else 1) * (1 if self.integers else 3) * self.aggregates
        return 0

    monkeypatch.setattr(Variant, "run", run)
    monkeypatch.setattr(variants, "time", SimpleNamespace(process_time=lambda: now))
    for found in variants.measure(1_000, 3, tmp_path):
        one = found.variant
        assert found.ratios == pytest.approx(
            (
                8 if not one.many else 1 / 8,
                3 if one.integers else 1 / 3,
                {2: 2.5, 5: 0.4}[one.aggregates],
            )
        )
        assert set(one.neighbours()) < set(VARIANTS)


# -------------------------------------------------------------------------------------- latency


def test_latency_of_each_case(capsys: pytest.CaptureFixture[str]) -> None:
    command.main(["--only", "latency", "--bundles", "2", "--rounds", "1"])
    found = list(rows(capsys.readouterr().out))
    assert [row[0] for row in found] == [
        "windows, in memory", "windows, durable, a callback", "windows, durable, a Parquet folder",
        *(
            f"process, {where}{workers}"
            for where in ("in memory", "durable, a callback")
            for workers in ("", ", workers=1", ", workers=2", ", workers=4")
        ),
    ]  # fmt: skip
    for name, p50, p95, cpu, *against, _ in found:
        assert 0 < float(p50) <= float(p95)
        assert float(cpu) > 0
        assert [bool(one) for one in against] == 2 * ["workers" in name]


@pytest.mark.parametrize("case", latency.CASES[:5], ids=lambda case: case.name)
def test_each_bundle_is_timed(case: latency.Case, tmp_path: Path) -> None:
    path = events_file(12 * latency.BUNDLE, tmp_path)
    spent = case.seconds(path, tmp_path)
    assert len(spent) >= 11  # without the first tenth; windows that close may come apart
    assert median(spent) > 0
