"""The command that draws."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from lowwater.cli.main import main

DAY = "2000-01-01T12:00"
CODE = """
import lowwater as lw

items = [{"t": f"2000-01-01T12:00:0{n}Z", "k": "ab"[n % 2], "v": n} for n in range(6)]
sums = (
    lw.from_iterable(items, time="t", watermark=lw.Ascending())
    .key_by("k")
    .window(lw.FixedWindows("2s"))
    .aggregate(v=lw.sum("v"), n=lw.count())
)
"""


@pytest.fixture
def target(tmp_path: Path) -> str:
    path = tmp_path / "sums.py"
    path.write_text(CODE)
    return f"{path}:sums"


def test_a_timeline_is_printed(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagram", target, "--key", "a"]) == 0
    out, _ = capsys.readouterr()
    assert out.startswith("stage 1: v = sum('v'): FixedWindows('2s')")
    assert "ON TIME #0" in out
    assert "b:" not in out
    assert main(["diagram", target, "--between", f"{DAY}:03Z..{DAY}:04Z"]) == 0
    later = capsys.readouterr().out
    assert "(3)" in later
    assert "(0)" not in later


def test_a_picture_is_written(target: str, tmp_path: Path) -> None:
    place = tmp_path / "x.svg"
    arguments = ["diagram", target, "-o", str(place), "--column", "n", "--theme", "dark"]
    assert main(arguments) == 0
    text = place.read_text(encoding="utf-8")
    ET.fromstring(text)
    assert "n = count()" in text
    assert "@media" not in text


def test_the_graph(target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagram", target, "--graph"]) == 0
    assert "watermark: at the end" in capsys.readouterr().out
    assert main(["diagram", target, "--graph", "-o", str(tmp_path / "g.svg")]) == 0
    ET.fromstring((tmp_path / "g.svg").read_text(encoding="utf-8"))


def test_a_scenario(target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from lowwater.testing import Scenario

    scenario = Scenario(start="12:00").add((5, "12:00:01", "z", {"v": 7}), at="12:01").end()
    place = tmp_path / "scenario.md"
    place.write_text(scenario.to_markdown(), encoding="utf-8")
    assert main(["diagram", target, "--scenario", str(place)]) == 0
    assert "7 ON TIME #0" in capsys.readouterr().out
    assert main(["diagram", target, "--scenario", str(place), "--graph"]) == 2
    assert "no graph" in capsys.readouterr().err


def test_what_is_wrong_is_said(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, said in (
        (["--key", "zz"], "does not occur"),
        (["--stage", "stage 7"], "there is no stage 'stage 7'"),
        (["--column", "w"], "has no aggregate 'w'"),
        (["-o", "x.bmp"], "no kind of picture"),
        (["--between", "noon"], "not an interval of time"),
        (["--between", "noon..one"], "is not an instant"),
    ):
        assert main(["diagram", target, *arguments]) == 2
        assert said in capsys.readouterr().err
