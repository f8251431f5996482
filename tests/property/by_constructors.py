"""Outputs as Python objects, each made by the constructor of its class, and how they compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from lowwater.engine.local.outcomes import LateElements
from lowwater.engine.records.panes import LateRecord, Pane
from lowwater.engine.records.stage_output import Emitted
from lowwater.engine.records.steps import KINDS, REASONS, TIMINGS, PaneBatch, key_values
from lowwater.pipeline.forms import Element, ElementForm
from lowwater.time import Instant
from lowwater.windows import Window


def made_panes(batch: PaneBatch) -> list[Pane]:
    """Return the panes of a batch."""
    values = {name: column.to_list() for name, column in batch.values.items()}
    keys = key_values(batch.keys)
    return [
        Pane(
            key=keys[row],
            window=Window(Instant(int(batch.start[row])), Instant(int(batch.end[row]))),
            values={name: column[row] for name, column in values.items()},
            timing=TIMINGS[batch.timing[row]],
            index=int(batch.index[row]),
            on_time_index=int(batch.on_time_index[row]),
            is_first=bool(batch.is_first[row]),
            is_last=bool(batch.is_last[row]),
            kind=KINDS[batch.kind[row]],
            timestamp=Instant(int(batch.timestamp[row])),
            emitted_at=Instant(int(batch.emitted_at[row])),
            watermark=Instant(int(batch.watermark[row])),
        )
        for row in range(len(batch))
    ]


def made_late(late: LateElements) -> list[LateRecord]:
    """Return late elements with the records they came in."""
    batch, keys = late.batch, key_values(late.keys)
    values, details = list(late.records.rows(late.rows)), list(batch.all_details())
    return [
        LateRecord(
            values[row],
            Instant(int(late.times[row])),
            keys[row],
            Window(Instant(int(batch.start[row])), Instant(int(batch.end[row])))
            if batch.start[row] != batch.end[row]
            else None,
            Instant(int(batch.watermark)),
            REASONS[batch.reason[row]],
            details[row],
        )
        for row in range(len(late))
    ]


def made_elements(form: ElementForm, batch: Emitted) -> list[Element]:
    """Return what a stage emitted."""
    keys = key_values(batch.keys) if batch.keys else [None] * len(batch)  # of a stream without keys
    values = batch.to_list()
    return [
        Element(
            keys[row],
            values[row],
            Instant(int(batch.times[row])),
            form.output,
            "insert" if batch.signs is None or batch.signs[row] > 0 else "retract",
        )
        for row in range(len(batch))
    ]


def assert_same(found: Sequence[Any], expected: Sequence[Any]) -> None:
    """Assert same types, also of fields, and the same texts: they tell NaN, -0.0 and 0 apart."""
    assert list(map(repr, found)) == list(map(repr, expected))
    for one, other in zip(found, expected, strict=True):
        assert type(one) is type(other)
        for each in fields(other):
            assert type(getattr(one, each.name)) is type(getattr(other, each.name))
