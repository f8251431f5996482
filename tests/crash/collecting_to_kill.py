"""Outputs that collect, as the plan in the folder says: another one at each start."""

from __future__ import annotations

import json

from tests.crash.killed_process import instructions
from tests.unit.io.collecting_model import run_plan


def main() -> None:
    """Run the plan of this start, until the end or death."""
    work = instructions()
    run_plan(work.folder, json.loads((work.folder / "plan.json").read_text()))


if __name__ == "__main__":
    main()
