"""The extension of griffe that ``mkdocs.yml`` names: docstrings are rewritten as Markdown."""

from __future__ import annotations

from typing import Any

import griffe

from docs.tools.markdown import as_markdown


class Docstrings(griffe.Extension):
    """Rewrites each docstring before it is parsed."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of an object that was just read."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
