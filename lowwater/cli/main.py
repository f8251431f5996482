"""The command line: ``python -m lowwater demo``, ``run``, ``explain``, ``state`` and others."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from lowwater.cli import explain_commands
from lowwater.cli.target import load
from lowwater.errors import InvalidArgument, LowwaterError

if TYPE_CHECKING:
    from lowwater.engine.graph.metrics import Metrics
    from lowwater.pipeline import Pipeline, Processed

_DESCRIPTION = "Run, explain, draw and check streaming pipelines, and manage their state."
_RUN_DESCRIPTION = """\
Run a pipeline and print its panes as they are emitted.

TARGET is module:name or path/to/file.py:name. It names a pipeline; a pipeline with an output, such
as pipeline.write_parquet("out/"); a process, whose elements are printed; or a function without
arguments that returns one of these. A summary on standard error counts panes, late elements and
dead letters."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: The command-line arguments; by default those of the process.

    Returns:
        The exit status: 0, 1 for an error of the pipeline or its data, 2 for a wrong command,
        130 when interrupted. After SIGTERM a pipeline that writes raises ``SystemExit(143)``.
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
        if options.command in explain_commands.COMMANDS:
            return explain_commands.COMMANDS[options.command](options)
        return _run(options)
    except LowwaterError as error:
        print(f"lowwater: {error}", file=sys.stderr)
        return 2 if isinstance(error, InvalidArgument) else 1
    except BrokenPipeError:  # the reader closed the pipe, as `| head` does
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        state = getattr(options, "state", None)
        again = "" if state is None else "; run the same command to resume from the last commit"
        print(f"lowwater: interrupted{again}", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="lowwater", description=_DESCRIPTION)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    demo = commands.add_parser(
        "demo",
        help="run a demonstration on the flights out of New York in 2013",
        description="Compute departures and delays by hour and duty sessions of aircraft, and "
        "check the results. Takes less than a minute.",
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
        help="keep state and output in DIR; after Ctrl-C or a kill, the same command resumes",
    )
    run = commands.add_parser(
        "run",
        help="run a pipeline and print its panes",
        description=_RUN_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    run.add_argument("target", metavar="TARGET", help="module:pipeline or file.py:pipeline")
    run.add_argument("--format", choices=("table", "jsonl"), default="table", help="output format")
    run.add_argument(
        "--bundle-size",
        type=_positive,
        default=50_000,
        metavar="N",
        help="maximum number of elements per bundle; triggers are evaluated once per bundle "
        "(default: 50000)",
    )
    run.add_argument(
        "--on-error",
        choices=("dead_letter", "raise"),
        help="turn invalid records into dead letters, or stop at the first one (default: dead "
        "letters, unless the first 1,000 records of a source all are)",
    )
    explain_commands.add_commands(commands)
    _add_state(commands.add_parser("state", help="inspect or remove a state directory"))
    return parser


def _add_state(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    texts = {
        "info": "show the pipeline, positions, watermark, windows, keys and sizes",
        "verify": "read everything and report damage",
        "export": "write the open windows as JSON lines or Parquet",
        "compact": "join small files in the output folders of its runs",
        "relocate": "tell it where inputs or outputs are after they were moved",
        "reset": "remove the state, so that the pipeline starts from the beginning",
    }
    for name, text in texts.items():
        action = actions.add_parser(name, help=text, description=text.capitalize() + ".")
        action.add_argument("directory", metavar="DIR", help="the directory given to run(state=)")
        if name == "export":
            action.add_argument("--format", choices=("jsonl", "parquet"), default="jsonl")
            action.add_argument(
                "--output",
                metavar="FILE",
                help="file to write (default for JSON lines: standard output)",
            )
        if name == "compact":
            action.add_argument(
                "--size", default="128MB", help="files below this size are joined (default: 128MB)"
            )
            action.add_argument(
                "--age", default="1h", help="if they are at least this old (default: 1h)"
            )
        if name == "relocate":
            action.add_argument("old", metavar="OLD", help="a path, or a folder of paths, in it")
            action.add_argument("new", metavar="NEW", help="where that is now")
        if name == "reset":
            action.add_argument("--yes", action="store_true", help="confirm the removal")


def _positive(text: str) -> int:
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above zero")


def _state(options: argparse.Namespace) -> int:
    from lowwater.pipeline import state_tools

    if options.action == "info":
        print(state_tools.state_info(options.directory).to_text())
    elif options.action == "verify":
        print(f"{state_tools.verify_state(options.directory):,} rows, no damage found")
    elif options.action == "compact":
        from lowwater.io.sinks import Compaction

        compaction = Compaction(size=options.size, age=options.age)
        folders = state_tools.compact_outputs(options.directory, compaction)
        for folder in folders:
            print(f"{folder.path}: {folder.before:,} files became {folder.after:,}")
        if not folders:
            print("no folder of output was found", file=sys.stderr)
    elif options.action == "relocate":
        from lowwater.pipeline.relocation import relocate_state

        moved = relocate_state(options.directory, options.old, options.new)
        for old, new in moved.items():
            print(f"{old} is now {new}")
    elif options.action == "reset":
        left = state_tools.reset_state(options.directory, yes=options.yes)
        print("the state was removed")
        if left:
            print(f"not removed, because not part of the state: {', '.join(left)}", file=sys.stderr)
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
        try:
            metrics = target.run(bundle_size=options.bundle_size, on_error=options.on_error)
        except SystemExit:
            print("lowwater: stopped by SIGTERM; what was read is delivered", file=sys.stderr)
            raise
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
