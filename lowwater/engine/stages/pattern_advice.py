"""What is worth knowing about a pattern before it runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lowwater.engine.graph.finding import Finding, Upstream
from lowwater.engine.match.pattern import is_unbounded, may_be_empty
from lowwater.engine.match.rules import Matching


def match_findings(rules: Matching, where: str, upstream: Sequence[Upstream]) -> Iterator[Finding]:
    """Yield likely mistakes in a pattern.

    Args:
        rules: The rules.
        where: The name of the stage.
        upstream: What is known of the sources behind each of its inputs.
    """
    endless = any(flow.is_endless for flow in upstream)
    if any(flow.is_blind for flow in upstream):
        yield Finding(
            "warning" if endless else "note",
            "a match comes out once the watermark has passed what it depends on, and a source has "
            "no watermark: all rows are kept until the input ends",
            where,
            "Give the source a watermark",
        )
    elif is_unbounded(rules.pattern) and rules.within_us is None:
        yield Finding(
            "warning" if endless else "note",
            "the pattern repeats without bound, and there is no within=: a key whose match never "
            "ends keeps its rows for ever, and holds the output watermark",
            where,
            'Set within=, as in within="1h"',
        )
    if may_be_empty(rules.pattern):
        yield Finding(
            "note",
            "the pattern can also match no row at all; such a match is not emitted",
            where,
            "Have it take a row: a+ in place of a*",
        )
    for name, text in rules.texts.items():
        if _is_never_true(text):
            yield Finding(
                "warning",
                f"the condition of {name!r} is {text}, so no row can be it",
                where,
                "Give it a condition that some row can meet",
            )


def _is_never_true(text: str) -> bool:
    """Whether a condition is a constant that is not true."""
    return text in ("lit(False)", "lit(None)")
