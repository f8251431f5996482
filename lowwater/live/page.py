"""Makes the page of a run: one that follows the run, or one file about a run that has ended.

The page is a frame without data. Its script fills it from snapshots, and inserts every text as
text, so no name in a pipeline can become markup. Its parts are the files beside this module.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from lowwater.display.html import escaped
from lowwater.display.palette import Theme, colours_css
from lowwater.live.snapshot import Snapshot

_SCOPE = "lw-live"
_SCRIPTS = ("page_drawing.js", "page_trace.js", "page.js")  # one script: each uses those before it
# A report opens nothing: it works without a network, and tells nobody that it was read.
_REPORT_POLICY = (
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
    "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">"
)


def live_page(nonce: str, theme: Theme = "auto") -> str:
    """Return the page that follows a run through the routes of its server.

    Args:
        nonce: What the content security policy of the answer allows scripts and styles by.
        theme: The colours at first; the reader can choose others.
    """
    return _page(theme, nonce=f' nonce="{escaped(nonce)}"')


def report_page(
    snapshot: Snapshot,
    *,
    graph_svg: str,
    diagrams: Sequence[tuple[str, str]] = (),
    theme: Theme = "auto",
) -> str:
    """Return the page of a run that has ended, as one file that needs no server.

    Args:
        snapshot: What the page shows.
        graph_svg: The graph; empty for none.
        diagrams: Titles, and HTML documents with scripts of their own: each stands in a frame that
            reaches nothing around it.
        theme: The colours at first; the reader can choose others.
    """
    frames = "".join(
        f"<figure><figcaption>{escaped(title)}</figcaption>"
        f'<iframe sandbox="allow-scripts" loading="lazy" title="{escaped(title)}" '
        f'srcdoc="{escaped(document)}"></iframe></figure>'
        for title, document in diagrams
    )
    data = f'<script type="application/json" id="data">{_json(snapshot)}</script>'
    return _page(theme, policy=_REPORT_POLICY, graph=graph_svg, diagrams=frames, data=data)


def _page(
    theme: Theme,
    *,
    nonce: str = "",
    policy: str = "",
    graph: str = "",
    diagrams: str = "",
    data: str = "",
) -> str:
    parts = {
        "theme": theme,
        "policy": policy,
        "nonce": nonce,
        # Always those of "auto": its rules let the page switch between light and dark.
        "css": colours_css(_SCOPE, "auto") + _file("page.css"),
        "graph": graph,
        "diagrams": diagrams,
        "data": data,
        "script": "".join(map(_file, _SCRIPTS)),
    }
    # Each part goes in once, so that a part that happens to contain a mark is left as it is.
    pieces = _file("page.html").split("@@")
    pieces[1::2] = [parts[name] for name in pieces[1::2]]
    return "".join(pieces)


@cache
def _file(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _json(snapshot: Snapshot) -> str:
    # Escape "<", so that no text in the data can close the script element.
    text = json.dumps(snapshot, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")
