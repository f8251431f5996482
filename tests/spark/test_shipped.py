"""What is sent to workers says what is missing there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from lowwater.spark.shipped import shipped, unpacked

PICKLER: Any = cloudpickle  # which has no types


def test_a_function_is_called_with_what_it_is_given() -> None:
    assert shipped(divmod)(7, 2) == (3, 1)


def test_a_package_that_is_not_there_is_named() -> None:
    with pytest.raises(RuntimeError, match=r"has no not_there .*PYSPARK_PYTHON"):
        unpacked(b"", {"not_there": "1"})


def test_another_version_is_named() -> None:
    with pytest.raises(RuntimeError, match=r"has lowwater .* the driver has 0\.0.*PYSPARK_PYTHON"):
        unpacked(b"", {"lowwater": "0.0"})


def test_what_a_worker_imports_is_little_and_set_aside_from_garbage_collection_once() -> None:
    """Nothing that only a driver needs; and what a later task makes is collected as before."""
    program = (
        "import gc\n"
        "from lowwater.spark.shipped import shipped\n"
        "assert not gc.get_freeze_count()\n"
        "shipped(divmod)(7, 2)\n"
        "modules = gc.get_freeze_count()\n"
        "made = [[] for _ in range(10_000)]\n"
        "shipped(divmod)(7, 2)\n"
        "assert 10_000 < modules <= gc.get_freeze_count() < modules + 1_000\n"
        "import sys\n"
        "import lowwater.spark.chains, lowwater.spark.level_call, lowwater.spark.rows\n"
        "driver = ['lowwater.spark.query', 'lowwater.spark.reading', 'lowwater.io.csv']\n"
        "assert not [name for name in driver if name in sys.modules]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_worker_without_lowwater_can_read_what_is_sent(tmp_path: Path) -> None:
    """It gets as far as saying what it lacks."""
    sent = tmp_path / "sent"
    sent.write_bytes(PICKLER.dumps(shipped(divmod)))
    program = (
        "import sys, pathlib; from pyspark import cloudpickle\n"
        "sys.modules['lowwater'] = None\n"
        f"cloudpickle.loads(pathlib.Path({str(sent)!r}).read_bytes())(7, 2)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert "which has no lowwater" in done.stderr.splitlines()[-1]
    assert "PYSPARK_PYTHON" in done.stderr
