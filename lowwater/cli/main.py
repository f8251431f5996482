"""The command line: ``python -m lowwater demo``, ``run``, ``explain``, ``state`` and others."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from lowwater.cli import diagram_command as cli_diagram
from lowwater.cli.explain_commands import add_commands
from lowwater.cli.target import load
from lowwater.errors import InvalidArgument, LowwaterError

if TYPE_CHECKING:
    from lowwater.engine.graph.metrics import Metrics
    from lowwater.pipeline import Pipeline, Processed

_DESCRIPTION = "Windows, triggers, watermarks and accumulation modes, in one process."
_RUN_DESCRIPTION = """\
Run a pipeline and print its panes as they come.

TARGET names a pipeline: module:name, or path/to/file.py:name. What it names may also be a pipeline
that writes, as in pipeline.write_parquet("out/"), a process, whose elements are printed, or a
function of no arguments that returns one of these. Late elements and dead letters are counted on
standard error."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: The command-line arguments; by default those of the process.

    Returns:
        The exit status: 0, 1 for an error of the pipeline or its data, 2 for a wrong command,
        130 when interrupted.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 2
    try:
        if options.command == "demo" and options.spark:
            from lowwater.cli.demo_spark import demo_spark

            return 0 if demo_spark(sys.stdout) else 1
        if options.command == "demo":
            from lowwater.cli.demo import demo

            return 0 if demo(sys.stdout, state=options.state) else 1
        if options.command == "state":
            return _state(options)
        if options.command == "diagram":
            return cli_diagram.run_command(options)
        if options.command in ("explain", "diff", "check"):
            from lowwater.cli import explain_commands as cli_explain

            return cli_explain.run_command(options)
        return _run(options)
    except LowwaterError as error:
        print(f"lowwater: {error}", file=sys.stderr)
        return 2 if isinstance(error, InvalidArgument) else 1
    except BrokenPipeError:  # the reader closed the pipe, as `| head` does
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        state = getattr(options, "state", None)
        again = "" if state is None else "; the same command goes on from the last commit"
        print(f"lowwater: interrupted{again}", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="lowwater", description=_DESCRIPTION)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    demo = commands.add_parser(
        "demo",
        help="the flights that left New York in 2013, as a stream out of order",
        description="Departures and delays by hour, aircraft duty sessions, and a check of the "
        "results; under a minute.",
    )
    where = demo.add_mutually_exclusive_group()
    where.add_argument(
        "--spark",
        action="store_true",
        help="run on Spark, as a stream of files, and compare with the embedded runner",
    )
    where.add_argument(
        "--state",
        metavar="DIR",
        help="keep state and output in DIR: interrupted with Ctrl-C, or killed, the same command "
        "goes on where it stopped",
    )
    run = commands.add_parser(
        "run",
        help="run a pipeline and print its panes",
        description=_RUN_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    run.add_argument("target", metavar="TARGET", help="module:pipeline or file.py:pipeline")
    run.add_argument(
        "--format", choices=("table", "jsonl"), default="table", help="how panes are printed"
    )
    run.add_argument(
        "--bundle-size",
        type=_positive,
        default=50_000,
        metavar="N",
        help="elements per bundle at most: triggers are judged once per bundle (default: 50000)",
    )
    run.add_argument(
        "--on-error",
        choices=("dead_letter", "raise"),
        default="dead_letter",
        help="set unusable records aside, or stop at the first",
    )
    add_commands(commands)
    cli_diagram.add_command(commands)
    _add_state(commands.add_parser("state", help="look into a state directory, or remove it"))
    return parser


def _add_state(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    texts = {
        "info": "show what is in it: pipeline, position, watermark, windows, keys, sizes",
        "verify": "read all of it, and say whether anything is damaged",
        "export": "write its open windows as JSON lines or Parquet",
        "reset": "remove it, so that the pipeline begins anew",
    }
    for name, text in texts.items():
        action = actions.add_parser(name, help=text, description=text.capitalize() + ".")
        action.add_argument("directory", metavar="DIR", help="what run(state=) was given")
        if name == "export":
            action.add_argument("--format", choices=("jsonl", "parquet"), default="jsonl")
            action.add_argument(
                "--output", metavar="FILE", help="where to; JSON lines are printed unless given"
            )
        if name == "reset":
            action.add_argument("--yes", action="store_true", help="that this is really meant")


def _positive(text: str) -> int:
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above zero")


def _state(options: argparse.Namespace) -> int:
    from lowwater.pipeline import state_tools

    if options.action == "info":
        print(state_tools.state_info(options.directory).to_text())
    elif options.action == "verify":
        print(f"{state_tools.verify_state(options.directory):,} rows, all sound")
    elif options.action == "reset":
        left = state_tools.reset_state(options.directory, yes=options.yes)
        print("the state was removed")
        if left:
            print(f"left alone, as it is no state: {', '.join(left)}", file=sys.stderr)
    else:
        _export(options)
    return 0


def _export(options: argparse.Namespace) -> None:
    from lowwater.engine.records.json_rows import to_json
    from lowwater.engine.records.python_values import python_rows
    from lowwater.pipeline.state_tools import export_state

    if options.format == "parquet" and options.output is None:
        raise InvalidArgument("Parquet cannot be printed", hint="Name a file: --output FILE")
    windows = export_state(options.directory)
    if options.format == "parquet":
        import pyarrow.parquet as pq

        try:
            pq.write_table(windows, options.output)
        except OSError as error:
            raise _unwritable(options.output, error) from None
        return
    lines = (to_json(row) + "\n" for row in python_rows(windows))
    if options.output is None:
        sys.stdout.writelines(lines)
        return
    try:
        with Path(options.output).open("w", encoding="utf-8") as file:
            file.writelines(lines)
    except OSError as error:
        raise _unwritable(options.output, error) from None


def _unwritable(path: str, error: OSError) -> InvalidArgument:
    return InvalidArgument(
        f"{path!r} cannot be written: {error.strerror or error}", hint="Name another file"
    )


def _run(options: argparse.Namespace) -> int:
    from lowwater.pipeline import Pipeline, Processed

    target = load(options.target)
    if isinstance(target, Pipeline):
        metrics = _print_panes(target, options, sys.stdout)
    elif isinstance(target, Processed):
        metrics = _print_emitted(target, options, sys.stdout)
    else:
        metrics = target.run(bundle_size=options.bundle_size, on_error=options.on_error)
    print(summary(metrics), file=sys.stderr)
    return 0


def summary(metrics: Metrics) -> str:
    """Summarise the metrics of a run in one line.

    >>> from lowwater.engine.graph.metrics import Metrics
    >>> summary(Metrics(events=10, elapsed=1.0))
    '10 events in 1.0 s (10/s); panes: none; late: none; errors: none'
    """
    parts = [
        f"{name}: " + (", ".join(f"{n:,} {kind}" for kind, n in counts.items()) or "none")
        for name, counts in (
            ("panes", metrics.panes),
            ("late", metrics.late),
            ("errors", metrics.errors),
        )
    ]
    head = f"{metrics.events:,} events in {metrics.elapsed:.1f} s"
    return f"{head} ({metrics.events_per_second:,.0f}/s); " + "; ".join(parts)


def _print_panes(pipeline: Pipeline, options: argparse.Namespace, stream: TextIO) -> Metrics:
    from lowwater.engine.records.json_rows import to_json
    from lowwater.engine.records.python_values import python_rows
    from lowwater.io.terminal import PaneTable

    if options.format == "jsonl":
        batches = pipeline.to_arrow_batches(
            bundle_size=options.bundle_size, on_error=options.on_error
        )
        for batch in batches:
            stream.writelines(to_json(row) + "\n" for row in python_rows(batch))
        return batches.metrics
    panes = pipeline.run(bundle_size=options.bundle_size, on_error=options.on_error)
    writer = PaneTable(stream)
    for pane in panes:
        writer.write(pane)
    return panes.metrics


def _print_emitted(process: Processed, options: argparse.Namespace, stream: TextIO) -> Metrics:
    from lowwater.engine.records.json_rows import to_json
    from lowwater.engine.records.python_values import python_rows
    from lowwater.io.terminal import cell

    batches = process.to_arrow_batches(bundle_size=options.bundle_size, on_error=options.on_error)
    for batch in batches:
        for row in python_rows(batch):
            text = (
                to_json(row)
                if options.format == "jsonl"
                else "  ".join(f"{name}={cell(value)}" for name, value in row.items())
            )
            stream.write(text + "\n")
    return batches.metrics
