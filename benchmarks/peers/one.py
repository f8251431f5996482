"""Run one peer in this process: ``python -m benchmarks.peers.one PEER JOB WARM FILE``.

Prints one JSON object as its last line: what is lacking, or what two runs came to. The first run
is not timed: it loads what is loaded late, and lets virtual machines compile.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

from benchmarks.peers.job import JOBS, JOIN, PATTERN, Run
from benchmarks.peers.stopwatch import peak_bytes

_COUNTED = {
    "lowwater": 2_000_000,
    "lowwater_csv": 2_000_000,
    "polars": 2_000_000,
    "flink": 2_000_000,
    "spark": 2_000_000,
    "clink": 2_000_000,
    "pathway": 500_000,
    "beam": 100_000,
    "bytewax": 100_000,
}
PEERS = tuple(_COUNTED)
# Events of the run before: more for those that load or compile code once they have seen many.
_COMPILING = ("lowwater", "lowwater_csv", "flink", "spark")
WARMED = {**dict.fromkeys(PEERS, 50_000), **dict.fromkeys(_COMPILING, 1_000_000)}
# How some see time: Flink's SQL keeps milliseconds and makes one session of two that touch; Beam's
# windows are encoded in milliseconds.
SEEN: dict[str, dict[str, int]] = {
    "flink": {"unit_us": 1_000, "touching": True},
    "beam": {"unit_us": 1_000},
    "clink": {"unit_us": 1_000, "touching": True},
}


# Those that have a join by interval, or a place to write one.
JOINING = ("lowwater", "lowwater_csv", "flink", "spark", "clink", "pathway", "bytewax")

# Those that have row patterns.
MATCHING = ("lowwater", "lowwater_csv", "flink")


def counted(peer: str, windows: str) -> int:
    """Return the events of the run that is timed: fewer where more would take minutes."""
    return 200_000 if (peer, windows) == ("pathway", "sessions") else _COUNTED[peer]


def main() -> None:
    """Run the peer that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.one", description=__doc__)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("windows", choices=JOBS)
    parser.add_argument("warm", type=Path, help="the file of the first run")
    parser.add_argument("file", type=Path)
    args = parser.parse_args()
    if args.windows == JOIN and args.peer not in JOINING:
        _say({"lacks": "a join of streams by interval"})
        return
    if args.windows == PATTERN and args.peer not in MATCHING:
        _say({"lacks": "row patterns"})
        return
    try:
        module = importlib.import_module(f"benchmarks.peers.{args.peer}_peer")
    except ModuleNotFoundError as error:
        _say({"absent": error.name})
        return
    run: Run = module.run
    first = run(args.warm, args.windows)
    second = run(args.file, args.windows)
    _say(
        {
            "answers": [asdict(first.answer), asdict(second.answer)],
            "seconds": second.seconds,
            "cpu": second.cpu,
            "peak": peak_bytes(),
            "version": _version(module.DISTRIBUTION),
        }
    )


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "this tree"


def _say(found: object) -> None:
    sys.stdout.write("\n" + json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
