"""An output that nobody runs is warned of, as a coroutine is that was never awaited."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import lowwater as lw


def _pipeline() -> Any:
    events = lw.from_iterable([{"t": "2024-01-01T00:00:00Z", "k": "a"}], time="t")
    return events.key_by("k").window(lw.FixedWindows("1m")).aggregate(n=lw.count())


def test_an_output_that_is_dropped_names_the_line_and_the_fix(tmp_path: Path) -> None:
    with pytest.warns(lw.PipelineWarning, match=r"nothing is written.*Add \.run\(\)") as caught:
        _pipeline().write_parquet(str(tmp_path / "out"))
    (one,) = caught
    assert one.filename == __file__
    assert Path(__file__).read_text().splitlines()[one.lineno - 1].strip().startswith("_pipeline()")


@pytest.mark.parametrize(
    "use",
    [
        lambda output: output.run(),
        lw.run,
        lambda output: output.start().wait(),
        repr,
        lw.check,
        lambda output: output._repr_html_(),
    ],
)
def test_any_use_will_do(use: Any, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        use(_pipeline().write_jsonl(str(tmp_path / "out.jsonl")))


def test_an_output_that_is_refused_says_only_that() -> None:
    counts: Any = _pipeline()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(lw.InvalidArgument):
            counts.write_to("out.parquet")


SCRIPT = """
import lowwater as lw
events = lw.from_iterable([{"t": "2024-01-01T00:00:00Z", "k": "a"}], time="t")
counts = events.key_by("k").window(lw.FixedWindows("1m")).aggregate(n=lw.count())
output = counts.write_jsonl("out.jsonl")
"""


def test_at_its_end_a_script_hears_of_its_own_outputs_and_not_of_those_it_imports(
    tmp_path: Path,
) -> None:
    (tmp_path / "jobs.py").write_text(SCRIPT)
    (tmp_path / "script.py").write_text("import jobs\n")

    def told(script: str) -> str:
        command = [sys.executable, script]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stderr

    assert "jobs.py:5: PipelineWarning: the output to JsonLinesFile" in told("jobs.py")
    assert told("script.py") == ""
