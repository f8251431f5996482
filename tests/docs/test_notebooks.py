"""The notebooks run from top to bottom, and their output is the committed one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from notebooks.execute import chosen, differences, read
from tests.spark.light import FAST, LIGHT

ROOT = Path(__file__).parents[2]
NOTEBOOKS = [path.stem for path in chosen()]
JVM = " ".join([FAST, *(f"-D{name}={value}" for name, value in LIGHT.items())])  # Spark's
LARGEST = 300_000  # bytes: a page shows larger ones slowly, or not at all


@pytest.mark.long(reason="runs whole programs")
@pytest.mark.parametrize("name", [name for name in NOTEBOOKS if "spark" not in name])
def test_a_notebook_gives_the_committed_output(name: str) -> None:
    """``tests/spark`` runs the one on Spark."""
    executed_as_committed(name)


def executed_as_committed(name: str) -> None:
    """Execute a notebook; its output must be the committed one."""
    # A process of its own: what kernels leave to the garbage collector must not fail other tests.
    done = subprocess.run(
        [sys.executable, "-m", "notebooks.execute", "--check", name],
        cwd=ROOT, env={**os.environ, "SPARK_SUBMIT_OPTS": JVM},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_small_and_was_executed_from_top_to_bottom(name: str) -> None:
    path = ROOT / "notebooks" / f"{name}.ipynb"
    assert path.stat().st_size < LARGEST
    cells = read(path).cells
    counts = [cell.execution_count for cell in cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))
    assert cells[0].source.startswith("# ")
    assert "?" in cells[0].source, "it opens with a question"
    assert any("assert" in cell.source for cell in cells), "it says something that is checked"


def test_a_changed_output_is_found() -> None:
    path = ROOT / "notebooks" / f"{NOTEBOOKS[0]}.ipynb"
    committed, other = read(path), read(path)
    assert differences(committed, other) == []
    printed = next(c for c in other.cells if any("text" in o for o in c.get("outputs", ())))
    printed.outputs[0].text += "and more\n"
    assert "+and more" in differences(committed, other)
    drawn = next(c for c in committed.cells if any("data" in o for o in c.get("outputs", ())))
    drawn.outputs = []
    assert any("svg" in line for line in differences(committed, other))
