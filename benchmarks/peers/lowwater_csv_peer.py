"""lowwater from a CSV file: the fair other side of peers that read one."""

from __future__ import annotations

from pathlib import Path

import lowwater as lw
from benchmarks.peers.csv_file import csv_file
from benchmarks.peers.job import Timed
from benchmarks.peers.lowwater_peer import WATERMARK, load_kernels, timed

DISTRIBUTION = "lowwater"


def run(path: Path, windows: str) -> Timed:
    """Sum per key and window, or join."""
    source = csv_file(path, unit="us", header=True)
    load_kernels()
    types = {"at": "int64", "key": "string", "value": "int64"}
    return timed(lw.read_csv(str(source), time="at", types=types, watermark=WATERMARK), windows)
