"""What a first hour with the library gets wrong: each mistake is met by a message that helps.

The lists are files of TOML beside this one, a table for each mistake::

    [number-as-size]
    run = "lw.FixedWindows(120)"
    gives = "UnitWarning"
    says = ["120", "120 µs", '"120s"']

``run`` is Python as a user would write it, with ``lw`` imported and the names that ``names.py``
defines. ``gives`` is the class of the error or warning. ``says`` is what its text must contain, in
any order: the value, the reason and the fix.
"""

from __future__ import annotations

import tomllib
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.mistakes import names

LISTS = {
    path.stem: tomllib.loads(path.read_text(encoding="utf-8"))
    for path in sorted(Path(__file__).parent.glob("*.toml"))
}
MISTAKES = {f"{stem}-{name}": one for stem, every in LISTS.items() for name, one in every.items()}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_it_is_said_what_is_wrong_and_what_to_do(
    mistake: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set(mistake) == {"run", "gives", "says"}
    assert len(mistake["says"]) >= 2
    monkeypatch.chdir(tmp_path)
    code = compile(mistake["run"], "mistake", "exec")
    said: list[tuple[str, str]] = []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            exec(code, names.in_scope())
        except Exception as error:
            said.append((type(error).__name__, str(error)))
    said += [(one.category.__name__, str(one.message)) for one in warned]
    texts = [text for kind, text in said if kind == mistake["gives"]]
    assert texts, f"nothing of the kind {mistake['gives']}: {said}"
    for part in mistake["says"]:
        assert any(part in text for text in texts), f"{part!r} is not in {texts}"
