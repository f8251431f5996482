"""Blocks that readers run in their browser: what one shows, and what the site carries for it."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from docs.tools import wheel
from tests.paths import ROOT


def run_block(code: str, names: dict[str, Any] | None = None) -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("try_block", ROOT / "docs/try.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, str] = module.run_block(code, {"__name__": "page"} if names is None else names)
    return found


def test_what_is_printed_and_the_value_of_the_last_expression() -> None:
    assert run_block("print('a')\n1 + 1") == {"text": "a\n", "value": "2"}
    assert run_block("print('a')") == {"text": "a\n"}
    assert run_block("x = 1") == {"text": ""}
    assert run_block("") == {"text": ""}
    assert run_block("import sys\nprint('e', file=sys.stderr)") == {"text": "e\n"}


def test_a_value_is_shown_as_a_notebook_shows_it() -> None:
    code = "class D:\n    def _repr_html_(self):\n        return '<b>d</b>'\n"
    assert run_block(code + "D()") == {"text": "", "html": "<b>d</b>"}
    assert run_block(code + "D")["value"].startswith("<class")


def test_scripts_of_a_value_run() -> None:
    """Sliders and diagrams have one, and a browser runs none that comes in by innerHTML."""
    text = (ROOT / "docs/try.js").read_text(encoding="utf-8")
    assert text.count("innerHTML") == 2  # in a comment, and once
    assert re.search(r'innerHTML = found\.html;\n\s+made\.querySelectorAll\("script"\)', text)


def test_blocks_share_names() -> None:
    names: dict[str, Any] = {"__name__": "page"}
    run_block("def double(x):\n    return 2 * x", names)
    assert run_block("double(21)", names)["value"] == "42"
    assert run_block("_ + 1", names)["value"] == "43"


def test_an_error_is_shown_in_full_but_for_the_frames_of_the_page() -> None:
    found = run_block("def f():\n    return 1 / 0\nprint(2)\nf()")
    assert found["text"] == "2\n"
    assert found["error"].splitlines() == [
        "Traceback (most recent call last):",
        '  File "<block>", line 4, in <module>',
        '  File "<block>", line 2, in f',
        "ZeroDivisionError: division by zero",
    ]
    assert "SyntaxError" in run_block("1 +")["error"]
    assert run_block("raise SystemExit(3)")["error"].endswith("SystemExit: 3\n")


@pytest.mark.parametrize("page", ["docs/tutorial.md", "docs/try.md", "docs/howto/explore.md"])
def test_pages_are_marked_once(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert text.count(wheel.MARK) == 1
    filled = wheel.with_mark(text, depth=1)
    assert wheel.MARK not in filled
    assert f'data-wheel="../{wheel.name()}"' in filled
    assert re.fullmatch(r"https://\S+/v\d+\.\d+\.\d+/full/", wheel.PYODIDE)


def test_the_code_that_the_page_begins_with_runs() -> None:
    text = (ROOT / "docs/try.md").read_text(encoding="utf-8")
    code = re.findall(r"<textarea[^>]*>\n(.*?)</textarea>", text, re.DOTALL)
    assert len(code) == 1
    assert not set("&<>") & set(code[0])  # it would be read as HTML
    found = run_block(code[0])
    assert "error" not in found
    assert found["text"].count("ON_TIME") == 3
    assert "<svg" in found["html"]


@pytest.mark.long(reason="builds a wheel and installs it")
def test_the_site_carries_a_wheel_that_installs_anywhere(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    made = wheel.build(tmp_path)
    with zipfile.ZipFile(made) as archive:
        files = archive.namelist()
        (metadata,) = (name for name in files if name.endswith(".dist-info/METADATA"))
        told = archive.read(metadata).decode()
    assert {Path(name).suffix for name in files if ".dist-info/" not in name} <= {
        ".py", ".typed", ".css", ".html", ".js",
    }  # fmt: skip
    (rocks,) = re.findall("^Requires-Dist: (rocksdict.*)$", told, re.MULTILINE)
    assert rocks.endswith("; sys_platform != 'emscripten'")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target"]
    subprocess.run([*pip, str(tmp_path / "there"), str(made)], check=True)
    assert (tmp_path / "there/lowwater/__init__.py").is_file()
