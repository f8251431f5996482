"""Tries hostile inputs on all readers: ``python -m tests.hostile.campaign [COUNT] [SEED]``.

Each input is tried in a worker process, so that one that dies is noticed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import final

from tests.hostile.hostile_input import HostileInput
from tests.hostile.inputs import hostile_input
from tests.hostile.trial import Verdict
from tests.paths import ROOT

_PATIENCE = 120
"""Seconds after which a worker that does not answer is ended."""


def try_inputs(seed: int, count: int, place: Path, workers: int = 1) -> list[Verdict]:
    """Try the inputs of a seed; return their verdicts in order."""
    verdicts: dict[int, Verdict] = {}
    numbers = iter(range(count))
    lock = threading.Lock()

    def work() -> None:
        module = "tests.hostile.worker"
        worker = Worker([sys.executable, "-m", module, str(seed), str(place)])
        try:
            while True:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return
                verdicts[number] = worker.ask(number)
        finally:
            worker.close()

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [verdicts[number] for number in range(count)]


@final
class Worker:
    """A worker process, started again when it has died.

    Args:
        command: Starts one.
    """

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[str] | None = None

    def ask(self, number: int) -> Verdict:
        """Have an input tried."""
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{number}\n")
        process.stdin.flush()
        watchdog = threading.Timer(_PATIENCE, process.kill)
        watchdog.start()
        answer = process.stdout.readline()
        watchdog.cancel()
        if not answer:
            code = process.wait()
            self.close()
            return Verdict("died", f"exit code {code}")
        return Verdict(**json.loads(answer))

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()
            process.wait()

    def _start(self) -> subprocess.Popen[str]:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        return self._process


def report(inputs: Sequence[HostileInput], verdicts: Sequence[Verdict]) -> str:
    """Return the outcomes by reader, and each input that went wrong."""
    counts = Counter(
        (given.reader, verdict.outcome) for given, verdict in zip(inputs, verdicts, strict=True)
    )
    lines = [
        f"{len(inputs):,} inputs in {sum(verdict.runs for verdict in verdicts):,} runs:",
        *(f"  {reader:9} {outcome:10} {n:5}" for (reader, outcome), n in sorted(counts.items())),
    ]
    for number, (given, verdict) in enumerate(zip(inputs, verdicts, strict=True)):
        if not verdict.good:
            lines.append(f"input {number}, {given.reader}: {given.title[:200]}: {verdict.outcome}")
            lines.append(f"  {verdict.detail}")
    return "\n".join(lines)


def main() -> int:
    """Try the inputs; return 1 if any went wrong."""
    count = int(sys.argv[1]) if sys.argv[1:] else 1_000
    seed = int(sys.argv[2]) if sys.argv[2:] else 1
    inputs = [hostile_input(seed, number) for number in range(count)]
    with tempfile.TemporaryDirectory() as place:
        verdicts = try_inputs(seed, count, Path(place), workers=os.cpu_count() or 1)
    print(report(inputs, verdicts))
    return int(not all(verdict.good for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
