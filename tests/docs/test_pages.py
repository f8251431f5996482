"""What the pages say: their examples run, and each rule is held by a test."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

from lowwater import check
from lowwater.pipeline import Writing

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
LANGUAGES = {"python", "text", "sh", "mermaid"}  # of which Python runs
RULE = re.compile(r"\*\*((?:S-[A-Z]|J-|T-|P-)\d+)\*\*")
CITED = re.compile(r"(?:S-[A-Z]|J-|T-|P-)\d+")
# What they show of thousands of records, or with Hypothesis, other tests show with less.
LARGE = ("docs/howto/lateness.md", "docs/howto/explore.md", "docs/testing.md")


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


def pages(*, spark: bool) -> list[str]:
    """Return the pages with examples: those that need Spark, which tests/spark runs, or not."""
    every = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))
    every.append("README.md")
    code = {page: "".join(code for code, _ in _examples(page)) for page in every}
    elsewhere = {page for page in every if "read_postgres_changes(" in code[page]}  # needs a server
    return [
        page
        for page in every
        if code[page] and page not in elsewhere and ("pyspark" in code[page]) is spark
    ]


def run_page(page: str) -> None:
    """Run the examples of a page one after the other, and compare what they print."""
    names: dict[str, object] = {"__name__": "page"}
    for code, shown in _examples(page):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, page, "exec"), names)
        assert printed.getvalue() == (shown or ""), code
    for value in names.values():
        if isinstance(value, Writing):  # some are of stores that are not here: not run
            assert not [each for each in check(value) if each.severity == "error"]


def _large_are_long(page: str) -> Any:
    reason = "thousands of records and hundreds of runs, as readers would have them"
    return pytest.param(page, marks=[pytest.mark.long(reason=reason)] * (page in LARGE))


@pytest.mark.parametrize("page", [_large_are_long(page) for page in pages(spark=False)])
def test_the_examples_of_a_page_run_one_after_the_other(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(page)


@pytest.mark.parametrize("path", sorted((ROOT / "docs").rglob("*.md")), ids=lambda path: path.name)
def test_no_block_of_code_is_left_out(path: Path) -> None:
    text = path.read_text()
    assert {language for language, _ in BLOCK.findall(text)} <= LANGUAGES
    assert text.count("```") == 2 * len(BLOCK.findall(text)), "a block without a plain language"


def test_there_are_pages_of_each_kind() -> None:
    assert "docs/tutorial.md" in pages(spark=False)
    assert "docs/spark.md" in pages(spark=True)


def test_readme_has_examples() -> None:
    examples = _examples()
    assert len(examples) >= 2
    assert any(shown is not None for _, shown in examples)


def test_each_rule_is_cited_by_a_test() -> None:
    rules = RULE.findall((ROOT / "docs/semantics.md").read_text())
    cited = {
        rule
        for suffix in ("*.py", "*.yaml")
        for path in (ROOT / "tests").rglob(suffix)
        if path != Path(__file__)
        for rule in CITED.findall(path.read_text())
    }
    assert rules
    assert {*rules} - cited == set()


def test_rules_that_the_code_cites_are_on_the_page() -> None:
    told = {*RULE.findall((ROOT / "docs/semantics.md").read_text())}
    cited = {
        rule
        for path in (ROOT / "lowwater").rglob("*.py")
        for rule in re.findall(rf"(?<!-)\b{CITED.pattern}\b", path.read_text())
    }
    assert {"S-T1", "J-1", "T-1", "P-1"} <= cited
    assert cited - told == set()


def test_contributing_names_files_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text().replace("NAME", "*")
    named = re.findall(r"`([\w./*]+\.(?:py|md|yml)|tests/[\w./]+)`", text)
    assert len(named) > 20
    missing = [n for n in named if not [*ROOT.glob(n), *(ROOT / "lowwater").glob(n)]]
    assert missing == []
