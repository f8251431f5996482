"""Reads the text of a pattern; errors point at the place in it."""

from __future__ import annotations

import re
from typing import NamedTuple, NoReturn, final

from lowwater.engine.match.pattern import (
    AnyRow,
    Choice,
    Concatenation,
    Node,
    Repeat,
    Variable,
)
from lowwater.errors import InvalidArgument, describe

__all__ = ["parse_pattern"]

_WHERE = "match(pattern)"
_MOST_ITERATIONS = 1_000
_DEEPEST = 50  # groups inside each other
_SHOWN = 36  # characters on each side of the place of an error

_TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<name>[^\W\d]\w*)|(?P<gap>\.\.)|(?P<count>\{[\s\d,]*\})|(?P<sign>[|()*+?])"
)
_COUNT = re.compile(r"\{\s*(\d*)\s*(,?)\s*(\d*)\s*\}")
_SIGNS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}

# What other languages of patterns have, in order of length: (how it begins, what it is, a hint).
_ELSEWHERE = (
    ("{-", "excluded rows '{- -}' are not supported",
     "Use the plain name, and filter rows by their variable after the match"),
    ("(?", "'(?' has no meaning here: there are no flags, named groups or lookaheads",
     "Use plain parentheses; a look back is a condition with lw.prev"),
    ("->", "'->' has no meaning here", "Separate names by spaces, or by '..' for any rows between"),
    ("...", "'...' has no meaning here", "Use two dots, '..', for any rows between"),
    (".", "'.' has no meaning here",
     "Use '..' for any rows between, or a name without a definition for one row of any kind"),
    ("^", "'^' is not supported: in a stream no row is the first for good (P-14)",
     "Leave it out, or define a variable that is true only of the first row you mean"),
    ("$", "'$' is not supported: in a stream no row is known to be the last (P-14)",
     "Leave it out, or use without=lw.absent(...) for what must not follow"),
    ("{", "'{' begins no number of iterations", "Write {n}, {n,}, {n,m} or {,m}"),
    ("[", "'[' has no meaning here", "Write a choice of names: (a | b)"),
    (",", "',' has no meaning here", "Separate names by spaces"),
    ("!", "'!' has no meaning here", "Define a variable with the opposite condition"),
    ("~", "'~' has no meaning here", "Define a variable with the opposite condition"),
    ("&", "'&' has no meaning here", "Define one variable whose condition says both"),
)  # fmt: skip


class _Token(NamedTuple):
    kind: str
    text: str
    place: int


def parse_pattern(text: str) -> Node:
    """Return the tree of a pattern.

    Args:
        text: Names separated by spaces, ``|`` for a choice, ``( )`` for a group, ``* + ? {n} {n,}
            {n,m} {,m}`` for a repeat, with ``?`` behind it for as few iterations as possible, and
            ``..`` for any rows, as few as possible.

    Raises:
        InvalidArgument: The text is no pattern.

    >>> parse_pattern("a | b")
    Choice(branches=(Variable(name='a'), Variable(name='b')))
    >>> parse_pattern("a b)")
    Traceback (most recent call last):
    lowwater.errors.InvalidArgument: ')' closes no group
        a b)
           ^
     (at match(pattern)). Open the group with '('
    """
    if not isinstance(text, str):
        raise InvalidArgument(
            f"{describe('pattern', text)} is not text", where=_WHERE, hint='Write as in "a b+ c"'
        )
    return _Reader(text).whole()


@final
class _Reader:
    """Reads one text by recursive descent, a token at a time."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [*self._cut(), _Token("end", "", len(text.rstrip()))]
        self._next = 0
        self._depth = 0

    def whole(self) -> Node:
        """Return the tree of the text."""
        if self._token.kind == "end":
            raise InvalidArgument(
                f"{describe('pattern', self._text)} is empty",
                where=_WHERE,
                hint='Name at least one variable, as in "a b+"',
            )
        node = self._choice()
        if self._token.kind != "end":
            self._refuse("')' closes no group", self._token.place, "Open the group with '('")
        return node

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _cut(self) -> list[_Token]:
        tokens = []
        place = 0
        while place < len(self._text):
            found = _TOKEN.match(self._text, place)
            rest = self._text[place:]
            if found is None or rest.startswith(("(?", "...")):
                self._refuse_sign(place)
            kind = str(found.lastgroup)
            if found[0].upper() == "PERMUTE" and rest[len(found[0]) :].lstrip().startswith("("):
                hint = "Write the orders out, the preferred one first: (a b | b a)"
                self._refuse("PERMUTE is not supported", place, hint)
            if kind != "space":
                tokens.append(_Token(kind, found[0], place))
            place = found.end()
        return tokens

    def _choice(self) -> Node:
        branches = [self._sequence()]
        while self._token.text == "|":
            self._next += 1
            branches.append(self._sequence())
        return branches[0] if len(branches) == 1 else Choice(tuple(branches))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._token.kind != "end" and self._token.text not in {"|", ")"}:
            parts.append(self._repeated())
        if not parts:
            self._refuse_empty()
        return parts[0] if len(parts) == 1 else Concatenation(tuple(parts))

    def _repeated(self) -> Node:
        first = self._token
        node = self._single()
        if self._token.kind != "count" and self._token.text not in _SIGNS:
            return node
        sign = self._token
        if first.kind == "gap":
            hint = "Leave the repeat out: '..' takes any number of rows"
            self._refuse(f"'..' cannot be repeated by {sign.text!r}", sign.place, hint)
        least, most = self._bounds(sign)
        self._next += 1
        greedy = self._token.text != "?"
        self._next += not greedy
        again = self._token
        if again.text == "+" and again.place == sign.place + len(sign.text):
            hint = "Leave the '+' out: a repeat gives rows back where the rest needs them"
            self._refuse(
                f"the possessive repeat '{sign.text}+' is not supported", again.place, hint
            )
        if again.kind == "count" or again.text in _SIGNS:
            hint = "Use one, or a group: (a{2})*"
            self._refuse(f"{again.text!r} repeats a repeat", again.place, hint)
        return Repeat(node, least, most, greedy)

    def _single(self) -> Node:
        token = self._token
        self._next += 1
        if token.kind == "gap":
            return Repeat(AnyRow(), 0, None, greedy=False)
        if token.kind == "name":
            return Variable(token.text)
        if token.text != "(":
            hint = "Name a variable before it"
            self._refuse(f"{token.text!r} repeats nothing", token.place, hint)
        self._depth += 1
        if self._depth > _DEEPEST:
            hint = "Leave out groups that are not needed"
            self._refuse(f"more than {_DEEPEST} groups are open", token.place, hint)
        node = self._choice()
        if self._token.text != ")":
            self._refuse("this group is not closed", token.place, "Close it with ')'")
        self._depth -= 1
        self._next += 1
        return node

    def _bounds(self, token: _Token) -> tuple[int, int | None]:
        if token.text in _SIGNS:
            return _SIGNS[token.text]
        found = _COUNT.fullmatch(token.text)
        if found is None or not (found[1] or found[3]) or (found[3] and not found[2]):
            hint = "Write {n}, {n,}, {n,m} or {,m}"
            self._refuse(f"{token.text!r} is no number of iterations", token.place, hint)
        # A number with too many digits is cut: it is refused either way.
        least, most = (int(digits[:9] or 0) for digits in (found[1], found[3]))
        if max(least, most) > _MOST_ITERATIONS:
            what = f"{token.text!r} is more than {_MOST_ITERATIONS:,} iterations"
            self._refuse(what, token.place, "Use fewer, or a repeat without bound and within=")
        if not found[2]:
            most = least
        elif not found[3]:
            return least, None
        if most < least:
            hint = f"Write {{{most},{least}}}"
            self._refuse(f"{token.text!r} has its bounds in the wrong order", token.place, hint)
        if not most:
            self._refuse(f"{token.text!r} takes no row", token.place, "Leave the part out")
        return least, most

    def _refuse_empty(self) -> NoReturn:
        """Refuse a branch or a group without rows; the token is what ends it."""
        before = self._tokens[self._next - 1] if self._next else None
        if before is not None and before.text == "(":
            if self._token.kind == "end":
                self._refuse("this group is not closed", before.place, "Close it with ')'")
            if self._token.text == ")":
                self._refuse("this group is empty", before.place, "Name a variable in it")
        if self._token.text == ")" and before is None:
            self._refuse("')' closes no group", self._token.place, "Open the group with '('")
        hint = "Name a variable in it, or make a group optional: (a | b)?"
        place = self._token.place if before is None or before.text != "|" else before.place
        self._refuse("a branch of '|' is empty", place, hint)

    def _refuse_sign(self, place: int) -> NoReturn:
        rest = self._text[place:]
        for begin, what, hint in _ELSEWHERE:
            if rest.startswith(begin):
                self._refuse(what, place, hint)
        if rest[0].isdigit():
            hint = "Begin names with a letter, and write numbers of iterations as {n}"
            self._refuse(f"{rest[0]!r} begins no name", place, hint)
        hint = "Use names, ( ) | * + ? { } and '..'"
        self._refuse(f"{rest[0]!r} has no meaning here", place, hint)

    def _refuse(self, what: str, place: int, hint: str) -> NoReturn:
        """Raise an error that shows the text, with a caret below the place."""
        low = max(0, place - _SHOWN) if place > 2 * _SHOWN else 0
        high = low + 3 * _SHOWN
        shown = "".join(sign if sign.isprintable() else " " for sign in self._text[low:high])
        before, after = "…" if low else "", "…" if high < len(self._text) else ""
        caret = " " * (place - low + len(before)) + "^"
        raise InvalidArgument(
            f"{what}\n    {before}{shown.rstrip()}{after}\n    {caret}\n", where=_WHERE, hint=hint
        )
