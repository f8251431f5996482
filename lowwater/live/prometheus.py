"""Writes the measures of a run in Prometheus' text format, version 0.0.4.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from collections.abc import Iterable

from lowwater.live.measures import MEASURES, Distribution, Measure, Sample
from lowwater.live.snapshot import Snapshot

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_TYPES = {"info": "gauge"}  # the format has no such type
_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})
_VALUE = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def exposition(snapshot: Snapshot) -> str:
    """Format the measures of a run; those without a value are left out. O(sources + stages)."""
    lines: list[str] = []
    for measure in MEASURES:
        samples = [*measure.samples(snapshot)]
        if samples:
            name = measure.metric
            lines += [
                f"# HELP {name} {measure.help.translate(_HELP)}",
                f"# TYPE {name} {_TYPES.get(measure.kind, measure.kind)}",
            ]
            for sample in samples:
                lines += _lines(name, measure, sample)
    return "\n".join([*lines, ""])


def _lines(name: str, measure: Measure, sample: Sample) -> Iterable[str]:
    # To Prometheus an empty label is the same as none.
    labels = [pair for pair in zip(measure.labels, sample.labels, strict=True) if pair[1]]
    value = sample.value
    if not isinstance(value, Distribution):
        yield f"{name}{_braces(labels)} {value}"
        return
    for limit, count in value.buckets:
        yield f"{name}_bucket{_braces([*labels, ('le', str(limit))])} {count}"
    yield f"{name}_bucket{_braces([*labels, ('le', '+Inf')])} {value.number}"
    yield f"{name}_sum{_braces(labels)} {value.total}"
    yield f"{name}_count{_braces(labels)} {value.number}"


def _braces(labels: Iterable[tuple[str, str]]) -> str:
    """Format labels; lone surrogates, which UTF-8 cannot hold, become question marks."""
    pairs = ",".join(f'{name}="{value.translate(_VALUE)}"' for name, value in labels)
    return f"{{{pairs}}}".encode(errors="replace").decode() if pairs else ""
