"""The display of a handle: it refreshes itself in a notebook, and is one line in a terminal."""

from __future__ import annotations

import subprocess
import sys

import nbformat
import pytest
from nbclient import NotebookClient

PROGRAM = """
import threading
import lowwater as lw
from lowwater.io.sinks import Callback
begun, go = threading.Event(), threading.Event()
def records():
    yield {"at": 4_000_000_000_000_000, "key": "a"}
    begun.set()
    go.wait()
stream = lw.from_iterable(records(), time="at", watermark=lw.BoundedDisorder("5s"))
counts = stream.key_by("key").window(lw.FixedWindows("1m")).aggregate(n=lw.count())
handle = counts.write_to(Callback(lambda _: None)).start(serve=0, progress=False)
assert begun.wait(60)
handle
"""
END = """
go.set()
_ = handle.wait()
for thread in threading.enumerate():
    if thread.name == "lowwater display":
        thread.join(60)
"""


def test_a_terminal_gets_one_line() -> None:
    """An update would be printed as one more, each second."""
    program = f"""
import time
from IPython.core.interactiveshell import InteractiveShell
from lowwater.pipeline import handle
handle._REFRESH_S = 0.01
shell = InteractiveShell.instance()
shell.run_cell({PROGRAM!r}).raise_error()
time.sleep(0.1)  # ten refreshes
shell.run_cell({END!r}).raise_error()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.count("<RunHandle") == 1


@pytest.mark.long(reason="runs a notebook")
def test_a_notebook_shows_how_it_ended() -> None:
    cells = [nbformat.v4.new_code_cell(PROGRAM), nbformat.v4.new_code_cell(END)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    shown = [one for one in notebook.cells[0].outputs if one.output_type == "display_data"]
    assert len(shown) == 1, "one output, which is refreshed"
    assert shown[0].data["text/plain"] == "<RunHandle, ended>"
    assert "ended" in shown[0].data["text/html"]
    assert "http" not in shown[0].data["text/html"], "the page has gone"
