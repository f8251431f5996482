"""Runs a pipeline with and without poison records, in several ways, and compares what comes out."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, final

import msgspec
import numpy as np

import lowwater as lw
from lowwater.engine.records.json_rows import rows_of
from lowwater.engine.records.pane_table import to_values
from lowwater.io.sinks import Callback, Delivery
from tests.poison import poison_places
from tests.poison.poison_places import POISON, SECOND, Place
from tests.unit.engine.local.durable_runs import Stopped, stopping

SOUND = 24
_LABELS = frozenset({"emitted_at", "watermark", "index", "on_time_index", "is_first", "is_last"})


@final
@dataclass(frozen=True)
class Outcome:
    """What came out of a run.

    Args:
        net: The records that stand, and how often, by their text.
        letters: The reason and the detail of each dead letter.
        late: How many records were late.
    """

    net: Counter[str]
    letters: list[tuple[str, str]]
    late: int


def records_of(place: Place, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return sound records, and one for each value amid them."""
    records = [
        {"k": f"k{n % 3}", "v": n, "n": n, **({place.field: place.sound(n)} if place.field else {})}
        for n in range(SOUND)
    ]
    odd = [
        {"k": f"odd {at}", "v": place.sound(at), "n": POISON + at}
        | ({place.field: value} if place.field else {})
        for at, value in enumerate(values.values())
    ]
    # A time moves the watermark: the sound ones come first.
    first = SOUND if place.moves else 7
    together = [*records[:first], *odd, *records[first:]]
    poison_places.VALUES.clear()
    poison_places.VALUES.update({n: n for n in range(SOUND)})
    poison_places.VALUES.update({POISON + at: value for at, value in enumerate(values.values())})
    return [{"t": at * SECOND, **record} for at, record in enumerate(together)]


def outcome(
    place: Place, records: list[dict[str, Any]], folder: Path, mode: str, **options: Any
) -> Outcome:
    """Run the pipeline of a place.

    Args:
        place: The place.
        records: What its stream has.
        folder: An empty folder.
        mode: ``whole``, ``single``, ``workers`` or ``durable``.
        options: More options of the run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    numbers = [{"t": at * SECOND, "at": at} for at in range(len(records))]
    (folder / "in.jsonl").write_text("".join(json.dumps(one) + "\n" for one in numbers))
    deliveries: dict[str, Delivery] = {}

    def take(delivery: Delivery) -> None:
        deliveries[delivery.id] = delivery

    def made() -> Any:
        stream = lw.read_jsonl(
            str(folder / "in.jsonl"),
            time="t",
            unit="us",
            watermark=lw.Ascending(),
            clock=lw.ManualClock(0),
        )
        if place.reads is None:
            stream = stream.map(lambda row: records[row["at"]])
        else:
            stream = place.reads(records, folder / "read")
        sinks = [] if place.sink is None else [place.sink(folder / "out")]
        return place.build(stream).write_to(Callback(take), *sinks)

    shared: dict[str, Any] = {"on_error": "dead_letter", "progress": False, **options}
    shared["on_dead_letter"] = lambda _letter: None
    if mode == "durable":
        durable = {**shared, "state": folder / "state", "commit_every": "bundle", "bundle_size": 16}
        with stopping("before forgetting", 2):
            try:
                made().run(**durable)
            except Stopped:
                pass
        made().run(**durable)
    else:
        size = {"whole": 50_000, "single": 1, "workers": 7}[mode]
        workers = {"workers": 2} if mode == "workers" else {}
        made().run(bundle_size=size, **workers, **shared)
    got = _read([deliveries[name] for name in sorted(deliveries)])
    for row in place.stored(folder / "out") if place.stored is not None else ():
        got.net["stored " + _told(row)] += 1
    return got


def _read(deliveries: list[Delivery]) -> Outcome:
    net: Counter[str] = Counter()
    letters: list[tuple[str, str]] = []
    late = 0
    for delivery in deliveries:
        table = delivery.panes
        columns = [
            to_values(field, column)
            for field, column in zip(table.schema, table.columns, strict=True)
        ]
        for row in zip(*columns, strict=True):
            named = dict(zip(table.schema.names, row, strict=True))
            sign = -1 if named.pop("kind", "insert") == "retract" else 1
            net[_told(named)] += sign
        if delivery.late is not None:
            late += delivery.late.num_rows
        if delivery.errors is not None:
            letters += [(row["reason"], row["detail"]) for row in rows_of(delivery.errors)]
    return Outcome(Counter({row: n for row, n in net.items() if n}), sorted(letters), late)


def _told(row: Mapping[str, Any]) -> str:
    """Return a row as text."""
    # A column that only some deliveries have is null in the others.
    return repr(
        {
            name: canonical(value)
            for name, value in sorted(row.items())
            if name not in _LABELS and value is not None
        }
    )


def canonical(value: Any) -> Any:
    """Return a value as it looks in a table whose column it shares with others."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            return repr(value)
        return int(value) if value.is_integer() else value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, str):
        text = str.__str__(value).encode("utf-8", "backslashreplace").decode()
        if text[:5] in ("0001-", "9999-") and text[10:11] == "T":
            return f"{text[:4]}, beyond Python's years in UTC"
        return text if len(text) < 200 else f"{text[:20]}… {len(text)}"
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        try:
            value = value.astimezone(dt.UTC)
        except OverflowError:  # Arrow gives back the nearest that Python can hold, a file text
            return canonical(value.isoformat())
        if value.year in (1, 9999):
            return canonical(value.isoformat())
    if isinstance(value, dict):
        return {repr(canonical(name)): canonical(item) for name, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(map(canonical, value), key=repr)
    if isinstance(value, (list, tuple)):
        return [canonical(item) for item in value]
    try:
        return msgspec.to_builtins(value)
    except (TypeError, OverflowError, msgspec.MsgspecError):
        return repr(value)


def modes_of(place: Place) -> list[str]:
    """Return how a place can be run, besides in one bundle."""
    durable = ["durable"] if place.is_durable else []
    return ["single", *durable, *(["workers"] if place.python else [])]


def problems_of(
    place: Place,
    values: Mapping[str, Any],
    folder: Path,
    modes: Sequence[str],
    run: Callable[..., Outcome] = outcome,
) -> list[str]:
    """Return what is wrong with a place in one bundle and in some modes, for some poison values."""
    records = records_of(place, values)
    odd = [record for record in records if record["n"] >= POISON]
    base = run(place, [one for one in records if one["n"] < POISON], folder / "base", "whole")
    found: list[str] = []
    first: Outcome | None = None
    for mode in ["whole", *modes]:
        try:
            got = run(place, records, folder / mode, mode)
        except Exception as error:
            found.append(f"{mode}: the run stops: {type(error).__name__}: {str(error)[:300]}")
            continue
        missing = base.net - got.net
        extra = got.net - base.net
        if missing:
            found.append(f"{mode}: sound records lack {list(missing)[:3]}")
        if len(got.letters) > len(odd):
            found.append(f"{mode}: {len(got.letters)} dead letters of {len(odd)}: {got.letters}")
        if len(got.letters) < len(odd) and not (extra or got.late or place.filters):
            found.append(f"{mode}: neither held nor a dead letter")
        if any(" at 0x" in detail for _, detail in got.letters):
            found.append(f"{mode}: a detail has an address, which the next run does not have")
        if first is None:
            first = got
            continue
        if got.letters != first.letters:
            found.append(f"{mode}: letters {got.letters[:3]} are not {first.letters[:3]}")
        if place.moves:
            continue
        if got.net != first.net:
            found.append(
                f"{mode}: {list((got.net - first.net).items())[:2]} instead of "
                f"{list((first.net - got.net).items())[:2]}"
            )
        if got.late != first.late:
            found.append(f"{mode}: {got.late} late, not {first.late}")
    return found
