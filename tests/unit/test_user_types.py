"""The check of types in pages: what it makes of a page, and how strict it is with which."""

from __future__ import annotations

from tools import user_types

PAGE = """# A page

```python
first = 1
```
```text
no = code
```
Words.
```python
second = first
```
"""


def test_the_python_of_a_page_stays_on_its_lines() -> None:
    module = user_types.module_of(PAGE)
    assert module is not None
    lines = dict(enumerate(module.splitlines(), 1))
    assert {at: line for at, line in lines.items() if line} == {
        4: "first = 1",
        11: "second = first",
    }
    assert user_types.module_of("# Words\n```sh\nmake\n```\n") is None


def test_what_users_paste_is_checked_strictly() -> None:
    for name in ("README.md", "docs/tutorial.md", "docs/howto/see.md", "examples/first_seen.py"):
        assert "pyright: strict\n" in user_types.levels(name)
        assert "allow_untyped_defs" not in user_types.levels(name)
    assert "strict" not in user_types.levels("docs/explanation/model.md")
    arrow = user_types.levels("docs/howto/join.md")
    assert "reportUnknownMemberType=false" in arrow
    assert "reportMissingParameterType" not in arrow
