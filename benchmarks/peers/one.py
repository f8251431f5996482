"""Run one peer in this process: ``python -m benchmarks.peers.one PEER FILE WINDOWS``.

Prints one JSON object as its last line: what is absent, or what two runs came to. The first run
is not timed: it loads what is loaded late, lets virtual machines compile, and is checked too.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

from benchmarks.peers.job import WINDOWS, Run

PEERS = ("lowwater", "polars", "flink", "spark", "pathway", "beam", "bytewax")


def main() -> None:
    """Run the peer that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.one", description=__doc__)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("file", type=Path)
    parser.add_argument("windows", choices=WINDOWS)
    args = parser.parse_args()
    try:
        module = importlib.import_module(f"benchmarks.peers.{args.peer}_peer")
    except ModuleNotFoundError as error:
        _say({"absent": error.name})
        return
    run: Run = module.run
    first = run(args.file, args.windows)
    second = run(args.file, args.windows)
    _say(
        {
            "answers": [asdict(first.answer), asdict(second.answer)],
            "seconds": second.seconds,
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
