"""Run one peer once in this process: ``python -m benchmarks.peers.fresh PEER JOB FILE``.

Prints its answer as JSON, and loads nothing but the peer and what that loads.
"""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import asdict
from pathlib import Path


def main(peer: str, windows: str, file: str) -> None:
    """Run a peer as in a process that has just begun."""
    module = importlib.import_module(f"benchmarks.peers.{peer}_peer")
    timed = getattr(module, "fresh", module.run)(Path(file), windows)
    print(json.dumps(asdict(timed.answer)))


if __name__ == "__main__":
    main(*sys.argv[1:])
