"""Writes goldens of Spark: ``python -m tests.goldens.write_checkpoints NAME ...``.

Without a name, it writes those that are new.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from lowwater.spark.session import local_session
from tests.goldens.checkpoints import QUERIES, freeze
from tests.paths import ROOT
from tests.spark.light import LIGHT

_OF_WORKERS = "spark.python.daemon.module"


def main() -> None:
    """Write the goldens that are named, or those that are not there yet."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    names = sys.argv[1:] or [name for name, one in QUERIES.items() if not one.archive.exists()]
    with (
        tempfile.TemporaryDirectory() as scratch,
        local_session("goldens", Path(scratch, "spark")) as spark,
    ):
        for name, value in LIGHT.items():
            if name != _OF_WORKERS:
                spark.conf.set(name, value)
        for name in names:
            freeze(QUERIES[name], spark, Path(scratch, name))
            print(f"{name}: {QUERIES[name].archive.stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    main()
