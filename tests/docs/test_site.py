"""The site: every page has its place, names that exist, and needs nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

import lowwater as lw
import lowwater.testing
from docs.tools import wheel
from docs.tools.figures import with_figures
from docs.tools.markdown import as_markdown
from tests.docs.test_pages import ROOT

PAGES = sorted((ROOT / "docs").rglob("*.md"))
CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)#\s]*)(#[^)\s]*)?\)")


def _placed(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    for part in nav if isinstance(nav, list) else nav.values() if isinstance(nav, dict) else ():
        yield from _placed(part)


def test_every_page_is_in_the_navigation_once() -> None:
    placed = list(_placed(CONFIG["nav"]))
    assert sorted(placed) == sorted(str(path.relative_to(ROOT / "docs")) for path in PAGES)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_to_pages(path: Path) -> None:
    for target, _ in LINK.findall(re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)):
        assert not target or "://" in target or (path.parent / target).is_file(), target


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_names_of_the_library_exist(path: Path) -> None:
    """In tables and sentences, too, which do not run."""
    for name in re.findall(r"\blw\.([A-Za-z_]+)", path.read_text()):
        assert hasattr(lw, name), name


def test_every_public_name_is_in_the_reference() -> None:
    folder = ROOT / "docs/reference/api"
    told = " ".join(path.read_text() for path in folder.glob("*.md"))
    listed = set(re.findall(r"^::: lowwater\.(\S+)", told, re.MULTILINE))
    public = {name for name in dir(lw) if not name.startswith("_") and name in lw._PLACE_OF}
    elsewhere = {"col", "lit", "Expr"}  # of narwhals; the page says so
    assert public - elsewhere - listed == set()
    testing = {f"testing.{name}" for name in vars(lowwater.testing) if not name.startswith("_")}
    modules = {"testing.assertions", "testing.conformance", "testing.scenario", "testing.oracle"}
    functions = {name for name in testing - modules if callable(_found(name))}
    assert functions - listed == set()


def _found(name: str) -> Any:
    found: Any = lw
    for part in name.split("."):
        found = getattr(found, part)
    return found


def test_docstrings_become_markdown() -> None:
    text = (
        "A :class:`~lowwater.time.Instant`, or :meth:`run`.\n\n>>> 1 + 1\n2\n\n== ==\na  b\n== =="
    )
    shown = (
        "A `Instant`, or `run`.\n\n```pycon\n>>> 1 + 1\n2\n```\n\n```text\n== ==\na  b\n== ==\n```"
    )
    assert as_markdown(text) == shown


def test_marks_become_pictures_of_what_the_page_gives() -> None:
    page = """```python
class Shown:
    def to_svg(self):
        return "<svg>\\n\\n<b>here</b></svg>"
```
before
<!-- figure: Shown() -->
```python
raise AssertionError("behind the last mark nothing runs")
```
"""
    made = with_figures(page)
    assert '<div class="figure">\n<svg>\n<b>here</b></svg>\n</div>\n```python' in made
    assert made.startswith("```python\nclass Shown:")
    assert with_figures(made) == made, "a page without marks stays as it is"


def test_pages_have_pictures() -> None:
    drawn = [path for path in PAGES if "<!-- figure: " in path.read_text()]
    assert drawn
    for path in drawn:
        text = with_figures(path.read_text())
        assert "<svg" in text
        assert "<!-- figure: " not in text


class _Needs(HTMLParser):
    """Collects what a page loads when it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "link" and given.get("rel") in ("canonical", "next", "prev"):
            return
        name = {"a": None, "link": "href"}.get(tag, "src")
        if name is not None and given.get(name):
            self.loads.append(str(given[name]))


@pytest.mark.long(reason="runs whole programs")
def test_the_site_builds_and_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    pytest.importorskip("hatchling")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert not done.returncode, done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > len(PAGES)
    for page in pages:
        needs = _Needs()
        needs.feed(page.read_text())
        assert needs.loads, page
        assert not [what for what in needs.loads if "//" in what], page
    for sheet in tmp_path.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", sheet.read_text()), sheet
    assert [one.name for one in tmp_path.glob("*.whl")] == [wheel.name()]
    assert 'data-wheel="lowwater-' in (tmp_path / "tutorial.html").read_text()
    assert 'class="language-python highlight"' in (tmp_path / "tutorial.html").read_text()
    assert "def run_block(" in (tmp_path / "try.py").read_text()
    assert 'class="doc doc-object' in (tmp_path / "reference/api/windows.html").read_text()
    assert "usage: lowwater demo" in (tmp_path / "reference/cli.html").read_text()
