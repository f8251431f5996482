"""A griffe extension, named in ``mkdocs.yml``, that rewrites docstrings as Markdown."""

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

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Hide the constructor of a class that users do not construct: its fields are private."""
        if any(
            name.startswith("_") and not name.startswith("__") and member.is_attribute
            for name, member in cls.members.items()
        ):
            cls.decorators = [each for each in cls.decorators if "dataclass" not in str(each.value)]
