"""S-B1: a value that a later part cannot hold costs its own record, at every place, in every run.

Poison records beside sound ones: no run stops, each poison record is one dead letter or is held,
and the sound records come to what they come to without them. All of it is the same in one bundle,
in bundles of one, over a restart and with workers: for each place in one of these ways by
``make test``, in all by ``make nightly``.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.examples import is_campaign
from tests.poison import poison_inputs, poison_outputs  # noqa: F401  # they add places
from tests.poison.poison_places import PLACES
from tests.poison.poison_trial import modes_of, outcome, problems_of, records_of
from tests.poison.poison_values import VALUES

SAMPLE = (
    "int beyond 64 bits", "nan", "decimal nan", "decimal signalling nan", "fraction", "ip address",
    "int enum", "lone surrogate", "surrogate inside", "bytearray", "dict with a bad value",
    "tuple", "tuple with nan", "tuple with a big int", "naive datetime", "foreign zone",
    "first datetime", "numpy void", "pandas NaT", "no hash", "no equality", "no repr", "odd number",
    "odd zone", "odd zone inside", "half mapping", "odd mapping inside", "odd dict", "odd list",
    "odd tuple", "odd float", "odd time", "odd class", "text of a class", "numpy duration",
    "set", "mapping", "ordered dataclass", "object",
    "nested 41", "nested 100,000", "endless", "doubled",
)  # fmt: skip


@pytest.mark.filterwarnings("ignore::lowwater.errors.LowwaterWarning")
@pytest.mark.parametrize("name", PLACES)
def test_a_poison_record_costs_itself_alone(name: str, tmp_path: Path) -> None:
    modes = modes_of(PLACES[name])
    if not is_campaign():
        modes = [modes[[*PLACES].index(name) % len(modes)]]
    own = PLACES[name].values
    together = own or {odd: VALUES[odd] for odd in SAMPLE}
    every = own or VALUES
    alone = [{odd: value} for odd, value in every.items()] if is_campaign() else []
    for at, values in enumerate([together, *alone]):
        assert problems_of(PLACES[name], values, tmp_path / str(at), modes) == [], values.keys()


def _ends(*_: object) -> NoReturn:
    raise MemoryError


class EndingZone(dt.tzinfo):
    utcoffset = dst = tzname = _ends


class EndingList(list[Any]):
    __iter__ = __len__ = _ends


class EndingKey:
    __hash__ = __lt__ = _ends


ENDING = {
    "zone": dt.datetime(2024, 5, 1, 12, tzinfo=EndingZone()),
    "list": [EndingList([1])],
    "key": EndingKey(),
}


@pytest.mark.filterwarnings("ignore::lowwater.errors.LowwaterWarning")
@pytest.mark.parametrize(
    ("name", "odd"),
    [
        *((name, "zone") for name in ("key", "time", "max", "collect", "emitted record")),
        *((name, "list") for name in ("collect", "group", "emitted value", "with_columns")),
        ("key", "key"),
    ],
)
def test_a_machine_without_memory_makes_no_dead_letters(
    name: str, odd: str, tmp_path: Path
) -> None:
    records = records_of(PLACES[name], {odd: ENDING[odd]})
    with pytest.raises(MemoryError):
        outcome(PLACES[name], records, tmp_path, "whole")
