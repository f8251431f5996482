"""Emitted records that cannot be held: they become dead letters of their output (S-B1, S-K6).

The hook that emitted such a record has changed state by then, so the record that it was called for
stands. What was emitted is set aside, and the run goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lowwater.display.text import shown
from lowwater.engine.process.cells import CELLS
from lowwater.engine.records.batch import fields_of, is_name
from lowwater.engine.records.columns import Column
from lowwater.engine.records.panes import ErrorRecord
from lowwater.engine.records.problems import Problems
from lowwater.engine.records.stage_output import MAIN, UNFIT, Emitted, Output
from lowwater.engine.records.steps import key_values
from lowwater.engine.records.storable import (
    UNSTORABLE,
    Fault,
    are_leaves,
    detail_of,
    fault_of,
    fit,
    note_unstorable,
    portable,
)
from lowwater.errors import describe
from lowwater.state.arrays import distinct
from lowwater.time import Int64Array

_NAME = "wrong_type"
"""The reason of a dead letter with a field whose name cannot be a column's, as from readers."""


_STATES = tuple(CELLS.values())


def sifted(outputs: Mapping[str, Emitted], process: str) -> Mapping[str, Emitted]:
    """Return what was emitted; records that cannot be held are in the output ``UNFIT``.

    Args:
        outputs: What was emitted, by output.
        process: The process, in words.
    """
    sound: dict[str, Emitted] = {}
    unfit: list[Emitted] = []
    for tag, emitted in outputs.items():
        faults = _faults(emitted)
        if not faults:
            sound[tag] = emitted
            continue
        bad = np.array(sorted(faults), dtype=np.int64)
        kept = np.setdiff1d(np.arange(len(emitted)), bad)
        if kept.size:
            sound[tag] = _taken(emitted, kept)
        if emitted.signs is not None:
            # The retraction of a record is as unfit as the record, which is a dead letter already.
            bad = bad[emitted.signs[bad] > 0]
        if bad.size:
            faulty = [faults[row] for row in bad.tolist()]
            unfit.append(_letters(_taken(emitted, bad), faulty, process, tag))
    if unfit:
        sound[UNFIT] = _together(unfit)
    return sound


def letters_of(unfit: Output) -> Iterator[ErrorRecord]:
    """Return the dead letters for what was emitted to ``UNFIT``."""
    assert isinstance(unfit, Emitted), "what a process emitted"
    for letter in unfit.to_list():
        yield ErrorRecord(letter["record"], letter["reason"], letter["detail"], letter["where"])


def _faults(emitted: Emitted) -> dict[int, Fault]:
    """Return why records cannot be held, by row."""
    values = emitted.values
    if isinstance(values, Mapping):
        problems = Problems()
        for name, column in values.items():
            note_unstorable(column, name, problems)
        return problems.found
    if not emitted.is_odd and _are_plain(values):
        return {}
    found = {}
    for row, value in enumerate(values):
        if (fault := _fault_of_record(value)) is not None:
            found[row] = fault
    return found


def _are_plain(values: Sequence[Any]) -> bool:
    """Return whether records of types that can be held can all be held. O(n), mostly in C."""
    kinds = set(map(type, values))
    if kinds != {dict}:
        return are_leaves(values)
    return all(map(is_name, set().union(*values))) and fit(values)


def _fault_of_record(value: Any) -> Fault | None:
    try:
        fields = list(fields_of(value).items())
    except MemoryError:
        raise
    except Exception as error:  # a class of the user
        return UNSTORABLE, f"{describe('value', value)} cannot be held: {type(error).__name__}"
    for name, item in fields:
        if not is_name(name):
            return _NAME, f"{shown(name, exact=True)} cannot be the name of a column"
        if issubclass(type(item), _STATES):  # isinstance asks the class of the user
            return UNSTORABLE, (
                f"{name} is the cell ctx.{item.name}, not its value: emit ctx.{item.name}.get()"
            )
        if (fault := fault_of(item)) is not None:
            return detail_of(name, item, fault)
    return None


def _taken(emitted: Emitted, rows: Int64Array) -> Emitted:
    values = emitted.values
    return replace(
        emitted,
        times=emitted.times[rows],
        keys=tuple(key.take(rows) for key in emitted.keys),
        values={name: column.take(rows) for name, column in values.items()}
        if isinstance(values, Mapping)
        else [values[row] for row in rows.tolist()],
        start=None if emitted.start is None else emitted.start[rows],
        end=None if emitted.end is None else emitted.end[rows],
        signs=None if emitted.signs is None else emitted.signs[rows],
        places=None if emitted.places is None else emitted.places[rows],
        parts=None if emitted.parts is None else emitted.parts[rows],
    )


def _letters(emitted: Emitted, faults: Sequence[Fault], process: str, tag: str) -> Emitted:
    """Return unfit records as their dead letters say them, which any process can hold."""
    said = "" if tag == MAIN else f", {describe('tag', tag)}"
    values = [
        {
            "record": portable(record),
            "reason": reason,
            "detail": detail,
            "where": f"emit of {process}, {describe('key', key)}{said}",
        }
        for key, record, (reason, detail) in zip(
            key_values(emitted.keys, len(emitted)), emitted.to_list(), faults, strict=True
        )
    ]
    return replace(emitted, values=values, is_plain=False)


def _together(unfit: Sequence[Emitted]) -> Emitted:
    """Return the unfit records of all outputs, in the order in which they were emitted."""
    whole = unfit[0]
    if len(unfit) > 1:
        whole = Emitted(
            times=np.concatenate([each.times for each in unfit]),
            keys=tuple(
                Column.concat_as_is(keys)
                for keys in zip(*(each.keys for each in unfit), strict=True)
            ),
            values=[value for each in unfit for value in each.values],
            places=_joined([each.places for each in unfit]),
            parts=_joined([each.parts for each in unfit]),
        )
    whole = replace(whole, start=None, end=None, signs=None)
    if whole.places is None or len(distinct(whole.places)) == 1:
        return whole
    return _taken(whole, np.argsort(whole.places, kind="stable"))


def _joined(arrays: Sequence[Int64Array | None]) -> Int64Array | None:
    given = [array for array in arrays if array is not None]
    return np.concatenate(given) if given else None
