"""The examples that need no Spark: each runs to its end, and warns of nothing."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT

# The tests of these run them as programs for which a warning is an error.
ELSEWHERE = ("changes_of_a_database",)
EXAMPLES = sorted(
    path.stem
    for path in (ROOT / "examples").glob("*.py")
    if not path.stem.startswith("spark") and path.stem not in ELSEWHERE
    if "def main" in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_gives_no_warning(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A warning about an example's own data says that it is no example to follow."""
    monkeypatch.chdir(tmp_path)
    arguments: dict[str, list[Any]] = {"event_sourcing": [tmp_path], "timelines": [None]}
    import_module(f"examples.{name}").main(*arguments.get(name, ()))
    out, err = capsys.readouterr()
    assert out
    assert err == ""
