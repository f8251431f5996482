"""The commands explain, diff and check."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from lowwater.cli.main import main
from lowwater.testing import Scenario

CODE = """
import lowwater as lw

items = [{"t": "2000-01-01T12:00:05Z", "k": "a", "v": 1}, {"t": "2000-01-01T12:01:05Z", "k": "a",
          "v": 2}]
stream = lw.from_iterable(items, time="t", watermark=lw.Ascending()).filter(lw.col("v") < 9)
one = stream.key_by("k").window(lw.FixedWindows("1m")).aggregate(total=lw.sum("v"))
two = stream.key_by("k").window(lw.FixedWindows("5m")).aggregate(total=lw.sum("v"))
never = stream.key_by("k").window(lw.FixedWindows("1m"), trigger=lw.Never()).aggregate(n=lw.count())
seven, eight = ({"t": "2000-01-01T12:00:05Z", "k": k, "v": v} for k, v in (("7", 1), ("8", 9)))
digits = lw.from_iterable([seven, eight], time="t").key_by("k").window(
    lw.FixedWindows("1m")).aggregate(total=lw.sum("v"))
values = lw.from_iterable([1], time=lambda v: v).key_by(lambda v: "a").window(
    lw.FixedWindows("2m")).aggregate(total=lw.sum("value"))
"""
CODE += """
def build():
    return one


out = one.write_jsonl("never.jsonl")
"""
AT = "2000-01-01T12:00:30Z"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "clicks.py"
    path.write_text(CODE)
    return path


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "clicks.md"
    made = Scenario(start="12:00").add((5, "12:00:26", "A"), at="12:05").watermark("12:01")
    path.write_text(made.to_markdown())
    return path


def test_explain_a_window(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", f"{file}:one", "--key", "a", "--window", AT]) == 0
    assert "fired ON_TIME #0: 1, because the watermark reached 12:01:05" in capsys.readouterr().out
    pair = "2000-01-01T12:01:00Z..2000-01-01T12:02:00Z"
    assert main(["explain", f"{file}:one", "--key", "a", "--window", pair]) == 0
    assert "fired ON_TIME #0: 2, because the input ended" in capsys.readouterr().out


def test_explain_an_element(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", f"{file}:one", "--element", "{'v': 2}"]) == 0
    assert "it was assigned to window [12:01:00, 12:02:00)" in capsys.readouterr().out


def test_a_test_that_repeats_a_window(
    file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = ["--key", "a", "--window", "2000-01-01T12:00"]
    assert main(["scenario", f"{file}:one", *asked]) == 0
    code = capsys.readouterr().out
    assert "from clicks import one\n" in code
    monkeypatch.syspath_prepend(str(file.parent))
    monkeypatch.delitem(sys.modules, "clicks", raising=False)  # other tests have files of that name
    names: dict[str, Any] = {}
    exec(code, names)
    names["test_incident"]()
    assert main(["scenario", f"{file}:build", *asked, "-o", str(tmp_path / "test_it.py")]) == 0
    assert "run_pipeline(build())" in (tmp_path / "test_it.py").read_text()
    assert main(["scenario", f"{file}:one", "--key", "b"]) == 2
    assert "emitted nothing of key 'b'" in capsys.readouterr().err
    assert main(["scenario", f"{file}:out", "--key", "a"]) == 2
    assert "without its write_" in capsys.readouterr().err


def test_explain_lateness(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", f"{file}:one"]) == 0
    assert "suggestion: watermark=BoundedDisorder('0s')" in capsys.readouterr().out


def test_explain_a_scenario(file: Path, scenario: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--scenario", str(scenario), "--key", "A", "--window", "12:00:30"]
    assert main(["explain", f"{file}:values", *arguments]) == 0
    out = capsys.readouterr().out
    assert "it has not fired" in out
    assert "the watermark, 12:01:00, is before the window's end, 12:02:00" in out


@pytest.mark.parametrize("command", ["explain", "diagram", "diff"])
def test_a_scenario_without_the_columns_that_are_read(
    command: str, file: Path, scenario: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = f"{file}:one"
    other = [target] if command == "diff" else []
    assert main([command, target, *other, "--scenario", str(scenario)]) == 2
    said = capsys.readouterr().err
    assert "the scenario has no column 'v': the windows and aggregates read column 'v', " in said
    assert "its elements have column 'value'" in said
    assert 'add((5, "12:00:26", "A", {\'v\': 5}))' in said


def test_elements_of_a_scenario_that_do_not_fit_are_told(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "words.md"
    made = Scenario(start="12:00").add(("x", "12:00:26", "A"), (2, "12:00:27", "A"))
    path.write_text(made.to_markdown())
    assert main(["explain", f"{file}:values", "--scenario", str(path)]) == 0
    said = capsys.readouterr().err
    assert "dead letters: 1 of 2 elements of the scenario; the first" in said
    assert "is wrong_type: value='x' (str) is not one of numbers" in said


def test_diff(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", f"{file}:one", f"{file}:one"]) == 0
    assert "no differences: 2 windows" in capsys.readouterr().out
    assert main(["diff", f"{file}:one", f"{file}:two"]) == 1
    assert "2 only in a, 1 only in b" in capsys.readouterr().out


def test_check(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", f"{file}:one"]) == 0
    assert "no problems found" in capsys.readouterr().out
    assert main(["check", f"{file}:never"]) == 1
    assert "Never() never fires" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--key", "a"], "--key and --window go together"),
        (["--scenario", "nowhere.md"], "cannot be read"),
        (["--key", "a", "--window", "soon"], "soon"),
        (["--stage", "x"], "there is no stage"),
    ],
)
def test_wrong_commands(
    file: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", f"{file}:one", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_digits_may_be_a_text_key(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", f"{file}:digits", "--key", "7", "--window", AT]) == 0
    assert "fired ON_TIME #0: 1" in capsys.readouterr().out
    assert main(["diagram", f"{file}:digits", "--key", "7"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "7:", "one key of several is named above its timeline"
    fired = [line.partition("    [")[2] for line in lines if "#0" in line]
    assert fired == ["12:00, 12:01) 1 ON TIME #0"]


def test_bundles_other_than_those_of_run_are_told(
    file: Path, scenario: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "bundle size 1; `run` uses 50000"
    for arguments in (["explain"], ["diagram"], ["diff", f"{file}:one"]):
        main([arguments[0], f"{file}:one", *arguments[1:]])
        assert capsys.readouterr().err.count(said) == 1
    main(["explain", f"{file}:one", "--bundle-size", "50000"])
    main(["explain", f"{file}:values", "--scenario", str(scenario)])
    assert said not in capsys.readouterr().err
