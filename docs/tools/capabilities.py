"""Tests what each runner supports, and writes ``docs/reference/capabilities.md``.

``python -m docs.tools.capabilities`` runs every probe and every scenario of the conformance suite
embedded, reads the outcomes on Spark from ``capabilities.json``, and writes the page. With
``--spark`` it first runs them on Spark and writes that file; with ``--missing``, only those whose
outcome the file does not have yet. This needs pyspark and Java, as does
``tests/spark/test_capabilities.py``, which checks that the file is current.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

import lowwater as lw
from docs.tools.probe import Probe
from docs.tools.probes import probes
from lowwater.errors import UnsupportedByRunner
from tests.conformance import test_goldens, test_scenarios

PAGE = Path(__file__).parents[1] / "reference" / "capabilities.md"
ON_SPARK = PAGE.with_suffix(".json")
YES = "yes"
Outcomes: TypeAlias = dict[str, dict[str, str]]
"""By area and name: ``yes``, or the reason why not."""

_HEAD = """\
# What each runner supports

<!-- Written by `python -m docs.tools.capabilities`: change that, not this page. -->

This page lists every feature and whether it runs embedded and on Spark. Each line is the outcome of
a test: a small pipeline runs on both runners, and the panes must be equal. ✓ means that they are;
otherwise the text is that of the error. `tests/docs` and `tests/spark` check that this page is
current.

[Move to Spark](../howto/spark.md) shows how to go from one runner to the other.
"""
_SCENARIOS = """
## Rules

These are the scenarios of the conformance suite. Each defines what arrives when and exactly which
panes are emitted. The rules are in [semantics](../semantics.md).

| scenario | rules | embedded | Spark |
|---|---|---|---|
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page; with ``--spark`` or ``--missing`` also the outcomes on Spark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spark", action="store_true", help="run on Spark first")
    parser.add_argument("--missing", action="store_true", help="run on Spark what was not yet")
    given = parser.parse_args(arguments)
    if given.spark or given.missing:
        known = {} if given.spark else json.loads(ON_SPARK.read_text())
        found = tried_on_spark(known)
        ON_SPARK.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    PAGE.write_text(page(tried_embedded(), json.loads(ON_SPARK.read_text())))


def page(embedded: Outcomes, spark: Outcomes) -> str:
    """Return the page as Markdown.

    Raises:
        KeyError: A probe has not run on Spark yet: run with ``--spark``.
    """
    parts = [_HEAD]
    for area, found in embedded.items():
        if area == "Rules":
            continue
        parts.append(f"\n## {area}\n\n| | embedded | Spark |\n|---|---|---|\n")
        for name, outcome in found.items():
            parts.append(f"| `{name}` | {_cell(outcome)} | {_cell(spark[area][name])} |\n")
    parts.append(_SCENARIOS)
    for name, rules in scenario_rules().items():
        outcome, there = embedded["Rules"][name], spark["Rules"][name]
        parts.append(f"| {name} | {rules} | {_cell(outcome)} | {_cell(there)} |\n")
    return "".join(parts)


def tried_embedded() -> Outcomes:
    """Run everything embedded; a wrong result is an AssertionError."""
    found: Outcomes = {}
    with tempfile.TemporaryDirectory() as folder:
        for at, (area, those) in enumerate(_by_area()):
            place = Path(folder) / str(at)
            found[area] = {probe.name: _embedded(probe, place / str(n)) for n, probe in those}
    for param in test_scenarios.CASES:
        test_scenarios.test_scenario(param.values[0], "engine")
    for case in test_goldens.DATA["cases"]:
        test_goldens.test_golden(case, test_goldens.run_engine)
    found["Rules"] = dict.fromkeys(scenario_rules(), YES)
    return found


def tried_on_spark(known: Outcomes) -> Outcomes:
    """Run what has no outcome yet on Spark, in a new session; return all, in the page's order."""
    from lowwater.spark.session import local_session

    with (
        tempfile.TemporaryDirectory() as folder,
        local_session("capabilities", Path(folder)) as made,
    ):
        fresh = probed_on_spark(made, chosen=lambda _, area, name: name not in known.get(area, {}))
        rules = known.get("Rules", {})
        if rules.keys() != scenario_rules().keys():
            rules = _scenarios_on_spark(made)
    found: Outcomes = {}
    for probe in probes():
        of_area = fresh.get(probe.area, {}) | known.get(probe.area, {})
        found.setdefault(probe.area, {})[probe.name] = of_area[probe.name]
    return {**found, "Rules": rules}


def scenario_rules() -> dict[str, str]:
    """Return the rules that each scenario covers, by its name."""
    named = {
        param.values[0]["name"]: ", ".join(param.values[0]["rules"])
        for param in test_scenarios.CASES
    }
    for case in test_goldens.DATA["cases"]:
        named[f"*Streaming 102*: {case['name']}"] = "the book's figures"
    return named


def _by_area() -> Iterator[tuple[str, Iterable[tuple[int, Probe]]]]:
    return groupby(enumerate(probes()), key=lambda pair: pair[1].area)


def _embedded(probe: Probe, folder: Path) -> str:
    folder.mkdir(parents=True)
    for output in probe.outputs(folder):
        result = output.collect()
        assert result.to_arrow().num_rows, f"{probe.name} gives nothing"
        assert not result.errors, f"{probe.name} gives dead letters"
    return YES


def probed_on_spark(
    session: Any, *, chosen: Callable[[int, str, str], bool] | None = None
) -> Outcomes:
    """Run the probes on Spark, but not the scenarios.

    Args:
        session: The session.
        chosen: Whether a probe is to run, by its number, its area and its name; by default all.
    """
    from lowwater.spark.session import CHECKS

    found: Outcomes = {}
    with tempfile.TemporaryDirectory() as folder:
        for at, (area, those) in enumerate(_by_area()):
            for n, probe in those:
                if chosen is None or chosen(n, area, probe.name):
                    outcome = _tried(session, probe, Path(folder) / f"{at}-{n}")
                    found.setdefault(area, {})[probe.name] = outcome
    session.conf.unset(CHECKS)
    return found


def _scenarios_on_spark(session: Any) -> dict[str, str]:
    from tests.spark.cases_in_one_query import run_many
    from tests.spark.test_scenarios_directly import check, conformance_case, golden_case

    cases = [conformance_case(param.values[0]) for param in test_scenarios.CASES]
    cases += [golden_case(case) for case in test_goldens.DATA["cases"]]
    with tempfile.TemporaryDirectory() as folder:
        rows = run_many(session, cases, Path(folder))
    for at, case in enumerate(cases):
        check(case, rows[at])
    return dict.fromkeys(scenario_rules(), YES)


def _tried(session: Any, probe: Probe, folder: Path) -> str:
    """Return the outcome of a probe."""
    from lowwater.spark.session import CHECKS

    folder.mkdir(parents=True)
    outputs = probe.outputs(folder)
    session.conf.set(CHECKS, "false" if probe.chains else "true")
    try:
        # A stream has no end of its own; a static frame has, whatever is said.
        frame = lw.to_spark(session, *outputs, drain=True, **probe.options_in(folder))
    except UnsupportedByRunner as error:
        return error.what.replace(str(folder), "…")  # a path that differs each time
    rows = _streamed(frame, folder) if frame.isStreaming else frame.toArrow().to_pylist()
    names = list(dict.fromkeys(row["output"] for row in rows)) if len(outputs) > 1 else [None]
    found = [_plain(_only(rows, name)) for name in names]
    wanted = [_plain(one.to_arrow().to_pylist()) for one in outputs]
    assert sorted(found) == sorted(wanted), f"{probe.area}, {probe.name}: Spark gives other panes"
    return YES


def _only(rows: list[dict[str, Any]], output: str | None) -> list[dict[str, Any]]:
    """Return the rows of one of several outputs, with the columns that it has."""
    if output is None:
        return rows
    own = [row for row in rows if row["output"] == output]
    names = {name for row in own for name, value in row.items() if value is not None} - {"output"}
    return [{name: row[name] for name in row if name in names} for row in own]


def _streamed(frame: Any, folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []

    def keep(part: Any, _: int) -> None:
        rows.extend(part.toArrow().to_pylist())

    query = (
        frame.writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(folder / "_checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    return rows


def _plain(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return rows as sorted text, rounded, without when they were emitted and their weight.

    Where a bundle ends, and with it the clock and the watermark at a firing, depends on the runner.
    """
    return sorted(
        repr(sorted((k, round(v, 9) if isinstance(v, float) else v) for k, v in row.items()
                    if k not in ("emitted_at", "watermark", "weight")))
        for row in rows
    )  # fmt: skip


def _cell(outcome: str) -> str:
    return "✓" if outcome == YES else "no: " + outcome.replace("|", "\\|")


if __name__ == "__main__":
    main()
