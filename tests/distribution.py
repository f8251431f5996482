"""Tries a built wheel and sdist: ``make dist``, or ``python -m tests.distribution FOLDER``.

The wheel must hold the whole package, run the first example of the README in an environment of its
own and import nothing heavy. The sdist must hold what the tests need.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

from tests.paths import ROOT

HEAVY = ("pandas", "polars", "pyspark", "matplotlib", "hypothesis", "pytest")
_LIGHT = f"""
import sys
import lowwater
assert {str(ROOT)!r} not in lowwater.__file__, lowwater.__file__
heavy = set(sys.modules) & set({HEAVY})
assert not heavy, heavy
"""
# A few tests that read files from all over the repository; all others are only collected.
_TRIED = ("tests/unit/test_time.py", "tests/docs/test_pages.py", "tests/docs/test_site.py")


def main(arguments: Sequence[str]) -> None:
    """Try the distributions in a folder."""
    folder = Path(arguments[0]).resolve()
    (wheel,) = folder.glob("*.whl")
    (sdist,) = folder.glob("*.tar.gz")
    with tempfile.TemporaryDirectory(prefix="lowwater-dist-") as place:
        check_contents(wheel)
        try_wheel(wheel, Path(place))
        try_sdist(sdist, Path(place))
    print(f"{wheel.name} and {sdist.name} are sound")


def check_contents(wheel: Path) -> None:
    """Require every file of the package, ``py.typed`` among them."""
    package = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "lowwater").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert "lowwater/py.typed" in package
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert packed == package, f"missing {package - packed}, too many {packed - package}"


def try_wheel(wheel: Path, place: Path) -> None:
    """Install the wheel into an empty environment, import it and run the README's example."""
    venv.create(place / "venv", with_pip=True)
    python = place / "venv" / "bin" / "python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "-q"]
    _run([*pip, "install", str(wheel)], place)
    _run([*pip, "check"], place)
    _run([str(python), "-W", "error", "-I", "-c", _LIGHT], place)
    code, shown = first_example()
    assert _run([str(python), "-I", "-c", code], place) == shown
    _run([str(python.with_name("lowwater")), "--help"], place)


def first_example() -> tuple[str, str]:
    """Return the code of the README's first example, and what it prints."""
    found = re.search(
        r"```python\n(.*?)```\s*```text\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    assert found is not None
    return found[1], found[2]


def try_sdist(sdist: Path, place: Path) -> None:
    """Unpack the sdist, collect all its tests and run some, with this environment's packages."""
    with tarfile.open(sdist) as archive:
        archive.extractall(place, filter="data")
    folder = place / sdist.name.removesuffix(".tar.gz")
    pytest = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    _run([*pytest, "--collect-only", "-q"], folder)
    _run([*pytest, "-m", "not slow", *_TRIED], folder)


def _run(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert not done.returncode, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


if __name__ == "__main__":
    main(sys.argv[1:])
