"""A griffe extension, named in ``mkdocs.yml``, that rewrites docstrings as Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import griffe

from docs.tools.markdown import as_markdown


class Docstrings(griffe.Extension):
    """Rewrites each docstring before it is parsed."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of an object that was just read."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Hide the constructor of a class that users do not construct: its fields are private."""
        for cls in list(_classes(pkg)):
            if any(_has_private_field(each) for each in (cls, *_bases(cls))):
                cls.decorators = [
                    one for one in cls.decorators if "dataclass" not in str(one.value)
                ]


def _classes(module: griffe.Module | griffe.Class) -> Iterator[griffe.Class]:
    for member in module.members.values():
        if isinstance(member, griffe.Class):
            yield member
        if isinstance(member, (griffe.Module, griffe.Class)):
            yield from _classes(member)


def _bases(cls: griffe.Class) -> list[griffe.Class]:
    try:
        return cls.mro()
    except ValueError:  # of other packages, which are not loaded
        return []


def _has_private_field(cls: griffe.Class) -> bool:
    return any(
        name.startswith("_") and not name.startswith("__") and member.is_attribute
        for name, member in cls.members.items()
        if not member.is_alias
    )
