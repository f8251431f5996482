"""Checks the Python that users copy, with pyright and with mypy: README, docs and examples.

Each page becomes a module in a temporary directory: its Python blocks, on the lines that they have
in the page, so that an error names the page and the line. The README, the tutorial, the how-tos and
the examples are checked in strict mode, because that is what users paste into strict projects. The
other pages explain rather than serve as a start; their functions may lack annotations, and nothing
else is relaxed.

Run by ``make check``; ``python tools/user_types.py docs/tutorial.md`` checks some pages alone.
basedpyright is pyright with its own Node in a wheel: pyright itself downloads Node when it is first
run, which fails without a network.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
STRICT = ("README.md", "docs/tutorial.md", "docs/howto/", "examples/")
FENCE = re.compile(r"^```(\w*)$")
# These handle Arrow tables, or fsspec. Neither has types, so pyright calls what comes from it
# unknown, which strict mode reports; annotations of functions are still required.
ARROW = (
    "auction_patterns",
    "join",
    "object-stores",
    "several-sources",
    "side-inputs",
    "test-late-data",
    "work_queue",
    "your-own",
)
UNKNOWN = ", reportMissingTypeStubs=false" + "".join(
    f", reportUnknown{what}Type=false" for what in ("Argument", "Lambda", "Member", "Variable")
)
# A page uses a name again for another thing, as a reader does in one session.
SESSION = "allow_redefinition = True"
# What mypy relaxes on the pages that are not strict: annotations of functions alone.
UNANNOTATED = "allow_untyped_defs = True, allow_incomplete_defs = True, allow_untyped_calls = True"


def main(arguments: Sequence[str] = ()) -> int:
    """Check the pages and examples, print what is wrong, and return the exit status.

    Args:
        arguments: Paths below the project's root; by default all pages and examples.
    """
    named = [ROOT / each for each in arguments] or [
        ROOT / "README.md",
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "examples").glob("*.py")),
    ]
    with tempfile.TemporaryDirectory() as folder:
        pages = written(named, Path(folder))
        problems = [*pyright(Path(folder)), *mypy(pages)]
    text = "\n".join(problems)
    for module, page in pages.items():
        text = text.replace(str(module), page)
    if text:
        print(text)
    print(f"{len(pages)} pages and examples, {len(problems)} problems of types")
    return 1 if problems else 0


def module_of(text: str) -> str | None:
    r"""Return the Python blocks of a page on their own lines; ``None`` if it has none.

    >>> module_of("Text\n```python\nx = 1\n```\nmore")
    '\n\nx = 1\n\n\n'
    """
    lines: list[str] = []
    language: str | None = None
    found = False
    for line in text.splitlines():
        fence = FENCE.match(line)
        if fence:
            language = fence[1] if language is None else None
            found = found or language == "python"
        lines.append(line if language == "python" and not fence else "")
    return "\n".join(lines) + "\n" if found else None


def written(paths: Iterable[Path], folder: Path) -> dict[Path, str]:
    """Write a module for each path that has Python, and return the paths that they come from."""
    pages: dict[Path, str] = {}
    for path in paths:
        name = path.relative_to(ROOT).as_posix()
        text = path.read_text(encoding="utf-8")
        code = module_of(text) if path.suffix == ".md" else text
        if code is None:
            continue
        module = folder / (re.sub(r"\W", "_", name) + ".py")
        # Levels are comments after the last line, so that lines have the numbers of the page.
        module.write_text(f"{code}{levels(name)}\n", encoding="utf-8")
        pages[module] = name
    return pages


def levels(name: str) -> str:
    """Return the comments that tell pyright and mypy how strict to be with a page or example."""
    if not name.startswith(STRICT):
        return f"# mypy: {SESSION}, {UNANNOTATED}"
    unknown = UNKNOWN if Path(name).stem in ARROW else ""
    return f"# pyright: strict{unknown}\n# mypy: {SESSION}"


def pyright(folder: Path) -> list[str]:
    """Return the errors of pyright in the modules of a folder."""
    settings = {
        "include": ["."],
        "extraPaths": [str(ROOT)],
        "pythonVersion": "3.11",
        "typeCheckingMode": "standard",
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = ["-m", "basedpyright", "--project", str(folder), "--pythonpath", sys.executable]
    run = subprocess.run(
        [sys.executable, *command, "--outputjson"], capture_output=True, text=True, check=False
    )
    if run.returncode not in (0, 1):
        raise SystemExit(f"pyright failed: {run.stdout}{run.stderr}")
    return [
        f"{each['file']}:{each['range']['start']['line'] + 1}: "
        f"{each['message']} [{each.get('rule', 'syntax')}, pyright]"
        for each in json.loads(run.stdout)["generalDiagnostics"]
    ]


def mypy(modules: Iterable[Path]) -> list[str]:
    """Return the errors of mypy in modules."""
    command = ["-m", "mypy", "--no-error-summary", "--hide-error-context", *map(str, modules)]
    run = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if run.returncode not in (0, 1):
        raise SystemExit(f"mypy failed: {run.stdout}{run.stderr}")
    lines = run.stdout.splitlines()
    return [f"{line} [mypy]" for line in lines if ": note:" not in line]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
