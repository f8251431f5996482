"""Writes goldens: ``python -m tests.goldens.write NAME ...``; without a name, those that are new.

A golden that is there is never written again, unless it is named: see the README.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path

from lowwater.errors import LowwaterWarning
from tests.goldens.every import GOLDENS
from tests.goldens.golden import freeze


def main() -> None:
    """Write the goldens that are named, or those that are not there yet."""
    warnings.simplefilter("ignore", LowwaterWarning)
    names = sys.argv[1:] or [name for name, one in GOLDENS.items() if not one.archive.exists()]
    for name in names:
        with tempfile.TemporaryDirectory() as scratch:
            told = freeze(GOLDENS[name], Path(scratch))
        size = GOLDENS[name].archive.stat().st_size
        failed = [tool for tool, what in told.items() if what is None]
        print(f"{name}: {size:,} bytes" + (f"; these tools failed: {failed}" if failed else ""))


if __name__ == "__main__":
    main()
