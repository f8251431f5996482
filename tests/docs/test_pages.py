"""What the pages say: their examples run, and each rule is held by a test."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
RULE = re.compile(r"\*\*(S-[A-Z]\d+)\*\*")


def _examples(page: str = "README.md") -> list[tuple[str, str | None]]:
    """Return each Python block of a page, with the text block that follows it at once."""
    blocks = BLOCK.findall((ROOT / page).read_text())
    examples = []
    for at, (language, body) in enumerate(blocks):
        if language == "python":
            shown = blocks[at + 1][1] if blocks[at + 1 : at + 2] else ""
            follows = blocks[at + 1][0] == "text" if blocks[at + 1 : at + 2] else False
            examples.append((body, shown if follows else None))
    return examples


@pytest.mark.parametrize(("code", "shown"), _examples())
def test_readme_examples_run(code: str, shown: str | None) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})
    if shown is not None:
        assert printed.getvalue() == shown


@pytest.mark.parametrize(
    "page", ["docs/durable.md", "docs/process.md", "docs/testing.md", "docs/watermarks.md"]
)
def test_the_examples_of_a_page_run_one_after_the_other(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    examples = _examples(page)
    assert any(shown is not None for _, shown in examples)
    for code, shown in examples:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, page, "exec"), names)
        if shown is not None:
            assert printed.getvalue() == shown


def test_readme_has_examples() -> None:
    examples = _examples()
    assert len(examples) >= 2
    assert any(shown is not None for _, shown in examples)


@pytest.mark.parametrize("rule", RULE.findall((ROOT / "docs/semantics.md").read_text()))
def test_each_rule_is_cited_by_a_test(rule: str) -> None:
    citing = re.compile(rf"{rule}(?!\d)")
    tests = [
        path
        for suffix in ("*.py", "*.yaml")
        for path in (ROOT / "tests").rglob(suffix)
        if path != Path(__file__)
    ]
    assert any(citing.search(path.read_text()) for path in tests), f"no test cites {rule}"
