"""The decoders under atheris: ``python -m tests.property.fuzz [SECONDS] [DECODER]``.

Without a name each decoder gets a process of its own, which libFuzzer ends.
"""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_PLACE = 2


def main() -> int:
    """Fuzz one decoder, or each in turn; return how many have failed."""
    seconds = int(sys.argv[1]) if sys.argv[1:] else 60
    if importlib.util.find_spec("atheris") is None:
        print("atheris is not installed: Hypothesis alone was used", file=sys.stderr)
        return 0
    if sys.argv[2:]:
        _fuzz(sys.argv[2], seconds)
        return 0
    from tests.property.decoders import MAKERS

    failed = 0
    for name in MAKERS:
        print(f"{name}: {seconds} seconds", flush=True)
        command = [sys.executable, "-m", "tests.property.fuzz", str(seconds), name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            failed += 1
            print(done.stdout[-5_000:], done.stderr[-5_000:], sep="\n")
    return failed


def _fuzz(name: str, seconds: int) -> None:
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["lowwater"]):
        from tests.property.decoders import REFUSALS, decoder_named
    decoder = decoder_named(name)
    samples = decoder.samples

    def one(data: bytes) -> None:
        place = int.from_bytes(data[:_PLACE]) % len(samples)
        try:
            decoder.check(place, data[_PLACE:])
        except REFUSALS:
            pass

    with tempfile.TemporaryDirectory() as corpus:
        for place, sample in enumerate(samples[:256]):
            (Path(corpus) / str(place)).write_bytes(place.to_bytes(_PLACE) + sample)
        limits = [f"-max_total_time={seconds}", "-timeout=20", "-rss_limit_mb=2048"]
        prefix = f"-artifact_prefix={tempfile.gettempdir()}/lowwater-fuzz-"
        atheris.Setup([sys.argv[0], corpus, *limits, prefix], one)
        atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
