"""A process that tries hostile inputs: ``python -m tests.hostile.worker SEED FOLDER``.

Reads the number of an input per line, and writes the verdict as a line of JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import asdict
from pathlib import Path

from tests.hostile.inputs import hostile_input
from tests.hostile.trial import try_input


def main() -> None:
    """Try the inputs that are asked for."""
    seed, place = int(sys.argv[1]), Path(sys.argv[2])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a run prints is no answer
    for line in sys.stdin:
        folder = place / line.strip()
        folder.mkdir(parents=True)
        verdict = try_input(hostile_input(seed, int(line)), folder)
        answers.write(json.dumps(asdict(verdict)) + "\n")
        answers.flush()
        if verdict.good:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
