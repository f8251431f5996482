"""Execute the notebooks: ``python -m notebooks.execute`` runs them and writes their outputs.

With ``--check`` nothing is written: the outputs must equal those in the files. Names of notebooks,
or prefixes of names, select some of them.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from traitlets.config import Config

FOLDER = Path(__file__).parent
LONGEST = 120  # seconds a cell may take on a busy machine
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
_KEPT = ("image/svg+xml", "text/html", "text/plain")


def main(arguments: list[str] | None = None) -> int:
    """Execute notebooks; return 0 if all is well."""
    parser = argparse.ArgumentParser(prog="notebooks.execute", description=__doc__)
    parser.add_argument("names", nargs="*", help="beginnings of notebooks' names; all if left out")
    parser.add_argument("--check", action="store_true", help="compare outputs, write nothing")
    given = parser.parse_args(arguments)
    good = True
    for path in chosen(given.names):
        try:
            done = executed(path)
        except CellExecutionError as error:
            print(f"{path.name}: {error}", file=sys.stderr)
            good = False
            continue
        wrong = list(_complaints(done))
        if given.check:
            wrong += differences(read(path), done)
        else:
            path.write_text(nbformat.writes(done) + "\n", encoding="utf-8")
        good &= not wrong
        print("\n".join([f"{path.name}: {'as it should be' if not wrong else 'WRONG'}", *wrong]))
    return 0 if good else 1


def chosen(names: Iterable[str] = ()) -> list[Path]:
    """Return the notebooks whose names begin so, in order; all if no names are given."""
    found = sorted(FOLDER.glob("*.ipynb"))
    wanted = tuple(names)
    return [path for path in found if path.name.startswith(wanted)] if wanted else found


def read(path: Path) -> Any:
    """Return a notebook."""
    return nbformat.read(path, as_version=4)


def executed(path: Path) -> Any:
    """Return a notebook with new outputs; it runs in an empty folder of its own.

    Raises:
        CellExecutionError: A cell raised.
    """
    notebook = read(path)
    with tempfile.TemporaryDirectory() as folder:
        # Nothing of the user's: no startup files, no settings, no kernels of other environments.
        own = {"IPYTHONDIR": f"{folder}/.ipython", "JUPYTER_CONFIG_DIR": f"{folder}/.jupyter"}
        paths = [str(FOLDER.parent), os.environ.get("PYTHONPATH", "")]
        own["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        work = Path(folder) / "work"
        work.mkdir()
        # Through sockets in the folder where there are such, so that nothing listens on a port.
        sockets = {} if os.name == "nt" else {"transport": "ipc"}
        kernel = {"connection_file": f"{folder}/kernel.json", **sockets}
        client = NotebookClient(
            notebook,
            kernel_name="python3",
            config=Config(AsyncKernelManager=kernel),
            timeout=LONGEST,
            record_timing=False,
            resources={"metadata": {"path": str(work)}},
        )
        client.execute(env={**os.environ, **own})
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = list(_tidy(cell.outputs))
    return notebook


def differences(committed: Any, done: Any) -> list[str]:
    """Return how the outputs of two notebooks differ, as lines; pictures are compared as text."""
    lines: list[str] = []
    for old, new in zip(committed.cells, done.cells, strict=True):
        if old.cell_type == "code":
            before, after = _texts(old.outputs), _texts(new.outputs)
            lines += difflib.unified_diff(
                before, after, f"cell {old.id}, committed", f"cell {old.id}, executed", lineterm=""
            )
    return lines


def _tidy(outputs: Iterable[Any]) -> Iterator[Any]:
    """Yield outputs without what changes from run to run, or is there twice."""
    stream = None
    for output in outputs:
        if output.output_type == "stream":
            if stream is not None and stream.name == output.name:
                stream.text += output.text  # how it is cut depends on the machine's speed
                continue
            stream = output
            yield output
            continue
        stream = None
        if "data" in output:
            data = {name: output.data[name] for name in _KEPT if name in output.data}
            if "image/svg+xml" in data:
                # The page with the slider is for a live notebook; where no scripts run, as on
                # the web, this picture is the same.
                data.pop("text/html", None)
            output.data = data
            output.metadata = {}
        yield output


def _complaints(notebook: Any) -> Iterator[str]:
    """Yield what no committed notebook should have: warnings, and where it was run."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if output.get("name") == "stderr":
                yield f"cell {cell.id} writes to stderr: {output.text}"
            text = "\n".join(_texts([output]))
            for place in (str(FOLDER.parent), str(Path.home()), tempfile.gettempdir()):
                if len(place) > 1 and place in text:
                    yield f"cell {cell.id} shows a path of this machine: {place}"


def _texts(outputs: Iterable[Any]) -> list[str]:
    lines: list[str] = []
    for output in outputs:
        data = output.get("data", {"text": output.get("text", "")})
        for kind, text in sorted(data.items()):
            lines += [f"({kind})", *str(text).splitlines()]
    return lines


if __name__ == "__main__":
    sys.exit(main())
