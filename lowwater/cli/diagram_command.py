"""The ``diagram`` command: ``python -m lowwater diagram module:pipeline -o run.svg``."""

from __future__ import annotations

import argparse
from typing import Any

from lowwater.cli.explain_commands import _add_run, known_key, run_target, tell_bundles
from lowwater.errors import InvalidArgument


def add_command(commands: Any) -> None:
    """Add the command to the parser of the command line."""
    parser = commands.add_parser(
        "diagram",
        help="run a pipeline and draw event time against processing time",
        description="Run a pipeline and draw the input and output of a stage, with event time to "
        "the right and processing time upwards. Without -o, print a text timeline. With "
        "--scenario, the elements come from that file, and only the windowing and the aggregates "
        "of the last stage are used.",
    )
    parser.add_argument("target", metavar="TARGET", help="module:pipeline or file.py:pipeline")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="file to write: .svg, .html, .txt, .png or .gif"
    )
    parser.add_argument(
        "--key",
        action="append",
        metavar="KEY",
        help="a key to draw (repeatable): a Python literal such as 7 or ('a', 1), or text",
    )
    parser.add_argument("--stage", help="the stage (default: the last one)")
    parser.add_argument("--column", help="the aggregate to draw (default: the first)")
    parser.add_argument(
        "--between", metavar="START..END", help="the event times to draw (default: all)"
    )
    parser.add_argument(
        "--theme",
        choices=("auto", "light", "dark"),
        default="auto",
        help="the colours (default: auto, which follows the system of the reader)",
    )
    parser.add_argument(
        "--graph", action="store_true", help="draw the graph of stages and their watermarks instead"
    )
    _add_run(parser)


def run_command(options: argparse.Namespace) -> int:
    """Run the command, and return the exit status."""
    from lowwater.pipeline import Result

    result = run_target(options.target, options)
    tell_bundles(options)
    if options.graph:
        if not isinstance(result, Result):
            raise InvalidArgument(
                "a scenario has no graph of stages", hint="Leave out --graph, or --scenario"
            )
        graph = result.graph().with_theme(options.theme)
        if options.output is None:
            print(graph, end="")
        else:
            graph.save(options.output)
        return 0
    keys = (
        None
        if options.key is None
        else [known_key(result, key, options.stage) for key in options.key]
    )
    between = None if options.between is None else _pair(options.between)
    diagram = result.diagram(key=keys, stage=options.stage, column=options.column, between=between)
    if options.output is None:
        print(diagram, end="")
    else:
        diagram.with_theme(options.theme).save(options.output)
    return 0


def _pair(text: str) -> tuple[str, str]:
    start, dots, end = text.partition("..")
    if not dots:
        raise InvalidArgument(
            f"{text!r} is not an interval of time",
            where="--between",
            hint="Write START..END, as in 2000-01-01T12:00:00Z..2000-01-01T12:10:00Z",
        )
    return start, end
