"""The names of files in a folder of output: those of deliveries, and hidden ones."""

from __future__ import annotations

import re

from lowwater.io.sinks.staging import PASSING

KINDS = ("late", "errors", "part")
"""The kinds of files, in the order in which they are published: panes come last."""

PREFIXES = tuple(f"{kind}-" for kind in KINDS)
STAGING = ".staging"
"""The folder in which files are written before they appear."""

PENDING = ".pending"
"""The folder in which deliveries collect."""

MARKER = ".lowwater.json"
"""The file that says whose output the folder holds."""

HIDDEN = (STAGING, PENDING, MARKER)
_ID = r"\d{12}-\d{3}-\d{6}"
NAME = re.compile(
    rf"(?P<kind>part|late|errors)-(?P<first>{_ID})(_(?P<last>{_ID}))?\.(parquet|jsonl)"
)
"""The names of files: of one delivery, or of those from one to another."""

STAGED = re.compile(rf"({NAME.pattern}|{re.escape(MARKER)}){PASSING}")
"""The names of files while they are written."""
