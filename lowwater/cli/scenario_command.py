"""The command ``python -m lowwater scenario``: a test that repeats what a window emitted."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from lowwater.cli.explain_commands import TARGET, add_bundle_size, known_key, window_of
from lowwater.errors import InvalidArgument
from lowwater.io.terminal import say

_BUNDLE_OF_RUN = 50_000


def add_command(commands: Any) -> None:
    """Add the command to the parser of the command line."""
    parser = commands.add_parser(
        "scenario",
        help="run a pipeline and print a test that repeats what a window emitted",
        description="Run a pipeline and print a test in Python that repeats what it emitted of a "
        "window, and what it dropped from it, with as few elements as possible.",
    )
    parser.add_argument("target", metavar="TARGET", help=TARGET)
    parser.add_argument(
        "--key",
        required=True,
        help="the key; a Python literal such as 7 or ('a', 1), or text",
    )
    parser.add_argument(
        "--window",
        metavar="AT",
        help="an instant in the window, or START..END, in UTC unless it says otherwise; of a "
        "pipeline without windows, the event time of what it emitted (default: all of the key)",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="new file to write the test to")
    add_bundle_size(
        parser, _BUNDLE_OF_RUN, "as in `run`; 1 judges triggers and late elements one by one"
    )


def scenario(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from lowwater.cli.target import find
    from lowwater.engine.graph.trace import Tracing
    from lowwater.pipeline import Writing

    found = find(options.target, with_output=False)
    pipeline = found.pipeline
    if isinstance(pipeline, Writing):
        raise InvalidArgument(
            f"{options.target!r} is a pipeline with an output",
            hint="Name the pipeline without its write_... call",
        )
    result = pipeline.collect(
        trace=Tracing(limit=None),
        bundle_size=options.bundle_size,
        progress=False,
        on_error="dead_letter",  # they have no part in what a window emits
    )
    key = known_key(result, options.key, None)
    window = None if options.window is None else window_of(options.window)
    incident = result.scenario(key, window, of=found.place)
    if options.output is None:
        say(incident)
    else:
        path: Path = incident.save(options.output)
        say(f"wrote {path}")
    return 0
