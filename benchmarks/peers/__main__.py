"""``python -m benchmarks.peers``: run each peer in turn with lowwater, and print a Markdown table.

A peer that is not installed is left out and said to be. Peers whose dependencies clash may live
in environments of their own: ``--python flink=/where/bin/python``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, final

from benchmarks.events import events_file
from benchmarks.peers.job import JOBS, right_answer
from benchmarks.peers.one import PEERS, SEEN, WARMED, counted

_ROOT = Path(__file__).parents[2]
_DATA = _ROOT / "benchmarks" / ".data"


@final
@dataclass(slots=True)
class Rounds:
    """What the rounds of one peer came to so far; the ratios are to lowwater just before it."""

    version: str = ""
    speeds: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    cpu_ratios: list[float] = field(default_factory=list)
    peaks: list[float] = field(default_factory=list)
    left_out: str = ""


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="rounds, each peer once in each")
    parser.add_argument("--windows", nargs="+", choices=JOBS, default=JOBS)
    parser.add_argument("--only", nargs="+", choices=PEERS, default=PEERS, help="these peers")
    parser.add_argument("--events", type=int, help="events for all, not each peer's own number")
    parser.add_argument("--python", nargs="+", default=[], help="PEER=INTERPRETER")
    parser.add_argument("--seconds", type=float, default=600, help="the most that one run may take")
    parser.add_argument("--quiet", type=float, help="wait, for 2 minutes at most, for this load")
    args = parser.parse_args()
    pythons = dict(each.split("=", 1) for each in args.python)
    found = {windows: {peer: Rounds() for peer in args.only} for windows in args.windows}
    for _ in range(args.rounds):
        for windows, peers in found.items():
            for peer, rounds in peers.items():
                if not rounds.left_out:
                    _wait(args.quiet)
                    _round(peer, windows, rounds, pythons, args)
    for windows, peers in found.items():
        _print(windows, peers, args.events)


def _round(
    peer: str, windows: str, rounds: Rounds, pythons: dict[str, str], args: argparse.Namespace
) -> None:
    """Run lowwater and then the peer, each in a process of its own."""
    try:
        ours = _run("lowwater", windows, pythons, args)
        theirs = ours if peer == "lowwater" else _run(peer, windows, pythons, args)
    except _LeftOut as reason:
        rounds.left_out = str(reason)
        print(
            json.dumps({"peer": peer, "windows": windows, "left out": str(reason)}), file=sys.stderr
        )
        return
    rounds.version = theirs["version"]
    rounds.speeds.append(theirs["speed"])
    rounds.ratios.append(theirs["speed"] / ours["speed"])
    rounds.cpu.append(theirs["cpu"])
    rounds.cpu_ratios.append(theirs["cpu"] / ours["cpu"] if ours["cpu"] else 0)
    rounds.peaks.append(theirs["peak"])
    told = {
        "peer": peer,
        "windows": windows,
        "load": round(os.getloadavg()[0], 1),
        **theirs,
        "ratio": rounds.ratios[-1],
        "cpu_ratio": rounds.cpu_ratios[-1],
    }
    print(json.dumps(told), file=sys.stderr, flush=True)


class _LeftOut(Exception):
    """Why a peer has no figure."""


def _run(
    peer: str, windows: str, pythons: dict[str, str], args: argparse.Namespace
) -> dict[str, Any]:
    count = args.events or counted(peer, windows)
    files = [events_file(min(count, WARMED[peer]), _DATA), events_file(count, _DATA)]
    command = [pythons.get(peer, sys.executable), "-m", "benchmarks.peers.one", peer, windows]
    try:
        done = subprocess.run(
            [*command, *map(str, files)], cwd=_ROOT, env={**os.environ, "PYTHONPATH": str(_ROOT)},
            capture_output=True, text=True, timeout=args.seconds, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise _LeftOut(f"more than {args.seconds:.0f} s") from None
    if done.returncode:
        sys.stderr.write(done.stderr)
        raise _LeftOut(f"failed: {(done.stderr.splitlines() or ['?'])[-1]}")
    found = json.loads(done.stdout.splitlines()[-1])
    if "absent" in found:
        raise _LeftOut(f"{found['absent']} is not installed")
    if "lacks" in found:
        raise _LeftOut(f"it has not {found['lacks']}")
    right = [asdict(_right_answer(file, windows, **SEEN.get(peer, {}))) for file in files]
    if found["answers"] != right:
        raise _LeftOut(f"wrong: {found['answers']}, not {right}")
    return {
        "version": found["version"],
        "speed": count / found["seconds"],
        "cpu": found["cpu"] / count * 1e6,
        "peak": found["peak"],
    }


_right_answer = cache(right_answer)


def _wait(load: float | None) -> None:
    """Let the machine's other work end, as far as it does."""
    for _ in range(24):
        if load is None or os.getloadavg()[0] <= load:
            return
        time.sleep(5)


def _print(windows: str, found: dict[str, Rounds], events: int | None) -> None:
    print(
        f"\n| {windows} | version | events | events/s | to lowwater | CPU s per M | to lowwater "
        "| peak MB |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for peer, rounds in found.items():
        if not rounds.speeds:
            print(f"| {peer} | {rounds.left_out} | | | | | | |")
            continue
        speed, ratio, cpu, cpu_ratio, peak = (
            statistics.median(each)
            for each in (rounds.speeds, rounds.ratios, rounds.cpu, rounds.cpu_ratios, rounds.peaks)
        )
        print(
            f"| {peer} | {rounds.version} | {events or counted(peer, windows):,} | {_short(speed)} "
            f"| {ratio:.2g} | {cpu:.2f} | {cpu_ratio:.3g} | {peak / 1e6:,.0f} |",
            flush=True,
        )


def _short(speed: float) -> str:
    return f"{speed / 1e6:.2f} M" if speed >= 1e6 else f"{round(speed, -2):,.0f}"


if __name__ == "__main__":
    main()
