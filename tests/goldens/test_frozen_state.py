"""State directories that commit 07f6227b has written are read as it would have read them.

See the README beside this file.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from lowwater.engine.join.joining import LATE_VERSIONS
from lowwater.engine.join.searching import MATCHES
from lowwater.errors import StateError
from lowwater.state.codec import decode
from tests.goldens.every import GOLDENS
from tests.goldens.golden import STATES, Golden, facts, settled, unpack
from tests.stage_kinds import every_kind

pytestmark = [
    pytest.mark.slow(reason="resumes each stored state"),
    pytest.mark.filterwarnings("ignore::lowwater.errors.DataWarning"),
    pytest.mark.filterwarnings("ignore::lowwater.errors.PipelineWarning"),
]

REFUSED: Mapping[str, str] = {}
"""The one place for goldens that are refused on purpose: by name, the words of the refusal.

An entry needs a line in the CHANGELOG that says who must do what with such a state.
"""


CORRECTED: Mapping[tuple[str, str], tuple[Collection[str], int]] = {
    # A retraction left traces beside larger values: 2.97e-299 beside 1e16 was summed up to 0.
    ("numbers", "out/above/part"): (("sum_wide", "mean_wide"), 5),
    # Late records had the number that all records of a search have in common as their key.
    **{
        ("searches", f"out/search {match} {late}/late"): (("key",), 6)
        for match in MATCHES
        for late in LATE_VERSIONS
    },
}
"""Results that were wrong, by golden and output: their names, and in how many lines."""


_RESUMED = (
    "advancing",
    "aggregates",
    "as-of-joins",
    "changelogs",
    "column-windows",
    "compacted-killed",
    "counted",
    "ended",
    "followed",
    "matches",
    "numbers",
    "over",
    "passed",
    "processes",
    "searches",
    "sinks",
    "spilled",
    "topics",
    "tops",
    "vectorised",
    "waiting",
)
"""The cheapest goldens that have each kind of stage, and each kind of what a run stores."""


def _long_but(names: Collection[str]) -> list[Any]:
    """Return all goldens, of which ``make test`` tries those with some names."""
    long = pytest.mark.long(reason="repeats a proof with other stored state")
    return [pytest.param(each, marks=[long] * (each not in names)) for each in GOLDENS]


def _check_described(golden: Golden, folder: Path) -> None:
    for what, now in golden.described().items():
        then = (folder / what).read_bytes()
        assert decode(now) == decode(then), f"the {what} of {golden.name}"
        assert now == then, f"the {what} of {golden.name}: equal values, as other bytes"


@pytest.mark.parametrize("name", [name for name in GOLDENS if name not in _RESUMED])
def test_the_description_of_a_golden_is_as_it_was(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    unpack(GOLDENS[name], tmp_path)
    _check_described(GOLDENS[name], tmp_path)


@pytest.mark.parametrize("name", _long_but(_RESUMED))
def test_a_golden_is_resumed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    golden = GOLDENS[name]
    monkeypatch.chdir(tmp_path)
    expected = unpack(golden, tmp_path)
    _check_described(golden, tmp_path)
    if name in REFUSED:
        with pytest.raises(StateError, match=REFUSED[name]):
            golden.resume()
        return
    golden.resume()
    output, wanted = settled(golden.contents()), settled(expected["output"])
    assert output.keys() == wanted.keys()
    for place, lines in wanted.items():
        if (name, place) not in CORRECTED:
            assert output[place] == lines, f"{place} of {name}"
            continue
        names, count = CORRECTED[name, place]
        pairs = list(zip(output[place], lines, strict=True))
        others = [(json.loads(now), json.loads(then)) for now, then in pairs if now != then]
        assert len(others) == count, f"{place} of {name}"
        for now, then in others:
            assert {one for one in then if now[one] != then[one]} <= {*names}


_LOOKED_INTO = (*_RESUMED, "bounded-joins", "compacted", "far", "filled", "as-of-joins-ahead")


@pytest.mark.parametrize("name", _long_but({*_LOOKED_INTO} - {"aggregates", "numbers", "spilled"}))
def test_the_state_tools_look_into_a_golden(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden = GOLDENS[name]
    monkeypatch.chdir(tmp_path)
    expected = unpack(golden, tmp_path)
    for tool, now in facts().items():
        then = expected["facts"][tool]
        assert then is None or now == then, f"state {tool} of {name}"


def test_every_archive_has_its_golden() -> None:
    assert {path.name.partition(".")[0] for path in STATES.iterdir()} == {*GOLDENS}
    assert {*REFUSED} <= {*GOLDENS}


def test_every_kind_of_work_is_in_a_golden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new kind of stage needs a golden."""
    frozen: set[type] = set()
    for name in (
        "window-joins",
        "tables",
        "tops",
        "searches",
        "processes",
        "as-of-joins",
        "matches",
        "over",
        "counted",
        "passed",
    ):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.chdir(folder)
        GOLDENS[name].feed(False)
        frozen |= {type(stage.work) for stage in GOLDENS[name].graph().stages}
    assert frozen == every_kind()
