"""``python -m benchmarks.peers.whole``: jobs from the start of a process to its result.

A process is started for each run, and its answer checked. Its time has in it what imports, loads
and starts: most of it, where there are few events. The first round only makes files.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path

from benchmarks.events import events_file
from benchmarks.machine import load, machine
from benchmarks.peers.job import right_answer
from benchmarks.peers.one import SEEN

_ROOT = Path(__file__).parents[2]
_DATA = _ROOT / "benchmarks" / ".data"
_PEERS = ("lowwater", "polars", "clink")
_WINDOWS = ("fixed", "sessions")


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.whole", description=__doc__)
    parser.add_argument("--events", nargs="+", type=int, default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=_PEERS, default=_PEERS, help="these peers")
    parser.add_argument("--python", nargs="+", default=[], help="PEER=INTERPRETER")
    args = parser.parse_args()
    pythons = dict(each.split("=", 1) for each in args.python)
    print(machine("pyarrow", "polars") + f", load {load():.1f}; medians of {args.rounds} processes")
    print("| events | windows | peer | s | CPU s |\n|---|---|---|---|---|")
    for count in args.events:
        file = events_file(count, _DATA)
        for windows in _WINDOWS:
            found: dict[str, list[tuple[float, float]]] = defaultdict(list)
            for _ in range(args.rounds + 1):
                for peer in args.only:
                    python = pythons.get(peer, sys.executable)
                    found[peer].append(_process(python, peer, windows, file))
            for peer, runs in found.items():
                seconds, cpu = (statistics.median(each) for each in zip(*runs[1:], strict=True))
                print(f"| {count:,} | {windows} | {peer} | {seconds:.2f} | {cpu:.2f} |", flush=True)


def _process(python: str, peer: str, windows: str, file: Path) -> tuple[float, float]:
    """Return the seconds and the CPU seconds of a process."""
    command = [python, "-m", "benchmarks.peers.fresh", peer, windows, str(file)]
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        command, cwd=_ROOT, env=environment, capture_output=True, text=True, check=False
    )
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{peer} failed:\n{done.stderr}")
    right = asdict(right_answer(file, windows, **SEEN.get(peer, {})))
    answer = json.loads(done.stdout.splitlines()[-1])
    if answer != right:
        raise SystemExit(f"{peer} is wrong: {answer}, not {right}")
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
