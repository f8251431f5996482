r"""The groups of a regular expression of RE2, the dialect of Arrow, and what each of them matches.

RE2 replaces a match by the text of a group, and gives an empty text for one that took no part, as
the first of ``(a)|b`` in ``"b"``. Whether a group took part is seen in what takes part with it: the
text of ``\?(.*)`` in ``(?:\?(.*))?`` is empty only if there is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import final

import pyarrow as pa
import pyarrow.compute as pc

from lowwater.errors import InvalidArgument, describe, nearest

_WHERE = "str.extract"
_TOKEN = re.compile(
    r"""
      \\Q (?P<quoted> .*? ) (?: \\E | (?P<unclosed>\Z) )
    | (?P<nothing> \\E )
    | (?P<bytes> \\C )
    | (?P<assertion> \\[AbBz] | \^ | \$ )
    | \\x\{[^}]*\} | \\x[0-9a-fA-F]{2} | \\[pP]\{[^}]*\} | \\[pP]. | \\[0-7]{1,3} | \\.
    | \[ \^? \]? (?: \[:\^?\w+:\] | \\. | [^\]\\] )* \]
    | (?P<flags> \(\?[a-zA-Z-]*\) )
    | (?P<plain> \(\?[a-zA-Z-]*: )
    | (?P<capture> \( (?: \?P?< (?P<name> [^>]* ) > )? )
    | (?P<close> \) )
    | (?P<or> \| )
    | (?P<repeat> (?: [*+?] | \{ (?P<least> [0-9]+ ) (?: ,[0-9]* )? \} ) \?? )
    | .
    """,
    re.VERBOSE | re.DOTALL,
)


@final
@dataclass(frozen=True, slots=True)
class Extraction:
    """What finds the text of a group in the first match of a regular expression.

    Each is a regular expression for a whole text, of which the only group is wanted.

    Args:
        text: Its group has the text of the group that was asked for.
        part: Its group has a text that is empty just if the group that was asked for took no part
            in the match; ``None`` if it always takes part.
    """

    text: str
    part: str | None


@final
@dataclass(slots=True)
class _Group:
    """A group with a number.

    Args:
        name: Its name; ``None`` without one.
        opening: Where its opening stands, from and to.
        whole: Where it stands, from and to.
        least: The fewest characters that it matches.
        may_miss: Whether it may take no part in a match.
        witness: Where that stands which takes part just if the group does, and matches at least
            one character; ``None`` if there is no such part.
    """

    name: str | None
    opening: tuple[int, int]
    whole: tuple[int, int] = (0, 0)
    least: int = 0
    may_miss: bool = False
    witness: tuple[int, int] | None = None


@final
@dataclass(slots=True)
class _Part:
    """A part of a regular expression, and the groups that take part in a match just if it does."""

    start: int
    stop: int
    least: int = 0
    groups: list[_Group] = field(default_factory=list)


@final
@dataclass(slots=True)
class _Open:
    """Alternatives that are being read: those of a group, or of the whole expression."""

    start: int
    group: _Group | None
    branches: list[list[_Part]] = field(default_factory=lambda: [[]])
    starts: list[int] = field(default_factory=list)
    sets_flags: bool = False


def extraction_of(regex: object, group: object) -> Extraction:
    """Return what finds the text of a group.

    Args:
        regex: The regular expression, as a user has given it.
        group: The number of the group, or its name; 0 for the whole match.

    Raises:
        InvalidArgument: It is no regular expression of RE2, it has no such group, or whether the
            group takes part in a match cannot be told.
    """
    if not isinstance(regex, str):
        raise InvalidArgument(
            f"{describe('regex', regex)} is not text",
            where=_WHERE,
            hint=r'Write, say, lw.col("url").str.extract(r"^https?://([^/]+)")',
        )
    _require_valid(regex)
    groups, ending = _groups_of(regex)
    if _is_number(group) and group == 0:
        made = Extraction(_whole_text(_marked(regex, groups, (0, len(regex))) + ending), None)
        return _checked(regex, made)
    wanted = _chosen(regex, groups, group)
    text = _whole_text(_marked(regex, groups, wanted.whole) + ending)
    if not wanted.may_miss:
        return _checked(regex, Extraction(text, None))
    if wanted.witness is None:
        raise InvalidArgument(
            f"group {group!r} of {describe('regex', regex)} may take no part in a match, and may "
            "be empty where it does: the two cannot be told apart",
            where=_WHERE,
            hint="Let it match at least one character, as with + instead of *; or let it take part "
            "in every match, as in (a*) instead of (a*)?",
        )
    part = _whole_text(_marked(regex, groups, wanted.witness) + ending)
    return _checked(regex, Extraction(text, part))


def _require_valid(regex: str) -> None:
    try:
        pc.match_substring_regex(pa.array([""]), regex)
    except (pa.ArrowInvalid, UnicodeEncodeError) as error:
        raise InvalidArgument(
            f"{describe('regex', regex)} is not a regular expression: {_said(error)}",
            where=_WHERE,
            hint=_fix(regex),
        ) from None


def _checked(regex: str, made: Extraction) -> Extraction:
    """Return an extraction if RE2 takes what was made of a regular expression that it takes."""
    try:
        for one in (made.text, made.part or made.text):
            pc.replace_substring_regex(pa.array(["", "a"]), one, r"\1")
    except pa.ArrowInvalid as error:
        raise InvalidArgument(
            f"{describe('regex', regex)} cannot be used: {_said(error)}",
            where=_WHERE,
            hint="Make it simpler: it may be too large",
        ) from None
    return made


def _said(error: Exception) -> str:
    if isinstance(error, UnicodeEncodeError):
        return "it has half of a surrogate pair"
    return str(error).removeprefix("Invalid regular expression: ").rstrip(".")


def _fix(regex: str) -> str:
    if re.search(r"\(\?<?[=!]", regex):
        return "RE2 has no look-around: match the text around it, too, and take a group of it"
    if re.search(r"\\[1-9]|\(\?P=", regex):
        return "RE2 has no references back to a group; compare in a function: .map(...)"
    return "Its syntax is that of RE2: https://github.com/google/re2/wiki/Syntax"


def _is_number(group: object) -> bool:
    return isinstance(group, int) and not isinstance(group, bool)


def _chosen(regex: str, groups: list[_Group], group: object) -> _Group:
    names = {one.name: one for one in groups if one.name is not None}
    if isinstance(group, str) and group in names:
        return names[group]
    if isinstance(group, int) and _is_number(group) and 0 < group <= len(groups):
        return groups[group - 1]
    if isinstance(group, str) and names:
        hint = nearest(group, names)
    elif not groups:
        hint = "Put what is wanted in parentheses, or take the whole match with group=0"
    else:
        hint = f"Its groups are 1 to {len(groups)}, and 0 for the whole match"
    raise InvalidArgument(
        f"there is no {describe('group', group)} in {describe('regex', regex)}",
        where=_WHERE,
        hint=hint,
    )


def _groups_of(regex: str) -> tuple[list[_Group], str]:
    r"""Return the groups in the order of their numbers, and what ends an open ``\Q``.

    Args:
        regex: A regular expression that RE2 takes.
    """
    groups: list[_Group] = []
    opened = [_Open(0, None, starts=[0])]
    ending = ""
    for token in _TOKEN.finditer(regex):
        start, stop, top = token.start(), token.end(), opened[-1]
        last = top.branches[-1]
        kind = token.lastgroup
        if token["bytes"]:
            raise InvalidArgument(
                rf"\C in {describe('regex', regex)} matches one byte of a character",
                where=_WHERE,
                hint="Match a whole character with a dot",
            )
        if token["quoted"] is not None:
            last.extend(_Part(start, stop, 1) for _ in token["quoted"])
            ending = r"\E" if token["unclosed"] is not None else ending
        elif kind == "nothing":
            continue
        elif kind == "assertion":
            last.append(_Part(start, stop))
        elif kind == "flags":
            top.sets_flags = True
        elif kind == "plain":
            opened.append(_Open(start, None, starts=[stop]))
        elif token["capture"]:
            group = _Group(token["name"], (start, stop))
            groups.append(group)
            opened.append(_Open(start, group, starts=[stop]))
        elif kind == "close":
            part = _closed(opened.pop(), start, stop)
            opened[-1].branches[-1].append(part)
        elif kind == "or":
            top.branches.append([])
            top.starts.append(stop)
        elif token["repeat"]:
            _repeat(last[-1], token)
        else:
            last.append(_Part(start, stop, 1))
    _closed(opened.pop(), len(regex), len(regex))
    return groups, ending


def _repeat(part: _Part, token: re.Match[str]) -> None:
    """Note how often a part is repeated, at least."""
    least = int(token["least"]) if token["least"] else int(token["repeat"][0] == "+")
    if not least:
        _may_miss(part, is_whole=True)
    part.least *= least


def _closed(opened: _Open, stop: int, end: int) -> _Part:
    """Return alternatives that have been read as one part, which ends with their group."""
    ends = [*(start - 1 for start in opened.starts[1:]), stop]
    branches = [
        _Part(start, at, sum(one.least for one in parts), [g for p in parts for g in p.groups])
        for start, at, parts in zip(opened.starts, ends, opened.branches, strict=True)
    ]
    if len(branches) > 1:
        for branch in branches:
            _may_miss(branch, is_whole=not opened.sets_flags)
    whole = _Part(opened.start, end, min(branch.least for branch in branches))
    if len(branches) == 1:
        whole.groups = branches[0].groups
    if opened.group is not None:
        opened.group.whole = (opened.group.opening[1], stop)
        opened.group.least = whole.least
        whole.groups = [opened.group, *whole.groups]
    return whole


def _may_miss(part: _Part, *, is_whole: bool) -> None:
    """Note that a part, and so its groups, may take no part in a match.

    Args:
        part: The part. None of its groups is known to miss.
        is_whole: Whether parentheses around it change nothing, as they end the effect of flags.
    """
    for group in part.groups:
        group.may_miss = True
        if group.least:
            group.witness = group.whole
        elif part.least and is_whole:
            group.witness = (part.start, part.stop)
    part.groups = []


def _marked(regex: str, groups: Iterable[_Group], span: tuple[int, int]) -> str:
    """Return a regular expression of which a span is the only group."""
    edits = [(group.opening, "(?:") for group in groups]
    start, stop = span
    made: list[str] = []
    at = 0
    marks = [((start, start), "("), ((stop, stop), ")")]
    # At one place a group around others opens first, and one inside of others closes first.
    for (low, high), text in sorted([*edits, *marks], key=lambda edit: (edit[0], edit[1] != "(")):
        made += [regex[at:low], text]
        at = high
    return "".join([*made, regex[at:]])


def _whole_text(regex: str) -> str:
    r"""Return a regular expression for a text whose first match is that of another one.

    What comes before is as short as possible, so the match is the first one. Flags of the other
    end with the parentheses.
    """
    return rf"\A(?s:.*?)(?:{regex})(?s:.*)\z"
