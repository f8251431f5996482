"""The manifest of one version of a key group: which files it is made of, and where it comes from.

A manifest is one line of JSON and one of its CRC-32 in hex. It is written once, behind the files it
names. The small files of RocksDB (``CURRENT`` and its own manifest) are in it whole, the tables
are files beside it.

Names of versions and of tables begin with the number of the batch that wrote them, in digits
that sort, and go on with random ones: no two attempts at a batch ever make the same name.
"""

from __future__ import annotations

import re
from typing import Any, final
from uuid import uuid4
from zlib import crc32

import msgspec

from lowwater.errors import InvalidArgument, StateError, describe
from lowwater.state.formats import FORMATS, check_format

FORMAT = "state versions"

_OTHER = "Run it with the lowwater that wrote it, or begin with a new checkpoint"

MANIFEST = ".version"
"""What the name of a manifest ends with, after the name of its version."""

RESTART = (
    "Restart the query from an earlier batch whose state is whole, or restore a copy of its "
    "checkpoint location"
)
"""The hint where a version is lost."""

_MOST = 10**12 - 1
_NAME = re.compile(r"(\d{12})-([0-9a-f]{32})")
_FILE = re.compile(rf"({_NAME.pattern})(?:-(\d+\.sst)|{re.escape(MANIFEST)})")
_TABLE = re.compile(r"\d+\.sst")
_SMALL = re.compile(r"CURRENT|MANIFEST-\d+")


@final
class SharedTable(msgspec.Struct, frozen=True):
    """A table of RocksDB (an ``.sst`` file).

    Args:
        name: Its name at the root: unique, and never written again.
        local: What RocksDB calls it within the version.
        size: Bytes.
        crc: CRC-32 of them.
    """

    name: str
    local: str
    size: int
    crc: int


@final
class Dropped(msgspec.Struct, frozen=True):
    """A table that a version no longer has, but one of its ancestors.

    Args:
        name: Its name at the root.
        number: Number of the first version without it.
    """

    name: str
    number: int


@final
class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a key group.

    Args:
        layout: The version of the format.
        group: The key group.
        version: The name of this version.
        ancestors: Versions that this one was made from, oldest first, as far as they are kept.
        tables: What it is made of.
        small: RocksDB's other files, whole, by name.
        dropped: Tables of the ancestors that this version does without.
    """

    layout: int
    group: int
    version: str
    ancestors: list[str]
    tables: list[SharedTable]
    small: dict[str, bytes]
    dropped: list[Dropped]

    def kept(self) -> set[str]:
        """Return the names of all files that this version and its ancestors need."""
        manifests = {version + MANIFEST for version in (*self.ancestors, self.version)}
        tables = {table.name for table in self.tables}
        return manifests | tables | {table.name for table in self.dropped}


def successor(
    base: Manifest | None,
    *,
    group: int,
    version: str,
    tables: list[SharedTable],
    small: dict[str, bytes],
    retain: int,
) -> Manifest:
    """Return the manifest of a version made from another one.

    An ancestor is kept while one of the last ``retain`` batches may be run again from it: that
    is, unless the version that came after it is older than that.
    """
    number = number_of(version)
    ancestors: list[str] = []
    dropped: list[Dropped] = []
    if base is not None:
        line = [*base.ancestors, base.version]
        followed = [*map(number_of, line[1:]), number]
        ancestors = [
            each for each, after in zip(line, followed, strict=True) if after > number - retain
        ]
        here = {table.name for table in tables}
        gone = [Dropped(each.name, number) for each in base.tables if each.name not in here]
        dropped = [each for each in (*base.dropped, *gone) if each.number > number - retain]
    return Manifest(
        layout=FORMATS[FORMAT],
        group=group,
        version=version,
        ancestors=ancestors,
        tables=tables,
        small=small,
        dropped=dropped,
    )


def new_version(number: int) -> str:
    """Return a name that no other version has.

    Args:
        number: Of the micro-batch, 0 to 10¹² - 1.

    >>> new_version(7)[:13]
    '000000000007-'
    """
    if not 0 <= number <= _MOST:
        raise InvalidArgument(f"{describe('number', number)} must be from 0 to {_MOST}")
    return f"{number:012d}-{uuid4().hex}"


def number_of(version: str) -> int:
    """Return the number of the batch that wrote a version.

    >>> number_of("000000000007-" + 32 * "a")
    7
    """
    found = _NAME.fullmatch(version)
    if found is None:
        raise InvalidArgument(
            f"{describe('version', version)} is not the name of a version",
            hint="Give the name that a commit returned",
        )
    return int(found[1])


def file_number(name: str) -> int | None:
    """Return the number of the batch that wrote a file at the root; None if it is not ours."""
    found = _FILE.fullmatch(name)
    return int(found[2]) if found else None


def encode(manifest: Manifest) -> bytes:
    """Return a manifest as it is stored."""
    line = msgspec.json.encode(manifest)
    return b"%b\n%08x\n" % (line, crc32(line))


def decode(data: bytes, *, group: int, version: str, where: str) -> Manifest:
    """Return a manifest from its bytes.

    Args:
        data: What :func:`encode` made.
        group: Whose it must be.
        version: Which one it must be.
        where: Its path or URI, for errors.

    Raises:
        StateError: It is damaged, of a newer layout, or another one's.
    """
    line, _, check = data.partition(b"\n")
    if check != b"%08x\n" % crc32(line):
        raise StateError("the manifest is damaged or cut short", where=where, hint=RESTART)
    try:
        layout = msgspec.json.decode(line, type=dict[str, Any])["layout"]
        check_format(FORMAT, layout, where=where, hint=_OTHER)
        manifest = msgspec.json.decode(line, type=Manifest)
    except (msgspec.MsgspecError, KeyError) as error:
        raise StateError(f"this is not a manifest ({error})", where=where, hint=RESTART) from error
    if (manifest.group, manifest.version) != (group, version):
        raise StateError(
            f"this is the manifest of version {manifest.version} of key group {manifest.group}",
            where=where,
            hint=RESTART,
        )
    strange = [
        *(table.local for table in manifest.tables if not _TABLE.fullmatch(table.local)),
        *(table.name for table in manifest.tables if file_number(table.name) is None),
        *(name for name in manifest.small if not _SMALL.fullmatch(name)),
    ]
    if strange:
        what = f"the manifest names files that no version has: {', '.join(strange)}"
        raise StateError(what, where=where, hint=RESTART)
    return manifest
