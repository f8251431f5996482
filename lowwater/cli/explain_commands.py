"""The commands that explain runs: ``python -m lowwater explain``, ``diff``, ``check``, ``diagram``.

Each command takes the parsed options, prints its result and returns the exit status.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lowwater.errors import InvalidArgument
from lowwater.io.terminal import say

if TYPE_CHECKING:
    from lowwater.pipeline import Result
    from lowwater.testing.scenario import ScenarioRun


TARGET = "module:pipeline or file.py:pipeline"
_BUNDLE_OF_RUN = 50_000
_NAIVE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d([.]\d+)?)?")
_SCENARIO = """\
With --scenario, the elements come from a file that Scenario.to_markdown() or .to_yaml() wrote, and
only the windowing and the aggregates of the pipeline's last stage are used."""


def add_commands(commands: Any) -> None:
    """Add the commands to the parser of the command line."""
    explain = commands.add_parser(
        "explain",
        help="run a pipeline and explain why a window fired or did not, or where an element went",
        description="Run a pipeline and explain why a window fired or did not, or where an element "
        "went.\nWithout --key and --element, evaluate other watermark delays and allowed "
        "latenesses.\n\n" + _SCENARIO,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    explain.add_argument("target", metavar="TARGET", help=TARGET)
    explain.add_argument("--key", help="the key; a Python literal such as 7 or ('a', 1), or text")
    explain.add_argument(
        "--window",
        metavar="AT",
        help="an instant in the window, or START..END, in UTC unless it says otherwise",
    )
    explain.add_argument(
        "--element", metavar="RECORD", help="the element: a Python literal, such as \"{'id': 7}\""
    )
    explain.add_argument("--stage", help="the stage (default: the last one; with --element, all)")
    _add_run(explain)
    diff = commands.add_parser(
        "diff",
        help="run two pipelines and compare their final panes",
        description="Run two pipelines and print the final panes that differ. The exit status is 1 "
        "if any differ.\n\n" + _SCENARIO,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    diff.add_argument("target", metavar="A", help=TARGET)
    diff.add_argument("other", metavar="B", help=TARGET)
    _add_run(diff)
    check = commands.add_parser(
        "check",
        help="report likely mistakes in a pipeline, without running it",
        description="Report likely mistakes in a pipeline, without running it. The exit status is "
        "1 if there are errors or warnings.",
    )
    check.add_argument("target", metavar="TARGET", help=TARGET)
    check.add_argument(
        "--runner",
        choices=("embedded", "spark"),
        default="embedded",
        help="also note what comes out otherwise on Spark",
    )
    _add_diagram(commands)


_KINDS = {"Processed": "a process", "JoinedStream": "a join", "Stream": "a stream of records"}


def _run_target(target: str, options: argparse.Namespace) -> Result | ScenarioRun:
    """Run a pipeline with a trace, over its own sources or over a scenario."""
    from lowwater.cli.target import load
    from lowwater.engine.stages.windowed import Windowed
    from lowwater.pipeline import Pipeline, Writing

    pipeline = load(target, with_output=False)
    if isinstance(pipeline, Writing):
        raise InvalidArgument(
            f"{target!r} is a pipeline with an output",
            hint="Name the pipeline without its write_... call",
        )
    if not isinstance(pipeline, Pipeline):
        raise InvalidArgument(
            f"{target!r} is {_KINDS[type(pipeline).__name__]}, which has no panes",
            hint="Name a pipeline with windows, as aggregate returns it",
        )
    if options.scenario is None:
        return pipeline.collect(
            trace=True,
            bundle_size=options.bundle_size,
            progress=False,
            on_error="dead_letter",  # where they went is what is asked
        )
    work = pipeline._stage.work
    if not isinstance(work, Windowed):
        raise InvalidArgument(f"{target!r} has no windows", hint="Run it without --scenario")
    scenario = _scenario(options.scenario)
    run = scenario.run_windowing(work.windowing, aggregate=dict(work.aggregates), trace=True)
    _tell_dead_letters(run)
    return run


def _tell_bundles(options: argparse.Namespace) -> None:
    """Warn on standard error if the bundle size differs from ``run``: early panes depend on it."""
    if options.scenario is None and options.bundle_size != _BUNDLE_OF_RUN:
        say(f"bundle size {options.bundle_size}; `run` uses {_BUNDLE_OF_RUN}", file=sys.stderr)


def _tell_dead_letters(run: ScenarioRun) -> None:
    """Report the number of dead letters of a scenario, and the first, on standard error."""
    if run.errors:
        first, of = run.errors[0], len(run.scenario.elements)
        say(
            f"dead letters: {len(run.errors)} of {of} elements of the scenario; the first, "
            f"{first.record!r}, is {first.reason}: {first.detail}",
            file=sys.stderr,
        )


def _literal(text: str) -> Any:
    """Parse a Python literal; return any other text unchanged."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def known_key(run: Result | ScenarioRun, text: str, stage: str | None) -> Any:
    """Parse a key: as a literal, unless only the text itself is a key of a stage."""
    key = _literal(text)
    keys = [element.key for element in run.trace.stage(stage).elements]
    return text if key not in keys and text in keys else key


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scenario", metavar="FILE", help="a scenario, Markdown or YAML")
    add_bundle_size(parser, 1, "which shows the effect of each")


def add_bundle_size(parser: argparse.ArgumentParser, default: int, why: str) -> None:
    """Add the option of the largest bundle; ``why`` says what is good about its default."""
    parser.add_argument(
        "--bundle-size",
        type=int,
        default=default,
        metavar="N",
        help=f"maximum number of elements per bundle (default: {default}, {why})",
    )


def _scenario(path: str) -> Any:
    from lowwater.testing import Scenario

    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidArgument(
            f"{path!r} cannot be read: {error.strerror or error}", hint="Check the path"
        ) from None
    except UnicodeDecodeError as error:
        raise InvalidArgument(
            f"{path!r} is not UTF-8 text", where=f"byte {error.start}", hint="Save it as UTF-8"
        ) from None
    if path.endswith((".yaml", ".yml")):
        return Scenario.from_yaml(text)
    return Scenario.from_markdown(text)


def _explain(options: argparse.Namespace) -> int:
    if (options.key is None) != (options.window is None):
        raise InvalidArgument(
            "--key and --window go together",
            hint="Give both: --key home --window 2000-01-01T12:00:00Z",
        )
    run = _run_target(options.target, options)
    _tell_bundles(options)
    if options.element is not None:
        say(run.why(_literal(options.element), stage=options.stage))
    if options.key is not None:
        key = known_key(run, options.key, options.stage)
        window = window_of(options.window, of_scenario=options.scenario is not None)
        say(run.explain(key, window, stage=options.stage))
    if options.element is None and options.key is None:
        say(run.lateness_profile(stage=options.stage))
    return 0


def window_of(text: str, *, of_scenario: bool = False) -> Any:
    """Parse an instant, or START..END, of UTC if there is no time zone.

    Args:
        text: The text.
        of_scenario: Whether times of day are of the day of scenarios.
    """
    if of_scenario:
        from lowwater.testing._moments import moment as read
    else:
        from lowwater.time import instant as read
    parts = [f"{one}Z" if _NAIVE.fullmatch(one) else one for one in text.split("..", 1)]
    return (read(parts[0]), read(parts[1])) if len(parts) == 2 else read(parts[0])


def _diff(options: argparse.Namespace) -> int:
    from lowwater.explain import diff

    found = diff(_run_target(options.target, options), _run_target(options.other, options))
    _tell_bundles(options)
    say(found)
    return 1 if found else 0


def _check(options: argparse.Namespace) -> int:
    from lowwater.cli.target import load
    from lowwater.display.text import counted
    from lowwater.explain import check

    findings = check(load(options.target), runner=options.runner)
    say(findings)
    bad = [each for each in findings if each.severity != "note"]
    notes = counted(len(findings) - len(bad), "note")
    say(f"{counted(len(bad), 'problem')}, {notes}", file=sys.stderr)
    return 1 if bad else 0


def _add_diagram(commands: Any) -> None:
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


def _diagram(options: argparse.Namespace) -> int:
    from lowwater.pipeline import Result

    result = _run_target(options.target, options)
    _tell_bundles(options)
    if options.graph:
        if not isinstance(result, Result):
            raise InvalidArgument(
                "a scenario has no graph of stages", hint="Leave out --graph, or --scenario"
            )
        graph = result.graph().with_theme(options.theme)
        if options.output is None:
            say(graph, end="")
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
        say(diagram, end="")
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


COMMANDS = {"explain": _explain, "diff": _diff, "check": _check, "diagram": _diagram}
